//! Operations that all versions of NFS share: rights, creation, removal, rename, listings, and the recall of delegations that
//! conflict.

pub(crate) mod durable;
pub(crate) mod external_changes;
pub(crate) mod held_attributes;
pub(crate) mod listings;
pub(crate) mod lookup;
pub(crate) mod mount_points;
pub(crate) mod name_changes;
mod named_object;
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod recall;
pub(crate) mod rights;
pub(crate) mod stateless;
pub(crate) mod undo_create;
