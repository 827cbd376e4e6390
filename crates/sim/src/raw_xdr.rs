//! Arguments and results of calls as bytes.

use bytes::Bytes;
use xdr::{Decode, DecodeError, Encode, Reader, Writer};

/// Decodes the results of a procedure.
///
/// # Panics
/// The bytes are not these results, or more follow.
pub(crate) fn decoded<T: Decode>(results: Bytes) -> T {
    xdr::from_bytes(results).expect("the results and no bytes after them")
}

/// Arguments that are bytes already.
pub(crate) struct Raw<'a>(pub(crate) &'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(self.0);
    }
}

/// All bytes that are left.
pub(crate) struct Rest(pub(crate) Bytes);

impl Decode for Rest {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(reader.rest()))
    }
}
