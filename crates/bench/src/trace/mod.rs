//! Traces: the operations of clients with their times, recorded or imported from a packet capture, to be shown and replayed.
//!
//! A trace is text: a header, one line of JSON for each operation, and a last line with their number, so that a truncated trace is
//! detected. [`import()`] makes one of a packet capture. [`Recorded`] records what a workload does through [`Files`](crate::targets::Files). [`Replay`] says what must exist
//! before a trace is replayed, and which operations of one stream must wait for those of another.

mod format;
mod import;
mod order;
mod preparation;
mod reader;
mod recorded;
mod replay;
mod summary;
mod writer;

pub use self::format::{Flags, Header, Kind, Record};
pub use self::import::{Imported, import};
pub use self::preparation::Preparation;
pub use self::reader::Trace;
pub use self::recorded::Recorded;
pub use self::replay::Replay;
pub use self::summary::{Count, Summary};
pub use self::writer::TraceWriter;

/// Maximum number of operations of a trace.
pub const RECORDS_MAX: u64 = 20_000_000;

#[cfg(test)]
mod tests;
