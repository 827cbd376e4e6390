use protocol::portmap::{Mapping, MappingList, Proc, Protocol};
use xdr::{Reader, Writer};

use super::{Listed, Service, answer, decode};
use crate::Transport;
use crate::request::Served;

/// Version 2 (RFC 1833 §3).
pub(super) fn serve(service: &Service, procedure: u32, arguments: Reader, reply: &mut Writer) -> Served {
    match Proc(procedure) {
        Proc::NULL => Served::Done { is_error: false },
        // Other servers' programs are refused, as a port mapper refuses remote callers.
        Proc::SET | Proc::UNSET => answer(reply, &false),
        Proc::GETPORT => match decode::<Mapping>(arguments) {
            Ok(wanted) => answer(reply, &port_of(&wanted, service)),
            Err(served) => served,
        },
        Proc::DUMP => answer(reply, &dump(service)),
        _ => Served::NoProcedure,
    }
}

/// Returns a program's port, or 0: "A port value of zeros means the program has not been registered" (RFC 1833 §3.2). For an unknown
/// version the RFC requires the port of a known one: the call itself fails with the range of versions.
fn port_of(wanted: &Mapping, service: &Service) -> u32 {
    let found = service.all().find(|known| {
        wanted.protocol == protocol_of(known.transport) && known.registration.program == wanted.program
    });
    found.map_or(0, |known| u32::from(known.port))
}

fn protocol_of(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::TCP,
        Transport::Udp => Protocol::UDP,
    }
}

fn dump(service: &Service) -> MappingList {
    let mappings = service.all().map(|Listed { registration, transport, port }| Mapping {
        program: registration.program,
        version: registration.version,
        protocol: protocol_of(transport),
        port: u32::from(port),
    });
    MappingList::new(mappings.collect()).expect("few mappings")
}

#[cfg(test)]
mod tests {
    use super::super::Registration;
    use super::*;

    fn service() -> Service {
        let row = |program, version, is_over_udp, port| Registration { program, version, is_over_udp, port };
        let registrations = vec![
            row(100_003, 3, true, None),
            row(100_003, 4, false, None),
            row(100_021, 4, true, Some(4045)),
        ];
        Service { registrations, port: 2049 }
    }

    #[test]
    fn each_transport_of_a_program_has_the_port_of_nfs_or_its_own() {
        let (service, mapping) =
            (service(), |program, protocol| Mapping { program, version: 3, protocol, port: 0 });
        assert_eq!(port_of(&mapping(100_003, Protocol::TCP), &service), 2049);
        assert_eq!(port_of(&mapping(100_003, Protocol::UDP), &service), 2049);
        assert_eq!(port_of(&mapping(100_021, Protocol::TCP), &service), 4045, "the port of a known version");
        assert_eq!(port_of(&mapping(100_005, Protocol::TCP), &service), 0);
        assert_eq!(port_of(&mapping(100_000, Protocol::UDP), &service), 111);
    }

    #[test]
    fn the_dump_lists_each_transport_and_the_port_mapper_itself() {
        let list = dump(&service());
        let own = list.iter().filter(|row| row.port == 111 && row.protocol == Protocol::UDP).count();
        assert_eq!(own, 3, "versions 2, 3 and 4");
        let over_udp = list.iter().filter(|row| row.port != 111 && row.protocol == Protocol::UDP);
        let over_udp: Vec<_> = over_udp.map(|row| (row.program, row.version, row.port)).collect();
        assert_eq!(over_udp, [(100_003, 3, 2049), (100_021, 4, 4045)]);
    }
}
