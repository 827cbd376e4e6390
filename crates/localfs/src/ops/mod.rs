//! The operations of the back end, one file each.

pub(crate) mod access;
pub(crate) mod acl;
pub(crate) mod advise;
pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod getattr;
pub(crate) mod link;
pub(crate) mod lookup;
pub(crate) mod mount_point;
pub(crate) mod offline;
pub(crate) mod open;
pub(crate) mod parent;
pub(crate) mod quota;
pub(crate) mod read;
pub(crate) mod readdir;
pub(crate) mod readlink;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod setattr;
pub(crate) mod space;
pub(crate) mod statfs;
pub(crate) mod watch;
pub(crate) mod watch_entries;
pub(crate) mod write;
pub(crate) mod xattr;

#[cfg(test)]
mod tests;
