//! What can go wrong while measuring, split by whose fault it is.

use std::fmt;
use std::io;

/// Why a measurement was given up. A measurement with an error yields no figure at all.
#[derive(Debug)]
pub enum LoadError {
    /// A connection could not be opened, or broke: what was being done, and the system's reason.
    Connection(String, io::Error),
    /// The server answered something other than what the request must get: where, and what.
    WrongReply(String),
    /// The server did not answer in time: what was waited for.
    Silent(String),
}

impl LoadError {
    /// A wrong answer to `call`.
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
