//! Basic types of operations, attributes and callbacks.

use xdr::{Decode, Encode, InlineOpaque, List, Opaque};

pub use super::bitmap::Bitmap;
use super::macros::flags;
pub use super::opnum::{CallbackOpNum, OpNum, Opcode};
pub use super::status::{HasStatus, Outcome, Status};

/// `NFS4_FHSIZE`: maximum length of a file handle, in bytes.
pub const MAX_HANDLE: usize = 128;
/// `NFS4_OPAQUE_LIMIT`: maximum length of an owner, a client's or server's identity and a server scope, in bytes.
pub const OPAQUE_LIMIT: usize = 1024;
/// Maximum length of a name or another short string, in bytes. The RFCs set none. This is well above that of any file system,
/// so that a longer name is rejected with NAMETOOLONG instead of BADXDR.
pub const MAX_NAME: usize = 1024;
/// Maximum length of a symbolic link's text, in bytes: one more than in Linux (`PATH_MAX` counts the NUL), so that a longer
/// text is rejected with NAMETOOLONG.
pub const MAX_LINK_TEXT: usize = 4096;
/// Maximum number of components in a `pathname4`: a path of `PATH_MAX` bytes has no more.
pub const MAX_PATH_COMPONENTS: usize = 2048;
/// Maximum payload of one READ or WRITE, in bytes: sixteen times the Linux client's 1 MiB. Payloads share the record's memory,
/// and the record's limit applies first.
pub const MAX_IO: usize = 16 << 20;
/// Maximum number of operations in a decoded compound. A server sets a lower limit for its sessions.
pub const MAX_OPERATIONS: usize = 1024;
/// Maximum length in bytes of a layout, device address, layout update or another body of a layout type.
pub const MAX_LAYOUT_BODY: usize = 1 << 20;
/// Maximum length of a GSS object identifier, handle, digest or verifier, in bytes. Those in use have less than 100.
pub const MAX_GSS: usize = 1024;
/// Maximum number of elements in lists that depend on the server's configuration: servers of a location, algorithms, layout
/// types, GSS handles.
pub const MAX_CONFIGURED: usize = 256;
/// `NFS4_MAXFILELEN`: as a length, "to the end of the file" (RFC 8881 §18.10.3 for locks).
pub const TO_END_OF_FILE: u64 = u64::MAX;

/// `nfs_fh4`: a file handle, opaque to clients.
pub type Handle = InlineOpaque<MAX_HANDLE>;
/// `component4`: a name in a directory. UTF-8 in the RFC; any bytes except NUL and `/` on real systems.
pub type Component = Opaque<MAX_NAME>;
/// `pathname4`: names from a root downwards.
pub type Pathname = List<Component, MAX_PATH_COMPONENTS>;
/// `linktext4`: the text of a symbolic link.
pub type LinkText = Opaque<MAX_LINK_TEXT>;
/// `utf8str_cs`, `utf8str_cis`, `utf8str_mixed`, `ascii_REQUIRED4`: a string, not checked for UTF-8.
pub type Utf8 = Opaque<MAX_NAME>;
/// `verifier4`: only compared for equality.
pub type Verifier = [u8; 8];
/// `sessionid4`.
pub type SessionId = [u8; 16];
/// `clientid4`.
pub type ClientId = u64;
/// `changeid4`: changes whenever the object changes.
pub type ChangeId = u64;
/// `nfs_cookie4`: a position in a directory or another list.
pub type Cookie = u64;
/// `deviceid4`: identifies a storage device of a layout.
pub type DeviceId = [u8; 16];
/// `sec_oid4`: a GSS mechanism or an algorithm, DER-encoded.
pub type SecOid = Opaque<MAX_GSS>;
/// `gsshandle4_t`: a GSS context.
pub type GssHandle = Opaque<MAX_GSS>;

xdr::constants! {
    /// `nfs_ftype4`. Unknown values are kept, because CREATE must reject them with BADTYPE.
    pub struct FileType: u32 {
        /// A regular file.
        REGULAR = 1,
        /// A directory.
        DIRECTORY = 2,
        /// A block device.
        BLOCK = 3,
        /// A character device.
        CHARACTER = 4,
        /// A symbolic link.
        LINK = 5,
        /// A socket.
        SOCKET = 6,
        /// A named pipe.
        FIFO = 7,
        /// A directory of named attributes.
        ATTRIBUTE_DIRECTORY = 8,
        /// A named attribute.
        NAMED_ATTRIBUTE = 9,
    }
}

/// `nfstime4`: time since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds to add. RFC 8881 §3.3.1: values of 10⁹ and more are invalid; the receiver checks.
    pub nanoseconds: u32,
}

/// `fsid4`: identifies a file system of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Fsid {
    /// The major part.
    pub major: u64,
    /// The minor part.
    pub minor: u64,
}

/// `change_info4`: a directory's change attribute before and after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct ChangeInfo {
    /// Whether both values are atomic with the operation.
    pub atomic: bool,
    /// Before the operation.
    pub before: ChangeId,
    /// After the operation.
    pub after: ChangeId,
}

/// `specdata4`: device numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct SpecData {
    /// `specdata1`: major number.
    pub major: u32,
    /// `specdata2`: minor number.
    pub minor: u32,
}

/// `stateid4`: identifies an open, a lock, a delegation or a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct Stateid {
    /// Counts changes of the state; 0 means the current one (RFC 8881 §8.2.2).
    pub seqid: u32,
    /// Identifies the state.
    pub other: [u8; 12],
}

impl Stateid {
    /// RFC 8881 §8.2.3: the anonymous stateid, "all zeros", for I/O without an open.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// RFC 8881 §8.2.3: "all ones": a READ may bypass locks. For WRITE it is the anonymous stateid.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// RFC 8881 §8.2.3: the current stateid of the compound (`seqid` 1, `other` zeros; v4.1).
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// RFC 8881 §8.2.3: never valid (`seqid` `NFS4_UINT32_MAX`, `other` zeros; v4.1).
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    /// Returns whether this is a special or reserved value of RFC 8881 §8.2.3: `other` is all zeros or all ones.
    #[must_use]
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

/// `state_owner4`, also as `open_owner4` and `lock_owner4`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct StateOwner {
    /// The owner's client. v4.1 ignores it, because the session identifies the client (RFC 8881 §18.16.3).
    pub client_id: ClientId,
    /// The client's identifier for a process or similar.
    pub owner: Opaque<OPAQUE_LIMIT>,
}

/// `client_owner4` (v4.1) and, with the same fields, `nfs_client_id4` (v4.0).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct ClientOwner {
    /// Changes with each restart of the client.
    pub verifier: Verifier,
    /// The client's identifier, constant over restarts.
    pub owner_id: Opaque<OPAQUE_LIMIT>,
}

/// `server_owner4`: connections with equal values can share a session or a client ID (RFC 8881 §2.10.5).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct ServerOwner {
    /// Connections with equal values can share sessions.
    pub minor_id: u64,
    /// Equal values mean the same server.
    pub major_id: Opaque<OPAQUE_LIMIT>,
}

/// `nfs_impl_id4`: name and version of an implementation, for information.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct ImplementationId {
    /// DNS domain of the implementor.
    pub domain: Utf8,
    /// Product and version.
    pub name: Utf8,
    /// Build time.
    pub date: Time,
}

/// `netaddr4`, also `clientaddr4`: a network and a universal address (RFC 5665).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct NetAddress {
    /// `na_r_netid`: `tcp`, `tcp6`, `rdma`, …
    pub netid: Utf8,
    /// `na_r_addr`: `10.0.0.1.8.1` for port 2049.
    pub address: Utf8,
}

/// `netloc4`: the location of another server (v4.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum NetLocation {
    /// `NL4_NAME`: a host name.
    #[xdr(case = 1)]
    Name(Utf8),
    /// `NL4_URL`: an NFS URL.
    #[xdr(case = 2)]
    Url(Utf8),
    /// `NL4_NETADDR`: an address.
    #[xdr(case = 3)]
    Address(NetAddress),
}

/// `stable_how4`: the stability of written data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum StableHow {
    /// Data may be in memory only until a COMMIT.
    Unstable = 0,
    /// The data, and the metadata to retrieve them, are on stable storage.
    DataSync = 1,
    /// All data and metadata are on stable storage.
    FileSync = 2,
}

/// `write_response4`: the result of a COPY or WRITE_SAME (v4.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteResponse {
    /// Identifies an operation that continues in the background. CB_OFFLOAD reports its end.
    pub callback_id: List<Stateid, 1>,
    /// Bytes written so far.
    pub count: u64,
    /// The stability of the data.
    pub committed: StableHow,
    /// The write verifier, as in WRITE.
    pub verifier: Verifier,
}

flags! {
    /// `mode4`: POSIX permission bits.
    pub struct Mode {
        /// `MODE4_SUID`.
        SUID = 0x800,
        /// `MODE4_SGID`.
        SGID = 0x400,
        /// `MODE4_SVTX`.
        SVTX = 0x200,
        /// `MODE4_RUSR`.
        RUSR = 0x100,
        /// `MODE4_WUSR`.
        WUSR = 0x080,
        /// `MODE4_XUSR`.
        XUSR = 0x040,
        /// `MODE4_RGRP`.
        RGRP = 0x020,
        /// `MODE4_WGRP`.
        WGRP = 0x010,
        /// `MODE4_XGRP`.
        XGRP = 0x008,
        /// `MODE4_ROTH`.
        ROTH = 0x004,
        /// `MODE4_WOTH`.
        WOTH = 0x002,
        /// `MODE4_XOTH`.
        XOTH = 0x001,
    }
}
