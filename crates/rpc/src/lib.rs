//! ONC RPC version 2 (RFC 5531): messages, record marking and authentication flavors, without sockets.
//!
//! - [`record`]: record marking, between the bytes of a stream and records.
//! - [`message`]: headers of calls and replies, and the replies to calls that are rejected by their header.
//! - [`auth`]: credentials and verifiers.
//! - [`gss`]: RPCSEC_GSS (RFC 2203).
//! - [`address`]: universal addresses (RFC 5665), as in rpcbind and NFSv4 callbacks.
//!
//! A server calls [`record::RecordDecoder::decode`] → [`message::CallHeader::parse`] → [`auth::authenticate`] (or a
//! hit in a [`auth::CredentialCache`]) → the procedure → [`message::encode_success`] or [`message::ReplyHeader`].
//! A client calls [`message::encode_call`] → [`message::parse_reply`].
#![forbid(unsafe_code)]

pub mod address;
pub mod auth;
pub mod gss;
pub mod message;
pub mod record;
