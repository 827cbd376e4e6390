//! The RPC programs that the server answers, one module each. No program imports another; shared code is in
//! [`files`](crate::files) and [`state`](crate::state).

pub(crate) mod mount;
pub(crate) mod nfs2;
pub(crate) mod nfs3;
pub(crate) mod nfs4;
pub(crate) mod nfsacl;
pub(crate) mod nlm;
pub(crate) mod nsm;
pub(crate) mod portmap;
pub(crate) mod rquota;
