//! CB_OFFLOAD: a background operation has ended (RFC 7862 §16.1).

use xdr::{Decode, DecodeError, Encode, Reader, Writer};

use crate::nfs4::types::{Handle, Outcome, Stateid, Status, WriteResponse};

/// `offload_info4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffloadInfo {
    /// The operation wrote all bytes.
    Ok(WriteResponse),
    /// The operation failed with this status after this number of bytes.
    Error(Status, u64),
}

impl Decode for OffloadInfo {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Ok(WriteResponse::decode(reader)?),
            status => Self::Error(status, reader.u64()?),
        })
    }
}

impl Encode for OffloadInfo {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Ok(response) => {
                Status::OK.encode(writer);
                response.encode(writer);
            }
            Self::Error(status, bytes_copied) => {
                status.encode(writer);
                writer.u64(*bytes_copied);
            }
        }
    }
}

/// `CB_OFFLOAD4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbOffloadArgs {
    /// The destination file.
    pub handle: Handle,
    /// The operation.
    pub stateid: Stateid,
    /// Its result.
    pub info: OffloadInfo,
}

/// `CB_OFFLOAD4res`.
pub type CbOffloadResult = Outcome<()>;
