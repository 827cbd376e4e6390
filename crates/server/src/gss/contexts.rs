//! The security contexts of clients (RFC 2203 §5.2, §5.4).
//!
//! Criteria, before the mechanism:
//! - Clients need not end their contexts (§5.4: "The server must be prepared to deal with situations where clients never inform the
//!   server"). So contexts end with their ticket, after an idle time, and by a bound on their number, which drops the least used one. A
//!   client whose context was dropped gets an error and makes another.
//! - Any client can begin a context, but only a principal can finish one. Unfinished contexts have a table of their own, so that a flood of
//!   them drops no finished context.
//! - A handle reveals nothing and cannot be guessed, in this process or a later one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};
use std::hash::Hasher;

use super::window::SequenceWindow;
use crate::gss_mechanism::{Acceptor, BadMessage, Established, SecurityContext};
use crate::identity::Authenticated;

/// Maximum number of contexts. A context of MIT's Kerberos takes some kilobytes.
const CONTEXTS_MAX: usize = 16_384;

/// Maximum number of unfinished contexts.
const UNFINISHED_MAX: usize = 256;

/// Lifetime of an unused context. A new one costs a client two round trips.
const IDLE_LIFE: Duration = Duration::from_secs(3600);

/// The limit of the wait for the next token.
const UNFINISHED_LIFE: Duration = Duration::from_secs(60);

const SHARDS: usize = 16;

/// The handle of a context.
pub(super) type Handle = [u8; 16];

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) authenticated: Arc<Authenticated>,
    /// Monotonic; none if it never expires.
    expires: Option<Duration>,
    /// Monotonic nanoseconds.
    used: AtomicU64,
    inner: Mutex<Inner>,
}

/// The parts that one call at a time uses.
#[derive(Debug)]
struct Inner {
    security: Box<dyn SecurityContext>,
    window: SequenceWindow,
}

/// The outcome of checking a call's checksum and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verified {
    /// A new call of the principal.
    New,
    /// A call of the principal whose number was seen or is too old.
    Seen,
    /// A call of another principal.
    Forged,
}

impl Context {
    /// Checks the header's checksum, then the number: §5.3.3.1. Only a new call counts as a use of the context.
    pub(super) fn verify(&self, header: &[u8], checksum: &[u8], sequence: u32, now: Duration) -> Verified {
        let mut inner = self.inner.lock();
        match inner.security.verify_mic(header, checksum) {
            Err(BadMessage) => Verified::Forged,
            // Beyond the greatest number nothing moves the window; the caller gets an error.
            Ok(()) if sequence > rpc::gss::MAXSEQ || inner.window.admit(sequence) => {
                self.used.store(now.as_nanos() as u64, Relaxed);
                Verified::New
            }
            Ok(()) => Verified::Seen,
        }
    }

    /// Runs `work` with the security context, which one call uses at a time.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut dyn SecurityContext) -> R) -> R {
        work(&mut *self.inner.lock().security)
    }

    pub(super) fn has_expired(&self, now: Duration) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Returns whether it has expired or is unused.
    fn is_over(&self, now: Duration) -> bool {
        let used = Duration::from_nanos(self.used.load(Relaxed));
        self.has_expired(now) || used + IDLE_LIFE <= now
    }
}

type Shard = HashMap<Handle, Arc<Context>>;

/// The table of contexts; see the module.
#[derive(Debug)]
pub(crate) struct Contexts {
    shards: [Mutex<Shard>; SHARDS],
    unfinished: Mutex<HashMap<Handle, UnfinishedContext>>,
    secret: [u8; 16],
    /// The key of principals' numbers.
    number_key: [u8; 16],
    /// The number of handles so far.
    count: AtomicU64,
    /// The shard that is cleaned next.
    swept: AtomicU64,
}

#[derive(Debug)]
struct UnfinishedContext {
    acceptor: Box<dyn Acceptor>,
    /// Monotonic.
    since: Duration,
    /// Greater than the number of every earlier one.
    number: u64,
}

impl Contexts {
    /// `secret` is different at every start, so that handles of an earlier process are invalid. `number_key` is the same at every start: logs of
    /// requests that survive a restart contain the numbers of principals.
    pub(crate) fn new(secret: [u8; 16], number_key: [u8; 16]) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            unfinished: Mutex::default(),
            secret,
            number_key,
            count: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// Returns a new handle.
    pub(super) fn new_handle(&self) -> Handle {
        let mut hasher = SipHasher128::new_with_key(&self.secret);
        hasher.write(b"enfys: handles of contexts");
        hasher.write_u64(self.count.fetch_add(1, Relaxed));
        hasher.finish128().as_bytes()
    }

    /// Stores an unfinished context until its client sends another token. Drops the oldest one if there is no room.
    pub(super) fn keep_unfinished(&self, handle: Handle, acceptor: Box<dyn Acceptor>, now: Duration) {
        let number = self.count.fetch_add(1, Relaxed);
        let mut gone = None;
        let mut unfinished = self.unfinished.lock();
        if unfinished.len() >= UNFINISHED_MAX {
            let oldest = unfinished.iter().min_by_key(|(_, it)| it.number).map(|(handle, _)| *handle);
            gone = oldest.and_then(|oldest| unfinished.remove(&oldest));
        }
        unfinished.insert(handle, UnfinishedContext { acceptor, since: now, number });
        // Not under the lock: the mechanism frees memory.
        drop(unfinished);
        drop(gone);
    }

    /// Takes an unfinished context for its next token. Of two tokens at once the second finds none.
    pub(super) fn take_unfinished(&self, handle: &[u8], now: Duration) -> Option<Box<dyn Acceptor>> {
        let found = self.unfinished.lock().remove(handle)?;
        (found.since + UNFINISHED_LIFE > now).then_some(found.acceptor)
    }

    /// Stores a finished context.
    pub(super) fn keep(&self, handle: Handle, established: Established, now: Duration) -> Arc<Context> {
        let Established { context, name, exported, credentials, lifetime } = established;
        let number = self.number(&exported);
        let context = Arc::new(Context {
            authenticated: Arc::new(Authenticated { name, exported, number, credentials }),
            expires: lifetime.map(|lifetime| now.saturating_add(lifetime)),
            used: AtomicU64::new(now.as_nanos() as u64),
            inner: Mutex::new(Inner { security: context, window: SequenceWindow::new() }),
        });
        let gone;
        {
            let mut shard = self.shard(&handle).lock();
            gone = make_room(&mut shard, now);
            shard.insert(handle, Arc::clone(&context));
        }
        // Not under the lock: the mechanism frees memory.
        drop(gone);
        context
    }

    /// Returns the context with this handle.
    pub(super) fn find(&self, handle: &[u8]) -> Option<Arc<Context>> {
        let handle: Handle = handle.try_into().ok()?;
        self.shard(&handle).lock().get(&handle).map(Arc::clone)
    }

    /// Returns whether there is an unexpired context with this handle.
    pub(crate) fn has(&self, handle: &[u8], now: Duration) -> bool {
        self.find(handle).is_some_and(|context| !context.has_expired(now))
    }

    /// Removes a context that its client ended.
    pub(super) fn remove(&self, handle: &[u8]) {
        if let Ok(handle) = Handle::try_from(handle) {
            let gone = self.shard(&handle).lock().remove(&handle);
            drop(gone);
        }
    }

    /// Removes some expired and unused contexts. Called about once a second.
    pub(crate) fn maintain(&self, now: Duration) {
        let next = self.swept.fetch_add(1, Relaxed) as usize % SHARDS;
        let gone: Vec<_> = self.shards[next].lock().extract_if(|_, it| it.is_over(now)).collect();
        drop(gone);
        let is_over = |it: &UnfinishedContext| it.since + UNFINISHED_LIFE <= now;
        let gone: Vec<_> = self.unfinished.lock().extract_if(|_, it| is_over(it)).collect();
        drop(gone);
    }

    /// Returns the number of contexts.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    #[cfg(test)]
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.lock().len()
    }

    fn shard(&self, handle: &Handle) -> &Mutex<Shard> {
        &self.shards[usize::from(handle[0]) % SHARDS]
    }

    /// Returns the number of a principal. It is not a uid, and not the number of anonymous callers.
    pub(super) fn number(&self, exported: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.number_key);
        hasher.write(b"enfys: numbers of principals");
        hasher.write(exported);
        (hasher.finish() >> 2) | (1 << 63)
    }
}

/// Removes expired contexts from a full shard, or the least recently used one.
fn make_room(shard: &mut Shard, now: Duration) -> Vec<(Handle, Arc<Context>)> {
    if shard.len() < CONTEXTS_MAX / SHARDS {
        return Vec::new();
    }
    let mut gone: Vec<_> = shard.extract_if(|_, it| it.is_over(now)).collect();
    if gone.is_empty() {
        let least = shard.iter().min_by_key(|(_, it)| it.used.load(Relaxed)).map(|(handle, _)| *handle);
        gone.extend(least.and_then(|handle| shard.remove_entry(&handle)));
    }
    gone
}
