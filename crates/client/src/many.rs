//! Arguments and results of operations on many files.
//!
//! Each operation returns a result for each item, in their order. A failure of an item does not affect the others: they are
//! executed anyway. With version 4 items share compounds; with version 3 their calls are in flight together.

use bytes::Bytes;

use crate::attributes::{Attributes, SetAttributes};
use crate::results::{FileHandle, NewObject};

/// A file to read whole.
#[derive(Debug, Clone, Copy)]
pub struct ReadFile<'a> {
    /// Its directory.
    pub directory: FileHandle,
    /// Its name.
    pub name: &'a [u8],
    /// Its handle if it is known. A file that is not opened is then read without LOOKUP; others are opened by name.
    pub handle: Option<FileHandle>,
    /// Whether version 4 may read the file without OPEN and CLOSE, by the anonymous stateid. Versions 3 and 4.0 always do. This gives up
    /// the check of other clients' share reservations where a server makes it at OPEN only, and with `handle` a file that has
    /// replaced this one under its name is not noticed.
    pub without_open: bool,
    /// Maximum bytes to read; a longer file is not read whole.
    pub count: u32,
}

/// The data that were read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// Its first bytes.
    pub data: Bytes,
    /// Whether they are all.
    pub is_whole: bool,
    /// Its attributes.
    pub attributes: Attributes,
}

/// A file to create, or to overwrite.
#[derive(Debug, Clone)]
pub struct NewFile<'a> {
    /// Its directory.
    pub directory: FileHandle,
    /// Its name.
    pub name: &'a [u8],
    /// Mode bits if it is created.
    pub mode: u32,
    /// All its data: not more than fits into one WRITE.
    pub data: Bytes,
    /// Attributes to set after the data were written, for instance times.
    pub set: SetAttributes,
}

/// A part of a directory to list, with handles and attributes.
#[derive(Debug, Clone, Copy)]
pub struct ListPart {
    /// The directory.
    pub directory: FileHandle,
    /// The cookie to continue after, and its verifier; zeros at the start.
    pub position: (u64, [u8; 8]),
    /// Maximum bytes of the part, at least one entry's.
    pub bytes: u32,
}

/// An object to create.
#[derive(Debug, Clone)]
pub struct NewEntry<'a> {
    /// Its directory.
    pub directory: FileHandle,
    /// Its name, which must be free.
    pub name: &'a [u8],
    /// Its kind.
    pub kind: NewKind,
    /// Its mode bits.
    pub mode: u32,
}

/// The kind of an object to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewKind {
    /// An empty regular file.
    File,
    /// Another object.
    Object(NewObject),
}

/// A directory to create.
#[derive(Debug, Clone, Copy)]
pub struct NewDirectory<'a> {
    /// Its parent.
    pub parent: FileHandle,
    /// Its name.
    pub name: &'a [u8],
    /// Its mode bits.
    pub mode: u32,
}
