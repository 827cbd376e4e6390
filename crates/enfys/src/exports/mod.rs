//! Exports: what the command line and the configuration ask for, checks before a start, and the file systems behind them.

mod backends;
mod check;
mod mounts;
mod plan;
mod writable;

pub use backends::Backends;
pub use check::{check_directories, note_read_only_mounts};
pub use plan::{ExportPlan, Source};
