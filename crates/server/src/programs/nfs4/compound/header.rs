//! How a compound and its reply begin.

use protocol::nfs4::types::Status;
use xdr::{DecodeError, Mark, Reader, Writer};

use crate::request::Served;

/// Longest tag in bytes. The RFC sets no limit; Linux's clients send a few bytes.
const MAX_TAG: usize = 1024;

/// The beginning of a compound and, in the reply, what is filled in at its end.
#[derive(Debug)]
pub(crate) struct Header {
    /// Bytes of the tag with its length: two requests may well have one tag, of any length.
    pub(crate) tag: usize,
    pub(crate) minor: u32,
    pub(crate) count: u32,
    status_at: Mark,
    count_at: Mark,
}

impl Header {
    /// Reads tag, minor version and number of operations; writes a status, the tag and a number of results.
    pub(crate) fn open(arguments: &mut Reader, reply: &mut Writer) -> Result<Self, DecodeError> {
        let status_at = reply.reserve_u32();
        // RFC 8881 §16.2.3 leaves the tag to the client, and §16.2.4 lets a server refuse what is not UTF-8: nobody
        // gains by that, so any bytes come back.
        let tag = arguments.opaque_ref(MAX_TAG)?;
        reply.opaque(tag);
        let tag = size_of::<u32>() + tag.len() + xdr::padding(tag.len());
        let (minor, count) = (arguments.u32()?, arguments.u32()?);
        Ok(Self { tag, minor, count, status_at, count_at: reply.reserve_u32() })
    }

    pub(crate) fn close(&self, status: Status, results: u32, reply: &mut Writer) -> Served {
        reply.patch_u32(self.status_at, status.0);
        reply.patch_u32(self.count_at, results);
        Served::Done { is_error: status != Status::OK }
    }
}
