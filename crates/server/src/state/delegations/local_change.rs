//! Changes of delegated objects that come past this server: local processes make them, and a backend tells of them
//! ([`Backend::watch`](vfs::Backend::watch)).
//!
//! Criteria first. Whoever changes a file here asks nobody, so that its holder can only be told afterwards: the change recalls as
//! another client's would. What must not happen is that a holder never hears. So the watch stands before the look at the file by which
//! its holder is told what it has ([`Lookout`]), and what rings before the grant is seen at the grant. And Linux's client takes all that
//! changed up to the GETATTR of its DELEGRETURN for its own doing, and keeps what it has cached: so a holder is told the change attribute that the
//! file had at the grant until it has given the delegation back ([`State::change_of_grant`]); what it asks next shows it the change.
//!
//! Nothing runs here by itself: the driver takes each alarm once ([`State::next_local_change`]) and hands it back with the time
//! ([`State::recall_for`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use vfs::{Alarm, Watch};

use super::delegation::{Delegation, DelegationKind, Recalls};
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::wire::ClientId;
use crate::work_signal::WorkSignal;

/// Somebody other than this server has done something to an object, against which a delegation stands.
#[derive(Debug, PartialEq, Eq)]
pub struct LocalChange {
    file: FileKey,
    holder: ClientId,
    /// Of the bell.
    number: u64,
}

/// Bells that have rung.
#[derive(Debug)]
pub(crate) struct Alarms {
    /// Bells so far.
    numbers: AtomicU64,
    /// At most one entry a bell, of which there is one a delegation, or an operation that would grant one.
    rung: Mutex<VecDeque<LocalChange>>,
    work_signal: Arc<WorkSignal>,
}

impl Alarms {
    pub(crate) fn new(work_signal: Arc<WorkSignal>) -> Self {
        Self { numbers: AtomicU64::new(0), rung: Mutex::default(), work_signal }
    }
}

/// Rings for one delegation, or for one that is to be granted.
#[derive(Debug)]
pub struct Bell {
    alarms: Arc<Alarms>,
    file: FileKey,
    holder: ClientId,
    number: u64,
    has_rung: AtomicBool,
}

impl Alarm for Bell {
    fn ring(&self) {
        if self.has_rung.swap(true, SeqCst) {
            return;
        }
        let change = LocalChange { file: self.file, holder: self.holder, number: self.number };
        self.alarms.rung.lock().push_back(change);
        self.alarms.work_signal.notify();
    }
}

/// The watch over what is delegated.
#[derive(Debug)]
pub struct Lookout {
    bell: Arc<Bell>,
    /// Stands until this is dropped, which takes a system call.
    _watch: Box<dyn Watch>,
}

impl Lookout {
    /// A watch that rings `bell`.
    #[must_use]
    pub fn new(bell: Arc<Bell>, watch: Box<dyn Watch>) -> Self {
        Self { bell, _watch: watch }
    }

    /// Whether something was done since the watch stood.
    pub(crate) fn has_rung(&self) -> bool {
        self.bell.has_rung.load(SeqCst)
    }
}

impl Delegation {
    /// Whether this holder is told that the file is as it was granted: it may be out of date, and does not know it.
    fn hides_changes(&self) -> bool {
        let Some(lookout) = &self.lookout else { return false };
        // An alarm comes a little behind the change. Whose change another attribute tells of nobody can say meanwhile: not the holder's
        // alone, where that writes itself beside a delegation for reading. It reads again what only itself has changed.
        self.kind == DelegationKind::Read || lookout.has_rung()
    }
}

impl State {
    /// A bell for what may be delegated to a client: to be rung by a watch that stands before [`Self::delegate`] is asked.
    #[must_use]
    pub fn bell(&self, client: &Client, file: FileKey) -> Arc<Bell> {
        let alarms = Arc::clone(&self.delegations.alarms);
        let number = alarms.numbers.fetch_add(1, Relaxed);
        Arc::new(Bell { alarms, file, holder: client.id(), number, has_rung: AtomicBool::new(false) })
    }

    /// Takes the next change to recall for; the caller calls [`Self::recall_for`] with it.
    pub fn next_local_change(&self) -> Option<LocalChange> {
        self.delegations.alarms.rung.lock().pop_front()
    }

    /// Recalls the delegation that a local change was made against, where it is still there, as for a client's operation.
    pub fn recall_for(&self, now: Duration, change: &LocalChange) {
        let mut recalls = Recalls::new();
        let mut shard = self.shards[self.shard_of(change.file)].lock();
        let Some(index) = shard.find_delegation(change.file, change.holder) else { return };
        let lookout = shard.delegation_at(index).lookout.as_ref();
        if lookout.is_some_and(|lookout| lookout.bell.number == change.number) {
            recalls.extend(self.recall(&mut shard, index, now));
        }
        drop(shard);
        self.delegations.counts.local_changes.fetch_add(recalls.len() as u64, Relaxed);
        self.send_contended(now, change.file, recalls);
    }

    /// Whether anything is watched for somebody who has it delegated.
    #[must_use]
    pub fn is_anything_watched(&self) -> bool {
        self.gauges.lookouts.load(SeqCst) > 0
    }

    /// Whether `client` may have to be told an older change attribute than an object has.
    #[must_use]
    pub fn may_hide_changes(&self, client: &Client) -> bool {
        self.is_anything_watched() && client.holdings.delegations.load(Relaxed) > 0
    }

    /// Tells of all that have an object delegated and may have to be told another change attribute than this one, now or as soon as an
    /// alarm has come.
    pub fn told_otherwise(&self, file: FileKey, change: u64, mut tell: impl FnMut(ClientId)) {
        let shard = self.shards[self.shard_of(file)].lock();
        let Some(record) = shard.files.get(&file) else { return };
        for index in &record.delegations {
            let delegation = shard.delegation_at(*index);
            if delegation.lookout.is_some() && delegation.questions.change_of_grant() != change {
                tell(shard.entry(*index).client.id());
            }
        }
    }

    /// Delegations granted so far. Those can be found by their objects.
    #[must_use]
    pub fn grants(&self) -> u64 {
        self.gauges.grants.load(SeqCst)
    }

    /// The change attribute that an object had when it was delegated to `client`, where that is told of it. Only the change attribute is: by it
    /// clients judge what they have cached.
    #[must_use]
    pub fn change_of_grant(&self, client: &Client, file: FileKey) -> Option<u64> {
        let shard = self.shards[self.shard_of(file)].lock();
        let delegation = shard.delegation_at(shard.find_delegation(file, client.id())?);
        delegation.hides_changes().then(|| delegation.questions.change_of_grant())
    }
}
