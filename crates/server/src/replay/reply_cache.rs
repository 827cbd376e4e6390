//! Cache of replies to non-idempotent calls of versions 2, 3 and 4.0, for retransmissions (Juszczak 1989; RFC 1813 §4.10; RFC 7530
//! §9.1.9 and §16.33.5 rely on it).
//!
//! Criteria, before the mechanism:
//! - A call that is not idempotent is executed once, however often the client sends it, as long as its reply is in the cache.
//! - A call that is being executed is not executed again. A copy is dropped, since the first one's reply serves both. In version 4.0 it
//!   waits for that reply: RFC 7530 §3.1.1, "the NFSv4 server MUST NOT silently drop the request". If there is no room to wait, the
//!   connection closes.
//! - A client's transaction numbers restart when it reboots, so the number alone does not identify a retransmission: the arguments
//!   must be the same too. The port is not compared, because a client may return from another one.
//! - The caller is compared too: another user of the same client must not be able to store a reply for another user's call.
//! - A reply is used for ten minutes at most. A client that always begins with the same numbers must not get the reply of an earlier boot.
//!   Retransmissions come within a few minutes.
//! - Memory is bounded; the oldest replies go first. Constant time per call; cores do not wait for each other. A call touches little
//!   memory, because all of it is cold after megabytes of other replies.
//! - The cache stores encoded bytes, not structures.
//! - WRITE is cached: a copy that is executed late would undo a newer write of the same range. The attributes in the replies of
//!   versions 2 and 3 to WRITE are not stored, but read again (see [`short`]).

mod ring;
pub(crate) mod short;
mod tags;

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use core::net::IpAddr;
use parking_lot::Mutex;
use protocol::{nfs2, nfs3};
use rpc::auth::{AuthFlavor, OpaqueAuth};
use rpc::message::CallHeader;
use siphasher::sip::SipHasher13;

use self::ring::RingStorage;

use crate::replay::crash_replay::CallId;

/// Shards, each with a lock of its own.
const SHARDS: usize = 16;

/// Bytes of the arguments that are compared: all of them, except for WRITE.
const DIGESTED_BYTES: usize = 1024;

/// Bytes of a WRITE's arguments that are compared: handle, offsets, length, and the same part of the data as in Linux's server. A
/// kilobyte took half a microsecond, a tenth of a small WRITE.
const DIGESTED_BYTES_OF_WRITE: usize = 256;

/// Program, version and procedure of the calls whose arguments are long.
const WRITES: [[u32; 3]; 2] = [
    [nfs2::PROGRAM, nfs2::VERSION, nfs2::Proc::WRITE.0],
    [nfs3::PROGRAM, nfs3::VERSION, nfs3::Proc::WRITE.0],
];

/// Copies that may wait in a shard.
const WAITING_MAX: usize = 64;

/// Lifetime of a reply.
const REPLAY_FOR: Duration = Duration::from_secs(600);

/// Identifies a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallKey {
    xid: u32,
    /// Digest of all compared values, with the client's address and the transaction number.
    digest: u64,
}

impl CallKey {
    /// `arguments` are the call's XDR.
    // One round for each block, as in Rust's own maps, is enough and takes half the time of two: clients never see a digest, and
    // could at most learn whether two calls of one address have the same.
    pub(crate) fn new(secret: &[u8; 16], client: IpAddr, call: &CallHeader, arguments: &[u8]) -> Self {
        let mut hasher = SipHasher13::new_with_key(secret);
        let client = match client {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut fixed = [0; 40];
        fixed[..16].copy_from_slice(&client.octets());
        let lengths = [call.credential.body.len() as u32, arguments.len() as u32];
        let numbers = [call.xid, call.program, call.version, call.procedure, call.credential.flavor.0];
        for (place, number) in fixed[16..].chunks_exact_mut(4).zip(numbers.iter().chain(&lengths)) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        hasher.write(&fixed);
        hasher.write(without_stamp(&call.credential));
        let is_write = WRITES.contains(&[call.program, call.version, call.procedure]);
        let most = if is_write { DIGESTED_BYTES_OF_WRITE } else { DIGESTED_BYTES };
        hasher.write(&arguments[..arguments.len().min(most)]);
        Self { xid: call.xid, digest: hasher.finish() }
    }

    /// Returns the call's identity for the log that outlives the process.
    pub(crate) fn id(&self) -> CallId {
        CallId { digest: self.digest, number: u64::from(self.xid) }
    }

    fn shard(&self) -> usize {
        self.digest as usize % SHARDS
    }
}

/// Returns the part of a credential that a retransmission repeats. RFC 5531 §14: "The stamp is an arbitrary ID that the caller machine
/// may generate": Linux's clients before 5.1 put the time of each transmission there.
fn without_stamp(credential: &OpaqueAuth) -> &[u8] {
    match credential.flavor {
        AuthFlavor::SYS => credential.body.get(size_of::<u32>()..).unwrap_or_default(),
        _ => &credential.body,
    }
}

/// A hasher for digests, which are keyed hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only digests are hashed here");
    }
    fn write_u64(&mut self, value: u64) {
        // The lowest bits are the same in a whole shard; the map must not use them to select a bucket.
        self.0 = value.rotate_right(16);
    }
}

/// A cached reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply<'r> {
    xid: u32,
    /// When the call arrived, in seconds.
    began_s: u32,
    bytes: &'r [u8],
}

/// Storage of replies.
pub(crate) trait Memory {
    /// Returns a storage of at most `bytes`.
    fn new(bytes: usize) -> Self;
    /// Returns the reply stored under `digest`.
    fn get(&self, digest: u64) -> Option<Reply<'_>>;
    /// Stores a reply, in place of the oldest ones and of one with the same digest.
    fn put(&mut self, digest: u64, reply: Reply<'_>);
}

#[repr(align(64))]
struct Shard<M> {
    /// Transaction numbers of calls in progress, by digest.
    running: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    /// Copies that wait for calls in progress; nearly always none.
    waiting: Vec<Waiting>,
    /// The number of the next copy that waits.
    next_wait: u64,
    kept: M,
}

/// A copy that waits for its call.
struct Waiting {
    digest: u64,
    /// Distinguishes it from other copies of its call, even if its task changes.
    number: u64,
    waker: Waker,
}

impl<M> Shard<M> {
    /// Ends a call; returns the wakers of its copies.
    fn ended(&mut self, digest: u64) -> Vec<Waker> {
        self.running.remove(&digest);
        self.waiting.extract_if(.., |it| it.digest == digest).map(|it| it.waker).collect()
    }
}

/// The reply cache; see the module.
pub(crate) struct ReplyCache<M = RingStorage> {
    shards: [Mutex<Shard<M>>; SHARDS],
}

/// The treatment of a call.
pub(crate) enum Begin<'c, M: Memory = RingStorage> {
    /// Execute the call, then [`Execution::finish`].
    Execute(Execution<'c, M>),
    /// The call is in progress: drop this copy.
    InProgress,
    /// The call was executed: send this reply.
    Replay(Bytes),
}

/// A call in progress. If it is dropped without [`Self::finish`], it is forgotten, and a retransmission is executed.
pub(crate) struct Execution<'c, M: Memory = RingStorage> {
    cache: &'c ReplyCache<M>,
    key: CallKey,
    began_s: u32,
    is_finished: bool,
}

impl<M: Memory> ReplyCache<M> {
    /// Keeps replies in at most `bytes` of memory.
    pub(crate) fn new(bytes: usize) -> Self {
        let shard = || Shard {
            running: HashMap::default(),
            waiting: Vec::new(),
            next_wait: 0,
            kept: M::new(bytes / SHARDS),
        };
        Self { shards: std::array::from_fn(|_| Mutex::new(shard())) }
    }

    /// Registers a call, or finds its reply.
    pub(crate) fn begin(&self, key: CallKey, now: Duration) -> Begin<'_, M> {
        let mut shard = self.shards[key.shard()].lock();
        let Shard { running, kept, .. } = &mut *shard;
        // Whole seconds: centuries of them.
        let began_s = now.as_secs() as u32;
        let execute = |is_finished| Begin::Execute(Execution { cache: self, key, began_s, is_finished });
        if let Some(xid) = running.get(&key.digest) {
            // Two different calls with one digest: execute, and keep the first one's entry.
            return if *xid == key.xid { Begin::InProgress } else { execute(true) };
        }
        if let Some(reply) = kept.get(key.digest)
            && u64::from(began_s.saturating_sub(reply.began_s)) < REPLAY_FOR.as_secs()
        {
            let is_same = reply.xid == key.xid;
            return if is_same { Begin::Replay(Bytes::copy_from_slice(reply.bytes)) } else { execute(true) };
        }
        running.insert(key.digest, key.xid);
        execute(false)
    }

    /// Waits until a call has ended. Returns false if too many copies wait already.
    pub(crate) async fn ended(&self, key: CallKey) -> bool {
        let mut wait = Wait { cache: self, key, number: None };
        poll_fn(|context| wait.poll(context)).await
    }
}

/// The wait of one copy. It has one entry among the waiting copies, which is removed when it is dropped.
struct Wait<'c, M: Memory> {
    cache: &'c ReplyCache<M>,
    key: CallKey,
    /// The number of its entry, once it waits.
    number: Option<u64>,
}

impl<M: Memory> Wait<'_, M> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<bool> {
        let digest = self.key.digest;
        let mut shard = self.cache.shards[self.key.shard()].lock();
        if !shard.running.contains_key(&digest) {
            return Poll::Ready(true);
        }
        let own = self.number;
        if let Some(place) = shard.waiting.iter_mut().find(|it| Some(it.number) == own) {
            place.waker.clone_from(context.waker());
            return Poll::Pending;
        }
        if shard.waiting.len() >= WAITING_MAX {
            return Poll::Ready(false);
        }
        let number = shard.next_wait;
        shard.next_wait += 1;
        shard.waiting.push(Waiting { digest, number, waker: context.waker().clone() });
        self.number = Some(number);
        Poll::Pending
    }
}

impl<M: Memory> Drop for Wait<'_, M> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut shard = self.cache.shards[self.key.shard()].lock();
            let place = shard.waiting.iter().position(|it| it.number == number);
            let gone = place.map(|place| shard.waiting.swap_remove(place));
            drop(shard);
            drop(gone);
        }
    }
}

impl<M: Memory> Execution<'_, M> {
    /// Stores the reply's bytes.
    pub(crate) fn finish(mut self, reply: &[u8]) {
        if !self.is_finished {
            self.is_finished = true;
            let mut shard = self.cache.shards[self.key.shard()].lock();
            let reply = Reply { xid: self.key.xid, began_s: self.began_s, bytes: reply };
            shard.kept.put(self.key.digest, reply);
            let waiting = shard.ended(self.key.digest);
            drop(shard);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

impl<M: Memory> Drop for Execution<'_, M> {
    fn drop(&mut self) {
        if !self.is_finished {
            let waiting = self.cache.shards[self.key.shard()].lock().ended(self.key.digest);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

impl<M> std::fmt::Debug for ReplyCache<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use xdr::Opaque;

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    /// Replies of 100 bytes for which a shard has memory.
    const KEPT: usize = 100;

    /// Memory of a reply of 100 bytes besides its bytes: 28 in the ring, and a third of that in the index.
    const ENTRY_OVERHEAD: usize = 70;

    /// Returns the bytes of all replies with their overhead.
    fn bytes(cache: &ReplyCache) -> usize {
        let of_shard = |shard: &Mutex<Shard<RingStorage>>| -> usize {
            shard.lock().kept.lengths().map(|length| length + ENTRY_OVERHEAD).sum()
        };
        cache.shards.iter().map(of_shard).sum()
    }

    fn key(client: u8, xid: u32, arguments: &[u8]) -> CallKey {
        let header = CallHeader::new(xid, 100_003, 3, 12);
        CallKey::new(&[1; 16], IpAddr::from([10, 0, 0, client]), &header, arguments)
    }

    #[test]
    fn a_retransmission_gets_the_first_reply_and_another_call_does_not() {
        let cache = ReplyCache::<RingStorage>::new(1 << 20);
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
        let cache = ReplyCache::<RingStorage>::new(1 << 20);
        drop(cache.begin(key(1, 1, b"x"), NOW));
        assert!(matches!(cache.begin(key(1, 1, b"x"), NOW), Begin::Execute(_)));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_reply_goes_first() {
        let cache = ReplyCache::<RingStorage>::new(SHARDS * KEPT * (100 + ENTRY_OVERHEAD));
        for xid in 0..10_000 {
            let Begin::Execute(execution) = cache.begin(key(1, xid, b"x"), NOW) else { panic!("new call") };
            execution.finish(&[0; 100]);
        }
        assert!(bytes(&cache) <= SHARDS * KEPT * (100 + ENTRY_OVERHEAD));
        assert!(bytes(&cache) >= SHARDS * (KEPT * 9 / 10) * (100 + ENTRY_OVERHEAD));
        assert!(matches!(cache.begin(key(1, 9_999, b"x"), NOW), Begin::Replay(_)));
        assert!(matches!(cache.begin(key(1, 0, b"x"), NOW), Begin::Execute(_)));
    }

    #[test]
    fn another_user_gets_no_cached_reply() {
        let cache = ReplyCache::<RingStorage>::new(1 << 20);
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
    fn the_beginning_of_written_data_and_all_other_arguments_are_compared() {
        for (version, procedure, compared) in [
            (nfs2::VERSION, nfs2::Proc::WRITE.0, DIGESTED_BYTES_OF_WRITE),
            (nfs3::VERSION, nfs3::Proc::WRITE.0, DIGESTED_BYTES_OF_WRITE),
            (nfs2::VERSION, nfs2::Proc::SYMLINK.0, DIGESTED_BYTES),
            (nfs3::VERSION, nfs3::Proc::SYMLINK.0, DIGESTED_BYTES),
        ] {
            let header = CallHeader::new(7, nfs3::PROGRAM, version, procedure);
            let with = |changed: Option<usize>| {
                let mut arguments = [5; 2 * DIGESTED_BYTES];
                changed.into_iter().for_each(|at| arguments[at] = 6);
                CallKey::new(&[1; 16], IpAddr::from([10, 0, 0, 1]), &header, &arguments)
            };
            assert_ne!(with(Some(compared - 1)), with(None), "{version} {procedure}");
            assert_eq!(with(Some(compared)), with(None), "{version} {procedure}");
        }
    }

    #[test]
    fn a_call_with_another_stamp_is_the_same() {
        let call = |stamp: u8| {
            let mut body = vec![7; 20];
            body[..4].fill(stamp);
            let credential = OpaqueAuth { flavor: AuthFlavor::SYS, body: Opaque::new(body).unwrap() };
            let header = CallHeader { credential, ..CallHeader::new(7, 100_003, 3, 12) };
            CallKey::new(&[1; 16], IpAddr::from([10, 0, 0, 1]), &header, b"remove a")
        };
        assert_eq!(call(1), call(2));
    }

    #[test]
    fn a_reply_is_not_used_after_its_lifetime() {
        let cache = ReplyCache::<RingStorage>::new(1 << 20);
        for round in 0..3u32 {
            let Begin::Execute(execution) = cache.begin(key(1, 7, b"x"), NOW + REPLAY_FOR * round) else {
                panic!("{round}")
            };
            execution.finish(b"done");
            assert_eq!(bytes(&cache), 4 + ENTRY_OVERHEAD);
        }
    }

    #[test]
    fn a_bounded_number_of_copies_wait_for_the_reply() {
        use futures_util::FutureExt;
        let cache = ReplyCache::<RingStorage>::new(1 << 20);
        let Begin::Execute(execution) = cache.begin(key(1, 7, b"x"), NOW) else { panic!("new call") };
        let mut tasks: Vec<_> = (0..=WAITING_MAX).map(|_| Box::pin(cache.ended(key(1, 7, b"x")))).collect();
        let wakers: Vec<_> = tasks.iter().map(|_| Waker::from(std::sync::Arc::new(Sleeper))).collect();
        let mut poll = |index: usize| tasks[index].poll_unpin(&mut Context::from_waker(&wakers[index]));
        for index in 0..WAITING_MAX {
            assert_eq!(poll(index), Poll::Pending);
        }
        assert_eq!(poll(WAITING_MAX), Poll::Ready(false));
        execution.finish(b"done");
        assert_eq!(poll(0), Poll::Ready(true));
        assert!(matches!(cache.begin(key(1, 7, b"x"), NOW), Begin::Replay(_)));
    }

    #[test]
    fn a_copy_has_one_entry_and_removes_it() {
        use futures_util::FutureExt;
        let cache = ReplyCache::<RingStorage>::new(1 << 20);
        let Begin::Execute(execution) = cache.begin(key(1, 7, b"x"), NOW) else { panic!("new call") };
        let mut copy = Box::pin(cache.ended(key(1, 7, b"x")));
        // Polled by another task each time.
        let wakers: Vec<_> = (0..=WAITING_MAX).map(|_| Waker::from(std::sync::Arc::new(Sleeper))).collect();
        for waker in &wakers {
            assert_eq!(copy.poll_unpin(&mut Context::from_waker(waker)), Poll::Pending);
        }
        let waiting = || cache.shards.iter().map(|shard| shard.lock().waiting.len()).sum::<usize>();
        assert_eq!(waiting(), 1);
        drop(copy);
        assert_eq!(waiting(), 0);
        execution.finish(b"done");
    }

    struct Sleeper;

    impl std::task::Wake for Sleeper {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
