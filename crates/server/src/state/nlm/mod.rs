//! Locks and share reservations of NLM hosts, in addition to those of NFSv4. A range of one excludes ranges of the other
//! ([`tables::locks`](super::tables)). A host that waits gets its lock in the order of the file's queue, which it shares with the
//! clients of NFSv4, and is called with GRANTED.

pub(crate) mod calls;
pub(crate) mod hosts;
pub(crate) mod lock;
pub(crate) mod share;
