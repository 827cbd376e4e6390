//! What a client is made with.

use std::sync::Arc;

use bytes::Bytes;
use rpc::auth::{AuthSys, OpaqueAuth};

use crate::engine::RetryPolicy;
use crate::url::LocalLock;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// NFS version 3 (RFC 1813).
    V3,
    /// NFS version 4.0 (RFC 7530).
    V40,
    /// NFS version 4.1 (RFC 8881).
    V41,
    /// NFS version 4.2 (RFC 7862).
    V42,
}

impl Version {
    /// All versions, highest first, as they are tried.
    pub const ALL: [Self; 4] = [Self::V42, Self::V41, Self::V40, Self::V3];

    /// Returns the minor version of version 4; `None` for version 3.
    #[must_use]
    pub const fn minor(self) -> Option<u32> {
        match self {
            Self::V3 => None,
            Self::V40 => Some(0),
            Self::V41 => Some(1),
            Self::V42 => Some(2),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V3 => "3",
            Self::V40 => "4.0",
            Self::V41 => "4.1",
            Self::V42 => "4.2",
        })
    }
}

/// Who a call is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(OpaqueAuth);

impl Caller {
    /// Creates a caller with AUTH_SYS.
    #[must_use]
    pub fn sys(credential: &AuthSys) -> Self {
        Self(OpaqueAuth::sys(credential))
    }

    /// Creates a caller without identity (AUTH_NONE).
    #[must_use]
    pub fn anonymous() -> Self {
        Self(OpaqueAuth::NONE)
    }

    pub(crate) fn credential(&self) -> &OpaqueAuth {
        &self.0
    }
}

/// Maximum number of slots of a session.
pub const SLOTS_MAX: u32 = 1024;
/// The usual maximum of version 3's calls in flight.
pub const V3_CALLS: u32 = 128;
/// Maximum bytes of one READ or WRITE.
pub const TRANSFER_MAX: u32 = 1 << 20;

impl Config {
    /// Returns what most clients are made with: the highest version that the server has at the usual port, one connection,
    /// requests that are repeated until the server answers. `server` is a name for messages, `owner` the client's own name, at most
    /// 1,024 bytes; `verifier` must differ at each start.
    #[must_use]
    pub fn new(server: &str, owner: &[u8], verifier: [u8; 8], machine: Caller) -> Self {
        Self {
            server: server.into(),
            port: protocol::nfs3::PORT,
            mount_port: None,
            version: None,
            retry: RetryPolicy::default(),
            connections: 1,
            owner: Bytes::copy_from_slice(owner),
            verifier,
            machine,
            slots: SLOTS_MAX,
            v3_calls: V3_CALLS,
            read_size: TRANSFER_MAX,
            write_size: TRANSFER_MAX,
            local_lock: LocalLock::None,
        }
    }
}

/// What a client is made with. Random values and names come from outside.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server's name for messages.
    pub server: Arc<str>,
    /// The server's NFS port.
    pub port: u16,
    /// The port of MOUNT; `None`: the port mapper is asked.
    pub mount_port: Option<u16>,
    /// The version; `None`: the highest that the server has.
    pub version: Option<Version>,
    /// How long the server may stay silent.
    pub retry: RetryPolicy,
    /// Number of connections (`nconnect`), from 1 to 16.
    pub connections: usize,
    /// `co_ownerid` or SETCLIENTID's `id`: unique to this client, and the same for all its sessions.
    pub owner: Bytes,
    /// Different for each start of the client, so that the server drops the state of the last one.
    pub verifier: [u8; 8],
    /// The principal of the client itself.
    pub machine: Caller,
    /// Slots to ask for, at most [`SLOTS_MAX`].
    pub slots: u32,
    /// Maximum of version 3's calls in flight.
    pub v3_calls: u32,
    /// Maximum bytes of a READ (`rsize`), at most [`TRANSFER_MAX`].
    pub read_size: u32,
    /// Maximum bytes of a WRITE (`wsize`), at most [`TRANSFER_MAX`].
    pub write_size: u32,
    /// Which locks of version 3 are kept on this machine (`local_lock=`, `nolock`). Others fail with ENOLCK.
    pub local_lock: LocalLock,
}
