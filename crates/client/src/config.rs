//! The configuration of a client.

use core::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpc::auth::{AuthFlavor, AuthSys, OpaqueAuth};
use xdr::Opaque;

use crate::block_store::BlockStore;
use crate::cache::attributes::Timeouts;
use crate::cache::limiter::{Budget, Limiter};
use crate::cache::metadata::Options as MetadataOptions;
use crate::cache::names::LookupCache;
use crate::engine::RetryPolicy;
use crate::errno::Errno;
use crate::error::OpError;
use crate::hand_over::CallerState;
use crate::url::{self, LocalLock, Options, Transport};
pub use crate::url::{SLOTS_MAX, V3_CALLS_MAX};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// NFS version 2 (RFC 1094).
    V2,
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
    /// All versions that are tried, highest first. Version 2 is used only on request.
    pub const ALL: [Self; 4] = [Self::V42, Self::V41, Self::V40, Self::V3];

    /// Returns the minor version of version 4; `None` for versions 2 and 3, which keep no state.
    #[must_use]
    pub const fn minor(self) -> Option<u32> {
        match self {
            Self::V2 | Self::V3 => None,
            Self::V40 => Some(0),
            Self::V41 => Some(1),
            Self::V42 => Some(2),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V2 => "2",
            Self::V3 => "3",
            Self::V40 => "4.0",
            Self::V41 => "4.1",
            Self::V42 => "4.2",
        })
    }
}

/// The caller for whom a call is made.
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

    /// Returns the user of an AUTH_SYS credential.
    pub(crate) fn uid(&self) -> Option<u32> {
        let body = self.0.body.to_vec();
        (self.0.flavor == AuthFlavor::SYS)
            .then(|| xdr::from_bytes::<AuthSys>(body).ok())
            .flatten()
            .map(|sys| sys.uid)
    }

    pub(crate) fn credential(&self) -> &OpaqueAuth {
        &self.0
    }

    /// Returns the caller as plain values, for another process.
    #[must_use]
    pub fn state(&self) -> CallerState {
        CallerState { flavor: self.0.flavor.0, body: self.0.body.to_vec() }
    }

    /// Returns the caller that another process had.
    ///
    /// # Errors
    /// EINVAL if the credential is too long.
    pub fn from_state(state: CallerState) -> Result<Self, OpError> {
        let body = Opaque::new(Bytes::from(state.body));
        let body = body.map_err(|_| OpError::Invalid(Errno::EINVAL, "a credential that is too long"))?;
        Ok(Self(OpaqueAuth { flavor: AuthFlavor(state.flavor), body }))
    }
}

/// The usual maximum of calls in flight in versions 3 and 4.0, which have no slots.
pub const V3_CALLS: u32 = 128;
/// Time for which a client that ends repeats what a server refuses.
pub(crate) const LEAVE_MAX: Duration = Duration::from_secs(10);
/// The usual pause before the repetition of a call that the server answered with JUKEBOX, as in Linux.
pub const JUKEBOX_PAUSE: Duration = Duration::from_secs(5);
/// Maximum bytes of one READ or WRITE.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// Maximum bytes of one READ or WRITE over UDP, as in Linux: a datagram has less than 64 KiB.
pub const DATAGRAM_TRANSFER_MAX: u32 = 32 << 10;
/// The usual bytes of one READ or WRITE over UDP. One lost fragment loses all of a datagram.
const DATAGRAM_TRANSFER: u32 = 8 << 10;

impl Config {
    /// Returns the usual configuration: the highest version that the server has at the usual port, one connection,
    /// unlimited retransmission of requests, and caches with a budget of [`MEMORY_DEFAULT`]. `server` is a name for messages,
    /// `owner` the client's own name, at most 1,024 bytes; `verifier` must differ at each start.
    #[must_use]
    pub fn new(server: &str, owner: &[u8], verifier: [u8; 8], machine: Caller) -> Self {
        Self {
            server: server.into(),
            port: protocol::nfs3::PORT,
            mount_port: None,
            nlm_port: None,
            version: None,
            transport: Transport::Tcp,
            mount_transport: Transport::Tcp,
            retry: RetryPolicy::default(),
            jukebox_pause: JUKEBOX_PAUSE,
            connections: 1,
            owner: Bytes::copy_from_slice(owner),
            host_name: Bytes::copy_from_slice(owner),
            verifier,
            continues: None,
            machine,
            slots: SLOTS_MAX,
            v3_calls: V3_CALLS,
            read_size: TRANSFER_MAX,
            write_size: TRANSFER_MAX,
            local_lock: LocalLock::None,
            callbacks: CallbackAddress::default(),
            caches: Caches::default(),
        }
    }

    /// Applies the options of a URL that concern a client and its connections. Version, timeouts and caches are left to the
    /// caller, whose defaults differ.
    #[must_use]
    pub fn with_options(self, options: &Options) -> Self {
        let transport = options.transport.unwrap_or(self.transport);
        let size = |given: Option<u32>, own: u32| match transport {
            Transport::Tcp => given.unwrap_or(own).min(TRANSFER_MAX),
            Transport::Udp => given.unwrap_or(DATAGRAM_TRANSFER).min(DATAGRAM_TRANSFER_MAX),
        };
        Self {
            transport,
            mount_transport: options.mount_transport.unwrap_or(transport),
            port: options.port.unwrap_or(self.port),
            mount_port: options.mount_port.or(self.mount_port),
            nlm_port: options.nlm_port.or(self.nlm_port),
            connections: options.connections.map_or(self.connections, |connections| connections as usize),
            slots: options.slots.unwrap_or(self.slots),
            v3_calls: options.v3_calls.unwrap_or(self.v3_calls),
            read_size: size(options.read_size, self.read_size),
            write_size: size(options.write_size, self.write_size),
            local_lock: options.local_lock.unwrap_or(self.local_lock),
            jukebox_pause: options.jukebox_deciseconds.map_or(self.jukebox_pause, deciseconds),
            callbacks: CallbackAddress {
                accepts: options.delegations.unwrap_or(self.callbacks.accepts),
                address: options.client_address.or(self.callbacks.address),
                port: options.callback_port.or(self.callbacks.port),
            },
            ..self
        }
    }

    /// Returns the maximum bytes of one READ, WRITE or part of a listing that the transport can carry.
    pub(crate) fn transfer_max(&self) -> u32 {
        match self.transport {
            Transport::Tcp => u32::MAX,
            Transport::Udp => DATAGRAM_TRANSFER_MAX,
        }
    }
}

/// Returns a time that was given in tenths of a second.
fn deciseconds(tenths: u32) -> Duration {
    Duration::from_millis(u64::from(tenths) * 100)
}

/// The configuration of a client. Random values and names come from the caller.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server's name for messages.
    pub server: Arc<str>,
    /// The server's NFS port.
    pub port: u16,
    /// The port of MOUNT; `None`: ask the port mapper.
    pub mount_port: Option<u16>,
    /// The port of the lock manager of version 3; `None`: ask the port mapper.
    pub nlm_port: Option<u16>,
    /// The version; `None`: the highest that the server has.
    pub version: Option<Version>,
    /// The transport of calls, also those of the lock manager of versions 2 and 3. Version 4 has no UDP.
    pub transport: Transport,
    /// How calls of MOUNT and of the port mapper travel.
    pub mount_transport: Transport,
    /// The timeout of the server's answers.
    pub retry: RetryPolicy,
    /// The pause before the repetition of a call that a server of version 3 answered with JUKEBOX (`jukebox=`): the file may be on a tape.
    pub jukebox_pause: Duration,
    /// Number of connections (`nconnect`), from 1 to 16.
    pub connections: usize,
    /// `co_ownerid` or SETCLIENTID's `id`: unique to this client, and the same for all its sessions.
    pub owner: Bytes,
    /// The name of this machine for the lock manager of version 3, of which 255 bytes count. Some servers look it up to call back.
    pub host_name: Bytes,
    /// Different for each start of the client, so that the server drops the state of the last one.
    pub verifier: [u8; 8],
    /// The client ID of the process that this client continues. Another one is an error until it has that process's state.
    pub continues: Option<u64>,
    /// The principal of the client itself.
    pub machine: Caller,
    /// Slots to request, at most [`SLOTS_MAX`].
    pub slots: u32,
    /// Maximum of calls in flight in versions 3 and 4.0, which have no slots.
    pub v3_calls: u32,
    /// Maximum bytes of a READ (`rsize`), at most [`TRANSFER_MAX`].
    pub read_size: u32,
    /// Maximum bytes of a WRITE (`wsize`), at most [`TRANSFER_MAX`].
    pub write_size: u32,
    /// The locks of version 3 that are kept on this machine (`local_lock=`, `nolock`). Others are the server's (NLM).
    pub local_lock: LocalLock,
    /// Where the server calls back in version 4.0.
    pub callbacks: CallbackAddress,
    /// The caches of files.
    pub caches: Caches,
}

/// Where the server calls this client back in version 4.0, if delegations are used: it makes a connection of its own for that. Later
/// versions use the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallbackAddress {
    /// The address that the client announces to the server (`clientaddr=`); `None`: that of the connection to the server. The address 0.0.0.0 or `::`
    /// says that it cannot call.
    pub address: Option<IpAddr>,
    /// Whether the server may call. The client then listens at a port, so this is off unless asked for (`delegations`).
    pub accepts: bool,
    /// The port to listen at (`callback_port=`); `None`: any.
    pub port: Option<u16>,
}

/// The budget in bytes if the amount of memory is unknown.
pub const MEMORY_DEFAULT: u64 = 64 << 20;

/// The use of memory by a client.
#[derive(Debug, Clone)]
pub struct Caches {
    /// The budget of the process: all its clients share one. A quarter of the machine's memory, at most 256 MiB, is sensible.
    pub memory: Limiter,
    /// Attributes, names and listings.
    pub metadata: MetadataOptions,
    /// Whether data are cached, read ahead and written behind. Otherwise every file behaves as if opened with O_DIRECT.
    pub data: bool,
    /// Whether delegations are used (version 4; in 4.0 also [`CallbackAddress::accepts`]). Needs `data`.
    pub delegations: bool,
    /// Where blocks of files are kept that must leave memory, also for later clients. Needs `data`.
    pub blocks: Option<Arc<dyn BlockStore>>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            memory: Limiter::new(Budget::new(MEMORY_DEFAULT)),
            metadata: MetadataOptions::default(),
            data: true,
            delegations: true,
            blocks: None,
        }
    }
}

impl Caches {
    /// Takes the options of a mount (`acregmin`, …, `noac`, `lookupcache`, `nordirplus`, `nocto`), and the budget of the process.
    #[must_use]
    pub fn new(memory: Limiter, options: &Options) -> Self {
        let default = Timeouts::default();
        let seconds = |given: Option<u32>, default: Duration| {
            given.map_or(default, |seconds| Duration::from_secs(seconds.into()))
        };
        let timeouts = match options.attribute_cache {
            Some(false) => Timeouts::noac(),
            _ => Timeouts {
                acregmin: seconds(options.file_attributes_min_seconds, default.acregmin),
                acregmax: seconds(options.file_attributes_max_seconds, default.acregmax),
                acdirmin: seconds(options.directory_attributes_min_seconds, default.acdirmin),
                acdirmax: seconds(options.directory_attributes_max_seconds, default.acdirmax),
            },
        };
        let lookup = match options.lookup_cache {
            None | Some(url::LookupCache::All) => LookupCache::All,
            Some(url::LookupCache::Positive) => LookupCache::Positive,
            Some(url::LookupCache::None) => LookupCache::None,
        };
        let readdirplus = options.readdir_plus != Some(url::ReaddirPlus::Never);
        let close_to_open = options.close_to_open != Some(false);
        // nfs(5) on `noac`: it "forces application writes to become synchronous so that local changes to a file become visible
        // on the server immediately".
        let data = options.attribute_cache != Some(false);
        let delegations = data && options.delegations != Some(false);
        let metadata = MetadataOptions { timeouts, lookup, readdirplus, close_to_open };
        Self { memory, metadata, data, delegations, blocks: None }
    }

    /// Returns a configuration without caches and without write-behind.
    #[must_use]
    pub fn none() -> Self {
        let metadata = MetadataOptions {
            timeouts: Timeouts::noac(),
            lookup: LookupCache::None,
            ..MetadataOptions::default()
        };
        Self { metadata, data: false, delegations: false, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_mount_set_the_caches() {
        let caches = |list: &str| {
            let mut options = Options::default();
            options.apply_list(list).unwrap();
            Caches::new(Limiter::new(Budget::new(0)), &options)
        };
        assert_eq!((caches("").data, caches("actimeo=0").data, caches("noac").data), (true, true, false));
        let delegations = ["", "delegations", "nodelegations", "noac", "noac,delegations"]
            .map(|list| caches(list).delegations);
        assert_eq!(delegations, [true, true, false, false, false]);
        let caches = |list: &str| caches(list).metadata;
        assert_eq!(caches(""), MetadataOptions::default());
        assert_eq!(caches("noac").timeouts, Timeouts::noac());
        assert_eq!(caches("actimeo=7").timeouts, Timeouts::actimeo(Duration::from_secs(7)));
        let given = caches("acregmin=1,acdirmax=99,lookupcache=pos,nordirplus,nocto");
        let timeouts = Timeouts {
            acregmin: Duration::from_secs(1),
            acdirmax: Duration::from_secs(99),
            ..Timeouts::default()
        };
        let lookup = LookupCache::Positive;
        assert_eq!(given, MetadataOptions { timeouts, lookup, readdirplus: false, close_to_open: false });
    }

    #[test]
    fn options_of_a_url_set_the_client() {
        let pause = |list: &str| {
            let mut options = Options::default();
            options.apply_list(list).unwrap();
            let machine = Caller::from_state(CallerState { flavor: 0, body: Vec::new() }).unwrap();
            Config::new("server", b"test", [1; 8], machine).with_options(&options).jukebox_pause
        };
        assert_eq!((pause(""), pause("jukebox=3")), (JUKEBOX_PAUSE, Duration::from_millis(300)));
    }
}
