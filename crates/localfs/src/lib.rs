//! A [`vfs::Backend`] over a directory of the local machine.
//!
//! # Who acts
//! As **root** (with the powers to set users and to override permissions, tried out at the start) every name is
//! created, looked up, moved and removed as the caller, so that the kernel judges; data go through descriptors that are
//! open for all callers, and each request is judged by permission bits, or by the kernel where the file has an ACL.
//! Device files can be made by root's callers only. The machine's own rules hold too: with `fs.protected_hardlinks` a
//! caller may link only what it owns or may read and write.
//!
//! As **anybody else** the server acts as its own user: new files are its own, whoever calls. Callers of another
//! user id get what permission bits and ACLs give them, judged here, *and* no more than what the kernel lets the
//! server do. The owner's right to read and write its file whatever its mode (RFC 1813 §4.4) then ends where the server
//! itself may not open the file. Squash all callers to the server's user to make such an export useful.
//!
//! # Handles
//! The kernel's own where this process may open by them (CAP_DAC_READ_SEARCH), else numbers of a durable index in the
//! state directory: see [`Config::state_directory`]. Both outlive renames, restarts and reboots. Handles are given out
//! only for what is below the exported directory on its own mount, and the protocol servers authenticate them, so that
//! none can be invented. A file that a *local* process moves out of the export afterwards stays reachable for whoever
//! has its handle, as with the Linux kernel's server and `no_subtree_check`, but the way up from it is closed. With an
//! index such a file goes stale as soon as its descriptor is closed, and so does one that a local process moves to
//! another directory inside; within its directory it is found again.
//! Mount points inside the export are not crossed: they are listed, and refused with [`vfs::Error::Access`]; the log says why.
//! A server that serves what is mounted there as another volume finds the places by [`LocalFs::mount_point`].
//!
//! # Coherence with local processes
//! The change attribute moves with every change, by local processes too; where the kernel's timestamps are coarse, a
//! local change may show up to one tick (10 ms at most) late. Attributes before and after an operation are atomic among
//! requests of this back end; a local process may come between them unseen. WRITEs, and changes of one directory's entries,
//! that came with one read of a connection begin from what the one before them left (`seen`): nor is a local process seen
//! that comes between two of these. Whoever [watches](vfs::Backend::watch) an object hears of what local processes do to it, where
//! [fanotify(7)](LocalFs::why_unwatched) can be had.
//!
//! # Durability
//! [`Durability::Sync`] and [`Durability::Async`]. What a symbolic link's or special file's attributes are set to is
//! brought to stable storage by a sync of the whole file system: they cannot be opened. A failed sync is told to
//! every request that waited for it, and changes the write verifier.
//!
//! # Waiting
//! What is known to be in memory is used in place. All else, syncs too, is done on threads of the volume's own:
//! each operation as a whole, since one that would have to wait gives up before it has any effect. These threads are shared fairly
//! among clients, and none of them waits while another operation holds the lock of an object. What cannot be known
//! (Linux offers no way to make a name, or on most file systems to write, without waiting) is learned from the clock.
//! File systems that cannot tell what is cached (overlays, most of FUSE) have all their data read on the pool; those that ask
//! a server for attributes (NFS, some of FUSE) make GETATTR wait in place.
#![deny(unsafe_code)]

mod acl;
mod acting;
mod attributes;
mod backend;
mod by_handle;
mod by_index;
mod cached_names;
mod change;
mod config;
mod descriptors;
mod dirty;
mod durable;
mod errno;
mod fanotify;
mod find;
mod generations;
mod handle;
mod hidden;
mod identify;
mod identity;
mod index;
mod janitor;
mod janitor_queue;
mod later;
mod lock;
mod mounts;
mod name;
mod object;
mod opening;
mod ops;
mod patience;
mod permission;
mod pool;
mod probe;
mod refused_mounts;
mod release;
mod room;
mod seen;
mod shortage;
mod stall_detector;
mod status;
mod streams;
mod sync_group;
mod sync_state;
mod sys;
mod turn;
mod visibility;
mod volume;
mod watch;
mod xattr_target;

pub use backend::LocalFs;
pub use config::{Config, Durability, OpenError};
pub use descriptors::Descriptors;
pub use identity::become_server;
pub use mounts::MountPoint;
