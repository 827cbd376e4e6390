//! The header of a COMPOUND and of its reply: tag, minor version, counts.

use protocol::nfs4::types::Status;
use xdr::{DecodeError, Mark, Reader, Writer};

use crate::request::Served;

/// Longest tag in bytes. The RFC sets no limit; Linux's clients send a few bytes.
const MAX_TAG: usize = 1024;

/// The header of a compound, and the places in its reply that are filled in at its end.
#[derive(Debug)]
pub(crate) struct Header {
    /// Bytes of the tag with its length.
    pub(crate) tag: usize,
    pub(crate) minor: u32,
    pub(crate) count: u32,
    status_at: Mark,
    count_at: Mark,
}

impl Header {
    /// Reads tag, minor version and operation count; writes the tag, and reserves room for status and result count.
    pub(crate) fn open(arguments: &mut Reader, reply: &mut Writer) -> Result<Self, DecodeError> {
        let status_at = reply.reserve_u32();
        // RFC 8881 §16.2.3: the client chooses the tag. §16.2.4 permits to refuse tags that are not UTF-8; this server echoes any
        // bytes.
        let tag = arguments.opaque_ref(MAX_TAG)?;
        reply.opaque(tag);
        let tag = size_of::<u32>() + tag.len() + xdr::padding(tag.len());
        let (minor, count) = (arguments.u32()?, arguments.u32()?);
        Ok(Self { tag, minor, count, status_at, count_at: reply.reserve_u32() })
    }

    /// Fills in status and result count.
    pub(crate) fn close(&self, status: Status, results: u32, reply: &mut Writer) -> Served {
        reply.patch_u32(self.status_at, status.0);
        reply.patch_u32(self.count_at, results);
        Served::Done { is_error: status != Status::OK }
    }
}
