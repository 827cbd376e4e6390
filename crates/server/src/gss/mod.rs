//! RPCSEC_GSS (RFC 2203): authenticates callers and protects messages.
//!
//! The cryptography is done by a [`Mechanism`], which comes with the [`Settings`](crate::Settings). Without one the flavor is refused like
//! any unknown flavor. [`enter`](Gss::enter) finds a call's context, checks it and unprotects the arguments. After that it is a call like
//! any other, whose caller is [`Identity::Gss`]. [`Sealing`] writes the reply's header and protects the results. Reply and slot caches are
//! between the two, so that they keep plain results: a retransmission has a new sequence number (§5.3.3.1), and its reply another checksum.

mod contexts;
mod creation;
mod sealing;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod toy;
mod window;

use std::sync::Arc;

use bytes::Bytes;
use rpc::auth::{AuthFlavor, AuthStatus, OpaqueAuth};
use rpc::gss::{self, CredentialError, GssCredential, GssProc, IntegrityData, MAXSEQ, PrivacyData, Service};
use rpc::message::CallHeader;
use xdr::{Decode, Opaque, Reader};

pub use crate::gss_mechanism::{
    Accepting, Acceptor, BadMessage, Established, GssStatus, Mechanism, SecurityContext, Step,
};

pub(crate) use contexts::Contexts;
pub(crate) use creation::Creation;
pub(crate) use sealing::Sealing;

use contexts::{Context, Verified};

use crate::Now;
use crate::identity::Identity;

/// The greatest length in XDR: the bound of the record bounds its contents.
const WITHIN_RECORD: usize = u32::MAX as usize;

/// A mechanism and the contexts made with it.
#[derive(Debug)]
pub(crate) struct Gss {
    mechanism: Arc<dyn Mechanism>,
    pub(crate) contexts: Contexts,
}

/// A call as RPCSEC_GSS sees it.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A call of the program.
    Call(Identity, Box<Sealing>),
    /// A call that makes a context.
    Creation(Creation),
    /// A call of the principal whose arguments cannot be unprotected: GARBAGE_ARGS.
    Garbage(Box<Sealing>),
    /// A call that is refused with this status.
    Denied(AuthStatus),
    /// A call that is dropped without a reply.
    Silent,
}

impl Gss {
    /// `secret` is unpredictable at every start, `number_key` unpredictable and the same in every process with one state directory.
    pub(crate) fn new(mechanism: Arc<dyn Mechanism>, secret: [u8; 16], number_key: [u8; 16]) -> Self {
        Self { mechanism, contexts: Contexts::new(secret, number_key) }
    }

    /// Checks a call's credential and verifier, and unprotects its arguments. Replaces the credential in `header` by one that is the same in a
    /// retransmission.
    pub(crate) fn enter(&self, now: Now, header: &mut CallHeader, arguments: &mut Reader) -> Entry {
        let credential = match GssCredential::parse(&header.credential.body) {
            Ok(credential) => credential,
            // §5.2.3.2: "MSG_DENIED might also be returned if the RPCSEC_GSS version number in the credential is not supported on
            // the server. In that case, the server returns a rejection status of AUTH_ERROR, with an auth_stat of
            // AUTH_REJECTED_CRED." RFC 7861 §2.2 has clients of version 3 rely on that.
            Err(CredentialError::Version { is_data: false }) => {
                return Entry::Denied(AuthStatus::REJECTEDCRED);
            }
            // §5.3.3.3: "does not match the version of RPCSEC_GSS that was used when the context was created".
            Err(CredentialError::Version { is_data: true }) => return Entry::Denied(AuthStatus::BADCRED),
            // §5.3.3.3: "a bad length, illegal control procedure, or an illegal service".
            Err(CredentialError::Garbled(_)) => return Entry::Denied(AuthStatus::BADCRED),
        };
        // Control messages are NULL calls (§5).
        let is_null = header.procedure == 0;
        match credential.procedure {
            GssProc::DATA => self.enter_call(now, credential, header, arguments),
            GssProc::DESTROY if is_null => self.enter_call(now, credential, header, arguments),
            GssProc::INIT | GssProc::CONTINUE_INIT if is_null => Creation::entry(&credential, header),
            _ => Entry::Denied(AuthStatus::BADCRED),
        }
    }

    fn enter_call(
        &self,
        now: Now,
        credential: GssCredential,
        header: &mut CallHeader,
        arguments: &mut Reader,
    ) -> Entry {
        let Some(service) = credential.service() else { return Entry::Denied(AuthStatus::BADCRED) };
        let found = self.contexts.find(&credential.handle);
        let Some(context) = found else { return Entry::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM) };
        if header.verifier.flavor != AuthFlavor::RPCSEC_GSS {
            return Entry::Denied(AuthStatus::BADVERF);
        }
        // §5.3.1: "The checksum of the RPC header (up to and including the credential)".
        let signed = arguments.since(0).slice(..gss::signed_length(&header.credential.body));
        match context.verify(&signed, &header.verifier.body, credential.sequence, now.monotonic) {
            Verified::New => {}
            Verified::Forged => return Entry::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM),
            // §5.3.3.1. Version 4 forbids silence (RFC 7530 §3.1.1), but not here: RFC 8881 §2.10.6.2: "The silent drop behavior of
            // RPCSEC_GSS [4] does not apply because this behavior happens at the RPCSEC_GSS layer, a lower layer".
            Verified::Seen => return Entry::Silent,
        }
        // §5.3.3.3: if the number "exceeds the maximum the server will allow", and "if security credentials become stale while in
        // use". Only the principal itself gets this status.
        if credential.sequence > MAXSEQ || context.has_expired(now.monotonic) {
            return Entry::Denied(AuthStatus::RPCSEC_GSS_CTXPROBLEM);
        }
        let authenticated = Arc::clone(&context.authenticated);
        header.credential = credential_of_principal(&authenticated.exported);
        header.verifier = OpaqueAuth::NONE;
        // §5.3.3.4.1: GSS_GetMIC's failure for the verifier is CTXPROBLEM.
        let sealed = Sealing::new(Arc::clone(&context), service, credential.sequence);
        let Some(sealing) = sealed else { return Entry::Denied(AuthStatus::RPCSEC_GSS_CTXPROBLEM) };
        if credential.procedure == GssProc::DESTROY {
            // §5.4: "there are no procedure arguments". The reply's protection keeps the context until it is sent.
            self.contexts.remove(&credential.handle);
            let _ = arguments.rest();
        } else if let Some(plain) = unprotect(&context, service, credential.sequence, arguments) {
            *arguments = plain;
        } else {
            return Entry::Garbage(Box::new(sealing));
        }
        Entry::Call(Identity::Gss(authenticated, service), Box::new(sealing))
    }
}

/// Returns a credential that names the principal. The reply cache finds a retransmission by it, also over another context.
fn credential_of_principal(exported: &Bytes) -> OpaqueAuth {
    let body = Opaque::new(exported.clone()).expect("a context's name is bounded like a credential");
    OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body }
}

/// Unprotects arguments (§5.3.2). Returns none if this fails, or if they belong to another call (§5.3.3.1: "if the
/// sequence number embedded in the request body is different from the sequence number in the credential").
fn unprotect(context: &Context, service: Service, sequence: u32, arguments: &mut Reader) -> Option<Reader> {
    let body = match service {
        Service::None => return Some(arguments.clone()),
        Service::Integrity => {
            let data = IntegrityData::<WITHIN_RECORD>::decode(arguments).ok()?;
            context.with(|security| security.verify_mic(&data.body, &data.checksum)).ok()?;
            data.body.into_bytes()
        }
        Service::Privacy => {
            let data = PrivacyData::<WITHIN_RECORD>::decode(arguments).ok()?;
            context.with(|security| security.unwrap(&data.body)).ok()?
        }
    };
    arguments.finish().ok()?;
    let mut plain = Reader::new(body);
    (plain.u32() == Ok(sequence)).then_some(plain)
}
