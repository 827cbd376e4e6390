//! COPY, COPY_NOTIFY, OFFLOAD_CANCEL and OFFLOAD_STATUS (RFC 7862 §15.2, §15.3, §15.8, §15.9), and the RPCSEC_GSSv3
//! privileges of copies between servers (RFC 7862 §4.9.1.1).

use xdr::{Decode, DecodeError, Encode, List, Opaque, Reader, Writer};

use crate::nfs4::types::{
    HasStatus, MAX_CONFIGURED, MAX_GSS, NetLocation, Outcome, Stateid, Status, Time, Utf8, WriteResponse,
};

/// `COPY4args`. Saved handle: the source file; current handle: the destination file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyArgs {
    /// Stateid to read the source.
    pub source_stateid: Stateid,
    /// Stateid to write the destination.
    pub destination_stateid: Stateid,
    /// First byte in the source.
    pub source_offset: u64,
    /// First byte in the destination.
    pub destination_offset: u64,
    /// Bytes; 0 means to the end of the source.
    pub count: u64,
    /// Whether to copy bytes in order.
    pub consecutive: bool,
    /// Whether to reply only after the whole copy.
    pub synchronous: bool,
    /// The source servers; empty for this server.
    pub source_servers: List<NetLocation, MAX_CONFIGURED>,
}

/// `copy_requirements4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CopyRequirements {
    /// Whether bytes are copied in order.
    pub consecutive: bool,
    /// Whether the reply follows the whole copy.
    pub synchronous: bool,
}

/// `COPY4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyOk {
    /// The result of the write.
    pub response: WriteResponse,
    /// The properties of the copy.
    pub requirements: CopyRequirements,
}

/// `COPY4res`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyResult {
    /// The copy is complete or has started.
    Ok(CopyOk),
    /// `NFS4ERR_OFFLOAD_NO_REQS`: the properties that the server supports.
    NoRequirements(CopyRequirements),
    /// Any other status.
    Error(Status),
}

impl Decode for CopyResult {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Ok(CopyOk::decode(reader)?),
            Status::OFFLOAD_NO_REQS => Self::NoRequirements(CopyRequirements::decode(reader)?),
            status => Self::Error(status),
        })
    }
}

impl Encode for CopyResult {
    fn encode(&self, writer: &mut Writer) {
        self.status().encode(writer);
        match self {
            Self::Ok(ok) => ok.encode(writer),
            Self::NoRequirements(requirements) => requirements.encode(writer),
            Self::Error(_) => {}
        }
    }
}

impl HasStatus for CopyResult {
    fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::OK,
            Self::NoRequirements(_) => Status::OFFLOAD_NO_REQS,
            Self::Error(status) => *status,
        }
    }
}

/// `COPY_NOTIFY4args`. Current handle: the source file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyNotifyArgs {
    /// Stateid to read the source.
    pub source_stateid: Stateid,
    /// The server that will read.
    pub destination_server: NetLocation,
}

/// `COPY_NOTIFY4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyNotifyOk {
    /// Time until the destination must start.
    pub lease_time: Time,
    /// The stateid that the destination must use.
    pub stateid: Stateid,
    /// The addresses for the destination.
    pub source_servers: List<NetLocation, MAX_CONFIGURED>,
}

/// `COPY_NOTIFY4res`.
pub type CopyNotifyResult = Outcome<CopyNotifyOk>;

/// `OFFLOAD_CANCEL4args` and `OFFLOAD_STATUS4args`. Current handle: the destination file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OffloadArgs {
    /// The copy, from [`WriteResponse::callback_id`].
    pub stateid: Stateid,
}

/// `OFFLOAD_CANCEL4args`.
pub type OffloadCancelArgs = OffloadArgs;

/// `OFFLOAD_CANCEL4res`.
pub type OffloadCancelResult = Outcome<()>;

/// `OFFLOAD_STATUS4args`.
pub type OffloadStatusArgs = OffloadArgs;

/// `OFFLOAD_STATUS4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OffloadStatusOk {
    /// Bytes copied.
    pub count: u64,
    /// Its status, if it has ended.
    pub complete: List<Status, 1>,
}

/// `OFFLOAD_STATUS4res`.
pub type OffloadStatusResult = Outcome<OffloadStatusOk>;

/// `copy_from_auth_priv`: sent to the source.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyFromAuth {
    /// The shared secret of the three parties.
    pub shared_secret: Opaque<MAX_GSS>,
    /// The server that will read.
    pub destination: NetLocation,
    /// The user.
    pub username: Utf8,
}

/// `copy_to_auth_priv`: sent to the destination.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyToAuth {
    /// The shared secret of the three parties.
    pub shared_secret: Opaque<MAX_GSS>,
    /// The source server.
    pub sources: List<NetLocation, MAX_CONFIGURED>,
    /// The user.
    pub username: Utf8,
}

/// `copy_confirm_auth_priv`: sent from the destination to the source.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyConfirmAuth {
    /// The secret's message integrity code.
    pub shared_secret_mic: Opaque<MAX_GSS>,
    /// The user.
    pub username: Utf8,
}
