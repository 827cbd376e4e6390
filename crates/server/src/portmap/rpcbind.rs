use core::net::SocketAddr;

use protocol::rpcbind::{Entry, EntryList, Proc, Rpcb, RpcbList, Semantics, Text, VERSION_4};
use rpc::address::UniversalAddress;
use xdr::{Reader, Writer};

use super::{Registration, all, answer, decode};
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
    let address = |port| SocketAddr::new(request.connection.local.ip().to_canonical(), port);
    let is_exact = match Proc(procedure) {
        Proc::NULL => return Served::Done { is_error: false },
        Proc::SET | Proc::UNSET => return answer(reply, &false),
        Proc::DUMP => return answer(reply, &dump(request, port, address)),
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
    let found = all(request.server.settings.versions, port)
        .find(|(known, _)| known.program == wanted.program && (!is_exact || known.version == wanted.version))
        .map(|(_, port)| address(port));
    if Proc(procedure) == Proc::GETADDRLIST {
        return answer(reply, &found.map(entries).unwrap_or_default());
    }
    // "If the program is not registered, the null string" (RFC 1833 §2.2.1).
    answer(reply, &found.map(universal).unwrap_or_default())
}

fn universal(address: SocketAddr) -> Text {
    Text::new(UniversalAddress(address).to_string().into_bytes()).expect("an address is a short text")
}

fn netid(address: SocketAddr) -> Text {
    Text::from_static(if address.is_ipv4() { b"tcp" } else { b"tcp6" })
}

fn dump(request: &Request<'_>, port: u16, address: impl Fn(u16) -> SocketAddr) -> RpcbList {
    let entries =
        all(request.server.settings.versions, port).map(|(Registration { program, version }, port)| Rpcb {
            program,
            version,
            netid: netid(address(port)),
            addr: universal(address(port)),
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
