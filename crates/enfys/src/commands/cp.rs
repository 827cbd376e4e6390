//! `enfys cp`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use client::attributes::FileKind;
use client::copy::{Copier, CopyOptions};
use client::tree::{Tree, TreePath};
use client::url::Url;
use net::local::LocalTree;

use super::attributes::Attributes;
use super::copy::{Reflink, ShownCopy};
use super::progress::{self, Progress};
use super::quote::shell_quoted;
use super::session::{Failure, Session, parse_url, shown};
use super::tree::{Names, RemoteTree};
use super::umask::umask;

const HELP: &str = "\
Examples:
  enfys cp report.pdf nfs://server/export/
  enfys cp -r -p nfs://server/export/project .
  enfys cp -r nfs://one/export/data nfs://other/export

Sources and targets are URLs or paths of this machine. Many files are under way at the same time. A copy that was \
interrupted is completed by running it again. Nothing is written outside of the target: symbolic links in it are \
replaced, not followed.

Between files of one server with version 4.2, the server copies itself: it clones where it can. Linux's cp does the same on a mount.

With -p, owners are kept as numbers if the user is root; other users keep the rest. Access control lists and extended attributes are not \
copied.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CpArguments {
    /// What to copy, and at the end its new name or the directory to copy it to
    #[arg(value_name = "PATH or URL", num_args = 2.., required = true)]
    pub places: Vec<OsString>,
    /// Copy directories with everything below; symbolic links as links
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep times, modes, owners, hard links and holes
    #[arg(short, long)]
    pub preserve: bool,
    /// Same as -r -p
    #[arg(short, long)]
    pub archive: bool,
    /// Let files of one server share their blocks
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always"
    )]
    pub reflink: Reflink,
    /// Treat the last argument as a name even if it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Print progress and errors as lines of JSON
    #[arg(long)]
    pub json: bool,
    /// Print a summary at the end
    #[arg(short, long)]
    pub verbose: bool,
}

/// Copies files and trees.
pub fn run(arguments: &CpArguments) -> ExitCode {
    progress::run("cp", arguments.json, arguments.verbose, async |session, progress| {
        copy(session, arguments, progress).await
    })
}

/// A path of this machine or a URL.
#[derive(Debug, Clone)]
pub enum Argument {
    Local(PathBuf),
    Remote(Box<Url>),
}

impl Argument {
    /// Parses an argument.
    ///
    /// # Errors
    /// It begins like a URL, but is not a valid one.
    pub fn parse(text: &OsStr) -> Result<Self, Failure> {
        match text.to_str().filter(|text| text.starts_with("nfs://")) {
            Some(text) => parse_url(text).map(|url| Self::Remote(Box::new(url))).map_err(Failure::new),
            None => Ok(Self::Local(PathBuf::from(text))),
        }
    }

    /// Returns whether `other` is this object or below it, by their paths.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(one), Self::Local(other)) => match (resolved(one), resolved(other)) {
                (Some(one), Some(other)) => other.starts_with(one),
                _ => false,
            },
            (Self::Remote(one), Self::Remote(other)) => {
                let path = |url: &Url| PathBuf::from(OsStr::from_bytes(url.path()));
                let is_one_server = (one.host(), one.options.port) == (other.host(), other.options.port);
                is_one_server && path(other).starts_with(path(one))
            }
            _ => false,
        }
    }

    /// Returns its form in messages.
    pub fn show(&self) -> String {
        match self {
            Self::Local(path) => shell_quoted(path.as_os_str().as_bytes()),
            Self::Remote(url) => shown(url),
        }
    }

    /// Returns the last name; empty for a root, `.` and `..`.
    fn name(&self) -> Vec<u8> {
        match self {
            Self::Local(path) => path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default(),
            Self::Remote(url) => {
                let mut names = url.path().split(|byte| *byte == b'/');
                names.rfind(|name| !name.is_empty()).unwrap_or_default().to_vec()
            }
        }
    }
}

/// Returns the path without symbolic links. The last name may be missing.
fn resolved(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok().or_else(|| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(std::fs::canonicalize(parent).ok()?.join(path.file_name()?))
    })
}

/// A tree of either kind, and an object in it that may be missing.
pub enum TreeObject {
    Local(LocalTree, TreePath),
    Remote(Box<RemoteTree>, TreePath),
}

impl TreeObject {
    /// Finds the object that an argument names. The tree begins at the directory that holds it, or at itself if it is a directory.
    ///
    /// # Errors
    /// The directory above is missing too, or may not be read.
    pub async fn find(session: &Session, argument: &Argument) -> Result<(Self, Option<Attributes>), Failure> {
        match argument {
            Argument::Local(path) => local(path).await,
            Argument::Remote(url) => remote(session, url).await,
        }
    }
}

async fn local(path: &Path) -> Result<(TreeObject, Option<Attributes>), Failure> {
    if path.is_dir() {
        let tree = LocalTree::open(path)?;
        let attributes = tree.attributes(&TreePath::root())?;
        return Ok((TreeObject::Local(tree, TreePath::root()), Some(attributes)));
    }
    // As with cp(1), a symbolic link as argument is followed.
    let resolved = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = resolved.file_name().ok_or_else(|| {
        Failure::new(format!(
            "cannot access {}: No such file or directory",
            shell_quoted(path.as_os_str().as_bytes())
        ))
    })?;
    let parent = resolved.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let tree = LocalTree::open(parent)?;
    let path = TreePath::root().join(name.as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
    let attributes = Tree::attributes(&tree, &path).await?;
    Ok((TreeObject::Local(tree, path), attributes))
}

async fn remote(session: &Session, url: &Url) -> Result<(TreeObject, Option<Attributes>), Failure> {
    let location = session.locate(url).await?;
    match location.object("access", true).await {
        Ok(object) if object.attributes.kind == FileKind::Directory => {
            let tree = Box::new(RemoteTree::new(&location, &object));
            return Ok((TreeObject::Remote(tree, TreePath::root()), Some(object.attributes)));
        }
        Ok(_) => {}
        Err(failure) if failure.is_missing() => {}
        Err(failure) => return Err(failure),
    }
    let (parent, name) = location.parent("access").await?;
    let tree = Box::new(RemoteTree::new(&location.above(), &parent));
    let path = TreePath::root().join(&name).map_err(|error| Failure::new(error.to_string()))?;
    let attributes = tree.tree.attributes(&path).await.map_err(|error| tree.url.failure(&error))?;
    Ok((TreeObject::Remote(tree, path), attributes))
}

async fn copy(session: &Session, arguments: &CpArguments, progress: &Progress) -> Result<(), Failure> {
    let places: Vec<Argument> =
        arguments.places.iter().map(|text| Argument::parse(text)).collect::<Result<_, _>>()?;
    let Some((target, sources)) = places.split_last() else { return Ok(()) };
    let (object, found) = TreeObject::find(session, target).await?;
    let is_directory = found.is_some_and(|found| found.kind == FileKind::Directory);
    if sources.len() > 1 && (!is_directory || arguments.no_target_directory) {
        let shown = shell_quoted(arguments.places[sources.len()].as_bytes());
        return Err(Failure::new(format!(
            "{shown} is not a directory, and there are {} sources",
            sources.len()
        )));
    }
    let options = CopyOptions {
        is_recursive: arguments.recursive || arguments.archive,
        preserves: arguments.preserve || arguments.archive,
        umask: umask(),
        skips: None,
        deletes: false,
        reflink: arguments.reflink.into(),
    };
    let keeps_name = is_directory && !arguments.no_target_directory;
    for (source, shown) in sources.iter().zip(&arguments.places) {
        let done = copy_one(session, source, (target, &object), keeps_name, options, progress).await;
        if let Err(failure) = done {
            progress.failed(&format!("{failure} (copying {})", shell_quoted(shown.as_bytes())));
        }
    }
    Ok(())
}

/// Copies what an argument names to a target, or below it under its own name.
///
/// # Errors
/// There is no such source. Later failures are reported to `progress`.
pub async fn copy_one(
    session: &Session,
    source: &Argument,
    (argument, target): (&Argument, &TreeObject),
    keeps_name: bool,
    options: CopyOptions,
    progress: &Progress,
) -> Result<(), Failure> {
    let (from, attributes) = TreeObject::find(session, source).await?;
    let attributes = attributes.ok_or_else(|| Failure::new("No such file or directory"))?;
    if attributes.kind == FileKind::Directory {
        let (one, other) = (source.show(), argument.show());
        if source.contains(argument) {
            return Err(Failure::new(format!("cannot copy a directory into itself: {one} to {other}")));
        }
        if options.deletes && argument.contains(source) {
            return Err(Failure::new(format!("--delete is refused: {other} contains the source {one}")));
        }
    }
    let name = if keeps_name { source.name() } else { Vec::new() };
    match (&from, target) {
        (TreeObject::Local(from, source), TreeObject::Local(to, target)) => {
            run_copy((from, from, source), (to, to, target), &name, attributes, options, progress).await
        }
        (TreeObject::Local(from, source), TreeObject::Remote(to, target)) => {
            let to = (&to.tree, &to.url as _, target);
            run_copy((from, from, source), to, &name, attributes, options, progress).await
        }
        (TreeObject::Remote(from, source), TreeObject::Local(to, target)) => {
            let from = (&from.tree, &from.url as _, source);
            run_copy(from, (to, to, target), &name, attributes, options, progress).await
        }
        (TreeObject::Remote(from, source), TreeObject::Remote(to, target)) => {
            let (from, to) = ((&from.tree, &from.url as _, source), (&to.tree, &to.url as _, target));
            run_copy(from, to, &name, attributes, options, progress).await
        }
    }
}

/// An object of a tree, with the names that the tree's objects have in messages.
type Place<'a, T> = (&'a T, &'a dyn Names<<T as Tree>::Error>, &'a TreePath);

/// Copies an object to a path, or below it under `name` if there is one.
async fn run_copy<S: Tree, D: Tree>(
    (from, source_names, source): Place<'_, S>,
    (to, target_names, target): Place<'_, D>,
    name: &[u8],
    attributes: Attributes,
    options: CopyOptions,
    progress: &Progress,
) -> Result<(), Failure> {
    let target = match name {
        // The content of `.` and of roots goes into the directory itself.
        b"" => target.clone(),
        name => target.join(name).map_err(|error| Failure::new(error.to_string()))?,
    };
    if target.is_root() && attributes.kind != FileKind::Directory {
        let shown = target_names.show(&target);
        return Err(Failure::new(format!(
            "cannot overwrite the directory {shown} with another type of object"
        )));
    }
    let report = ShownCopy { from: source_names, to: target_names, progress };
    Copier::new(from, to, options, &report).copy(source.clone(), target, attributes).await;
    Ok(())
}
