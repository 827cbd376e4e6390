//! The interface of a file system for the protocol servers.
//!
//! [`Backend`] is the contract. It knows no protocol, and requires nothing that only a local file system could do. An
//! operation returns an [`Op`]: mostly an immediate answer, sometimes a future, so that an answer from the page cache
//! costs neither an allocation nor a task. [`MemFs`] is a complete backend in memory. [`fault`] makes any backend
//! fail by a script (by means of [`around`]), and [`journal`] answers small changes from a log. The `contract` module (feature `contract`) contains the tests that
//! every backend must pass.
#![forbid(unsafe_code)]

mod acl;
pub mod around;
mod attributes;
mod backend;
mod context;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
pub mod fault;
mod group_commit;
mod handle;
pub mod journal;
mod local_locks;
pub mod memfs;
mod name;
mod op;
mod origin;
mod payload;
mod quota;
mod sync_latency;
mod watch;

pub use acl::{ACL_EXECUTE, ACL_READ, ACL_WRITE, Acl, AclEntry, AclKind, AclTag, MAX_ACL_ENTRIES};
pub use attributes::{
    Access, Attributes, Before, Change, Device, FileKind, FsStat, Properties, SetAttributes, SetTime,
    Timestamp,
};
pub use backend::{
    Advice, Authority, Backend, COPIED_HOLE_BYTES, Copied, CopyRange, Create, CreateMode, Created, Entry,
    Found, Linked, OpenAccess, Opened, Pin, Read, ReadDir, ReadDirEnd, ReadRequest, Removal, Renamed, Seek,
    SetXattr, Stability, Verifier, Written,
};
pub use context::{Context, Credentials, MAX_GROUPS};
pub use error::{Error, Result};
pub use group_commit::{Committer, Committing, GroupCommit, NotDurable};
pub use handle::{Handle, MAX_HANDLE};
pub use local_locks::{LocalLock, LocalLocks};
pub use memfs::{MemFs, MemOptions};
pub use name::check_name;
pub use op::{Later, Op, boxed};
pub use origin::{Peer, Thread};
pub use payload::{FileRange, Payload, RangeSource};
pub use quota::{Quota, QuotaKind, QuotaUse};
pub use sync_latency::{RunningSync, SyncLatency};
pub use watch::{ChangeListener, EntriesWatch, Interest, Watch};
