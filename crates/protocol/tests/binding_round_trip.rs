//! Types of MOUNT, the port mapper and rpcbind round-trip.

mod common;

use common::{chain, inline, opaque, round_trip};
use proptest::prelude::*;
use protocol::{mount, portmap, rpcbind};
use xdr::List;

fn rpcb() -> impl Strategy<Value = rpcbind::Rpcb> {
    (any::<u32>(), any::<u32>(), opaque(), opaque(), opaque()).prop_map(
        |(program, version, netid, addr, owner)| rpcbind::Rpcb { program, version, netid, addr, owner },
    )
}

fn stat() -> impl Strategy<Value = rpcbind::Stat> {
    let addr = (any::<[u32; 2]>(), any::<[i32; 2]>(), opaque()).prop_map(|(numbers, counts, netid)| {
        let ([program, version], [success, failure]) = (numbers, counts);
        rpcbind::AddrStat { program, version, success, failure, netid }
    });
    let call = (any::<[u32; 3]>(), any::<[i32; 3]>(), opaque()).prop_map(|(numbers, counts, netid)| {
        let ([program, version, procedure], [success, failure, indirect]) = (numbers, counts);
        rpcbind::RmtCallStat { program, version, procedure, success, failure, indirect, netid }
    });
    (any::<[i32; 13]>(), any::<i32>(), any::<i32>(), chain(addr), chain(call)).prop_map(
        |(info, setinfo, unsetinfo, addrinfo, rmtinfo)| rpcbind::Stat {
            info,
            setinfo,
            unsetinfo,
            addrinfo,
            rmtinfo,
        },
    )
}

fn mount_body() -> impl Strategy<Value = mount::MountBody> {
    (opaque(), opaque()).prop_map(|(hostname, directory)| mount::MountBody { hostname, directory })
}

fn export_node() -> impl Strategy<Value = mount::ExportNode> {
    (opaque(), chain(opaque())).prop_map(|(dir, groups)| mount::ExportNode { dir, groups })
}

fn mapping() -> impl Strategy<Value = portmap::Mapping> {
    any::<[u32; 4]>().prop_map(|[program, version, protocol, port]| {
        let protocol = portmap::Protocol(protocol);
        portmap::Mapping { program, version, protocol, port }
    })
}

fn entry() -> impl Strategy<Value = rpcbind::Entry> {
    (opaque(), opaque(), any::<u32>(), opaque(), opaque()).prop_map(
        |(maddr, nc_netid, semantics, nc_protofmly, nc_proto)| {
            let nc_semantics = rpcbind::Semantics(semantics);
            rpcbind::Entry { maddr, nc_netid, nc_semantics, nc_protofmly, nc_proto }
        },
    )
}

proptest! {
    #[test]
    fn mount_types_round_trip(
        fhandle in inline(),
        flavors in prop::collection::vec(any::<u32>(), 0..10),
        status in 1u32..,
        fhandle1 in any::<[u8; 32]>(),
        mounts in chain(mount_body()),
        exports in chain(export_node()),
        path in opaque(),
    ) {
        round_trip::<mount::DirPath>(&path);
        round_trip(
            &mount::MountResult::Ok(mount::MountOk { fhandle, auth_flavors: List::new(flavors).unwrap() })
        );
        round_trip(&mount::MountResult::Fail(mount::MountStat(status)));
        round_trip(&mount::FhStatus::Ok(fhandle1));
        round_trip(&mount::FhStatus::Fail(status));
        round_trip::<mount::MountList>(&mounts);
        round_trip::<mount::Exports>(&exports);
    }

    #[test]
    fn portmap_types_round_trip(numbers in any::<[u32; 3]>(), protocol in any::<u32>(), data in opaque(),
        mappings in chain(mapping()),
    ) {
        let [program, version, port] = numbers;
        round_trip(&portmap::Mapping { program, version, protocol: portmap::Protocol(protocol), port });
        round_trip::<portmap::MappingList>(&mappings);
        round_trip(&portmap::CallArgs { program, version, procedure: port, args: data.clone() });
        round_trip(&portmap::CallResult { port, res: data });
    }

    #[test]
    fn rpcbind_types_round_trip(
        one in rpcb(),
        list in chain(rpcb()),
        data in opaque(),
        text in opaque(),
        semantics in any::<u32>(),
        buf in opaque(),
        stats in [stat(), stat(), stat()],
        entries in chain(entry()),
    ) {
        round_trip(&one);
        round_trip::<rpcbind::RpcbList>(&list);
        round_trip::<rpcbind::Text>(&text);
        round_trip(
            &rpcbind::RmtCallArgs {
                program: one.program, version: one.version, procedure: semantics, args: data.clone(),
            }
        );
        round_trip(&rpcbind::RmtCallResult { addr: text, results: data });
        round_trip::<rpcbind::EntryList>(&entries);
        round_trip(&rpcbind::NetBuf { maxlen: semantics, buf });
        let [version_2, version_3, version_4] = stats;
        round_trip(&rpcbind::StatByVersion { version_2, version_3, version_4 });
    }
}
