//! BACKCHANNEL_CTL and BIND_CONN_TO_SESSION (RFC 8881 §18.33, §18.34), and the security of callbacks.

use xdr::{Decode, Encode, List, Opaque};

use super::secinfo::{AUTH_NONE, AUTH_SYS, GssService, RPCSEC_GSS};
use crate::nfs4::types::{GssHandle, Outcome, SessionId};

/// Maximum length of `machinename`, in bytes (RFC 5531, appendix A).
pub const MAX_MACHINE_NAME: usize = 255;
/// Maximum number of groups (RFC 5531, appendix A).
pub const MAX_GROUPS: usize = 16;
/// Maximum number of alternatives that a client offers for callbacks; there are three flavors.
pub const MAX_SEC_PARMS: usize = 16;

/// `authsys_parms` (RFC 5531, appendix A).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AuthSysParms {
    /// An arbitrary number.
    pub stamp: u32,
    /// The caller's host name.
    pub machine_name: Opaque<MAX_MACHINE_NAME>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// More groups.
    pub gids: List<u32, MAX_GROUPS>,
}

/// `gss_cb_handles4`: contexts for callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GssCallbackHandles {
    /// Service.
    pub service: GssService,
    /// The server's handle of the context for callbacks.
    pub handle_from_server: GssHandle,
    /// The client's handle of the context.
    pub handle_from_client: GssHandle,
}

/// `callback_sec_parms4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum CallbackSecParms {
    /// `AUTH_NONE`.
    #[xdr(case = AUTH_NONE)]
    None,
    /// `AUTH_SYS` as this user.
    #[xdr(case = AUTH_SYS)]
    Sys(AuthSysParms),
    /// `RPCSEC_GSS` with these contexts.
    #[xdr(case = RPCSEC_GSS)]
    Gss(GssCallbackHandles),
}

/// The security that a client accepts for callbacks, in order of preference.
pub type SecParmsList = List<CallbackSecParms, MAX_SEC_PARMS>;

/// `BACKCHANNEL_CTL4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct BackchannelCtlArgs {
    /// New program number of callbacks.
    pub program: u32,
    /// New security of callbacks.
    pub sec_parms: SecParmsList,
}

/// `BACKCHANNEL_CTL4res`.
pub type BackchannelCtlResult = Outcome<()>;

xdr::constants! {
    /// `channel_dir_from_client4`. Unknown values are kept, because the server rejects them with INVAL.
    pub struct DirFromClient: u32 {
        /// Fore channel only.
        FORE = 1,
        /// Back channel only.
        BACK = 2,
        /// Fore channel, or both at the server's choice.
        FORE_OR_BOTH = 3,
        /// Back channel, or both at the server's choice.
        BACK_OR_BOTH = 7,
    }
}

xdr::constants! {
    /// `channel_dir_from_server4`.
    pub struct DirFromServer: u32 {
        /// Fore channel.
        FORE = 1,
        /// Back channel.
        BACK = 2,
        /// Both.
        BOTH = 3,
    }
}

/// `BIND_CONN_TO_SESSION4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BindConnToSessionArgs {
    /// The session.
    pub session_id: SessionId,
    /// Requested channels.
    pub direction: DirFromClient,
    /// Whether to use RDMA.
    pub use_rdma: bool,
}

/// `BIND_CONN_TO_SESSION4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct BindConnToSessionOk {
    /// The session.
    pub session_id: SessionId,
    /// Granted channels.
    pub direction: DirFromServer,
    /// Whether RDMA is used.
    pub use_rdma: bool,
}

/// `BIND_CONN_TO_SESSION4res`.
pub type BindConnToSessionResult = Outcome<BindConnToSessionOk>;
