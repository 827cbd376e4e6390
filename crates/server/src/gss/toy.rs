//! A mechanism for tests, without security: a token is a name and the number of tokens that follow, a checksum is a keyed hash, and
//! wrapping inverts each byte and adds a checksum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use vfs::Credentials;

use super::{Accepting, Acceptor, BadMessage, Established, GssStatus, Mechanism, SecurityContext, Step};

/// `GSS_S_DEFECTIVE_TOKEN` (RFC 2203 appendix A).
pub(crate) const DEFECTIVE_TOKEN: u32 = 9 << 16;

/// Creates contexts for all callers. A name `u` with a number is the user with that uid.
#[derive(Debug, Default)]
pub(crate) struct Toy {
    pub(crate) lifetime: Option<Duration>,
    /// Contexts that exist, complete or not.
    pub(crate) alive: Arc<AtomicU64>,
}

impl Toy {
    /// Returns a token for a context of `name`, with this many tokens to follow.
    pub(crate) fn token(name: &str, more: u8) -> Vec<u8> {
        let mut token = vec![more];
        token.extend_from_slice(name.as_bytes());
        token
    }
}

impl Mechanism for Toy {
    fn acceptor(&self) -> Box<dyn Acceptor> {
        Box::new(PartialContext { lifetime: self.lifetime, _alive: LiveContext::new(&self.alive) })
    }
}

/// Counts a context until it is dropped.
#[derive(Debug)]
struct LiveContext(Arc<AtomicU64>);

impl LiveContext {
    fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for LiveContext {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug)]
struct PartialContext {
    lifetime: Option<Duration>,
    _alive: LiveContext,
}

impl Acceptor for PartialContext {
    fn accept(self: Box<Self>, token: Bytes) -> Accepting {
        let step = match token.split_first() {
            None => Step::Failed(GssStatus { major: DEFECTIVE_TOKEN, minor: 7 }),
            Some((0, name)) => self.complete(name),
            Some((_, _)) => Step::Continue { acceptor: self, token: Bytes::from_static(b"more") },
        };
        Box::pin(std::future::ready(step))
    }
}

impl PartialContext {
    fn complete(self, name: &[u8]) -> Step {
        let name = String::from_utf8_lossy(name).into_owned();
        let uid = name.strip_prefix('u').and_then(|uid| uid.parse().ok());
        let credentials =
            uid.map(|uid| Arc::new(Credentials { uid, gid: uid, groups: Arc::from(Vec::new()) }));
        let established = Established {
            exported: Bytes::from(format!("toy:{name}")),
            context: Box::new(ToyContext { key: key(&name), _alive: Some(self._alive) }),
            name,
            credentials,
            lifetime: self.lifetime,
        };
        Step::Complete { established, token: Bytes::from_static(b"done") }
    }
}

fn key(name: &str) -> [u8; 16] {
    let mut key = [0; 16];
    let length = name.len().min(16);
    key[..length].copy_from_slice(&name.as_bytes()[..length]);
    key
}

/// Either end of a context.
#[derive(Debug)]
pub(crate) struct ToyContext {
    key: [u8; 16],
    _alive: Option<LiveContext>,
}

impl ToyContext {
    /// Returns the client's end.
    pub(crate) fn of(name: &str) -> Self {
        Self { key: key(name), _alive: None }
    }
}

impl SecurityContext for ToyContext {
    fn verify_mic(&mut self, message: &[u8], checksum: &[u8]) -> Result<(), BadMessage> {
        if self.get_mic(message)? == checksum { Ok(()) } else { Err(BadMessage) }
    }

    fn get_mic(&mut self, message: &[u8]) -> Result<Bytes, BadMessage> {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(message);
        // Its length needs padding.
        let mut checksum = hasher.finish().to_be_bytes().to_vec();
        checksum.push(b'!');
        Ok(checksum.into())
    }

    fn wrap(&mut self, message: &[u8]) -> Result<Bytes, BadMessage> {
        let mut token = self.get_mic(message)?.to_vec();
        token.extend(message.iter().map(|byte| !byte));
        Ok(token.into())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Bytes, BadMessage> {
        let (checksum, turned) = token.split_at_checked(9).ok_or(BadMessage)?;
        let message: Vec<u8> = turned.iter().map(|byte| !byte).collect();
        self.verify_mic(&message, checksum)?;
        Ok(message.into())
    }
}
