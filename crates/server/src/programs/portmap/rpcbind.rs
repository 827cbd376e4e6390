use core::net::{IpAddr, SocketAddr};

use protocol::rpcbind::{Entry, EntryList, Proc, Rpcb, RpcbList, Semantics, Text, VERSION_4};
use rpc::address::UniversalAddress;
use xdr::{Reader, Writer};

use super::{Listed, Registration, Service, answer, decode};
use crate::Transport;
use crate::request::{Request, Served};

/// The properties of a call that its answer depends on.
struct Query<'a> {
    request: &'a Request<'a>,
    service: &'a Service,
}

/// Versions 3 and 4 (RFC 1833 §2).
pub(super) fn serve(
    request: &Request<'_>,
    service: &Service,
    version: u32,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let asked = Query { request, service };
    match Proc(procedure) {
        Proc::NULL => Served::Done { is_error: false },
        Proc::SET | Proc::UNSET => answer(reply, &false),
        Proc::DUMP => answer(reply, &asked.dump()),
        Proc::GETTIME => {
            let seconds = request.now.wall.seconds.clamp(0, i64::from(u32::MAX));
            answer(reply, &(seconds as u32))
        }
        Proc::GETADDR => with(arguments, |wanted| answer(reply, &asked.address_of(wanted, false))),
        Proc::GETVERSADDR if version == VERSION_4 => {
            with(arguments, |wanted| answer(reply, &asked.address_of(wanted, true)))
        }
        Proc::GETADDRLIST if version == VERSION_4 => {
            with(arguments, |wanted| answer(reply, &asked.addresses_of(wanted)))
        }
        _ => Served::NoProcedure,
    }
}

/// Decodes the arguments and answers them.
fn with(arguments: Reader, answer: impl FnOnce(&Rpcb) -> Served) -> Served {
    decode(arguments).map_or_else(|served| served, |wanted| answer(&wanted))
}

impl Query<'_> {
    fn all(&self) -> impl Iterator<Item = Listed> {
        self.service.all()
    }

    /// RFC 1833 §2.2.1: 'The "r_netid" field of the argument is ignored and the "r_netid" is inferred from the network
    /// identifier of the transport on which the request came in.' No address is the empty text.
    fn address_of(&self, wanted: &Rpcb, is_exact: bool) -> Text {
        let found = self.all().find(|Listed { registration, transport, .. }| {
            *transport == self.request.connection.transport
                && registration.program == wanted.program
                && (!is_exact || registration.version == wanted.version)
        });
        found.map(|known| self.universal(&known)).unwrap_or_default()
    }

    /// RFC 1833 §2.2.2: "The client may be able use the results to determine alternate transports".
    fn addresses_of(&self, wanted: &Rpcb) -> EntryList {
        let is_wanted = |Registration { program, version, .. }: Registration| {
            (program, version) == (wanted.program, wanted.version)
        };
        let found = self.all().filter(|known| is_wanted(known.registration));
        EntryList::new(found.map(|known| self.entry(&known)).collect()).expect("an entry a transport")
    }

    fn dump(&self) -> RpcbList {
        let entries = self.all().map(|known| Rpcb {
            program: known.registration.program,
            version: known.registration.version,
            netid: self.netid(known.transport),
            addr: self.universal(&known),
            owner: Text::from_static(b"enfys"),
        });
        RpcbList::new(entries.collect()).expect("a handful of entries")
    }

    fn entry(&self, known: &Listed) -> Entry {
        let is_stream = known.transport == Transport::Tcp;
        Entry {
            maddr: self.universal(known),
            nc_netid: self.netid(known.transport),
            nc_semantics: if is_stream { Semantics::COTS_ORD } else { Semantics::CLTS },
            nc_protofmly: Text::from_static(if self.host().is_ipv4() { b"inet" } else { b"inet6" }),
            nc_proto: Text::from_static(if is_stream { b"tcp" } else { b"udp" }),
        }
    }

    /// Returns the address by which the client reached this server: it reaches the programs by it too.
    fn host(&self) -> IpAddr {
        self.request.connection.local.ip().to_canonical()
    }

    fn universal(&self, known: &Listed) -> Text {
        let address = UniversalAddress(SocketAddr::new(self.host(), known.port));
        Text::new(address.to_string().into_bytes()).expect("an address is a short text")
    }

    /// Returns the netid of a transport (RFC 5665 §5.1).
    fn netid(&self, transport: Transport) -> Text {
        Text::from_static(match (transport, self.host().is_ipv4()) {
            (Transport::Tcp, true) => b"tcp",
            (Transport::Tcp, false) => b"tcp6",
            (Transport::Udp, true) => b"udp",
            (Transport::Udp, false) => b"udp6",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use futures_util::FutureExt;
    use protocol::rpcbind::{PROGRAM, VERSION_3};
    use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
    use vfs::Timestamp;
    use xdr::{Decode, Encode};

    use super::*;
    use crate::testing::{KEY, export};
    use crate::{Connection, ConnectionId, ExportTable, Now, Server, Settings};

    /// Calls the port mapper of a server on port 2049 at `host`.
    fn call<T: Decode>(
        host: &str,
        transport: Transport,
        version: u32,
        procedure: Proc,
        args: &impl Encode,
    ) -> Result<T, RpcError> {
        let mut settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
        settings.portmap = Some(2049);
        let server = Server::new(settings, ExportTable::new(vec![export(1, "/export")]).unwrap());
        let address = |port| SocketAddr::new(host.parse().unwrap(), port);
        let connection = Connection::new(ConnectionId(1), address(700), address(111), transport, false);
        let mut call = Writer::new();
        encode_call(&mut call, &CallHeader::new(1, PROGRAM, version, procedure.0), args);
        let now =
            Now { monotonic: Duration::from_secs(1), wall: Timestamp { seconds: 1_234, nanoseconds: 5 } };
        let mut reply = Writer::new();
        let served = server.handle(&Arc::new(connection), now, call.into_bytes(), &mut reply).now_or_never();
        served.expect("nothing to wait for");
        let reported = parse_reply(reply.into_bytes());
        let counted = server.metrics().portmap[procedure.0 as usize].calls.load(Relaxed);
        let is_known = !matches!(reported, Err(RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable)));
        assert_eq!(counted, u64::from(is_known));
        reported
    }

    /// Returns the arguments of a client that names `netid`.
    fn wanted(program: u32, version: u32, netid: &'static str) -> Rpcb {
        let netid = Text::from_static(netid.as_bytes());
        Rpcb { program, version, netid, addr: Text::default(), owner: Text::default() }
    }

    const NFS: u32 = 100_003;

    #[test]
    fn addresses_belong_to_the_transport_of_the_call() {
        use Transport::{Tcp, Udp};
        // 8 * 256 + 1 = 2049, and 0 * 256 + 111.
        let cases = [
            ("127.0.0.1", Tcp, (NFS, 3), "127.0.0.1.8.1", "127.0.0.1.8.1"),
            ("127.0.0.1", Tcp, (NFS, 2), "127.0.0.1.8.1", ""),
            ("127.0.0.1", Udp, (NFS, 3), "", ""),
            ("127.0.0.1", Udp, (PROGRAM, 4), "127.0.0.1.0.111", "127.0.0.1.0.111"),
            ("::1", Tcp, (NFS, 4), "::1.8.1", "::1.8.1"),
            ("::1", Udp, (100_005, 3), "", ""),
            ("::ffff:127.0.0.1", Tcp, (100_227, 3), "127.0.0.1.8.1", "127.0.0.1.8.1"),
            ("127.0.0.1", Tcp, (100_021, 4), "127.0.0.1.8.1", "127.0.0.1.8.1"),
            ("127.0.0.1", Tcp, (100_011, 2), "", ""),
            // Status monitors notify over UDP alone.
            ("127.0.0.1", Udp, (100_024, 1), "127.0.0.1.8.1", "127.0.0.1.8.1"),
        ];
        for (host, transport, (program, version), any, exact) in cases {
            for netid in ["tcp", "udp", "udp6", ""] {
                let wanted = wanted(program, version, netid);
                for rpcbind in [VERSION_3, VERSION_4] {
                    let reported = call::<Text>(host, transport, rpcbind, Proc::GETADDR, &wanted).unwrap();
                    assert_eq!(
                        reported,
                        Text::from_static(any.as_bytes()),
                        "{host} {transport:?} {wanted:?}"
                    );
                }
                let reported = call::<Text>(host, transport, VERSION_4, Proc::GETVERSADDR, &wanted).unwrap();
                assert_eq!(reported, Text::from_static(exact.as_bytes()), "{host} {transport:?} {wanted:?}");
            }
        }
    }

    #[test]
    fn the_list_of_addresses_has_every_transport() {
        for transport in [Transport::Tcp, Transport::Udp] {
            let list = |host, program, version| -> Vec<(String, String, Semantics)> {
                let wanted = wanted(program, version, "");
                let list = call::<EntryList>(host, transport, VERSION_4, Proc::GETADDRLIST, &wanted);
                let text = |text: &Text| String::from_utf8(text.to_vec()).unwrap();
                let row = |entry: &Entry| {
                    let net = [&entry.nc_netid, &entry.nc_protofmly, &entry.nc_proto].map(text).join(" ");
                    (text(&entry.maddr), net, entry.nc_semantics)
                };
                list.unwrap().iter().map(row).collect()
            };
            let tcp = |address: &str| (address.to_owned(), "tcp inet tcp".to_owned(), Semantics::COTS_ORD);
            assert_eq!(list("127.0.0.1", NFS, 3), [tcp("127.0.0.1.8.1")]);
            let udp = ("127.0.0.1.0.111".to_owned(), "udp inet udp".to_owned(), Semantics::CLTS);
            assert_eq!(list("127.0.0.1", PROGRAM, 4), [tcp("127.0.0.1.0.111"), udp]);
            assert_eq!(list("::1", NFS, 4)[0].1, "tcp6 inet6 tcp");
            assert_eq!(list("127.0.0.1", NFS, 2), []);
        }
    }

    #[test]
    fn the_dump_has_the_port_mapper_and_the_status_monitor_twice_and_the_others_once() {
        for (transport, version) in [(Transport::Tcp, VERSION_4), (Transport::Tcp, VERSION_3)] {
            let list = call::<RpcbList>("127.0.0.1", transport, version, Proc::DUMP, &()).unwrap();
            let rows: Vec<_> = list
                .iter()
                .map(|row| (row.program, row.version, row.netid.to_vec(), row.addr.to_vec()))
                .collect();
            let row = |program, version, netid: &str, addr: &str| {
                (program, version, netid.as_bytes().to_vec(), addr.as_bytes().to_vec())
            };
            let (own, nfs) = ("127.0.0.1.0.111", "127.0.0.1.8.1");
            let expected = [
                row(100_000, 2, "tcp", own),
                row(100_000, 3, "tcp", own),
                row(100_000, 4, "tcp", own),
                row(100_000, 2, "udp", own),
                row(100_000, 3, "udp", own),
                row(100_000, 4, "udp", own),
                row(100_003, 3, "tcp", nfs),
                row(100_003, 4, "tcp", nfs),
                row(100_227, 3, "tcp", nfs),
                row(100_005, 3, "tcp", nfs),
                row(100_021, 1, "tcp", nfs),
                row(100_021, 3, "tcp", nfs),
                row(100_021, 4, "tcp", nfs),
                row(100_024, 1, "tcp", nfs),
                row(100_024, 1, "udp", nfs),
            ];
            assert_eq!(rows, expected, "{transport:?}");
        }
        // Over UDP it would be many times as long as the request, whose source may be forged.
        let refused = call::<RpcbList>("127.0.0.1", Transport::Udp, VERSION_3, Proc::DUMP, &());
        assert_eq!(refused, Err(RpcError::NotExecuted(AcceptStatus::SystemError)));
    }

    #[test]
    fn registrations_forwarding_and_calls_of_the_wrong_version_are_refused() {
        let refused = |version, procedure| {
            call::<Text>("127.0.0.1", Transport::Tcp, version, procedure, &wanted(NFS, 3, "tcp"))
        };
        for procedure in [Proc::SET, Proc::UNSET] {
            let rpcb = wanted(NFS, 3, "tcp");
            let changed = call::<bool>("127.0.0.1", Transport::Tcp, VERSION_4, procedure, &rpcb);
            assert!(!changed.unwrap());
        }
        let none = RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable);
        for procedure in [Proc::CALLIT, Proc::INDIRECT, Proc::GETSTAT] {
            assert_eq!(refused(VERSION_4, procedure), Err(none), "{procedure:?}");
        }
        for procedure in [Proc::GETVERSADDR, Proc::GETADDRLIST] {
            assert_eq!(refused(VERSION_3, procedure), Err(none), "{procedure:?} is version 4's");
        }
        let time = call::<u32>("127.0.0.1", Transport::Udp, VERSION_3, Proc::GETTIME, &());
        assert_eq!(time, Ok(1_234));
        let cut = call::<Text>("127.0.0.1", Transport::Tcp, VERSION_3, Proc::GETADDR, &NFS);
        assert_eq!(cut, Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments)));
    }
}
