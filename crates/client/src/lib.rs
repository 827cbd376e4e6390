//! An NFSv4.2 client without sockets, clocks or randomness: records in, records out.
//!
//! A [`Session`] belongs to one connection. The transport sends the records of [`Session::poll_record`] and passes received
//! ones to [`Session::handle_record`]. Callers start a compound with [`Session::call`] and get its outcome from
//! [`Session::poll_answer`]. A client and a server can therefore run in one thread.
//!
//! It supports what a server needs to read a file from another server (COPY, RFC 7862 §4.6.2): one session without a back
//! channel, and READs ([`Reader`]).
#![forbid(unsafe_code)]

mod read;
mod read_retry;
mod reader;
mod session;
mod slots;

pub use read::{Read, ReadData, ReadOp};
pub use read_retry::{READ_TIMEOUT, read_with_retries};
pub use reader::{CALL_TIMEOUT, IDLE_TIMEOUT, REPLY_TIMEOUT, ReadError, Reader, SILENCE_TIMEOUT};
pub use session::{CallId, CompoundOutcome, Identity, MAX_REPLY, Reply, Session, SessionError};
