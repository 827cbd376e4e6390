//! Delegations (RFC 8881 §10.4): who gets one, and how it comes back.
//!
//! Criteria first. A delegation is a promise that nobody else's operation touches the file before its holder has heard of it.
//! So it is granted only where nothing stands against it now ([`State::delegate`]), to a client that has answered a callback;
//! and every operation that would break the promise asks first ([`State::clash`]), waits until the delegations in its way
//! have come back, and then goes on. Between that question and the operation's end no delegation of the file may be granted:
//! [`Busy`] counts such operations, by a hash of the file, so that a server without delegations pays two additions for it.
//!
//! A recalled delegation that does not come back within the lease time is revoked (§10.4.5), that one alone. A file that was
//! recalled is not delegated again for a while, and for longer each time ([`Contended`]): it is shared.

mod grant;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::recall::CbRecallArgs;
use protocol::nfs4::types::{Bitmap, Handle};
use vfs::Authority;

use super::directory::EntryChange;
use super::inquiry::Questions;
use super::local_change::{Alarms, Lookout};
use super::times::{Keeping, Times};
use crate::state::State;
use crate::state::callbacks::callback::{Callback, Purpose, Referring};
use crate::state::files::io::{IoKind, IoPermit};
use crate::state::tables::client::Client;
use crate::state::tables::contention::{Busy, Changing, Contended, Looked};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::notices::Notices;
use crate::state::tables::phase::{Event, Phase};
use crate::state::tables::shard::{self, Dropped, Kind, Shard};
use crate::state::tables::stateid::Place;
use crate::state::tables::waiter::Waiter;
use crate::state::tables::wire::{ClientId, Stateid, Status};
use crate::work_signal::WorkSignal;

/// What a delegation counts for among all state: its record, and its places in the lists of file and client.
pub(crate) const DELEGATION_WEIGHT: usize = 2;
/// How long an operation waits for delegations at most; less where the lease is short, so that a client whose operation
/// waits, and which does nothing else, keeps its own.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What is delegated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationKind {
    /// A file, for reading.
    Read,
    /// A file for writing, which covers reading too.
    Write,
    /// A directory (§10.9), whose holder is told of changes of these kinds, by
    /// [`notify_type`](protocol::nfs4::callback::notify::notify_type).
    Directory(Bitmap),
}

impl DelegationKind {
    /// Whether it is for writing.
    #[must_use]
    pub fn is_write(self) -> bool {
        self == Self::Write
    }

    /// Whether it is a directory's.
    #[must_use]
    pub fn is_directory(self) -> bool {
        matches!(self, Self::Directory(_))
    }
}

/// A delegation.
#[derive(Debug)]
pub(crate) struct Delegation {
    pub(crate) kind: DelegationKind,
    /// Bits of `share_access` that the open was judged for under which it was granted.
    pub(crate) judged: u8,
    /// Who opened then.
    opener: u64,
    phase: Phase,
    /// As the client knows the file.
    pub(crate) handle: Handle,
    /// The OPEN that granted it.
    pub(crate) granted_by: Option<Referring>,
    recalled: Option<Duration>,
    pub(crate) questions: Questions,
    /// Of a file whose times its holder keeps.
    pub(crate) keeping: Option<Box<Keeping>>,
    /// What the holder of a directory is told.
    pub(crate) notices: Notices,
    /// Over what others than clients do to the object, where that is seen.
    pub(crate) lookout: Option<Lookout>,
    /// Its place in the file's list.
    pub(crate) at_file: u32,
}

impl Delegation {
    /// Whether it was obtained by this caller.
    pub(crate) fn is_of(&self, caller: u64) -> bool {
        self.opener == caller
    }

    /// Whether its holder has it and has not been asked to return it.
    pub(crate) fn is_granted(&self) -> bool {
        self.phase == Phase::Granted
    }

    pub(crate) fn turn(&mut self, event: Event) {
        self.phase = self.phase.after(event).expect("a delegation moves as its table says");
    }

    /// Whether I/O may go ahead by it.
    pub(crate) fn permit(&self, kind: IoKind, stateid: Stateid) -> Result<IoPermit, Status> {
        if kind == IoKind::Write && !self.kind.is_write() {
            return Err(Status::OPENMODE);
        }
        // A delegation of a file that was opened for writing alone covers reads (the client fills pages around what it writes),
        // for which nobody was judged yet.
        let authority = if self.judged & kind.bit() != 0 { Authority::Opened } else { Authority::Caller };
        Ok(IoPermit { authority, opener: Some(self.opener), stateid })
    }
}

/// Which delegations of others an operation conflicts with (§10.4, §10.4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// READ, OPEN for reading: those for writing.
    Writers,
    /// Any change, OPEN for writing or with a deny: all.
    All,
    /// A change of a directory's entries: those of the directory whose holders are not told of such.
    Entries(EntryChange),
}

impl Against {
    /// What I/O without an open conflicts with.
    pub fn io(kind: IoKind) -> Self {
        if kind == IoKind::Read { Self::Writers } else { Self::All }
    }

    /// Whether what conflicts changes something. An OPEN alone does not, whatever it conflicts with.
    pub fn is_by_change(self) -> bool {
        !matches!(self, Self::Writers)
    }

    /// What an OPEN with these bits of access and deny conflicts with. A deny conflicts with what the holder may open
    /// locally.
    pub(crate) fn open((access, deny): (u8, u8)) -> Self {
        if access & IoKind::Write.bit() != 0 || deny != 0 { Self::All } else { Self::Writers }
    }
}

/// What a client would like delegated.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// What it is to cover.
    pub kind: DelegationKind,
    /// Bits of `share_access` that the OPEN was judged for.
    pub judged: u8,
    /// Who opened, as a number.
    pub opener: u64,
    /// `change` of the file as the OPEN's reply will tell it; of a directory, as it is.
    pub change: u64,
    /// The file's times, where the client is to keep them.
    pub times: Option<Times>,
    /// The file as the client knows it, for CB_RECALL.
    pub handle: Handle,
    /// The file as the backend knows it.
    pub inner: vfs::Handle,
    /// [`State::looking`], from before the look that all this is from.
    pub looked: Looked,
    /// CLAIM_PREVIOUS: it was granted before the server's restart.
    pub reclaim: bool,
}

/// Why nothing is delegated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDelegated {
    /// Others use the file, or did a moment ago.
    Contention,
    /// The client cannot be called back, or the bound is reached.
    Resource,
    /// The client has one of the other kind.
    OtherKind,
}

/// What has happened to delegations since the start.
#[derive(Debug, Default)]
pub struct DelegationCounts {
    /// Granted for reading.
    pub granted_read: AtomicU64,
    /// Granted for writing.
    pub granted_write: AtomicU64,
    /// Granted of directories.
    pub granted_directory: AtomicU64,
    /// Changes of directories that their holders were told of (CB_NOTIFY).
    pub notices: AtomicU64,
    /// Recalled because of a conflict.
    pub recalls: AtomicU64,
    /// Those of them that were recalled because of what a local process did.
    pub local_changes: AtomicU64,
    /// Came back after a recall.
    pub returned: AtomicU64,
    /// Microseconds that these took together, from the conflict to the return.
    pub return_micros: AtomicU64,
    /// Microseconds that the slowest of them took.
    pub slowest_micros: AtomicU64,
    /// Revoked because they did not come back.
    pub revoked: AtomicU64,
    /// Questions to holders of write delegations (CB_GETATTR).
    pub inquiries: AtomicU64,
    /// Operations that waited for a delegation, or for its holder's answer.
    pub waits: AtomicU64,
    /// Those that were told to come again after all.
    pub overdue: AtomicU64,
}

/// What an administrator's recall of a file met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileRecall {
    /// Delegations whose clients were asked for them, now or before.
    pub recalled: usize,
    /// Delegations of clients whose lease had expired: they are gone.
    pub revoked: usize,
}

/// All that concerns delegations and lies in no shard.
#[derive(Debug)]
pub(crate) struct Delegations {
    busy: Busy,
    contended: Contended,
    /// Recalled ones in the order of their recalls: to be revoked when they are not back a lease time later.
    recalled: Mutex<std::collections::VecDeque<(Duration, Place)>>,
    /// Recalls that did not get through, to be sent again.
    again: Mutex<Vec<Place>>,
    /// Operations waiting, over all shards.
    waiting: AtomicU64,
    max: usize,
    /// What local processes do.
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) counts: DelegationCounts,
}

impl Delegations {
    /// Whether anything may be delegated at all.
    pub(crate) fn grants_any(&self) -> bool {
        self.max > 0
    }

    pub(crate) fn new(max: usize, work_signal: Arc<WorkSignal>) -> Self {
        Self {
            busy: Busy::default(),
            contended: Contended::default(),
            recalled: Mutex::default(),
            again: Mutex::default(),
            waiting: AtomicU64::new(0),
            max,
            alarms: Arc::new(Alarms::new(work_signal)),
            counts: DelegationCounts::default(),
        }
    }
}

/// Recalls to be sent once the shard's lock is given back.
pub(crate) type Recalls = Vec<(Arc<Client>, Callback)>;

impl Shard {
    /// Delegations of others that stand against an operation of `who` on a file.
    pub(crate) fn conflicts(&self, file: FileKey, who: Option<ClientId>, against: Against) -> Vec<u32> {
        let Some(record) = self.files.get(&file) else { return Vec::new() };
        let stands = |index: &u32| {
            let delegation = self.delegation_at(*index);
            let is_other = Some(self.entry(*index).client.id()) != who;
            is_other
                && match against {
                    Against::All => true,
                    Against::Writers => delegation.kind.is_write(),
                    Against::Entries(change) => {
                        delegation.kind.is_directory() && !delegation.is_told_of(change)
                    }
                }
        };
        record.delegations.iter().copied().filter(stands).collect()
    }

    pub(crate) fn has_conflict(&self, file: FileKey, who: Option<ClientId>, against: Against) -> bool {
        let has_some = self.files.get(&file).is_some_and(|file| !file.delegations.is_empty());
        has_some && !self.conflicts(file, who, against).is_empty()
    }
}

impl State {
    /// Whether anything is delegated that a READ (`Writers`) or a change (`All`) could conflict with: mostly nothing is,
    /// and [`Self::clash`] need not be asked.
    #[must_use]
    pub fn has_delegations(&self, against: Against) -> bool {
        let gauges = &self.gauges;
        let counter = match against {
            Against::All => &gauges.delegations,
            Against::Writers => &gauges.write_delegations,
            Against::Entries(_) => &gauges.directory_delegations,
        };
        counter.load(SeqCst) > 0
    }

    /// Announces a change: until the guard is dropped no delegation of the file is granted. To be taken before
    /// [`Self::has_delegations`] is asked.
    pub fn changing(&self, handle: &vfs::Handle) -> Changing<'_> {
        self.delegations.busy.enter(self.busy_hash(handle))
    }

    /// Announces a look at a file that is to be delegated as it is found: it is not where a change has ended between this and the
    /// grant. Its holder would take what it is told with the delegation, or has cached from before, for what is there.
    #[must_use]
    pub fn looking(&self, handle: &vfs::Handle) -> Looked {
        self.delegations.busy.look(self.busy_hash(handle))
    }

    /// Whether a change of such a file has ended since then.
    #[must_use]
    pub fn has_moved_on(&self, handle: &vfs::Handle, since: Looked) -> bool {
        self.delegations.busy.has_moved_on(self.busy_hash(handle), since)
    }

    /// As [`Self::changing`], of a file that is known by a name alone. `None` where the name has to be looked up, because
    /// delegations are granted here.
    pub fn changing_unnamed(&self) -> Option<Changing<'_>> {
        self.delegations.busy.enter_unnamed()
    }

    /// By the backend's handle, and not by the file's key, which takes a keyed hash.
    fn busy_hash(&self, handle: &vfs::Handle) -> u64 {
        self.hasher.hash_one(&**handle)
    }

    fn contention_hash(&self, file: FileKey) -> u64 {
        self.hasher.hash_one(file)
    }

    /// Until when an operation that began at `now` waits for delegations.
    #[must_use]
    pub fn wait_until(&self, now: Duration) -> Duration {
        now + (self.lease / 3).min(WAIT_MAX)
    }

    /// By when a delegation that is recalled at `now` is back, or revoked: a lease time later, when the next sweep comes by.
    #[must_use]
    pub fn revoked_by(&self, now: Duration) -> Duration {
        now + self.lease + WAIT_MAX
    }

    /// Whether anybody has this very directory delegated; never so of a file, in which a client may try to make entries too.
    #[must_use]
    pub fn is_directory_delegated(&self, directory: FileKey) -> bool {
        let shard = self.shards[self.shard_of(directory)].lock();
        let held = shard.files.get(&directory).map_or(&[][..], |record| &record.delegations);
        held.iter().any(|index| shard.delegation_at(*index).kind.is_directory())
    }

    /// Whether anything of others stands in the way of an operation of `who` (`None`: of no NFSv4 client). Nobody is asked
    /// for it yet.
    #[must_use]
    pub fn is_held_against(&self, who: Option<&Client>, file: FileKey, against: Against) -> bool {
        let shard = self.shards[self.shard_of(file)].lock();
        shard.has_conflict(file, who.map(Client::id), against)
    }

    /// Recalls what stands in the way of an operation of `who` (`None`: of no NFSv4 client); `None` where nothing does. The
    /// operation waits for the waiter and asks again.
    pub fn clash(
        &self,
        now: Duration,
        deadline: Duration,
        who: Option<&Client>,
        file: FileKey,
        against: Against,
    ) -> Option<Arc<Waiter>> {
        let (mut dropped, mut recalls) = (Dropped::new(), Recalls::new());
        let mut shard = self.shards[self.shard_of(file)].lock();
        let found = shard.conflicts(file, who.map(Client::id), against);
        for index in &found {
            // §8.4.3: what an expired lease holds is not in the way of anyone.
            if shard.entry(*index).client.is_expired(now, self.lease) {
                // RFC 8881 §15.1.5: DELEG_REVOKED is for "the failure of the client to return the lock when it was recalled",
                // EXPIRED for what was never asked for.
                let was_recalled = shard.delegation_at(*index).phase == Phase::Recalled;
                let event = if was_recalled { shard::Event::Unreturned } else { shard::Event::Conflict };
                shard.end(*index, event, &self.gauges, &mut dropped);
                self.delegations.counts.revoked.fetch_add(1, Relaxed);
            } else {
                recalls.extend(self.recall(&mut shard, *index, now));
            }
        }
        let stands = !found.is_empty() && shard.has_conflict(file, who.map(Client::id), against);
        let waiter = stands.then(|| self.wait_for(&mut shard, file, deadline));
        drop(shard);
        self.send_contended(now, file, recalls);
        waiter
    }

    pub(crate) fn wait_for(&self, shard: &mut Shard, file: FileKey, deadline: Duration) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::new(deadline));
        shard.waiting.entry(file).or_default().push(Arc::clone(&waiter));
        self.delegations.waiting.fetch_add(1, Relaxed);
        self.delegations.counts.waits.fetch_add(1, Relaxed);
        waiter
    }

    /// Recalls all delegations of a file for the administrator, who may want it left alone: it counts as a conflict.
    pub fn recall_file(&self, now: Duration, file: FileKey) -> FileRecall {
        let (mut dropped, mut recalls, mut done) = (Dropped::new(), Recalls::new(), FileRecall::default());
        let mut shard = self.shards[self.shard_of(file)].lock();
        for index in shard.conflicts(file, None, Against::All) {
            if shard.entry(index).client.is_expired(now, self.lease) {
                shard.end(index, shard::Event::Conflict, &self.gauges, &mut dropped);
                done.revoked += 1;
            } else {
                recalls.extend(self.recall(&mut shard, index, now));
                done.recalled += 1;
            }
        }
        drop(shard);
        self.delegations.contended.mark(self.contention_hash(file), now);
        self.send_recalls(recalls);
        done
    }

    /// Whether nothing waits for a delegation.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        let is_quiet = |shard: &Mutex<Shard>| shard.lock().waiting.is_empty();
        self.delegations.waiting.load(Relaxed) == 0 && self.shards.iter().all(is_quiet)
    }

    /// Takes a waiter back whose operation waits no more.
    pub fn forget_waiter(&self, file: FileKey, waiter: &Arc<Waiter>) {
        self.delegations.waiting.fetch_sub(1, Relaxed);
        let mut shard = self.shards[self.shard_of(file)].lock();
        if let Some(waiting) = shard.waiting.get_mut(&file) {
            waiting.retain(|other| !Arc::ptr_eq(other, waiter));
            if waiting.is_empty() {
                shard.waiting.remove(&file);
            }
        }
    }

    /// Sends the recalls of a file, if any; it is left alone for a while then.
    pub(crate) fn send_contended(&self, now: Duration, file: FileKey, recalls: Recalls) {
        if !recalls.is_empty() {
            self.delegations.contended.mark(self.contention_hash(file), now);
        }
        self.send_recalls(recalls);
    }

    /// Begins the recall of a delegation; `None` where that was done before.
    pub(crate) fn recall(
        &self,
        shard: &mut Shard,
        index: u32,
        now: Duration,
    ) -> Option<(Arc<Client>, Callback)> {
        let place = shard.place(index);
        let client = Arc::clone(&shard.entry(index).client);
        let delegation = shard.delegation_at_mut(index);
        let is_first = delegation.phase == Phase::Granted;
        delegation.turn(Event::Conflict);
        if !is_first {
            return None;
        }
        delegation.recalled = Some(now);
        delegation.notices.forget(self.gauges.notices_of(&client));
        self.delegations.recalled.lock().push_back((now, place));
        self.delegations.counts.recalls.fetch_add(1, Relaxed);
        Some(self.recall_callback(shard, place))
    }

    fn recall_callback(&self, shard: &Shard, place: Place) -> (Arc<Client>, Callback) {
        let delegation = shard.delegation_at(place.index);
        let stateid = shard.stateid(place.index, self.ids.boot());
        let args = CbRecallArgs { stateid, truncate: false, handle: delegation.handle };
        let (purpose, referring) = (Purpose::Recall(place), delegation.granted_by.clone());
        let client = Arc::clone(&shard.entry(place.index).client);
        (client, Callback::new(CbOp::Recall(args), purpose, referring))
    }

    pub(crate) fn send_recalls(&self, recalls: Recalls) {
        for (client, callback) in recalls {
            self.call(&client, callback);
        }
    }

    /// What a client said to CB_RECALL. §20.2.4, and §2.10.6.3: a client that does not know the delegation may not have seen
    /// the OPEN's reply yet; it is asked again until the delegation's time is over.
    pub(crate) fn recall_answered(&self, place: Place, status: Status) {
        if status != Status::OK {
            self.delegations.again.lock().push(place);
        }
    }

    /// DELEGRETURN (RFC 8881 §18.6).
    ///
    /// # Errors
    /// As for every stateid.
    pub fn return_delegation(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<(), Status> {
        let mut dropped = Dropped::new();
        let is_delegation = |kind: &Kind| matches!(kind, Kind::Delegation(_));
        let (mut shard, index) = self.find_entry(client, file, stateid, is_delegation)?;
        if let Some(recalled) = shard.delegation_at(index).recalled {
            let took = u64::try_from(now.saturating_sub(recalled).as_micros()).unwrap_or(u64::MAX);
            self.delegations.counts.returned.fetch_add(1, Relaxed);
            self.delegations.counts.return_micros.fetch_add(took, Relaxed);
            self.delegations.counts.slowest_micros.fetch_max(took, Relaxed);
        }
        shard.end(index, shard::Event::Close, &self.gauges, &mut dropped);
        Ok(())
    }

    /// Whether a stateid is the client's delegation of this file, and covers these bits of `share_access`; for OPEN by
    /// CLAIM_DELEGATE_CUR.
    ///
    /// # Errors
    /// As for every stateid; INVAL where it does not cover them.
    pub fn check_delegation(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        access: u8,
    ) -> Result<(), Status> {
        let is_delegation = |kind: &Kind| matches!(kind, Kind::Delegation(_));
        let (shard, index) = self.find_entry(client, file, stateid, is_delegation)?;
        let covered = shard.delegation_at(index).kind.is_write() || access & IoKind::Write.bit() == 0;
        // RFC 8881 §10.4.1 lets a holder open locally only what the delegation covers; what it brings is no such open.
        if covered { Ok(()) } else { Err(Status::INVAL) }
    }

    /// Revokes what did not come back in time, sends again what did not get through, and tells operations whose time is over.
    pub(crate) fn tend_delegations(&self, now: Duration) {
        let again = std::mem::take(&mut *self.delegations.again.lock());
        for place in again {
            let shard = self.shards[place.shard].lock();
            let again = shard.is_delegation(place).then(|| self.recall_callback(&shard, place));
            drop(shard);
            self.send_recalls(again.into_iter().collect());
        }
        loop {
            // §10.4.5: "servers SHOULD revoke delegations that are not returned in a period of time equal to the lease period."
            let is_due = |entry: &mut (Duration, Place)| entry.0 + self.lease <= now;
            let Some((_, place)) = self.delegations.recalled.lock().pop_front_if(is_due) else { break };
            let mut dropped = Dropped::new();
            let mut shard = self.shards[place.shard].lock();
            if shard.is_delegation(place) {
                shard.end(place.index, shard::Event::Unreturned, &self.gauges, &mut dropped);
                self.delegations.counts.revoked.fetch_add(1, Relaxed);
            }
        }
        if self.delegations.waiting.load(Relaxed) > 0 {
            for shard in &self.shards {
                let shard = shard.lock();
                let overdue = shard.waiting.values().flatten().filter(|waiter| waiter.deadline <= now);
                overdue.for_each(|waiter| {
                    self.delegations.counts.overdue.fetch_add(1, Relaxed);
                    waiter.end(false);
                });
            }
        }
    }
}
