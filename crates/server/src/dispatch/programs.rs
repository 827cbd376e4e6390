//! The programs that are served, one row each.

use rpc::message::{AcceptStatus, CallHeader, VersionRange};

use crate::shared::Shared;
use crate::{Connection, Operation, Transport, Versions};

/// Versions of a program: bit 3 for version 3. All programs have versions below 32.
type VersionSet = u32;

/// A program. Its handler is chosen by the [`Operation`], in one exhaustive match: the handlers' futures have different types, and a
/// box for each call would cost an allocation.
struct Program {
    /// Its number.
    number: u32,
    /// Returns the versions that are served.
    versions: fn(&Shared) -> VersionSet,
    /// The versions that are served over UDP too, if [`Settings::udp`](crate::Settings::udp).
    over_udp: VersionSet,
    /// Whether it is served on the port mapper's port.
    is_port_mapper: bool,
    /// Names a procedure of a version that is served.
    operation: fn(version: u32, procedure: u32) -> Operation,
}

/// Numbers: RFC 1813 §2.1, §5; RFC 1833 §2. NFS comes first because nearly all calls are for it.
const PROGRAMS: [Program; 4] = [
    Program {
        number: protocol::nfs3::PROGRAM,
        versions: |shared| shared.settings.versions.program_versions(),
        // RFC 7530 §3.1 and RFC 8881 §2.9.1 forbid version 4 over UDP.
        over_udp: set(&[protocol::nfs2::VERSION, protocol::nfs3::VERSION]),
        is_port_mapper: false,
        operation: |version, procedure| match version {
            protocol::nfs2::VERSION => Operation::Nfs2(procedure),
            protocol::nfs3::VERSION => Operation::Nfs3(procedure),
            _ => Operation::Nfs4(procedure),
        },
    },
    Program {
        number: protocol::nfsacl::PROGRAM,
        versions: |shared| match shared.settings.versions.contains(Versions::V3) {
            true => set(&[protocol::nfsacl::VERSION]),
            false => 0,
        },
        over_udp: set(&[protocol::nfsacl::VERSION]),
        is_port_mapper: false,
        operation: |_, procedure| Operation::NfsAcl(procedure),
    },
    Program {
        number: protocol::mount::PROGRAM,
        versions: mount_versions,
        over_udp: VersionSet::MAX,
        is_port_mapper: false,
        operation: |_, procedure| Operation::Mount(procedure),
    },
    Program {
        number: protocol::portmap::PROGRAM,
        versions: |shared| match shared.settings.portmap {
            Some(_) => {
                use protocol::rpcbind::{VERSION_3, VERSION_4};
                set(&[protocol::portmap::VERSION, VERSION_3, VERSION_4])
            }
            None => 0,
        },
        over_udp: VersionSet::MAX,
        is_port_mapper: true,
        operation: |_, procedure| Operation::Portmap(procedure),
    },
];

/// Returns the set of these versions.
const fn set(versions: &[u32]) -> VersionSet {
    let (mut set, mut at) = (0, 0);
    while at < versions.len() {
        set |= 1 << versions[at];
        at += 1;
    }
    set
}

/// Versions 1 and 2 return handles for version 2. Boot loaders also use these handles with version 3, if they fit.
fn mount_versions(shared: &Shared) -> VersionSet {
    use protocol::mount::{VERSION_1, VERSION_2, VERSION_3};
    let has_short =
        shared.settings.versions.contains(Versions::V2) || shared.exports.load().has_short_handles();
    if has_short { set(&[VERSION_1, VERSION_2, VERSION_3]) } else { set(&[VERSION_3]) }
}

/// Returns what a call asks for, or why it is not served.
pub(super) fn select(
    shared: &Shared,
    header: &CallHeader,
    connection: &Connection,
) -> Result<Operation, AcceptStatus> {
    let program = PROGRAMS.iter().find(|program| program.number == header.program);
    let program = program.ok_or(AcceptStatus::ProgramUnavailable)?;
    let is_udp = connection.transport == Transport::Udp;
    if !is_served_at(shared, program, connection.local.port(), is_udp) {
        return Err(AcceptStatus::ProgramUnavailable);
    }
    let served = (program.versions)(shared) & if is_udp { program.over_udp } else { VersionSet::MAX };
    if served == 0 {
        return Err(AcceptStatus::ProgramUnavailable);
    }
    if header.version >= VersionSet::BITS || served & (1 << header.version) == 0 {
        let (low, high) = (served.trailing_zeros(), VersionSet::BITS - 1 - served.leading_zeros());
        return Err(AcceptStatus::ProgramMismatch(VersionRange { low, high }));
    }
    Ok((program.operation)(header.version, header.procedure))
}

/// Returns whether a program is served on a port. Only the port mapper is served on its own port, where every source may ask, and other
/// programs over UDP only if that is wanted: the source of a datagram can be forged.
fn is_served_at(shared: &Shared, program: &Program, port: u16, is_udp: bool) -> bool {
    let is_mappers = if is_udp { is_for_port_mapper(shared, port) } else { port == protocol::portmap::PORT };
    match (is_mappers, program.is_port_mapper) {
        (true, false) => shared.settings.portmap.is_none() && !is_udp,
        (false, true) => !is_udp,
        _ => true,
    }
}

/// Returns whether datagrams to a port may call only the port mapper.
pub(super) fn is_for_port_mapper(shared: &Shared, port: u16) -> bool {
    port == protocol::portmap::PORT || !shared.settings.udp
}
