//! The server's durable state: the state directory, and the logs in it.
//!
//! | file | purpose | module |
//! |---|---|---|
//! | `handle.key`, `server.id`, `clean.verifier`, `lock` | the server's identity; whether it stopped in order | [`state_dir`] |
//! | `replies.log` | calls that are not idempotent, and their replies: a call that is repeated after a crash is not executed again | [`reply_log`] |
//! | `replies.log`, synced | the same for persistent sessions: it also survives a crash of the machine | [`synced_reply_log`] |
//! | `journal.ID`, and the path of an export's `journal` | changes that are not yet on stable storage in the file system | [`journal`] |
//! | `state.log`, `state.log.new` | clients that may reclaim after a restart; persistent sessions | [`state_log`] |
//!
//! Each log's module describes its format, possible losses in a crash, and its bounds. The logs implement the traits
//! [`server::ReplyLog`], [`server::StableLog`] and [`server::StateLog`].
#![deny(unsafe_code)]

mod disk_space;
mod files;
mod group_sync;
pub mod journal;
mod mapping;
pub mod reply_log;
pub mod state_dir;
pub mod state_log;
pub mod synced_reply_log;
mod wait_queue;

pub use files::{error_text, random};
