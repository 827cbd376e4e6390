//! Getting changes to stable storage, once for all who wait.
//!
//! Each object counts its changes. Whoever needs one on stable storage waits until a sync that *began* after that
//! change has succeeded. While a sync runs, newcomers gather and the next sync serves all of them: so a hundred
//! concurrent COMMITs of a file, or CREATEs in a directory, cost two syncs.
//!
//! Writes go through one descriptor, which stays open while there is dirt, since the kernel reports a failed
//! write-back once to each descriptor that was open at the time. So an object is dirty from *before* a change is made
//! ([`Dirt::begin`]). The number that is waited for, though, is given *after* the change was made ([`Begun::made`]): a
//! sync that began in between may have missed it, and must not cover it. A change that failed gets no number, and
//! leaves the earlier ones as they are. Changes count as durable only when a sync returned success: after a failure the
//! object stays dirty, the write verifier changes (the kernel may have dropped the pages, so that clients must send them
//! again), and everybody whose change had begun before is told. That is more than those who waited for this sync: the
//! kernel takes the error from the descriptor with it, so that the next sync succeeds though the pages are gone, and
//! nobody sends again what was answered as stable. So a change carries the count of failures as of its beginning
//! ([`Made`]), and may be durable only where none came since.
//!
//! Directories and new files are synced in rounds, by few threads for all who wait: [`group`]. Where nobody else wants the calling thread
//! and the device is fast, it syncs them itself, and little content too: [`Pace`]. What has more has a thread of its own.

mod rounds;
mod sync;
mod volume;
mod wait;

pub(crate) use wait::{Caller, Changed};

#[cfg(test)]
mod tests;
