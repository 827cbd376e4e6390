//! A shard: some files with all their opens, locks and delegations, and the stateids that name these.
//!
//! Everything that one operation on a file touches is under one lock. Entries are in a slab. Files, clients and owners list
//! them by index, and each entry knows its positions in these lists, so that it leaves them in constant time. [`table`] adds
//! and finds entries, [`release`] ends them.

mod audit;
mod by_owner;
mod deferred;
pub(crate) mod delegation;
mod delegations;
mod entry;
mod entry_list;
mod file;
mod lists;
mod lock_notify;
mod lock_waiters;
mod nlm;
mod nlm_entry;
mod phase;
mod release;
pub(crate) mod share;
mod table;

pub(crate) use by_owner::OpenKey;
pub(crate) use deferred::Deferred;
pub(crate) use entry::{EntryKind, NewOpen};
pub(crate) use lock_notify::{LockNotify, Notice, waiting_host};
pub(crate) use phase::EntryEvent;
pub(crate) use table::Shard;
