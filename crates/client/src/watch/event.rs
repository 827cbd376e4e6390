//! What a watch reports.

use crate::attributes::{Attributes, FileKind};
use crate::error::OpError;

/// A change of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The change.
    pub change: Change,
    /// The path below the watched directory, after the change. Empty for the directory itself.
    pub path: Vec<u8>,
    /// The type and the size; `None` if the object was gone before they could be read.
    pub object: Option<(FileKind, u64)>,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The entry is new.
    Created,
    /// The entry is gone.
    Removed,
    /// The entry had this path before.
    Renamed(Vec<u8>),
    /// The content or the size of a file has changed, or the target of a link.
    Content,
    /// Mode, owner or other attributes have changed.
    Attributes,
}

/// A report of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A change.
    Event(Event),
    /// A message about the watch itself.
    Notice(Notice),
    /// All changes that are known have been reported.
    Idle,
}

/// A message about a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The tree was read: from now on changes are reported.
    Watching {
        /// Directories of the tree.
        directories: usize,
        /// Entries in them.
        entries: usize,
        /// Directories whose changes the server tells at once.
        notified: usize,
    },
    /// Entries that were read so far, of a large tree.
    Reading(usize),
    /// The server has forgotten the watch, for instance by a restart. The tree is compared with what was known.
    Forgotten,
    /// The server does not answer.
    Silent,
    /// The server answers again. What has changed meanwhile was reported.
    Answers,
    /// A directory cannot be read. Its entries are not watched until it can be.
    Unreadable(Vec<u8>, OpError),
}

/// The attributes of an object that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) kind: FileKind,
    mode: u32,
    owner: (u32, u32),
    nlink: u32,
    pub(super) size: u64,
    mtime: crate::attributes::Timestamp,
    ctime: crate::attributes::Timestamp,
    change: Option<u64>,
}

impl Seen {
    pub(super) fn of(attributes: &Attributes) -> Self {
        Self {
            kind: attributes.kind,
            mode: attributes.mode,
            owner: (attributes.uid, attributes.gid),
            nlink: attributes.nlink,
            size: attributes.size,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
            change: attributes.change,
        }
    }

    /// Returns what has changed. Times of directories change with their entries, which have events of their own. A rename changes
    /// `ctime`: `after_rename`, it does not count.
    pub(super) fn changed(&self, new: &Self, after_rename: bool) -> Option<Change> {
        let is_directory = self.kind == FileKind::Directory;
        if !is_directory && (self.size != new.size || self.mtime != new.mtime) {
            return Some(Change::Content);
        }
        if (self.mode, self.owner) != (new.mode, new.owner) {
            return Some(Change::Attributes);
        }
        if is_directory || after_rename {
            return None;
        }
        if self.ctime != new.ctime || self.nlink != new.nlink {
            return Some(Change::Attributes);
        }
        // Several changes within the resolution of the server's times.
        (self.change != new.change).then_some(Change::Content)
    }

    /// Returns whether a directory may have other entries.
    pub(super) fn has_other_entries(&self, new: &Self) -> bool {
        (self.change, self.mtime, self.ctime, self.size) != (new.change, new.mtime, new.ctime, new.size)
    }
}
