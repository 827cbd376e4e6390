//! Bad input of NFS version 2, MOUNT, NLM and NSM, over TCP and UDP and from several addresses, while others are served.

use std::net::SocketAddr;
use std::path::Path;

use protocol::nfs2::{self, Stat};
use protocol::nfs3::{self, FileHandle, NfsStat, StableHow};
use protocol::nlm::{
    self, Lock, LockArgs, MAXNETOBJ_SZ, Name, NetObj, Notify, Res, Stats, TestArgs, UnlockArgs,
};
use protocol::nsm::{self, StateChange};
use protocol::{mount, portmap};
use rpc::message::{AcceptStatus, Rejection, RpcError, VersionRange, parse_reply};
use xdr::{Opaque, to_bytes};

use super::wire::{LAST_FRAGMENT, MAX_DATAGRAM, Procedure, Rest, Wire};
use super::{Raw, closes_after};
use crate::client::{Client, lock_of};
use crate::memory::status;
use crate::server::{Server, TestDir, is_root};

/// Most bytes by which the server's resident memory may grow under a flood; each flood sends more.
const GROWTH: u64 = 24 << 20;
/// `limits.state` of the servers here, and the part of it that one client may have.
const STATE: usize = 2000;
const STATE_OF_ONE: usize = STATE / 4;
/// Maximum number of waiters of one client or file.
const WAITERS: usize = 1024;
/// Maximum number of hosts of one address.
const HOSTS_OF_ONE: usize = 64;
/// Number of calls between two at which a flood waits for the server.
const BATCH: usize = 50;

const NFS2: u32 = nfs2::PROGRAM;
const GARBAGE: RpcError = RpcError::NotExecuted(AcceptStatus::GarbageArguments);
const NO_PROCEDURE: RpcError = RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable);

fn only(low: u32, high: u32) -> RpcError {
    RpcError::NotExecuted(AcceptStatus::ProgramMismatch(VersionRange { low, high }))
}

/// Starts a server of all versions over TCP and UDP: `/export` for calls from every port, `/secure` for those from ports below 1024.
fn serve(dir: &TestDir) -> Server {
    let text = format!(
        "listen = ['127.0.0.1:0']\nudp = true\nversions = ['2', '3', '4']\nstate-dir = '{}'\n[limits]\nstate = {STATE}\n\
         [[export]]\nmemory = true\npseudo = '/export'\ninsecure = true\nclients = ['127.0.0.0/9']\n\
         [[export]]\nmemory = true\npseudo = '/secure'\n",
        dir.path("state").display()
    );
    let config = dir.file("enfys.toml", &text);
    Server::start(dir, &[Path::new("serve"), Path::new("--config"), &config])
}

/// Creates a file that every user may lock.
fn create(server: &Server, name: &str) -> FileHandle {
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    client.create(root, name).unwrap()
}

/// A client at an address of its own does some work.
#[track_caller]
fn serves_others(server: &Server, name: &str) {
    let mut client = Client::connect_from(server.address, [127, 0, 9, 9]);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, name).unwrap();
    client.write(file, b"all is well", StableHow::FileSync).unwrap();
    assert_eq!(client.read(file).unwrap(), b"all is well");
    Wire::udp(server.address, [127, 0, 9, 9]).ping();
}

fn nlm4(procedure: nlm::Proc) -> Procedure {
    (nlm::PROGRAM, nlm::VERSION, procedure.0)
}

/// A LOCK that does not wait.
fn asked(alock: Lock, exclusive: bool) -> LockArgs {
    LockArgs { cookie: NetObj::from_static(b"c"), block: false, exclusive, alock, reclaim: false, state: 3 }
}

#[track_caller]
fn lock(wire: &mut Wire, args: &LockArgs) -> Stats {
    let Res { cookie, stat } = wire.ask(nlm4(nlm::Proc::LOCK), args).expect("a status");
    assert_eq!(cookie, args.cookie);
    stat
}

fn notify(wire: &mut Wire, name: &[u8], state: i32) {
    let change = StateChange { mon_name: nsm::Name::new(name.to_vec()).unwrap(), state };
    wire.ask::<()>((nsm::PROGRAM, nsm::VERSION, nsm::Proc::NOTIFY.0), &change).expect("no results");
}

/// Procedures with arguments, by program and version.
fn with_arguments() -> Vec<(u32, u32, Vec<u32>)> {
    let nfs2 = [vec![1, 2, 4, 5, 6], (8..=17).collect()].concat();
    let nlm = [(1..=10).collect::<Vec<u32>>(), (20..=23).collect()].concat();
    vec![
        (NFS2, nfs2::VERSION, nfs2),
        (mount::PROGRAM, mount::VERSION_1, vec![1, 3]),
        (mount::PROGRAM, mount::VERSION_2, vec![1, 3, 7]),
        (nlm::PROGRAM, nlm::VERSION_1, (1..=10).collect()),
        (nlm::PROGRAM, nlm::VERSION_3, nlm.clone()),
        (nlm::PROGRAM, nlm::VERSION, nlm),
        (nsm::PROGRAM, nsm::VERSION, vec![1, 2, 3, 4, 6]),
    ]
}

#[test]
fn calls_that_cannot_be_decoded_get_errors_of_rpc_over_tcp_and_udp() {
    let dir = TestDir::new();
    let server = serve(&dir);
    for mut wire in [Wire::tcp, Wire::udp].map(|make| make(server.address, [127, 0, 0, 2])) {
        for (program, version, procedures) in with_arguments() {
            for number in procedures {
                // Nothing, half a word, and a length of 4 GiB.
                for arguments in [&[][..], &[0, 0], &[0xff; 4]] {
                    let reply = wire.ask_raw((program, version, number), arguments);
                    assert_eq!(reply, Err(GARBAGE), "{program} {version} {number}: {arguments:?}");
                }
            }
        }
        for procedure in [
            (NFS2, 2, 18),
            (mount::PROGRAM, 1, 7),
            (mount::PROGRAM, 2, 8),
            (mount::PROGRAM, 3, 6),
            (nlm::PROGRAM, 1, 20),
            (nlm::PROGRAM, 3, 16),
            (nlm::PROGRAM, 4, 24),
            (nsm::PROGRAM, 1, 7),
            (nsm::PROGRAM, 1, u32::MAX),
        ] {
            assert_eq!(wire.ask_raw(procedure, &[]), Err(NO_PROCEDURE), "{procedure:?}");
        }
        // RFC 8881 §2.9.1: version 4 has no datagrams.
        let highest = if wire.is_udp() { 3 } else { 4 };
        for (program, version, expected) in [
            (NFS2, 1, only(2, highest)),
            (NFS2, if wire.is_udp() { 4 } else { 5 }, only(2, highest)),
            (mount::PROGRAM, 4, only(1, 3)),
            (nlm::PROGRAM, 2, only(1, 4)),
            (nlm::PROGRAM, u32::MAX, only(1, 4)),
            (nsm::PROGRAM, 2, only(1, 1)),
            (portmap::PROGRAM, 2, RpcError::NotExecuted(AcceptStatus::ProgramUnavailable)),
        ] {
            assert_eq!(wire.ask_raw((program, version, 0), &[]), Err(expected), "{program} {version}");
        }
        // RFC 1094 §2.2: ROOT and WRITECACHE have neither arguments nor results. This server sends no messages whose results these
        // could be.
        let results =
            [(NFS2, 2, 3), (NFS2, 2, 7)].into_iter().chain((11..=15).map(|it| (nlm::PROGRAM, 4, it)));
        for procedure in results {
            assert_eq!(wire.ask_raw(procedure, &[0xff; 64]), Ok(Rest(vec![])), "{procedure:?}");
        }
        let mut other_rpc = wire.record((nlm::PROGRAM, 4, 0), &()).to_vec();
        other_rpc[11] = 3;
        let versions = VersionRange { low: 2, high: 2 };
        let denied = Err(RpcError::Denied(Rejection::RpcMismatch(versions)));
        assert_eq!(parse_reply::<Rest>(wire.reply_to(&other_rpc)), denied);
    }
    serves_others(&server, "after");
    server.stop();
}

#[test]
fn arguments_cut_at_any_word_are_garbage_and_lock_nothing() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let path = mount::DirPath::from_static(b"/export/missing");
    let change = StateChange { mon_name: nsm::Name::from_static(b"holder"), state: 9 };
    let whole = lock_of("holder", file);
    let unlock = UnlockArgs { cookie: NetObj::default(), alock: whole.clone() };
    let calls = [
        ((mount::PROGRAM, mount::VERSION_1, mount::Proc::MNT.0), to_bytes(&path)),
        (nlm4(nlm::Proc::LOCK), to_bytes(&asked(whole.clone(), true))),
        (nlm4(nlm::Proc::LOCK_MSG), to_bytes(&asked(whole.clone(), true))),
        (nlm4(nlm::Proc::UNLOCK), to_bytes(&unlock)),
        ((nsm::PROGRAM, nsm::VERSION, nsm::Proc::NOTIFY.0), to_bytes(&change)),
    ];
    for mut wire in [Wire::tcp, Wire::udp].map(|make| make(server.address, [127, 0, 0, 2])) {
        assert_eq!(lock(&mut wire, &asked(lock_of("holder", file), true)), Stats::GRANTED);
        for (procedure, arguments) in &calls {
            for length in (0..arguments.len()).step_by(4) {
                let reply = wire.ask_raw(*procedure, &arguments[..length]);
                assert_eq!(reply, Err(GARBAGE), "{procedure:?}: {length} bytes");
            }
        }
        let mut other = Wire::udp(server.address, [127, 0, 0, 3]);
        let refused = lock(&mut other, &asked(lock_of("other", file), true));
        assert_eq!(refused, Stats::DENIED, "no cut UNLOCK or NOTIFY has freed it");
    }
    // A call that ends within its header is no call.
    let call = Wire::udp(server.address, [127, 0, 0, 2]).record(nlm4(nlm::Proc::NULL), &());
    let mut wire = Wire::udp(server.address, [127, 0, 0, 2]);
    (0..call.len()).for_each(|length| wire.send_in_vain(&call[..length]));
    for length in [4, 20, call.len() - 4] {
        let mark = LAST_FRAGMENT | length as u32;
        closes_after(server.address, &[&mark.to_be_bytes()[..], &call[..length]].concat(), false);
    }
    serves_others(&server, "after");
    server.stop();
}

#[test]
fn datagrams_of_64_kib_are_served_like_others_and_answered_by_bounded_ones() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let before = status(server.pid(), "VmRSS");
    let mut wire = Wire::udp(server.address, [127, 0, 0, 2]);
    for length in [0, 1, 3, 7] {
        wire.send_in_vain(&vec![0; length]);
    }
    // As a reply, and as a message that is neither call nor reply.
    wire.send_in_vain(&[&[0xff; 4][..], &[0, 0, 0, 1], &[0; MAX_DATAGRAM - 8]].concat());
    wire.send_in_vain(&vec![0xff; MAX_DATAGRAM]);

    // Arguments with bytes after them, as some clients pad.
    let mut padded = |procedure, arguments: &[u8]| {
        let header = wire.record(procedure, &()).len();
        let padding = vec![0xff; MAX_DATAGRAM - header - arguments.len()];
        wire.ask_raw(procedure, &[arguments, &padding].concat())
    };
    let granted = to_bytes(&Res { cookie: NetObj::from_static(b"c"), stat: Stats::GRANTED });
    let args = to_bytes(&asked(lock_of("host", file), true));
    assert_eq!(padded(nlm4(nlm::Proc::LOCK), &args), Ok(Rest(granted.to_vec())));
    let path = to_bytes(&mount::DirPath::from_static(b"/export"));
    let Rest(mounted) = padded((mount::PROGRAM, 1, 1), &path).expect("a handle");
    assert_eq!(mounted.len(), 4 + nfs2::FHSIZE);
    let root: nfs2::FileHandle = mounted[4..].try_into().unwrap();

    // RFC 1094 §2.3.1: MAXDATA is "the maximum number of bytes in a READ or WRITE request".
    let named = nfs2::DirOpArgs { dir: root, name: Opaque::from_static(b"file") };
    let found: nfs2::DirOpRes = wire.ask((NFS2, 2, nfs2::Proc::LOOKUP.0), &named).unwrap();
    let nfs2::Outcome::Ok(found) = found else { panic!("{found:?}") };
    let mut write = |length: usize| {
        let data = [&found.file[..], &[0; 12], &(length as u32).to_be_bytes(), &vec![7; length]].concat();
        wire.ask_raw((NFS2, 2, nfs2::Proc::WRITE.0), &data)
    };
    assert!(matches!(write(nfs2::MAXDATA), Ok(Rest(reply)) if reply[..4] == Stat::OK.0.to_be_bytes()));
    assert_eq!(write(nfs2::MAXDATA + 4), Err(GARBAGE));
    assert_eq!(write(60_000), Err(GARBAGE));
    let read = nfs2::ReadArgs { file: found.file, offset: 0, count: u32::MAX, totalcount: 0 };
    let reply: nfs2::ReadRes = wire.ask((NFS2, 2, nfs2::Proc::READ.0), &read).unwrap();
    assert!(matches!(reply, nfs2::Outcome::Ok(ok) if ok.data.len() == nfs2::MAXDATA));

    // Whatever version 3 asks for, the reply fits into a datagram.
    Client::connect(server.address).write(file, &[5; 200_000], StableHow::FileSync).unwrap();
    let read = nfs3::ReadArgs { file, offset: 0, count: u32::MAX };
    let reply: nfs3::ReadResult = wire.ask((nfs3::PROGRAM, 3, nfs3::Proc::READ.0), &read).unwrap();
    let nfs3::Outcome::Ok(read) = reply else { panic!("{reply:?}") };
    assert!((1..=32 << 10).contains(&read.data.len()), "{}", read.data.len());

    let grown = status(server.pid(), "VmRSS").saturating_sub(before);
    assert!(grown < GROWTH, "{grown} bytes");
    serves_others(&server, "after");
    server.stop();
}

#[test]
fn a_call_in_fragments_of_one_byte_is_served() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let mut wire = Wire::tcp(server.address, [127, 0, 0, 2]);
    let call = wire.record(nlm4(nlm::Proc::LOCK), &asked(lock_of("host", file), true));
    let (last, others) = call.split_last().unwrap();
    let mut fragments: Vec<u8> = others.iter().flat_map(|byte| [0, 0, 0, 1, *byte, 0, 0, 0, 0]).collect();
    fragments.extend([&(LAST_FRAGMENT | 1).to_be_bytes()[..], &[*last]].concat());
    wire.send_bytes(&fragments);
    let locked: Res = parse_reply(wire.next_reply_to(&call).expect("a reply")).unwrap();
    assert_eq!(locked.stat, Stats::GRANTED);
    let mut other = Wire::tcp(server.address, [127, 0, 0, 3]);
    assert_eq!(lock(&mut other, &asked(lock_of("other", file), true)), Stats::DENIED, "it is locked");
    server.stop();
}

/// Sends a fragment of a datagram of UDP (RFC 791 §3.1), to 127.0.0.1 from another address.
fn send_fragment(from: [u8; 4], number: u16, (offset, is_last): (usize, bool), payload: &[u8]) {
    use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).expect("root's right");
    // Type of service, length and checksum are the kernel's.
    let place = (offset / 8) as u16 | if is_last { 0 } else { 0x2000 };
    let mut packet = vec![0x45, 0, 0, 0];
    for word in [number, place, u16::from_be_bytes([64, 17]), 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend([from, [127, 0, 0, 1]].concat());
    packet.extend(payload);
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    sendto(&raw, &packet, SendFlags::empty(), &address).expect("a packet");
}

#[test]
fn a_datagram_in_fragments_is_served_and_lone_fragments_are_not() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let own = [127, 0, 0, 2];
    let mut wire = Wire::udp(server.address, own);
    let call = wire.record(nlm4(nlm::Proc::LOCK), &asked(lock_of("host", file), true));
    let length = 8 + call.len() as u16;
    // RFC 768: a checksum of zero means that there is none.
    let header = [wire.port(), server.address.port(), length, 0].map(u16::to_be_bytes).concat();
    let datagram = [&header[..], &call].concat();
    let (first, second) = datagram.split_at(64);
    for number in 1..200 {
        send_fragment(own, number, (0, false), first);
    }
    wire.ping();
    assert_eq!(wire.strays, 0, "no answer to first halves");
    let mut other = Wire::udp(server.address, [127, 0, 0, 3]);
    assert_eq!(lock(&mut other, &asked(lock_of("other", file), false)), Stats::GRANTED, "nothing is locked");
    notify(&mut other, b"other", 5);
    send_fragment(own, 300, (64, true), second);
    send_fragment(own, 300, (0, false), first);
    let locked: Res = parse_reply(wire.next_reply_to(&call).expect("an answer to both halves")).unwrap();
    assert_eq!(locked.stat, Stats::GRANTED);
    assert_eq!(lock(&mut other, &asked(lock_of("other", file), false)), Stats::DENIED);
    server.stop();
}

#[test]
fn only_a_host_itself_frees_what_it_holds() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let mut holder = Wire::udp(server.address, [127, 0, 0, 2]);
    assert_eq!(lock(&mut holder, &asked(lock_of("holder", file), true)), Stats::GRANTED);
    let forged = [
        Wire::udp(server.address, [127, 0, 0, 3]),
        Wire::tcp(server.address, [127, 0, 0, 4]),
        Wire::udp(server.address, [127, 200, 0, 2]),
    ];
    for mut forger in forged {
        notify(&mut forger, b"holder", 9);
        notify(&mut forger, b"127.0.0.2", 9);
        let free = Notify { name: Name::from_static(b"holder"), state: 9 };
        forger.ask::<()>(nlm4(nlm::Proc::FREE_ALL), &free).unwrap();
        let alock = lock_of("holder", file);
        let unlock = UnlockArgs { cookie: NetObj::default(), alock: alock.clone() };
        let _: Res = forger.ask(nlm4(nlm::Proc::UNLOCK), &unlock).unwrap();
        // Its result would go to the forger.
        forger.ask::<()>(nlm4(nlm::Proc::UNLOCK_MSG), &unlock).unwrap();
        // No process of this server waits for locks of others.
        let granted = TestArgs { cookie: NetObj::from_static(b"g"), exclusive: true, alock };
        let Res { cookie, stat } = forger.ask(nlm4(nlm::Proc::GRANTED), &granted).unwrap();
        assert_eq!((&*cookie, stat), (&b"g"[..], Stats::DENIED));
        for number in [nlm::Proc::LOCK_RES, nlm::Proc::UNLOCK_RES, nlm::Proc::GRANTED_RES] {
            let result = Res { cookie: NetObj::from_static(b"c"), stat: Stats::DENIED };
            forger.ask::<()>(nlm4(number), &result).unwrap();
        }
        forger.ask::<()>((nsm::PROGRAM, nsm::VERSION, nsm::Proc::SIMU_CRASH.0), &()).unwrap();
        let mut other = Wire::tcp(server.address, [127, 0, 0, 5]);
        assert_eq!(lock(&mut other, &asked(lock_of("other", file), false)), Stats::DENIED);
    }
    // A late notification of the state in which it took the lock, then one of the next state.
    let mut other = Wire::tcp(server.address, [127, 0, 0, 5]);
    notify(&mut holder, b"holder", 3);
    assert_eq!(lock(&mut other, &asked(lock_of("other", file), true)), Stats::DENIED);
    notify(&mut holder, b"holder", 5);
    assert_eq!(lock(&mut other, &asked(lock_of("other", file), true)), Stats::GRANTED);
    serves_others(&server, "after");
    server.stop();
}

#[test]
fn a_flood_of_notifications_frees_nothing_and_takes_no_memory() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let mut holder = Wire::tcp(server.address, [127, 0, 0, 2]);
    assert_eq!(lock(&mut holder, &asked(lock_of("holder", file), true)), Stats::GRANTED);
    let (before, logged) = (status(server.pid(), "VmRSS"), server.log().len());
    let procedure = (nsm::PROGRAM, nsm::VERSION, nsm::Proc::NOTIFY.0);
    let mut sent = 0;
    let mut change = || {
        sent += 1;
        let mut name = format!("{sent}.").into_bytes();
        name.resize(nsm::MAXSTRLEN, b'x');
        StateChange { mon_name: nsm::Name::new(name).unwrap(), state: sent }
    };
    // One connection and one socket, then thousands of sockets at many addresses.
    for mut wire in [Wire::tcp, Wire::udp].map(|make| make(server.address, [127, 0, 0, 3])) {
        for _ in 0..400 {
            for _ in 0..BATCH {
                let call = wire.record(procedure, &change());
                wire.send(&call);
            }
            wire.ping();
        }
        assert!(wire.strays <= 400 * BATCH);
    }
    for number in 0..3000_u16 {
        let [high, low] = number.to_be_bytes();
        let mut wire = Wire::udp(server.address, [127, 1, high, low.max(1)]);
        notify(&mut wire, b"holder", 9);
    }
    let grown = status(server.pid(), "VmRSS").saturating_sub(before);
    println!("{grown} bytes after {sent} notifications of {} bytes", nsm::MAXSTRLEN);
    assert!(sent as u64 * nsm::MAXSTRLEN as u64 > GROWTH && grown < GROWTH, "{grown} bytes");
    assert!(server.log().len() - logged < 10_000, "{}", server.log());
    let mut other = Wire::tcp(server.address, [127, 0, 0, 5]);
    assert_eq!(lock(&mut other, &asked(lock_of("other", file), true)), Stats::DENIED);
    serves_others(&server, "after");
    server.stop();
}

/// The owner with a number: 1,024 bytes, which differ in the last ones.
fn long_owner(number: usize) -> NetObj {
    let mut owner = vec![b'o'; MAXNETOBJ_SZ - 8];
    owner.extend((number as u64).to_be_bytes());
    NetObj::new(owner).unwrap()
}

#[test]
fn owners_and_names_of_1024_bytes_are_served_and_bounded() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let (file, second) = (create(&server, "file"), create(&server, "second"));
    let before = status(server.pid(), "VmRSS");
    let mut wire = Wire::udp(server.address, [127, 0, 0, 2]);
    let owned = |number, name: &'static str, file| Lock { oh: long_owner(number), ..lock_of(name, file) };

    // One byte more than the protocol has (RFC 1813 §6.1.3: MAXNETOBJ_SZ, LM_MAXSTRLEN).
    let too_long = Opaque::<2048>::new(vec![b'o'; MAXNETOBJ_SZ + 1]).unwrap();
    let with_cookie =
        [&to_bytes(&too_long)[..], &to_bytes(&asked(lock_of("host", file), true))[8..]].concat();
    assert_eq!(wire.ask_raw(nlm4(nlm::Proc::LOCK), &with_cookie), Err(GARBAGE));
    let before_name = to_bytes(&asked(lock_of("host", file), true)).slice(..16);
    let with_name = [&before_name[..], &to_bytes(&too_long)].concat();
    assert_eq!(wire.ask_raw(nlm4(nlm::Proc::LOCK), &with_name), Err(GARBAGE));

    // Many owners: one client has a part of the limit, and others have room.
    let shared = |wire: &mut Wire, number| {
        let args = LockArgs { cookie: long_owner(number), ..asked(owned(number, "host", file), false) };
        lock(wire, &args)
    };
    let granted = (0..STATE).take_while(|number| shared(&mut wire, *number) == Stats::GRANTED).count();
    assert!((1..STATE_OF_ONE).contains(&granted), "{granted} owners");
    assert_eq!(shared(&mut wire, granted), Stats::DENIED_NOLOCKS);
    let mut other = Wire::udp(server.address, [127, 0, 0, 3]);
    assert_eq!(lock(&mut other, &asked(owned(0, "other", second), true)), Stats::GRANTED);
    // Owners that differ in their last byte conflict.
    assert_eq!(lock(&mut other, &asked(owned(1, "other", second), true)), Stats::DENIED);

    // Many waiters, each with a long owner.
    let mut waiter = Wire::udp(server.address, [127, 0, 0, 4]);
    let mut wait =
        |number| lock(&mut waiter, &LockArgs { block: true, ..asked(owned(number, "waiter", second), true) });
    let waiting = (0..2 * WAITERS).take_while(|number| wait(*number) == Stats::BLOCKED).count();
    assert_eq!(waiting, WAITERS);
    assert_eq!(wait(waiting), Stats::DENIED_NOLOCKS);
    notify(&mut waiter, b"waiter", 5);

    // Many hosts at one address.
    let mut hosts = Wire::udp(server.address, [127, 0, 0, 5]);
    let mut lock_as = |number: usize| {
        let caller_name = Name::new(long_owner(number).to_vec()).unwrap();
        let (l_offset, l_len) = (1000 + number as u64, 1);
        lock(&mut hosts, &asked(Lock { caller_name, l_offset, l_len, ..lock_of("x", file) }, false))
    };
    let known = (0..4 * HOSTS_OF_ONE).filter(|number| lock_as(*number) == Stats::GRANTED).count();
    assert_eq!(known, HOSTS_OF_ONE);

    let free = Notify { name: Name::from_static(b"host"), state: 0 };
    wire.ask::<()>(nlm4(nlm::Proc::FREE_ALL), &free).unwrap();
    assert_eq!(shared(&mut wire, STATE), Stats::GRANTED, "there is room again");
    let grown = status(server.pid(), "VmRSS").saturating_sub(before);
    assert!(grown < GROWTH, "{grown} bytes");
    serves_others(&server, "after");
    server.stop();
}

#[test]
fn ranges_that_overflow_are_refused_in_64_bits_and_never_wrap_in_32() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let ranged = |l_offset, l_len| Lock { l_offset, l_len, ..lock_of("host", file) };
    for mut wire in [Wire::tcp, Wire::udp].map(|make| make(server.address, [127, 0, 0, 2])) {
        for (offset, length) in
            [(1, u64::MAX), (2, u64::MAX), (u64::MAX, 2), (u64::MAX, u64::MAX), (1 << 63, (1 << 63) + 1)]
        {
            let end = u128::from(offset) + u128::from(length);
            let expected = if end > 1 << 64 { Stats::FBIG } else { Stats::GRANTED };
            let stat = lock(&mut wire, &asked(ranged(offset, length), true));
            assert_eq!(stat, expected, "{length} bytes at {offset}");
            let unlock = UnlockArgs { cookie: NetObj::default(), alock: ranged(offset, length) };
            let unlocked: Res = wire.ask(nlm4(nlm::Proc::UNLOCK), &unlock).unwrap();
            assert_eq!(unlocked.stat, expected);
        }
        assert_eq!(lock(&mut wire, &asked(ranged(u64::MAX, 1), true)), Stats::GRANTED, "the last byte");

        // In 32 bits offset and length fit into 64.
        let narrow = |number: nlm::Proc| (nlm::PROGRAM, nlm::VERSION_3, number.0);
        let Lock { caller_name, fh, oh, svid, .. } = lock_of("host", file);
        let alock = nlm::Lock::<u32> { caller_name, fh, oh, svid, l_offset: u32::MAX, l_len: u32::MAX };
        let args = nlm::LockArgs::<u32> {
            cookie: NetObj::default(),
            block: false,
            exclusive: true,
            alock: alock.clone(),
            reclaim: false,
            state: 3,
        };
        let locked: Res = wire.ask(narrow(nlm::Proc::LOCK), &args).unwrap();
        assert_eq!(locked.stat, Stats::GRANTED);
        let mut other = Wire::udp(server.address, [127, 0, 0, 3]);
        let low = Lock { l_offset: 0, l_len: u64::from(u32::MAX), ..lock_of("other", file) };
        assert_eq!(lock(&mut other, &asked(low, true)), Stats::GRANTED, "what lies before it is free");
        // The holder of a range beyond 32 bits is shown as one that ends there.
        let asked_for = nlm::Lock::<u32> { oh: NetObj::from_static(b"third"), svid: 9, ..alock };
        let test = nlm::TestArgs::<u32> { cookie: NetObj::default(), exclusive: true, alock: asked_for };
        let shown: nlm::TestRes<u32> = other.ask(narrow(nlm::Proc::TEST), &test).unwrap();
        let nlm::TestReply::Denied(holder) = shown.stat else { panic!("{shown:?}") };
        assert_eq!((holder.l_offset, holder.l_len), (u32::MAX, 0));
        for (wire, name) in [(&mut wire, &b"host"[..]), (&mut other, b"other")] {
            notify(wire, name, 5);
        }
    }
    serves_others(&server, "after");
    server.stop();
}

#[test]
fn datagrams_from_ports_and_addresses_that_an_export_does_not_admit_get_errors() {
    let dir = TestDir::new();
    let server = serve(&dir);
    let file = create(&server, "file");
    let mnt = |wire: &mut Wire, path: &'static str| {
        let path = mount::DirPath::from_static(path.as_bytes());
        wire.ask_raw((mount::PROGRAM, mount::VERSION_1, mount::Proc::MNT.0), &to_bytes(&path)).unwrap()
    };
    let refused = Rest(to_bytes(&mount::MountStat::ACCES).to_vec());
    let getattr = |wire: &mut Wire, object| {
        let args = nfs3::GetattrArgs { object };
        let shown: nfs3::GetattrResult = wire.ask((nfs3::PROGRAM, 3, nfs3::Proc::GETATTR.0), &args).unwrap();
        shown.status()
    };
    // 127.128.0.0/9 is outside of `clients`.
    let mut outside = Wire::udp(server.address, [127, 128, 0, 2]);
    assert_eq!(mnt(&mut outside, "/export"), refused);
    assert_eq!(getattr(&mut outside, file), NfsStat::ACCES);
    assert_eq!(lock(&mut outside, &asked(lock_of("outside", file), true)), Stats::FAILED);

    // A port above 1023, also of this machine: datagrams have no owner that could be asked.
    let mut unprivileged = Wire::udp(server.address, [127, 0, 0, 2]);
    assert_eq!(mnt(&mut unprivileged, "/secure"), refused);
    assert_eq!(mnt(&mut unprivileged, "/export").0.len(), 4 + nfs2::FHSIZE);
    if is_root() {
        let mut privileged = Wire::udp_of_root(server.address, [127, 0, 0, 2]);
        let Rest(mounted) = mnt(&mut privileged, "/secure");
        assert_eq!(mounted.len(), 4 + nfs2::FHSIZE);
        let root: nfs2::FileHandle = mounted[4..].try_into().unwrap();
        let status_of = |wire: &mut Wire| {
            let reply: nfs2::AttrStat = wire.ask((NFS2, 2, nfs2::Proc::GETATTR.0), &Raw(&root)).unwrap();
            reply.status()
        };
        assert_eq!(status_of(&mut privileged), Stat::OK);
        assert_eq!(status_of(&mut unprivileged), Stat::PERM, "a handle that was seen on the network");
        let alock = Lock { fh: NetObj::new(root.to_vec()).unwrap(), ..lock_of("host", file) };
        assert_eq!(lock(&mut unprivileged, &asked(alock, true)), Stats::FAILED);
    }
    serves_others(&server, "after");
    server.stop();
}
