//! All states of the directories.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::callback::notify::notify_type;
use protocol::nfs4::types::Stateid;
use vfs::{Backend, Context, Credentials, Handle, MemFs, ReadDir};

use super::directory_name;
use crate::backend::SlowFs;
use crate::cluster::moment;
use crate::copies::at_once;

/// Names and their objects' numbers.
type Entries = BTreeMap<String, u64>;

/// A change that was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct MadeChange {
    pub(super) directory: u64,
    /// Its [`notify_type`].
    pub(super) kind: u32,
    /// The number of the state that it led to.
    pub(super) state: usize,
}

/// The directories and their past states.
#[derive(Debug)]
pub(super) struct DirectoryHistory {
    backend: Arc<SlowFs>,
    context: Context,
    directories: Vec<Handle>,
    now: Vec<Entries>,
    /// The names of each directory, in all states so far.
    states: Vec<Vec<BTreeSet<String>>>,
    /// Changes without a reply so far, each with its call.
    unanswered: Vec<(u64, MadeChange)>,
    /// When the server first sent CB_RECALL for a delegation, by the `other` of its stateid.
    recalls: HashMap<[u8; 12], Duration>,
    /// Number of the current server; grants of earlier ones are void.
    pub(super) server: u32,
    /// Whether clients return everything.
    pub(super) is_ending: bool,
    /// Number of notified changes.
    pub(super) notified: usize,
}

impl DirectoryHistory {
    /// Creates the history of existing empty directories.
    pub(super) fn new(backend: Arc<SlowFs>, count: u64) -> Self {
        let credentials = Arc::new(Credentials::root());
        let context = Context::new(credentials, moment(Duration::ZERO).wall);
        let files = backend.inner();
        let find = |directory| {
            let name = directory_name(directory);
            at_once(files.lookup(&context, &files.root(), name.as_bytes())).expect("it was made").handle
        };
        let directories: Vec<Handle> = (0..count).map(find).collect();
        Self {
            now: vec![Entries::new(); directories.len()],
            states: vec![vec![BTreeSet::new()]; directories.len()],
            backend,
            context,
            directories,
            unanswered: Vec::new(),
            recalls: HashMap::new(),
            server: 1,
            is_ending: false,
            notified: 0,
        }
    }

    /// Handles a kill of the server: its pending calls get no reply.
    pub(super) fn server_killed(&mut self) {
        self.server += 1;
        self.unanswered.clear();
    }

    /// Notes that the server sends CB_RECALL.
    pub(super) fn recall_sent(&mut self, stateid: &Stateid, now: Duration) {
        self.recalls.entry(stateid.other).or_insert(now);
    }

    /// Returns when the server first sent CB_RECALL for a delegation.
    pub(super) fn recalled_at(&self, stateid: &Stateid) -> Option<Duration> {
        self.recalls.get(&stateid.other).copied()
    }

    /// Notes that the server has polled a call. Returns the changes of the call, if it is answered.
    pub(super) fn made_by(&mut self, call: u64, is_over: bool) -> Vec<MadeChange> {
        let changed = self.look();
        self.unanswered.extend(changed.into_iter().map(|change| (call, change)));
        if !is_over {
            return Vec::new();
        }
        let made = self.unanswered.extract_if(.., |change| change.0 == call);
        made.map(|(_, change)| change).collect()
    }

    /// Reads all directories; returns those that have changed. Between two calls there is at most one change.
    fn look(&mut self) -> Vec<MadeChange> {
        let mut changed = Vec::new();
        for (number, directory) in self.directories.iter().enumerate() {
            let entries = list(self.backend.inner(), &self.context, directory);
            let was = std::mem::replace(&mut self.now[number], entries);
            if was == self.now[number] {
                continue;
            }
            self.states[number].push(self.now[number].keys().cloned().collect());
            let directory = number as u64;
            let kind = kind(&was, &self.now[number]);
            changed.push(MadeChange { directory, kind, state: self.age(directory) });
        }
        changed
    }

    /// Returns the names in a directory.
    pub(super) fn names(&self, directory: u64) -> &BTreeSet<String> {
        self.states[directory as usize].last().expect("it has been empty at least")
    }

    /// Returns the number of earlier states of a directory.
    pub(super) fn age(&self, directory: u64) -> usize {
        self.states[directory as usize].len() - 1
    }

    /// Returns the first state with these names, from `since` on.
    pub(super) fn find(&self, directory: u64, since: usize, names: &BTreeSet<String>) -> Option<usize> {
        let states = &self.states[directory as usize];
        (since..states.len()).find(|at| states[*at] == *names)
    }
}

/// Returns the kind of a change.
fn kind(was: &Entries, is: &Entries) -> u32 {
    let has_gone = was.keys().any(|name| !is.contains_key(name));
    let has_come = is.iter().any(|(name, object)| was.get(name) != Some(object));
    match (has_gone, has_come) {
        (true, true) => notify_type::RENAME_ENTRY,
        (true, false) => notify_type::REMOVE_ENTRY,
        (false, _) => notify_type::ADD_ENTRY,
    }
}

fn list(files: &MemFs, context: &Context, directory: &Handle) -> Entries {
    let mut entries = Entries::new();
    let all = ReadDir { cookie: 0, verifier: [0; 8], plus: false };
    let mut visit = |entry: vfs::Entry<'_>| {
        entries.insert(String::from_utf8_lossy(entry.name).into_owned(), entry.fileid);
        ControlFlow::Continue(())
    };
    at_once(files.readdir(context, directory, all, &mut visit)).expect("the directory stays");
    entries
}
