//! Finds the owner of a local connection's other end. The kernel is asked once for each connection.
//!
//! 1. The socket table has a connection with the addresses of both ends swapped: the peer is on this machine, and the table has its
//!    owner. A closed socket has inode 0 and shows uid 0: its owner is unknown, never root. An owner without a number in this user
//!    namespace is unknown too.
//! 2. The table has none: the peer is on another machine. If its address is one of this machine's, the socket is gone, and its owner
//!    is unknown.
//!
//! A peer that has closed its connection may have sent calls before. The connection must still be open after its owner was found:
//! otherwise a newer socket at the same port may have been found.
//!
//! The kernel does not report the sender of a datagram, which may be gone. On this machine, only a port that needs a privilege shows
//! its owner; see [`PeerPolicy::sender`].

mod proc_net;
mod sock_diag;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use server::{ExportTable, FIRST_UNPRIVILEGED_PORT, LocalUser, PeerOwner, Server};
use tokio::sync::Semaphore;
use tracing::debug;

use sock_diag::SockDiag;

/// Lifetime of a user's cached groups.
const GROUPS_KNOWN_FOR: Duration = Duration::from_secs(60);
/// Lifetime of the cached names of a host, and of their absence.
const HOST_KNOWN_FOR: Duration = Duration::from_secs(300);
const HOST_UNKNOWN_FOR: Duration = Duration::from_secs(30);
/// Maximum number of cached hosts.
const HOSTS_MAX: usize = 32_768;
/// Maximum number of concurrent name service queries: each blocks a thread.
const QUESTIONS_MAX: usize = 4;
/// Maximum number of cached users.
const ACCOUNTS_MAX: usize = 4096;

/// The system's name services for users and hosts.
pub trait NameServices: Send + Sync {
    /// Returns a user's primary and supplementary groups, or none if there is no such account. May block for seconds.
    fn groups(&self, uid: u32) -> Vec<u32>;

    /// Returns the names of an address that also resolve to it, the canonical one and aliases, or `None` if the name services do not
    /// answer. May block for seconds.
    fn host_names(&self, address: IpAddr) -> Option<Vec<String>>;
}

/// A socket in the kernel's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    uid: u32,
    /// 0 once no process has the socket.
    inode: u64,
}

/// The other end of a connection, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is on another machine.
    Remote,
    /// It is on this machine, and this user owns it.
    Owner(u32),
    /// It is on this machine, with an unknown owner.
    Unknown,
}

/// Decides which users local peers may claim.
pub struct PeerPolicy {
    services: Arc<dyn NameServices>,
    only: Option<u32>,
    table: Mutex<Table>,
    users: Mutex<HashMap<u32, (Arc<LocalUser>, Instant)>>,
    /// Until when the server's names of a host are valid.
    hosts: Mutex<HashMap<IpAddr, Instant>>,
    overflow: Option<u32>,
    /// The first port that every local user may bind.
    first_free_port: u16,
    /// Limits on queries about users and about hosts: queries that other machines cause must not delay local users.
    user_questions: Semaphore,
    host_questions: Semaphore,
    /// The query that datagrams may cause. Their senders' addresses can be forged, so they must not delay the admission of connections.
    datagram_question: Semaphore,
}

impl std::fmt::Debug for PeerPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerPolicy").field("only", &self.only).finish_non_exhaustive()
    }
}

/// The interface to the kernel's socket table.
#[derive(Debug)]
enum Table {
    SockDiag(SockDiag),
    ProcNet,
}

impl PeerPolicy {
    /// Creates a policy that asks `services` for groups. With `only`, just this user and root are served.
    #[must_use]
    pub fn new(services: Arc<dyn NameServices>, only: Option<u32>) -> Self {
        let table = SockDiag::open().and_then(SockDiag::tried).map_or_else(
            |error| {
                debug!("sock_diag is unavailable, using /proc/net/tcp: {error}");
                Table::ProcNet
            },
            Table::SockDiag,
        );
        Self {
            services,
            only,
            table: Mutex::new(table),
            users: Mutex::default(),
            hosts: Mutex::default(),
            overflow: overflow_uid(),
            first_free_port: first_free_port(),
            user_questions: Semaphore::new(QUESTIONS_MAX),
            host_questions: Semaphore::new(QUESTIONS_MAX),
            datagram_question: Semaphore::new(1),
        }
    }

    /// Asks the kernel for the owner of the other end of `stream`, which takes some microseconds. Calls `failed` if it does not answer.
    ///
    /// # Errors
    /// Returns an error if the connection is gone.
    pub(crate) fn find(&self, stream: &TcpStream, failed: impl FnOnce(io::Error)) -> io::Result<Found> {
        let (peer, local) = (canonical(stream.peer_addr()?), canonical(stream.local_addr()?));
        let found = self.table.lock().find(peer, local, self.overflow);
        let found = found.or_else(|_| Table::ProcNet.find(peer, local, self.overflow));
        let found = found.unwrap_or_else(|error| {
            failed(error);
            let is_here = peer.ip().is_loopback() || peer.ip() == local.ip();
            if is_here { Found::Unknown } else { Found::Remote }
        });
        // It fails once the peer has reset the connection.
        Ok(if stream.peer_addr().is_ok() { found } else { Found::Unknown })
    }

    /// Returns the owner of a datagram's sender, by the addresses of both ends. On this machine it is unknown, and only the port
    /// counts, as on another machine: from one that needs a privilege root may claim any user, and from a port above 1023 exports
    /// that are `insecure` take any claim. A lower port that needs no privilege here shows nothing.
    pub(crate) fn sender(&self, peer: SocketAddr, local: IpAddr) -> PeerOwner {
        let (peer, local) = (canonical(peer), local.to_canonical());
        let misleads = (self.first_free_port..FIRST_UNPRIVILEGED_PORT).contains(&peer.port());
        if misleads && self.is_here(peer, local) { PeerOwner::Unknown } else { PeerOwner::Remote }
    }

    /// Returns whether an address is one of this machine's.
    fn is_here(&self, peer: SocketAddr, local: IpAddr) -> bool {
        if peer.ip().is_loopback() || peer.ip() == local {
            return true;
        }
        match &mut *self.table.lock() {
            Table::SockDiag(diag) => diag.is_own(peer.ip()).unwrap_or_else(|_| is_bindable(peer)),
            Table::ProcNet => is_bindable(peer),
        }
    }

    /// Returns the owner that a peer may claim to be, with the user's groups.
    pub(crate) async fn owner(self: Arc<Self>, found: Found) -> PeerOwner {
        let uid = match found {
            Found::Remote => return PeerOwner::Remote,
            Found::Unknown => return PeerOwner::Unknown,
            Found::Owner(0) => return PeerOwner::Superuser,
            Found::Owner(uid) => uid,
        };
        if self.only.is_some_and(|only| only != uid) {
            return PeerOwner::NotServed(uid);
        }
        if let Some(user) = self.known(uid) {
            return PeerOwner::User(user);
        }
        let _place = self.user_questions.acquire().await;
        // Another task may have queried them meanwhile.
        if let Some(user) = self.known(uid) {
            return PeerOwner::User(user);
        }
        let services = Arc::clone(&self.services);
        let groups = tokio::task::spawn_blocking(move || services.groups(uid)).await.unwrap_or_default();
        PeerOwner::User(self.remember(LocalUser { uid, groups }))
    }

    /// Makes the server learn the names of a client's address, if `exports` depend on them and they are not cached.
    pub(crate) async fn introduce(&self, server: &Server, exports: &ExportTable, address: IpAddr) {
        let address = address.to_canonical();
        if !exports.needs_names(address) || self.is_introduced(server, address) {
            return;
        }
        let _place = self.host_questions.acquire().await;
        // Another task may have queried them meanwhile.
        if !self.is_introduced(server, address) {
            self.learn_names(server, address).await;
        }
    }

    /// As [`Self::introduce`], for the sender of a datagram. Returns false, without waiting, if it needs a query and another datagram's
    /// is in progress: the datagram must be dropped.
    pub(crate) async fn try_introduce(
        &self,
        server: &Server,
        exports: &ExportTable,
        address: IpAddr,
    ) -> bool {
        let address = address.to_canonical();
        if !exports.needs_names(address) || self.is_introduced(server, address) {
            return true;
        }
        let Ok(_place) = self.datagram_question.try_acquire() else { return false };
        self.learn_names(server, address).await;
        true
    }

    /// Asks the name services for the names of an address, and has the server learn them.
    async fn learn_names(&self, server: &Server, address: IpAddr) {
        let services = Arc::clone(&self.services);
        let names = tokio::task::spawn_blocking(move || services.host_names(address)).await.ok().flatten();
        let known_for = match &names {
            Some(names) if !names.is_empty() => HOST_KNOWN_FOR,
            _ => HOST_UNKNOWN_FOR,
        };
        // Without an answer, the server keeps the names it has.
        if names.is_some() || !server.knows_host(address) {
            server.learn_host(address, names.unwrap_or_default());
        }
        let (now, mut hosts) = (Instant::now(), self.hosts.lock());
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, until| *until > now);
        }
        if hosts.len() < HOSTS_MAX {
            hosts.insert(address, now + known_for);
        }
    }

    fn is_introduced(&self, server: &Server, address: IpAddr) -> bool {
        server.knows_host(address)
            && self.hosts.lock().get(&address).is_some_and(|until| *until > Instant::now())
    }

    fn known(&self, uid: u32) -> Option<Arc<LocalUser>> {
        let users = self.users.lock();
        users.get(&uid).filter(|(_, until)| *until > Instant::now()).map(|(user, _)| Arc::clone(user))
    }

    fn remember(&self, user: LocalUser) -> Arc<LocalUser> {
        let (now, user) = (Instant::now(), Arc::new(user));
        let mut users = self.users.lock();
        if users.len() >= ACCOUNTS_MAX {
            users.retain(|_, (_, until)| *until > now);
        }
        // No groups: there is no account, or the query failed. The next connection repeats the query.
        if users.len() < ACCOUNTS_MAX && !user.groups.is_empty() {
            users.insert(user.uid, (Arc::clone(&user), now + GROUPS_KNOWN_FOR));
        }
        user
    }
}

impl Table {
    fn find(&mut self, peer: SocketAddr, local: SocketAddr, overflow: Option<u32>) -> io::Result<Found> {
        let entry = match self {
            Self::SockDiag(diag) => diag.find(peer, local)?,
            Self::ProcNet => proc_net::find(peer, local)?,
        };
        if let Some(entry) = entry {
            return Ok(owner_of(entry, overflow));
        }
        let is_own = match self {
            _ if peer.ip().is_loopback() || peer.ip() == local.ip() => true,
            Self::SockDiag(diag) => diag.is_own(peer.ip())?,
            Self::ProcNet => false,
        };
        Ok(if is_own { Found::Unknown } else { Found::Remote })
    }
}

fn owner_of(entry: Entry, overflow: Option<u32>) -> Found {
    let is_known = entry.inode != 0 && Some(entry.uid) != overflow;
    if is_known { Found::Owner(entry.uid) } else { Found::Unknown }
}

/// Returns the address with a mapped IPv4 address unmapped: the peer's socket may be of either family.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip == address.ip() => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}

/// Returns whether a socket can have the address, which only this machine's own sockets can. All can if the system allows foreign ones
/// (`ip_nonlocal_bind`), which then counts as own.
fn is_bindable(address: SocketAddr) -> bool {
    let mut any_port = address;
    any_port.set_port(0);
    UdpSocket::bind(any_port).is_ok()
}

/// Returns the first port that every local user may bind, at most [`FIRST_UNPRIVILEGED_PORT`]. Containers often have 0.
fn first_free_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    text.trim().parse().map_or(FIRST_UNPRIVILEGED_PORT, |port: u16| port.min(FIRST_UNPRIVILEGED_PORT))
}

/// Returns the uid of all users without a number in this user namespace, or `None` if every user has one.
fn overflow_uid() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if maps_all(&map) {
        return None;
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    // The kernel's default, DEFAULT_OVERFLOWUID.
    Some(text.trim().parse().unwrap_or(65_534))
}

/// Returns whether a `uid_map` (user_namespaces(7)) maps every user.
fn maps_all(map: &str) -> bool {
    let words: Vec<_> = map.split_whitespace().collect();
    words.len() == 3 && words[0] == "0" && words[2] == u32::MAX.to_string()
}

#[cfg(test)]
mod tests;
