//! Calls that a client's server makes to this machine: GRANTED of its lock manager and SM_NOTIFY of its status monitor, for version 3.
//!
//! The server asks the port mapper of this machine for the ports (RFC 1833). Where none runs, where the kernel's client is registered,
//! or where this process may not register, the server cannot call. The client does without: see [`Client::host_calls_wanted`].

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use client::Client;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rpc::message::CallHeader;
use rpc::record::{LAST_FRAGMENT, RecordDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{debug, info};
use xdr::Reader;

use crate::rpcbind::Registered;

/// Maximum bytes of a call: of GRANTED with the longest name, cookie and owner, and its header.
const CALL_MAX: usize = 8192;
/// Maximum number of connections of the server at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Time without a call after which a connection is closed.
const IDLE_MAX: Duration = Duration::from_mins(5);
/// Ports that are tried until one is free over TCP and UDP.
const PORTS_TRIED: usize = 16;

/// Answers calls from the server's addresses while it is polled, from the client's first lock on.
pub async fn answer_host_calls(client: Client, servers: Vec<IpAddr>) {
    client.host_calls_wanted().await;
    let listener = match Listener::bind(&servers).await {
        Ok(listener) => listener,
        Err(error) => return info!(%error, "cannot listen for calls of the server's lock manager"),
    };
    let (port, is_ipv6) = (listener.port, listener.is_ipv6);
    let registered = spawn_blocking(move || Registered::of_client(port, is_ipv6)).await;
    match registered.map_err(io::Error::other).flatten() {
        Ok(Some(_registered)) => {
            debug!(port, "listening for calls of the server's lock manager");
            let answer = |call: Bytes| {
                if let Ok(CallHeader { program, procedure, .. }) =
                    CallHeader::parse(&mut Reader::new(call.clone()))
                {
                    debug!(program, procedure, "the server calls");
                }
                client.answer_host_call(call)
            };
            listener.serve(&servers, answer).await;
        }
        Ok(None) => {
            info!("another lock manager of this machine is registered: waiting locks are asked for again")
        }
        Err(error) => info!(%error, "the server cannot call this client: waiting locks are asked for again"),
    }
}

/// The sockets for calls: one port, over TCP and UDP.
struct Listener {
    streams: TcpListener,
    datagrams: UdpSocket,
    port: u16,
    is_ipv6: bool,
}

impl Listener {
    async fn bind(servers: &[IpAddr]) -> io::Result<Self> {
        let is_ipv6 = servers.iter().any(IpAddr::is_ipv6);
        let any: IpAddr = if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let mut last = io::ErrorKind::AddrInUse.into();
        for _ in 0..PORTS_TRIED {
            let streams = TcpListener::bind(SocketAddr::new(any, 0)).await?;
            let port = streams.local_addr()?.port();
            match UdpSocket::bind(SocketAddr::new(any, port)).await {
                Ok(datagrams) => return Ok(Self { streams, datagrams, port, is_ipv6 }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Answers calls. Does not end.
    async fn serve(&self, servers: &[IpAddr], answer: impl Fn(Bytes) -> Option<Bytes>) {
        let is_server = |address: SocketAddr| {
            let address = address.ip().to_canonical();
            servers.iter().any(|server| server.to_canonical() == address)
        };
        let mut connections = FuturesUnordered::new();
        let mut datagram = vec![0; CALL_MAX];
        loop {
            tokio::select! {
                Ok((stream, peer)) = self.streams.accept() => {
                    if is_server(peer) && connections.len() < CONNECTIONS_MAX {
                        connections.push(serve_stream(stream, &answer));
                    }
                }
                Ok((length, peer)) = self.datagrams.recv_from(&mut datagram) => {
                    if is_server(peer) && let Some(reply) = answer(Bytes::copy_from_slice(&datagram[..length])) {
                        // The server repeats a call without a reply.
                        let _ = self.datagrams.send_to(&reply, peer).await;
                    }
                }
                Some(ended) = connections.next() => {
                    if let Err(error) = ended {
                        debug!(%error, "a call of the server's lock manager was not answered");
                    }
                }
                // A failed accept, for instance for lack of descriptors.
                else => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

/// Answers the calls of one connection.
async fn serve_stream(mut stream: TcpStream, answer: &impl Fn(Bytes) -> Option<Bytes>) -> io::Result<()> {
    let (mut decoder, mut received) = (RecordDecoder::new(CALL_MAX), BytesMut::new());
    loop {
        while let Some(call) = decoder.decode(&mut received).map_err(io::Error::other)? {
            let Some(reply) = answer(call) else { return Ok(()) };
            let mark = LAST_FRAGMENT | u32::try_from(reply.len()).map_err(io::Error::other)?;
            within(stream.write_all(&[&mark.to_be_bytes()[..], &reply].concat())).await?;
        }
        if within(stream.read_buf(&mut received)).await? == 0 {
            return Ok(());
        }
    }
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(IDLE_MAX, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends bytes from an address of this machine, and returns what the listener sends until it closes the connection or is silent
    /// after a reply of `expected` bytes.
    async fn exchange(from: [u8; 4], port: u16, sent: &[u8], expected: usize) -> Vec<u8> {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let mut stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap();
        stream.write_all(sent).await.unwrap();
        let mut reply = vec![0; expected];
        let read = stream.read_exact(&mut reply).await;
        if read.is_ok() { reply } else { Vec::new() }
    }

    fn marked(call: &[u8]) -> Vec<u8> {
        [&(LAST_FRAGMENT | call.len() as u32).to_be_bytes()[..], call].concat()
    }

    #[tokio::test]
    async fn only_the_server_gets_answers() {
        let servers = [IpAddr::from([127, 0, 0, 1])];
        let listener = Listener::bind(&servers).await.unwrap();
        let port = listener.port;
        let serving = listener.serve(&servers, |call| (&call[..] != b"bad").then_some(call));
        let calls = async {
            let call = marked(b"call");
            assert_eq!(exchange([127, 0, 0, 1], port, &call, 8).await, call);
            assert_eq!(
                exchange([127, 0, 0, 1], port, &[&call[..], &call].concat(), 16).await,
                call.repeat(2)
            );
            assert!(exchange([127, 0, 0, 2], port, &call, 8).await.is_empty());
            assert!(exchange([127, 0, 0, 1], port, &marked(b"bad"), 8).await.is_empty());
            let too_long = (LAST_FRAGMENT | 8193).to_be_bytes();
            assert!(exchange([127, 0, 0, 1], port, &too_long, 8).await.is_empty());

            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.send_to(b"bad", ("127.0.0.1", port)).await.unwrap();
            socket.send_to(b"call", ("127.0.0.1", port)).await.unwrap();
            let mut reply = [0; 16];
            assert_eq!(socket.recv(&mut reply).await.unwrap(), 4);
            assert_eq!(&reply[..4], b"call");
        };
        tokio::select! {
            () = calls => {}
            () = serving => {}
        }
    }
}
