//! The programs that are served, one row each.

use rpc::message::{AcceptStatus, CallHeader, VersionRange};

use crate::shared::Shared;
use crate::{Connection, Operation, Registration, Settings, Transport, Versions};

/// Versions of a program: bit 3 for version 3. All programs have versions below 32.
type VersionSet = u32;

/// A program. Its handler is chosen by the [`Operation`], in one exhaustive match: the handlers' futures have different types, and a
/// box for each call would cost an allocation.
struct Program {
    /// Its number.
    number: u32,
    /// Returns the versions that are served.
    versions: fn(&Shared) -> VersionSet,
    /// The versions that are served over UDP too, if [`Settings::udp`](crate::Settings::udp) or [`Self::is_always_over_udp`].
    over_udp: VersionSet,
    /// Whether it is served over UDP in any case.
    is_always_over_udp: fn(&Settings) -> bool,
    /// Returns its port, if that is not the port of NFS.
    own_port: fn(&Settings) -> Option<u16>,
    /// Whether it is served on the port mapper's port.
    is_port_mapper: bool,
    /// Names a procedure of a version that is served.
    operation: fn(version: u32, procedure: u32) -> Operation,
}

/// Numbers: RFC 1813 §2.1, §5; RFC 1833 §2. NFS comes first because nearly all calls are for it.
const PROGRAMS: [Program; 7] = [
    Program {
        number: protocol::nfs3::PROGRAM,
        versions: |shared| shared.settings.versions.program_versions(),
        // RFC 7530 §3.1 and RFC 8881 §2.9.1 forbid version 4 over UDP.
        over_udp: set(&[protocol::nfs2::VERSION, protocol::nfs3::VERSION]),
        is_always_over_udp: |_| false,
        own_port: |_| None,
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
        is_always_over_udp: |_| false,
        own_port: |_| None,
        is_port_mapper: false,
        operation: |_, procedure| Operation::NfsAcl(procedure),
    },
    Program {
        number: protocol::mount::PROGRAM,
        versions: mount_versions,
        over_udp: VersionSet::MAX,
        is_always_over_udp: |_| false,
        own_port: |_| None,
        is_port_mapper: false,
        operation: |_, procedure| Operation::Mount(procedure),
    },
    Program {
        number: protocol::nlm::PROGRAM,
        versions: |shared| match shared.settings.serves_nlm() {
            true => {
                use protocol::nlm::{VERSION, VERSION_1, VERSION_3};
                set(&[VERSION_1, VERSION_3, VERSION])
            }
            false => 0,
        },
        over_udp: VersionSet::MAX,
        is_always_over_udp: |_| false,
        own_port: |settings| settings.nlm_port,
        is_port_mapper: false,
        operation: |_, procedure| Operation::Nlm(procedure),
    },
    Program {
        number: protocol::nsm::PROGRAM,
        versions: |shared| if shared.settings.serves_nlm() { set(&[protocol::nsm::VERSION]) } else { 0 },
        over_udp: VersionSet::MAX,
        // Linux's sm-notify sends over UDP alone.
        is_always_over_udp: |_| true,
        own_port: |settings| settings.nsm_port,
        is_port_mapper: false,
        operation: |_, procedure| Operation::Nsm(procedure),
    },
    Program {
        number: protocol::rquota::PROGRAM,
        versions: |shared| match shared.exports.load().has_quotas() {
            true => set(&[protocol::rquota::VERSION_1, protocol::rquota::VERSION_2]),
            false => 0,
        },
        over_udp: VersionSet::MAX,
        // Linux's quota(1) asks over UDP.
        is_always_over_udp: |settings| settings.quotas_over_udp,
        own_port: |_| None,
        is_port_mapper: false,
        operation: |_, procedure| Operation::Rquota(procedure),
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
        is_always_over_udp: |_| true,
        own_port: |_| None,
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

/// Returns the requested operation, or why the call is not served.
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

/// Returns all programs and versions that are served, except the port mapper.
pub(super) fn registrations(shared: &Shared) -> Vec<Registration> {
    let settings = &shared.settings;
    let rows = PROGRAMS.iter().filter(|program| !program.is_port_mapper).flat_map(|program| {
        let served = (program.versions)(shared);
        let is_udp = settings.udp || (program.is_always_over_udp)(settings);
        (0..VersionSet::BITS).filter(move |version| served & (1 << version) != 0).map(move |version| {
            Registration {
                program: program.number,
                version,
                is_over_udp: is_udp && program.over_udp & (1 << version) != 0,
                port: (program.own_port)(settings),
            }
        })
    });
    rows.collect()
}

/// Returns whether a program is served on a port. Only the port mapper is served on its own port, where every source may ask, and other
/// programs over UDP only if that is configured: the source of a datagram can be forged. On a port of some programs only these are served.
fn is_served_at(shared: &Shared, program: &Program, port: u16, is_udp: bool) -> bool {
    let settings = &shared.settings;
    let has_port = |program: &Program| (program.own_port)(settings) == Some(port);
    if port != protocol::portmap::PORT && PROGRAMS.iter().any(has_port) && !has_port(program) {
        return false;
    }
    let is_mappers = if is_udp { is_for_every_sender(shared, port) } else { port == protocol::portmap::PORT };
    match (is_mappers, program.is_port_mapper) {
        (true, false) if is_udp => (program.is_always_over_udp)(settings) && port != protocol::portmap::PORT,
        (true, false) => settings.portmap.is_none(),
        (false, true) => !is_udp,
        _ => true,
    }
}

/// Returns whether datagrams to a port may call only programs that answer every sender alike.
pub(super) fn is_for_every_sender(shared: &Shared, port: u16) -> bool {
    port == protocol::portmap::PORT || !shared.settings.udp
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{KEY, export};
    use crate::{ExportTable, Server};

    fn rows(change: impl FnOnce(&mut Settings), short_handles: bool) -> Vec<Registration> {
        let mut settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
        change(&mut settings);
        let mut export = export(1, "/export");
        export.options.short_handles = short_handles;
        Server::new(settings, ExportTable::new(vec![export]).unwrap()).registrations()
    }

    fn names(rows: &[Registration]) -> Vec<(u32, u32)> {
        rows.iter().map(|row| (row.program, row.version)).collect()
    }

    #[test]
    fn disabled_versions_are_not_registered() {
        let of = |versions| names(&rows(|settings| settings.versions = versions, false));
        assert_eq!(of(Versions::V4_1), [(100_003, 4), (100_005, 3)]);
        let nlm = [(100_021, 1), (100_021, 3), (100_021, 4), (100_024, 1)];
        let v3 = [(100_003, 3), (100_227, 3), (100_005, 3)];
        assert_eq!(of(Versions::V3), [&v3[..], &nlm].concat());
        let v2 = [(100_003, 2), (100_005, 1), (100_005, 2), (100_005, 3)];
        assert_eq!(of(Versions::V2), [&v2[..], &nlm].concat());
    }

    #[test]
    fn old_versions_of_mount_are_registered_for_exports_with_short_handles() {
        let is_old = |row: &Registration| row.program == 100_005 && row.version < 3;
        assert!(!rows(|_| {}, false).iter().any(is_old));
        assert_eq!(rows(|_| {}, true).iter().filter(|row| is_old(row)).count(), 2);
    }

    #[test]
    fn version_4_is_never_over_udp_and_the_status_monitor_always() {
        let over_udp = |udp| -> Vec<_> {
            let rows = rows(|settings| settings.udp = udp, false);
            names(&rows.into_iter().filter(|row| row.is_over_udp).collect::<Vec<_>>())
        };
        assert_eq!(over_udp(false), [(100_024, 1)]);
        let all = [
            (100_003, 3),
            (100_227, 3),
            (100_005, 3),
            (100_021, 1),
            (100_021, 3),
            (100_021, 4),
            (100_024, 1),
        ];
        assert_eq!(over_udp(true), all);
    }

    #[test]
    fn lock_manager_and_status_monitor_may_have_ports_of_their_own() {
        let change = |settings: &mut Settings| {
            (settings.nlm_port, settings.nsm_port) = (Some(4045), Some(662));
        };
        let ports: Vec<_> =
            rows(change, false).iter().filter_map(|row| Some((row.program, row.port?))).collect();
        assert_eq!(ports, [(100_021, 4045), (100_021, 4045), (100_021, 4045), (100_024, 662)]);
    }
}
