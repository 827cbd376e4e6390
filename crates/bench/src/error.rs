//! Errors of a measurement, by their cause.

use std::fmt;
use std::io;

/// The reason why a measurement was abandoned. It then has no results.
#[derive(Debug)]
pub enum LoadError {
    /// A connection could not be opened, or broke: the action, and the system's reason.
    Connection(String, io::Error),
    /// The server sent a wrong reply: the call, and the error in the reply.
    WrongReply(String),
    /// The server did not answer in time: the action.
    Silent(String),
}

impl LoadError {
    /// Returns the error of a wrong reply to `call`.
    pub fn wrong(call: &str, what: impl fmt::Display) -> Self {
        Self::WrongReply(format!("{call}: {what}"))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(doing, error) => write!(f, "{doing}: {error}"),
            Self::WrongReply(what) => write!(f, "wrong reply to {what}"),
            Self::Silent(what) => write!(f, "no reply to {what}"),
        }
    }
}

impl std::error::Error for LoadError {}
