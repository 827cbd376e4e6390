//! RQUOTA, and the helper process that asks the kernel.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use protocol::nfs3::StableHow;
use protocol::rquota::{
    ExtGetQuotaArgs, GetQuotaArgs, PROGRAM, Path as QuotaPath, Proc, QuotaKind, QuotaResult, QuotaStatus,
};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call, parse_reply};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair, sockopt,
};
use xdr::Writer;

use crate::client::Client;
use crate::server::{ENFYS, Server, TestDir, is_root};

const QUOTA_BYTES: u32 = 8 << 20;

fn serve(dir: &TestDir) -> Server {
    let text = format!(
        "listen = ['127.0.0.1:0']\nudp = true\nstate-dir = '{}'\n[[export]]\nmemory = true\npseudo = '/limited'\nquota-bytes = {QUOTA_BYTES}\n\
         [[export]]\nmemory = true\npseudo = '/free'\n",
        dir.path("state").display()
    );
    let config = dir.file("enfys.toml", &text);
    Server::start(dir, &[Path::new("serve"), Path::new("--config"), &config])
}

#[test]
fn quotas_in_memory_are_told_over_tcp_and_udp() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let mut client = Client::connect(server.address);
    let root = client.mount("/limited").unwrap();
    let file = client.create(root, "file").unwrap();
    client.write(file, &[7; 10_000], StableHow::FileSync).unwrap();
    let uid = client.uid.cast_signed();
    let path = QuotaPath::from_static(b"/limited");
    let args = GetQuotaArgs { path: path.clone(), uid };
    let QuotaResult::Ok(told) = client.call((PROGRAM, 1), Proc::GETQUOTA.0, &args) else {
        panic!("no quota")
    };
    assert_eq!((told.bsize, told.bhardlimit), (1024, QUOTA_BYTES / 1024));
    assert!((10..24).contains(&told.curblocks), "{told:?}");
    let other = ExtGetQuotaArgs { path, kind: QuotaKind::USER, id: uid + 1 };
    let refused: QuotaResult = client.call((PROGRAM, 2), Proc::GETQUOTA.0, &other);
    assert_eq!(refused, QuotaResult::Fail(QuotaStatus::EPERM));
    let free = GetQuotaArgs { path: QuotaPath::from_static(b"/free"), uid };
    let none: QuotaResult = client.call((PROGRAM, 1), Proc::GETQUOTA.0, &free);
    assert_eq!(none, QuotaResult::Fail(QuotaStatus::NOQUOTA));
    if is_root() {
        // As quota(1): a datagram. From this machine it needs a port below 1024.
        assert_eq!(over_udp(&server, &args, client.uid), QuotaResult::Ok(told));
    }
    server.stop();
}

fn over_udp(server: &Server, args: &GetQuotaArgs, uid: u32) -> QuotaResult {
    let bound = (600..1024).find_map(|port| UdpSocket::bind(("127.0.0.1", port)).ok());
    let socket = bound.expect("a free port below 1024");
    socket.connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let sys =
        AuthSys { stamp: 0, machine_name: Default::default(), uid, gid: uid, gids: GroupList::default() };
    let header =
        CallHeader { credential: OpaqueAuth::sys(&sys), ..CallHeader::new(7, PROGRAM, 1, Proc::GETQUOTA.0) };
    let mut call = Writer::new();
    encode_call(&mut call, &header, args);
    let (call, mut reply) = (call.into_bytes(), vec![0; 1024]);
    // A datagram may be lost.
    for _ in 0..12 {
        socket.send(&call).unwrap();
        if let Ok(length) = socket.recv(&mut reply) {
            return parse_reply(bytes::Bytes::copy_from_slice(&reply[..length])).expect("results");
        }
    }
    panic!("no reply");
}

/// Bytes of an answer: its number, its error, and twice four values with their flags.
const ANSWER_BYTES: usize = 8 + 2 * 36;

fn ask(socket: &OwnedFd, [number, kind, id]: [u32; 3]) -> (u32, i32) {
    let bytes: Vec<u8> = [number, kind, id].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let directory = std::fs::File::open("/proc").unwrap();
    let files = [directory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    let mut answer = [0; ANSWER_BYTES];
    let (received, _) = recv(socket, &mut answer[..], RecvFlags::empty()).unwrap();
    assert_eq!(received, ANSWER_BYTES);
    let word = |at: usize| answer[at..at + 4].try_into().unwrap();
    (u32::from_ne_bytes(word(0)), i32::from_ne_bytes(word(4)))
}

#[test]
fn the_helper_keeps_one_capability_and_answers() {
    if !is_root() {
        println!("skipped: needs root's capabilities");
        return;
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
    let mut helper = Command::new(ENFYS)
        .arg("quota-helper")
        .stdin(Stdio::from(theirs))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // /proc has no quotas: -1.
    assert_eq!(ask(&ours, [5, 0, 0]), (5, -1));
    assert_eq!(ask(&ours, [6, 1, 1000]), (6, -1));
    let status = std::fs::read_to_string(format!("/proc/{}/status", helper.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(field("Uid:"), "65534 65534 65534 65534");
    assert_eq!(field("Gid:"), "65534 65534 65534 65534");
    assert_eq!((field("Groups:"), field("NoNewPrivs:")), (String::new(), "1".into()));
    // capability.h: CAP_SYS_ADMIN is 21. SECCOMP_MODE_FILTER is 2.
    let only = format!("{:016x}", 1 << 21);
    assert_eq!((field("CapEff:"), field("CapPrm:")), (only.clone(), only));
    assert_eq!(field("CapInh:"), "0000000000000000");
    assert_eq!(field("Seccomp:"), "2");
    // It ends with the server.
    drop(ours);
    let mut said = String::new();
    helper.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(helper.wait().unwrap().success() && said.is_empty(), "{said}");
}
