//! Versions 4.0 and 4.1 over a link whose replies the test chooses.

use client::config::Version;

mod bad_seqids;
mod callbacks;
mod delayed;
mod directory_delegations;
#[allow(dead_code, reason = "the tests of version 3 use the rest")]
#[path = "../nfs3/link.rs"]
mod link;
mod lost_replies;
mod lying;
mod old_linux;
mod short_reads;
mod watching;

/// The version of clients without another one.
const VERSION: Version = Version::V3;
