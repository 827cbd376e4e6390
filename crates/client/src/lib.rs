//! NFSv4.2 as a client speaks it: records in, records out; no sockets, clocks or randomness.
//!
//! A [`Session`] belongs to one connection. Whoever carries its records takes them from [`Session::poll_record`] and gives it
//! what comes back ([`Session::handle_record`]); what was asked ([`Session::call`]) is answered by [`Session::poll_answer`].
//! Everything here can therefore be run against a server in one thread.
//!
//! So far it is what a server needs that reads a file from another one (COPY, RFC 7862 §4.6.2): one session, no back channel,
//! READs ([`Reader`]) of it. Caches, delegations and the planner of compounds have their place beside it.
#![forbid(unsafe_code)]

mod read;
mod read_retry;
mod reader;
mod session;
mod slots;

pub use read::{Read, ReadData, Way};
pub use read_retry::{READ_TIMEOUT, ReadRetry};
pub use reader::{ANSWER_PATIENCE, CALL_PATIENCE, IDLE_PATIENCE, ReadError, Reader, SILENCE_PATIENCE};
pub use session::{Answer, CallId, Executed, Identity, MAX_REPLY, Session, SessionError};
