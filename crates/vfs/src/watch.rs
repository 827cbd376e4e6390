//! Hearing of changes that come past a backend.

use std::fmt;

/// What somebody wants to hear of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Changes: of a file's content, attributes and names; of a directory's entries, attributes and name.
    Changes,
    /// These, and that somebody opens it, be it to read.
    Uses,
}

/// Is told of what others do to an object.
pub trait Alarm: Send + Sync + fmt::Debug {
    /// Somebody has done what is watched for, or may have. Called by any thread, any number of times; must neither wait nor call
    /// the backend.
    fn ring(&self);
}

/// Has an [`Alarm`] rung for as long as it is held.
pub trait Watch: Send + Sync + fmt::Debug {}
