//! What goes over the socket. Numbers are counts since the server's start or now, units stand in the names; what opens a
//! door (session IDs, stateids, verifiers, keys) is not among it.

use serde::{Deserialize, Serialize};

/// Of the form of questions and answers. Another one is refused by both sides, by name.
pub const VERSION: u32 = 1;

/// Bytes of a question at most: a path, and some.
pub const MAX_QUESTION: usize = 64 << 10;
/// Bytes of an answer at most: 10,000 clients with the longest names and some sessions.
pub const MAX_ANSWER: u64 = 256 << 20;
/// Clients in an answer at most.
pub const MAX_CLIENTS: usize = 10_000;

/// The part of questions and answers that stays the same over all versions.
#[derive(Debug, Serialize, Deserialize)]
pub struct Greeting {
    /// [`VERSION`] of who sent it.
    pub version: u32,
}

/// A question.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// [`VERSION`].
    pub version: u32,
    /// What is asked.
    #[serde(flatten)]
    pub command: Command,
}

/// What can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// What there is.
    Status,
    /// Take away what a client holds.
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

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// [`VERSION`].
    pub version: u32,
    /// To what was asked.
    #[serde(flatten)]
    pub reply: Reply,
}

/// What can be answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To `status`.
    Status(Box<Status>),
    /// To `evict`.
    Evicted(Evicted),
    /// To `recall`.
    Recalled(Recalled),
    /// To `end-grace`: for how many clients it was waited; none where no grace period ran.
    GraceEnded(Option<usize>),
    /// Why nothing was done.
    Error(String),
}

/// What a server does.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of the server.
    pub software: String,
    /// How long a client keeps what it holds without a word.
    pub lease_seconds: f64,
    /// A grace period that runs.
    pub grace: Option<Grace>,
    /// The log that clients reclaim by; none where it does not outlive the server.
    pub records: Option<Records>,
    /// Persistent sessions; none where no session is made persistent.
    pub persistence: Option<Persistence>,
    /// Sums over all clients.
    pub totals: Totals,
    /// Recalls of delegations since the start.
    pub recalls: Recalls,
    /// In the order in which they came.
    pub clients: Vec<Client>,
    /// Clients over [`MAX_CLIENTS`], which are not listed.
    pub clients_omitted: u64,
}

/// A grace period.
#[derive(Debug, Serialize, Deserialize)]
pub struct Grace {
    /// Until it ends by itself, at the latest.
    pub seconds_left: f64,
    /// Clients that may reclaim yet.
    pub clients_waited_for: usize,
    /// What they call themselves, sorted; [`MAX_CLIENTS`] of them at most.
    #[serde(default)]
    pub names: Vec<String>,
}

/// How the log stands that clients reclaim by.
#[derive(Debug, Serialize, Deserialize)]
pub struct Records {
    /// Whether changes of it reach the disk.
    pub written: bool,
    /// Whether there is room for new clients: where there is none, their opens are answered DELAY.
    pub room: bool,
}

/// How persistent sessions stand.
#[derive(Debug, Serialize, Deserialize)]
pub struct Persistence {
    /// Whether what they need can be written: where it cannot, no more are made, and those that are there end.
    pub written: bool,
    /// Slots that may be kept, and one for each session.
    pub places: usize,
    /// How many of these are taken.
    pub places_taken: usize,
}

/// Sums over all clients.
#[derive(Debug, Serialize, Deserialize)]
pub struct Totals {
    /// Client records.
    pub clients: u64,
    /// Sessions.
    pub sessions: u64,
    /// Those of them that outlive the server.
    pub persistent_sessions: u64,
    /// Sessions of servers before, kept for what is sent again.
    pub dead_sessions: u64,
    /// Slots granted to them.
    pub slots: u64,
    /// Slots with a request in progress.
    pub slots_in_use: u64,
    /// Requests that took the last slot that their client may use: any more waited there.
    pub slots_full: u64,
    /// Requests put off for want of memory for slots.
    pub slots_deferred: u64,
    /// Memory of slots and the replies that they keep.
    pub slot_memory_bytes: u64,
    /// Opens.
    pub opens: u64,
    /// Byte ranges locked.
    pub locks: u64,
    /// LOCKs that were denied and whose clients wait for the lock.
    pub locks_waiting: u64,
    /// Waiters that were told that their lock may be had (CB_NOTIFY_LOCK).
    pub locks_notified: u64,
    /// Delegations.
    pub delegations: u64,
    /// Copies in the background, and those of them that are over and whose clients have not heard so.
    pub copies: u64,
    /// Revoked opens, locks and delegations whose loss is not acknowledged.
    pub lost: u64,
    /// Retransmissions of all versions answered from a reply cache.
    pub replayed: u64,
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
    /// Recalled.
    pub recalled: u64,
    /// Came back after a recall.
    pub returned: u64,
    /// What these took on average; none where none came back.
    pub mean_seconds: Option<f64>,
    /// What the slowest of them took.
    pub slowest_seconds: Option<f64>,
    /// Revoked because they did not come back.
    pub revoked: u64,
    /// Operations that waited for a delegation.
    pub operations_waited: u64,
    /// Those that were told to come again after all.
    pub operations_put_off: u64,
}

/// A client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Client {
    /// `0x…`, as `enfys evict` takes it.
    pub id: String,
    /// What it calls itself; bytes that are not printable ASCII as `\xNN`.
    pub name: String,
    /// Who made the record: `uid:N`, `gss:NAME` or `anonymous`.
    pub principal: String,
    /// Where it was when it last said who it is.
    pub address: Option<String>,
    /// `4.0` and so on.
    pub protocol: Option<String>,
    /// `unconfirmed`, `active`, or `courteous`: expired, and what it holds kept until somebody wants it.
    pub state: String,
    /// Until its lease expires; 0 where it has.
    pub lease_left_seconds: f64,
    /// Whether it may reclaim what it held before the restart.
    pub reclaiming: bool,
    /// Whether it can be called back: `up`, `untried`, `none`.
    pub callbacks: String,
    /// Requests in progress.
    pub active: u32,
    /// Opens.
    pub opens: u32,
    /// Byte ranges locked.
    pub locks: u32,
    /// Delegations.
    pub delegations: u32,
    /// What was revoked, its loss not acknowledged.
    pub lost: u32,
    /// Its sessions.
    pub sessions: Vec<Session>,
}

/// A session.
#[derive(Debug, Serialize, Deserialize)]
pub struct Session {
    /// Connections that belong to it.
    pub connections: usize,
    /// Whether it outlives the server.
    pub persistent: bool,
    /// Slots granted.
    pub slots: u32,
    /// Slots that the client is asked to keep to.
    pub slots_target: u32,
    /// Bytes of a reply that each slot may pin, at most.
    pub slot_reply_max_bytes: u32,
    /// Slots with a request in progress.
    pub slots_in_use: u32,
    /// Requests that took the last slot that the client may use.
    pub slots_full: u64,
    /// Requests put off for want of memory.
    pub slots_deferred: u64,
    /// Bytes of replies kept.
    pub reply_bytes: u64,
    /// Retransmissions answered by a reply that was kept.
    pub replayed: u64,
}

/// What an evicted client lost.
#[derive(Debug, Serialize, Deserialize)]
pub struct Evicted {
    /// Its id.
    pub id: String,
    /// What it calls itself.
    pub name: String,
    /// Sessions.
    pub sessions: usize,
    /// Opens.
    pub opens: u32,
    /// Byte ranges locked.
    pub locks: u32,
    /// Delegations.
    pub delegations: u32,
}

/// What a recall met.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recalled {
    /// Delegations whose clients were asked for them, now or before.
    pub recalled: usize,
    /// Delegations of clients whose lease had expired: revoked.
    pub revoked: usize,
}

impl From<&server::Snapshot> for Status {
    fn from(snapshot: &server::Snapshot) -> Self {
        let counts = &snapshot.counts;
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
            totals: Totals {
                clients: counts.clients,
                sessions: counts.sessions,
                persistent_sessions: counts.persistent_sessions,
                dead_sessions: counts.dead_sessions,
                slots: counts.slots,
                slots_in_use: counts.slots_in_use,
                slots_full: counts.slots_full,
                slots_deferred: counts.slots_deferred,
                slot_memory_bytes: counts.slot_cache_bytes,
                opens: counts.opens,
                locks: counts.locks,
                locks_waiting: counts.locks_waiting,
                locks_notified: counts.locks_notified,
                delegations: counts.delegations,
                copies: counts.copies,
                lost: counts.revoked,
                replayed: snapshot.replayed,
            },
            recalls: Recalls::from(&snapshot.delegations),
            clients: snapshot.clients.iter().map(Client::from).collect(),
            clients_omitted: snapshot.omitted,
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
            recalled: totals.recalls,
            returned: totals.returned,
            mean_seconds: has_some.then(|| totals.return_time.as_secs_f64() / totals.returned as f64),
            slowest_seconds: has_some.then_some(totals.slowest.as_secs_f64()),
            revoked: totals.revoked,
            operations_waited: totals.waits,
            operations_put_off: totals.overdue,
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
            state: match client.standing {
                server::Standing::Unconfirmed => "unconfirmed",
                server::Standing::Active => "active",
                server::Standing::Courteous => "courteous",
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
