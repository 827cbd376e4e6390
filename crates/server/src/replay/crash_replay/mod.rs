//! A log by which calls that are not idempotent are executed once, even if the process ends between the change and its reply.
//!
//! While the process lives, reply caches and slots do this. When it is killed they are lost, and clients repeat calls that may have been
//! executed: MKDIR would fail with EXIST because of the directory that it made.
//!
//! Criteria, before the mechanism:
//! - A change is not executed again. The repeated call gets the reply that the first call would have had.
//! - Only a repeated call is recognized: the same call (RFC 1813's transaction number, RFC 8881's session, slot and sequence ID, and a keyed
//!   digest of caller and arguments), which a client sends because it had no reply. A call that was answered and is sent again is
//!   treated like any other.
//! - No change is claimed by two callers: directories and guarded files serve as locks between clients.
//! - A claimed change is as durable as an executed one.
//! - If the log is damaged, full, of another version or missing, repeated calls are executed again, and nothing else is lost.
//! - Memory and disk are bounded. A call costs two or three copies of some hundred bytes into memory and no system call. Idempotent calls
//!   (READ, WRITE, GETATTR, …) cost nothing.
//!
//! **Before and after.** Each operation that changes names (also of extended attributes), and SETATTR with a guard, is logged before it is executed
//! ([`Record::Started`]) and when its outcome is known ([`Record::Ended`]). The reply of the call is logged when it is complete
//! ([`Record::Replied`]). The next process reads these records ([`Before`]). A repetition of a finished call is answered
//! with its reply. A call that only began is executed again, as a *claim*: if it fails exactly as it would if the earlier process had
//! executed it, and the state of the file system agrees, it is answered as executed ([`LoggedOps`]). NFSv4.1's client repeats the call in
//! its old session first, gets BADSESSION, and repeats it in a new one: the repeated call is the claim of the operations that it
//! may request there, by the same user from the same address, unless the client has restarted.
//!
//! **Two at once.** When several calls for one name were in progress together, any one of them may have made the change, and none
//! was answered: any *one* of them may get that reply. So a claim is valid unless the last acknowledged change of that name, since the
//! call began or shortly before, is of the same kind: then another client, which got that reply, made the existing object.
//! A removal is not even executed again if another client is known to have created the name since. So operations on a name that an
//! operation of an earlier process may still claim run one after the other: a repeated removal waits for a creation that is in progress,
//! and does not remove the new object. All this needs one order of all
//! records, and losses in that order, so the log is one ring and not one for each core.
//!
//! The log survives the end of the process. A [`StableLog`] also survives a crash of the machine: on exports that promise durability, the
//! start of an operation is on stable storage before it is executed, and the end before the reply. NFSv4.1's sessions can then be
//! persistent (RFC 8881 §18.36.3), with their last replies in the state log (`state::persist`).

mod ops;
mod record;
mod recovered;
mod stable;
#[cfg(test)]
mod tests;
mod turns;
mod xattr;

use core::net::IpAddr;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use siphasher::sip::SipHasher24;
use tracing::{debug, info};
use vfs::{Handle, Timestamp};

pub(crate) use ops::{Directory, LoggedOps};
use record::{CHANGES, Kind, Record};
pub(crate) use recovered::RecoveredCall;
use recovered::RecoveredOps;
pub(crate) use stable::Stable;
pub use stable::StableLog;
use turns::{Turn, Turns};

use crate::{ExportId, HandleKey, Now};

/// Maximum bytes of a record.
pub const RECORD_BYTES_MAX: usize = record::CALL_BYTES + REPLY_BYTES_MAX;

/// The longest reply that is logged, in bytes. The call of a longer one counts as pending. Every reply to NFSv3's changes, and every reply
/// that NFSv4.1's slots keep, is shorter.
const REPLY_BYTES_MAX: usize = 4096;

/// Bytes hashed before a name: export, length and bytes of the directory's handle.
const TARGET_HEAD: usize = 4 + 8 + vfs::MAX_HANDLE;

/// Lifetime of records: that of replies in the reply cache, for the same reason.
pub(crate) const REMEMBER_FOR: Duration = Duration::from_secs(600);

/// Storage of records, which outlives the process, if only in the page cache.
pub trait ReplyLog: Send + Sync + fmt::Debug {
    /// Appends one record, the concatenation of `parts`, at most [`RECORD_BYTES_MAX`] bytes long. Old records make room for it,
    /// the oldest first. Returns when the record survives the end of the process. There are no errors: a log that cannot keep a
    /// record forgets it. Does not wait.
    fn append(&self, parts: &[&[u8]]);
}

/// Identifies a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallId {
    /// Digest of caller and arguments, keyed by [`secret`].
    pub(crate) digest: u64,
    /// NFSv3: the transaction number. NFSv4.1: slot and sequence ID.
    pub(crate) number: u64,
}

impl CallId {
    /// Returns a request of version 4.1.
    pub(crate) fn in_slot(digest: u64, slot: u32, sequence_id: u32) -> Self {
        Self { digest, number: u64::from(slot) << 32 | u64::from(sequence_id) }
    }
}

/// Returns the key of all digests here. It is the same in every process with one state directory, and used for nothing else.
pub(crate) fn secret(key: &HandleKey) -> [u8; 16] {
    let mut secret = [0; 16];
    for (half, place) in secret.chunks_exact_mut(8).enumerate() {
        let mut hasher = SipHasher24::new_with_key(&key.0);
        hasher.write(b"enfys: digests of calls");
        hasher.write_usize(half);
        place.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    secret
}

/// The log of calls, with the records of earlier processes.
#[derive(Debug)]
pub(crate) struct CallLog {
    log: Arc<dyn ReplyLog>,
    /// The same log, where it outlives the machine.
    stable: Option<Arc<Stable>>,
    secret: [u8; 16],
    /// The time of the start, by the clock of files: earlier processes changed nothing later.
    started: Timestamp,
    /// The monotonic time from which [`Self::before`] is useless.
    forget_at: Duration,
    /// Whether anything is in [`Self::before`].
    has_before: AtomicBool,
    before: Mutex<RecoveredOps>,
    /// The last time at which an operation began.
    last_began: Mutex<Timestamp>,
    /// Operations in progress on names with operations in [`Self::before`].
    turns: Turns,
}

impl CallLog {
    /// Reads the `records` of earlier processes, oldest first; ignores invalid ones. `secret` is the result of [`secret`]. `answered`
    /// are calls whose replies are kept elsewhere, each with whether it succeeded.
    pub(crate) fn new(
        log: Arc<dyn ReplyLog>,
        records: impl IntoIterator<Item = Bytes>,
        answered: impl IntoIterator<Item = (CallId, bool)>,
        secret: [u8; 16],
        now: Now,
    ) -> Self {
        let mut before = RecoveredOps::new(answered);
        records.into_iter().filter_map(Record::parse).for_each(|record| before.read(record, now.wall));
        before.read_all(now.wall, |record| log.append(&[&record.head()]));
        match before.under_way() {
            0 => {}
            count => info!(count, "unfinished operations of the previous server"),
        }
        Self {
            log,
            stable: None,
            secret,
            started: now.wall,
            forget_at: now.monotonic + REMEMBER_FOR,
            has_before: AtomicBool::new(!before.is_empty()),
            before: Mutex::new(before),
            last_began: Mutex::new(Timestamp { seconds: 0, nanoseconds: 0 }),
            turns: Turns::default(),
        }
    }

    /// Returns the time of an operation whose call arrived at `at`, which is that of no other operation: calls that arrived together
    /// have the same.
    fn distinct(&self, at: Timestamp) -> Timestamp {
        let mut last = self.last_began.lock();
        *last = distinct_after(*last, at);
        *last
    }

    /// As [`Self::new`], over a log that survives a crash of the machine.
    pub(crate) fn with_stable(self, stable: Arc<Stable>) -> Self {
        Self { stable: Some(stable), ..self }
    }

    /// Waits until the log is as durable as it will be.
    pub(crate) async fn sync(&self) {
        if let Some(stable) = &self.stable {
            stable.sync().await;
        }
    }

    /// Returns an earlier process's progress with a call. If the call only began, `who` may claim its operations from now on. With
    /// `is_renamed` the call will have another name, so the claim is logged for the next process.
    pub(crate) fn recognize(
        &self,
        call: CallId,
        who: CallOwner,
        now: Now,
        is_renamed: bool,
    ) -> RecoveredCall {
        let Some(mut before) = self.before() else { return RecoveredCall::Unknown };
        let key = |kind, targets: &[u64]| self.claim_key(who, kind, targets);
        let write = |record: Record| match &record {
            Record::Claimed { key, .. } if is_renamed => {
                self.log.append(&[&record.head(), &key.to_le_bytes()]);
            }
            Record::Claimed { .. } => {}
            other => self.write(other),
        };
        let recognized = before.recognize(call, now.wall, key, write);
        match &recognized {
            RecoveredCall::Unknown => {}
            RecoveredCall::Pending => debug!(?call, "client repeats a call that an earlier process began"),
            RecoveredCall::Replied(_) => {
                debug!(?call, "client repeats a call that an earlier process finished")
            }
        }
        recognized
    }

    /// Logs a complete reply.
    pub(crate) fn finish(&self, call: CallId, at: Timestamp, reply: &[u8]) {
        if reply.len() <= REPLY_BYTES_MAX {
            self.log.append(&[&Record::Replied { call, at, reply: Bytes::new() }.head(), reply]);
        }
    }

    /// Logs that a call's reply is on stable storage elsewhere: its operations can no longer be claimed.
    pub(crate) fn answered(&self, call: CallId, at: Timestamp) {
        self.write(&Record::Answered { call, at });
    }

    /// Forgets the records of earlier processes when they are too old.
    pub(crate) fn maintain(&self, now: Now) {
        if now.monotonic >= self.forget_at && self.has_before.swap(false, Ordering::Relaxed) {
            *self.before.lock() = RecoveredOps::default();
        }
    }

    /// Returns whether any record of an earlier process is left. Once false, it stays false.
    fn knows_before(&self) -> bool {
        self.has_before.load(Ordering::Relaxed)
    }

    /// Returns the records of earlier processes, if any are left.
    fn before(&self) -> Option<MutexGuard<'_, RecoveredOps>> {
        self.knows_before().then(|| self.before.lock())
    }

    fn write(&self, record: &Record) {
        self.log.append(&[&record.head()]);
    }

    /// Returns a keyed hash of a name in a directory, or of a file.
    fn target(&self, export: ExportId, file: &Handle, name: Option<&[u8]>) -> u64 {
        let mut head = [0; TARGET_HEAD];
        head[..4].copy_from_slice(&export.0.to_le_bytes());
        head[4..12].copy_from_slice(&(file.len() as u64).to_le_bytes());
        head[12..12 + file.len()].copy_from_slice(file);
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(&head[..12 + file.len()]);
        if let Some(name) = name {
            hasher.write(name);
        }
        hasher.finish()
    }

    fn claim_key(&self, who: CallOwner, kind: Kind, targets: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        who.hash(&mut hasher);
        hasher.write_u8(kind as u8);
        targets.iter().for_each(|target| hasher.write_u64(*target));
        hasher.finish()
    }
}

/// Returns `at`, or the next nanosecond after `last` if that is later: a claim has the time of its operation, and no other operation may
/// have it. After the clock was set back, times begin there.
fn distinct_after(last: Timestamp, at: Timestamp) -> Timestamp {
    const NANOSECONDS: u32 = 1_000_000_000;
    if last.seconds - at.seconds > 1 {
        return at;
    }
    let next = match last.nanoseconds + 1 {
        NANOSECONDS => Timestamp { seconds: last.seconds + 1, nanoseconds: 0 },
        nanoseconds => Timestamp { nanoseconds, ..last },
    };
    at.max(next)
}

/// The caller of a call: a user of a client. The port is not compared, because a new connection has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallOwner {
    pub(crate) client: IpAddr,
    /// Version 4.1: the number of the client's incarnation ([`incarnation_of`](crate::state::incarnation_of)). Zero in other versions.
    pub(crate) incarnation: u32,
    /// The caller's number. A Kerberos principal and the AUTH_SYS user that it maps to differ, because any client can claim to be the latter.
    pub(crate) caller: u64,
}

impl CallOwner {
    fn hash(self, hasher: &mut impl Hasher) {
        match self.client {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        hasher.write_u32(self.incarnation);
        hasher.write_u64(self.caller);
    }
}

/// A call in execution, for the log.
#[derive(Debug)]
pub(crate) struct LoggedCall {
    pub(crate) owner: CallOwner,
    /// The time of the call, by the clock of files.
    pub(crate) at: Timestamp,
    /// Identifies a call of version 3; `None` for idempotent ones. Compounds know their own number.
    pub(crate) id: Option<CallId>,
    /// Set by calls of version 3, once an operation was logged: their reply must be logged too.
    has_operations: AtomicBool,
    /// Set when the log must be synced before the reply is sent.
    must_sync: AtomicBool,
    /// Operations that are over, and whose changes are not durable yet.
    ends: Mutex<Vec<DeferredEnd>>,
}

/// The end of an operation, to be logged when its change is durable.
#[derive(Debug)]
struct DeferredEnd {
    /// The number of the operation in its group commit.
    operation: u32,
    call: CallId,
    at: Timestamp,
    kind: Kind,
    targets: [u64; CHANGES],
    /// The call of an earlier process that this one repeats, and its time.
    claimed: Option<(CallId, Timestamp)>,
}

impl LoggedCall {
    pub(crate) fn new(owner: CallOwner, at: Timestamp) -> Self {
        Self {
            owner,
            at,
            id: None,
            has_operations: AtomicBool::new(false),
            must_sync: AtomicBool::new(false),
            ends: Mutex::default(),
        }
    }

    pub(crate) fn has_operations(&self) -> bool {
        self.has_operations.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_operations(&self) {
        self.has_operations.store(true, Ordering::Relaxed);
    }

    pub(crate) fn must_sync(&self) -> bool {
        self.must_sync.load(Ordering::Relaxed)
    }

    pub(crate) fn set_must_sync(&self) {
        self.must_sync.store(true, Ordering::Relaxed);
    }
}

impl CallLog {
    /// Waits until no other operation is in progress on those of the targets that an operation of an earlier process may still claim,
    /// or that such an operation has claimed and is still completing.
    async fn turns(&self, targets: [u64; CHANGES]) -> [Option<Turn<'_>>; CHANGES] {
        // Who claims has the turn before the claim is gone, so the turns are looked at after the claims.
        let mut contested = match self.before() {
            Some(before) => targets.map(|target| (target, before.has_target(target))),
            None => targets.map(|target| (target, false)),
        };
        if self.turns.has_any() {
            contested.iter_mut().for_each(|(target, is_claimed)| *is_claimed |= self.turns.is_taken(*target));
        }
        let mut contested = contested.map(|(target, is_contested)| is_contested.then_some(target));
        // In one order, so that no two operations wait for each other.
        contested.sort_unstable();
        if contested[0] == contested[1] {
            contested[0] = None;
        }
        let mut turns = [None, None];
        for (turn, target) in turns.iter_mut().zip(contested) {
            if let Some(target) = target {
                *turn = Some(self.turns.take(target).await);
            }
        }
        turns
    }

    /// Logs that an operation is about to be executed; `targets` are those of its [`Kind`].
    fn begin(&self, call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES]) {
        self.write(&Record::Started { call, at, kind, targets });
    }

    /// Logs that an operation is over; `changed` if it succeeded.
    fn end(&self, call: CallId, at: Timestamp, kind: Kind, targets: [u64; CHANGES], changed: bool) {
        self.write(&Record::Ended { call, at, kind, targets, changed });
        if changed {
            self.acknowledge(call, kind, targets);
        }
    }

    /// Notes that `call` has made this change, so that no other call can claim it.
    fn acknowledge(&self, call: CallId, kind: Kind, targets: [u64; CHANGES]) {
        if let Some(mut before) = self.before() {
            before.acknowledge(call, kind, targets);
        }
    }

    /// Logs the ends of operations whose changes were deferred and are durable now; from the operation `failed` on they are not.
    pub(crate) fn end_deferred(&self, call: &LoggedCall, failed: Option<u32>) {
        for end in std::mem::take(&mut *call.ends.lock()) {
            let DeferredEnd { operation, call, at, kind, targets, claimed } = end;
            let changed = failed.is_none_or(|failed| operation < failed);
            self.write(&Record::Ended { call, at, kind, targets, changed });
            if let Some((call, at)) = claimed {
                self.write(&Record::Ended { call, at, kind, targets, changed: false });
            }
        }
    }
}
