//! EXCHANGE_ID and DESTROY_CLIENTID (RFC 8881 §18.35, §18.50).

use xdr::{Decode, Encode, List, Opaque};

use crate::nfs4::macros::flags;
use crate::nfs4::types::{
    Bitmap, ClientId, ClientOwner, GssHandle, ImplementationId, MAX_CONFIGURED, OPAQUE_LIMIT, Outcome,
    SecOid, ServerOwner,
};

flags! {
    /// `eia_flags` and `eir_flags`, `EXCHGID4_FLAG_*`. `_A` bits are for arguments, `_R` bits for results.
    pub struct ExchangeIdFlags {
        /// The client follows referrals.
        SUPP_MOVED_REFER = 0x0000_0001,
        /// The client follows migrations.
        SUPP_MOVED_MIGR = 0x0000_0002,
        /// The client fences data servers (v4.2).
        SUPP_FENCE_OPS = 0x0000_0004,
        /// Stateids are bound to principals.
        BIND_PRINC_STATEID = 0x0000_0100,
        /// No pNFS.
        USE_NON_PNFS = 0x0001_0000,
        /// A pNFS metadata server.
        USE_PNFS_MDS = 0x0002_0000,
        /// A pNFS data server.
        USE_PNFS_DS = 0x0004_0000,
        /// The three bits above.
        MASK_PNFS = 0x0007_0000,
        /// Update a confirmed record.
        UPD_CONFIRMED_REC_A = 0x4000_0000,
        /// The record is confirmed.
        CONFIRMED_R = 0x8000_0000,
    }
}

/// `state_protect_ops4`: sets of operation numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StateProtectOps {
    /// Operations that require the machine credential or the SSV.
    pub must_enforce: Bitmap,
    /// Operations that allow the machine credential or the SSV.
    pub must_allow: Bitmap,
}

/// `ssv_sp_parms4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SsvParms {
    /// Operations.
    pub ops: StateProtectOps,
    /// Hash algorithms that the client supports.
    pub hash_algorithms: List<SecOid, MAX_CONFIGURED>,
    /// Encryption algorithms that the client supports.
    pub encryption_algorithms: List<SecOid, MAX_CONFIGURED>,
    /// Number of old SSVs to keep.
    pub window: u32,
    /// Number of GSS handles requested.
    pub gss_handles: u32,
}

/// `state_protect4_a`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum StateProtectArgs {
    /// `SP4_NONE`.
    #[xdr(case = 0)]
    None,
    /// `SP4_MACH_CRED`.
    #[xdr(case = 1)]
    MachineCredential(StateProtectOps),
    /// `SP4_SSV`.
    #[xdr(case = 2)]
    Ssv(SsvParms),
}

/// `EXCHANGE_ID4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeIdArgs {
    /// The client's identity.
    pub client_owner: ClientOwner,
    /// The client's flags.
    pub flags: ExchangeIdFlags,
    /// Protection of the client's state.
    pub state_protect: StateProtectArgs,
    /// The implementation.
    pub implementation: List<ImplementationId, 1>,
}

/// `ssv_prot_info4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SsvInfo {
    /// Operations.
    pub ops: StateProtectOps,
    /// Index of the hash algorithm chosen.
    pub hash_algorithm: u32,
    /// Index of the encryption algorithm chosen.
    pub encryption_algorithm: u32,
    /// Length of the SSV in bytes.
    pub ssv_length: u32,
    /// Number of old SSVs kept.
    pub window: u32,
    /// GSS handles.
    pub handles: List<GssHandle, MAX_CONFIGURED>,
}

/// `state_protect4_r`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum StateProtectResult {
    /// `SP4_NONE`.
    #[xdr(case = 0)]
    None,
    /// `SP4_MACH_CRED`.
    #[xdr(case = 1)]
    MachineCredential(StateProtectOps),
    /// `SP4_SSV`.
    #[xdr(case = 2)]
    Ssv(SsvInfo),
}

/// `EXCHANGE_ID4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExchangeIdOk {
    /// The client ID.
    pub client_id: ClientId,
    /// Sequence ID for the next CREATE_SESSION.
    pub sequence_id: u32,
    /// The server's flags.
    pub flags: ExchangeIdFlags,
    /// Protection of the client's state.
    pub state_protect: StateProtectResult,
    /// The server's identity.
    pub server_owner: ServerOwner,
    /// The scope of client IDs.
    pub server_scope: Opaque<OPAQUE_LIMIT>,
    /// The implementation.
    pub implementation: List<ImplementationId, 1>,
}

/// `EXCHANGE_ID4res`.
pub type ExchangeIdResult = Outcome<ExchangeIdOk>;

/// `DESTROY_CLIENTID4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DestroyClientIdArgs {
    /// The client.
    pub client_id: ClientId,
}

/// `DESTROY_CLIENTID4res`.
pub type DestroyClientIdResult = Outcome<()>;
