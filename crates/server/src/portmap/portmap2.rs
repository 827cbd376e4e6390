use protocol::portmap::{Mapping, MappingList, Proc, Protocol};
use xdr::{Reader, Writer};

use super::{Registration, all, answer, decode};
use crate::request::Served;

/// Version 2 (RFC 1833 §3).
pub(super) fn serve(port: u16, procedure: u32, arguments: Reader, reply: &mut Writer) -> Served {
    match Proc(procedure) {
        Proc::NULL => Served::Done { is_error: false },
        // Nobody else's programs: refused as a port mapper refuses strangers.
        Proc::SET | Proc::UNSET => answer(reply, &false),
        Proc::GETPORT => match decode::<Mapping>(arguments) {
            Ok(wanted) => answer(reply, &port_of(&wanted, port)),
            Err(served) => served,
        },
        Proc::DUMP => answer(reply, &dump(port)),
        _ => Served::NoProcedure,
    }
}

/// "A port value of zeros means the program has not been registered" (RFC 1833 §3.2). A version that is not there is
/// answered with the port of one that is, as the RFC has it: the call itself will tell which versions there are.
fn port_of(wanted: &Mapping, port: u16) -> u32 {
    let found =
        all(port).find(|(known, _)| wanted.protocol == Protocol::TCP && known.program == wanted.program);
    found.map_or(0, |(_, port)| u32::from(port))
}

fn dump(port: u16) -> MappingList {
    let mappings = all(port).map(|(Registration { program, version }, port)| Mapping {
        program,
        version,
        protocol: Protocol::TCP,
        port: u32::from(port),
    });
    MappingList::new(mappings.collect()).expect("a handful of mappings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(program: u32, protocol: Protocol) -> Mapping {
        Mapping { program, version: 3, protocol, port: 0 }
    }

    #[test]
    fn knows_the_port_of_its_programs_over_tcp_alone() {
        assert_eq!(port_of(&mapping(100_003, Protocol::TCP), 2049), 2049);
        assert_eq!(port_of(&mapping(100_005, Protocol::TCP), 2049), 2049);
        assert_eq!(port_of(&mapping(100_003, Protocol::UDP), 2049), 0);
        assert_eq!(port_of(&mapping(100_021, Protocol::TCP), 2049), 0);
    }
}
