//! NFS version 4: sessions, compounds, and its operations. Version 4.0 has no sessions: [`v40`] replaces them.
//! [`sequencer`] has the interface that compounds of both need.

mod attempts;
mod batch;
mod callback;
mod callback_path;
mod callback_v40;
mod compound_size;
mod convert;
mod delegated_locks;
mod delegations;
mod establish;
mod getattr;
mod hand_over;
mod keeper;
mod lease;
mod leaving;
mod lock_owner;
mod locking;
mod offloads;
mod open_args;
mod ops;
mod owned;
mod reclaim_locks;
mod recovery;
mod revoked;
mod sequencer;
mod session;
mod statuses;
mod v40;
mod wire;
mod write_start;

pub use callback::CallbackHandler;
pub(crate) use establish::{Setup, as_unsupported, create_session, exchange_id};
pub(crate) use keeper::Nfs4;
pub(crate) use session::Session;
pub use session::Unexecuted;
pub(crate) use v40::set_client_id;
pub(crate) use wire::encode_compound;
