use core::net::SocketAddr;

use protocol::rpcbind::{Entry, EntryList, Proc, Rpcb, RpcbList, Semantics, Text, VERSION_4};
use rpc::address::UniversalAddress;
use xdr::{Reader, Writer};

use super::{REGISTRATIONS, answer, decode};
use crate::request::{Request, Served};

/// Versions 3 and 4 (RFC 1833 §2).
pub(super) fn serve(
    request: &Request<'_>,
    port: u16,
    version: u32,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    // The address by which this very client reached us is one by which it can reach the programs.
    let address = SocketAddr::new(request.connection.local.ip().to_canonical(), port);
    let is_exact = match Proc(procedure) {
        Proc::NULL => return Served::Done { is_error: false },
        Proc::SET | Proc::UNSET => return answer(reply, &false),
        Proc::DUMP => return answer(reply, &dump(address)),
        Proc::GETTIME => {
            let seconds = request.now.wall.seconds.clamp(0, i64::from(u32::MAX));
            return answer(reply, &(seconds as u32));
        }
        Proc::GETADDR => false,
        Proc::GETVERSADDR | Proc::GETADDRLIST if version == VERSION_4 => true,
        _ => return Served::NoProcedure,
    };
    let wanted = match decode::<Rpcb>(arguments) {
        Ok(wanted) => wanted,
        Err(served) => return served,
    };
    let is_served = REGISTRATIONS
        .iter()
        .any(|r| r.program == wanted.program && (!is_exact || r.version == wanted.version));
    if Proc(procedure) == Proc::GETADDRLIST {
        return answer(reply, &if is_served { entries(address) } else { EntryList::default() });
    }
    // "If the program is not registered, the null string" (RFC 1833 §2.2.1).
    answer(reply, &if is_served { universal(address) } else { Text::default() })
}

fn universal(address: SocketAddr) -> Text {
    Text::new(UniversalAddress(address).to_string().into_bytes()).expect("an address is a short text")
}

fn netid(address: SocketAddr) -> Text {
    Text::from_static(if address.is_ipv4() { b"tcp" } else { b"tcp6" })
}

fn dump(address: SocketAddr) -> RpcbList {
    let entries = REGISTRATIONS.iter().map(|r| Rpcb {
        program: r.program,
        version: r.version,
        netid: netid(address),
        addr: universal(address),
        owner: Text::from_static(b"enfys"),
    });
    RpcbList::new(entries.collect()).expect("a handful of entries")
}

fn entries(address: SocketAddr) -> EntryList {
    let entry = Entry {
        maddr: universal(address),
        nc_netid: netid(address),
        nc_semantics: Semantics::COTS_ORD,
        nc_protofmly: Text::from_static(if address.is_ipv4() { b"inet" } else { b"inet6" }),
        nc_proto: Text::from_static(b"tcp"),
    };
    EntryList::new(vec![entry]).expect("one entry")
}
