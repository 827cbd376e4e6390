//! Replies to non-idempotent calls, kept for retransmissions (Juszczak 1989; RFC 1813 §4.10).
//!
//! Criteria, before the mechanism:
//! - A call that is not idempotent is executed once, however often the client sends it, as long as its reply is kept.
//! - A call that is still being executed is not executed again: the copy is dropped, the first one's answer serves both.
//! - A client's transaction numbers start anew when it reboots, so the number alone does not tell a retransmission: what
//!   was asked must be the same too. A client may come back from another port, so the port is not compared.
//! - Who asks counts too: another user of the same client must not be able to put an answer where somebody's call will look
//!   for it.
//! - A reply is given again for ten minutes at most: a client that always begins with the same numbers must not be told
//!   that something was done which it asked for in another life. Retransmissions come within a few minutes.
//! - Memory is bounded; the oldest replies go first. Constant time a call; cores do not wait for each other.
//! - Kept are encoded bytes, not structures.
//! - WRITE is among the calls kept: a copy executed late would undo a newer write of the same range.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use bytes::Bytes;
use core::net::IpAddr;
use parking_lot::Mutex;
use protocol::nfs3;
use rpc::message::CallHeader;
use siphasher::sip::SipHasher24;

/// Shards, each with a lock of its own.
const SHARDS: usize = 16;

/// Bytes that an entry costs beside its reply, about: key, map slot, queue slot, allocation.
const ENTRY_OVERHEAD: usize = 160;

/// Bytes of the arguments that are compared. Whole for every call but WRITE.
const DIGESTED_BYTES: usize = 1024;

/// Those of a WRITE: the handle, offset and length lie within, and the beginning of the data, as much as Linux's server
/// compares. A kilobyte took half a microsecond, a tenth of a small WRITE.
const DIGESTED_BYTES_OF_WRITE: usize = 256;

/// Program, version and procedure of the one call whose arguments are long.
const WRITE: [u32; 3] = [nfs3::PROGRAM, nfs3::VERSION, nfs3::Proc::WRITE.0];

/// How long a reply is given again.
const REPLAY_FOR: Duration = Duration::from_secs(600);

/// What tells a call from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallKey {
    client: IpAddr,
    xid: u32,
    digest: u64,
}

impl CallKey {
    /// `arguments` are the call's XDR.
    pub(crate) fn new(secret: &[u8; 16], client: IpAddr, call: &CallHeader, arguments: &[u8]) -> Self {
        let mut hasher = SipHasher24::new_with_key(secret);
        match client {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        [call.xid, call.program, call.version, call.procedure, call.credential.flavor.0]
            .iter()
            .for_each(|number| hasher.write_u32(*number));
        hasher.write(&call.credential.body);
        hasher.write_usize(arguments.len());
        let is_write = [call.program, call.version, call.procedure] == WRITE;
        let most = if is_write { DIGESTED_BYTES_OF_WRITE } else { DIGESTED_BYTES };
        hasher.write(&arguments[..arguments.len().min(most)]);
        Self { client, xid: call.xid, digest: hasher.finish() }
    }

    fn shard(&self) -> usize {
        self.digest as usize % SHARDS
    }
}

/// The digest is a keyed hash already; hashing it again would be waste.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only digests are hashed");
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value.rotate_right(8);
    }
}

#[derive(Debug)]
struct Entry {
    client: IpAddr,
    xid: u32,
    /// `None` while the call is being executed.
    reply: Option<Bytes>,
    /// When the call came, monotonic.
    began: Duration,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<u64, Entry, BuildHasherDefault<Identity>>,
    /// Digests of finished entries, oldest first.
    finished: VecDeque<u64>,
    bytes: usize,
}

/// See the module's text.
pub(crate) struct ReplyCache {
    shards: [Mutex<Shard>; SHARDS],
    bytes_per_shard: usize,
}

/// What to do with a call.
pub(crate) enum Begin<'c> {
    /// Execute it, then [`Execution::finish`].
    Execute(Execution<'c>),
    /// It is being executed: drop the copy.
    InProgress,
    /// It was executed: this was the reply.
    Replay(Bytes),
}

/// A call being executed. Dropped without [`Self::finish`] it is forgotten, so that a retransmission executes it.
pub(crate) struct Execution<'c> {
    cache: &'c ReplyCache,
    key: CallKey,
    is_finished: bool,
}

impl ReplyCache {
    /// Keeps at most about `bytes` of replies.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), bytes_per_shard: bytes / SHARDS }
    }

    /// Registers a call that is about to be executed, or finds what became of it.
    pub(crate) fn begin(&self, key: CallKey, now: Duration) -> Begin<'_> {
        let mut shard = self.shards[key.shard()].lock();
        let shard = &mut *shard;
        match shard.entries.get_mut(&key.digest) {
            Some(entry) if entry.client == key.client && entry.xid == key.xid => match &entry.reply {
                None => Begin::InProgress,
                Some(reply) if now.saturating_sub(entry.began) < REPLAY_FOR => Begin::Replay(reply.clone()),
                Some(reply) => {
                    // Its place in the queue stays; what it cost is given back.
                    shard.bytes -= reply.len() + ENTRY_OVERHEAD;
                    (entry.reply, entry.began) = (None, now);
                    Begin::Execute(Execution { cache: self, key, is_finished: false })
                }
            },
            // Two different calls with one digest: execute, and leave the first one's entry alone.
            Some(_) => Begin::Execute(Execution { cache: self, key, is_finished: true }),
            None => {
                shard
                    .entries
                    .insert(key.digest, Entry { client: key.client, xid: key.xid, reply: None, began: now });
                Begin::Execute(Execution { cache: self, key, is_finished: false })
            }
        }
    }

    /// Replies kept, for metrics and tests.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }
}

impl Execution<'_> {
    /// Keeps the reply, a whole RPC message.
    pub(crate) fn finish(mut self, reply: &[u8]) {
        if self.is_finished {
            return;
        }
        self.is_finished = true;
        let reply = Bytes::copy_from_slice(reply);
        let mut shard = self.cache.shards[self.key.shard()].lock();
        let shard = &mut *shard;
        shard.bytes += reply.len() + ENTRY_OVERHEAD;
        if let Some(entry) = shard.entries.get_mut(&self.key.digest) {
            entry.reply = Some(reply);
        }
        shard.finished.push_back(self.key.digest);
        while shard.bytes > self.cache.bytes_per_shard {
            let Some(oldest) = shard.finished.pop_front() else { break };
            // A call that is executed anew has an older place in the queue too, which is void.
            let Some(length) =
                shard.entries.get(&oldest).and_then(|entry| entry.reply.as_ref().map(Bytes::len))
            else {
                continue;
            };
            shard.entries.remove(&oldest);
            shard.bytes -= length + ENTRY_OVERHEAD;
        }
    }
}

impl Drop for Execution<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.cache.shards[self.key.shard()].lock().entries.remove(&self.key.digest);
        }
    }
}

impl std::fmt::Debug for ReplyCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyCache").field("bytes_per_shard", &self.bytes_per_shard).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rpc::auth::{AuthFlavor, OpaqueAuth};
    use xdr::Opaque;

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn key(client: u8, xid: u32, arguments: &[u8]) -> CallKey {
        let header = CallHeader::new(xid, 100_003, 3, 12);
        CallKey::new(&[1; 16], IpAddr::from([10, 0, 0, client]), &header, arguments)
    }

    #[test]
    fn a_retransmission_gets_the_first_reply_and_another_call_does_not() {
        let cache = ReplyCache::new(1 << 20);
        let Begin::Execute(execution) = cache.begin(key(1, 7, b"remove a"), NOW) else { panic!("new call") };
        assert!(matches!(cache.begin(key(1, 7, b"remove a"), NOW), Begin::InProgress));
        execution.finish(b"removed");
        assert!(
            matches!(cache.begin(key(1, 7, b"remove a"), NOW), Begin::Replay(reply) if &reply[..] == b"removed")
        );
        for other in [key(1, 7, b"remove b"), key(2, 7, b"remove a"), key(1, 8, b"remove a")] {
            assert!(matches!(cache.begin(other, NOW), Begin::Execute(_)));
        }
    }

    #[test]
    fn an_abandoned_execution_is_forgotten() {
        let cache = ReplyCache::new(1 << 20);
        drop(cache.begin(key(1, 1, b"x"), NOW));
        assert!(matches!(cache.begin(key(1, 1, b"x"), NOW), Begin::Execute(_)));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let cache = ReplyCache::new(SHARDS * 10 * (100 + ENTRY_OVERHEAD));
        for xid in 0..10_000 {
            let Begin::Execute(execution) = cache.begin(key(1, xid, b"x"), NOW) else { panic!("new call") };
            execution.finish(&[0; 100]);
        }
        assert!(cache.bytes() <= SHARDS * 10 * (100 + ENTRY_OVERHEAD));
        assert!(cache.bytes() >= SHARDS * 9 * (100 + ENTRY_OVERHEAD));
        assert!(matches!(cache.begin(key(1, 9_999, b"x"), NOW), Begin::Replay(_)));
        assert!(matches!(cache.begin(key(1, 0, b"x"), NOW), Begin::Execute(_)));
    }

    #[test]
    fn another_user_of_the_client_gets_no_answer_of_somebody_else() {
        let cache = ReplyCache::new(1 << 20);
        let client = IpAddr::from([10, 0, 0, 1]);
        let call = |uid: u8| {
            let credential =
                OpaqueAuth { flavor: AuthFlavor::SYS, body: Opaque::new(vec![uid; 20]).unwrap() };
            CallKey::new(
                &[1; 16],
                client,
                &CallHeader { credential, ..CallHeader::new(7, 100_003, 3, 12) },
                b"remove a",
            )
        };
        let Begin::Execute(execution) = cache.begin(call(1), NOW) else { panic!("new call") };
        execution.finish(b"permission denied");
        assert!(matches!(cache.begin(call(2), NOW), Begin::Execute(_)));
    }

    #[test]
    fn a_reply_of_another_life_is_not_given_again() {
        let cache = ReplyCache::new(1 << 20);
        for round in 0..3u32 {
            let Begin::Execute(execution) = cache.begin(key(1, 7, b"x"), NOW + REPLAY_FOR * round) else {
                panic!("{round}")
            };
            execution.finish(b"done");
            assert_eq!(cache.bytes(), 4 + ENTRY_OVERHEAD);
        }
    }
}
