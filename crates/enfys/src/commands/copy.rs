//! Copies of the library, with their outcomes as progress and messages.

use client::copy::{ByServer, CopyError, Failed, Item, Refusal, Report};
use client::tree::{Tree, TreePath};

use super::progress::Progress;
use super::tree::Names;

/// The condition for shared blocks between files of one server (cp(1), `--reflink`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Reflink {
    /// If the server can; otherwise it copies the data, or this program does.
    Auto,
    /// Always; a file that cannot be cloned is an error.
    Always,
    /// Never, and the server copies nothing itself.
    Never,
}

impl From<Reflink> for client::copy::Reflink {
    fn from(reflink: Reflink) -> Self {
        match reflink {
            Reflink::Auto => Self::Auto,
            Reflink::Always => Self::Always,
            Reflink::Never => Self::Never,
        }
    }
}

/// Shows a copy as progress of a command.
pub struct ShownCopy<'a, S: Tree, D: Tree> {
    pub from: &'a dyn Names<S::Error>,
    pub to: &'a dyn Names<D::Error>,
    pub progress: &'a Progress,
}

impl<S: Tree, D: Tree> Report<S, D> for ShownCopy<'_, S, D> {
    fn found(&self, objects: u64, bytes: u64) {
        self.progress.found(objects, bytes);
    }

    fn copied(&self, bytes: u64) {
        self.progress.done(0, bytes);
    }

    fn by_server(&self, how: ByServer) {
        match how {
            ByServer::Cloned => self.progress.by_server(1, 0),
            ByServer::Copied => self.progress.by_server(0, 1),
        }
    }

    fn done(&self, item: Item<'_>, outcome: Result<(), Failed<S, D>>) {
        match outcome {
            Ok(()) => self.progress.done(1, 0),
            Err(error) => self.progress.failed(&self.message(item, &error)),
        }
    }
}

impl<S: Tree, D: Tree> ShownCopy<'_, S, D> {
    fn message(&self, item: Item<'_>, error: &Failed<S, D>) -> String {
        match error {
            CopyError::Source(error) => self.from.failure(error).to_string(),
            CopyError::Target(error) => self.to.failure(error).to_string(),
            CopyError::AtServer(error) => self.to.server_failure(error).to_string(),
            CopyError::Refused(why) => self.refusal(item, why),
        }
    }

    fn refusal(&self, item: Item<'_>, why: &Refusal) -> String {
        let (source, target) =
            (self.from.show(item.source.unwrap_or(&TreePath::root())), self.to.show(item.target));
        match why {
            Refusal::Missing => format!("cannot access {source}: No such file or directory"),
            Refusal::Directory => format!("{source} is a directory and is left out (-r copies it)"),
            Refusal::NotRegular => {
                format!("{source} is not a regular file (-r copies it as the same type)")
            }
            Refusal::IntoItself => format!("cannot copy a directory into itself: {source}"),
            Refusal::SameFile => format!("{source} and {target} are the same file"),
            Refusal::OverwritesDirectory => {
                format!("cannot overwrite the directory {target} with another type of object")
            }
            Refusal::Shorter { size } => {
                format!("{source} has become shorter than its {size} bytes while it was copied")
            }
            Refusal::OtherServer => "--reflink=always: the files are not of one server".to_owned(),
            Refusal::RemovesSource => format!("cannot remove {target}: it is the source"),
            Refusal::Name(error) => format!("cannot copy below {source}: {error}"),
        }
    }
}
