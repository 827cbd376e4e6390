//! The sender of a request.

use bytes::Bytes;

/// The principal of a request, as client records compare them (RFC 8881 §18.35.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// AUTH_NONE.
    Anonymous,
    /// AUTH_SYS: the user on the client, before squashing.
    System(u32),
    /// RPCSEC_GSS: the principal's exported name, which includes the mechanism (RFC 2743 §3.2).
    Gss(Bytes),
}

/// The principal of a request, and whether the request is authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The principal.
    pub principal: Principal,
    /// RPCSEC_GSS with `rpc_gss_svc_integrity` or `rpc_gss_svc_privacy` (RFC 2203 §5.3.3.4). False for AUTH_NONE and AUTH_SYS.
    pub is_protected: bool,
}
