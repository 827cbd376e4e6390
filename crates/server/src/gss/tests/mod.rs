//! An RPCSEC_GSS client of a whole server, with a mechanism that needs no Kerberos.

mod calls;
mod contexts;
mod nfs;

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use rpc::auth::{AuthFlavor, AuthStatus, OpaqueAuth};
use rpc::gss::{GssCredential, GssProc, InitArgs, InitResult, IntegrityData, PrivacyData, Service};
use rpc::message::{AcceptStatus, AcceptedReply, CallHeader, Rejection, ReplyBody, ReplyHeader};
use vfs::Timestamp;
use xdr::{Encode, Opaque, Reader, Writer, from_bytes, to_bytes};

use super::SecurityContext;
use super::toy::{Toy, ToyContext};
use crate::testing::{KEY, export};
use crate::{
    Connection, ConnectionId, Disposition, Export, ExportTable, Flavor, Flavors, Now, Server, Settings,
    Transport,
};

const NFS: u32 = 100_003;

/// Maximum bytes of any message here.
const LIMIT: usize = 4 << 20;

fn now() -> Now {
    Now { monotonic: Duration::from_secs(1000), wall: Timestamp { seconds: 1_000_000, nanoseconds: 5 } }
}

/// Returns a server with the toy mechanism, and the number of its contexts.
fn server_of(exports: Vec<Export>, lifetime: Option<Duration>) -> (Arc<Server>, Arc<AtomicU64>) {
    let mut settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
    let toy = Toy { lifetime, ..Toy::default() };
    let alive = Arc::clone(&toy.alive);
    settings.gss = Some(Arc::new(toy));
    (Arc::new(Server::new(settings, ExportTable::new(exports).unwrap())), alive)
}

/// Returns an export that allows every flavor.
fn open_export() -> Export {
    let mut export = export(1, "/export");
    export.options.flavors = Flavors::new(&Flavor::ALL).unwrap();
    export
}

fn server() -> Arc<Server> {
    server_of(vec![open_export()], None).0
}

/// A call before its protection.
#[derive(Clone)]
struct Sent {
    xid: u32,
    program: (u32, u32, u32),
    arguments: Bytes,
    procedure: GssProc,
    sequence: u32,
    service: u32,
}

/// The outcome of a call.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// The results, without their protection.
    Results(Bytes),
    /// Accepted, with a valid verifier of the server.
    Status(AcceptStatus),
    Denied(AuthStatus),
    /// Refused: another version of RPC.
    Mismatch,
    Nothing,
    Closed,
}

/// A principal on one connection.
struct Peer {
    server: Arc<Server>,
    connection: Arc<Connection>,
    now: Now,
    name: String,
    context: ToyContext,
    handle: Bytes,
    service: Service,
    sequence: u32,
    xid: u32,
}

impl Peer {
    /// Returns a principal without a context.
    fn stranger(server: &Arc<Server>, name: &str) -> Self {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
        Self {
            server: Arc::clone(server),
            connection: Arc::new(connection),
            now: now(),
            name: name.into(),
            context: ToyContext::of(name),
            handle: Bytes::new(),
            service: Service::None,
            sequence: 0,
            xid: 0,
        }
    }

    /// Returns a principal with a context.
    fn new(server: &Arc<Server>, name: &str, service: Service) -> Self {
        let mut peer = Self { service, ..Self::stranger(server, name) };
        let (result, verifier) = peer.init(GssProc::INIT, &[], &Toy::token(name, 0)).unwrap();
        assert_eq!((result.major, &result.token[..]), (0, &b"done"[..]));
        // RFC 2203 §5.2.3.1: "the checksum of the seq_window (in network order)".
        assert_eq!(verifier.flavor, AuthFlavor::RPCSEC_GSS);
        peer.context.verify_mic(&result.window.to_be_bytes(), &verifier.body).unwrap();
        peer.handle = result.handle.into_bytes();
        peer
    }

    /// Sends a record unchanged.
    fn deliver(&self, record: Bytes) -> Result<Bytes, Disposition> {
        let mut reply = Writer::new();
        let outcome = self.server.handle(&self.connection, self.now, record, &mut reply).now_or_never();
        match outcome.expect("the test mechanism and the file system in memory answer at once").disposition {
            Disposition::Reply => Ok(reply.into_bytes()),
            silent => {
                assert!(reply.is_empty());
                Err(silent)
            }
        }
    }

    /// Sends a call that creates a context; returns its results, or the error.
    fn init(
        &mut self,
        procedure: GssProc,
        handle: &[u8],
        token: &[u8],
    ) -> Result<(InitResult, OpaqueAuth), Got> {
        self.xid += 1;
        let handle = Opaque::new(handle.to_vec()).unwrap();
        // RFC 2203 §5.2.2: sequence number and service "must be ignored by the server".
        let credential = GssCredential { procedure, sequence: 77, service: 99, handle };
        let token = Opaque::new(token.to_vec()).unwrap();
        let record = call(self.xid, (NFS, 4, 0), &credential, &to_bytes(&InitArgs { token }));
        let mut reader = Reader::new(self.deliver(record).unwrap());
        match accepted(&mut reader)? {
            (AcceptStatus::Success, verifier) => Ok((from_bytes(reader.rest()).unwrap(), verifier)),
            (status, verifier) => {
                assert_eq!(verifier, OpaqueAuth::NONE);
                Err(Got::Status(status))
            }
        }
    }

    /// Returns the next call.
    fn next(&mut self, program: (u32, u32, u32), arguments: &impl Encode) -> Sent {
        self.sequence += 1;
        self.xid += 1;
        let service = match self.service {
            Service::None => 1,
            Service::Integrity => 2,
            Service::Privacy => 3,
        };
        Sent {
            xid: self.xid,
            program,
            arguments: to_bytes(arguments),
            procedure: GssProc::DATA,
            sequence: self.sequence,
            service,
        }
    }

    /// Returns the same call again, with another sequence number (RFC 2203 §5.3.3.1).
    fn again(&mut self, sent: &Sent) -> Sent {
        self.sequence += 1;
        Sent { sequence: self.sequence, ..sent.clone() }
    }

    /// Returns the record of a call, protected by the context.
    fn record(&mut self, sent: &Sent) -> Bytes {
        let handle = Opaque::new(self.handle.clone()).unwrap();
        let Sent { xid, program, procedure, sequence, service, .. } = *sent;
        let credential = GssCredential { procedure, sequence, service, handle };
        let plain = [&sequence.to_be_bytes()[..], &sent.arguments].concat();
        let arguments = match service {
            2 => {
                let checksum = Opaque::new(self.context.get_mic(&plain).unwrap()).unwrap();
                to_bytes(&IntegrityData::<LIMIT> { body: Opaque::new(plain).unwrap(), checksum })
            }
            3 => {
                let body = Opaque::new(self.context.wrap(&plain).unwrap()).unwrap();
                to_bytes(&PrivacyData::<LIMIT> { body })
            }
            _ => sent.arguments.clone(),
        };
        self.signed(xid, program, &credential, &arguments)
    }

    /// Returns a record with the checksum of its header.
    fn signed(
        &mut self,
        xid: u32,
        program: (u32, u32, u32),
        credential: &GssCredential,
        arguments: &[u8],
    ) -> Bytes {
        let unsigned = call(xid, program, credential, &[]);
        // Without the empty verifier: RFC 2203 §5.3.1, "up to and including the credential".
        let header = &unsigned[..unsigned.len() - 8];
        let verifier = OpaqueAuth {
            flavor: AuthFlavor::RPCSEC_GSS,
            body: Opaque::new(self.context.get_mic(header).unwrap()).unwrap(),
        };
        [header, &to_bytes(&verifier), arguments].concat().into()
    }

    /// Sends the record of the call `sent` and checks its reply.
    fn exchange(&mut self, sent: &Sent, record: Bytes) -> Got {
        let reply = match self.deliver(record) {
            Ok(reply) => reply,
            Err(Disposition::Close) => return Got::Closed,
            Err(_) => return Got::Nothing,
        };
        let mut reader = Reader::new(reply);
        let (status, verifier) = match accepted(&mut reader) {
            Ok(accepted) => accepted,
            Err(denied) => return denied,
        };
        // RFC 2203 §5.3.3.2: the checksum of "the sequence number (in network order) of the corresponding request", for every
        // status.
        assert_eq!(verifier.flavor, AuthFlavor::RPCSEC_GSS);
        self.context.verify_mic(&sent.sequence.to_be_bytes(), &verifier.body).unwrap();
        if status != AcceptStatus::Success {
            assert_eq!(reader.remaining(), 0);
            return Got::Status(status);
        }
        Got::Results(self.opened(sent, reader.rest()))
    }

    /// Returns the results in a reply's body.
    fn opened(&mut self, sent: &Sent, body: Bytes) -> Bytes {
        let plain = match sent.service {
            2 => {
                let data = from_bytes::<IntegrityData<LIMIT>>(body).unwrap();
                self.context.verify_mic(&data.body, &data.checksum).unwrap();
                data.body.into_bytes()
            }
            3 => {
                let data = from_bytes::<PrivacyData<LIMIT>>(body).unwrap();
                self.context.unwrap(&data.body).unwrap()
            }
            _ => return body,
        };
        assert_eq!(plain[..4], sent.sequence.to_be_bytes());
        plain.slice(4..)
    }

    /// Makes a call.
    fn call(&mut self, program: (u32, u32, u32), arguments: &impl Encode) -> Got {
        let sent = self.next(program, arguments);
        self.send(&sent)
    }

    fn send(&mut self, sent: &Sent) -> Got {
        let record = self.record(sent);
        self.exchange(sent, record)
    }

    /// NFSv3's NULL.
    fn null(&mut self) -> Got {
        self.call((NFS, 3, 0), &())
    }
}

/// Returns a record with an empty verifier.
fn call(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    gss: &GssCredential,
    arguments: &[u8],
) -> Bytes {
    let credential = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body: gss.to_body() };
    let header = CallHeader { credential, ..CallHeader::new(xid, program, version, procedure) };
    [&to_bytes(&header)[..], arguments].concat().into()
}

fn accepted(reader: &mut Reader) -> Result<(AcceptStatus, OpaqueAuth), Got> {
    match ReplyHeader::parse(reader).unwrap().body {
        ReplyBody::Accepted(AcceptedReply { verifier, status }) => Ok((status, verifier)),
        ReplyBody::Denied(Rejection::AuthError(status)) => Err(Got::Denied(status)),
        ReplyBody::Denied(Rejection::RpcMismatch(_)) => Err(Got::Mismatch),
    }
}

const NO_RESULTS: Got = Got::Results(Bytes::new());

const SERVICES: [Service; 3] = [Service::None, Service::Integrity, Service::Privacy];
