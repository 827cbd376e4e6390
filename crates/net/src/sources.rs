//! Reads from other servers for copies ([`server::Work::Read`]), as their client.
//!
//! Criteria. A source has one connection, made when something is to be read there and closed some seconds after the last of
//! it. Every wait has an end, and so has a READ as a whole ([`ReadRetry`]): a source that cannot be reached, is silent,
//! drips, or answers what makes no sense, is given up, and whoever asked is told; the core decides whether it asks again. The
//! connection comes from the address that the copy's client reached this server at, where that is possible: the client named
//! it to the source, which may look (RFC 7862 §4.9.1.2).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::{Identity, Read, ReadData, ReadError, ReadRetry};
use protocol::nfs4::types::Status;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rustix::process::{getegid, geteuid};
use server::{DEFAULT_ANONYMOUS, Fetch, FetchError, Fetched};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tracing::warn;
use xdr::Opaque;

use crate::connection::Shared;

mod source;

/// Sources connected at once. Copies are read from fewer; the others are about to be closed.
const SOURCES_MAX: usize = 64;
/// Of these to one host: a client can name any of its ports, and must not keep other hosts from being connected to.
const SOURCES_A_HOST: usize = 4;
/// `machinename` of the credentials.
const MACHINE: &[u8] = b"enfys";
/// Groups that AUTH_SYS can tell.
const GROUPS_MAX: usize = 16;

/// Where a connection leads from and to.
type Route = (IpAddr, SocketAddr);

/// A READ on its way.
#[derive(Debug)]
struct Ask {
    read: Read,
    credential: OpaqueAuth,
    answer: Answer,
}

/// Where a READ's outcome goes.
type Answer = oneshot::Sender<Result<Given, Trouble>>;

/// What a READ has returned, and the bytes that one there returns at most.
type Given = (ReadData, u32);

/// Why a source has given nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It was asked; or cannot be reached, which is as if it were silent.
    Of(ReadError),
    /// Too many are connected.
    Busy,
}

/// All sources.
pub(crate) struct Sources {
    shared: Arc<Shared>,
    open: RefCell<HashMap<Route, mpsc::UnboundedSender<Ask>>>,
    /// Connections made.
    made: Cell<u64>,
}

impl Sources {
    pub(crate) fn new(shared: Arc<Shared>) -> Rc<Self> {
        Rc::new(Self { shared, open: RefCell::default(), made: Cell::new(0) })
    }

    /// Makes one READ, until the server has its outcome or does not want it any more.
    pub(crate) async fn read(self: Rc<Self>, fetch: Fetch) {
        tokio::select! {
            outcome = self.read_anywhere(&fetch) => self.shared.server.handle_read(fetch, outcome),
            () = poll_fn(|context| fetch.poll_unwanted(context)) => {}
        }
    }

    /// Reads at the first of the source's addresses that answers, in time.
    async fn read_anywhere(&self, fetch: &Fetch) -> Result<Fetched, FetchError> {
        let addresses = &fetch.file.addresses;
        let begun = Instant::now();
        let mut retry = ReadRetry::new(addresses.len(), Duration::ZERO);
        let mut is_busy = false;
        loop {
            let address = match retry.next_address(begun.elapsed()) {
                Ok(address) => address,
                Err(_) if is_busy => return Err(FetchError::Busy),
                Err(error) => return Err(error_of(error)),
            };
            let reading = self.read_at(route(fetch.file.local, addresses[address]), fetch);
            let answer = timeout_at(begun + retry.deadline(), reading).await;
            match answer.unwrap_or(Err(Trouble::Of(ReadError::Unresponsive))) {
                Ok((ReadData { content, is_end, size }, granted)) => {
                    return Ok(Fetched { content, is_end, granted, size, at: self.shared.clock.now() });
                }
                Err(Trouble::Busy) => {
                    is_busy = true;
                    retry.failed(ReadError::Unresponsive).map_err(error_of)?;
                }
                Err(Trouble::Of(error)) => {
                    self.log_refusal(error, addresses[address]);
                    retry.failed(error).map_err(error_of)?;
                }
            }
        }
    }

    /// Logs that a source refuses this server, which its administrator may have to change.
    fn log_refusal(&self, error: ReadError, source: SocketAddr) {
        if let ReadError::Refused(status @ (Status::ACCESS | Status::PERM | Status::WRONGSEC)) = error {
            self.shared.throttled(|more| {
                warn!(
                    %source, ?status, more,
                    "a server refuses READs for a copy: see whether it lets this one in (its exports' clients, `insecure`)"
                );
            });
        }
    }

    async fn read_at(&self, route: Route, fetch: &Fetch) -> Result<Given, Trouble> {
        let (answer, answered) = oneshot::channel();
        let (read, credential) = (read_of(fetch), credential_of(fetch));
        self.ask(route, Ask { read, credential, answer })?;
        answered.await.unwrap_or(Err(Trouble::Of(ReadError::SessionLost)))
    }

    /// Hands it to the source's connection, which is made where there is none.
    fn ask(&self, route: Route, ask: Ask) -> Result<(), Trouble> {
        let mut open = self.open.borrow_mut();
        let ask = match open.get(&route) {
            Some(asks) => match asks.send(ask) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(ask)) => ask,
            },
            None => ask,
        };
        open.retain(|_, asks| !asks.is_closed());
        if !has_room(open.keys(), route) {
            return Err(Trouble::Busy);
        }
        let (asks, asked) = mpsc::unbounded_channel();
        // Its receiver is here.
        let _ = asks.send(ask);
        open.insert(route, asks);
        tokio::task::spawn_local(source::serve(route, self.identity(route), asked));
        Ok(())
    }

    /// This server as the client of a source: one client for each way there, so that two of them do not take each other's
    /// place where they lead to one server.
    fn identity(&self, (local, address): Route) -> Identity {
        let settings = self.shared.server.settings();
        let name: String = settings.server_name.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
        let owner = format!("enfys-copy/{name}/{local}/{address}");
        let made = self.made.get();
        self.made.set(made + 1);
        Identity {
            owner: Opaque::new(owner.into_bytes()).unwrap_or_default(),
            verifier: settings.instance.wrapping_add(made).to_be_bytes(),
            credential: own_credential(),
        }
    }
}

/// The way to `address` from `local`. A listener for both families tells of IPv4 addresses as mapped into IPv6: those are bound
/// and connected to as what they are.
fn route(local: IpAddr, address: SocketAddr) -> Route {
    (local.to_canonical(), SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Whether one more may be connected to.
fn has_room<'r>(open: impl ExactSizeIterator<Item = &'r Route>, (_, address): Route) -> bool {
    let all = open.len();
    let own = open.filter(|(_, other)| other.ip() == address.ip()).count();
    all < SOURCES_MAX && own < SOURCES_A_HOST
}

fn error_of(error: ReadError) -> FetchError {
    match error {
        ReadError::Refused(status) => FetchError::Refused(status),
        ReadError::Unsupported => FetchError::Unsupported,
        ReadError::Unresponsive | ReadError::SessionLost => FetchError::Unreachable,
    }
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

/// The user that the copy is made for, as this server knows it.
fn credential_of(fetch: &Fetch) -> OpaqueAuth {
    let user = &fetch.file.credentials;
    credential(user.uid, user.gid, &user.groups[..user.groups.len().min(GROUPS_MAX)])
}

/// Who this server is to a source by itself: nobody, or, without root, its own user, since it may claim no other on one machine.
fn own_credential() -> OpaqueAuth {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        return credential(DEFAULT_ANONYMOUS, DEFAULT_ANONYMOUS, &[]);
    }
    credential(uid.as_raw(), gid.as_raw(), &[])
}

fn credential(uid: u32, gid: u32, groups: &[u32]) -> OpaqueAuth {
    OpaqueAuth::sys(&AuthSys {
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
    fn mapped_addresses_are_connected_to_as_what_they_are() {
        let (here, there) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let mapped = SocketAddr::new(there.to_ipv6_mapped().into(), 2049);
        let expected = (IpAddr::from(here), SocketAddr::from((there, 2049)));
        assert_eq!(route(here.to_ipv6_mapped().into(), mapped), expected);
        let other = (IpAddr::from(Ipv6Addr::LOCALHOST), SocketAddr::from((Ipv6Addr::LOCALHOST, 2049)));
        assert_eq!(route(other.0, other.1), other);
    }

    #[test]
    fn one_host_does_not_take_the_room_of_all() {
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
