//! The commands other than those of the server.

pub mod bench;
pub mod proxy;

// The parts of the client's commands that need no server.
#[allow(dead_code, reason = "the commands that use them come next")]
mod attributes;
#[allow(dead_code, reason = "the commands that use them come next")]
mod columns;
#[allow(dead_code, reason = "the commands that use them come next")]
mod find;
#[allow(dead_code, reason = "the commands that use them come next")]
mod human;
#[allow(dead_code, reason = "the commands that use them come next")]
mod list;
#[allow(dead_code, reason = "the commands that use them come next")]
mod mode;
#[allow(dead_code, reason = "the commands that use them come next")]
mod names;
#[allow(dead_code, reason = "the commands that use them come next")]
mod owner;
#[allow(dead_code, reason = "the commands that use them come next")]
mod pattern;
#[allow(dead_code, reason = "the commands that use them come next")]
mod progress;
#[allow(dead_code, reason = "the commands that use them come next")]
mod quote;
#[allow(dead_code, reason = "the commands that use them come next")]
mod space;
#[allow(dead_code, reason = "the commands that use them come next")]
mod stat_format;
#[allow(dead_code, reason = "the commands that use them come next")]
mod time;
#[allow(dead_code, reason = "the commands that use them come next")]
mod tree;
