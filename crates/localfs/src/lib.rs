//! A [`vfs::Backend`] over a directory of the local machine.
//!
//! # Identity
//! As **root** (with the capabilities to set users and to override permissions, tested at the start) the server
//! creates, looks up, moves and removes every name as the caller, so that the kernel checks permissions. Data go
//! through descriptors that are open for all callers. Each READ and WRITE is checked by permission bits, or by the
//! kernel if the file has an ACL. Only root may create device files. The machine's own rules apply too: with
//! `fs.protected_hardlinks` a caller may link only files that it owns or may read and write.
//!
//! As **any other user** the server acts as its own user: it owns all new files. Callers of another user id get what
//! permission bits and ACLs grant, checked here, *and* no more than the kernel lets the server do. The owner's right
//! to read and write its file regardless of its mode (RFC 1813 §4.4) ends where the server itself may not open the file.
//! Squash all callers to the server's user to make such an export useful.
//!
//! # Handles
//! Kernel handles if this process may open files by them (CAP_DAC_READ_SEARCH), otherwise numbers of a durable
//! index in the state directory: see [`Config::state_directory`]. Both survive renames, restarts and reboots. Only
//! objects below the exported directory, on its own mount, get handles. The protocol servers authenticate handles, so
//! that clients cannot forge them. A file that a *local* process moves out of the export stays reachable by its
//! handle, as with the Linux kernel's server and `no_subtree_check`, but its parent does not. With an index such a
//! file becomes stale as soon as its descriptor is closed. So does a file that a local process moves to another
//! directory inside the export; within its directory it is found again. Mount points inside the export are not
//! crossed: they are listed, and refused with [`vfs::Error::Access`]; the log says why. A server that serves the
//! mounted file system as another volume finds the mount points by [`LocalFs::mount_point`].
//!
//! # Coherence with local processes
//! The change attribute moves with every change, by local processes too. If the kernel's timestamps are coarse, a
//! local change may show up to one tick (10 ms at most) late. Attributes before and after an operation are atomic
//! among requests of this back end; a local process may change the object in between unseen. WRITEs and changes of
//! directory entries that came with one read of a connection reuse the attributes after the previous one
//! (`batch_attrs`): a local change between two of them is not seen either. [`watch`](vfs::Backend::watch) reports
//! local changes if [fanotify(7)](LocalFs::why_unwatched) is available.
//!
//! # Durability
//! [`Durability::Sync`] and [`Durability::Async`]. Symbolic links and special files cannot be opened, so a change of
//! their attributes is made durable by a sync of the whole file system. A failed sync is reported to every request
//! that waited for it, and changes the write verifier.
//!
//! # Blocking
//! Operations on cached data run on the calling thread. All other operations, and syncs, run as a whole on the
//! volume's own threads: an operation that would block gives up before it has any effect. The threads are shared
//! fairly among clients, and none of them waits while another operation holds the lock of an object. Linux offers no
//! way to create a name, or on most file systems to write, without blocking; the volume measures how long these take.
//! File systems that cannot tell which data are cached (overlays, most of FUSE) have all their data read on the pool. File
//! systems that ask a server for attributes (NFS, some of FUSE) make GETATTR block the calling thread.
#![deny(unsafe_code)]

mod acl;
mod act_as;
mod attributes;
mod backend;
mod batch_attrs;
mod blocking;
mod by_handle;
mod cached_names;
mod change;
mod cleanup;
mod cleanup_queue;
mod close_idle;
mod config;
mod descriptors;
mod dirty_memory;
mod durable;
mod early_flush;
mod errno;
mod fanotify;
mod find;
mod generations;
mod handle;
mod hidden;
mod identify;
mod identity;
mod index;
mod local_locks;
mod lock;
mod mounts;
mod name;
mod nonblocking;
mod object;
mod open_by_index;
mod opening;
mod ops;
mod permission;
mod pool;
mod probe;
mod refused_mounts;
mod release;
mod stall_detector;
mod status;
mod streams;
mod sync_group;
mod sync_state;
mod sys;
mod visibility;
mod volume;
mod watch;
mod watch_limits;
mod xattr_target;

pub use backend::LocalFs;
pub use config::{Config, Durability, OpenError, QuotaSource};
pub use descriptors::Descriptors;
pub use early_flush::early_flushes;
pub use identity::become_server;
pub use mounts::MountPoint;
