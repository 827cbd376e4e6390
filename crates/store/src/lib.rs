//! The server's durable state: the state directory, and the logs in it.
//!
//! | file | what it is for | module |
//! |---|---|---|
//! | `handle.key`, `server.id`, `clean.verifier`, `lock` | the server's identity, and whether it stopped in order | [`state_dir`] |
//! | `replies.log` | calls that are not idempotent, and their replies: a call repeated after a crash is not executed twice | [`reply_log`] |
//! | the same, synced | the same, for persistent sessions: it also outlives the machine | [`stable_log`] |
//! | `state.log`, `state.log.new` | the clients that may reclaim after a restart, and persistent sessions | [`state_log`] |
//!
//! The modules of the logs describe their formats, what a crash may cost, and their bounds. They implement the traits
//! [`server::ReplyLog`], [`server::StableLog`] and [`server::StateLog`].
#![deny(unsafe_code)]

mod disk_space;
mod files;
mod mapping;
pub mod reply_log;
pub mod stable_log;
pub mod state_dir;
pub mod state_log;
mod wait_queue;

pub use files::{error_text, random};
