//! Reads from other servers for copies ([`server::Work::Read`]), as their client.
//!
//! A source has one connection, made for the first READ and closed some seconds after the last. Every wait has a limit, and so has a
//! READ as a whole ([`client::read_with_retries`]): a source that is unreachable, silent, slow or wrong fails its READs, and the core
//! decides whether to repeat them. The connection leaves from the address at which the copy's client reached this server, if possible:
//! the client named that address to the source, which may check it (RFC 7862 §4.9.1.2).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use client::config::Caller;
use client::{Read, ReadData, ReadError, read_with_retries};
use protocol::nfs4::types::Status;
use rpc::auth::{AuthSys, GroupList};
use rustix::process::{getegid, geteuid};
use server::{DEFAULT_ANONYMOUS, Fetch, FetchError, Fetched};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::warn;
use xdr::Opaque;

use crate::connection::Shared;

mod source;

/// Maximum number of connected sources. Fewer are in use; the others are idle and close soon.
const SOURCES_MAX: usize = 64;
/// Of these, at most this many on one host: a client may name any ports of a host.
const SOURCES_A_HOST: usize = 4;
/// `machinename` of the credentials.
const MACHINE: &[u8] = b"enfys";
/// Maximum number of groups in AUTH_SYS.
const GROUPS_MAX: usize = 16;

/// The local address and the source's address of a connection.
type Route = (IpAddr, SocketAddr);

/// A READ for a connection to send.
#[derive(Debug)]
struct ReadRequest {
    read: Read,
    caller: Caller,
    answer: ReplySender,
}

/// This server as a client of a source.
#[derive(Debug)]
struct Identity {
    /// `co_ownerid`: the same for each session that replaces a lost one.
    owner: String,
    /// `co_verifier`: different for each session.
    verifier: [u8; 8],
    machine: Caller,
}

/// Takes the outcome of a READ.
type ReplySender = oneshot::Sender<Result<ReadReply, AttemptError>>;

/// The data of a READ, and the maximum number of bytes of a READ there.
type ReadReply = (ReadData, u32);

/// The reason why an attempt at one address failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptError {
    /// The READ failed. An unreachable source counts as unresponsive.
    Read(ReadError),
    /// Too many sources are connected.
    Busy,
}

/// The connections to sources.
pub(crate) struct Sources {
    shared: Arc<Shared>,
    open: RefCell<HashMap<Route, mpsc::UnboundedSender<ReadRequest>>>,
    /// Connections made.
    made: Cell<u64>,
}

impl Sources {
    pub(crate) fn new(shared: Arc<Shared>) -> Rc<Self> {
        Rc::new(Self { shared, open: RefCell::default(), made: Cell::new(0) })
    }

    /// Runs one READ until it has an outcome, or the server no longer needs it.
    pub(crate) async fn read(self: Rc<Self>, fetch: Fetch) {
        tokio::select! {
            outcome = self.read_anywhere(&fetch) => self.shared.server.handle_read(fetch, outcome),
            () = poll_fn(|context| fetch.poll_unwanted(context)) => {}
        }
    }

    /// Reads at the first of the source's addresses that answers in time.
    async fn read_anywhere(&self, fetch: &Fetch) -> Result<Fetched, FetchError> {
        let (addresses, begun, is_busy) = (&fetch.file.addresses, Instant::now(), Cell::new(false));
        let attempt = async |address: usize, deadline| {
            let reading = self.read_at(route(fetch.file.local, addresses[address]), fetch);
            let answer = timeout_at(begun + deadline, reading).await;
            answer.unwrap_or(Err(AttemptError::Read(ReadError::Unresponsive))).map_err(|error| match error {
                AttemptError::Busy => {
                    is_busy.set(true);
                    ReadError::Unresponsive
                }
                AttemptError::Read(error) => {
                    self.log_refusal(error, addresses[address]);
                    error
                }
            })
        };
        match read_with_retries(addresses.len(), || begun.elapsed(), attempt).await {
            Ok((ReadData { content, is_end, size }, granted)) => {
                Ok(Fetched { content, is_end, granted, size, at: self.shared.clock.now() })
            }
            Err(ReadError::Refused(status)) => Err(FetchError::Refused(status)),
            Err(_) if is_busy.get() => Err(FetchError::Busy),
            Err(ReadError::Unsupported) => Err(FetchError::Unsupported),
            Err(ReadError::Unresponsive | ReadError::SessionLost) => Err(FetchError::Unreachable),
        }
    }

    /// Logs that a source refuses this server, for its administrator.
    fn log_refusal(&self, error: ReadError, source: SocketAddr) {
        if let ReadError::Refused(status @ (Status::ACCESS | Status::PERM | Status::WRONGSEC)) = error {
            self.shared.throttled(|suppressed| {
                warn!(
                    %source, ?status, suppressed,
                    "a server refuses READs for a copy: check whether it accepts this one (its exports' clients, `insecure`)"
                );
            });
        }
    }

    async fn read_at(&self, route: Route, fetch: &Fetch) -> Result<ReadReply, AttemptError> {
        let (answer, answered) = oneshot::channel();
        let (read, caller) = (read_of(fetch), caller_of(fetch));
        self.send(route, ReadRequest { read, caller, answer })?;
        answered.await.unwrap_or(Err(AttemptError::Read(ReadError::SessionLost)))
    }

    /// Passes a READ to the source's connection, and starts one if there is none.
    fn send(&self, route: Route, request: ReadRequest) -> Result<(), AttemptError> {
        let mut open = self.open.borrow_mut();
        let request = match open.get(&route) {
            Some(requests) => match requests.send(request) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(request)) => request,
            },
            None => request,
        };
        open.retain(|_, requests| !requests.is_closed());
        if !has_room(open.keys(), route) {
            return Err(AttemptError::Busy);
        }
        let (requests, receiver) = mpsc::unbounded_channel();
        // The receiver exists.
        let _ = requests.send(request);
        open.insert(route, requests);
        tokio::task::spawn_local(source::serve(route, self.identity(route), receiver));
        Ok(())
    }

    /// Returns this server's identity as a client: one for each route, so that two routes to one server do not replace each other's
    /// session.
    fn identity(&self, (local, address): Route) -> Identity {
        let settings = self.shared.server.settings();
        let name: String = settings.server_name.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
        let owner = format!("enfys-copy/{name}/{local}/{address}");
        let made = self.made.get();
        self.made.set(made + 1);
        Identity { owner, verifier: settings.instance.wrapping_add(made).to_be_bytes(), machine: own_user() }
    }
}

/// Returns the route to `address` from `local`. A listener for both families reports IPv4 addresses mapped into IPv6; sockets need
/// them unmapped.
fn route(local: IpAddr, address: SocketAddr) -> Route {
    (local.to_canonical(), SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Returns whether one more connection is allowed.
fn has_room<'r>(open: impl ExactSizeIterator<Item = &'r Route>, (_, address): Route) -> bool {
    let all = open.len();
    let own = open.filter(|(_, other)| other.ip() == address.ip()).count();
    all < SOURCES_MAX && own < SOURCES_A_HOST
}

fn read_of(fetch: &Fetch) -> Read {
    Read {
        handle: fetch.file.handle,
        stateid: fetch.file.stateid,
        offset: fetch.offset,
        count: fetch.count,
        wants_size: fetch.wants_size,
    }
}

/// Returns the copy's user, as this server knows it.
fn caller_of(fetch: &Fetch) -> Caller {
    let user = &fetch.file.credentials;
    caller(user.uid, user.gid, &user.groups[..user.groups.len().min(GROUPS_MAX)])
}

/// Returns the user that this server itself calls as: the anonymous user, or without root its own user, the only one that it may claim on the
/// same machine.
fn own_user() -> Caller {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        return caller(DEFAULT_ANONYMOUS, DEFAULT_ANONYMOUS, &[]);
    }
    caller(uid.as_raw(), gid.as_raw(), &[])
}

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(MACHINE),
        uid,
        gid,
        gids: GroupList::new(groups).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn to(address: impl Into<IpAddr>, port: u16) -> Route {
        route(Ipv4Addr::LOCALHOST.into(), SocketAddr::new(address.into(), port))
    }

    #[test]
    fn mapped_addresses_become_ipv4_routes() {
        let (here, there) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let mapped = SocketAddr::new(there.to_ipv6_mapped().into(), 2049);
        let expected = (IpAddr::from(here), SocketAddr::from((there, 2049)));
        assert_eq!(route(here.to_ipv6_mapped().into(), mapped), expected);
        let other = (IpAddr::from(Ipv6Addr::LOCALHOST), SocketAddr::from((Ipv6Addr::LOCALHOST, 2049)));
        assert_eq!(route(other.0, other.1), other);
    }

    #[test]
    fn one_host_leaves_room_for_others() {
        let host = Ipv4Addr::new(192, 0, 2, 1);
        let mut open: Vec<_> = (1..=4).map(|port| to(host, port)).collect();
        assert!(has_room(open[..3].iter(), to(host, 9)));
        assert!(!has_room(open.iter(), to(host, 9)));
        assert!(!has_room(open.iter(), to(host.to_ipv6_mapped(), 9)), "the same host");
        assert!(has_room(open.iter(), to(Ipv4Addr::new(192, 0, 2, 2), 1)));
        let others = (4..64).map(|number| to(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number), 1));
        open.extend(others);
        assert!(has_room(open[..63].iter(), to(Ipv4Addr::new(192, 0, 2, 2), 1)));
        assert!(!has_room(open.iter(), to(Ipv4Addr::new(192, 0, 2, 2), 1)), "64 in all");
    }
}
