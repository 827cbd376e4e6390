//! Calls that create a context (RFC 2203 §5.2).

use rpc::auth::{AuthFlavor, AuthStatus, OpaqueAuth};
use rpc::gss::{
    GSS_S_COMPLETE, GSS_S_CONTINUE_NEEDED, GSS_S_FAILURE, GSS_S_NO_CONTEXT, GssCredential, GssProc, InitArgs,
    InitResult, MAX_HANDLE, MAX_TOKEN,
};
use rpc::message::{AcceptStatus, AcceptedReply, CallHeader, ReplyBody, ReplyHeader};
use tracing::debug;
use xdr::{Decode, Encode, Opaque, Reader, Writer};

use super::contexts::Handle;
use super::window::WINDOW;
use super::{Entry, Gss};
use crate::Now;
use crate::gss_mechanism::{Acceptor, Established, GssStatus, Step};
use crate::identity::Authenticated;

/// A call that creates a context.
#[derive(Debug)]
pub(crate) struct Creation {
    /// The context; none in the first call.
    handle: Option<Opaque<MAX_HANDLE>>,
}

/// The reply to the client.
struct Answer {
    result: InitResult,
    verifier: OpaqueAuth,
}

impl From<GssStatus> for Answer {
    /// §5.2.3.1: "in this case handle and gss_token must be set to NULL by the server."
    fn from(error: GssStatus) -> Self {
        let GssStatus { major, minor } = error;
        let (handle, token) = (Opaque::default(), Opaque::default());
        Self { result: InitResult { handle, major, minor, window: 0, token }, verifier: OpaqueAuth::NONE }
    }
}

impl Creation {
    /// Checks the credential and the verifier of such a call.
    pub(super) fn entry(credential: &GssCredential, header: &CallHeader) -> Entry {
        // §5.2.2: "All creation requests have the NULL verifier (AUTH_NONE flavor with zero length opaque data)."
        if header.verifier.flavor != AuthFlavor::NONE || !header.verifier.body.is_empty() {
            return Entry::Denied(AuthStatus::BADVERF);
        }
        // "In the first creation request, the handle field is NULL (opaque data of zero length)."
        match (credential.procedure, credential.handle.is_empty()) {
            (GssProc::INIT, true) => Entry::Creation(Self { handle: None }),
            (GssProc::INIT, false) => Entry::Denied(AuthStatus::BADCRED),
            _ => Entry::Creation(Self { handle: Some(credential.handle.clone()) }),
        }
    }
}

impl Gss {
    /// Serves a call that creates a context. Returns the status of `GSS_Accept_sec_context`; none if the
    /// arguments cannot be decoded.
    pub(crate) async fn create(
        &self,
        now: Now,
        xid: u32,
        creation: Creation,
        mut arguments: Reader,
        reply: &mut Writer,
    ) -> Option<GssStatus> {
        let InitArgs { token } = InitArgs::decode(&mut arguments).ok()?;
        arguments.finish().ok()?;
        let Answer { result, verifier } = match self.begin(&creation, now) {
            Some((handle, acceptor)) => {
                let step = acceptor.accept(token.into_bytes()).await;
                self.step(handle, step, now).unwrap_or_else(Answer::from)
            }
            // §5.2.3.2 has CREDPROBLEM and CTXPROBLEM for data requests only.
            None => GssStatus { major: GSS_S_NO_CONTEXT, minor: 0 }.into(),
        };
        let status = AcceptStatus::Success;
        ReplyHeader { xid, body: ReplyBody::Accepted(AcceptedReply { verifier, status }) }.encode(reply);
        result.encode(reply);
        Some(GssStatus { major: result.major, minor: result.minor })
    }

    /// Returns the acceptor of the token, and the handle of the context.
    fn begin(&self, creation: &Creation, now: Now) -> Option<(Handle, Box<dyn Acceptor>)> {
        match &creation.handle {
            None => Some((self.contexts.new_handle(), self.mechanism.acceptor())),
            Some(known) => {
                let handle = Handle::try_from(&known[..]).ok()?;
                Some((handle, self.contexts.take_unfinished(known, now.monotonic)?))
            }
        }
    }

    /// Handles the outcome of a token.
    fn step(&self, handle: Handle, step: Step, now: Now) -> Result<Answer, GssStatus> {
        let failure = GssStatus { major: GSS_S_FAILURE, minor: 0 };
        let (major, token, verifier) = match step {
            Step::Failed(error) => return Err(error),
            Step::Continue { acceptor, token } => {
                self.contexts.keep_unfinished(handle, acceptor, now.monotonic);
                (GSS_S_CONTINUE_NEEDED, token, OpaqueAuth::NONE)
            }
            Step::Complete { established, token } => {
                let verifier = self.complete(handle, established, now).ok_or(failure)?;
                (GSS_S_COMPLETE, token, verifier)
            }
        };
        let token = Opaque::<MAX_TOKEN>::new(token).map_err(|_| failure)?;
        let handle = Opaque::new(handle.to_vec()).map_err(|_| failure)?;
        Ok(Answer { result: InitResult { handle, major, minor: 0, window: WINDOW, token }, verifier })
    }

    /// Stores a finished context. Returns the verifier: "the checksum of the seq_window (in network order)" (§5.2.3.1).
    fn complete(&self, handle: Handle, mut established: Established, now: Now) -> Option<OpaqueAuth> {
        if established.exported.len() > Authenticated::EXPORTED_MAX {
            debug!(principal = established.name, "the principal's name is too long");
            return None;
        }
        let checksum = established.context.get_mic(&WINDOW.to_be_bytes()).ok()?;
        let body = Opaque::new(checksum).ok()?;
        debug!(principal = established.name, "security context");
        self.contexts.keep(handle, established, now.monotonic);
        Some(OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body })
    }
}
