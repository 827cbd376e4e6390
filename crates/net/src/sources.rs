//! Reads from other servers what copies want of them ([`server::Server::poll_fetch`]), as their client.
//!
//! Criteria. A source has one connection, made when something is to be read there and closed some seconds after the last of
//! it. Every wait has an end: a source that cannot be reached, is silent, drips, or answers what makes no sense, is given up,
//! and whoever asked is told; the core decides whether it asks again. The connection comes from the address that the copy's
//! client reached this server at, where that is possible: the client named it to the source, which may look (RFC 7862
//! §4.9.1.2).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use client::{Identity, Read, ReadData};
use protocol::nfs4::types::Status;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use server::{DEFAULT_ANONYMOUS, Fetch, FetchError, Fetched};
use tokio::sync::{mpsc, oneshot};
use xdr::Opaque;

use crate::connection::Shared;

mod source;

/// Sources connected at once. Copies are read from fewer; the others are about to be closed.
const SOURCES_MAX: usize = 64;
/// A connection that was idle may have been lost without a word: what is asked is asked once more over another.
const ATTEMPTS: usize = 2;
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
    answer: oneshot::Sender<Result<ReadData, Trouble>>,
}

/// Why a source has given nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It said so.
    Refused(Status),
    /// It does not serve NFSv4.2.
    Unsupported,
    /// It cannot be reached, or does not answer in time.
    Silent,
    /// The connection or the session was lost.
    Lost,
}

/// All sources.
struct Sources {
    shared: Arc<Shared>,
    open: RefCell<HashMap<Route, mpsc::UnboundedSender<Ask>>>,
    /// Connections made.
    made: Cell<u64>,
}

/// Reads all that the server wants to be read.
pub(crate) async fn fetch_all(shared: Arc<Shared>) {
    let sources = Rc::new(Sources { shared, open: RefCell::default(), made: Cell::new(0) });
    loop {
        let fetch = poll_fn(|context| sources.shared.server.poll_fetch(context)).await;
        // The server bounds how many there are.
        tokio::task::spawn_local(Rc::clone(&sources).read(fetch));
    }
}

impl Sources {
    async fn read(self: Rc<Self>, fetch: Fetch) {
        tokio::select! {
            answer = self.read_anywhere(&fetch) => fetch.answer(answer),
            () = poll_fn(|context| fetch.poll_unwanted(context)) => {}
        }
    }

    /// Reads at the first of the source's addresses that answers.
    async fn read_anywhere(&self, fetch: &Fetch) -> Result<Fetched, FetchError> {
        let mut last = FetchError::Unreachable;
        for address in &fetch.file.addresses {
            match self.read_at((fetch.file.local, *address), fetch).await {
                Ok(ReadData { data, is_end, size }) => return Ok(Fetched { data, is_end, size }),
                Err(Trouble::Refused(status)) => return Err(FetchError::Refused(status)),
                Err(Trouble::Unsupported) => last = FetchError::Unsupported,
                Err(Trouble::Silent | Trouble::Lost) => {}
            }
        }
        Err(last)
    }

    async fn read_at(&self, route: Route, fetch: &Fetch) -> Result<ReadData, Trouble> {
        let mut result = Err(Trouble::Lost);
        for _ in 0..ATTEMPTS {
            let (answer, answered) = oneshot::channel();
            self.ask(route, Ask { read: read_of(fetch), credential: credential_of(fetch), answer })?;
            result = answered.await.unwrap_or(Err(Trouble::Lost));
            if !matches!(result, Err(Trouble::Lost)) {
                break;
            }
        }
        result
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
        if open.len() >= SOURCES_MAX {
            return Err(Trouble::Silent);
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
            credential: credential(DEFAULT_ANONYMOUS, DEFAULT_ANONYMOUS, &[]),
        }
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

fn credential(uid: u32, gid: u32, groups: &[u32]) -> OpaqueAuth {
    OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(MACHINE),
        uid,
        gid,
        gids: GroupList::new(groups).unwrap_or_default(),
    })
}
