//! NFS version 4 against the server of this workspace, in one thread and virtual time, without caches: each request is sent
//! at its time. The tests of operations run with caches in `nfs4_cached`.

mod attributes;
mod by_path;
mod copying;
mod leaving;
mod locks;
mod log;
mod single_calls;
mod soft;
mod space;
mod v40;
mod v40_locks;
mod watching;
mod world;

/// Whether clients have caches.
const CACHES: bool = false;
/// Whether clients use delegations.
const DELEGATIONS: bool = false;
