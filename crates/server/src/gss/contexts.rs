//! The contexts that clients have made (RFC 2203 §5.2, §5.4).
//!
//! Criteria, before the mechanism:
//! - Clients need not say when they go (§5.4: "The server must be prepared to deal with situations where clients never inform the
//!   server"), so contexts have an end: that of the ticket, an idle life, and a bound on all of them, beyond which the least used
//!   goes. Whose context is gone is told so and makes another.
//! - Anybody can begin a context, but only a principal can finish one. Those half made have a table of their own, so that a flood
//!   of them costs no context that works.
//! - A handle tells nothing and cannot be guessed, within this server's life and beyond it.

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

/// Contexts at most. A context of MIT's Kerberos takes some kilobytes.
const CONTEXTS_MAX: usize = 16_384;

/// Contexts half made at most.
const HALF_MADE_MAX: usize = 256;

/// How long a context stays that nobody uses. To make another costs a client two round trips.
const IDLE_LIFE: Duration = Duration::from_secs(3600);

/// How long a client has for its next token.
const HALF_MADE_LIFE: Duration = Duration::from_secs(60);

const SHARDS: usize = 16;

/// What clients call a context.
pub(super) type Handle = [u8; 16];

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) authenticated: Arc<Authenticated>,
    /// Monotonic; none for ever.
    expires: Option<Duration>,
    /// Monotonic nanoseconds.
    used: AtomicU64,
    inner: Mutex<Inner>,
}

/// What one call at a time uses.
#[derive(Debug)]
struct Inner {
    security: Box<dyn SecurityContext>,
    window: SequenceWindow,
}

/// What a call's checksum and number say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verified {
    /// It is the principal's, and new.
    New,
    /// It is the principal's, and was seen or is too old.
    Seen,
    /// It is not the principal's.
    Forged,
}

impl Context {
    /// Checks the header's checksum, then the number: §5.3.3.1. Only what is new shows that somebody needs the context.
    pub(super) fn verify(&self, header: &[u8], checksum: &[u8], sequence: u32, now: Duration) -> Verified {
        let mut inner = self.inner.lock();
        match inner.security.verify_mic(header, checksum) {
            Err(BadMessage) => Verified::Forged,
            // Beyond the greatest number, nothing moves the window: the caller is told so.
            Ok(()) if sequence > rpc::gss::MAXSEQ || inner.window.admit(sequence) => {
                self.used.store(now.as_nanos() as u64, Relaxed);
                Verified::New
            }
            Ok(()) => Verified::Seen,
        }
    }

    /// Runs `work` with what protects messages. It is not given to two calls at once, on whatever cores.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut dyn SecurityContext) -> R) -> R {
        work(&mut *self.inner.lock().security)
    }

    pub(super) fn has_expired(&self, now: Duration) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Whether nobody needs it any more.
    fn is_over(&self, now: Duration) -> bool {
        let used = Duration::from_nanos(self.used.load(Relaxed));
        self.has_expired(now) || used + IDLE_LIFE <= now
    }
}

type Shard = HashMap<Handle, Arc<Context>>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Contexts {
    shards: [Mutex<Shard>; SHARDS],
    half_made: Mutex<HashMap<Handle, HalfMade>>,
    secret: [u8; 16],
    /// The key of principals' numbers.
    number_key: [u8; 16],
    /// What was numbered so far.
    count: AtomicU64,
    /// The shard that is looked through next.
    swept: AtomicU64,
}

#[derive(Debug)]
struct HalfMade {
    acceptor: Box<dyn Acceptor>,
    /// Monotonic.
    since: Duration,
    /// Greater than those of all that were kept before.
    number: u64,
}

impl Contexts {
    /// `secret` is different at every start, or handles of an earlier one would mean something. `number_key` is the same at all of
    /// them: a principal's number is in what is kept of its requests over a restart.
    pub(crate) fn new(secret: [u8; 16], number_key: [u8; 16]) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            half_made: Mutex::default(),
            secret,
            number_key,
            count: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        }
    }

    /// A handle that was never used.
    pub(super) fn new_handle(&self) -> Handle {
        let mut hasher = SipHasher128::new_with_key(&self.secret);
        hasher.write(b"enfys: handles of contexts");
        hasher.write_u64(self.count.fetch_add(1, Relaxed));
        hasher.finish128().as_bytes()
    }

    /// Keeps a context whose client must send another token; the oldest one goes where there is no room.
    pub(super) fn keep_half_made(&self, handle: Handle, acceptor: Box<dyn Acceptor>, now: Duration) {
        let number = self.count.fetch_add(1, Relaxed);
        let mut gone = None;
        let mut half_made = self.half_made.lock();
        if half_made.len() >= HALF_MADE_MAX {
            let oldest = half_made.iter().min_by_key(|(_, it)| it.number).map(|(handle, _)| *handle);
            gone = oldest.and_then(|oldest| half_made.remove(&oldest));
        }
        half_made.insert(handle, HalfMade { acceptor, since: now, number });
        // Not under the lock: the mechanism frees what it has.
        drop(half_made);
        drop(gone);
    }

    /// Takes a context whose client sends another token: of two at once the second finds nothing.
    pub(super) fn take_half_made(&self, handle: &[u8], now: Duration) -> Option<Box<dyn Acceptor>> {
        let found = self.half_made.lock().remove(handle)?;
        (found.since + HALF_MADE_LIFE > now).then_some(found.acceptor)
    }

    /// Keeps a context that is made.
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
        // Not under the lock: the mechanism frees what it has.
        drop(gone);
        context
    }

    /// The context with this handle.
    pub(super) fn find(&self, handle: &[u8]) -> Option<Arc<Context>> {
        let handle: Handle = handle.try_into().ok()?;
        self.shard(&handle).lock().get(&handle).map(Arc::clone)
    }

    /// Whether there is a context with this handle, which has not expired.
    pub(crate) fn has(&self, handle: &[u8], now: Duration) -> bool {
        self.find(handle).is_some_and(|context| !context.has_expired(now))
    }

    /// Forgets a context that its client has ended.
    pub(super) fn remove(&self, handle: &[u8]) {
        if let Ok(handle) = Handle::try_from(handle) {
            let gone = self.shard(&handle).lock().remove(&handle);
            drop(gone);
        }
    }

    /// Forgets some of what nobody needs any more. To be called about once a second.
    pub(crate) fn maintain(&self, now: Duration) {
        let next = self.swept.fetch_add(1, Relaxed) as usize % SHARDS;
        let gone: Vec<_> = self.shards[next].lock().extract_if(|_, it| it.is_over(now)).collect();
        drop(gone);
        let is_over = |it: &HalfMade| it.since + HALF_MADE_LIFE <= now;
        let gone: Vec<_> = self.half_made.lock().extract_if(|_, it| is_over(it)).collect();
        drop(gone);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    #[cfg(test)]
    pub(super) fn half_made(&self) -> usize {
        self.half_made.lock().len()
    }

    fn shard(&self, handle: &Handle) -> &Mutex<Shard> {
        &self.shards[usize::from(handle[0]) % SHARDS]
    }

    /// A number for a principal: no user's, and not the one that stands for nobody.
    pub(super) fn number(&self, exported: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.number_key);
        hasher.write(b"enfys: numbers of principals");
        hasher.write(exported);
        (hasher.finish() >> 2) | (1 << 63)
    }
}

/// Takes out of a full shard what is over, or what was used least lately.
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
