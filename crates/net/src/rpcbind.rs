//! Registration with a port mapper that runs already (RFC 1833 §3): what another program's port 111 is asked to tell.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use protocol::portmap::{Mapping, PORT, PROGRAM, Proc, Protocol, VERSION};
use rpc::message::{CallHeader, encode_call, parse_reply};
use server::{Registration, Versions, registrations};
use xdr::Writer;

/// How long the port mapper of this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ports that only the superuser may send from, which is how a port mapper knows whom to obey.
const PRIVILEGED_PORTS: std::ops::Range<u16> = 600..1024;

/// Our programs in somebody's port mapper; taken back when dropped.
#[derive(Debug)]
pub struct Registered {
    socket: UdpSocket,
    programs: Vec<Registration>,
}

impl Registered {
    /// Registers all programs of a server of `versions` on TCP `port`, in place of whatever was there.
    ///
    /// # Errors
    /// Where the port mapper does not answer or refuses.
    pub fn new(versions: Versions, port: u16) -> io::Result<Self> {
        let socket = bind()?;
        socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let registered = Self { socket, programs: registrations(versions).collect() };
        for registration in &registered.programs {
            let mapping = Mapping {
                program: registration.program,
                version: registration.version,
                protocol: Protocol::TCP,
                port: u32::from(port),
            };
            registered.call(Proc::UNSET, &mapping)?;
            if !registered.call(Proc::SET, &mapping)? {
                let why = format!("the port mapper refuses program {}", registration.program);
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
        }
        Ok(registered)
    }

    fn call(&self, procedure: Proc, mapping: &Mapping) -> io::Result<bool> {
        // One call at a time on a socket of our own: the procedure tells the answers apart.
        let xid = mapping.program ^ (mapping.version << 8) ^ procedure.0;
        let mut call = Writer::new();
        encode_call(&mut call, &CallHeader::new(xid, PROGRAM, VERSION, procedure.0), mapping);
        self.socket.send(call.inline())?;
        let mut reply = vec![0; 1024];
        let length = self.socket.recv(&mut reply)?;
        reply.truncate(length);
        parse_reply(reply.into()).map_err(|error| io::Error::other(format!("port mapper: {error}")))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        for registration in &self.programs {
            let (program, version) = (registration.program, registration.version);
            let mapping = Mapping { program, version, protocol: Protocol::TCP, port: 0 };
            if let Err(error) = self.call(Proc::UNSET, &mapping) {
                tracing::warn!("program {program} stays registered with the port mapper: {error}");
            }
        }
    }
}

fn bind() -> io::Result<UdpSocket> {
    let mut last = None;
    for port in PRIVILEGED_PORTS.rev() {
        match UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}
