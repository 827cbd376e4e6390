//! Clients of v4.0: SETCLIENTID, SETCLIENTID_CONFIRM, RENEW (RFC 7530 §16.33, §16.34, §16.28).

use xdr::{Decode, DecodeError, Encode, Reader, Writer};

use crate::nfs4::types::{ClientId, ClientOwner, HasStatus, NetAddress, Outcome, Status, Verifier};

/// `cb_client4`: the destination of callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CallbackClient {
    /// Program number.
    pub program: u32,
    /// Address.
    pub location: NetAddress,
}

/// `SETCLIENTID4args` (v4.0).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetClientIdArgs {
    /// `nfs_client_id4`.
    pub client: ClientOwner,
    /// The destination of callbacks.
    pub callback: CallbackClient,
    /// The identifier to send in callbacks.
    pub callback_ident: u32,
}

/// `SETCLIENTID4resok` (v4.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SetClientIdOk {
    /// The client ID.
    pub client_id: ClientId,
    /// The verifier for SETCLIENTID_CONFIRM.
    pub confirm: Verifier,
}

/// `SETCLIENTID4res` (v4.0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetClientIdResult {
    /// The client ID to confirm.
    Ok(SetClientIdOk),
    /// `NFS4ERR_CLID_INUSE`: the client that uses it.
    InUse(NetAddress),
    /// Any other status.
    Error(Status),
}

impl Decode for SetClientIdResult {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Ok(SetClientIdOk::decode(reader)?),
            Status::CLID_INUSE => Self::InUse(NetAddress::decode(reader)?),
            status => Self::Error(status),
        })
    }
}

impl Encode for SetClientIdResult {
    fn encode(&self, writer: &mut Writer) {
        self.status().encode(writer);
        match self {
            Self::Ok(ok) => ok.encode(writer),
            Self::InUse(address) => address.encode(writer),
            Self::Error(_) => {}
        }
    }
}

impl HasStatus for SetClientIdResult {
    fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::OK,
            Self::InUse(_) => Status::CLID_INUSE,
            Self::Error(status) => *status,
        }
    }
}

/// `SETCLIENTID_CONFIRM4args` (v4.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SetClientIdConfirmArgs {
    /// The client.
    pub client_id: ClientId,
    /// The verifier from SETCLIENTID.
    pub confirm: Verifier,
}

/// `SETCLIENTID_CONFIRM4res` (v4.0).
pub type SetClientIdConfirmResult = Outcome<()>;

/// `RENEW4args` (v4.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RenewArgs {
    /// The client whose lease is renewed.
    pub client_id: ClientId,
}

/// `RENEW4res` (v4.0).
pub type RenewResult = Outcome<()>;
