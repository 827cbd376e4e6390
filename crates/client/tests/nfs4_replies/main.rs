//! Versions 4.0 and 4.1 over a link whose replies the test chooses.

mod bad_seqids;
#[allow(dead_code, reason = "the tests of version 3 use the rest")]
#[path = "../nfs3/link.rs"]
mod link;
mod lost_replies;
mod lying;
mod several_writes;
