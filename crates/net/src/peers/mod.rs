//! Who owns the other end of a connection from this machine: asked of the kernel once a connection.
//!
//! 1. The socket table has a connection with both ends' addresses swapped: the peer is on this machine, and the table tells
//!    who owns it. A socket that is closed already has inode 0 and then shows uid 0: it is nobody's, never root's. So is one
//!    whose owner our user namespace has no number for.
//! 2. It has none: the peer is on another machine, unless its address is one of ours. Then it is gone, and nobody's.
//!
//! A peer that has closed its connection may have sent calls before. After its owner was found the connection must still
//! stand: otherwise somebody else's, made since from the same port, was found.

mod proc_net;
mod sock_diag;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use server::{ExportTable, LocalUser, PeerOwner, Server};
use tokio::sync::Semaphore;
use tracing::debug;

use sock_diag::SockDiag;

/// How long an account's groups are remembered.
const GROUPS_KNOWN_FOR: Duration = Duration::from_secs(60);
/// How long the names of a host are taken for right, and how long a host is taken for nameless.
const HOST_KNOWN_FOR: Duration = Duration::from_secs(300);
const HOST_UNKNOWN_FOR: Duration = Duration::from_secs(30);
/// Hosts remembered at most.
const HOSTS_MAX: usize = 32_768;
/// Questions to the name services at once: each holds a thread for as long as they take.
const QUESTIONS_MAX: usize = 4;
/// Accounts remembered at most.
const ACCOUNTS_MAX: usize = 4096;

/// What the system's name services know of users and hosts.
pub trait NameServices: Send + Sync {
    /// The groups that a user is in, primary and supplementary; none where there is no such account. May block for seconds.
    fn groups(&self, uid: u32) -> Vec<u32>;

    /// The names of a host that its address has and that have the address, the canonical one and aliases; none where the name
    /// services do not answer. May block for seconds.
    fn host_names(&self, address: IpAddr) -> Option<Vec<String>>;
}

/// A socket as the kernel's table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    uid: u32,
    /// 0 once no process has the socket any more.
    inode: u64,
}

/// What the kernel says of the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is on another machine.
    Remote,
    /// This user owns it.
    Owner(u32),
    /// It is on this machine; who owns it is not known.
    Unknown,
}

/// Decides whom peers on this machine may claim to be.
pub struct PeerPolicy {
    services: Arc<dyn NameServices>,
    only: Option<u32>,
    table: Mutex<Table>,
    users: Mutex<HashMap<u32, (Arc<LocalUser>, Instant)>>,
    /// Until when the names of hosts are known.
    hosts: Mutex<HashMap<IpAddr, Instant>>,
    overflow: Option<u32>,
    /// Places for questions to the name services, about users and about hosts: other machines' must not keep local users waiting.
    user_questions: Semaphore,
    host_questions: Semaphore,
}

impl std::fmt::Debug for PeerPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerPolicy").field("only", &self.only).finish_non_exhaustive()
    }
}

/// The kernel's socket table, by the best way that there is.
#[derive(Debug)]
enum Table {
    SockDiag(SockDiag),
    ProcNet,
}

impl PeerPolicy {
    /// A policy that asks `services` for groups. With `only`, no other user than this one and root is served.
    #[must_use]
    pub fn new(services: Arc<dyn NameServices>, only: Option<u32>) -> Self {
        let table = SockDiag::open().and_then(SockDiag::tried).map_or_else(
            |error| {
                debug!("no sock_diag, /proc/net/tcp instead: {error}");
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
            user_questions: Semaphore::new(QUESTIONS_MAX),
            host_questions: Semaphore::new(QUESTIONS_MAX),
        }
    }

    /// Asks the kernel for the owner of the other end of `stream`, which takes some microseconds. Calls `failed` if it does not answer.
    ///
    /// # Errors
    /// Where the connection is gone.
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

    /// Whom the peer may claim to be; asks for groups where they are not known.
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
        // Somebody may have asked meanwhile.
        if let Some(user) = self.known(uid) {
            return PeerOwner::User(user);
        }
        let services = Arc::clone(&self.services);
        let groups = tokio::task::spawn_blocking(move || services.groups(uid)).await.unwrap_or_default();
        PeerOwner::User(self.remember(LocalUser { uid, groups }))
    }

    /// Tells the server the names of a client's address, where `exports` depend on them and they are not known already.
    pub(crate) async fn introduce(&self, server: &Server, exports: &ExportTable, address: IpAddr) {
        let address = address.to_canonical();
        if !exports.needs_names(address) || self.is_introduced(server, address) {
            return;
        }
        let _place = self.host_questions.acquire().await;
        // Somebody may have asked meanwhile.
        if self.is_introduced(server, address) {
            return;
        }
        let services = Arc::clone(&self.services);
        let names = tokio::task::spawn_blocking(move || services.host_names(address)).await.ok().flatten();
        let known_for = match &names {
            Some(names) if !names.is_empty() => HOST_KNOWN_FOR,
            _ => HOST_UNKNOWN_FOR,
        };
        // Without an answer, the names that were known stay.
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
        // An account without groups is none, or could not be asked for: the next connection asks again.
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

/// IPv4 addresses that are mapped into IPv6 as what they are: the peer's own socket may be of either family.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip == address.ip() => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}

/// The uid that stands for all users that our user namespace has no number for; none where it has one for each.
fn overflow_uid() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if maps_all(&map) {
        return None;
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    // The kernel's default, DEFAULT_OVERFLOWUID.
    Some(text.trim().parse().unwrap_or(65_534))
}

/// Whether a `uid_map` (user_namespaces(7)) gives every user a number.
fn maps_all(map: &str) -> bool {
    let words: Vec<_> = map.split_whitespace().collect();
    words.len() == 3 && words[0] == "0" && words[2] == u32::MAX.to_string()
}

#[cfg(test)]
mod tests;
