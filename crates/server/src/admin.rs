//! Views and commands for the administrator, behind `enfys status` and similar commands.

use core::fmt;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use vfs::{Context, Credentials, Thread};

use crate::files::object::File;
use crate::state::{
    Client, ClientSnapshot, Counts, DelegationCounts, Evicted, FileRecall, GraceSnapshot, HostSnapshot,
    PersistenceSnapshot, Reclaimers, RecordsSnapshot,
};
use crate::{Now, Server};

/// A view of a running server.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Sums over all clients.
    pub counts: Counts,
    /// Retransmissions of all versions answered from a reply cache.
    pub replayed: u64,
    /// The lease time.
    pub lease: Duration,
    /// The grace period, if one runs.
    pub grace: Option<GraceSnapshot>,
    /// The log that lets clients reclaim; none if it does not outlive the server.
    pub records: Option<RecordsSnapshot>,
    /// Persistent sessions; none if the server makes none.
    pub persistence: Option<PersistenceSnapshot>,
    /// Delegations and their recalls since the start.
    pub delegations: DelegationTotals,
    /// NFSv4 clients, oldest first, up to the number that was requested.
    pub clients: Vec<ClientSnapshot>,
    /// The number of further clients.
    pub omitted: u64,
    /// NLM hosts, by address and name.
    pub hosts: Vec<HostSnapshot>,
}

/// Counters of delegations since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelegationTotals {
    /// Granted for reading.
    pub granted_read: u64,
    /// Granted for writing.
    pub granted_write: u64,
    /// Granted of directories.
    pub granted_directory: u64,
    /// Recalled.
    pub recalls: u64,
    /// Returned after a recall.
    pub returned: u64,
    /// Their total time from the conflict to the return.
    pub return_time: Duration,
    /// The time of the slowest of them.
    pub slowest: Duration,
    /// Revoked because they were not returned.
    pub revoked: u64,
    /// Operations that waited for a delegation.
    pub waits: u64,
    /// Operations that waited and got DELAY in the end.
    pub overdue: u64,
}

impl DelegationTotals {
    fn of(counts: &DelegationCounts) -> Self {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Self {
            granted_read: read(&counts.granted_read),
            granted_write: read(&counts.granted_write),
            granted_directory: read(&counts.granted_directory),
            recalls: read(&counts.recalls),
            returned: read(&counts.returned),
            return_time: Duration::from_micros(read(&counts.return_micros)),
            slowest: Duration::from_micros(read(&counts.slowest_micros)),
            revoked: read(&counts.revoked),
            waits: read(&counts.waits),
            overdue: read(&counts.overdue),
        }
    }
}

/// The client or NLM host that was evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictedName {
    /// Its ID.
    pub id: u64,
    /// Its owner name, or the name that its NLM calls give.
    pub name: Bytes,
    /// Whether it is an NLM host.
    pub is_host: bool,
}

/// Why no client was evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictError {
    /// No client has this name.
    Unknown,
    /// Several clients have it: some of them, with their owner names.
    Ambiguous(Vec<(u64, Box<[u8]>)>),
}

impl fmt::Display for EvictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no client has this id, address or name"),
            Self::Ambiguous(clients) => {
                f.write_str("several clients have this address or name; give the id of one:")?;
                let mut separator = "";
                clients.iter().try_for_each(|(id, name)| {
                    write!(f, "{separator} {id:#x} ({})", name.escape_ascii())?;
                    separator = ",";
                    Ok(())
                })
            }
        }
    }
}

impl std::error::Error for EvictError {}

/// Why nothing was recalled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecallError {
    /// No export is mounted by a part of the path.
    NoExport,
    /// The lookup of this part of the path failed.
    Lookup(String, vfs::Error),
}

impl fmt::Display for RecallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoExport => {
                f.write_str("no export holds it: give the path as clients see it, `/EXPORT/DIRECTORY/FILE`")
            }
            Self::Lookup(part, error) => write!(f, "{part}: {error}"),
        }
    }
}

impl std::error::Error for RecallError {}

/// Maximum number of clients in [`EvictError::Ambiguous`].
const NAMED: usize = 8;

/// A name of a client in a command.
enum Name<'a> {
    Id(u64),
    Address(IpAddr),
    Owner(&'a [u8]),
}

impl<'a> Name<'a> {
    fn parse(text: &'a str) -> Self {
        let id = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match (id, text.parse()) {
            (Some(id), _) => Self::Id(id),
            (None, Ok(address)) => Self::Address(address),
            (None, Err(_)) => Self::Owner(text.as_bytes()),
        }
    }

    fn names(&self, client: &Client) -> bool {
        self.matches(client.id(), client.address().map(|address| address.ip()), client.owner())
    }

    fn names_host(&self, host: &HostSnapshot) -> bool {
        self.matches(host.id, Some(host.address), &host.name)
    }

    fn matches(&self, id: u64, address: Option<IpAddr>, name: &[u8]) -> bool {
        match self {
            Self::Id(wanted) => id == *wanted,
            Self::Address(ip) => address.is_some_and(|address| address.to_canonical() == ip.to_canonical()),
            Self::Owner(owner) => is_name(name, owner),
        }
    }
}

/// Returns whether `text` is a client's name, in raw or displayed form.
fn is_name(owner: &[u8], text: &[u8]) -> bool {
    owner == text || owner.escape_ascii().eq(text.iter().copied())
}

impl Server {
    /// Returns a view with at most `most` clients.
    #[must_use]
    pub fn snapshot(&self, now: Now, most: usize) -> Snapshot {
        let now = now.monotonic;
        let (clients, omitted) = self.shared.state.snapshot_clients(now, most, |_| true);
        Snapshot {
            counts: self.shared.state.counts(),
            replayed: self.shared.metrics.replayed.load(Relaxed),
            lease: self.shared.settings.lease,
            grace: self.shared.state.snapshot_grace(now, most),
            records: self.shared.state.snapshot_records(),
            persistence: self.shared.state.snapshot_persistence(),
            delegations: DelegationTotals::of(self.shared.state.delegation_counts()),
            clients,
            omitted,
            hosts: self.shared.state.snapshot_hosts(now),
        }
    }

    /// Returns the counts of delegations since the start.
    #[must_use]
    pub fn delegation_totals(&self) -> DelegationTotals {
        DelegationTotals::of(self.shared.state.delegation_counts())
    }

    /// Returns the state of the log that lets clients reclaim; none if it does not outlive the server.
    #[must_use]
    pub fn snapshot_records(&self) -> Option<RecordsSnapshot> {
        self.shared.state.snapshot_records()
    }

    /// Removes a client at once, with everything that it holds, or frees all locks and share reservations of an NLM host. `name` is its id
    /// (`0x…`), address or name. Returns the state that it lost. The client may register again and reopen its files.
    ///
    /// # Errors
    /// If no client or host, or several, have this name.
    pub fn evict(&self, now: Now, name: &str) -> Result<(EvictedName, Evicted), EvictError> {
        let state = &self.shared.state;
        let evictee = self.named(now, &Name::parse(name))?;
        let evicted = if evictee.is_host { state.evict_host(evictee.id) } else { state.evict(evictee.id) };
        let evicted = evicted.ok_or(EvictError::Unknown)?;
        if !evictee.is_host {
            // A client that has not confirmed its new record could still reclaim by its old one.
            state.evict_reclaimer(now.monotonic, |owner| *owner == evictee.name[..]);
        }
        self.shared.metrics.evicted.fetch_add(1, Relaxed);
        Ok((evictee, evicted))
    }

    /// Returns the only client or NLM host with this name.
    fn named(&self, now: Now, name: &Name<'_>) -> Result<EvictedName, EvictError> {
        let state = &self.shared.state;
        let (clients, _) = state.snapshot_clients(now.monotonic, NAMED, |client| name.names(client));
        let clients = clients.into_iter().map(|client| EvictedName {
            id: client.id,
            name: client.owner,
            is_host: false,
        });
        let hosts = state.snapshot_hosts(now.monotonic).into_iter().filter(|host| name.names_host(host));
        let hosts = hosts.map(|host| EvictedName { id: host.id, name: host.name, is_host: true });
        let mut found: Vec<_> = clients.chain(hosts).take(NAMED).collect();
        match found.len() {
            0 => Err(EvictError::Unknown),
            1 => Ok(found.remove(0)),
            _ => Err(EvictError::Ambiguous(
                found.into_iter().map(|found| (found.id, found.name[..].into())).collect(),
            )),
        }
    }

    /// Removes a client that the grace period waits for, by its name, so that it can no longer reclaim. Returns the name; `None` without
    /// such a client.
    pub fn evict_reclaimer(&self, now: Now, name: &str) -> Option<Bytes> {
        let matches = |owner: &[u8]| is_name(owner, name.as_bytes());
        let owner = self.shared.state.evict_reclaimer(now.monotonic, matches)?;
        self.shared.metrics.evicted.fetch_add(1, Relaxed);
        Some(owner)
    }

    /// Recalls all delegations of a file. `path` begins with the path of its export; symbolic links are not followed. Clients return the
    /// delegations, or lose them after the lease time.
    ///
    /// # Errors
    /// If the path does not lead to a file.
    pub async fn recall(&self, now: Now, path: &str) -> Result<FileRecall, RecallError> {
        let exports = self.exports();
        // Below a mount point inside an export another export begins: take the longest path.
        let all = exports.iter().chain(exports.nested());
        let holders = all.filter_map(|export| Some((export, export.below(path.as_bytes())?)));
        let holder = holders.min_by_key(|(_, below)| below.len());
        let (export, below) = holder.ok_or(RecallError::NoExport)?;
        let context = Context::new(Arc::new(Credentials::root()), now.wall);
        let mut file = File::root(export);
        for part in below.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let found = export.backend.lookup(&context, &file.handle, part).await;
            let failed = |error| RecallError::Lookup(String::from_utf8_lossy(part).into(), error);
            file = file.with(found.map_err(failed)?.handle);
        }
        Ok(self.shared.state.recall_file(now.monotonic, file.key(&self.shared)))
    }

    /// Returns the grace period, if one runs, with at most this many names of clients.
    #[must_use]
    pub fn snapshot_grace(&self, now: Now, names: usize) -> Option<GraceSnapshot> {
        self.shared.state.snapshot_grace(now.monotonic, names)
    }

    /// Prepares the state log for an orderly restart: the next server waits only for clients that hold opens, locks or delegations now.
    /// Returns these clients when the log is on stable storage.
    ///
    /// Called when the last call was answered and none follows. After a server that ends without this, all clients that may have held
    /// something may reclaim.
    pub async fn prepare_restart(&self, now: Now) -> Reclaimers {
        let (reclaimers, change) = self.shared.state.prepare_restart(now.monotonic);
        // It does not fail: see `StateLog`.
        let _ = self.shared.state.wait_durable(change, Thread::Shared).await;
        reclaimers
    }

    /// Ends the grace period: state that was not reclaimed is lost. Returns how many clients it waited for; none if no period runs.
    pub fn end_grace(&self, now: Now) -> Option<usize> {
        self.shared.state.end_grace(now.monotonic)
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::setclientid::RenewArgs;
    use protocol::nfs4::types::Status;

    use super::*;
    use crate::testing::lab;
    use crate::testing::minor0::v40_lab;

    #[test]
    fn clients_are_named_by_id_address_or_owner() {
        let mut lab = lab();
        let mut other = lab.other(b"other");
        let now = lab.now();
        let snapshot = lab.server.snapshot(now, 1);
        assert_eq!((snapshot.clients.len(), snapshot.omitted), (1, 1));
        assert_eq!((snapshot.clients[0].id, snapshot.clients[0].minor), (lab.client_id, Some(1)));
        assert_eq!(snapshot.clients[0].address, Some(lab.connection.peer));
        assert_eq!(lab.server.evict(now, "nobody").unwrap_err(), EvictError::Unknown);
        assert_eq!(lab.server.evict(now, "192.0.2.1").unwrap_err(), EvictError::Unknown);
        let both = format!(
            "several clients have this address or name; give the id of one: {:#x} (client), {:#x} (other)",
            lab.client_id, other.client_id
        );
        assert_eq!(lab.server.evict(now, "::ffff:127.0.0.1").unwrap_err().to_string(), both);
        assert_eq!(lab.status(vec![]), Status::OK, "nothing was done");
        let (client, lost) = lab.server.evict(now, "other").unwrap();
        assert_eq!((client.id, lost.sessions), (other.client_id, 1));
        // RFC 8881 §15.1.11.1: "The specified session ID is unknown to the server".
        assert_eq!(other.status(vec![]), Status::BADSESSION);
        let id = format!("{:#x}", lab.client_id);
        assert_eq!(lab.server.evict(now, &id).unwrap().0.id, lab.client_id);
        assert_eq!(lab.server.evict(now, &id).unwrap_err(), EvictError::Unknown);
        assert_eq!(lab.server.metrics().evicted.load(Relaxed), 2);
        assert_eq!(lab.server.end_grace(now), None);
    }

    #[test]
    fn a_client_of_version_4_0_is_evicted_too() {
        let mut lab = v40_lab();
        lab.open("file", b"owner");
        let (server, now) = (lab.lab.server.clone(), lab.lab.now());
        let shown =
            server.snapshot(now, usize::MAX).clients.into_iter().find(|client| client.id == lab.client_id);
        let shown = shown.expect("it is shown");
        assert_eq!((shown.minor, shown.opens, shown.sessions.len()), (Some(0), 1, 0));
        let (_, lost) = server.evict(now, &format!("{:#x}", lab.client_id)).unwrap();
        assert_eq!((lost.opens, lost.sessions), (1, 0));
        assert_eq!(server.counts().opens, 0);
        // RFC 7530 §13.1.5.3: "A stateid or clientid designates locking state of any type that has been revoked or released due
        // to cancellation of the client's lease".
        let renew = Op::Renew(RenewArgs { client_id: lab.client_id });
        assert_eq!(lab.status(vec![renew]), Status::EXPIRED);
        lab.reboot(b"client", 1);
        lab.open("file", b"owner");
    }
}
