//! All kinds of bad input at once, while a client continues to work.

mod large_files;
mod old_programs;
mod wire;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use protocol::mount::MountStat;
use protocol::nfs3::{DirOpArgs, FileHandle, Filename, NfsStat, Proc, RemoveArgs, RemoveResult, StableHow};
use protocol::nfs4::PROC_COMPOUND;
use protocol::nfs4::attributes::number;
use protocol::nfs4::compound::{CompoundResult, Op};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::types::{Bitmap, Handle, OpNum, Status};
use rpc::message::{AcceptStatus, CallHeader, RpcError, VersionRange, encode_call};
use rpc::record::{finish_record, start_record};
use xdr::{Encode, Writer};

use crate::client::{Client, Client4, NFS3, NFS4};
use crate::memory::{AT_REST, status};
use crate::metrics::scrape_at_rest;
use crate::server::{Server, TestDir};

/// Connections that stop in the middle of a record, and connections that send nothing.
const STOPPED: usize = 300;
/// Bytes that each of them sends, unless the server stops reading first; together, more than the server may hold.
const SENT: usize = 600_000;
/// `memory-bytes`.
const MEMORY: u64 = 1 << 20;
/// Bytes that a connection may hold beyond that: one read (SEMANTICS.md, "Limits").
const ONE_READ: u64 = 64 << 10;
/// Allowance for other memory: replies, slack of the allocator, threads that were idle before.
const SLACK: u64 = 32 << 20;

/// Encoded arguments.
struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(self.0);
    }
}

/// Sends bytes over a connection of its own and reads until it is closed.
#[track_caller]
fn closes_after(address: SocketAddr, bytes: &[u8], ends: bool) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may close it before everything is sent.
    let _ = stream.write_all(bytes);
    if ends {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut output = Vec::new();
    match stream.read_to_end(&mut output) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(output.is_empty(), "no reply to an invalid call");
}

/// Streams that are not RPC, and whether they end. Each counts as malformed once.
fn streams() -> Vec<(Vec<u8>, bool)> {
    let mut state = 7u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(400).collect();
    vec![
        // A record of 4 GiB, by its header.
        (u32::MAX.to_be_bytes().to_vec(), false),
        // Endless fragments, with and without bytes.
        ([&1000u32.to_be_bytes()[..], &[0; 1000]].concat().repeat(2000), false),
        (vec![0; 4 * 10_000], false),
        // A record that is not a message, and a truncated one.
        ([&(0x8000_0000 | 400u32).to_be_bytes()[..], &noise].concat(), false),
        ([&(0x8000_0000 | 4000u32).to_be_bytes()[..], &noise].concat(), true),
    ]
}

/// Calls that get RPC errors. Garbage arguments count as malformed, too.
fn send_unserved_calls(client: &mut Client) {
    let error = |status| Err(RpcError::NotExecuted(status));
    let mut ask =
        |program, procedure, arguments: &[u8]| client.ask::<()>(program, procedure, &Raw(arguments));
    assert_eq!(ask((100_099, 1), 0, &[]), error(AcceptStatus::ProgramUnavailable));
    let range = VersionRange { low: 3, high: 4 };
    assert_eq!(ask((NFS3.0, 9), 0, &[]), error(AcceptStatus::ProgramMismatch(range)));
    assert_eq!(ask(NFS3, 22, &[]), error(AcceptStatus::ProcedureUnavailable));
    assert_eq!(ask(NFS4, 2, &[]), error(AcceptStatus::ProcedureUnavailable));
    for procedure in 1..22 {
        assert_eq!(ask(NFS3, procedure, &[0xff; 4]), error(AcceptStatus::GarbageArguments), "{procedure}");
    }
}

/// Names and handles that do not exist.
fn use_unknown_names_and_handles(client: &mut Client, root: FileHandle) {
    let long = "x".repeat(300);
    for (name, expected) in [
        ("a/b", NfsStat::ACCES),
        ("a\0b", NfsStat::ACCES),
        ("", NfsStat::ACCES),
        (&long, NfsStat::NAMETOOLONG),
    ] {
        assert_eq!(client.create(root, name), Err(expected), "{name:?}");
        assert_eq!(client.lookup(root, name), Err(expected), "{name:?}");
    }
    // There is nothing above the top of an export.
    assert_eq!(client.lookup(root, ".."), Ok(root));
    let mut forged = root.to_vec();
    *forged.last_mut().unwrap() ^= 1;
    for forged in [&forged[..], &[7; 64], &[]] {
        let forged = FileHandle::new(forged).unwrap();
        assert_eq!(client.getattr(forged).unwrap_err(), NfsStat::BADHANDLE);
    }
    assert_eq!(client.mount("/closed"), Err(MountStat::ACCES), "for another network");
    assert_eq!(client.mount("/export/.."), Err(MountStat::NOENT));
}

/// Outdated handles: of a removed file, and of an export that this client may no longer use.
fn use_outdated_handles(client: &mut Client, session: &mut Client4, root: FileHandle, closed: FileHandle) {
    let gone = client.create(root, "gone").unwrap();
    let object = DirOpArgs { dir: root, name: Filename::from_static(b"gone") };
    let removed: RemoveResult = client.call(NFS3, Proc::REMOVE.0, &RemoveArgs { object });
    assert_eq!(removed.status(), NfsStat::OK);
    let put = |handle: FileHandle| {
        let handle = Handle::new(&handle).expect("a handle of either version");
        vec![
            Op::PutFh(PutFhArgs { handle }),
            Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[number::SIZE]) }),
        ]
    };
    assert_eq!(client.getattr(gone).unwrap_err(), NfsStat::STALE);
    assert_eq!(session.run(put(gone)).unwrap_err(), Status::STALE);
    assert_eq!(client.getattr(closed).unwrap_err(), NfsStat::ACCES);
    assert_eq!(session.run(put(closed)).unwrap_err(), Status::STALE);
}

/// Ten thousand operations in a compound without a session. RFC 8881 §2.10.2.1.1: the first gets OP_NOT_IN_SESSION, and the others are
/// not read.
fn send_long_compound(client: &mut Client) {
    let mut compound = Writer::new();
    compound.opaque(b"");
    compound.u32(1);
    compound.u32(10_000);
    (0..10_000).for_each(|_| compound.u32(OpNum::PUTROOTFH.0));
    let result: CompoundResult = client.call(NFS4, PROC_COMPOUND, &Raw(compound.inline()));
    assert_eq!((result.status, result.results.len()), (Status::OP_NOT_IN_SESSION, 1));
}

/// Connections that sent half of a record, and connections that sent nothing.
fn stopped(address: SocketAddr) -> Vec<TcpStream> {
    let mut call = Writer::new();
    let start = start_record(&mut call);
    encode_call(&mut call, &CallHeader::new(1, NFS3.0, NFS3.1, 0), &Raw(&vec![0; SENT + SENT / 2]));
    finish_record(&mut call, start);
    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nonblocking(true).expect("an option");
        let mut sent = 0;
        while sent < bytes.len() {
            match stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                // The socket buffers are full, and the server does not read.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        stream
    };
    (0..STOPPED).flat_map(|_| [connect(&call.inline()[..SENT]), connect(&[])]).collect()
}

/// Works until stopped, and checks every reply.
fn work(address: SocketAddr, is_over: &AtomicBool, rounds: &AtomicU32) {
    let mut client = Client::connect(address);
    let root = client.mount("/export").unwrap();
    while !is_over.load(Relaxed) {
        let name = format!("file {}", rounds.load(Relaxed));
        let file = client.create(root, &name).unwrap();
        client.write(file, b"all is well", StableHow::FileSync).unwrap();
        assert_eq!(client.read(file).unwrap(), b"all is well");
        assert_eq!(client.lookup(root, &name), Ok(file));
        rounds.fetch_add(1, Relaxed);
    }
}

#[test]
fn bad_input_is_refused_and_counted_and_does_not_affect_other_clients() {
    let dir = TestDir::new();
    let open = format!(
        "state-dir = '{}'\n[limits]\nmemory-bytes = {MEMORY}\n\
         [[export]]\nmemory = true\npseudo = '/export'\n\
         [[export]]\nmemory = true\npseudo = '/closed'\n",
        dir.path("state").display(),
    );
    let file = dir.file("enfys.toml", &open).display().to_string();
    let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &arguments);
    let (address, metrics) = (server.address, server.metrics_address());
    let closed = Client::connect(address).mount("/closed").unwrap();
    dir.file("enfys.toml", &format!("{open}clients = ['10.0.0.0/8']\n"));
    server.reload();
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let before = scrape_at_rest(metrics);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(address, &is_over, &rounds));
        let mut client = Client::connect(address);
        let root = client.mount("/export").unwrap();
        // First: the long one would wait for the memory that the stopped connections take later.
        for (stream, ends) in streams() {
            closes_after(address, &stream, ends);
        }
        let held = stopped(address);
        send_unserved_calls(&mut client);
        use_unknown_names_and_handles(&mut client, root);
        use_outdated_handles(&mut client, &mut Client4::connect(address), root, closed);
        send_long_compound(&mut client);
        // Everything sent has been read: memory is at its highest.
        let done = rounds.load(Relaxed);
        while rounds.load(Relaxed) < done + 20 {
            assert!(!worker.is_finished(), "the working client met an error");
            std::thread::yield_now();
        }
        let resident = status(server.pid(), "VmRSS");
        let bound = AT_REST + MEMORY + 2 * STOPPED as u64 * ONE_READ + SLACK;
        assert!(resident < bound, "{resident} bytes are resident, at least the bound of {bound}");
        drop(held);
        is_over.store(true, Relaxed);
        worker.join().expect("every answer was right");
    });
    let after = scrape_at_rest(metrics);
    let rise = |name: &str| after[name] - before[name];
    // Streams, garbage arguments, and records cut off by the end of their connections.
    let malformed = streams().len() + 21 + STOPPED;
    assert_eq!(rise("enfys_malformed_records_total"), malformed as f64);
    assert_eq!(rise("enfys_bad_handles_total"), 3.0);
    // MNT of the closed export, and its handle in two versions.
    assert_eq!(rise("enfys_refused_calls_total"), 3.0);
    assert_eq!(rise("enfys_unserved_calls_total"), 4.0);
    assert_eq!(after["enfys_connections"], 0.0);
    assert_eq!(rise("enfys_stalled_connections_total"), 0.0);
    assert_eq!(rise("enfys_refused_connections_total"), 0.0);
    server.stop();
}
