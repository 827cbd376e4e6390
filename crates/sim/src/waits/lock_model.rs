//! What the server must do: a model of byte-range locks, and of who waits for them (RFC 8881 §9.6, §20.11; SEMANTICS.md). It hears each
//! answer and each callback when the server has made it, before the network has its way with them.
//!
//! The server may do nothing else in any step than the model does: grant and deny, and tell as many of those who wait. Which of them it
//! told is seen when the callback leaves, at once or when there is a way to the client.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::{CbCompoundArgs, CbOp};
use protocol::nfs4::compound::{CompoundResult, OpResult};
use protocol::nfs4::ops::lock::{LockDenied, LockOutcome};
use protocol::nfs4::types::{Handle, SessionId, Status};
use rpc::message::{CallHeader, parse_reply};
use server::{CallbackPath, ClientSnapshot, Server, Standing};
use xdr::{Decode, Reader};

use super::cells::{Cells, Locked};
use super::{FILES, LEASE};
use crate::cluster::{ServerAction, moment};

/// How long a waiter is known that does not ask again.
const KNOWN: Duration = Duration::from_secs(90);
/// How long the others leave the lock to one that was told of it.
const TURN: Duration = Duration::from_secs(5);
/// Within which time who is told is called where there is a way to it all the while: longer than the server waits for an answer (15 s)
/// before it gives a way up, so that a slot is free.
const CALLED_WITHIN: Duration = Duration::from_secs(20);
/// More clients than there are.
const MANY: usize = 64;

/// A process: the number of its client, and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProcessId {
    pub(super) client: usize,
    pub(super) process: usize,
}

impl ProcessId {
    /// Its lock-owner, and its open-owner.
    pub(super) fn owner(self) -> Vec<u8> {
        format!("process-{}-{}", self.client, self.process).into_bytes()
    }

    /// Whose owner that is.
    pub(super) fn named(owner: &[u8]) -> Option<Self> {
        let numbers = core::str::from_utf8(owner).ok()?.strip_prefix("process-")?;
        let (client, process) = numbers.split_once('-')?;
        Some(Self { client: client.parse().ok()?, process: process.parse().ok()? })
    }
}

/// What a process asks of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockCall {
    pub(super) who: ProcessId,
    pub(super) file: usize,
    pub(super) op: LockOp,
}

/// See [`LockCall`].
#[derive(Debug, Clone, Copy)]
pub(super) enum LockOp {
    Lock {
        cells: Cells,
        write: bool,
        waits: bool,
        reclaims: bool,
    },
    Unlock(Cells),
    /// To reading.
    Downgrade,
    Close,
}

/// Who waits for a lock.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    who: ProcessId,
    cells: Cells,
    write: bool,
    asked: Duration,
    told: Option<Duration>,
}

impl Waiter {
    fn excludes(&self, other: &Self) -> bool {
        self.who != other.who && (self.write || other.write) && self.cells.overlaps(other.cells)
    }
}

#[derive(Debug, Default)]
struct File {
    held: BTreeMap<ProcessId, Locked>,
    /// What was held when a server was killed, and nobody else has had since.
    former: BTreeMap<ProcessId, Locked>,
    /// In the order in which they came.
    queue: Vec<Waiter>,
}

/// What the server knows of a client.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// By which it is known now.
    id: Option<u64>,
    renewed: Duration,
    /// Since when it can be called.
    reachable: Option<Duration>,
}

impl Known {
    fn is_expired(self, now: Duration) -> bool {
        self.renewed + LEASE <= now
    }
}

/// What has happened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Locks that were given, and denied.
    pub(super) granted: usize,
    pub(super) denied: usize,
    /// Locks that were taken from whoever had lost its lease, and that were reclaimed.
    pub(super) taken: usize,
    pub(super) reclaimed: usize,
    /// Waiters that were told.
    pub(super) told: usize,
    /// Those that had a lock after they were told, and before they would have asked again.
    pub(super) spared: usize,
    /// Those that could not have it any more, as their open was reduced to reading.
    pub(super) reduced: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LockModel {
    files: Vec<File>,
    known: Vec<Known>,
    asks: HashMap<Bytes, (LockCall, Option<Bytes>)>,
    handles: HashMap<Handle, usize>,
    /// When the server looked after itself last.
    tick: Duration,
    /// How many waiters were told by this server, as it counts them.
    notified: u64,
    /// Those that the model has told in this step.
    now_told: u64,
    /// Files whose waiters may have been looked at in this step, and perhaps were not.
    perhaps: Vec<usize>,
    /// Who was told, and has not been called yet.
    due: Vec<(usize, ProcessId, Duration)>,
    /// Callbacks that were made in this step.
    calls: Vec<(usize, ProcessId)>,
    /// Places in the back channels' slots that were used.
    sent: HashSet<(SessionId, u32, u32)>,
    pub(super) counts: Counts,
    /// Servers that were killed.
    pub(super) kills: u32,
    /// Nobody begins anything any more.
    pub(super) is_quiet: bool,
    /// Everybody has its lock who was there.
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
            now_told: 0,
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

    /// A process asks this by that call.
    pub(super) fn asks(&mut self, call: Bytes, ask: LockCall) {
        self.asks.insert(call, (ask, None));
    }

    /// A file is called so by the server.
    pub(super) fn is_called(&mut self, file: usize, handle: Handle) {
        self.handles.insert(handle, file);
    }

    /// What the next server finds in the log may be reclaimed, and nobody waits.
    pub(super) fn server_killed(&mut self, now: Duration) {
        (self.tick, self.kills) = (now, self.kills + 1);
        for file in &mut self.files {
            for (who, held) in std::mem::take(&mut file.held) {
                file.former.entry(who).or_default().add(held);
            }
            file.queue.clear();
        }
        self.known.iter_mut().for_each(|known| *known = Known::default());
        (self.notified, self.now_told) = (0, 0);
        self.due.clear();
        self.perhaps.clear();
    }

    /// Looks at what the server did.
    ///
    /// # Errors
    /// What it must not have done.
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
        let snapshot = server.look(moment(now), MANY);
        let confirmed = snapshot.clients.iter().filter(|client| client.standing != Standing::Unconfirmed);
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

    /// The server has forgotten a client, with all that it held.
    fn forget(&mut self, client: usize) {
        for (number, file) in self.files.iter_mut().enumerate() {
            file.held.retain(|who, _| who.client != client);
            file.queue.retain(|one| one.who.client != client);
            self.perhaps.push(number);
        }
        self.due.retain(|(_, who, _)| who.client != client);
    }

    /// Forgets who did not come, and goes on with the others.
    fn tend(&mut self, now: Duration) {
        self.tick = now;
        for number in 0..self.files.len() {
            let is_over = |one: &Waiter| {
                one.asked + KNOWN.max(LEASE) <= now || one.told.is_some_and(|told| told + TURN <= now)
            };
            self.files[number].queue.retain(|one| !is_over(one));
            self.notify_ready(number);
        }
    }

    /// Whoever was told is called.
    fn check_all_called(&self, now: Duration) -> Result<(), String> {
        let is_long_ago = |since: Duration| since + CALLED_WITHIN <= now;
        let may_be_called = |who: &ProcessId| self.known[who.client].reachable.is_some_and(is_long_ago);
        match self.due.iter().find(|(_, who, told)| is_long_ago(*told) && may_be_called(who)) {
            Some(due) => Err(format!("{due:?} is not called")),
            None => Ok(()),
        }
    }

    /// Tells those in order for whom nothing is in the way, whose turn it is among it.
    fn notify_ready(&mut self, number: usize) {
        for at in self.ready(number) {
            let one = &mut self.files[number].queue[at];
            one.told = Some(self.tick);
            self.due.push((number, one.who, self.tick));
            self.now_told += 1;
            self.counts.told += 1;
        }
    }

    /// Who would be told now of those that wait for locks of a file.
    fn ready(&self, number: usize) -> Vec<usize> {
        let file = &self.files[number];
        let mut turns: Vec<usize> =
            (0..file.queue.len()).filter(|at| file.queue[*at].told.is_some()).collect();
        let mut ready = Vec::new();
        for (at, one) in file.queue.iter().enumerate() {
            let is_free = self.find_conflict(number, one.who, (one.cells, one.write), self.tick).is_none();
            let is_turn = !turns.iter().any(|other| one.excludes(&file.queue[*other]));
            if one.told.is_none() && self.known[one.who.client].reachable.is_some() && is_free && is_turn {
                turns.push(at);
                ready.push(at);
            }
        }
        ready
    }

    /// Whoever holds what excludes a lock, and whose lease runs.
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
            // Through an open that is not for writing nobody is given a lock for that (§18.10.4).
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
                // A lock stateid without locks may have gone too.
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
            return Err(format!("granted beside {other:?}"));
        }
        let (file, (cells, write)) = (&mut self.files[number], lock);
        // §8.4.3: from whoever has lost its lease the lock stateid is taken that is in the way, and who waits by it is forgotten.
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
                return Err(format!("reclaimed, and what it had is {former:?}"));
            }
            self.counts.reclaimed += 1;
        }
        let others = file.former.iter_mut().filter(|(other, _)| **other != who);
        others.for_each(|(_, former)| former.yield_to(cells, write));
        file.held.entry(who).or_default().lock(cells, write);
        let waited = file.queue.iter().position(|one| one.who == who && one.cells == cells);
        self.counts.spared += usize::from(waited.is_some_and(|at| file.queue[at].told.is_some()));
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
            return Err("denied, and nobody holds it".into());
        }
        let holder = ProcessId::named(&by.owner.owner).ok_or("denied by nobody's lock")?;
        let held = self.files[number].held.get(&holder).copied().unwrap_or_default();
        if holder == who || !held.excludes(cells, write) {
            return Err(format!("denied by {holder:?}, who has {held:?}"));
        }
        self.counts.denied += 1;
        Ok(())
    }

    /// §9.6: who waits and can be told is remembered; who asks for the same and does not wait is forgotten.
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
            let waiter = Waiter { who, cells, write, asked: now, told: None };
            match known {
                Some(at) => queue[at] = waiter,
                None => queue.push(waiter),
            }
            self.notify_ready(number);
        }
    }

    /// Takes a call that the server makes.
    fn called(&mut self, client: usize, call: &Bytes) -> Result<(), String> {
        let mut reader = Reader::new(call.clone());
        let header = CallHeader::parse(&mut reader).map_err(|error| format!("{error:?}"))?;
        if header.procedure == protocol::nfs4::callback::PROC_NULL {
            return Ok(());
        }
        let args = CbCompoundArgs::decode(&mut reader).map_err(|error| error.to_string())?;
        let [CbOp::Sequence(sequence), CbOp::NotifyLock(told)] = &args.ops[..] else {
            return Err(format!("nothing here leads to {args:?}"));
        };
        let who = ProcessId::named(&told.lock_owner.owner).filter(|who| who.client == client);
        let who = who.ok_or_else(|| format!("client {client} is told of a lock of {:?}", told.lock_owner))?;
        let file = self.handles.get(&told.handle).ok_or("a handle that nobody was given")?;
        // Otherwise it is sent again.
        if self.sent.insert((sequence.session_id, sequence.slot_id, sequence.sequence_id)) {
            self.calls.push((*file, who));
        }
        Ok(())
    }

    /// Whether as many were told as the model has told in this step, and perhaps those that it may have.
    fn count(&mut self, server: &Server) -> Result<(), String> {
        let told = server.counts().locks_notified - self.notified;
        self.notified += told;
        let mut perhaps = std::mem::take(&mut self.perhaps);
        perhaps.sort_unstable();
        perhaps.dedup();
        for number in perhaps {
            if self.now_told + self.ready(number).len() as u64 <= told {
                self.notify_ready(number);
            }
        }
        let expected = std::mem::take(&mut self.now_told);
        let waiting = self.files.iter().map(|file| file.queue.len() as u64).sum::<u64>();
        if told != expected {
            return Err(format!("{told} waiters were told instead of {expected}: {:?}", self.files));
        }
        match server.counts().locks_waiting {
            known if known == waiting => Ok(()),
            known => Err(format!("{known} wait by the server's count, and {waiting} do: {:?}", self.files)),
        }
    }

    /// Whether those were called who were told.
    fn match_calls(&mut self) -> Result<(), String> {
        for call in std::mem::take(&mut self.calls) {
            let at = self.due.iter().position(|(file, who, _)| (*file, *who) == call);
            let at = at.ok_or_else(|| format!("{call:?} is told, whose turn it is not: {:?}", self.files))?;
            self.due.remove(at);
        }
        Ok(())
    }
}

/// Whether a status says that a repetition was not executed.
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
