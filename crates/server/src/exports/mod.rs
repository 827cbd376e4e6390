use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use core::net::IpAddr;
use vfs::{Backend, Credentials, Handle};

mod clients;
pub(crate) mod junction;
mod locations;
pub(crate) mod pseudo;

pub use clients::ClientPattern;
pub(crate) use clients::HostNames;
use clients::Rank;
pub use locations::{Location, Locations};

use crate::exports::junction::Junctions;
use crate::exports::pseudo::PseudoFs;
use crate::{ExportId, Flavors, HandleKey, WireHandle};

/// The callers that are mapped to the anonymous user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squash {
    /// None: root on a client is root here.
    None,
    /// Root; the default.
    Root,
    /// All.
    All,
}

/// `nobody` and `nogroup`, as Linux's server has them.
pub const DEFAULT_ANONYMOUS: u32 = 65_534;

/// The options of an export for some clients: its only entry, or one of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportOptions {
    /// Refuses every change.
    pub read_only: bool,
    /// The squashed callers.
    pub squash: Squash,
    /// The credentials of squashed callers, and of callers without credentials.
    pub anonymous: Arc<Credentials>,
    /// The clients that may use it; empty for all that can reach a listening address.
    pub clients: Vec<ClientPattern>,
    /// The security flavors that it takes, the most preferred first.
    pub flavors: Flavors,
    /// Whether other machines may use AUTH_SYS and AUTH_NONE from ports of 1024 and above, as in exports(5).
    pub insecure: bool,
    /// Whether changes by local processes recall delegations, if the backend can see them.
    pub recall_local_changes: bool,
    /// Whether the handles of version 3 have 32 bytes too, if the backend's handles allow that. Version 4's do not.
    pub short_handles: bool,
    /// The treatment of longer files by version 2, whose sizes have 32 bits.
    pub v2_large_files: LargeFiles,
    /// Whether version 2's clients take sizes as signed numbers: no file may then exceed 2 GiB - 1.
    pub v2_signed_sizes: bool,
    /// The place of the file system, and of its replicas.
    pub locations: Locations,
}

/// The treatment by version 2 of a file whose size exceeds 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeFiles {
    /// Answers FBIG, so that no client mistakes a part for the whole.
    Refuse,
    /// Shows the greatest possible size, and the bytes up to it.
    Clamp,
}

impl Default for ExportOptions {
    fn default() -> Self {
        let nobody = Credentials { uid: DEFAULT_ANONYMOUS, gid: DEFAULT_ANONYMOUS, groups: Arc::from([]) };
        Self {
            read_only: false,
            squash: Squash::Root,
            anonymous: Arc::new(nobody),
            clients: Vec::new(),
            flavors: Flavors::SYS,
            insecure: false,
            recall_local_changes: true,
            short_handles: false,
            v2_large_files: LargeFiles::Refuse,
            v2_signed_sizes: false,
            locations: Locations::Here,
        }
    }
}

impl ExportOptions {
    /// Returns the greatest size of a file in version 2, bytes.
    #[must_use]
    pub fn v2_max_size(&self) -> u32 {
        if self.v2_signed_sizes { i32::MAX as u32 } else { u32::MAX }
    }

    /// Returns the precision with which a pattern of this rank matches a client, in bits of its address; `None` if none matches. Without patterns
    /// every client matches.
    fn means(&self, rank: Rank, address: IpAddr, names: &HostNames) -> Option<u8> {
        if self.clients.is_empty() {
            return (rank == Rank::Everyone).then_some(0);
        }
        let of_rank = self.clients.iter().filter(|pattern| pattern.rank() == rank);
        of_rank.filter(|pattern| pattern.matches(address, names)).map(ClientPattern::bits).max()
    }
}

/// A file system and the path that clients mount it by.
#[derive(Debug, Clone)]
pub struct Export {
    /// Its number in handles; the same over restarts.
    pub id: ExportId,
    /// Path by which it is mounted in every version, `/` and names, without a slash at the end; or `/` alone.
    pub path: String,
    /// The file system.
    pub backend: Arc<dyn Backend>,
    /// The options for callers.
    pub options: ExportOptions,
    /// `fsid` on the wire (major, minor): the same over restarts, and unlike any other export's.
    pub fsid: (u64, u64),
    /// Counters of its use.
    pub counts: Arc<ExportCounts>,
}

/// Counters of an export, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ExportCounts {
    /// Calls of NFSv3 and NFS_ACL, and PUTFHs of NFSv4, that named a file of it.
    pub requests: AtomicU64,
    /// Bytes that READ and READ_PLUS returned.
    pub read_bytes: AtomicU64,
    /// Bytes that WRITE and WRITE_SAME wrote.
    pub written_bytes: AtomicU64,
}

impl Export {
    /// Returns whether both are entries of one export.
    fn is_entry_beside(&self, other: &Self) -> bool {
        self.id == other.id
            && self.path == other.path
            && core::ptr::addr_eq(Arc::as_ptr(&self.backend), Arc::as_ptr(&other.backend))
    }

    /// Returns whether its file system is on other servers only.
    pub(crate) fn is_absent(&self) -> bool {
        self.options.locations.is_absent()
    }

    /// Returns a handle of this export as version 3 sends it.
    pub(crate) fn seal(&self, key: &HandleKey, inner: &Handle) -> WireHandle {
        if self.options.short_handles {
            key.seal_short_if_possible(self.id, inner)
        } else {
            key.seal(self.id, inner)
        }
    }

    /// Returns the part of a path below this export: empty, or with a slash at its start. None if the path is not in it.
    pub(crate) fn below<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        below(self.path.as_bytes(), path)
    }
}

/// Why a set of exports is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportError {
    /// The path is not absolute, or has empty, `.` or `..` components, or ends in a slash.
    InvalidPath(String),
    /// Two exports have this path, or one lies inside the other.
    OverlappingPaths(String, String),
    /// Two exports have the same id; one of them needs an explicit one.
    SameId(String, String),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPath(path) => {
                write!(f, "export path `{path}` must be absolute, without empty, `.` or `..` parts")
            }
            Self::OverlappingPaths(a, b) if a == "/" || b == "/" => {
                let inside = if a == "/" { b } else { a };
                write!(f, "an export at `/` must be the only one: `{inside}` would be inside of it")
            }
            Self::OverlappingPaths(a, b) => write!(f, "export paths `{a}` and `{b}` overlap"),
            Self::SameId(a, b) => {
                write!(f, "exports `{a}` and `{b}` have the same id: give one of them another")
            }
        }
    }
}

impl std::error::Error for ExportError {}

/// All exports of a server, replaced as a whole when the configuration is read again.
#[derive(Debug, Default)]
pub struct ExportTable {
    /// The first entry of each export.
    exports: Vec<Arc<Export>>,
    /// All entries of each: the same file system by the same path and number, with other options for other clients.
    entries: Vec<Vec<Arc<Export>>>,
    by_id: HashMap<ExportId, usize>,
    pseudo: PseudoFs,
    /// Whether any entry depends on host names.
    needs_names: bool,
    names: Arc<HostNames>,
    /// Exports inside others, which are not among `exports`.
    pub(crate) junctions: Junctions,
}

impl ExportTable {
    /// Creates a table. Consecutive exports with the same number, path and file system are entries of one export, for different clients.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn new(exports: Vec<Export>) -> Result<Self, ExportError> {
        let mut table = Self::default();
        for export in exports {
            table.needs_names |= export.options.clients.iter().any(ClientPattern::needs_names);
            if table.exports.last().is_some_and(|last| last.is_entry_beside(&export)) {
                let entries = table.entries.last_mut().expect("as many as exports");
                entries.push(Arc::new(export));
                continue;
            }
            if let Some(other) = table.exports.iter().find(|other| other.id == export.id) {
                return Err(ExportError::SameId(other.path.clone(), export.path));
            }
            table.by_id.insert(export.id, table.exports.len());
            let export = Arc::new(export);
            table.entries.push(vec![Arc::clone(&export)]);
            table.exports.push(export);
        }
        Self::check_paths(table.exports.iter().map(|export| &*export.path))?;
        table.pseudo = PseudoFs::new(&table.exports);
        Ok(table)
    }

    /// Checks that these paths are valid and do not overlap.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn check_paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<(), ExportError> {
        let mut seen: Vec<&str> = Vec::new();
        for path in paths {
            let is_valid = |path: &str| {
                path.strip_prefix('/').is_some_and(|rest| {
                    rest.split('/')
                        .all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'))
                })
            };
            if path != "/" && !is_valid(path) {
                return Err(ExportError::InvalidPath(path.into()));
            }
            if let Some(other) = seen.iter().find(|other| covers(path, other) || covers(other, path)) {
                return Err(ExportError::OverlappingPaths((*other).into(), path.into()));
            }
            seen.push(path);
        }
        Ok(())
    }

    /// Returns the directories above the exports.
    pub(crate) fn pseudo(&self) -> &PseudoFs {
        &self.pseudo
    }

    /// Returns the export with this number.
    #[must_use]
    pub fn by_id(&self, id: ExportId) -> Option<&Arc<Export>> {
        match self.by_id.get(&id) {
            Some(index) => Some(&self.exports[*index]),
            None => self.junctions.export(id),
        }
    }

    /// Returns the export with this number for a client at `address`: the entry that matches the client most narrowly, the first of several.
    /// None if no entry matches.
    #[must_use]
    pub fn for_client(&self, id: ExportId, address: IpAddr) -> Option<&Arc<Export>> {
        let entries = match self.by_id.get(&id) {
            Some(index) => &self.entries[*index],
            None => self.junctions.entries(id)?,
        };
        if let [only] = &entries[..]
            && only.options.clients.is_empty()
        {
            return Some(only);
        }
        Rank::ALL.into_iter().find_map(|rank| {
            let means = |entry: &Arc<Export>| entry.options.means(rank, address, &self.names);
            let meaning = entries.iter().filter_map(|entry| Some((means(entry)?, entry)));
            // The first of several equally narrow ones.
            let narrowest = meaning.reduce(|best, next| if next.0 > best.0 { next } else { best });
            narrowest.map(|(_, entry)| entry)
        })
    }

    /// Returns the exports that a client at `address` may use.
    pub fn of_client(&self, address: IpAddr) -> impl Iterator<Item = &Arc<Export>> {
        self.exports.iter().filter_map(move |export| self.for_client(export.id, address))
    }

    /// Returns the client patterns of all entries of an export; none if it is for all clients.
    pub(crate) fn clients(&self, id: ExportId) -> Vec<&ClientPattern> {
        let entries = self.by_id.get(&id).map(|index| &self.entries[*index]).into_iter().flatten();
        let lists: Vec<_> = entries.map(|entry| &entry.options.clients).collect();
        if lists.iter().any(|list| list.is_empty()) {
            Vec::new()
        } else {
            lists.into_iter().flatten().collect()
        }
    }

    /// Returns whether the exports for a client depend on its host names: [`crate::Server::learn_host`]. They do not if its address decides,
    /// or no export has patterns of names.
    #[must_use]
    pub fn needs_names(&self, address: IpAddr) -> bool {
        let is_open = |entries: &Vec<Arc<Export>>| {
            let takes_names =
                |entry: &Arc<Export>| entry.options.clients.iter().any(ClientPattern::needs_names);
            let is_meant =
                |rank| entries.iter().any(|it| it.options.means(rank, address, &self.names).is_some());
            entries.iter().any(takes_names) && !is_meant(Rank::Host) && !is_meant(Rank::Network)
        };
        self.needs_names && self.entries.iter().any(is_open)
    }

    /// Returns whether any entry has handles of 32 bytes in version 3.
    pub(crate) fn has_short_handles(&self) -> bool {
        self.entries.iter().flatten().any(|export| export.options.short_handles)
    }

    /// Returns whether any file system has quotas.
    #[must_use]
    pub fn has_quotas(&self) -> bool {
        self.exports.iter().chain(self.nested()).any(|export| export.backend.properties().quotas)
    }

    /// Returns the same exports, with the host names of a server.
    pub(crate) fn with_names(self, names: Arc<HostNames>) -> Self {
        Self { names, ..self }
    }

    /// Returns the export with this path; slashes at the end do not count.
    #[must_use]
    pub fn by_path(&self, path: &[u8]) -> Option<&Arc<Export>> {
        let is_top = |rest: &[u8]| rest.iter().all(|byte| *byte == b'/');
        self.exports.iter().find(|export| export.below(path).is_some_and(is_top))
    }

    /// Returns all exports in the order of the configuration, without those inside others ([`Self::nested`]).
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.exports.iter()
    }
}

/// Returns whether `inner` is `outer` or lies below it.
fn covers(outer: &str, inner: &str) -> bool {
    below(outer.as_bytes(), inner.as_bytes()).is_some()
}

/// Returns the part of `path` below `top`; `/` is above every path.
fn below<'p>(top: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(top.strip_suffix(b"/").unwrap_or(top))?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> crate::Network {
        text.parse().unwrap()
    }

    /// exports(5): hosts before networks, wildcards, netgroups and all clients; of several networks the smallest, else the first.
    #[test]
    fn a_client_gets_the_narrowest_entry() {
        use crate::testing::export;
        let wildcard = |text: &str| ClientPattern::Wildcard(glob::Pattern::new(text).unwrap());
        let group = ClientPattern::Netgroup("lab".into(), vec![Some("b.lab".into()), Some("c.lab".into())]);
        let entries = [
            vec![ClientPattern::Everyone],
            vec![group],
            vec![wildcard("a.*"), wildcard("b.*")],
            vec![network("10.0.0.0/8").into(), network("10.9.9.9").into()],
            vec![
                network("10.0.0.0/16").into(),
                ClientPattern::Host("h".into(), vec!["10.0.0.7".parse().unwrap()]),
            ],
        ];
        let one = export(1, "/export");
        let of_entry = |(index, clients): (usize, &Vec<ClientPattern>)| {
            let mut entry = one.clone();
            entry.options.clients.clone_from(clients);
            entry.options.anonymous =
                Arc::new(Credentials { uid: index as u32, gid: 0, groups: Arc::from([]) });
            entry
        };
        let names = Arc::new(HostNames::default());
        for (at, name) in [("192.0.2.1", "a.lab"), ("192.0.2.2", "b.lab"), ("192.0.2.3", "c.lab")] {
            names.learn(at.parse().unwrap(), vec![name.into()]);
        }
        let table = |count: usize| {
            let all = entries.iter().enumerate().skip(entries.len() - count).map(of_entry);
            ExportTable::new(all.collect()).unwrap().with_names(Arc::clone(&names))
        };
        let whole = table(5);
        let named = "192.0.2.1".parse().unwrap();
        assert!(whole.needs_names(named) && !table(2).needs_names(named));
        assert!(!whole.needs_names("10.0.0.8".parse().unwrap()), "its address decides");
        assert_eq!(whole.iter().count(), 1, "one export");
        let entry_of = |table: &ExportTable, at: &str| {
            table.for_client(ExportId(1), at.parse().unwrap()).map(|export| export.options.anonymous.uid)
        };
        for (at, expected) in [
            ("10.0.0.7", 4),
            ("10.9.9.9", 3),
            ("10.0.0.8", 4),
            ("10.1.0.8", 3),
            ("192.0.2.1", 2),
            ("192.0.2.2", 2),
            ("192.0.2.3", 1),
            ("192.0.2.4", 0),
        ] {
            assert_eq!(entry_of(&whole, at), Some(expected), "{at}");
        }
        assert_eq!(entry_of(&table(4), "192.0.2.4"), None, "no entry matches it");
    }

    #[test]
    fn an_export_at_the_root_is_the_only_one() {
        assert_eq!(ExportTable::check_paths(["/"]), Ok(()));
        for paths in [["/", "/a"], ["/a/b", "/"], ["/", "/"]] {
            let error = ExportTable::check_paths(paths).unwrap_err();
            assert!(error.to_string().starts_with("an export at `/` must be the only one"), "{error}");
        }
        for wrong in ["", "//", "/a/"] {
            assert_eq!(ExportTable::check_paths([wrong]), Err(ExportError::InvalidPath(wrong.into())));
        }
    }

    #[test]
    fn paths_cover_whole_components_only() {
        assert!(covers("/a", "/a/b") && covers("/a", "/a"));
        assert!(!covers("/a", "/ab") && !covers("/a/b", "/a"));
        assert!(covers("/", "/a") && covers("/", "/") && !covers("/a", "/"));
    }
}
