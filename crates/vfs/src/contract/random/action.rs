use super::model::Id;
use crate::{CreateMode, Removal, SetXattr};

/// One of the objects created so far, by a number modulo their count, so that an action stays meaningful when earlier
/// ones are left out.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pick {
    /// Among all objects, including removed ones.
    Any(Id),
    /// Among directories that exist.
    Directory(Id),
    /// Among existing regular files; any object if there is none.
    File(Id),
}

/// An operation of a caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Action {
    pub(super) who: usize,
    pub(super) what: Wanted,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    File(CreateMode, Option<u64>),
    Directory,
    Symlink(&'static str),
    Fifo,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Write { offset: u64, length: u64, byte: u8 },
    Read { offset: u64, length: u64 },
    Size(u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Create { directory: Pick, name: &'static str, kind: Kind, mode: u32 },
    Remove { directory: Pick, name: &'static str, removal: Removal },
    Rename { from: (Pick, &'static str), to: (Pick, &'static str) },
    Link { file: Pick, directory: Pick, name: &'static str },
    Content { file: Pick, content: Content },
    Chmod { file: Pick, mode: u32 },
    Chown { file: Pick, uid: Option<u32>, gid: Option<u32> },
    Lookup { directory: Pick, name: &'static str },
    Parent { directory: Pick },
    List { directory: Pick, page: usize },
    Open { file: Pick, read: bool, write: bool },
    Close { which: usize },
    SetXattr { file: Pick, name: &'static str, length: usize, how: SetXattr },
    RemoveXattr { file: Pick, name: &'static str },
}
