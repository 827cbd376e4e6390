use protocol::portmap::{Mapping, MappingList, Proc, Protocol};
use xdr::{Reader, Writer};

use super::{Listed, Service, answer, decode};
use crate::Transport;
use crate::request::Served;

/// Version 2 (RFC 1833 §3).
pub(super) fn serve(service: Service, procedure: u32, arguments: Reader, reply: &mut Writer) -> Served {
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
/// version the RFC wants the port of a known one: the call itself fails with the range of versions.
fn port_of(wanted: &Mapping, service: Service) -> u32 {
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

fn dump(service: Service) -> MappingList {
    let mappings = service.all().map(|Listed { registration, transport, port }| Mapping {
        program: registration.program,
        version: registration.version,
        protocol: protocol_of(transport),
        port: u32::from(port),
    });
    MappingList::new(mappings.collect()).expect("a handful of mappings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Versions;

    fn mapping(program: u32, protocol: Protocol) -> Mapping {
        Mapping { program, version: 3, protocol, port: 0 }
    }

    fn service(versions: Versions, udp: bool) -> Service {
        Service { versions, udp, port: 2049 }
    }

    #[test]
    fn knows_its_programs_over_tcp_and_itself_over_udp_too() {
        let all = service(Versions::all(), false);
        assert_eq!(port_of(&mapping(100_003, Protocol::TCP), all), 2049);
        assert_eq!(port_of(&mapping(100_005, Protocol::TCP), all), 2049);
        assert_eq!(port_of(&mapping(100_003, Protocol::UDP), all), 0);
        assert_eq!(port_of(&mapping(100_021, Protocol::TCP), all), 0);
        assert_eq!(port_of(&mapping(100_000, Protocol::UDP), all), 111);
        let own = dump(all).iter().filter(|row| row.port == 111 && row.protocol == Protocol::UDP).count();
        assert_eq!(own, 3, "versions 2, 3 and 4");
    }

    #[test]
    fn disabled_versions_are_not_listed() {
        let reported = |versions| -> Vec<_> {
            let list = dump(service(versions, false));
            list.iter().filter(|row| row.port == 2049).map(|row| (row.program, row.version)).collect()
        };
        assert_eq!(reported(Versions::V4_1), [(100_003, 4), (100_005, 3)]);
        assert_eq!(reported(Versions::V3), [(100_003, 3), (100_005, 3), (100_227, 3)]);
        assert_eq!(reported(Versions::V2), [(100_003, 2), (100_005, 1), (100_005, 2), (100_005, 3)]);
        assert_eq!(port_of(&mapping(100_227, Protocol::TCP), service(Versions::V4_2, true)), 0);
    }

    #[test]
    fn all_but_version_4_is_over_udp_too() {
        let list = dump(service(Versions::V3 | Versions::V4_1, true));
        let over_udp = list.iter().filter(|row| row.port == 2049 && row.protocol == Protocol::UDP);
        let over_udp: Vec<_> = over_udp.map(|row| (row.program, row.version)).collect();
        assert_eq!(over_udp, [(100_003, 3), (100_005, 3), (100_227, 3)]);
    }
}
