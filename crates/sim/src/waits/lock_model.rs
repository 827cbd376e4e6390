//! A model of byte-range locks and their waiters (RFC 8881 §9.6, §20.11; SEMANTICS.md). It checks each reply and callback before the
//! network delivers or loses it.
//!
//! In each step the server must grant, deny and notify exactly as the model does. The callbacks show which
//! waiters it has notified. They are sent at once, or when the client has a back channel.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::{CbCompoundArgs, CbOp};
use protocol::nfs4::compound::{CompoundResult, OpResult};
use protocol::nfs4::ops::lock::{LockDenied, LockOutcome};
use protocol::nfs4::types::{Handle, SessionId, Status};
use rpc::message::{CallHeader, parse_reply};
use server::{CallbackPath, ClientSnapshot, ClientStatus, Server};
use xdr::{Decode, Reader};

use super::cells::{Cells, Locked};
use super::{FILES, LEASE};
use crate::cluster::{ServerAction, moment};

/// The time for which a waiter is kept without a retry.
const KNOWN: Duration = Duration::from_secs(90);
/// The time for which no other waiter is notified after one was.
const TURN: Duration = Duration::from_secs(5);
/// Time limit for the callback to a reachable waiter: longer than the server's callback timeout (15 s), so that a slot is free.
const CALLBACK_DELAY_MAX: Duration = Duration::from_secs(20);
/// More than the number of clients.
const MANY: usize = 64;

/// Identifies a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProcessId {
    pub(super) client: usize,
    pub(super) process: usize,
}

impl ProcessId {
    /// Returns its lock-owner and open-owner.
    pub(super) fn owner(self) -> Vec<u8> {
        format!("process-{}-{}", self.client, self.process).into_bytes()
    }

    /// Returns the process of an owner.
    pub(super) fn named(owner: &[u8]) -> Option<Self> {
        let numbers = core::str::from_utf8(owner).ok()?.strip_prefix("process-")?;
        let (client, process) = numbers.split_once('-')?;
        Some(Self { client: client.parse().ok()?, process: process.parse().ok()? })
    }
}

/// A call of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockCall {
    pub(super) who: ProcessId,
    pub(super) file: usize,
    pub(super) op: LockOp,
}

/// The operation of a [`LockCall`].
#[derive(Debug, Clone, Copy)]
pub(super) enum LockOp {
    Lock {
        cells: Cells,
        write: bool,
        waits: bool,
        reclaims: bool,
    },
    Unlock(Cells),
    /// To reading only.
    Downgrade,
    Close,
}

/// A process that waits for a lock.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    who: ProcessId,
    cells: Cells,
    write: bool,
    asked: Duration,
    notified: Option<Duration>,
}

impl Waiter {
    fn excludes(&self, other: &Self) -> bool {
        self.who != other.who && (self.write || other.write) && self.cells.overlaps(other.cells)
    }
}

#[derive(Debug, Default)]
struct File {
    held: BTreeMap<ProcessId, Locked>,
    /// Locks at the last kill of the server that no other process has had since.
    former: BTreeMap<ProcessId, Locked>,
    /// In order of arrival.
    queue: Vec<Waiter>,
}

/// The server's knowledge of a client.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Its client ID.
    id: Option<u64>,
    renewed: Duration,
    /// Since when its back channel works.
    reachable: Option<Duration>,
}

impl Known {
    fn is_expired(self, now: Duration) -> bool {
        self.renewed + LEASE <= now
    }
}

/// Counts of events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Locks granted and denied.
    pub(super) granted: usize,
    pub(super) denied: usize,
    /// Locks taken from expired clients, and locks reclaimed.
    pub(super) taken: usize,
    pub(super) reclaimed: usize,
    /// Waiters notified.
    pub(super) notified: usize,
    /// Locks granted after a notification, before the next retry.
    pub(super) spared: usize,
    /// Waiters removed by OPEN_DOWNGRADE to reading.
    pub(super) reduced: usize,
}

/// The model.
#[derive(Debug)]
pub(super) struct LockModel {
    files: Vec<File>,
    known: Vec<Known>,
    asks: HashMap<Bytes, (LockCall, Option<Bytes>)>,
    handles: HashMap<Handle, usize>,
    /// Time of the last `maintain`.
    tick: Duration,
    /// The current server's count of notified waiters.
    notified: u64,
    /// Waiters that the model has notified in this step.
    now_notified: u64,
    /// Files whose waiters the server may have notified in this step.
    perhaps: Vec<usize>,
    /// Notified waiters without a callback so far.
    due: Vec<(usize, ProcessId, Duration)>,
    /// Callbacks of this step.
    calls: Vec<(usize, ProcessId)>,
    /// Used slots and sequence numbers of back channels.
    sent: HashSet<(SessionId, u32, u32)>,
    pub(super) counts: Counts,
    /// Kills of the server.
    pub(super) kills: u32,
    /// Whether processes start no new operations.
    pub(super) is_quiet: bool,
    /// Whether all waiters have got their locks.
    pub(super) is_over: bool,
}

impl LockModel {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            files: (0..FILES).map(|_| File::default()).collect(),
            known: vec![Known::default(); clients],
            asks: HashMap::new(),
            handles: HashMap::new(),
            tick: Duration::ZERO,
            notified: 0,
            now_notified: 0,
            perhaps: Vec::new(),
            due: Vec::new(),
            calls: Vec::new(),
            sent: HashSet::new(),
            counts: Counts::default(),
            kills: 0,
            is_quiet: false,
            is_over: false,
        }
    }

    /// Notes a process's call.
    pub(super) fn asks(&mut self, call: Bytes, ask: LockCall) {
        self.asks.insert(call, (ask, None));
    }

    /// Notes a file's handle.
    pub(super) fn is_called(&mut self, file: usize, handle: Handle) {
        self.handles.insert(handle, file);
    }

    /// Handles a kill of the server: locks may be reclaimed, and all waiters are gone.
    pub(super) fn server_killed(&mut self, now: Duration) {
        (self.tick, self.kills) = (now, self.kills + 1);
        for file in &mut self.files {
            for (who, held) in std::mem::take(&mut file.held) {
                file.former.entry(who).or_default().add(held);
            }
            file.queue.clear();
        }
        self.known.iter_mut().for_each(|known| *known = Known::default());
        (self.notified, self.now_notified) = (0, 0);
        self.due.clear();
        self.perhaps.clear();
    }

    /// Checks an action of the server.
    ///
    /// # Errors
    /// Returns the illegal action.
    pub(super) fn on_server_action(
        &mut self,
        server: &Server,
        now: Duration,
        action: ServerAction<'_>,
    ) -> Result<(), String> {
        match action {
            ServerAction::Maintain => {
                self.update_clients(server, now);
                self.tend(now);
                self.check_all_called(now)?;
            }
            ServerAction::Answer { call, reply } => {
                self.update_clients(server, now);
                self.answered(call, reply, now)?;
            }
            ServerAction::Call { client, call } => self.called(client, call)?,
            ServerAction::Step => {
                self.count(server)?;
                self.match_calls()?;
            }
        }
        Ok(())
    }

    fn update_clients(&mut self, server: &Server, now: Duration) {
        let snapshot = server.snapshot(moment(now), MANY);
        let confirmed = snapshot.clients.iter().filter(|client| client.status != ClientStatus::Unconfirmed);
        let mut found: Vec<Option<&ClientSnapshot>> = vec![None; self.known.len()];
        for client in confirmed {
            let index =
                core::str::from_utf8(&client.owner).ok().and_then(|name| name.strip_prefix("client-"));
            let index: usize = index.and_then(|index| index.parse().ok()).expect("all are called so");
            found[index] = Some(client);
        }
        for (index, found) in found.into_iter().enumerate() {
            let known = &mut self.known[index];
            let (before, id) = (known.id, found.map(|client| client.id));
            let is_reachable = found.is_some_and(|client| client.callbacks == CallbackPath::Up);
            known.reachable = is_reachable.then(|| known.reachable.unwrap_or(now));
            known.id = id;
            if let Some(client) = found.filter(|client| !client.lease_left.is_zero()) {
                known.renewed = (now + client.lease_left).saturating_sub(LEASE);
            }
            if before.is_some() && before != id {
                self.forget(index);
            }
        }
    }

    /// Removes a client that the server has forgotten.
    fn forget(&mut self, client: usize) {
        for (number, file) in self.files.iter_mut().enumerate() {
            file.held.retain(|who, _| who.client != client);
            file.queue.retain(|one| one.who.client != client);
            self.perhaps.push(number);
        }
        self.due.retain(|(_, who, _)| who.client != client);
    }

    /// Removes waiters that did not retry, and notifies others.
    fn tend(&mut self, now: Duration) {
        self.tick = now;
        for number in 0..self.files.len() {
            let is_over = |one: &Waiter| {
                one.asked + KNOWN.max(LEASE) <= now
                    || one.notified.is_some_and(|notified| notified + TURN <= now)
            };
            self.files[number].queue.retain(|one| !is_over(one));
            self.notify_ready(number);
        }
    }

    /// Checks that all notified waiters were called back.
    fn check_all_called(&self, now: Duration) -> Result<(), String> {
        let is_long_ago = |since: Duration| since + CALLBACK_DELAY_MAX <= now;
        let may_be_called = |who: &ProcessId| self.known[who.client].reachable.is_some_and(is_long_ago);
        match self.due.iter().find(|(_, who, since)| is_long_ago(*since) && may_be_called(who)) {
            Some(due) => Err(format!("{due:?} is not called back")),
            None => Ok(()),
        }
    }

    /// Notifies, in order, the waiters of a file that have no conflict.
    fn notify_ready(&mut self, number: usize) {
        for at in self.ready(number) {
            let one = &mut self.files[number].queue[at];
            one.notified = Some(self.tick);
            self.due.push((number, one.who, self.tick));
            self.now_notified += 1;
            self.counts.notified += 1;
        }
    }

    /// Returns the waiters of a file that would be notified now.
    fn ready(&self, number: usize) -> Vec<usize> {
        let file = &self.files[number];
        let mut turns: Vec<usize> =
            (0..file.queue.len()).filter(|at| file.queue[*at].notified.is_some()).collect();
        let mut ready = Vec::new();
        for (at, one) in file.queue.iter().enumerate() {
            let is_free = self.find_conflict(number, one.who, (one.cells, one.write), self.tick).is_none();
            let is_turn = !turns.iter().any(|other| one.excludes(&file.queue[*other]));
            if one.notified.is_none() && self.known[one.who.client].reachable.is_some() && is_free && is_turn
            {
                turns.push(at);
                ready.push(at);
            }
        }
        ready
    }

    /// Returns a conflicting lock of a client with a valid lease.
    fn find_conflict(
        &self,
        number: usize,
        who: ProcessId,
        (cells, write): (Cells, bool),
        now: Duration,
    ) -> Option<(ProcessId, Locked)> {
        let stands =
            |other: ProcessId| other.client == who.client || !self.known[other.client].is_expired(now);
        let mut held = self.files[number].held.iter();
        let found =
            held.find(|(other, locked)| **other != who && locked.excludes(cells, write) && stands(**other));
        found.map(|(other, locked)| (*other, *locked))
    }

    fn answered(&mut self, call: &Bytes, reply: &Bytes, now: Duration) -> Result<(), String> {
        let result: CompoundResult = parse_reply(reply.clone()).map_err(|error| error.to_string())?;
        let Some((ask, first)) = self.asks.get_mut(call) else { return Ok(()) };
        let ask = *ask;
        match first {
            Some(first) if first == reply => return Ok(()),
            Some(_) if is_refused(result.status) => return Ok(()),
            Some(_) => return Err(format!("{ask:?} was answered before, and now with {result:?}")),
            None => *first = Some(reply.clone()),
        }
        self.apply(ask, &result, now).map_err(|why| format!("{ask:?}: {why}"))
    }

    fn apply(&mut self, ask: LockCall, result: &CompoundResult, now: Duration) -> Result<(), String> {
        let LockCall { who, file: number, op } = ask;
        match (op, result.results.last()) {
            (LockOp::Lock { cells, write, reclaims, .. }, Some(OpResult::Lock(LockOutcome::Ok(_)))) => {
                self.granted(number, who, (cells, write), reclaims, now)?;
                self.notify_ready(number);
            }
            (LockOp::Lock { cells, write, waits, .. }, Some(OpResult::Lock(LockOutcome::Denied(lock)))) => {
                self.denied(number, who, (cells, write), lock, now)?;
                self.join((number, who), (cells, write), waits, now);
            }
            (LockOp::Unlock(cells), _) if result.status == Status::OK => {
                let file = &mut self.files[number];
                for of in [&mut file.held, &mut file.former] {
                    of.entry(who).or_default().unlock(cells);
                    of.retain(|_, locked| !locked.is_empty());
                }
                self.notify_ready(number);
            }
            // §18.10.4: a write lock needs an open for writing.
            (LockOp::Downgrade, _) if result.status == Status::OK => {
                let queue = &mut self.files[number].queue;
                let waited = queue.len();
                queue.retain(|one| one.who != who || !one.write);
                self.counts.reduced += waited - queue.len();
                if queue.len() < waited {
                    self.notify_ready(number);
                }
            }
            (LockOp::Close, _) if result.status == Status::OK => {
                let file = &mut self.files[number];
                let waited = file.queue.len();
                file.queue.retain(|one| one.who != who);
                file.former.remove(&who);
                let has_left = file.held.remove(&who).is_some() || file.queue.len() < waited;
                // A lock stateid without locks may have been removed too.
                if has_left { self.notify_ready(number) } else { self.perhaps.push(number) }
            }
            _ => {}
        }
        Ok(())
    }

    fn granted(
        &mut self,
        number: usize,
        who: ProcessId,
        lock: (Cells, bool),
        reclaims: bool,
        now: Duration,
    ) -> Result<(), String> {
        if let Some(other) = self.find_conflict(number, who, lock, now) {
            return Err(format!("granted despite {other:?}"));
        }
        let (file, (cells, write)) = (&mut self.files[number], lock);
        // §8.4.3: conflicting lock stateids of expired clients are revoked, and their waiters removed.
        let expired =
            file.held.iter().filter(|(other, locked)| **other != who && locked.excludes(cells, write));
        for other in expired.map(|(other, _)| *other).collect::<Vec<_>>() {
            file.held.remove(&other);
            file.queue.retain(|one| one.who != other);
            self.counts.taken += 1;
        }
        if reclaims {
            let former = file.former.get(&who).copied().unwrap_or_default();
            if !former.covers(cells, write) {
                return Err(format!("reclaimed, but it had {former:?}"));
            }
            self.counts.reclaimed += 1;
        }
        let others = file.former.iter_mut().filter(|(other, _)| **other != who);
        others.for_each(|(_, former)| former.yield_to(cells, write));
        file.held.entry(who).or_default().lock(cells, write);
        let waited = file.queue.iter().position(|one| one.who == who && one.cells == cells);
        self.counts.spared += usize::from(waited.is_some_and(|at| file.queue[at].notified.is_some()));
        waited.map(|at| file.queue.remove(at));
        self.counts.granted += 1;
        Ok(())
    }

    fn denied(
        &mut self,
        number: usize,
        who: ProcessId,
        (cells, write): (Cells, bool),
        by: &LockDenied,
        now: Duration,
    ) -> Result<(), String> {
        if self.find_conflict(number, who, (cells, write), now).is_none() {
            return Err("denied without a conflicting lock".into());
        }
        let holder = ProcessId::named(&by.owner.owner).ok_or("denied by an unknown owner")?;
        let held = self.files[number].held.get(&holder).copied().unwrap_or_default();
        if holder == who || !held.excludes(cells, write) {
            return Err(format!("denied by {holder:?}, who has {held:?}"));
        }
        self.counts.denied += 1;
        Ok(())
    }

    /// §9.6: a waiter with a back channel is kept; one that asks for the same without waiting is removed.
    fn join(
        &mut self,
        (number, who): (usize, ProcessId),
        (cells, write): (Cells, bool),
        waits: bool,
        now: Duration,
    ) {
        let queue = &mut self.files[number].queue;
        let known = queue.iter().position(|one| one.who == who && one.cells == cells);
        if !waits {
            if known.map(|at| queue.remove(at)).is_some() {
                self.notify_ready(number);
            }
        } else if self.known[who.client].reachable.is_some() {
            let waiter = Waiter { who, cells, write, asked: now, notified: None };
            match known {
                Some(at) => queue[at] = waiter,
                None => queue.push(waiter),
            }
            self.notify_ready(number);
        }
    }

    /// Handles a callback.
    fn called(&mut self, client: usize, call: &Bytes) -> Result<(), String> {
        let mut reader = Reader::new(call.clone());
        let header = CallHeader::parse(&mut reader).map_err(|error| format!("{error:?}"))?;
        if header.procedure == protocol::nfs4::callback::PROC_NULL {
            return Ok(());
        }
        let args = CbCompoundArgs::decode(&mut reader).map_err(|error| error.to_string())?;
        let [CbOp::Sequence(sequence), CbOp::NotifyLock(args)] = &args.ops[..] else {
            return Err(format!("unexpected callback {args:?}"));
        };
        let who = ProcessId::named(&args.lock_owner.owner).filter(|who| who.client == client);
        let who =
            who.ok_or_else(|| format!("client {client} is notified of a lock of {:?}", args.lock_owner))?;
        let file = self.handles.get(&args.handle).ok_or("an unknown handle")?;
        // Otherwise it is a retransmission.
        if self.sent.insert((sequence.session_id, sequence.slot_id, sequence.sequence_id)) {
            self.calls.push((*file, who));
        }
        Ok(())
    }

    /// Checks the number of waiters notified in this step.
    fn count(&mut self, server: &Server) -> Result<(), String> {
        let count = server.counts().locks_notified - self.notified;
        self.notified += count;
        let mut perhaps = std::mem::take(&mut self.perhaps);
        perhaps.sort_unstable();
        perhaps.dedup();
        for number in perhaps {
            if self.now_notified + self.ready(number).len() as u64 <= count {
                self.notify_ready(number);
            }
        }
        let expected = std::mem::take(&mut self.now_notified);
        let waiting = self.files.iter().map(|file| file.queue.len() as u64).sum::<u64>();
        if count != expected {
            return Err(format!("{count} waiters were notified instead of {expected}: {:?}", self.files));
        }
        match server.counts().locks_waiting {
            known if known == waiting => Ok(()),
            known => Err(format!("the server counts {known} waiters instead of {waiting}: {:?}", self.files)),
        }
    }

    /// Matches callbacks with notified waiters.
    fn match_calls(&mut self) -> Result<(), String> {
        for call in std::mem::take(&mut self.calls) {
            let at = self.due.iter().position(|(file, who, _)| (*file, *who) == call);
            let at = at.ok_or_else(|| format!("{call:?} is notified out of turn: {:?}", self.files))?;
            self.due.remove(at);
        }
        Ok(())
    }
}

/// Returns whether a status shows that a repetition was not executed.
fn is_refused(status: Status) -> bool {
    matches!(
        status,
        Status::SEQ_MISORDERED
            | Status::RETRY_UNCACHED_REP
            | Status::BADSESSION
            | Status::BAD_SEQID
            | Status::BAD_STATEID
            | Status::OLD_STATEID
            | Status::STALE_CLIENTID
            | Status::STALE_STATEID
            | Status::EXPIRED
    )
}
