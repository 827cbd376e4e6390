//! Calls to the lock managers and status monitors of clients: their port mapper is asked for the port, and the call is made once.
//!
//! Calls leave from the address that the client has called: clients accept a GRANTED only from there. If permitted they leave from a
//! privileged port.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use protocol::portmap::{self, Mapping, Protocol};
use protocol::rpcbind::{self, Rpcb, Text};
use rpc::address::UniversalAddress;
use rpc::message::{CallHeader, encode_call, parse_reply};
use server::{HostAnswer, HostCall, HostPath, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use tracing::debug;
use xdr::Writer;

use crate::reserved;

/// Time limit for each answer: of the port mapper, and of the program.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Time after which a datagram is sent again.
const REPEAT: Duration = Duration::from_secs(2);
/// Maximum bytes of a reply.
const REPLY_MAX: usize = 4096;
/// The transaction number of queries to a port mapper. Each has its own socket.
const QUESTION_XID: u32 = 1;
/// The bit of a record mark that the last fragment has (RFC 5531 §11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// The reason why a call has no reply.
enum Failure {
    /// No part of the call was sent.
    NotSent(io::Error),
    /// The call was sent, or may have been.
    NoReply(io::Error),
}

/// Makes a call. Ends within a bounded time.
pub(crate) async fn call(call: &HostCall) -> HostAnswer {
    let (path, (program, version)) = (call.path(), call.program());
    let address = path.address;
    let port = match port_of(path, program, version).await {
        Ok(port) => port,
        Err(error) => {
            debug!(%address, program, "the client's port mapper does not help: {error}");
            return HostAnswer::Unreachable;
        }
    };
    match exchange(path, port, call.record(), call.is_answered()).await {
        Ok(reply) => HostAnswer::Reply(reply),
        Err(Failure::NotSent(error)) => {
            debug!(%address, port, program, "cannot call a client: {error}");
            HostAnswer::Unreachable
        }
        Err(Failure::NoReply(error)) => {
            debug!(%address, port, program, "a client does not answer: {error}");
            HostAnswer::Unanswered
        }
    }
}

/// Asks the port mapper of a host for a program's port.
async fn port_of(path: HostPath, program: u32, version: u32) -> io::Result<u16> {
    let mut question = Writer::new();
    if path.address.is_ipv4() {
        let protocol = match path.transport {
            Transport::Tcp => Protocol::TCP,
            Transport::Udp => Protocol::UDP,
        };
        let header =
            CallHeader::new(QUESTION_XID, portmap::PROGRAM, portmap::VERSION, portmap::Proc::GETPORT.0);
        encode_call(&mut question, &header, &Mapping { program, version, protocol, port: 0 });
    } else {
        // Version 2 has no IPv6.
        let netid: &'static [u8] = if path.transport == Transport::Tcp { b"tcp6" } else { b"udp6" };
        let (netid, empty) = (Text::from_static(netid), Text::default());
        let wanted = Rpcb { program, version, netid, addr: empty.clone(), owner: empty };
        let (version, procedure) = (rpcbind::VERSION_4, rpcbind::Proc::GETADDR.0);
        encode_call(
            &mut question,
            &CallHeader::new(QUESTION_XID, portmap::PROGRAM, version, procedure),
            &wanted,
        );
    }
    let reply = match exchange(path, portmap::PORT, &question.into_bytes(), true).await {
        Ok(reply) => reply,
        Err(Failure::NotSent(error) | Failure::NoReply(error)) => return Err(error),
    };
    let port = if path.address.is_ipv4() {
        parse_reply::<u32>(reply).map(|port| u16::try_from(port).unwrap_or(0))
    } else {
        let port = |text: Text| {
            let text = std::str::from_utf8(&text).ok()?;
            text.parse::<UniversalAddress>().ok().map(|address| address.0.port())
        };
        parse_reply::<Text>(reply).map(|text| port(text).unwrap_or(0))
    };
    match port.map_err(|error| io::Error::other(error.to_string()))? {
        0 => Err(io::Error::other("the program is not registered")),
        port => Ok(port),
    }
}

/// Sends a record, and returns the reply if one `is_answered`; otherwise fails with [`Failure::NoReply`].
async fn exchange(path: HostPath, port: u16, record: &Bytes, is_answered: bool) -> Result<Bytes, Failure> {
    let (local, peer) = (SocketAddr::new(path.local, 0), SocketAddr::new(path.address, port));
    match path.transport {
        Transport::Udp => exchange_datagrams((local, peer), record, is_answered).await,
        Transport::Tcp => exchange_records((local, peer), record, is_answered).await,
    }
}

async fn exchange_datagrams(
    (local, peer): (SocketAddr, SocketAddr),
    record: &Bytes,
    is_answered: bool,
) -> Result<Bytes, Failure> {
    let socket = reserved::bind_udp(local).await.map_err(Failure::NotSent)?;
    socket.connect(peer).await.map_err(Failure::NotSent)?;
    socket.send(record).await.map_err(Failure::NotSent)?;
    if !is_answered {
        return Err(Failure::NoReply(io::ErrorKind::WouldBlock.into()));
    }
    let receive = async {
        loop {
            match timeout(REPEAT, receive_datagram(&socket, record)).await {
                Ok(received) => return received,
                Err(_) => drop(socket.send(record).await),
            }
        }
    };
    match timeout(ANSWER_TIMEOUT, receive).await {
        Ok(Ok(reply)) => Ok(reply),
        // An ICMP message: no program listens there.
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Err(Failure::NotSent(error)),
        Ok(Err(error)) => Err(Failure::NoReply(error)),
        Err(_) => Err(Failure::NoReply(io::ErrorKind::TimedOut.into())),
    }
}

/// Receives a reply with the transaction number of a call. Other datagrams are late, or forged.
async fn receive_datagram(socket: &UdpSocket, call: &[u8]) -> io::Result<Bytes> {
    let mut buffer = vec![0; REPLY_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if length >= 4 && buffer[..4] == call[..4] {
            buffer.truncate(length);
            return Ok(buffer.into());
        }
    }
}

async fn exchange_records(
    (local, peer): (SocketAddr, SocketAddr),
    record: &Bytes,
    is_answered: bool,
) -> Result<Bytes, Failure> {
    let connected = timeout(ANSWER_TIMEOUT, reserved::connect(local, peer)).await;
    let mut stream = match connected {
        Ok(connected) => connected.map_err(Failure::NotSent)?,
        Err(_) => return Err(Failure::NotSent(io::ErrorKind::TimedOut.into())),
    };
    let mark = LAST_FRAGMENT | u32::try_from(record.len()).expect("records are short");
    let marked = [&mark.to_be_bytes()[..], record].concat();
    let answer = async {
        stream.write_all(&marked).await?;
        if is_answered { read_record(&mut stream).await } else { Err(io::ErrorKind::WouldBlock.into()) }
    };
    match timeout(ANSWER_TIMEOUT, answer).await {
        Ok(reply) => reply.map_err(Failure::NoReply),
        Err(_) => Err(Failure::NoReply(io::ErrorKind::TimedOut.into())),
    }
}

/// Reads a record of one or more fragments.
async fn read_record(stream: &mut tokio::net::TcpStream) -> io::Result<Bytes> {
    let mut reply = Vec::new();
    loop {
        let mark = stream.read_u32().await?;
        let length = (mark & !LAST_FRAGMENT) as usize;
        if reply.len() + length > REPLY_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = reply.len();
        reply.resize(start + length, 0);
        stream.read_exact(&mut reply[start..]).await?;
        if mark & LAST_FRAGMENT != 0 {
            return Ok(reply.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    /// Hosts that do not answer: more than the server calls at once.
    const SILENT: usize = 300;

    fn path(transport: Transport) -> HostPath {
        HostPath { address: Ipv4Addr::LOCALHOST.into(), local: Ipv4Addr::LOCALHOST.into(), transport }
    }

    async fn socket() -> (UdpSocket, u16) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        (socket, port)
    }

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// Takes a connection, reads a record, and writes these bytes.
    async fn answer_record(listener: &TcpListener, bytes: &[u8]) -> Bytes {
        let (mut stream, _) = listener.accept().await.unwrap();
        let record = read_record(&mut stream).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        record
    }

    #[tokio::test]
    async fn a_host_that_answers_waits_for_no_other() {
        let ((_silent, silent_port), (live, live_port)) = (socket().await, socket().await);
        let call = Bytes::from_static(b"call of a server");
        let silent = || {
            let call = call.clone();
            tokio::spawn(
                async move { exchange(path(Transport::Udp), silent_port, &call, true).await.is_ok() },
            )
        };
        let waiting: Vec<_> = (0..SILENT).map(|_| silent()).collect();
        let answering = async {
            let mut received = [0; 100];
            let (length, from) = live.recv_from(&mut received).await.unwrap();
            // Of another call: late, or forged.
            live.send_to(b"care", from).await.unwrap();
            live.send_to(b"ca", from).await.unwrap();
            live.send_to(&received[..length], from).await.unwrap();
        };
        let (answer, ()) = tokio::join!(exchange(path(Transport::Udp), live_port, &call, true), answering);
        assert_eq!(answer.ok(), Some(call));
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "their calls are still under way");
        waiting.into_iter().for_each(|waiting| waiting.abort());
    }

    #[tokio::test]
    async fn a_datagram_is_repeated_and_then_has_no_reply() {
        let (silent, port) = socket().await;
        let call = Bytes::from_static(b"call");
        let outcome = exchange(path(Transport::Udp), port, &call, true).await;
        assert!(matches!(outcome, Err(Failure::NoReply(_))), "the host may have it");
        let mut received = [0; 100];
        let mut count = 0;
        while silent.try_recv(&mut received).is_ok() {
            count += 1;
        }
        assert!(count >= 2, "{count}");
    }

    #[tokio::test]
    async fn where_nothing_listens_no_call_was_sent() {
        for transport in [Transport::Udp, Transport::Tcp] {
            // Free again.
            let port = match transport {
                Transport::Udp => socket().await.1,
                Transport::Tcp => listener().await.1,
            };
            let outcome = exchange(path(transport), port, &Bytes::from_static(b"call"), true).await;
            assert!(matches!(outcome, Err(Failure::NotSent(_))), "{transport:?}");
        }
    }

    #[tokio::test]
    async fn the_fragments_of_a_record_are_joined_and_bounded() {
        let (listener, port) = listener().await;
        let call = Bytes::from_static(b"call");
        let fragments: &[u8] = b"\0\0\0\x02ab\0\0\0\0\x80\0\0\x01c";
        let (answer, received) = tokio::join!(
            exchange(path(Transport::Tcp), port, &call, true),
            answer_record(&listener, fragments)
        );
        assert_eq!((answer.ok(), received), (Some(Bytes::from_static(b"abc")), call.clone()));
        let too_long = (LAST_FRAGMENT | (REPLY_MAX as u32 + 1)).to_be_bytes();
        // It does not come, and is not waited for.
        let (answer, _) = tokio::join!(
            exchange(path(Transport::Tcp), port, &call, true),
            answer_record(&listener, &too_long)
        );
        let Err(Failure::NoReply(error)) = answer else { panic!("an answer") };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_call_without_an_answer_ends_when_it_is_sent() {
        let (receiver, port) = socket().await;
        let outcome = exchange(path(Transport::Udp), port, &Bytes::from_static(b"result"), false).await;
        assert!(matches!(outcome, Err(Failure::NoReply(error)) if error.kind() == io::ErrorKind::WouldBlock));
        let mut received = [0; 100];
        let length = receiver.recv(&mut received).await.unwrap();
        assert_eq!(received[..length], *b"result");
    }
}
