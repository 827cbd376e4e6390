//! Requests that were executed are not executed again: replies kept in memory, and logs that outlive a crash.

pub(crate) mod crash_replay;
pub(crate) mod reply_cache;
