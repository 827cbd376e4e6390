//! NFS version 2 against the server of this workspace, and against servers with wrong replies, in one thread and virtual time. The
//! scenarios of version 3 that do not depend on its procedures run here too.

use client::config::Version;

mod against_server;
#[path = "../nfs3/datagrams.rs"]
mod datagrams;
#[path = "../nfs3/inodes.rs"]
mod inodes;
#[allow(dead_code, reason = "some of it is for version 3")]
#[path = "../nfs3/link.rs"]
mod link;
#[path = "../nfs3/local_locks.rs"]
mod local_locks;
#[path = "../nfs3/locks.rs"]
mod locks;
#[path = "../nfs4/log.rs"]
mod log;
mod lying;
#[path = "../nfs3/model.rs"]
mod model;
#[allow(dead_code, reason = "some of it is for version 4")]
#[path = "../nfs4/world.rs"]
mod world;

/// The version of the clients.
const VERSION: Version = Version::V2;
/// Whether clients of [`world`] have caches.
const CACHES: bool = true;
/// Whether clients use delegations.
const DELEGATIONS: bool = false;
