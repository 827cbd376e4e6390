//! A port mapper (RFC 1833) for clients that need one. It lists only the programs of this server.
//!
//! It accepts no registrations and forwards no calls: CALLIT would make it an amplifier, and a proxy that hides callers.

mod portmap2;
mod rpcbind;

use xdr::{Decode, Encode, Reader, Writer};

use crate::Transport;
use crate::request::{Request, Served};

/// A program and a version that this server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Whether it is served over UDP too.
    pub is_over_udp: bool,
    /// Its port, if that is not the port of NFS.
    pub port: Option<u16>,
}

/// An entry of the port mapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    registration: Registration,
    transport: Transport,
    port: u16,
}

/// The services that the port mapper lists.
#[derive(Debug, Clone)]
struct Service {
    registrations: Vec<Registration>,
    /// The port of NFS.
    port: u16,
}

impl Service {
    /// Returns all entries, including the port mapper's own.
    fn all(&self) -> impl Iterator<Item = Listed> {
        use protocol::portmap::{PORT, PROGRAM, VERSION};
        use protocol::rpcbind::{VERSION_3, VERSION_4};
        let own = BOTH.into_iter().flat_map(|transport| {
            [VERSION, VERSION_3, VERSION_4].map(|version| Listed {
                registration: Registration { program: PROGRAM, version, is_over_udp: true, port: Some(PORT) },
                transport,
                port: PORT,
            })
        });
        let others = BOTH.into_iter().flat_map(move |transport| {
            let is_listed =
                move |registration: &&Registration| transport == Transport::Tcp || registration.is_over_udp;
            self.registrations.iter().filter(is_listed).map(move |registration| Listed {
                registration: *registration,
                transport,
                port: registration.port.unwrap_or(self.port),
            })
        });
        own.chain(others)
    }
}

/// All transports.
const BOTH: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// Serves one call of version 2, 3 or 4. Lists the port mapper and `registrations`.
pub(crate) fn procedure(
    request: &Request<'_>,
    registrations: Vec<Registration>,
    version: u32,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let Some(port) = request.server.settings.portmap else { return Served::NoProcedure };
    let service = Service { registrations, port };
    let served = match version {
        protocol::portmap::VERSION => portmap2::serve(&service, procedure, arguments, reply),
        _ => rpcbind::serve(request, &service, version, procedure, arguments, reply),
    };
    if let Served::Done { is_error } = served {
        request.server.metrics.portmap[procedure as usize].count(is_error);
    }
    served
}

/// Decodes arguments.
fn decode<T: Decode>(mut arguments: Reader) -> Result<T, Served> {
    T::decode(&mut arguments).map_err(|_| Served::GarbageArguments)
}

fn answer(reply: &mut Writer, results: &impl Encode) -> Served {
    results.encode(reply);
    Served::Done { is_error: false }
}
