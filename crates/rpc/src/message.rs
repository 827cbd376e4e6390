//! The headers of calls and replies (RFC 5531 §9).

use std::fmt;

use bytes::Bytes;
use xdr::{Decode, DecodeError, Encode, Reader, Writer};

use crate::auth::{AuthStatus, MAX_AUTH_BODY, OpaqueAuth};

/// The supported version of the RPC protocol (RFC 5531 §9: "rpcvers MUST be equal to 2").
pub const RPC_VERSION: u32 = 2;

/// The length in bytes of a successful reply's header with an empty AUTH_NONE verifier.
pub const SUCCESS_HEADER_LENGTH: usize = 24;

xdr::constants! {
    /// The type of a message (RFC 5531 §9, `msg_type`).
    pub struct MessageType: u32 {
        /// A request.
        CALL = 0,
        /// A reply.
        REPLY = 1,
    }
}

/// The lowest and the highest supported version (RFC 5531 §9, `mismatch_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct VersionRange {
    /// The lowest.
    pub low: u32,
    /// The highest.
    pub high: u32,
}

/// Returns the transaction ID and the type of a message. On a connection with a back channel, the type distinguishes calls from
/// replies.
///
/// # Errors
/// [`DecodeError::Truncated`] if `record` is too short.
pub fn peek(record: &[u8]) -> Result<(u32, MessageType), DecodeError> {
    let Some((header, _)) = record.split_first_chunk::<8>() else {
        return Err(DecodeError::Truncated { missing: 8 - record.len() });
    };
    let [x0, x1, x2, x3, t0, t1, t2, t3] = *header;
    Ok((u32::from_be_bytes([x0, x1, x2, x3]), MessageType(u32::from_be_bytes([t0, t1, t2, t3]))))
}

/// The header of a call (RFC 5531 §9, `call_body`). The procedure's arguments follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHeader {
    /// The transaction ID, chosen by the caller and repeated in the reply.
    pub xid: u32,
    /// The remote program.
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// The procedure within the version.
    pub procedure: u32,
    /// The caller's identity.
    pub credential: OpaqueAuth,
    /// The proof of the identity.
    pub verifier: OpaqueAuth,
}

impl CallHeader {
    /// Creates the header of a call with AUTH_NONE.
    #[must_use]
    pub fn new(xid: u32, program: u32, version: u32, procedure: u32) -> Self {
        let (credential, verifier) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
        Self { xid, program, version, procedure, credential, verifier }
    }

    /// Decodes the header of a call and advances `reader` to the arguments.
    ///
    /// # Errors
    /// How to handle a record that is not a valid call.
    #[inline]
    pub fn parse(reader: &mut Reader) -> Result<Self, CallError> {
        let unanswerable = |_| CallError::Unanswerable(Unanswerable::Truncated);
        let xid = reader.u32().map_err(unanswerable)?;
        let message_type = MessageType(reader.u32().map_err(unanswerable)?);
        if message_type != MessageType::CALL {
            return Err(CallError::Unanswerable(Unanswerable::NotACall(message_type)));
        }
        // RFC 5531 §9: "In case of an RPC version mismatch, the server returns the lowest and highest supported RPC version
        // numbers." Another version may have a different header, so decoding stops here.
        if reader.u32().map_err(unanswerable)? != RPC_VERSION {
            let versions = VersionRange { low: RPC_VERSION, high: RPC_VERSION };
            return Err(CallError::refused(xid, Rejection::RpcMismatch(versions)));
        }
        let program = reader.u32().map_err(unanswerable)?;
        let version = reader.u32().map_err(unanswerable)?;
        let procedure = reader.u32().map_err(unanswerable)?;
        let credential = OpaqueAuth::decode(reader).map_err(|e| auth_error(xid, AuthStatus::BADCRED, e))?;
        let verifier = OpaqueAuth::decode(reader).map_err(|e| auth_error(xid, AuthStatus::BADVERF, e))?;
        Ok(Self { xid, program, version, procedure, credential, verifier })
    }
}

/// Maps a decoding error of a credential or verifier: one that is too long is rejected, a truncated one has no reply.
#[cold]
fn auth_error(xid: u32, status: AuthStatus, error: DecodeError) -> CallError {
    match error {
        DecodeError::TooLong { .. } => CallError::refused(xid, Rejection::AuthError(status)),
        _ => CallError::Unanswerable(Unanswerable::Truncated),
    }
}

impl Encode for CallHeader {
    fn encode(&self, writer: &mut Writer) {
        let Self { xid, program, version, procedure, credential, verifier } = self;
        let words = [*xid, MessageType::CALL.0, RPC_VERSION, *program, *version, *procedure];
        writer.raw(words.map(u32::to_be_bytes).as_flattened());
        credential.encode(writer);
        verifier.encode(writer);
    }
}

/// Why a record is not a valid call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// No reply is possible: drop a datagram, close a stream.
    Unanswerable(Unanswerable),
    /// The caller gets this reply.
    Refused(ReplyHeader),
}

impl CallError {
    fn refused(xid: u32, rejection: Rejection) -> Self {
        Self::Refused(ReplyHeader { xid, body: ReplyBody::Denied(rejection) })
    }
}

/// Why a record gets no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswerable {
    /// The record ends within the header.
    Truncated,
    /// The record is a reply or has an unknown type.
    NotACall(MessageType),
}

impl fmt::Display for Unanswerable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "the record ends within the call header"),
            Self::NotACall(message_type) => write!(f, "the record is not a call: {message_type:?}"),
        }
    }
}

impl std::error::Error for Unanswerable {}

/// The header of a reply. The procedure's results follow if the status is [`AcceptStatus::Success`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The call's transaction ID.
    pub xid: u32,
    /// The outcome of the call.
    pub body: ReplyBody,
}

/// RFC 5531 §9, `reply_body`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ReplyBody {
    /// The call was accepted; it may have failed.
    #[xdr(case = 0)]
    Accepted(AcceptedReply),
    /// The call was rejected.
    #[xdr(case = 1)]
    Denied(Rejection),
}

/// RFC 5531 §9, `accepted_reply`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AcceptedReply {
    /// The proof of the server's identity.
    pub verifier: OpaqueAuth,
    /// The outcome of the call.
    pub status: AcceptStatus,
}

/// RFC 5531 §9, `accept_stat` with its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum AcceptStatus {
    /// The results follow.
    #[xdr(case = 0)]
    Success,
    /// The program is not available.
    #[xdr(case = 1)]
    ProgramUnavailable,
    /// The program is available in these versions only.
    #[xdr(case = 2)]
    ProgramMismatch(VersionRange),
    /// The version has no such procedure.
    #[xdr(case = 3)]
    ProcedureUnavailable,
    /// The arguments could not be decoded.
    #[xdr(case = 4)]
    GarbageArguments,
    /// The server failed, for instance for lack of memory.
    #[xdr(case = 5)]
    SystemError,
}

/// RFC 5531 §9, `rejected_reply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Rejection {
    /// The RPC protocol is available in these versions only.
    #[xdr(case = 0)]
    RpcMismatch(VersionRange),
    /// Authentication failed.
    #[xdr(case = 1)]
    AuthError(AuthStatus),
}

impl ReplyHeader {
    /// Creates the reply to an accepted call, with an AUTH_NONE verifier.
    #[must_use]
    pub fn accepted(xid: u32, status: AcceptStatus) -> Self {
        Self { xid, body: ReplyBody::Accepted(AcceptedReply { verifier: OpaqueAuth::NONE, status }) }
    }

    /// Creates the reply to a call whose authentication failed.
    #[must_use]
    pub fn auth_error(xid: u32, status: AuthStatus) -> Self {
        Self { xid, body: ReplyBody::Denied(Rejection::AuthError(status)) }
    }

    /// Decodes the header of a reply and advances `reader` to the results.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not the header of a reply.
    pub fn parse(reader: &mut Reader) -> Result<Self, DecodeError> {
        let xid = reader.u32()?;
        match reader.u32()? {
            1 => Ok(Self { xid, body: ReplyBody::decode(reader)? }),
            value => Err(DecodeError::InvalidDiscriminant { type_name: "MessageType::REPLY", value }),
        }
    }

    /// Returns `Ok` if results follow.
    ///
    /// # Errors
    /// Why the server did not execute the call.
    pub fn success(&self) -> Result<(), RpcError> {
        match &self.body {
            ReplyBody::Accepted(AcceptedReply { status: AcceptStatus::Success, .. }) => Ok(()),
            ReplyBody::Accepted(accepted) => Err(RpcError::NotExecuted(accepted.status)),
            ReplyBody::Denied(rejection) => Err(RpcError::Denied(*rejection)),
        }
    }
}

impl Encode for ReplyHeader {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.xid);
        writer.u32(MessageType::REPLY.0);
        self.body.encode(writer);
    }
}

/// Writes the header of a successful reply with an AUTH_NONE verifier, as nearly every reply has.
#[inline]
pub fn encode_success(writer: &mut Writer, xid: u32) {
    let mut header = [0; SUCCESS_HEADER_LENGTH];
    header[..4].copy_from_slice(&xid.to_be_bytes());
    header[4..8].copy_from_slice(&MessageType::REPLY.0.to_be_bytes());
    writer.raw(&header);
}

/// Why a call has no results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcError {
    /// The server accepted the call but did not execute it.
    NotExecuted(AcceptStatus),
    /// The server rejected the call.
    Denied(Rejection),
    /// The reply cannot be decoded, which is the server's fault.
    Garbled(DecodeError),
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotExecuted(AcceptStatus::Success) => write!(f, "the call succeeded"),
            Self::NotExecuted(AcceptStatus::ProgramUnavailable) => {
                write!(f, "the server does not have this program")
            }
            Self::NotExecuted(AcceptStatus::ProgramMismatch(VersionRange { low, high })) => {
                write!(f, "the server has versions {low} to {high} of this program only")
            }
            Self::NotExecuted(AcceptStatus::ProcedureUnavailable) => {
                write!(f, "the server does not have this procedure")
            }
            Self::NotExecuted(AcceptStatus::GarbageArguments) => {
                write!(f, "the server could not decode the arguments")
            }
            Self::NotExecuted(AcceptStatus::SystemError) => write!(f, "the server failed"),
            Self::Denied(Rejection::RpcMismatch(VersionRange { low, high })) => {
                write!(f, "the server supports RPC versions {low} to {high} only")
            }
            Self::Denied(Rejection::AuthError(status)) => {
                write!(f, "the server refused the credentials: {status:?}")
            }
            Self::Garbled(error) => write!(f, "the reply cannot be decoded: {error}"),
        }
    }
}

impl std::error::Error for RpcError {}

impl From<DecodeError> for RpcError {
    fn from(error: DecodeError) -> Self {
        Self::Garbled(error)
    }
}

/// Decodes a whole reply with results of type `T`. Trailing bytes are an error. The caller has already matched the transaction
/// ID with [`peek`].
///
/// # Errors
/// [`RpcError`]: why the server did not execute the call, or why the reply cannot be decoded.
pub fn parse_reply<T: Decode>(record: Bytes) -> Result<T, RpcError> {
    let mut reader = Reader::new(record);
    ReplyHeader::parse(&mut reader)?.success()?;
    let results = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(results)
}

/// The maximum length in bytes of a call's header.
pub const MAX_CALL_HEADER: usize = 6 * 4 + 2 * (8 + MAX_AUTH_BODY);

/// Writes a whole call, without a record mark.
pub fn encode_call(writer: &mut Writer, header: &CallHeader, arguments: &impl Encode) {
    header.encode(writer);
    arguments.encode(writer);
}
