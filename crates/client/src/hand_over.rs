//! The state of a client that another process continues: its identity at the server, opens, locks, and the inodes that a kernel knows.
//!
//! The other process takes the client's name and verifier, so that the server gives it the same client ID (RFC 8881 §18.35.4, RFC 7530
//! §16.33.5), and a session of its own. Stateids belong to the client ID: they stay valid. Caches are not part of the state, and
//! written data are sent before.
//!
//! These are plain values; the modules that have the state fill them in and take them.

use serde::{Deserialize, Serialize};

/// Bytes as hexadecimal digits.
mod hex {
    use std::fmt::Write as _;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) {
            return Err(D::Error::custom("an odd number of digits"));
        }
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or_default(), 16);
        digits.chunks(2).map(|pair| byte(pair).map_err(D::Error::custom)).collect()
    }
}

/// Who a client is for its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The minor version of version 4; none for version 3.
    pub minor: Option<u32>,
    /// The client's name ([`Config::owner`](crate::config::Config::owner)).
    #[serde(with = "hex")]
    pub owner: Vec<u8>,
    /// The number of its start.
    pub verifier: [u8; 8],
    /// This machine's name for NLM.
    #[serde(with = "hex")]
    pub host_name: Vec<u8>,
    /// The client ID of version 4.
    pub client_id: Option<u64>,
}

/// The caller of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerState {
    /// The flavor of its credential.
    pub flavor: u32,
    /// The credential.
    #[serde(with = "hex")]
    pub body: Vec<u8>,
}

/// A stateid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateidState {
    /// Its seqid.
    pub seqid: u32,
    /// The rest.
    pub other: [u8; 12],
}

/// The state of a client at its server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClientState {
    /// Number of files opened so far: their numbers are not used again.
    pub files_opened: u64,
    /// The last number of an open-owner of version 4.
    pub last_open_owner: u32,
    /// The last number of a lock owner: of version 4, or in version 3 of NLM.
    pub last_lock_owner: u64,
    /// Opens of version 4.
    pub opens: Vec<OpenState>,
    /// Owners of locks.
    pub lockers: Vec<LockerState>,
}

/// A name in a directory, which has a handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The handle of the directory.
    #[serde(with = "hex")]
    pub directory: Vec<u8>,
    /// The name.
    #[serde(with = "hex")]
    pub name: Vec<u8>,
}

/// An open of version 4.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenState {
    /// Its number in the client.
    pub number: u32,
    /// The number of its open-owner.
    pub owner: u32,
    /// The seqid of the owner's next request in 4.0.
    pub seqid: Option<u32>,
    /// The file.
    #[serde(with = "hex")]
    pub handle: Vec<u8>,
    /// The name by which it was opened.
    pub location: Option<Location>,
    /// Whether it is read.
    pub read: bool,
    /// Whether it is written.
    pub write: bool,
    /// The caller.
    pub caller: CallerState,
    /// The stateid.
    pub stateid: StateidState,
    /// The status for which the open is lost.
    pub lost: Option<u32>,
    /// Whether bytes were ever locked through it.
    pub has_been_locked: bool,
}

/// The owner of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnerState {
    /// Whether it is an open file (flock), not a process.
    pub is_file: bool,
    /// Its number.
    pub number: u64,
}

/// A range that is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeState {
    /// The first byte.
    pub first: u64,
    /// The last byte; `u64::MAX` for a range without end.
    pub last: u64,
    /// Whether the lock is exclusive.
    pub is_exclusive: bool,
    /// The open through which it was locked; unused in version 3.
    pub open: u32,
}

/// An owner of locks on one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockerState {
    /// The file.
    #[serde(with = "hex")]
    pub handle: Vec<u8>,
    /// The owner.
    pub owner: OwnerState,
    /// The number by which the server knows it.
    pub number: u64,
    /// The seqid of its next request in 4.0.
    pub seqid: Option<u32>,
    /// The caller of its last LOCK in version 3.
    pub caller: Option<CallerState>,
    /// Ranges that the server has.
    pub held: Vec<RangeState>,
    /// Ranges that the server dropped.
    pub lost: Vec<RangeState>,
    /// The lock stateid of each open through which it has locked.
    pub stateids: Vec<(u32, StateidState)>,
}

/// The inodes of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountState {
    /// The handle of the root.
    #[serde(with = "hex")]
    pub root: Vec<u8>,
    /// The last number of an inode.
    pub last_inode: u64,
    /// The number of the next name of an open file without a name.
    pub next_hidden: u32,
    /// The inodes, in the order of their numbers.
    pub inodes: Vec<InodeState>,
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeState {
    /// Its number.
    pub id: u64,
    /// Its handle.
    #[serde(with = "hex")]
    pub handle: Vec<u8>,
    /// Its type, as in `nfs_ftype4`.
    pub kind: u8,
    /// The directory and the name under which it was found last.
    pub name: Option<NameState>,
    /// The name that only keeps it while it is open.
    pub hidden: Option<HiddenState>,
}

/// A name in a directory, which is an inode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameState {
    /// The directory's number.
    pub directory: u64,
    /// The name.
    #[serde(with = "hex")]
    pub name: Vec<u8>,
}

/// A name that only keeps an open file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenState {
    /// Where it is.
    #[serde(flatten)]
    pub at: NameState,
    /// The caller that removes it.
    pub caller: CallerState,
}

/// An open file description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The number of the inode.
    pub inode: u64,
    /// The file's number in its file system.
    pub fileid: u64,
    /// The caller.
    pub caller: CallerState,
    /// Whether it is read.
    pub read: bool,
    /// Whether it is written.
    pub write: bool,
    /// 0: data may be lost until a COMMIT; 1: O_DSYNC; 2: O_SYNC.
    pub stability: u8,
    /// Whether it bypasses the cache.
    pub direct: bool,
    /// Its number in the client, which is the owner of its flock.
    pub number: u64,
    /// The number of its open in version 4.
    pub open: Option<u32>,
    /// Whether the server keeps the file while it is open although its last name is removed.
    pub preserves_unlinked: bool,
    /// Owners that may have locked something through it.
    pub lock_owners: Vec<OwnerState>,
    /// The error number of earlier writes that was not reported yet.
    pub error: Option<i32>,
}

/// An open directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryState {
    /// The number of the inode.
    pub inode: u64,
    /// The verifier of its cookies.
    pub verifier: [u8; 8],
}
