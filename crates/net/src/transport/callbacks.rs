//! Connections of the server for callbacks of version 4.0: a listener at this machine's address.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use client::engine::{AcceptedId, Engine};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rpc::record::{LAST_FRAGMENT, RecordDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};
use tracing::{debug, info};

use super::Route;

/// Maximum bytes of a callback: CB_RECALL or CB_GETATTR with the longest handle, tag and credential.
const CALL_MAX: usize = 8192;
/// The pause after a failed accept, for instance for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The listener of a client, while there is one. It ends with its owner.
#[derive(Default)]
pub(super) struct Listening(Option<(SocketAddr, JoinHandle<()>)>);

impl Listening {
    /// Listens at this machine's address, and tells the engine. Keeps a listener that is there already.
    pub(super) async fn listen(
        &mut self,
        engine: &Arc<Engine>,
        route: &Arc<Route>,
        local: Option<IpAddr>,
        port: Option<u16>,
    ) {
        let Some(local) = local else { return engine.handle_listening(None) };
        if let Some((address, _)) = self.0.as_ref().filter(|(address, _)| address.ip() == local) {
            return engine.handle_listening(Some(*address));
        }
        self.end();
        match bind(SocketAddr::new(local, port.unwrap_or(0))).await {
            Ok((listener, address)) => {
                debug!(%address, "listening for callbacks");
                let task = spawn_local(serve(Arc::clone(engine), Arc::clone(route), listener));
                self.0 = Some((address, task));
                engine.handle_listening(Some(address));
            }
            Err(error) => {
                info!(%error, %local, port, "cannot listen for callbacks: the server delegates no files");
                engine.handle_listening(None);
            }
        }
    }

    fn end(&mut self) {
        if let Some((_, task)) = self.0.take() {
            task.abort();
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.end();
    }
}

async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves connections of the server. The engine bounds their number. Does not end.
async fn serve(engine: Arc<Engine>, route: Arc<Route>, listener: TcpListener) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) if is_server(&route, peer.ip()) => {
                    if let Some(id) = engine.handle_accepted() {
                        connections.push(serve_one(&engine, id, stream));
                    }
                }
                Ok((_, peer)) => debug!(%peer, "closed a connection for callbacks that is not the server's"),
                Err(error) => {
                    debug!(%error, "cannot accept a connection for callbacks");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(()) = connections.next() => {}
        }
    }
}

fn is_server(route: &Route, peer: IpAddr) -> bool {
    route.addresses.iter().any(|address| address.to_canonical() == peer.to_canonical())
}

/// Serves a connection until either side closes it.
async fn serve_one(engine: &Engine, id: AcceptedId, mut stream: TcpStream) {
    let (reader, writer) = stream.split();
    let ended = tokio::select! {
        ended = receive(engine, id, reader) => ended,
        ended = send(engine, id, writer) => ended,
    };
    if let Err(error) = ended {
        debug!(%error, "a connection for callbacks has failed");
    }
    engine.handle_accepted_closed(id);
}

async fn receive(engine: &Engine, id: AcceptedId, mut reader: ReadHalf<'_>) -> io::Result<()> {
    let (mut decoder, mut received) = (RecordDecoder::new(CALL_MAX), BytesMut::new());
    loop {
        while let Some(call) = decoder.decode(&mut received).map_err(io::Error::other)? {
            if !engine.handle_accepted_call(id, call) {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        if reader.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    }
}

async fn send(engine: &Engine, id: AcceptedId, mut writer: WriteHalf<'_>) -> io::Result<()> {
    while let Some(reply) = poll_fn(|context| engine.poll_accepted_reply(id, context)).await {
        let mark = LAST_FRAGMENT | u32::try_from(reply.len()).map_err(io::Error::other)?;
        writer.write_all(&[&mark.to_be_bytes()[..], &reply].concat()).await?;
    }
    Ok(())
}
