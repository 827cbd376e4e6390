//! The NFSACL side protocol, version 3: POSIX access control lists for NFS version 3. No standard defines it; this is the
//! protocol of Solaris and Linux.

use xdr::{Decode, DecodeError, Encode, List, Reader, Writer};

use crate::nfs3::{FileHandle, Outcome, PostOpAttr};
use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number.
pub const PROGRAM: u32 = 100_227;
/// The version that goes with NFS version 3.
pub const VERSION: u32 = 3;

/// The maximum number of entries of a list (Linux and Solaris, `NFS_ACL_MAX_ENTRIES`).
pub const MAX_ENTRIES: usize = 1024;

xdr::constants! {
    /// The procedures.
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Gets lists. Arguments: [`GetAclArgs`]; results: [`GetAclResult`].
        GETACL = 1,
        /// Sets lists. Arguments: [`SetAclArgs`]; results: [`SetAclResult`].
        SETACL = 2,
    }
}

bitflags::bitflags! {
    /// Selects the lists that are requested or present.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Mask: u32 {
        /// The entries of the access list (`NA_ACL`).
        const ACL = 0x1;
        /// The number of entries of the access list (`NA_ACLCNT`).
        const ACLCNT = 0x2;
        /// The entries of the default list (`NA_DFACL`).
        const DFACL = 0x4;
        /// The number of entries of the default list (`NA_DFACLCNT`).
        const DFACLCNT = 0x8;
    }
}
crate::flags_xdr!(Mask);

xdr::constants! {
    /// The subject of an entry. Entries of a default list add [`AclTag::DEFAULT`].
    pub struct AclTag: u32 {
        /// The owner.
        USER_OBJ = 0x01,
        /// A user.
        USER = 0x02,
        /// The owning group.
        GROUP_OBJ = 0x04,
        /// A group.
        GROUP = 0x08,
        /// The maximum permissions of users and groups (mask).
        CLASS_OBJ = 0x10,
        /// All others.
        OTHER_OBJ = 0x20,
    }
}

impl AclTag {
    /// Marks the entries of a default list.
    pub const DEFAULT: u32 = 0x1000;
}

/// An entry (`aclent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct AclEntry {
    /// The subject.
    pub tag: AclTag,
    /// The ID, for a user or a group.
    pub id: u32,
    /// Permissions: read 4, write 2, execute 1.
    pub perm: u32,
}

/// A list, or only its length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acl {
    /// The number of entries, which may be sent without them.
    pub count: u32,
    /// The entries.
    pub entries: List<AclEntry, MAX_ENTRIES>,
}

impl Encode for Acl {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.count);
        self.entries.encode(writer);
    }
}

impl Decode for Acl {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { count: reader.u32()?, entries: List::decode(reader)? })
    }
}

/// Both lists of a file (`secattr`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct SecAttr {
    /// The lists that are present.
    pub mask: Mask,
    /// The access list.
    pub acl: Acl,
    /// The default list, of a directory.
    pub dfacl: Acl,
}

/// Arguments of GETACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetAclArgs {
    /// The file.
    pub fh: FileHandle,
    /// The requested lists.
    pub mask: Mask,
}

/// Results of GETACL on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetAclOk {
    /// The file's attributes.
    pub attributes: PostOpAttr,
    /// The lists.
    pub acl: SecAttr,
}

/// Results of GETACL; a failure has the file's attributes.
pub type GetAclResult = Outcome<GetAclOk, PostOpAttr>;

/// Arguments of SETACL.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetAclArgs {
    /// The file.
    pub fh: FileHandle,
    /// The lists.
    pub acl: SecAttr,
}

/// Results of SETACL; success and failure have the file's attributes.
pub type SetAclResult = Outcome<PostOpAttr, PostOpAttr>;

/// The procedures.
pub static TABLE: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION,
    name: "nfsacl3",
    procedures: &[
        Procedure::new(0, "NULL", Effect::None),
        Procedure::new(1, "GETACL", Effect::None),
        Procedure::new(2, "SETACL", Effect::Repeatable),
    ],
};
