//! The messages on the control socket. Numbers are current values or counts since the start, with units in their names. Secrets
//! (session IDs, stateids, verifiers, keys) are not part of them.

use serde::{Deserialize, Serialize};

use crate::figures::{DelegationFigures, Totals};

/// The version of the protocol. Both sides refuse another one, and name it.
pub const VERSION: u32 = 1;

/// Maximum number of bytes of a request: a path, and some more.
pub const MAX_REQUEST: usize = 64 << 10;
/// Maximum number of bytes of a response: 10,000 clients with the longest names and some sessions.
pub const MAX_RESPONSE: u64 = 256 << 20;
/// Maximum number of clients in a response.
pub const MAX_CLIENTS: usize = 10_000;

/// The command of a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Show clients and statistics.
    Status,
    /// Remove a client and all its state.
    Evict {
        /// Its id, address or name.
        client: String,
    },
    /// Recall a file's delegations.
    Recall {
        /// `/EXPORT/DIRECTORY/FILE`.
        file: String,
    },
    /// End the grace period.
    EndGrace,
}

/// The reply to a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To `status`.
    Status(Box<Status>),
    /// To `evict`.
    Evicted(Evicted),
    /// To `recall`.
    Recalled(Recalled),
    /// To `end-grace`: the number of clients that the grace period waited for; none without a grace period.
    GraceEnded(Option<usize>),
    /// The command failed.
    Error(String),
}

/// The state of a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// Name and version of the server.
    pub software: String,
    /// The lease time.
    pub lease_seconds: f64,
    /// The current grace period, if there is one.
    pub grace: Option<Grace>,
    /// The durable records of clients; none without a state directory.
    pub records: Option<Records>,
    /// Persistent sessions; none if they are turned off.
    pub persistence: Option<Persistence>,
    /// Sums over all clients.
    pub totals: Totals,
    /// Recalls of delegations since the start.
    pub recalls: Recalls,
    /// The clients, oldest first.
    pub clients: Vec<Client>,
    /// Number of clients beyond [`MAX_CLIENTS`], which are not listed.
    pub clients_omitted: u64,
    /// Clients of versions 2 and 3 that lock files (NLM), by address and name.
    #[serde(default)]
    pub hosts: Vec<Host>,
}

/// A grace period.
#[derive(Debug, Serialize, Deserialize)]
pub struct Grace {
    /// Longest time until it ends by itself.
    pub seconds_left: f64,
    /// Number of clients that may still reclaim.
    pub clients_waited_for: usize,
    /// Their names, sorted; at most [`MAX_CLIENTS`].
    #[serde(default)]
    pub names: Vec<String>,
}

/// The state of the durable records of clients.
#[derive(Debug, Serialize, Deserialize)]
pub struct Records {
    /// Whether changes reach the disk.
    pub written: bool,
    /// Whether there is space for new clients. Without it, their opens are answered with DELAY.
    pub room: bool,
}

/// The state of persistent sessions.
#[derive(Debug, Serialize, Deserialize)]
pub struct Persistence {
    /// Whether their logs can be written. If not, existing ones end, and no new ones are made.
    pub written: bool,
    /// Maximum number of slots that can be stored, with one more for each session.
    pub places: usize,
    /// Number of these in use.
    pub places_taken: usize,
}

/// Delegations and their recalls since the start.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recalls {
    /// Delegations granted for reading.
    pub granted_read: u64,
    /// Delegations granted for writing.
    pub granted_write: u64,
    /// Delegations of directories granted.
    pub granted_directory: u64,
    /// Recalls and their results.
    #[serde(flatten)]
    pub figures: DelegationFigures,
    /// Mean time from a conflict to the return; none without a return.
    pub mean_seconds: Option<f64>,
    /// Longest of these times.
    pub slowest_seconds: Option<f64>,
}

/// A client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Client {
    /// `0x…`, as `enfys evict` takes it.
    pub id: String,
    /// Its name; bytes that are not printable ASCII as `\xNN`.
    pub name: String,
    /// The principal that created the record: `uid:N`, `gss:NAME` or `anonymous`.
    pub principal: String,
    /// Its last known address.
    pub address: Option<String>,
    /// Its last used version: `4.0` and so on.
    pub protocol: Option<String>,
    /// `unconfirmed`, `active`, or `courteous`: the lease has expired, and its state is kept until another client needs it.
    pub state: String,
    /// Time until its lease expires; 0 if it has.
    pub lease_left_seconds: f64,
    /// Whether it may reclaim state from before the restart.
    pub reclaiming: bool,
    /// Whether the server can call it back: `up`, `untried`, `none`.
    pub callbacks: String,
    /// Requests in progress.
    pub active: u32,
    /// Opens.
    pub opens: u32,
    /// Byte ranges locked.
    pub locks: u32,
    /// Delegations.
    pub delegations: u32,
    /// Revoked state whose loss it has not acknowledged.
    pub lost: u32,
    /// Its sessions.
    pub sessions: Vec<Session>,
}

/// A client of version 2 or 3 that locks files.
#[derive(Debug, Serialize, Deserialize)]
pub struct Host {
    /// `0x…`, as `enfys evict` takes it.
    pub id: String,
    /// The name that its calls give; bytes that are not printable ASCII as `\xNN`.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Whether the server can call it when a lock that it waits for is granted.
    pub reachable: bool,
    /// Byte ranges locked.
    pub locks: u32,
    /// Requests that wait for a lock of another client.
    pub locks_waiting: u32,
}

/// A session.
#[derive(Debug, Serialize, Deserialize)]
pub struct Session {
    /// Bound connections.
    pub connections: usize,
    /// Whether it survives a restart of the server.
    pub persistent: bool,
    /// Slots granted.
    pub slots: u32,
    /// The target for the number of slots that the client should use.
    pub slots_target: u32,
    /// Maximum number of bytes of a reply that a slot keeps.
    pub slot_reply_max_bytes: u32,
    /// Slots with a request in progress.
    pub slots_in_use: u32,
    /// Requests that used the last slot that the client may use.
    pub slots_full: u64,
    /// Requests answered with DELAY because memory for slots was short.
    pub slots_deferred: u64,
    /// Bytes of kept replies.
    pub reply_bytes: u64,
    /// Retransmissions answered with a kept reply.
    pub replayed: u64,
}

/// The state that an evicted client lost.
#[derive(Debug, Serialize, Deserialize)]
pub struct Evicted {
    /// Its ID; none for a client that the grace period waited for and that has not returned.
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether it is a client of version 2 or 3, which has locks alone.
    #[serde(default)]
    pub host: bool,
    /// Sessions.
    pub sessions: usize,
    /// Opens.
    pub opens: u32,
    /// Byte ranges locked.
    pub locks: u32,
    /// Delegations.
    pub delegations: u32,
}

/// The result of a recall.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recalled {
    /// Delegations that are recalled, now or earlier.
    pub recalled: usize,
    /// Revoked delegations of clients with an expired lease.
    pub revoked: usize,
}

impl From<&server::Snapshot> for Status {
    fn from(snapshot: &server::Snapshot) -> Self {
        Self {
            software: concat!("enfys ", env!("CARGO_PKG_VERSION")).into(),
            lease_seconds: snapshot.lease.as_secs_f64(),
            grace: snapshot.grace.as_ref().map(|grace| Grace {
                seconds_left: grace.left.as_secs_f64(),
                clients_waited_for: grace.waiting_for.count,
                names: grace.waiting_for.names.iter().map(|name| name.escape_ascii().to_string()).collect(),
            }),
            records: snapshot
                .records
                .map(|records| Records { written: records.is_written, room: records.has_room }),
            persistence: snapshot.persistence.map(|persistence| Persistence {
                written: persistence.is_usable,
                places: persistence.places,
                places_taken: persistence.places_taken,
            }),
            totals: Totals::from((&snapshot.counts, snapshot.replayed)),
            recalls: Recalls::from(&snapshot.delegations),
            clients: snapshot.clients.iter().map(Client::from).collect(),
            clients_omitted: snapshot.omitted,
            hosts: snapshot.hosts.iter().map(Host::from).collect(),
        }
    }
}

impl From<&server::DelegationTotals> for Recalls {
    fn from(totals: &server::DelegationTotals) -> Self {
        let has_some = totals.returned > 0;
        Self {
            granted_read: totals.granted_read,
            granted_write: totals.granted_write,
            granted_directory: totals.granted_directory,
            figures: totals.into(),
            mean_seconds: has_some.then(|| totals.return_time.as_secs_f64() / totals.returned as f64),
            slowest_seconds: has_some.then_some(totals.slowest.as_secs_f64()),
        }
    }
}

impl From<&server::ClientSnapshot> for Client {
    fn from(client: &server::ClientSnapshot) -> Self {
        Self {
            id: format!("{:#x}", client.id),
            name: client.owner.escape_ascii().to_string(),
            principal: match &client.principal {
                server::Principal::Anonymous => "anonymous".into(),
                server::Principal::System(uid) => format!("uid:{uid}"),
                server::Principal::Gss(name) => format!("gss:{}", name.escape_ascii()),
            },
            address: client.address.map(|address| address.to_string()),
            protocol: client.minor.map(|minor| format!("4.{minor}")),
            state: match client.status {
                server::ClientStatus::Unconfirmed => "unconfirmed",
                server::ClientStatus::Active => "active",
                server::ClientStatus::Courtesy => "courteous",
            }
            .into(),
            lease_left_seconds: client.lease_left.as_secs_f64(),
            reclaiming: client.is_reclaiming,
            callbacks: match client.callbacks {
                server::CallbackPath::None => "none",
                server::CallbackPath::Untried => "untried",
                server::CallbackPath::Up => "up",
            }
            .into(),
            active: client.active,
            opens: client.opens,
            locks: client.locks,
            delegations: client.delegations,
            lost: client.revoked,
            sessions: client.sessions.iter().map(Session::from).collect(),
        }
    }
}

impl From<&server::HostSnapshot> for Host {
    fn from(host: &server::HostSnapshot) -> Self {
        Self {
            id: format!("{:#x}", host.id),
            name: host.name.escape_ascii().to_string(),
            address: host.address.to_string(),
            reachable: host.is_reachable,
            locks: host.locks,
            locks_waiting: host.waiting,
        }
    }
}

impl From<&server::SessionSnapshot> for Session {
    fn from(session: &server::SessionSnapshot) -> Self {
        let slots = &session.slots;
        Self {
            connections: session.connections,
            persistent: session.is_persistent,
            slots: slots.granted,
            slots_target: slots.target,
            slot_reply_max_bytes: slots.reply_max,
            slots_in_use: slots.in_use,
            slots_full: slots.full,
            slots_deferred: slots.deferred,
            reply_bytes: slots.reply_bytes,
            replayed: slots.replayed,
        }
    }
}
