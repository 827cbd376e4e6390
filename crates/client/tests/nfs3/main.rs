//! NFS version 3 against the server of this workspace, and against servers with wrong replies, in one thread and virtual time.

use client::config::Version;

mod against_server;
mod caching;
mod copying;
mod datagram_locks;
mod datagrams;
mod inodes;
#[allow(dead_code, reason = "the tests of version 4 use the rest")]
mod link;
mod local_locks;
mod lock_replies;
mod locks;
#[path = "../nfs4/log.rs"]
mod log;
mod lying;
mod model;
mod model_version_4;
mod mounting;
mod repeated;
mod walking;
#[allow(dead_code, reason = "some of it is for version 4")]
#[path = "../nfs4/world.rs"]
mod world;
mod write_behind;

/// The version of the clients.
const VERSION: Version = Version::V3;
/// Whether clients of [`world`] have caches.
const CACHES: bool = true;
/// Whether clients use delegations.
const DELEGATIONS: bool = false;
