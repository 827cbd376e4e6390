//! OPEN: open or create a regular file (RFC 8881 §18.16, RFC 7530 §16.16, RFC 9754).

use xdr::{Decode, Encode};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::attributes::acl::Ace;
use crate::nfs4::macros::flags;
use crate::nfs4::types::{Bitmap, ChangeInfo, Component, Outcome, StateOwner, Stateid, Verifier};

flags! {
    /// `share_access`: the requested access, and since v4.1 the wanted delegation.
    pub struct ShareAccess {
        /// `OPEN4_SHARE_ACCESS_READ`.
        READ = 0x1,
        /// `OPEN4_SHARE_ACCESS_WRITE`.
        WRITE = 0x2,
        /// `OPEN4_SHARE_ACCESS_BOTH`.
        BOTH = 0x3,
        /// `OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL`.
        WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL = 0x1_0000,
        /// `OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED`.
        WANT_PUSH_DELEG_WHEN_UNCONTENDED = 0x2_0000,
        /// `OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS` (RFC 9754).
        WANT_DELEG_TIMESTAMPS = 0x10_0000,
        /// `OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION` (RFC 9754).
        WANT_OPEN_XOR_DELEGATION = 0x20_0000,
    }
}

impl ShareAccess {
    /// `OPEN4_SHARE_ACCESS_WANT_DELEG_MASK`: the bits that hold a [`DelegationWant`].
    pub const WANT_DELEG_MASK: u32 = 0xff00;

    /// Returns only the access bits.
    #[must_use]
    pub const fn access(self) -> Self {
        self.intersection(Self::BOTH)
    }

    /// Returns the wanted delegation.
    #[must_use]
    pub const fn want(self) -> DelegationWant {
        DelegationWant(self.bits() & Self::WANT_DELEG_MASK)
    }

    /// Returns the same access with another wanted delegation.
    #[must_use]
    pub const fn with_want(self, want: DelegationWant) -> Self {
        Self::from_bits_retain(self.bits() & !Self::WANT_DELEG_MASK | want.0)
    }
}

xdr::constants! {
    /// The wanted delegation in [`ShareAccess`], `OPEN4_SHARE_ACCESS_WANT_*` (v4.1).
    pub struct DelegationWant: u32 {
        /// No preference.
        NO_PREFERENCE = 0x0000,
        /// A read delegation.
        READ_DELEG = 0x0100,
        /// A write delegation.
        WRITE_DELEG = 0x0200,
        /// Either.
        ANY_DELEG = 0x0300,
        /// None.
        NO_DELEG = 0x0400,
        /// None, and cancel earlier wants.
        CANCEL = 0x0500,
    }
}

flags! {
    /// `share_deny`: the access denied to others. No bit: `OPEN4_SHARE_DENY_NONE`.
    pub struct ShareDeny {
        /// `OPEN4_SHARE_DENY_READ`.
        READ = 1,
        /// `OPEN4_SHARE_DENY_WRITE`.
        WRITE = 2,
        /// `OPEN4_SHARE_DENY_BOTH`.
        BOTH = 3,
    }
}

/// `creatverfattr`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateVerifierAttributes {
    /// Identifies a retransmission.
    pub verifier: Verifier,
    /// Attributes of the new file.
    pub attributes: FileAttributes,
}

/// `createhow4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum CreateHow {
    /// `UNCHECKED4`: an existing file is accepted.
    #[xdr(case = 0)]
    Unchecked(FileAttributes),
    /// `GUARDED4`: an existing file is an error.
    #[xdr(case = 1)]
    Guarded(FileAttributes),
    /// `EXCLUSIVE4`: an existing file is an error unless it was created with this verifier.
    #[xdr(case = 2)]
    Exclusive(Verifier),
    /// `EXCLUSIVE4_1`: the same with attributes (v4.1).
    #[xdr(case = 3)]
    Exclusive41(CreateVerifierAttributes),
}

/// `openflag4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OpenHow {
    /// `OPEN4_NOCREATE`.
    #[xdr(case = 0)]
    NoCreate,
    /// `OPEN4_CREATE`.
    #[xdr(case = 1)]
    Create(CreateHow),
}

/// `open_claim_delegate_cur4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ClaimDelegateCur {
    /// The delegation.
    pub delegate_stateid: Stateid,
    /// Name of the file.
    pub file: Component,
}

/// `open_claim4`: the file, and the basis of the open.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OpenClaim {
    /// `CLAIM_NULL`: this name in the current directory.
    #[xdr(case = 0)]
    Null(Component),
    /// `CLAIM_PREVIOUS`: the current file was open before the server's restart, with this delegation.
    #[xdr(case = 1)]
    Previous(DelegationType),
    /// `CLAIM_DELEGATE_CUR`: the client holds a delegation of this name.
    #[xdr(case = 2)]
    DelegateCur(ClaimDelegateCur),
    /// `CLAIM_DELEGATE_PREV`: the client held a delegation of this name before its own restart.
    #[xdr(case = 3)]
    DelegatePrev(Component),
    /// `CLAIM_FH`: the current file (v4.1).
    #[xdr(case = 4)]
    Fh,
    /// `CLAIM_DELEG_CUR_FH`: the client holds this delegation of the current file (v4.1).
    #[xdr(case = 5)]
    DelegateCurFh(Stateid),
    /// `CLAIM_DELEG_PREV_FH`: the client held a delegation of the current file before its own restart (v4.1).
    #[xdr(case = 6)]
    DelegatePrevFh,
}

impl OpenClaim {
    /// Returns whether this is a reclaim after the server's restart.
    #[must_use]
    pub const fn is_reclaim(&self) -> bool {
        matches!(self, Self::Previous(_))
    }

    /// Returns the file's name, if the claim has one.
    #[must_use]
    pub const fn name(&self) -> Option<&Component> {
        match self {
            Self::Null(file) | Self::DelegatePrev(file) => Some(file),
            Self::DelegateCur(claim) => Some(&claim.file),
            Self::Previous(_) | Self::Fh | Self::DelegateCurFh(_) | Self::DelegatePrevFh => None,
        }
    }
}

/// `OPEN4args`. Current handle: directory or file, as the claim says; afterwards the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpenArgs {
    /// v4.0: seqid of the open owner. v4.1: ignored.
    pub seqid: u32,
    /// The requested access.
    pub share_access: ShareAccess,
    /// The access denied to others.
    pub share_deny: ShareDeny,
    /// The open owner.
    pub owner: StateOwner,
    /// Whether and how to create the file.
    pub how: OpenHow,
    /// The claim.
    pub claim: OpenClaim,
}

impl OpenArgs {
    /// Returns `share_access` of encoded arguments and whether they have `OPEN4_CREATE`, without decoding the rest; `None` if
    /// the arguments are too short.
    #[must_use]
    pub fn glance(encoded: &[u8]) -> Option<(ShareAccess, bool)> {
        const OPEN4_CREATE: u32 = 1;
        // After `seqid`.
        const SHARE_ACCESS_AT: usize = 4;
        // After `share_access`, `share_deny` and the owner's client ID.
        const OWNER_AT: usize = 20;
        let u32_at = |at: usize| Some(u32::from_be_bytes(*encoded.get(at..)?.first_chunk()?));
        let length = u32_at(OWNER_AT)? as usize;
        let open_type = u32_at(OWNER_AT + 4 + length.checked_next_multiple_of(4)?)?;
        let share_access = ShareAccess::from_bits_retain(u32_at(SHARE_ACCESS_AT)?);
        Some((share_access, open_type == OPEN4_CREATE))
    }
}

xdr::constants! {
    /// `open_delegation_type4`.
    pub struct DelegationType: u32 {
        /// None.
        NONE = 0,
        /// A read delegation.
        READ = 1,
        /// A write delegation.
        WRITE = 2,
        /// None, with a reason (v4.1).
        NONE_EXT = 3,
        /// A read delegation with delegated times (RFC 9754).
        READ_ATTRS_DELEG = 4,
        /// A write delegation with delegated times (RFC 9754).
        WRITE_ATTRS_DELEG = 5,
    }
}

/// `nfs_modified_limit4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ModifiedLimit {
    /// Number of blocks.
    pub blocks: u32,
    /// Bytes per block.
    pub bytes_per_block: u32,
}

/// `nfs_space_limit4`: the maximum of dirty data that a write delegation holder may keep after CLOSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SpaceLimit {
    /// `NFS_LIMIT_SIZE`: while the file has at most this many bytes.
    #[xdr(case = 1)]
    Size(u64),
    /// `NFS_LIMIT_BLOCKS`: at most this many modified blocks.
    #[xdr(case = 2)]
    Blocks(ModifiedLimit),
}

/// `open_read_delegation4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadDelegation {
    /// The delegation.
    pub stateid: Stateid,
    /// Whether it is already recalled; only after a reclaim.
    pub recall: bool,
    /// Users that need no ACCESS to open for reading.
    pub permissions: Ace,
}

/// `open_write_delegation4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteDelegation {
    /// The delegation.
    pub stateid: Stateid,
    /// Whether it is already recalled; only after a reclaim.
    pub recall: bool,
    /// Maximum of dirty data to keep after CLOSE.
    pub space_limit: SpaceLimit,
    /// Users that need no ACCESS to open.
    pub permissions: Ace,
}

/// `open_none_delegation4`: why no delegation was granted (v4.1), `why_no_delegation4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum NoDelegation {
    /// `WND4_CONTENTION`: other clients use the file; true if the server will push the delegation later.
    #[xdr(case = 1)]
    Contention(bool),
    /// `WND4_RESOURCE`: no resources; true if the server will report when there are.
    #[xdr(case = 2)]
    Resource(bool),
    /// Any other reason, one of [`WhyNoDelegation`].
    #[xdr(default)]
    Other(u32),
}

xdr::constants! {
    /// `why_no_delegation4` (v4.1).
    pub struct WhyNoDelegation: u32 {
        /// The client does not want one.
        NOT_WANTED = 0,
        /// See [`NoDelegation::Contention`].
        CONTENTION = 1,
        /// See [`NoDelegation::Resource`].
        RESOURCE = 2,
        /// Not supported for this file type.
        NOT_SUPP_FTYPE = 3,
        /// No write delegation for this file type.
        WRITE_DELEG_NOT_SUPP_FTYPE = 4,
        /// A delegation cannot be upgraded.
        NOT_SUPP_UPGRADE = 5,
        /// A delegation cannot be downgraded.
        NOT_SUPP_DOWNGRADE = 6,
        /// The want was cancelled.
        CANCELLED = 7,
        /// The object is a directory.
        IS_DIR = 8,
    }
}

/// `open_delegation4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum OpenDelegation {
    /// `OPEN_DELEGATE_NONE`.
    #[xdr(case = 0)]
    None,
    /// `OPEN_DELEGATE_READ`.
    #[xdr(case = 1)]
    Read(ReadDelegation),
    /// `OPEN_DELEGATE_WRITE`.
    #[xdr(case = 2)]
    Write(WriteDelegation),
    /// `OPEN_DELEGATE_NONE_EXT` (v4.1).
    #[xdr(case = 3)]
    NoneExt(NoDelegation),
    /// `OPEN_DELEGATE_READ_ATTRS_DELEG` (RFC 9754).
    #[xdr(case = 4)]
    ReadAttributes(ReadDelegation),
    /// `OPEN_DELEGATE_WRITE_ATTRS_DELEG` (RFC 9754).
    #[xdr(case = 5)]
    WriteAttributes(WriteDelegation),
}

flags! {
    /// `rflags`, `OPEN4_RESULT_*`.
    pub struct OpenResultFlags {
        /// `OPEN4_RESULT_CONFIRM`: OPEN_CONFIRM must follow (v4.0).
        CONFIRM = 0x02,
        /// `OPEN4_RESULT_LOCKTYPE_POSIX`: locks have POSIX semantics.
        LOCKTYPE_POSIX = 0x04,
        /// `OPEN4_RESULT_PRESERVE_UNLINKED`: a removed file is kept while open (v4.1).
        PRESERVE_UNLINKED = 0x08,
        /// `OPEN4_RESULT_NO_OPEN_STATEID`: a delegation instead of an open (RFC 9754).
        NO_OPEN_STATEID = 0x10,
        /// `OPEN4_RESULT_MAY_NOTIFY_LOCK`: the server may send CB_NOTIFY_LOCK (v4.1).
        MAY_NOTIFY_LOCK = 0x20,
    }
}

/// `OPEN4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpenOk {
    /// The open.
    pub stateid: Stateid,
    /// The directory's change.
    pub change: ChangeInfo,
    /// Flags of the open.
    pub flags: OpenResultFlags,
    /// Attributes that were set on creation.
    pub attributes_set: Bitmap,
    /// The delegation.
    pub delegation: OpenDelegation,
}

/// `OPEN4res`.
pub type OpenResult = Outcome<OpenOk>;

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(how: OpenHow, owner: &'static [u8]) -> Vec<u8> {
        let args = OpenArgs {
            seqid: 1,
            share_access: ShareAccess::BOTH,
            share_deny: ShareDeny::empty(),
            owner: StateOwner { client_id: 1, owner: xdr::Opaque::from_static(owner) },
            how,
            claim: OpenClaim::Fh,
        };
        let mut writer = xdr::Writer::new();
        args.encode(&mut writer);
        writer.into_bytes().to_vec()
    }

    #[test]
    fn glance_agrees_with_decoding_and_rejects_truncated_arguments() {
        for owner in [&b""[..], b"o", b"own", b"owner of", b"123456789"] {
            let exclusive = OpenHow::Create(CreateHow::Exclusive(Verifier::default()));
            let creating = encoded(exclusive, owner);
            assert_eq!(OpenArgs::glance(&creating), Some((ShareAccess::BOTH, true)));
            let opening = encoded(OpenHow::NoCreate, owner);
            assert_eq!(OpenArgs::glance(&opening), Some((ShareAccess::BOTH, false)));
            let said_at = 24 + owner.len().next_multiple_of(4);
            assert!((0..said_at + 4).all(|length| OpenArgs::glance(&creating[..length]).is_none()));
        }
        // An owner longer than the arguments.
        assert_eq!(OpenArgs::glance(&[0xff; 64]), None);
    }
}
