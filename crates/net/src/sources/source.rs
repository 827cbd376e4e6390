//! The connection to one source: carries the records of a [`Reader`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use client::engine::Engine;
use client::{MAX_REPLY, ReadError, Reader};
use futures_util::stream;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use super::{AttemptError, Identity, ReadRequest, Route};
use crate::reserved;
use crate::transport::{Carrier, SystemClock};

/// How long a source may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs READs of one source until it fails or is idle.
pub(super) async fn serve(
    route: Route,
    identity: Identity,
    mut requests: mpsc::UnboundedReceiver<ReadRequest>,
) {
    let (_, peer) = route;
    let ended = match connect(route).await {
        Ok(stream) => read(stream, peer, identity, &mut requests).await,
        Err(error) => {
            debug!(%peer, "cannot connect to a source: {error}");
            Err(ReadError::Unresponsive)
        }
    };
    // Later READs take another connection; those that wait here fail with this one.
    requests.close();
    while let Ok(request) = requests.try_recv() {
        let _ = request.answer.send(Err(AttemptError::Read(ended.err().unwrap_or(ReadError::SessionLost))));
    }
    debug!(%peer, "connection to a source closed: {ended:?}");
}

/// Connects from `local` if possible, otherwise from any address; from a port below 1024 if permitted, since sources may require it.
async fn connect((local, address): Route) -> io::Result<TcpStream> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = |ip| timeout(CONNECT_TIMEOUT, reserved::connect(SocketAddr::new(ip, 0), address));
    let stream = match from(local).await {
        Ok(Ok(stream)) => stream,
        _ => from(any).await??,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Answers requests in a session of their own.
async fn read(
    stream: TcpStream,
    peer: SocketAddr,
    identity: Identity,
    requests: &mut mpsc::UnboundedReceiver<ReadRequest>,
) -> Result<(), ReadError> {
    let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), 1));
    let connection =
        engine.open_connection(peer.port(), Reader::policy()).map_err(|_| ReadError::SessionLost)?;
    let Identity { owner, verifier, machine } = identity;
    let reading = async {
        let reader =
            Reader::open(Arc::clone(&engine), connection, owner.as_bytes(), verifier, machine).await?;
        reader.serve(stream::poll_fn(|context| requests.poll_recv(context)), answer).await
    };
    Carrier::new(stream, MAX_REPLY as usize).carry(&engine, connection, reading).await
}

/// Answers a request, unless it is not wanted any longer.
async fn answer(reader: &Reader, request: ReadRequest) {
    let ReadRequest { read, caller, mut answer } = request;
    let outcome = tokio::select! {
        outcome = reader.read(&caller, &read) => outcome,
        () = answer.closed() => return,
    };
    // The receiver may go at any time.
    let _ = answer.send(outcome.map(|data| (data, reader.max_read())).map_err(AttemptError::Read));
}
