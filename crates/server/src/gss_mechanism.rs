//! What a GSS mechanism does for the server (RFC 2743), without saying which library does it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vfs::Credentials;

/// A way to prove who calls; for the server's own name, whose keys it has.
pub trait Mechanism: fmt::Debug + Send + Sync {
    /// Begins a context.
    fn acceptor(&self) -> Box<dyn Acceptor>;
}

/// A context being made.
pub trait Acceptor: fmt::Debug + Send {
    /// `GSS_Accept_sec_context` with a token of the client's. It may have to read a key table or a replay cache, and to look up
    /// a user.
    fn accept(self: Box<Self>, token: Bytes) -> Accepting;
}

/// The next step, once it is known.
pub type Accepting = Pin<Box<dyn Future<Output = Step> + Send>>;

/// What became of a token.
#[derive(Debug)]
pub enum Step {
    /// `GSS_S_CONTINUE_NEEDED`: the client must send another token.
    Continue {
        /// What that goes to.
        acceptor: Box<dyn Acceptor>,
        /// For the client.
        token: Bytes,
    },
    /// `GSS_S_COMPLETE`.
    Complete {
        /// The context.
        established: Established,
        /// For the client; empty where the mechanism has none.
        token: Bytes,
    },
    /// Anything else.
    Failed(GssStatus),
}

/// What `GSS_Accept_sec_context` said, for the client to show (RFC 2203 appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GssStatus {
    /// A `GSS_S_` number.
    pub major: u32,
    /// The mechanism's own.
    pub minor: u32,
}

impl GssStatus {
    /// Whether the context will not be made: calling and routine errors are in the upper half (RFC 2744 §3.9.1).
    pub(crate) const fn is_failure(self) -> bool {
        self.major >> 16 != 0
    }
}

/// A context that was made, and by whom.
#[derive(Debug)]
pub struct Established {
    /// Checks and protects messages.
    pub context: Box<dyn SecurityContext>,
    /// The principal's name for people, `user@REALM`.
    pub name: String,
    /// Its exported name (RFC 2743 §3.2).
    pub exported: Bytes,
    /// The user that it is here; none where it is nobody known.
    pub credentials: Option<Arc<Credentials>>,
    /// How long it holds from now on; none for ever.
    pub lifetime: Option<Duration>,
}

/// A message or its protection is wrong, or the context has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadMessage;

/// A context that checks and protects messages, by quality of protection 0 (RFC 2743 §2.3). None of its calls waits for anything.
/// RPCSEC_GSS has numbers of its own, so clients do not ask the mechanism for the order of messages (RFC 2203 §5.2.2). Where one does,
/// what the mechanism finds about that does not count for a checksum, and may count for what is wrapped.
pub trait SecurityContext: fmt::Debug + Send {
    /// `GSS_VerifyMIC`.
    ///
    /// # Errors
    /// [`BadMessage`] where `checksum` is none of `message`.
    fn verify_mic(&mut self, message: &[u8], checksum: &[u8]) -> Result<(), BadMessage>;

    /// `GSS_GetMIC`: at most [`rpc::gss::MAX_CHECKSUM`] bytes.
    ///
    /// # Errors
    /// [`BadMessage`] where the mechanism fails.
    fn get_mic(&mut self, message: &[u8]) -> Result<Bytes, BadMessage>;

    /// `GSS_Wrap` with confidentiality.
    ///
    /// # Errors
    /// [`BadMessage`] where the mechanism fails.
    fn wrap(&mut self, message: &[u8]) -> Result<Bytes, BadMessage>;

    /// `GSS_Unwrap` of what was wrapped with confidentiality.
    ///
    /// # Errors
    /// [`BadMessage`] where `token` is wrapped by another context, changed on its way, or not encrypted.
    fn unwrap(&mut self, token: &[u8]) -> Result<Bytes, BadMessage>;
}
