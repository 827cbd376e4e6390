use std::sync::Arc;
use std::time::Duration;

use crate::gss_mechanism::Mechanism;
use crate::{HandleKey, IdNames, Network, Versions};

/// The settings of a server, given at its start. Random values come from outside, so that a run can be repeated.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Authenticates file handles. Must be the same over restarts, or every handle becomes stale.
    pub handle_key: HandleKey,
    /// Different at every start: distinguishes its NFSv4 client ids and stateids from those of other instances.
    pub instance: u64,
    /// Unpredictable at every start: seeds session ids and verifiers.
    pub secret: [u8; 16],
    /// `so_major_id` and `eir_server_scope` (RFC 8881 §2.10.4): the same over restarts, unique to this server.
    pub server_name: Vec<u8>,
    /// Versions that are served.
    pub versions: Versions,
    /// Whether locks of clients of versions 2 and 3 are served (NLM and NSM).
    pub nlm: bool,
    /// The port of NLM, if it is not that of NFS.
    pub nlm_port: Option<u16>,
    /// The port of the status monitor, if it is not that of NFS.
    pub nsm_port: Option<u16>,
    /// The name by which clients know this host: in `SM_NOTIFY`.
    pub host_name: Vec<u8>,
    /// Whether versions 2 and 3, MOUNT and NFS_ACL are served over UDP too.
    pub udp: bool,
    /// Whether RQUOTA is served over UDP even without [`Self::udp`].
    pub quotas_over_udp: bool,
    /// Names of owners and groups in NFSv4; without them the server sends numbers.
    pub id_names: Option<Arc<IdNames>>,
    /// The mechanism of RPCSEC_GSS; without one that flavor is refused.
    pub gss: Option<Arc<dyn Mechanism>>,
    /// Maximum bytes of a READ or WRITE.
    pub max_io: u32,
    /// Maximum bytes of an RPC record; [`Self::max_io`] and room for the rest of a request.
    pub max_record: u32,
    /// NFSv4 lease time.
    pub lease: Duration,
    /// Memory for cached replies of NFSv3 and NFSv4.0, bytes.
    pub reply_cache_bytes: usize,
    /// Maximum number of slots granted to a session; at least 512 while memory allows.
    pub max_slots: u32,
    /// Slots of all persistent sessions together, and one more for each. Their replies take memory, and up to four times as much of the
    /// log.
    pub max_persistent_slots: usize,
    /// Memory that the slots of all NFSv4.1 sessions and the replies cached in them may pin, bytes; see
    /// [`Self::slot_cache_for`].
    pub slot_cache_bytes: usize,
    /// Memory for the listing cache in bytes, with the kernel's memory for watches; 0 for no cache.
    pub cached_listings_bytes: usize,
    /// The TCP port that the built-in port mapper reports; none without a port mapper.
    pub portmap: Option<u16>,
    /// Maximum number of NFSv4 client records. An eighth more of these, of state and of delegations is reserved for addresses
    /// that have little.
    pub max_clients: usize,
    /// Maximum number of NFSv4 opens, locks and other state of all clients.
    pub max_state: usize,
    /// Maximum number of delegations of all clients; one client gets at most a quarter of them.
    pub max_delegations: usize,
    /// Whether clients may let other servers read files here (COPY_NOTIFY).
    pub copy_source: bool,
    /// Addresses of servers that COPY may read from; none if empty. The client chooses address and port, so this server connects to any port
    /// of these addresses.
    pub copy_from: Vec<Network>,
}

/// Client records kept, unless configured otherwise.
const DEFAULT_CLIENTS: usize = 16_384;
/// Maximum bytes reserved for a session of Linux's client: two slots with replies of 4 KiB, and their overhead.
const SESSION_BYTES: usize = 10 << 10;

impl Settings {
    /// Bytes of a READ or WRITE, unless configured otherwise.
    pub const DEFAULT_MAX_IO: u32 = 1 << 20;
    /// Space for everything except the data in a record: headers, credentials, a compound's other operations.
    pub const RECORD_OVERHEAD: u32 = 64 << 10;

    /// Returns the [`Self::slot_cache_bytes`] for this many clients of one session, and 64 MiB for busy ones. A reservation takes no memory
    /// before it is used.
    #[must_use]
    pub fn slot_cache_for(clients: usize) -> usize {
        (64 << 20) + clients.saturating_mul(SESSION_BYTES)
    }

    /// Returns whether NLM and NSM are served: they are useful only with versions 2 and 3.
    #[must_use]
    pub fn serves_nlm(&self) -> bool {
        self.nlm && self.versions.intersects(Versions::V2.union(Versions::V3))
    }

    /// Returns default settings around the values that have no default.
    #[must_use]
    pub fn new(handle_key: HandleKey, instance: u64, secret: [u8; 16], server_name: Vec<u8>) -> Self {
        Self {
            handle_key,
            instance,
            secret,
            server_name,
            versions: Versions::DEFAULT,
            nlm: true,
            nlm_port: None,
            nsm_port: None,
            host_name: b"localhost".to_vec(),
            udp: false,
            quotas_over_udp: false,
            id_names: None,
            gss: None,
            max_io: Self::DEFAULT_MAX_IO,
            max_record: Self::DEFAULT_MAX_IO + Self::RECORD_OVERHEAD,
            lease: Duration::from_secs(90),
            reply_cache_bytes: 8 << 20,
            max_slots: 1024,
            // 252 clients of 64 slots, as Linux's are.
            max_persistent_slots: 16_384,
            slot_cache_bytes: Self::slot_cache_for(DEFAULT_CLIENTS),
            cached_listings_bytes: 64 << 20,
            portmap: None,
            max_clients: DEFAULT_CLIENTS,
            max_state: 1 << 20,
            max_delegations: 1 << 17,
            copy_source: false,
            copy_from: Vec::new(),
        }
    }
}
