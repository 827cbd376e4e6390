//! SECINFO and SECINFO_NO_NAME: the accepted security flavors (RFC 8881 §18.29, §18.45).

use xdr::{Decode, Encode, List};

use crate::nfs4::types::{Component, Outcome, SecOid};

/// Maximum number of flavors in a reply; about a dozen are in use.
pub const MAX_FLAVORS: usize = 64;

/// Flavor `AUTH_NONE` (RFC 5531 §8.2).
pub const AUTH_NONE: u32 = 0;
/// Flavor `AUTH_SYS` (RFC 5531 §8.2).
pub const AUTH_SYS: u32 = 1;
/// Flavor `RPCSEC_GSS` (RFC 2203).
pub const RPCSEC_GSS: u32 = 6;

/// `SECINFO4args`. Current handle: the directory; consumed.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SecInfoArgs {
    /// The name.
    pub name: Component,
}

xdr::constants! {
    /// `secinfo_style4`: argument of SECINFO_NO_NAME. Unknown values are kept, so that the server can reject them with INVAL.
    pub struct SecInfoStyle: u32 {
        /// The current object.
        CURRENT_FH = 0,
        /// Its parent.
        PARENT = 1,
    }
}

/// `SECINFO_NO_NAME4args`. Current handle: the object; consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SecInfoNoNameArgs {
    /// The object itself or its parent.
    pub style: SecInfoStyle,
}

/// `rpc_gss_svc_t` (RFC 2203).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum GssService {
    /// The header is signed.
    None = 1,
    /// The message is signed.
    Integrity = 2,
    /// The message is encrypted.
    Privacy = 3,
}

/// `rpcsec_gss_info`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GssInfo {
    /// Mechanism.
    pub oid: SecOid,
    /// Quality of protection.
    pub qop: u32,
    /// Service.
    pub service: GssService,
}

/// `secinfo4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum SecInfo {
    /// `RPCSEC_GSS`.
    #[xdr(case = RPCSEC_GSS)]
    Gss(GssInfo),
    /// Any other flavor.
    #[xdr(default)]
    Flavor(u32),
}

/// `SECINFO4res`: flavors in the server's order of preference.
pub type SecInfoResult = Outcome<List<SecInfo, MAX_FLAVORS>>;

/// `SECINFO_NO_NAME4res`.
pub type SecInfoNoNameResult = SecInfoResult;
