//! Calls as bytes from any address of this machine, over TCP or UDP.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, RpcError, encode_call, parse_reply};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use super::Raw;

/// The bit of a record mark that the last fragment has (RFC 5531 §11).
pub(super) const LAST_FRAGMENT: u32 = 1 << 31;
/// Maximum bytes of a datagram of UDP over IPv4.
pub(super) const MAX_DATAGRAM: usize = 65_507;
/// The user of all calls.
const USER: u32 = 1000;
/// Time until a call over UDP is repeated, and number of times that it is sent. A datagram may be lost, but no test waits for one that is.
const REPEAT: Duration = Duration::from_secs(5);
const TIMES: usize = 12;

/// Distance of the first transaction IDs of two callers. The server takes a call with the same ID and arguments from the same address
/// for a retransmission.
const XIDS: u32 = 1 << 20;
static LAST_XID: AtomicU32 = AtomicU32::new(0);

/// A program, a version, and a procedure.
pub(super) type Procedure = (u32, u32, u32);

/// Results as bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rest(pub(super) Vec<u8>);

impl Decode for Rest {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(reader.rest().to_vec()))
    }
}

enum Carrier {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// A caller at one address of this machine.
pub(super) struct Wire {
    carrier: Carrier,
    xid: u32,
    /// Number of replies that no call waited for.
    pub(super) strays: usize,
}

impl Wire {
    /// Connects over TCP.
    pub(super) fn tcp(server: SocketAddr, from: [u8; 4]) -> Self {
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&own, &SocketAddr::from((from, 0))).expect("an address of this machine");
        connect(&own, &server).expect("the server listens");
        let stream = TcpStream::from(own);
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(REPEAT * TIMES as u32)).expect("an option");
        Self::carried_by(Carrier::Tcp(stream))
    }

    /// Sends datagrams from a port above 1023.
    pub(super) fn udp(server: SocketAddr, from: [u8; 4]) -> Self {
        Self::over(server, UdpSocket::bind((std::net::Ipv4Addr::from(from), 0)).expect("a free port"))
    }

    /// Sends datagrams from a port below 1024, which only root can have.
    pub(super) fn udp_of_root(server: SocketAddr, from: [u8; 4]) -> Self {
        let address = std::net::Ipv4Addr::from(from);
        let bound = (600..1024).find_map(|port| UdpSocket::bind((address, port)).ok());
        Self::over(server, bound.expect("a free port below 1024"))
    }

    fn over(server: SocketAddr, socket: UdpSocket) -> Self {
        socket.connect(server).expect("an address of this machine");
        socket.set_read_timeout(Some(REPEAT)).expect("an option");
        Self::carried_by(Carrier::Udp(socket))
    }

    fn carried_by(carrier: Carrier) -> Self {
        Self { carrier, xid: LAST_XID.fetch_add(XIDS, Relaxed), strays: 0 }
    }

    /// Returns the port of its socket.
    pub(super) fn port(&self) -> u16 {
        let address = match &self.carrier {
            Carrier::Tcp(stream) => stream.local_addr(),
            Carrier::Udp(socket) => socket.local_addr(),
        };
        address.expect("a bound socket").port()
    }

    pub(super) fn is_udp(&self) -> bool {
        matches!(self.carrier, Carrier::Udp(_))
    }

    /// Returns a call with the next transaction ID.
    pub(super) fn record(&mut self, (program, version, number): Procedure, arguments: &impl Encode) -> Bytes {
        self.xid += 1;
        let credential = OpaqueAuth::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"client"),
            uid: USER,
            gid: USER,
            gids: GroupList::default(),
        });
        let header = CallHeader { credential, ..CallHeader::new(self.xid, program, version, number) };
        let mut call = Writer::new();
        encode_call(&mut call, &header, arguments);
        call.into_bytes()
    }

    /// Sends a record. A datagram that the kernel refuses is lost.
    pub(super) fn send(&mut self, record: &[u8]) {
        match &mut self.carrier {
            Carrier::Tcp(stream) => {
                let mark = LAST_FRAGMENT | record.len() as u32;
                stream.write_all(&[&mark.to_be_bytes()[..], record].concat()).expect("room in the socket");
            }
            Carrier::Udp(socket) => drop(socket.send(record)),
        }
    }

    /// Sends the bytes of a stream as they are.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.carrier {
            Carrier::Tcp(stream) => stream.write_all(bytes).expect("room in the socket"),
            Carrier::Udp(_) => panic!("datagrams are no stream"),
        }
    }

    /// Returns the next record from the server; `None` if a datagram may be lost.
    fn receive(&mut self) -> Option<Bytes> {
        match &mut self.carrier {
            Carrier::Tcp(stream) => {
                let mut mark = [0; 4];
                stream.read_exact(&mut mark).expect("a reply");
                let mut record = vec![0; (u32::from_be_bytes(mark) & !LAST_FRAGMENT) as usize];
                stream.read_exact(&mut record).expect("the whole reply");
                Some(record.into())
            }
            Carrier::Udp(socket) => {
                let mut datagram = vec![0; MAX_DATAGRAM];
                match socket.recv(&mut datagram) {
                    Ok(length) => Some(Bytes::copy_from_slice(&datagram[..length])),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Returns the reply to a record. Counts replies to others.
    #[track_caller]
    pub(super) fn reply_to(&mut self, record: &[u8]) -> Bytes {
        for _ in 0..TIMES {
            self.send(record);
            if let Some(reply) = self.next_reply_to(record) {
                return reply;
            }
        }
        panic!("no reply");
    }

    /// Waits for the reply to a record that was sent; `None` if it may be lost. Counts replies to others.
    pub(super) fn next_reply_to(&mut self, record: &[u8]) -> Option<Bytes> {
        loop {
            let reply = self.receive()?;
            if reply[..4] == record[..4] {
                return Some(reply);
            }
            self.strays += 1;
        }
    }

    /// Calls a procedure.
    #[track_caller]
    pub(super) fn ask<T: Decode>(
        &mut self,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> Result<T, RpcError> {
        let record = self.record(procedure, arguments);
        parse_reply(self.reply_to(&record))
    }

    /// Calls a procedure with bytes in place of its arguments.
    #[track_caller]
    pub(super) fn ask_raw(&mut self, procedure: Procedure, arguments: &[u8]) -> Result<Rest, RpcError> {
        self.ask(procedure, &Raw(arguments))
    }

    /// Calls the NULL of version 3, which the server answers after everything that this caller has sent before.
    #[track_caller]
    pub(super) fn ping(&mut self) {
        self.ask::<()>((protocol::nfs3::PROGRAM, protocol::nfs3::VERSION, 0), &()).expect("NULL succeeds");
    }

    /// Sends a datagram that gets no answer.
    #[track_caller]
    pub(super) fn send_in_vain(&mut self, datagram: &[u8]) {
        let before = self.strays;
        self.send(datagram);
        self.ping();
        assert_eq!(self.strays, before, "an answer to {} bytes", datagram.len());
    }
}
