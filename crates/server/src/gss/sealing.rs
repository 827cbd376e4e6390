//! The protection of a reply (RFC 2203 §5.3.3.2).

use std::sync::Arc;

use bytes::Bytes;
use rpc::auth::{AuthFlavor, OpaqueAuth};
use rpc::gss::Service;
use rpc::message::{AcceptStatus, AcceptedReply, ReplyBody, ReplyHeader};
use xdr::{Encode, Mark, Opaque, Writer};

use super::contexts::Context;

/// Maximum bytes that encryption adds. Kerberos adds 60 to 84 (RFC 4121 §4.2.4: two headers, confounder and checksum).
const WRAPPING_MAX: usize = 128;

/// Signs or encrypts one reply.
#[derive(Debug)]
pub(crate) struct Sealing {
    context: Arc<Context>,
    service: Service,
    sequence: u32,
    /// The checksum of the sequence number.
    verifier: Opaque<{ rpc::auth::MAX_AUTH_BODY }>,
    /// The place of the length of the protected results, once they are begun.
    length_at: Option<Mark>,
}

impl Sealing {
    /// Creates the protection of the reply to the call with this number; `None` if the mechanism fails.
    pub(super) fn new(context: Arc<Context>, service: Service, sequence: u32) -> Option<Self> {
        let checksum = context.with(|security| security.get_mic(&sequence.to_be_bytes())).ok()?;
        let verifier = Opaque::new(checksum).ok()?;
        Some(Self { context, service, sequence, verifier, length_at: None })
    }

    /// Returns the header of an accepted reply.
    fn header(&self, xid: u32, status: AcceptStatus) -> ReplyHeader {
        let verifier = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body: self.verifier.clone() };
        ReplyHeader { xid, body: ReplyBody::Accepted(AcceptedReply { verifier, status }) }
    }

    /// Writes the header of a reply with results, and the fields before the results.
    pub(crate) fn begin(&mut self, xid: u32, reply: &mut Writer) {
        self.header(xid, AcceptStatus::Success).encode(reply);
        if self.service != Service::None {
            self.length_at = Some(reply.reserve_u32());
            reply.u32(self.sequence);
        }
    }

    /// Writes a reply without results.
    pub(crate) fn reject(&self, xid: u32, status: AcceptStatus, reply: &mut Writer) {
        self.header(xid, status).encode(reply);
    }

    /// Returns the maximum bytes that it adds to a plain reply. Clients count them in their limits.
    pub(crate) fn overhead(&self) -> usize {
        let checksum = self.verifier.len().next_multiple_of(4);
        // Length and sequence number come before the results, the checksum and its length after them.
        let protection = match self.service {
            Service::None => 0,
            Service::Integrity => 8 + 4 + checksum,
            Service::Privacy => 8 + WRAPPING_MAX,
        };
        checksum + protection
    }

    /// Returns whether results are sent unchanged, so that they may stay in a file.
    pub(crate) fn leaves_plain(&self) -> bool {
        self.service == Service::None
    }

    /// Protects the results that were written since [`Self::begin`]. Returns false if the mechanism fails: by §5.3.3.4 no reply is sent
    /// then.
    #[must_use]
    pub(crate) fn finish(&self, reply: &mut Writer) -> bool {
        let Some(length_at) = self.length_at else { return true };
        let mut body = reply.inline_since(length_at);
        let copied: Bytes;
        let length = reply.length_since(length_at);
        if body.len() < length {
            copied = reply.copy_since(length_at);
            reply.rewind(length_at);
            reply.raw(&copied);
            body = reply.inline_since(length_at);
        }
        // After its length.
        let body = &body[size_of::<u32>()..];
        match self.service {
            Service::None => true,
            Service::Integrity => {
                let length = body.len() as u32;
                let Ok(checksum) = self.context.with(|security| security.get_mic(body)) else { return false };
                reply.patch_u32(length_at, length);
                reply.opaque(&checksum);
                true
            }
            Service::Privacy => {
                let Ok(wrapped) = self.context.with(|security| security.wrap(body)) else { return false };
                reply.rewind(length_at);
                reply.opaque(&wrapped);
                true
            }
        }
    }
}
