//! The interface of a GSS mechanism (RFC 2743), independent of its library.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vfs::Credentials;

/// A mechanism that authenticates callers, with the keys of the server's own name.
pub trait Mechanism: fmt::Debug + Send + Sync {
    /// Begins a context.
    fn acceptor(&self) -> Box<dyn Acceptor>;
}

/// An unfinished context.
pub trait Acceptor: fmt::Debug + Send {
    /// `GSS_Accept_sec_context` with a token from the client. It may read a key table or a replay cache, and look up a user.
    fn accept(self: Box<Self>, token: Bytes) -> Accepting;
}

/// The future of the next step.
pub type Accepting = Pin<Box<dyn Future<Output = Step> + Send>>;

/// The outcome of a token.
#[derive(Debug)]
pub enum Step {
    /// `GSS_S_CONTINUE_NEEDED`: the client must send another token.
    Continue {
        /// Takes the next token.
        acceptor: Box<dyn Acceptor>,
        /// For the client.
        token: Bytes,
    },
    /// `GSS_S_COMPLETE`.
    Complete {
        /// The context.
        established: Established,
        /// For the client; empty if the mechanism has none.
        token: Bytes,
    },
    /// Any other status.
    Failed(GssStatus),
}

/// The status of `GSS_Accept_sec_context`, for the client to show (RFC 2203 appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GssStatus {
    /// A `GSS_S_` number.
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
}

impl GssStatus {
    /// Returns whether the context failed: calling and routine errors are in the upper half (RFC 2744 §3.9.1).
    pub(crate) const fn is_failure(self) -> bool {
        self.major >> 16 != 0
    }
}

/// A finished context and its principal.
#[derive(Debug)]
pub struct Established {
    /// Checks and protects messages.
    pub context: Box<dyn SecurityContext>,
    /// The principal's name for display, `user@REALM`.
    pub name: String,
    /// Its exported name (RFC 2743 §3.2).
    pub exported: Bytes,
    /// The local user that it maps to, if any.
    pub credentials: Option<Arc<Credentials>>,
    /// Its remaining lifetime; none if it never expires.
    pub lifetime: Option<Duration>,
}

/// A message or its protection is wrong, or the context has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadMessage;

/// A context that checks and protects messages, by quality of protection 0 (RFC 2743 §2.3). Its methods do not block.
/// RPCSEC_GSS has numbers of its own, so clients do not ask the mechanism for the order of messages (RFC 2203 §5.2.2). If one does,
/// the mechanism ignores the order for checksums, and may check it for wrapped messages.
pub trait SecurityContext: fmt::Debug + Send {
    /// `GSS_VerifyMIC`.
    ///
    /// # Errors
    /// [`BadMessage`] if `checksum` does not match `message`.
    fn verify_mic(&mut self, message: &[u8], checksum: &[u8]) -> Result<(), BadMessage>;

    /// `GSS_GetMIC`: at most [`rpc::gss::MAX_CHECKSUM`] bytes.
    ///
    /// # Errors
    /// [`BadMessage`] if the mechanism fails.
    fn get_mic(&mut self, message: &[u8]) -> Result<Bytes, BadMessage>;

    /// `GSS_Wrap` with confidentiality.
    ///
    /// # Errors
    /// [`BadMessage`] if the mechanism fails.
    fn wrap(&mut self, message: &[u8]) -> Result<Bytes, BadMessage>;

    /// `GSS_Unwrap` of a message wrapped with confidentiality.
    ///
    /// # Errors
    /// [`BadMessage`] if `token` was wrapped by another context, changed, or not encrypted.
    fn unwrap(&mut self, token: &[u8]) -> Result<Bytes, BadMessage>;
}
