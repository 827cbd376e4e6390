//! The keys of a configuration file, and the ranges of their values.

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::locations::KeyLocations;
use crate::address::Address;

/// The contents of a configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Addresses to listen on.
    pub listen: Vec<Address>,
    /// Address to serve metrics on.
    pub metrics: Option<Address>,
    /// The state directory.
    pub state_dir: Option<PathBuf>,
    /// Whether a server without root privileges serves all users of this machine.
    pub local_users: bool,
    /// Whether to answer port mapper calls.
    pub portmap: bool,
    /// Versions of NFS to serve, named as in mount options. Default: all but version 2.
    pub versions: Option<Vec<String>>,
    /// Whether versions 2 and 3 and MOUNT are served over UDP too.
    pub udp: bool,
    /// Whether clients of versions 2 and 3 can lock files (NLM and NSM). Default: true.
    pub nlm: Option<bool>,
    /// The port of NLM. Default: that of NFS.
    pub nlm_port: Option<NonZeroU16>,
    /// The port of the status monitor. Default: that of NFS.
    pub nsm_port: Option<NonZeroU16>,
    /// Domain of the names of owners and groups in NFSv4. Without it, clients get numbers.
    pub id_domain: Option<String>,
    /// Whether NFSv4.1 sessions survive a restart of the server or its machine.
    pub persistent_sessions: bool,
    /// Whether NFSv4.2 clients may let other servers read files that they can read (COPY_NOTIFY).
    pub copy_source: bool,
    /// Networks of the servers from which NFSv4.2 clients may copy files (COPY). Default: none.
    pub copy_from: Vec<String>,
    /// The keytab with the keys of `nfs/HOST`, for exports with Kerberos. Default: that of the Kerberos library, usually
    /// `/etc/krb5.keytab`.
    pub keytab: Option<PathBuf>,
    /// Whether the server drops privileges that serving does not need. Default: true.
    pub sandbox: Option<bool>,
    /// `[control]`.
    pub control: Control,
    /// `[limits]`.
    pub limits: Limits,
    /// `[[export]]`.
    #[serde(rename = "export")]
    pub exports: Vec<ExportConfig>,
    /// The lines of its keys, for messages.
    #[serde(skip)]
    pub locations: Arc<KeyLocations>,
}

/// `[control]`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Control {
    /// The socket that `enfys status` connects to. Default: `control.sock` in the state directory.
    pub socket: Option<PathBuf>,
}

/// `[limits]`: bounds on the resources that clients can use.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Open connections.
    pub connections: Option<usize>,
    /// Open connections of one address.
    pub connections_per_address: Option<usize>,
    /// Bytes of long requests that arrive or wait, over all connections.
    pub memory_bytes: Option<usize>,
    /// Bytes of a READ or WRITE.
    pub io_bytes: Option<u32>,
    /// Bytes of cached NFSv3 replies.
    pub reply_cache_bytes: Option<usize>,
    /// Bytes of NFSv4.1 slots and the replies cached in them. Default: 64 MiB, and 10 KiB a client.
    pub slot_cache_bytes: Option<usize>,
    /// Bytes of the listing cache and its watches; 0 turns it off.
    pub kept_listings_bytes: Option<usize>,
    /// NFSv4 clients.
    pub clients: Option<usize>,
    /// NFSv4 opens, locks and delegations together.
    pub state: Option<usize>,
    /// NFSv4 delegations of all clients; 0 turns them off.
    pub delegations: Option<usize>,
    /// NFSv4 lease in seconds.
    pub lease_seconds: Option<u32>,
    /// Seconds until the connection of an unreachable peer is closed; at least 9.
    pub silence_seconds: Option<u32>,
    /// Microseconds that a thread polls for the next request before it sleeps (busy poll), if a client sends one request at a
    /// time; 0 turns it off, 1000 at most.
    pub busy_poll_microseconds: Option<u32>,
    /// Serving threads.
    pub cores: Option<usize>,
}

/// The allowed values of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    least: u64,
    /// None: any integer of TOML.
    most: Option<u64>,
}

impl Range {
    const fn from(least: u64) -> Self {
        Self { least, most: None }
    }

    const fn within(least: u64, most: u64) -> Self {
        Self { least, most: Some(most) }
    }

    /// Returns whether the range has this value.
    pub fn contains(&self, value: u64) -> bool {
        value >= self.least && self.most.is_none_or(|most| value <= most)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            Some(most) => write!(f, "an integer from {} to {most}", self.least),
            None => write!(f, "an integer of at least {}", self.least),
        }
    }
}

/// Bytes of a READ or WRITE: at least a page, at most what the wire types decode.
const IO_BYTES: Range = Range::within(4096, 4 << 20);

impl Limits {
    /// Returns key, value and range of each limit.
    pub fn all(&self) -> [(&'static str, Option<u64>, Range); 14] {
        let size = |value: Option<usize>| value.map(|value| value as u64);
        let some = Range::from(1);
        let any = Range::from(0);
        [
            ("connections", size(self.connections), some),
            ("connections-per-address", size(self.connections_per_address), some),
            ("memory-bytes", size(self.memory_bytes), some),
            ("io-bytes", self.io_bytes.map(u64::from), IO_BYTES),
            ("reply-cache-bytes", size(self.reply_cache_bytes), any),
            ("slot-cache-bytes", size(self.slot_cache_bytes), any),
            ("kept-listings-bytes", size(self.kept_listings_bytes), any),
            ("clients", size(self.clients), some),
            ("state", size(self.state), some),
            ("delegations", size(self.delegations), any),
            ("lease-seconds", self.lease_seconds.map(u64::from), Range::within(1, 3600)),
            ("silence-seconds", self.silence_seconds.map(u64::from), Range::within(9, 3600)),
            ("busy-poll-microseconds", self.busy_poll_microseconds.map(u64::from), Range::within(0, 1000)),
            ("cores", size(self.cores), some),
        ]
    }
}

/// `squash = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SquashConfig {
    /// Root is mapped to the anonymous user.
    Root,
    /// Every user is.
    All,
    /// No user is.
    None,
}

/// `local-changes = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalChangesConfig {
    /// Changes by local processes recall delegations, where the server can see them.
    Recall,
    /// The server does not watch for them.
    Ignore,
}

/// `v2-large-files = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LargeFilesConfig {
    /// Calls that name them fail.
    Refuse,
    /// Clients see the first bytes, as many as their sizes can express.
    Clamp,
}

/// `lost-journal = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LostJournalConfig {
    /// The server does not start.
    Refuse,
    /// The server starts without the changes that only the journal had.
    Ignore,
}

/// `submounts = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubmountsConfig {
    /// Clients cannot enter file systems that are mounted inside the export.
    Hide,
    /// Clients can enter them.
    Serve,
}

/// `[[export.client]]`: options for some clients. The default of each key is the export's own value.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ClientConfig {
    /// The clients.
    pub clients: Vec<String>,
    /// Whether changes are refused.
    pub read_only: Option<bool>,
    /// Which users are mapped to the anonymous user.
    pub squash: Option<SquashConfig>,
    /// User ID of the anonymous user.
    pub anonymous_uid: Option<u32>,
    /// Group ID of the anonymous user.
    pub anonymous_gid: Option<u32>,
    /// Allowed security flavors, the most preferred first.
    pub sec: Option<Vec<String>>,
    /// Whether AUTH_SYS is accepted from any port.
    pub insecure: Option<bool>,
}

/// `[[export]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ExportConfig {
    /// The directory; none for a file system in memory.
    pub path: Option<PathBuf>,
    /// Whether it is a file system in memory.
    pub memory: bool,
    /// Size of a file system in memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Bytes of one user other than root in it.
    pub quota_bytes: Option<u64>,
    /// The path that clients mount.
    pub pseudo: Option<String>,
    /// The servers that have the files, if this one does not: `HOST:/PATH` each.
    pub referral: Option<Vec<String>>,
    /// Other servers that have the same files: `HOST:/PATH` each.
    pub replicas: Option<Vec<String>>,
    /// Its number in file handles. Default: a hash of path and file system.
    pub id: Option<u32>,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Which users are mapped to the anonymous user.
    pub squash: Option<SquashConfig>,
    /// User ID of the anonymous user.
    pub anonymous_uid: Option<u32>,
    /// Group ID of the anonymous user.
    pub anonymous_gid: Option<u32>,
    /// Clients that may mount it. Default: all.
    pub clients: Vec<String>,
    /// Allowed security flavors, the most preferred first. Default: `sys`.
    pub sec: Option<Vec<String>>,
    /// Whether AUTH_SYS is accepted from any port of other machines.
    pub insecure: bool,
    /// Whether version 3 has handles of 32 bytes, like version 2, for boot loaders that cut longer ones off.
    pub short_handles: bool,
    /// The treatment by version 2 of files that exceed its sizes. Default: refuse.
    pub v2_large_files: Option<LargeFilesConfig>,
    /// Whether clients of version 2 take sizes as signed numbers, so that files have 2 GiB - 1 at most.
    pub v2_signed_sizes: bool,
    /// The extended attribute that marks files whose content is offline.
    pub offline_xattr: Option<String>,
    /// The command that recalls such a file; its path is added as the last argument.
    pub offline_recall: Option<Vec<String>>,
    /// The number of such commands at once. Default: 4.
    pub offline_recalls: Option<usize>,
    /// The time of such a command, in seconds. Default: 600.
    pub offline_recall_seconds: Option<u64>,
    /// Whether to reply before data are on stable storage.
    pub r#async: bool,
    /// A file on a fast device: small changes are answered when they are there.
    pub journal: Option<PathBuf>,
    /// Bytes of a new journal. Default: 64 MiB.
    pub journal_bytes: Option<u64>,
    /// The start if the journal is missing or damaged. Default: refuse.
    pub lost_journal: Option<LostJournalConfig>,
    /// Other options for some clients.
    pub client: Vec<ClientConfig>,
    /// The effect of changes by local processes on delegations. Default: recall.
    pub local_changes: Option<LocalChangesConfig>,
    /// The view of clients where another file system is mounted inside the directory. Default: hide.
    pub submounts: Option<SubmountsConfig>,
}
