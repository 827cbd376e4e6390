//! Makes changes durable, with one sync for all requests that wait.
//!
//! Each object numbers its changes. A request that needs a change to be durable waits until a sync that *began* after
//! the change has succeeded. While a sync runs, more requests gather, and the next sync serves all of them: a hundred
//! concurrent COMMITs of a file, or CREATEs in a directory, cost two syncs.
//!
//! Writes go through one descriptor, which stays open while the object is dirty, because the kernel reports a failed
//! write-back once to each descriptor that was open at the time. So an object is dirty from *before* a change is made
//! ([`SyncState::begin_change`](crate::sync_state::SyncState::begin_change)). The change gets its number *after* it
//! was made ([`PendingChange::finish`](crate::sync_state::PendingChange::finish)): a sync that began in between may
//! have missed it, and must not cover it. A failed change gets no number.
//!
//! Changes count as durable only when a sync returned success. After a failure the object remains dirty and the write
//! verifier changes: the kernel may have dropped the pages, so that clients must send them again. All requests whose
//! change had begun before the failure get the error, not only those that waited for this sync: the kernel reports
//! the error once, so the next sync succeeds although the pages are lost, and clients do not resend data that were
//! answered as stable. So a change carries the number of failures at its beginning
//! ([`ChangeId`](crate::sync_state::ChangeId)), and counts as durable only if no sync failed since.
//!
//! If a sync of a file served several requests, the next one waits a moment until as many have come again: eight
//! writers that each wait for their WRITE then share one sync instead of alternating between two. A single writer never
//! waits.
//!
//! Directories and new files are synced in rounds, by few threads for all requests that wait (`rounds`). If no
//! other request needs the calling thread and the device is fast, that thread syncs them itself, and up to 64 KiB of
//! content too ([`vfs::SyncLatency`]). A file with more content is synced by a thread of its own.
//!
//! The changes of a request with several operations are deferred if it asks for that ([`vfs::GroupCommit`]), and
//! become durable together at its end, with one sync for each object (`group`).

mod deferred;
mod early;
mod group;
mod rounds;
mod sync;
mod volume;
mod wait;

pub(crate) use deferred::Deferred;
pub(crate) use wait::{ObjectChange, SyncCaller};

#[cfg(test)]
mod tests;
