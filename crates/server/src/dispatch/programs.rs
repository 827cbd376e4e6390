//! The programs that are served, one row each.

use rpc::message::{AcceptStatus, CallHeader, VersionRange};

use crate::{Connection, Operation, Settings, Transport, Versions};

/// A program. Its handler is chosen by the [`Operation`], in one exhaustive match: the handlers' futures have different types, and a
/// box for each call would cost an allocation.
struct Program {
    /// Its number.
    number: u32,
    /// Returns the lowest and the highest version that is served, if any. All versions between them are served too.
    versions: fn(&Settings) -> Option<(u32, u32)>,
    /// Whether it is served on the port mapper's port and over UDP.
    is_port_mapper: bool,
    /// Names a procedure of a version that is served.
    operation: fn(version: u32, procedure: u32) -> Operation,
}

/// Numbers: RFC 1813 §2.1, §5; RFC 1833 §2. NFS comes first because nearly all calls are for it.
const PROGRAMS: [Program; 4] = [
    Program {
        number: protocol::nfs3::PROGRAM,
        versions: |settings| settings.versions.program_versions(),
        is_port_mapper: false,
        operation: |version, procedure| match version {
            protocol::nfs3::VERSION => Operation::Nfs3(procedure),
            _ => Operation::Nfs4(procedure),
        },
    },
    Program {
        number: protocol::nfsacl::PROGRAM,
        versions: |settings| {
            let version = protocol::nfsacl::VERSION;
            settings.versions.contains(Versions::V3).then_some((version, version))
        },
        is_port_mapper: false,
        operation: |_, procedure| Operation::NfsAcl(procedure),
    },
    Program {
        number: protocol::mount::PROGRAM,
        versions: |_| Some((protocol::mount::VERSION_3, protocol::mount::VERSION_3)),
        is_port_mapper: false,
        operation: |_, procedure| Operation::Mount(procedure),
    },
    Program {
        number: protocol::portmap::PROGRAM,
        versions: |settings| {
            settings.portmap.map(|_| (protocol::portmap::VERSION, protocol::rpcbind::VERSION_4))
        },
        is_port_mapper: true,
        operation: |_, procedure| Operation::Portmap(procedure),
    },
];

/// Returns what a call asks for, or why it is not served.
pub(super) fn select(
    settings: &Settings,
    header: &CallHeader,
    connection: &Connection,
) -> Result<Operation, AcceptStatus> {
    let program = PROGRAMS.iter().find(|program| program.number == header.program);
    let program = program.ok_or(AcceptStatus::ProgramUnavailable)?;
    // Only the port mapper is served on its port, and above all over UDP: the source of a datagram can be forged. `clients` would
    // mean nothing, and long replies would go to somebody who never asked. RFC 8881 §2.9.1 forbids NFSv4.1 over UDP.
    let is_for_port_mapper =
        connection.transport == Transport::Udp || connection.local.port() == protocol::portmap::PORT;
    if is_for_port_mapper && settings.portmap.is_some() && !program.is_port_mapper {
        return Err(AcceptStatus::ProgramUnavailable);
    }
    let (low, high) = (program.versions)(settings).ok_or(AcceptStatus::ProgramUnavailable)?;
    if !(low..=high).contains(&header.version) {
        return Err(AcceptStatus::ProgramMismatch(VersionRange { low, high }));
    }
    Ok((program.operation)(header.version, header.procedure))
}
