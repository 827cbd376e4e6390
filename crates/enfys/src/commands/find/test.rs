//! The tests of `find`.

use super::compare::{Age, Compare, Size};
use crate::commands::attributes::{Attributes, FileKind, Timestamp, nanoseconds};
use crate::commands::pattern::Pattern;

/// An entry for which an expression is evaluated.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Its path, as it is printed.
    pub path: &'a [u8],
    /// Its name: the path's last component.
    pub name: &'a [u8],
    pub attributes: &'a Attributes,
    /// Whether it is a directory without entries; only used if [`super::Expression::needs_emptiness`].
    pub is_empty_directory: bool,
}

/// State that all evaluations share.
#[derive(Debug)]
pub struct Context {
    /// The time at the start.
    pub now: Timestamp,
    /// Modification times of [`super::Expression::references`].
    pub references: Vec<Timestamp>,
}

/// One test.
#[derive(Debug, Clone)]
pub(super) enum Test {
    True,
    False,
    Name(Pattern),
    Path(Pattern),
    Kind(Vec<FileKind>),
    Size(Size),
    Empty,
    /// Newer than the reference with this index.
    Newer(usize),
    Age(Which, Age),
    Permissions(Permissions),
    User(Compare),
    Group(Compare),
    Links(Compare),
    FileId(Compare),
}

/// One of the three times.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    Accessed,
    Modified,
    Changed,
}

/// Tests of mode bits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Permissions {
    /// Exactly these.
    Exactly(u32),
    /// All of these.
    All(u32),
    /// At least one of these; true without any.
    Any(u32),
}

impl Test {
    pub(super) fn holds(&self, entry: &Entry<'_>, context: &Context) -> bool {
        let attributes = entry.attributes;
        match self {
            Self::True => true,
            Self::False => false,
            Self::Name(pattern) => pattern.matches(entry.name),
            Self::Path(pattern) => pattern.matches(entry.path),
            Self::Kind(kinds) => kinds.contains(&attributes.kind),
            Self::Size(size) => size.holds(attributes.size),
            Self::Empty => match attributes.kind {
                FileKind::Regular => attributes.size == 0,
                FileKind::Directory => entry.is_empty_directory,
                _ => false,
            },
            Self::Newer(reference) => attributes.mtime > context.references[*reference],
            Self::Age(which, age) => {
                let time = match which {
                    Which::Accessed => attributes.atime,
                    Which::Modified => attributes.mtime,
                    Which::Changed => attributes.ctime,
                };
                age.holds(nanoseconds(context.now) - nanoseconds(time))
            }
            Self::Permissions(Permissions::Exactly(bits)) => attributes.mode == *bits,
            Self::Permissions(Permissions::All(bits)) => attributes.mode & bits == *bits,
            Self::Permissions(Permissions::Any(bits)) => *bits == 0 || attributes.mode & bits != 0,
            Self::User(compare) => compare.holds(attributes.uid.into()),
            Self::Group(compare) => compare.holds(attributes.gid.into()),
            Self::Links(compare) => compare.holds(attributes.nlink.into()),
            Self::FileId(compare) => compare.holds(attributes.fileid),
        }
    }
}
