//! Trees of servers and of this machine, with the names that their objects have in messages.

use client::error::Error;
use client::results::Object;
use client::tree::{ServerTree, TreePath};
use client::url::Url;
use net::local::{LocalTree, TreeError};
use store::error_text;

use super::quote::shell_quoted;
use super::session::{Failure, Location, below, failed, shown};

/// A directory of a server that a URL names.
pub struct RemoteTree {
    pub tree: ServerTree,
    pub url: Url,
}

impl RemoteTree {
    /// Creates the tree of a directory.
    pub fn new(location: &Location, root: &Object) -> Self {
        Self { tree: ServerTree::new(location.fs.clone(), root), url: location.url.clone() }
    }
}

/// The names of a tree's objects in messages; `E` is the tree's error.
pub trait Names<E> {
    /// Returns an object's name.
    fn show(&self, path: &TreePath) -> String;
    /// Returns the failure of an operation.
    fn failure(&self, error: &E) -> Failure;
    /// Returns the failure of an operation of a server on one of its files.
    fn server_failure(&self, error: &Error) -> Failure;
}

impl Names<Error> for Url {
    fn show(&self, path: &TreePath) -> String {
        shown(&below(self, path.as_bytes()))
    }

    fn failure(&self, error: &Error) -> Failure {
        let path = error.path.as_deref().unwrap_or_default();
        failed(error.operation, &below(self, path), &error.cause)
    }

    fn server_failure(&self, error: &Error) -> Failure {
        self.failure(error)
    }
}

impl Names<TreeError> for LocalTree {
    fn show(&self, path: &TreePath) -> String {
        shell_quoted(self.shown(path).as_os_str().as_encoded_bytes())
    }

    fn failure(&self, error: &TreeError) -> Failure {
        Failure::from(error)
    }

    fn server_failure(&self, error: &Error) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<&TreeError> for Failure {
    fn from(error: &TreeError) -> Self {
        let TreeError { operation, path, errno } = error;
        let why = error_text(&std::io::Error::from(*errno));
        let path = shell_quoted(path.as_os_str().as_encoded_bytes());
        Self::new(format!("cannot {operation} {path}: {why}"))
    }
}

impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Self {
        Self::from(&error)
    }
}
