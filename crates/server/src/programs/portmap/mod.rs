//! A port mapper (RFC 1833) for clients that need one. It lists only the programs of this server.
//!
//! It accepts no registrations and forwards no calls: CALLIT would make it an amplifier, and a proxy that hides callers.

mod portmap2;
mod rpcbind;

use xdr::{Decode, Encode, Reader, Writer};

use crate::request::{Request, Served};
use crate::{Transport, Versions};

/// A program and a version that this server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
}

/// Returns what a server of these versions of NFS registers with the machine's port mapper.
pub fn registrations(versions: Versions) -> impl Iterator<Item = Registration> {
    let v3 = versions.contains(Versions::V3);
    let v4 = versions.intersects(Versions::V4);
    [
        (v3, protocol::nfs3::PROGRAM, protocol::nfs3::VERSION),
        (v4, protocol::nfs4::PROGRAM, protocol::nfs4::VERSION),
        (true, protocol::mount::PROGRAM, protocol::mount::VERSION_3),
        (v3, protocol::nfsacl::PROGRAM, protocol::nfsacl::VERSION),
    ]
    .into_iter()
    .filter(|(is_served, ..)| *is_served)
    .map(|(_, program, version)| Registration { program, version })
}

/// An entry of the port mapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    registration: Registration,
    transport: Transport,
    port: u16,
}

/// Returns all entries, the port mapper's own among them; `port` is the server's. Only the port mapper listens on UDP.
fn all(versions: Versions, port: u16) -> impl Iterator<Item = Listed> {
    use protocol::portmap::{PORT, PROGRAM, VERSION};
    use protocol::rpcbind::{VERSION_3, VERSION_4};
    let own = [Transport::Tcp, Transport::Udp].into_iter().flat_map(|transport| {
        [VERSION, VERSION_3, VERSION_4].map(|version| Listed {
            registration: Registration { program: PROGRAM, version },
            transport,
            port: PORT,
        })
    });
    let others = registrations(versions);
    own.chain(others.map(move |registration| Listed { registration, transport: Transport::Tcp, port }))
}

/// Serves one call of version 2, 3 or 4.
pub(crate) fn procedure(
    request: &Request<'_>,
    version: u32,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let Some(port) = request.server.settings.portmap else { return Served::NoProcedure };
    let served = match version {
        protocol::portmap::VERSION => {
            portmap2::serve(request.server.settings.versions, port, procedure, arguments, reply)
        }
        _ => rpcbind::serve(request, port, version, procedure, arguments, reply),
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
