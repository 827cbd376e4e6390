//! Outcomes of objects that were not copied.

use std::fmt;

use crate::error::Error;
use crate::tree::{NameError, TreePath};

/// An object of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// Its path in the source; `None` for an object of the target only.
    pub source: Option<&'a TreePath>,
    /// Its path in the target.
    pub target: &'a TreePath,
}

/// The failure of an object; `S` and `D` are the errors of the source's and the target's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyError<S, D> {
    /// An operation on the source failed.
    Source(S),
    /// An operation on the target failed.
    Target(D),
    /// The server refused to copy one of its files itself.
    AtServer(Error),
    /// The copy does not do it.
    Refused(Refusal),
}

/// The reason why an object is not copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no source.
    Missing,
    /// The source is a directory, and the copy is not recursive.
    Directory,
    /// The source is neither a regular file nor a directory, and the copy is not recursive.
    NotRegular,
    /// The directory is, or holds, the target of the copy.
    IntoItself,
    /// Source and target are the same file.
    SameFile,
    /// The target is a directory, and the source is none.
    OverwritesDirectory,
    /// The file has become shorter while it was copied.
    Shorter {
        /// The bytes that it had before.
        size: u64,
    },
    /// [`Reflink::Always`](super::Reflink::Always), and the files are not of one server.
    OtherServer,
    /// The object of the target would be removed, but it is the source.
    RemovesSource,
    /// An entry of this directory has a name that could lead elsewhere. Nothing was made for it.
    Name(NameError),
}

impl<S: fmt::Display, D: fmt::Display> fmt::Display for CopyError<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => write!(f, "source: {error}"),
            Self::Target(error) => write!(f, "target: {error}"),
            Self::AtServer(error) => error.fmt(f),
            Self::Refused(why) => why.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it does not exist"),
            Self::Directory => f.write_str("it is a directory, and the copy is not recursive"),
            Self::NotRegular => f.write_str("it is not a regular file, and the copy is not recursive"),
            Self::IntoItself => f.write_str("a directory cannot be copied into itself"),
            Self::SameFile => f.write_str("source and target are the same file"),
            Self::OverwritesDirectory => {
                f.write_str("a directory cannot be overwritten with another type of object")
            }
            Self::Shorter { size } => {
                write!(f, "it has become shorter than its {size} bytes while it was copied")
            }
            Self::OtherServer => f.write_str("the files are not of one server, and cannot share blocks"),
            Self::RemovesSource => f.write_str("it is the source, and is not removed"),
            Self::Name(error) => error.fmt(f),
        }
    }
}

impl<S: std::error::Error, D: std::error::Error> std::error::Error for CopyError<S, D> {}
