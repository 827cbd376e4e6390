//! The steps: each calls operations of one kind on a server, and checks what they return and what another client sees.
//!
//! A step uses names of its own in an otherwise empty directory; the last one removes everything.

mod attributes;
mod copies;
mod files;
mod lists;
mod locks;
mod many;
mod names;
mod space;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::panic::Location;

use client::config::Version;
use client::errno::Errno;
use client::error::Error;
use client::fs::OpenOptions;
use client::results::OpenMode;
use client::url::{LookupCache, Url};
use net::blocking::{Connection, FileSystem};
use net::connect;

/// Why a step failed.
type Failure = Box<dyn StdError>;
type Outcome<T = ()> = Result<T, Failure>;
type Step = fn(&Place) -> Outcome;

/// All steps, in their order.
const STEPS: [(&str, Step); 22] = [
    ("open creates and refuses", files::open_creates_and_refuses),
    ("written data are read by another client", files::written_data_are_read_by_another_client),
    ("whole files are written and read", files::whole_files),
    ("a removed file is read while it is open", files::a_removed_file_is_read_while_it_is_open),
    ("attributes are shown and set", attributes::attributes_are_shown_and_set),
    ("permissions are returned", attributes::permissions_are_returned),
    ("space is returned", attributes::space_is_returned),
    ("directories are made, listed and removed", names::directories),
    ("names are changed", names::renames),
    ("links are made and followed", names::links),
    ("special files are made", names::special_files),
    ("locks of ranges exclude", locks::ranges_exclude),
    ("a lock is waited for", locks::a_lock_is_waited_for),
    ("locks of files exclude", locks::files_exclude),
    ("extended attributes are kept", lists::extended_attributes),
    ("access control lists grant", lists::access_control_lists),
    ("space is reserved, and holes are found", space::reserved_space_and_holes),
    ("files are copied and cloned by the server", space::copies_and_clones),
    ("many files are made, read and removed together", many::many_files),
    ("trees are listed", many::trees_are_listed),
    ("trees are copied", copies::trees_are_copied),
    ("everything is removed", many::everything_is_removed),
];

/// What a version of the protocol or a server may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    Locks,
    Xattrs,
    Acls,
    SetAcls,
    Allocate,
    PunchHole,
    Seek,
    Copy,
    Clone,
}

impl Feature {
    const ALL: [Self; 9] = [
        Self::Locks,
        Self::Xattrs,
        Self::Acls,
        Self::SetAcls,
        Self::Allocate,
        Self::PunchHole,
        Self::Seek,
        Self::Copy,
        Self::Clone,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Xattrs => "xattrs",
            Self::Acls => "acls",
            Self::SetAcls => "set-acls",
            Self::Allocate => "allocate",
            Self::PunchHole => "punch-hole",
            Self::Seek => "seek",
            Self::Copy => "copy",
            Self::Clone => "clone",
        }
    }

    /// Returns whether a version of the protocol has it: RFC 7862 and RFC 8276 add the others, and the side protocol for ACLs has nothing
    /// for version 2 in this client.
    fn is_in(self, version: Version) -> bool {
        match self {
            Self::Locks => true,
            Self::Acls | Self::SetAcls => version != Version::V2,
            _ => version == Version::V42,
        }
    }
}

/// Features that a server lacks, with the error of their operations.
type Lacking = BTreeMap<Feature, Errno>;

/// Runs all steps on the server of a URL, which lacks features: `FEATURE=ERRNO`. Returns a line about them.
///
/// # Errors
/// The name of the first step that failed, and why.
pub(crate) fn run(url: &str, lacking: &[String]) -> Outcome<String> {
    let place = Place::open(url, lacking.iter().map(|word| lacks(word)).collect::<Result<_, _>>()?)?;
    for (name, step) in STEPS {
        step(&place).map_err(|why| format!("{name}: {why}"))?;
        println!("pass  {name}");
    }
    let version = place.version();
    let lacking: Vec<&str> = place.lacking.keys().map(|feature| feature.name()).collect();
    place.close()?;
    Ok(format!("{} steps passed over version {version}; lacking: [{}]", STEPS.len(), lacking.join(", ")))
}

/// Parses `FEATURE=ERRNO`.
fn lacks(word: &str) -> Result<(Feature, Errno), String> {
    let (name, errno) = word.split_once('=').ok_or("expected FEATURE=ERRNO")?;
    let known = [Errno::EOPNOTSUPP, Errno::ENOLCK, Errno::EINVAL, Errno::EPROTONOSUPPORT, Errno::ENOSPC];
    let feature = Feature::ALL.into_iter().find(|feature| feature.name() == name);
    let errno = known.into_iter().find(|known| known.name() == Some(errno));
    feature.zip(errno).ok_or_else(|| format!("no such feature or error: {word}"))
}

/// A directory of a server, reached by two clients.
struct Place {
    url: Url,
    first: (Connection, FileSystem),
    second: (Connection, FileSystem),
    lacking: Lacking,
}

impl Place {
    /// Connects to the server of a URL twice.
    fn open(url: &str, mut lacking: Lacking) -> Outcome<Self> {
        let url: Url = url.parse()?;
        // The second client sees changes at once.
        let mut uncached = url.clone();
        uncached.options.attribute_cache = Some(false);
        uncached.options.lookup_cache = Some(LookupCache::None);
        let (first, second) = (Connection::to(&url)?, Connection::to(&uncached)?);
        let version = first.0.client().version();
        for feature in Feature::ALL.into_iter().filter(|feature| !feature.is_in(version)) {
            lacking.insert(feature, Errno::EOPNOTSUPP);
        }
        Ok(Self { url, first, second, lacking })
    }

    /// Returns the version of both connections.
    fn version(&self) -> Version {
        self.first.0.client().version()
    }

    /// Ends both connections.
    fn close(self) -> Outcome {
        self.first.0.close()?;
        Ok(self.second.0.close()?)
    }

    /// Returns the directory as the first client has it.
    fn fs(&self) -> &FileSystem {
        &self.first.1
    }

    /// Returns the directory as the second client has it.
    fn other(&self) -> &FileSystem {
        &self.second.1
    }

    /// Returns the directory as the first client has it for a user without privileges.
    fn of_user(&self, uid: u32) -> Outcome<FileSystem> {
        let mut options = self.url.options.clone();
        (options.uid, options.gid) = (Some(uid), Some(uid));
        Ok(self.first.0.mount(connect::caller(&options), self.url.path())?)
    }

    /// Takes the outcome of an operation: `None` if the server lacks it, and it failed as it must.
    #[track_caller]
    fn of<T>(&self, feature: Feature, outcome: Result<T, Error>) -> Outcome<Option<T>> {
        match self.lacking.get(&feature) {
            None => Ok(Some(outcome?)),
            Some(errno) => {
                fails(&format!("{}, which is lacking,", feature.name()), outcome, *errno).map(|()| None)
            }
        }
    }
}

/// Options of a file to read and write, which is created if it is missing.
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, truncate: false, ..OpenOptions::CREATE };

/// Fails if the two values differ.
#[track_caller]
fn same<T: PartialEq + Debug>(what: &str, wanted: T, is: T) -> Outcome {
    if wanted == is {
        return Ok(());
    }
    let at = Location::caller();
    Err(format!("{what}: expected {wanted:?}, is {is:?} ({}:{})", at.file(), at.line()).into())
}

/// Fails if a condition does not hold.
#[track_caller]
fn holds(what: &str, condition: bool) -> Outcome {
    same(what, true, condition)
}

/// Fails unless an operation failed with this error.
#[track_caller]
fn fails<T>(what: &str, outcome: Result<T, Error>, wanted: Errno) -> Outcome {
    let at = Location::caller();
    match outcome {
        Err(error) if error.errno() == wanted => Ok(()),
        Err(error) => {
            Err(format!("{what} must fail with {wanted:?}, says: {error} ({}:{})", at.file(), at.line())
                .into())
        }
        Ok(_) => Err(format!("{what} must fail with {wanted:?} ({}:{})", at.file(), at.line()).into()),
    }
}

/// Returns bytes without a period that divides block sizes.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ (at / 251 % 241) as u8).collect()
}
