//! The programs' knowledge of the file system: names that must exist, must not exist, or are uncertain.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use client::attributes::FileKind;

/// A program's own name for itself: host, boot of the host, and number.
pub(super) type ProgramId = (usize, u64, usize);

/// The knowledge about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Present(FileKind),
    Absent,
    /// A program was killed while it changed the name.
    Unknown,
}

/// A file that programs write in turn, each with the next version of the content.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SharedFile {
    /// The version that is synced everywhere.
    pub(super) synced: u64,
    /// The newest version of which something may have been written.
    pub(super) begun: u64,
    /// The holder of the file's lock.
    pub(super) holder: Option<ProgramId>,
    /// The version that was closed or unlocked last, and the host whose cache may have it alone.
    pub(super) closed: Option<(u64, usize)>,
}

impl SharedFile {
    /// Returns the oldest version that an open may find.
    pub(super) fn oldest(&self) -> u64 {
        self.closed.map_or(self.synced, |(version, _)| version.max(self.synced))
    }

    /// Returns whether its content is that of one version.
    pub(super) fn is_exact(&self) -> bool {
        self.synced == self.begun
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) names: BTreeMap<String, Presence>,
    pub(super) files: Vec<SharedFile>,
    /// Whether a file is written by one program of one host only, without a lock. A server that forgets replies when it restarts may
    /// execute a REMOVE again, so that a lock file excludes no program.
    pub(super) is_private: bool,
    /// Whether programs change names.
    pub(super) changes_names: bool,
    /// Changes of names that must have been made exactly once, by their names in `Slowness`.
    pub(super) once: BTreeSet<String>,
    /// The current step of each program, to report the step at which a run hangs.
    pub(super) doing: BTreeMap<ProgramId, String>,
    /// Number of checks of each property.
    pub(super) checks: usize,
}

pub(super) type SharedModel = Rc<RefCell<Model>>;

impl Model {
    /// Notes that a host was killed: what only its cache had is lost, and its programs hold nothing.
    pub(super) fn killed(&mut self, host: usize) {
        for file in &mut self.files {
            file.closed = file.closed.filter(|(_, of)| *of != host);
            file.holder = file.holder.filter(|(of, ..)| *of != host);
        }
    }

    /// Notes that a host has left the server: everything in its cache was written back.
    pub(super) fn left(&mut self, host: usize) {
        for file in &mut self.files {
            if let Some((version, _)) = file.closed.take_if(|(_, of)| *of == host) {
                file.synced = file.synced.max(version);
            }
        }
    }

    pub(super) fn set(&mut self, name: &str, presence: Presence) {
        self.names.insert(name.to_owned(), presence);
    }
}
