//! The lines of a trace: header, operations, end.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::{CLIENTS_MAX, THREADS_MAX};
use crate::result::Effect;
use crate::targets::How;

/// The name of the format.
pub(super) const FORMAT: &str = "enfys-trace";
/// Its version, which changes when old programs cannot read new traces.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Maximum bytes of a path; that of Linux.
const PATH_MAX: usize = 4096;
/// Maximum bytes of one read or write.
const IO_MAX: u64 = 1 << 30;
/// Maximum offset and size in bytes.
const OFFSET_MAX: u64 = 1 << 62;
/// Maximum entries of one listing.
const ENTRIES_MAX: u64 = 1 << 24;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// `enfys-trace`.
    pub format: String,
    /// Version of the format.
    pub format_version: u32,
    /// Version of the program that wrote it.
    pub enfys_version: String,
    /// Where the operations are from, in words.
    pub source: String,
}

impl Header {
    /// Returns the header of a trace that this program writes.
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            enfys_version: env!("CARGO_PKG_VERSION").to_owned(),
            source: source.to_owned(),
        }
    }
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    /// Number of operations.
    pub(super) end: u64,
    /// Why the source had more operations than the trace, if it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
}

macro_rules! kinds {
    ($($variant:ident $name:literal $effect:ident $about:literal;)*) => {
        /// What an operation does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind {
            $(#[doc = $about] #[serde(rename = $name)] $variant,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns its name in traces and results.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns its effect on data.
            #[must_use]
            pub fn effect(self) -> Effect {
                match self { $(Self::$variant => Effect::$effect),* }
            }
        }
    };
}

kinds! {
    Open "open" Metadata "Opens a file, and creates it if `how` says so.";
    Close "close" Metadata "Closes a file.";
    Read "read" Read "Reads `length` bytes at `offset`; `result` are read.";
    Write "write" Write "Writes `length` bytes at `offset`; `result` are written.";
    Sync "fsync" Metadata "Makes written data stable.";
    Lock "lock" Metadata "Locks a file, or `length` bytes at `offset`, against writers; with `w` in `how` against all.";
    Unlock "unlock" Metadata "Unlocks a file, or `length` bytes at `offset`.";
    Stat "stat" Metadata "Gets attributes.";
    List "list" Metadata "Lists a directory with attributes; `result` are its entries.";
    Names "list-names" Metadata "Lists the names of a directory; `result` are its entries.";
    Mkdir "mkdir" Metadata "Creates a directory.";
    Rmdir "rmdir" Metadata "Removes a directory.";
    Remove "remove" Metadata "Removes a file's name.";
    Rename "rename" Metadata "Renames to `to`.";
    Link "link" Metadata "Gives a file the further name `to`.";
    Symlink "symlink" Metadata "Creates a symbolic link with the content `to`.";
    Readlink "readlink" Metadata "Reads a symbolic link.";
    Chmod "chmod" Metadata "Sets the mode bits to `mode`.";
    SetSize "set-size" Metadata "Sets the size to `length`.";
    Touch "touch" Metadata "Sets times.";
    Statfs "statfs" Metadata "Gets the free space of a file system.";
}

/// How a file is opened, as letters: `r` for reading, `w` for writing, `c` created if missing, `t` truncated, `s` with O_SYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Flags(pub How);

impl From<Flags> for String {
    fn from(flags: Flags) -> Self {
        let How { read, write, create, truncate, sync } = flags.0;
        let letters = [(read, 'r'), (write, 'w'), (create, 'c'), (truncate, 't'), (sync, 's')];
        letters.into_iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect()
    }
}

impl TryFrom<String> for Flags {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut how = How { read: false, ..How::READ };
        for letter in text.chars() {
            let flag = match letter {
                'r' => &mut how.read,
                'w' => &mut how.write,
                'c' => &mut how.create,
                't' => &mut how.truncate,
                's' => &mut how.sync,
                other => return Err(format!("how: `{other}`: expected the letters r, w, c, t, s")),
            };
            *flag = true;
        }
        Ok(Self(how))
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// When it began, in microseconds from the start of the trace.
    pub at_us: u64,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// The client, from 0.
    pub client: u32,
    /// The thread or process of the client, from 0. The operations of a stream do not overlap.
    pub stream: u32,
    /// What it does.
    pub op: Kind,
    /// Number of the open file, which is unique in the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u64>,
    /// The path, below the directory of the trace; an open file has that of its open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The second path, or the content of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How a file is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<Flags>,
    /// Offset in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Bytes that were requested, or the new size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Mode bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Bytes that were read or written, or entries of a listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<u64>,
    /// The size that an open or stat saw, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Whether a stat saw a directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory: bool,
    /// The error number if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<i32>,
}

impl Record {
    /// Creates a record without a path, at time zero.
    #[must_use]
    pub fn new(op: Kind) -> Self {
        Self {
            at_us: 0,
            took_us: 0,
            client: 0,
            stream: 0,
            op,
            file: None,
            path: None,
            to: None,
            how: None,
            offset: None,
            length: None,
            mode: None,
            result: None,
            size: None,
            directory: false,
            error: None,
        }
    }

    /// Returns when it ended, in microseconds.
    #[must_use]
    pub fn ended_us(&self) -> u64 {
        self.at_us.saturating_add(self.took_us)
    }

    /// Returns the path; empty for the root. A record from a trace has one.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or_default()
    }

    /// Returns how the file is opened.
    #[must_use]
    pub fn how(&self) -> How {
        self.how.map_or(How::READ, |flags| flags.0)
    }

    /// Checks that paths stay below the directory of the trace, and that what the operation needs is there.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.client >= CLIENTS_MAX || self.stream >= THREADS_MAX {
            return Err(format!(
                "client {}, stream {}: at most {CLIENTS_MAX} clients of {THREADS_MAX} streams",
                self.client, self.stream
            ));
        }
        let has_to_path = matches!(self.op, Kind::Rename | Kind::Link);
        let (offset, length) = (self.offset.unwrap_or(0), self.length.unwrap_or(0));
        let size = self.size.unwrap_or(0);
        let (length_max, result_max) = match self.op {
            Kind::Read | Kind::Write => (IO_MAX, length),
            _ => (OFFSET_MAX, ENTRIES_MAX),
        };
        if offset.max(size) > OFFSET_MAX || length > length_max || self.result.unwrap_or(0) > result_max {
            return Err(format!("{}: a number is too large", self.op));
        }
        for path in self.path.iter().chain(self.to.iter().filter(|_| has_to_path)) {
            check_path(path)?;
        }
        let is_of_file = matches!(
            self.op,
            Kind::Close | Kind::Read | Kind::Write | Kind::Sync | Kind::Lock | Kind::Unlock
        );
        let needs = [
            ("path", self.path.is_none() && !(is_of_file && self.file.is_some())),
            ("to", self.to.is_none() && (has_to_path || self.op == Kind::Symlink)),
            ("offset", self.offset.is_none() && matches!(self.op, Kind::Read | Kind::Write)),
            ("length", self.length.is_none() && matches!(self.op, Kind::Read | Kind::Write | Kind::SetSize)),
            ("mode", self.mode.is_none() && self.op == Kind::Chmod),
            ("how", self.how.is_none() && self.op == Kind::Open),
        ];
        match needs.iter().find(|(_, is_missing)| *is_missing) {
            Some((field, _)) => Err(format!("{}: no `{field}`", self.op)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn check_path(path: &str) -> Result<(), String> {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    if path.len() > PATH_MAX || (!path.is_empty() && !path.split('/').all(is_plain)) {
        let shown: String = path.chars().take(80).collect();
        return Err(format!("path {shown:?}: expected names below the directory of the trace"));
    }
    Ok(())
}
