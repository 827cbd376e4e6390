//! NFS version 4: sessions, compounds, and its operations.

mod background;
mod batch;
mod callback;
mod compound_size;
mod convert;
mod establish;
mod keeper;
mod lock_owner;
mod offloads;
mod ops;
mod reclaim_locks;
mod recovery;
mod revoked;
mod session;
mod statuses;
mod wire;

pub(crate) use keeper::Nfs4;
