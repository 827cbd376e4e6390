//! Write-behind: page states, WRITEs, COMMITs, rewriting, and errors.
//!
//! Synchronous data structures. They know no protocol; requests go out as actions and their results come in by method calls.

mod demand_queue;
mod errors;
mod file;
mod pace;
pub mod page_state;
mod range_map;
mod request;
mod settings;
mod state_map;
mod ticket;
mod write_behind;

pub use errors::OpenFile;
pub use request::{RequestError, RequestId, Verifier, WriteAction, Written};
pub use settings::Settings;
pub use ticket::SyncTicket;
pub use write_behind::{UNSEEN_ERRORS_MAX, WriteBehind};
