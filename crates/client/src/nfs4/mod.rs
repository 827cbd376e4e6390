//! NFS version 4: sessions, compounds, and its operations.

mod batch;
mod callback;
mod compound_size;
mod convert;
mod establish;
mod keeper;
mod ops;
mod recovery;
mod session;
mod statuses;
mod wire;

pub(crate) use keeper::Nfs4;
