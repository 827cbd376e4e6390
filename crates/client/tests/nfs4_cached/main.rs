//! The operations of version 4 with caches, write-behind and read-ahead: the scenarios of `nfs4`, and scenarios for caches only.

#[path = "../nfs4/attributes.rs"]
mod attributes;
mod blocks;
mod caching;
mod delegated_locks;
mod delegated_times;
mod directory_delegations;
#[path = "../nfs4/locks.rs"]
mod locks;
#[path = "../nfs4/log.rs"]
mod log;
mod read_delegations;
mod revocation;
#[path = "../nfs4/soft.rs"]
mod soft;
#[path = "../nfs4/space.rs"]
mod space;
mod state_events;
#[path = "../nfs4/v40.rs"]
mod v40;
mod v40_delegations;
#[path = "../nfs4/world.rs"]
mod world;
mod write_delegations;

/// Whether clients have caches.
const CACHES: bool = true;
/// Whether clients use delegations.
const DELEGATIONS: bool = true;
