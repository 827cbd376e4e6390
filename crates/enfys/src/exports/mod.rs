//! Exports: the requests of the command line and the configuration, checks before a start, and their file systems.

mod backends;
mod check;
mod journal;
mod mounts;
mod offline;
mod plan;
mod writable;

pub use backends::Backends;
pub use check::{check_directories, note_read_only_mounts};
pub use plan::{ExportPlan, Source};
