//! A port mapper (RFC 1833) for clients that need one. It lists only the programs of this server.
//!
//! It accepts no registrations and forwards no calls: CALLIT would make it an amplifier, and a proxy that hides callers.

mod portmap2;
mod rpcbind;

use xdr::{Decode, Encode, Reader, Writer};

use crate::request::{Request, Served};
use crate::{Settings, Transport, Versions};

/// A program and a version that this server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Whether it is served over UDP too, if the server serves any program over UDP.
    pub is_over_udp: bool,
}

/// Returns what a server of these versions of NFS registers with the machine's port mapper.
pub fn registrations(versions: Versions) -> impl Iterator<Item = Registration> {
    use protocol::{mount, nfs2, nfs3, nfs4, nfsacl};
    let (v2, v3) = (versions.contains(Versions::V2), versions.contains(Versions::V3));
    let v4 = versions.intersects(Versions::V4);
    [
        (v2, nfs2::PROGRAM, nfs2::VERSION, true),
        (v3, nfs3::PROGRAM, nfs3::VERSION, true),
        (v4, nfs4::PROGRAM, nfs4::VERSION, false),
        (v2, mount::PROGRAM, mount::VERSION_1, true),
        (v2, mount::PROGRAM, mount::VERSION_2, true),
        (true, mount::PROGRAM, mount::VERSION_3, true),
        (v3, nfsacl::PROGRAM, nfsacl::VERSION, true),
    ]
    .into_iter()
    .filter(|(is_served, ..)| *is_served)
    .map(|(_, program, version, is_over_udp)| Registration { program, version, is_over_udp })
}

/// An entry of the port mapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    registration: Registration,
    transport: Transport,
    port: u16,
}

/// What the port mapper lists.
#[derive(Debug, Clone, Copy)]
struct Service {
    versions: Versions,
    /// Whether programs other than the port mapper are served over UDP.
    udp: bool,
    /// The server's port.
    port: u16,
}

impl Service {
    /// Returns what the port mapper lists, if there is one.
    fn of(settings: &Settings) -> Option<Self> {
        let Settings { versions, udp, .. } = *settings;
        settings.portmap.map(|port| Self { versions, udp, port })
    }

    /// Returns all entries, the port mapper's own among them.
    fn all(self) -> impl Iterator<Item = Listed> {
        use protocol::portmap::{PORT, PROGRAM, VERSION};
        use protocol::rpcbind::{VERSION_3, VERSION_4};
        let own = BOTH.into_iter().flat_map(|transport| {
            [VERSION, VERSION_3, VERSION_4].map(|version| Listed {
                registration: Registration { program: PROGRAM, version, is_over_udp: true },
                transport,
                port: PORT,
            })
        });
        let Self { versions, udp, port } = self;
        let others = BOTH.into_iter().flat_map(move |transport| {
            let is_listed = move |registration: &Registration| {
                transport == Transport::Tcp || (udp && registration.is_over_udp)
            };
            let listed = registrations(versions).filter(is_listed);
            listed.map(move |registration| Listed { registration, transport, port })
        });
        own.chain(others)
    }
}

/// All transports.
const BOTH: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// Serves one call of version 2, 3 or 4.
pub(crate) fn procedure(
    request: &Request<'_>,
    version: u32,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let Some(service) = Service::of(&request.server.settings) else { return Served::NoProcedure };
    let served = match version {
        protocol::portmap::VERSION => portmap2::serve(service, procedure, arguments, reply),
        _ => rpcbind::serve(request, service, version, procedure, arguments, reply),
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
