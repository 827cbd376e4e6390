//! ONC RPC version 2 (RFC 5531): messages, record marking and authentication flavors, without sockets.
//!
//! - [`record`]: bytes of a stream ↔ records.
//! - [`message`]: the headers of calls and replies, and what a server answers to a header that it cannot serve.
//! - [`auth`]: credentials and verifiers.
//! - [`gss`]: RPCSEC_GSS (RFC 2203).
//! - [`address`]: universal addresses (RFC 5665), as rpcbind and NFSv4 call-backs write them.
//!
//! A server's way: [`record::RecordDecoder::decode`] → [`message::CallHeader::parse`] → [`auth::authenticate`] (or a
//! hit in a [`auth::CredentialCache`]) → the procedure → [`message::encode_success`] or [`message::ReplyHeader`].
//! A client's way: [`message::CallHeader`] as `Encode` → [`message::parse_reply`].
#![forbid(unsafe_code)]

pub mod address;
pub mod auth;
pub mod gss;
pub mod message;
pub mod record;
