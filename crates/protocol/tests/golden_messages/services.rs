//! MOUNT, the port mapper and rpcbind.

use protocol::{mount, portmap, rpcbind};
use rpc::address::UniversalAddress;

use crate::golden::{Golden, all};
use crate::{same_as_tshark, same_bytes, shown};

shown!(mount::DirPath, |path, shows| { shows.text("mount.path", path) });
shown!(mount::MountResult, |result, shows| {
    match result {
        mount::MountResult::Ok(ok) => {
            shows.put("mount.status", 0);
            shows.bytes("nfs.fhandle", &ok.fhandle);
            shows.put("mount.flavors", ok.auth_flavors.len());
            ok.auth_flavors.iter().for_each(|flavor| shows.put("mount.flavor", flavor));
        }
        mount::MountResult::Fail(status) => shows.put("mount.status", status.0),
    }
});
shown!(mount::Exports, |exports, shows| {
    for export in exports {
        shows.text("mount.export.directory", &export.dir);
        export.groups.iter().for_each(|group| shows.text("mount.export.group", group));
    }
});
shown!(mount::FhStatus, |result, shows| {
    match result {
        mount::FhStatus::Ok(handle) => {
            shows.put("mount.status", 0);
            shows.bytes("nfs.fhandle", handle);
        }
        mount::FhStatus::Fail(status) => shows.put("mount.status", status),
    }
});
shown!(mount::MountList, |list, shows| {
    for mount in list {
        shows.text("mount.dump.hostname", &mount.hostname);
        shows.text("mount.dump.directory", &mount.directory);
    }
});

#[test]
fn mount_messages_match_tshark() {
    for golden in all("mount") {
        let check: fn(&Golden) = match golden.name.split('_').take(2).collect::<Vec<_>>()[..] {
            ["mnt1" | "mnt3" | "umnt1" | "umnt3", "call"] => same_as_tshark::<mount::DirPath>,
            ["mnt1", _] => same_as_tshark::<mount::FhStatus>,
            ["mnt3", _] => same_as_tshark::<mount::MountResult>,
            ["dump1" | "dump3", "reply"] => same_as_tshark::<mount::MountList>,
            ["export1" | "export3", "reply"] => same_as_tshark::<mount::Exports>,
            ["null1" | "null3" | "umntall1" | "umntall3" | "dump1" | "dump3" | "export1" | "export3", _]
            | ["umnt1" | "umnt3", "reply"] => same_as_tshark::<()>,
            _ => panic!("{} belongs to no procedure", golden.name),
        };
        check(&golden);
    }
}

shown!(portmap::Mapping, |mapping, shows| {
    shows.put("portmap.prog", mapping.program);
    shows.put("portmap.version", mapping.version);
    shows.put("portmap.proto", mapping.protocol.0);
    shows.put("portmap.port", mapping.port);
});
shown!(portmap::MappingList, |list, shows| { list.iter().for_each(|mapping| mapping.show(shows)) });
shown!(u32, |port, shows| { shows.put("portmap.port", port) });
shown!(bool, |answer, shows| { shows.flag("portmap.answer", *answer) });

#[test]
fn portmap_messages_match_tshark() {
    for golden in all("portmap") {
        let check: fn(&Golden) = match golden.name.split('_').take(2).collect::<Vec<_>>()[..] {
            ["set" | "unset" | "getport", "call"] => same_as_tshark::<portmap::Mapping>,
            ["set" | "unset", _] => same_as_tshark::<bool>,
            ["getport", _] => same_as_tshark::<u32>,
            ["dump", "reply"] => same_as_tshark::<portmap::MappingList>,
            ["null", _] | ["dump", _] => same_as_tshark::<()>,
            _ => panic!("{} belongs to no procedure", golden.name),
        };
        check(&golden);
    }
}

shown!(rpcbind::Rpcb, |rpcb, shows| {
    shows.put("portmap.rpcb.prog", rpcb.program);
    shows.put("portmap.rpcb.version", rpcb.version);
    shows.text("portmap.rpcb.netid", &rpcb.netid);
    shows.text("portmap.rpcb.addr", &rpcb.addr);
    shows.text("portmap.rpcb.owner", &rpcb.owner);
});
shown!(rpcbind::RpcbList, |list, shows| { list.iter().for_each(|rpcb| rpcb.show(shows)) });
shown!(rpcbind::Text, |address, shows| { shows.text("portmap.uaddr", address) });

/// Checks only the bytes, for procedures whose arguments and results tshark does not dissect.
fn same<T: xdr::Decode + xdr::Encode + std::fmt::Debug>(golden: &Golden) {
    assert_eq!(golden.fields, [], "{}: tshark can tell more", golden.name);
    same_bytes::<T>(golden);
}

#[test]
fn rpcbind_messages_match_tshark() {
    for golden in all("rpcbind") {
        let (procedure, way) = golden.name.split_once('_').unwrap();
        let check: fn(&Golden) = match (procedure.trim_end_matches(['3', '4']), &way[..4]) {
            ("getaddr", "call") => same_as_tshark::<rpcbind::Rpcb>,
            ("getaddr", _) => same_as_tshark::<rpcbind::Text>,
            ("dump", "repl") => same_as_tshark::<rpcbind::RpcbList>,
            ("set" | "unset" | "getversaddr" | "getaddrlist", "call") => same::<rpcbind::Rpcb>,
            ("set" | "unset", _) => same::<bool>,
            ("gettime", "repl") => same::<u32>,
            ("uaddr2taddr", "call") | ("taddr2uaddr" | "getversaddr", "repl") => same::<rpcbind::Text>,
            ("uaddr2taddr", _) | ("taddr2uaddr", _) => same::<rpcbind::NetBuf>,
            ("getaddrlist", _) => same::<rpcbind::EntryList>,
            ("getstat", "repl") => same::<rpcbind::StatByVersion>,
            ("dump" | "gettime" | "getstat", "call") => same::<()>,
            _ => panic!("{} belongs to no procedure", golden.name),
        };
        check(&golden);
    }
}

fn rpcbind_message<T: xdr::Decode + xdr::Encode + std::fmt::Debug>(name: &str) -> T {
    same_bytes(all("rpcbind").iter().find(|golden| golden.name == name).unwrap())
}

/// rpcinfo printed `100003 3 inet/udp/clts 127.0.0.1.8.1`, and the same for tcp with `cots_ord`.
#[test]
fn rpcbind_list_matches_rpcinfo() {
    let list: rpcbind::EntryList = rpcbind_message("getaddrlist4_reply");
    let entries: Vec<_> = list
        .iter()
        .map(|entry| {
            let address = UniversalAddress::from_bytes(&entry.maddr).unwrap().0.to_string();
            (address, &entry.nc_netid[..], entry.nc_semantics, &entry.nc_protofmly[..], &entry.nc_proto[..])
        })
        .collect();
    let address = || "127.0.0.1:2049".to_owned();
    assert_eq!(
        entries,
        [
            (address(), &b"udp"[..], rpcbind::Semantics::CLTS, &b"inet"[..], &b"udp"[..]),
            (address(), b"tcp", rpcbind::Semantics::COTS_ORD, b"inet", b"tcp"),
        ]
    );
}

/// rpcinfo printed these numbers: calls by procedure, and the requested addresses.
#[test]
fn rpcbind_statistics_match_rpcinfo() {
    let stat: rpcbind::StatByVersion = rpcbind_message("getstat4_reply");
    // rpcinfo prints the sum over the list of addresses as the count of GETADDR.
    assert_eq!(stat.version_4.info[4..], [1, 0, 1, 1, 1, 2, 0, 1, 2]);
    assert_eq!(stat.version_4.addrinfo.iter().map(|a| a.success).sum::<i32>(), 5);
    assert_eq!((stat.version_4.setinfo, stat.version_4.unsetinfo), (2, 2));
    assert_eq!(stat.version_2.info[..6], [7, 2, 2, 10, 2, 0]);
    assert_eq!((stat.version_2.setinfo, stat.version_2.unsetinfo), (1, 2));
    let asked: Vec<_> = stat
        .version_2
        .addrinfo
        .iter()
        .map(|a| (a.program, a.version, &a.netid[..], a.success, a.failure))
        .collect();
    assert_eq!(
        asked,
        [
            (536_872_824, 1, &b"udp"[..], 0, 1),
            (536_872_823, 1, b"tcp", 1, 0),
            (100_003, 3, b"tcp", 3, 0),
            (100_005, 3, b"tcp", 3, 0),
            (100_024, 1, b"tcp", 0, 1),
        ]
    );
}

#[test]
fn rpcbind_converts_addresses_to_socket_addresses() {
    let netbuf: rpcbind::NetBuf = rpcbind_message("uaddr2taddr4_reply");
    // AF_INET in the host's order, port 2049, 127.0.0.1.
    assert_eq!(&netbuf.buf[..8], &[2, 0, 8, 1, 127, 0, 0, 1]);
    assert_eq!(&rpcbind_message::<rpcbind::Text>("taddr2uaddr4_reply")[..], b"127.0.0.1.8.1");
    assert_eq!(&rpcbind_message::<rpcbind::Text>("getversaddr4_reply")[..], b"127.0.0.1.8.1");
}
