//! The programs' knowledge of the file system: names that must exist, must not exist, or are uncertain.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use client::Client;
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
    /// Whether the server may have taken the lock from its holder, whose host was silent.
    pub(super) is_doubtful: bool,
    /// The version that the holder has begun to write.
    pub(super) writing: Option<u64>,
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

#[derive(Default)]
pub(super) struct Model {
    pub(super) names: BTreeMap<String, Presence>,
    /// How often the knowledge about each name has changed.
    pub(super) name_changes: BTreeMap<String, u64>,
    /// Looks at names of other programs while a directory was delegated.
    pub(super) delegated_looks: usize,
    pub(super) files: Vec<SharedFile>,
    /// Whether a file is written by one program of one host only, without a lock. A server that forgets replies when it restarts may
    /// execute a REMOVE again, so that a lock file excludes no program.
    pub(super) is_private: bool,
    /// The number of times that each host began or ended to be silent: state from before may be revoked.
    pub(super) lapses: BTreeMap<usize, u64>,
    /// Versions of files, and their hosts, of which something was written under a lock that another program has got since.
    pub(super) orphaned: BTreeMap<(usize, u64), usize>,
    /// Such versions that were overwritten since, or begun after the loss: nothing of them may be read any more.
    pub(super) dead: BTreeMap<(usize, u64), usize>,
    /// Whether programs change names.
    pub(super) changes_names: bool,
    /// Whether programs wait for locks.
    pub(super) waits: bool,
    /// The client of each host, which answers calls of the server's lock manager.
    pub(super) clients: BTreeMap<usize, Client>,
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
        self.clients.remove(&host);
        for file in &mut self.files {
            file.closed = file.closed.filter(|(_, of)| *of != host);
            if file.holder.is_some_and(|(of, ..)| of == host) {
                (file.holder, file.writing) = (None, None);
            }
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

    /// Notes that a host begins or ends to be silent: the server may revoke its state, and what only its cache has may be lost.
    pub(super) fn lapsed(&mut self, host: usize) {
        *self.lapses.entry(host).or_default() += 1;
        for file in &mut self.files {
            file.closed = file.closed.filter(|(_, of)| *of != host);
            file.is_doubtful |= file.holder.is_some_and(|(of, ..)| of == host);
        }
    }

    /// Returns the number of lapses of a host.
    pub(super) fn lapses_of(&self, host: usize) -> u64 {
        self.lapses.get(&host).copied().unwrap_or_default()
    }

    /// Returns whether a host is silent.
    pub(super) fn is_silent(&self, host: usize) -> bool {
        self.lapses_of(host) % 2 == 1
    }

    /// Makes a program the holder of a file's lock. Returns the holder from which the server cannot have taken it. Unless the program
    /// `is_sure` of its lock, the server may have granted it before a lapse, and may have taken it since.
    pub(super) fn take(&mut self, file: usize, program: ProgramId, is_sure: bool) -> Option<ProgramId> {
        let shared = &mut self.files[file];
        if !is_sure && shared.holder.is_some() && !shared.is_doubtful {
            return None;
        }
        let before = shared.holder.replace(program);
        let was_doubtful = std::mem::replace(&mut shared.is_doubtful, !is_sure);
        let writing = shared.writing.take();
        let before = before?;
        self.orphaned.extend(writing.map(|version| ((file, version), before.0)));
        (!was_doubtful).then_some(before)
    }

    /// Begins the next version of a file, which the holder of its lock writes.
    pub(super) fn begin(&mut self, file: usize, program: ProgramId) -> u64 {
        let shared = &mut self.files[file];
        shared.begun += 1;
        let version = shared.begun;
        match shared.holder == Some(program) {
            true => shared.writing = Some(version),
            false => drop(self.dead.insert((file, version), program.0)),
        }
        version
    }

    /// Notes that the holder of a file's lock has overwritten all of it.
    pub(super) fn overwritten(&mut self, file: usize) {
        let (of_file, others) =
            std::mem::take(&mut self.orphaned).into_iter().partition(|((of, _), _)| *of == file);
        self.orphaned = others;
        let of_file: BTreeMap<(usize, u64), usize> = of_file;
        self.dead.extend(of_file);
    }

    pub(super) fn set(&mut self, name: &str, presence: Presence) {
        self.names.insert(name.to_owned(), presence);
        *self.name_changes.entry(name.to_owned()).or_default() += 1;
    }
}
