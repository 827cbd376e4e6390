//! Calls over UDP from this machine, through real loopback sockets.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use net::{Limits, Listeners, NameServices, PeerPolicy, Running, serve};
use protocol::nfs3::{FileHandle, GetattrArgs, GetattrResult, NfsStat, PROGRAM, Proc, VERSION};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, RpcError, encode_call, parse_reply};
use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash};
use vfs::{Backend, MemFs, MemOptions};
use xdr::{Opaque, Writer};

const KEY: HandleKey = HandleKey([9; 16]);

/// Time limit of a wait; far above the usual duration.
const TIME_LIMIT: Duration = Duration::from_secs(60);

struct NoNames;

impl NameServices for NoNames {
    fn groups(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }

    fn host_names(&self, _: IpAddr) -> Option<Vec<String>> {
        None
    }
}

/// Serves an export over UDP. Returns its root.
fn start(listener: UdpSocket, insecure: bool) -> (Running, FileHandle) {
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let root = FileHandle::new(&KEY.seal(ExportId(1), &backend.root())).unwrap();
    let options = ExportOptions { squash: Squash::None, insecure, ..ExportOptions::default() };
    let (id, path, fsid) = (ExportId(1), "/export".into(), (7, 0));
    let export = Export { id, path, backend, options, fsid, counts: Arc::default() };
    let settings = Settings { udp: true, ..Settings::new(KEY, 1, [3; 16], b"test".to_vec()) };
    let server = Arc::new(Server::new(settings, ExportTable::new(vec![export]).unwrap()));
    let listeners = Listeners { tcp: Vec::new(), udp: vec![listener] };
    let peers = Arc::new(PeerPolicy::new(Arc::new(NoNames), None));
    (serve(server, listeners, Limits { cores: 1, ..Limits::default() }, None, Some(peers)).unwrap(), root)
}

/// Requests the attributes of `object` as this user.
fn getattr(
    client: &UdpSocket,
    server: SocketAddr,
    object: FileHandle,
    uid: u32,
) -> Result<GetattrResult, RpcError> {
    let machine_name = Opaque::from_static(b"client");
    let sys = AuthSys { stamp: 0, machine_name, uid, gid: uid, gids: GroupList::default() };
    let header = CallHeader::new(1 + uid, PROGRAM, VERSION, Proc::GETATTR.0);
    let mut call = Writer::new();
    encode_call(
        &mut call,
        &CallHeader { credential: OpaqueAuth::sys(&sys), ..header },
        &GetattrArgs { object },
    );
    client.send_to(&call.into_bytes(), server).unwrap();
    let mut reply = [0; 1024];
    let length = client.recv(&mut reply).unwrap();
    parse_reply(Bytes::copy_from_slice(&reply[..length]))
}

#[test]
fn the_port_vouches_for_local_datagrams_unless_the_export_is_insecure() {
    let places = [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")];
    for ((bound, at), insecure) in places.into_iter().flat_map(|place| [(place, false), (place, true)]) {
        let Ok(listener) = UdpSocket::bind(bound) else { continue };
        let server = SocketAddr::new(at.parse().unwrap(), listener.local_addr().unwrap().port());
        let client = UdpSocket::bind(SocketAddr::new(server.ip(), 0)).unwrap();
        client.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        let (running, root) = start(listener, insecure);
        for uid in [0, 1000] {
            let shown = getattr(&client, server, root, uid).unwrap();
            let expected = if insecure { NfsStat::OK } else { NfsStat::PERM };
            assert_eq!(shown.status(), expected, "{bound} called at {at} as {uid}");
        }
        // Only a privileged test can have such a port.
        let low = (600..1024).find_map(|port| UdpSocket::bind(SocketAddr::new(server.ip(), port)).ok());
        if let Some(low) = low {
            low.set_read_timeout(Some(TIME_LIMIT)).unwrap();
            let shown = getattr(&low, server, root, 1000).unwrap();
            assert_eq!(shown.status(), NfsStat::OK, "{bound} called at {at} by root");
        }
        running.shut_down();
    }
}
