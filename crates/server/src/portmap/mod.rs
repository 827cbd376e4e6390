//! An own port mapper (RFC 1833), for clients that insist on asking one: it knows this server's programs and no others.
//!
//! It takes no registrations, and it forwards no calls: CALLIT makes a port mapper an amplifier and a proxy that hides
//! who calls.

mod portmap2;
mod rpcbind;

use xdr::{Decode, Encode, Reader, Writer};

use crate::request::{Request, Served};

/// A program and a version that this server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
}

/// What a port mapper of this machine is asked to tell.
pub const REGISTRATIONS: [Registration; 4] = [
    Registration { program: protocol::nfs3::PROGRAM, version: protocol::nfs3::VERSION },
    Registration { program: protocol::nfs3::PROGRAM, version: 4 },
    Registration { program: protocol::mount::PROGRAM, version: protocol::mount::VERSION_3 },
    Registration { program: protocol::nfsacl::PROGRAM, version: protocol::nfsacl::VERSION },
];

/// All that the own port mapper tells of, itself among it, with the ports; `port` is the server's.
fn all(port: u16) -> impl Iterator<Item = (Registration, u16)> {
    use protocol::portmap::{PORT, PROGRAM, VERSION};
    use protocol::rpcbind::{VERSION_3, VERSION_4};
    let own =
        [VERSION, VERSION_3, VERSION_4].map(|version| (Registration { program: PROGRAM, version }, PORT));
    own.into_iter().chain(REGISTRATIONS.map(|registration| (registration, port)))
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
    match version {
        protocol::portmap::VERSION => portmap2::serve(port, procedure, arguments, reply),
        _ => rpcbind::serve(request, port, version, procedure, arguments, reply),
    }
}

/// Decodes arguments, or says that they cannot be.
fn decode<T: Decode>(mut arguments: Reader) -> Result<T, Served> {
    T::decode(&mut arguments).map_err(|_| Served::GarbageArguments)
}

fn answer(reply: &mut Writer, results: &impl Encode) -> Served {
    results.encode(reply);
    Served::Done { is_error: false }
}
