//! Copies between two real servers.

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::copy::{CopyArgs, CopyNotifyArgs, CopyNotifyOk, CopyResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::types::{Handle, NetAddress, NetLocation, Stateid, Status, Utf8};
use rpc::address::{NetId, UniversalAddress};
use xdr::List;

use crate::client::Client4;
use crate::server::{Server, TestDir};

mod long_link;

/// Starts a server of `directory` on its own address, with additional lines of configuration.
fn serve(dir: &TestDir, directory: &Path, address: [u8; 4], lines: &str) -> Server {
    let (listen, state) = (Ipv4Addr::from(address), dir.path("state"));
    let text = format!(
        "listen = ['{listen}:0']\nstate-dir = '{}'\n{lines}\n[[export]]\npath = '{}'\n",
        state.display(),
        directory.display()
    );
    let file = dir.file("enfys.toml", &text);
    Server::start(dir, &["serve", "--config", file.to_str().expect("a path")])
}

fn location(address: SocketAddr) -> NetLocation {
    let text = |text: &str| Utf8::new(text.to_owned().into_bytes()).expect("a short text");
    NetLocation::Address(NetAddress {
        netid: text(NetId::tcp(&address).as_str()),
        address: text(&UniversalAddress(address).to_string()),
    })
}

fn put(handle: Handle) -> Op {
    Op::PutFh(PutFhArgs { handle })
}

/// COPY_NOTIFY.
fn notify(client: &mut Client4, (file, stateid): (Handle, Stateid), to: SocketAddr) -> CopyNotifyOk {
    let args = CopyNotifyArgs { source_stateid: stateid, destination_server: location(to) };
    match client.run(vec![put(file), Op::CopyNotify(args)]).expect("it is granted").pop() {
        Some(OpResult::CopyNotify(result)) => result.into_result().expect("it is granted"),
        other => panic!("as COPY_NOTIFY: {other:?}"),
    }
}

/// Runs COPY at `offset`; returns the bytes copied.
fn copy_behind(
    offset: u64,
    client: &mut Client4,
    from: (Handle, Stateid),
    to: (Handle, Stateid),
    source_servers: Vec<NetLocation>,
) -> Result<u64, Status> {
    let args = CopyArgs {
        source_stateid: from.1,
        destination_stateid: to.1,
        source_offset: offset,
        destination_offset: offset,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_servers: List::new(source_servers).expect("few"),
    };
    match client.run(vec![put(from.0), Op::SaveFh, put(to.0), Op::Copy(args)])?.pop() {
        Some(OpResult::Copy(CopyResult::Ok(ok))) => Ok(ok.response.count),
        other => panic!("as COPY: {other:?}"),
    }
}

/// Copies the whole file; returns the bytes copied.
fn copy(
    client: &mut Client4,
    from: (Handle, Stateid),
    to: (Handle, Stateid),
    source_servers: Vec<NetLocation>,
) -> Result<u64, Status> {
    copy_behind(0, client, from, to, source_servers)
}

/// Copies `length` bytes by as many COPYs as needed: a reply arrives after ten seconds, even if less was copied.
fn copy_on(
    length: u64,
    client: &mut Client4,
    from: (Handle, Stateid),
    to: (Handle, Stateid),
    source_servers: Vec<NetLocation>,
) -> Result<u64, Status> {
    let mut copied = 0;
    while copied < length {
        let more = copy_behind(copied, client, from, to, source_servers.clone())?;
        assert_ne!(more, 0, "after {copied} bytes");
        copied += more;
    }
    Ok(copied)
}

/// Two servers, and a client of each with an open file.
struct Scene {
    places: [TestDir; 2],
    source: Server,
    destination: Server,
    reader: Client4,
    writer: Client4,
    from: (Handle, Stateid),
    to: (Handle, Stateid),
}

/// Long enough for several READs, and not a multiple of their size.
fn content() -> Vec<u8> {
    (0..3_500_001_u32).map(|at| (at % 253) as u8).collect()
}

fn scene(copy_from: &str) -> Scene {
    let places = [TestDir::new(), TestDir::new()];
    let directories = [places[0].directory("files"), places[1].directory("files")];
    let files = [directories[0].join("source"), directories[1].join("destination")];
    std::fs::write(&files[0], content()).expect("a file");
    std::fs::write(&files[1], "").expect("a file");
    for file in &files {
        std::fs::set_permissions(file, crate::server::mode(0o666)).expect("permissions");
    }
    let source = serve(&places[0], &directories[0], [127, 0, 0, 2], "copy-source = true");
    let lines = format!("copy-from = ['{copy_from}']");
    let destination = serve(&places[1], &directories[1], [127, 0, 0, 3], &lines);
    let mut reader = Client4::connect_2(source.address);
    let mut writer = Client4::connect_2(destination.address);
    let from = reader.opened("export", "source");
    let to = writer.opened("export", "destination");
    Scene { places, source, destination, reader, writer, from, to }
}

impl Scene {
    fn copied(&self) -> Vec<u8> {
        std::fs::read(self.places[1].path("files/destination")).expect("a file")
    }
}

#[test]
fn a_file_is_copied_from_another_server() {
    let mut scene = scene("127.0.0.2");
    let promised = notify(&mut scene.reader, scene.from, scene.destination.address);
    assert_eq!(promised.source_servers[..], [location(scene.source.address)]);
    let from = (scene.from.0, promised.stateid);
    let servers = promised.source_servers.into_vec();
    let length = content().len() as u64;
    let copied = copy_on(length, &mut scene.writer, from, scene.to, servers.clone());
    assert_eq!(copied, Ok(length));
    assert!(scene.copied() == content(), "the same bytes");
    // The client's own stateid is not valid for another client.
    let stolen = copy(&mut scene.writer, scene.from, scene.to, servers);
    assert_eq!(stolen, Err(Status::OFFLOAD_DENIED));
}

#[test]
fn holes_are_copied_from_another_server() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const SIZE: u64 = 20_000_001;
    let mut scene = scene("127.0.0.2");
    let source =
        std::fs::File::options().write(true).open(scene.places[0].path("files/source")).expect("a file");
    source.set_len(0).expect("a length");
    source.set_len(SIZE).expect("a length");
    source.write_all_at(b"in the middle", 11_000_000).expect("written");
    // The destination's data in the hole are replaced.
    std::fs::write(scene.places[1].path("files/destination"), vec![7; 3 << 20]).expect("a file");
    let promised = notify(&mut scene.reader, scene.from, scene.destination.address);
    let from = (scene.from.0, promised.stateid);
    let copied = copy_on(SIZE, &mut scene.writer, from, scene.to, promised.source_servers.into_vec());
    assert_eq!(copied, Ok(SIZE));
    let content = std::fs::read(scene.places[0].path("files/source")).expect("a file");
    assert!(scene.copied() == content, "the same bytes");
    let blocks = |dir: &TestDir, name| std::fs::metadata(dir.path(name)).expect("a file").blocks();
    let used = blocks(&scene.places[1], "files/destination");
    assert!(used * 512 < 1 << 20, "{used} blocks");
}

#[test]
fn the_server_connects_to_permitted_sources_only() {
    let mut scene = scene("127.0.0.4/31");
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    listener.set_nonblocking(true).expect("an option");
    let servers = vec![location(listener.local_addr().expect("an address"))];
    let denied = copy(&mut scene.writer, scene.from, scene.to, servers);
    assert_eq!(denied, Err(Status::OFFLOAD_DENIED));
    assert!(listener.accept().is_err(), "no connection was made");
    assert_eq!(scene.copied(), b"");
}

#[test]
fn a_copy_fails_if_the_source_sends_garbage_or_disconnects() {
    use std::io::{Read, Write};
    let mut scene = scene("127.0.0.2");
    let answers: [&[u8]; 3] = [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0x80, 0, 0, 4, 0, 0, 0, 1]];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
        let servers = vec![location(listener.local_addr().expect("an address"))];
        let source = std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().expect("a connection");
            drop(listener);
            let mut call = [0; 64];
            stream.read_exact(&mut call).expect("EXCHANGE_ID");
            stream.write_all(answer).expect("sent");
            peer
        });
        let denied = copy(&mut scene.writer, scene.from, scene.to, servers);
        assert_eq!(denied, Err(Status::OFFLOAD_DENIED), "{answer:?}");
        let peer = source.join().expect("it got a READ");
        assert_eq!(
            peer.ip(),
            scene.destination.address.ip(),
            "from the address at which its clients reach it"
        );
    }
    assert_eq!(scene.copied(), b"");
    let promised = notify(&mut scene.reader, scene.from, scene.destination.address);
    let servers = promised.source_servers.into_vec();
    let (length, from) = (content().len() as u64, (scene.from.0, promised.stateid));
    let copied = copy_on(length, &mut scene.writer, from, scene.to, servers);
    assert_eq!(copied, Ok(length), "other sources are");
}

/// Relays bytes to `source` and back. The first connection is cut after the given number of bytes.
fn relay(source: SocketAddr, first: u64) -> SocketAddr {
    use std::io::{Read, copy};
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for (stream, most) in
            listener.incoming().zip(std::iter::once(first).chain(std::iter::repeat(u64::MAX)))
        {
            let Ok(near) = stream else { return };
            let far = TcpStream::connect(source).expect("the source listens");
            let (mut calls, mut to_source) =
                (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
            std::thread::spawn(move || copy(&mut calls, &mut to_source));
            // Closing either end closes the other.
            let _ = copy(&mut (&far).take(most), &mut &near);
            let _ = (far.shutdown(Shutdown::Both), near.shutdown(Shutdown::Both));
        }
    });
    address
}

#[test]
fn a_broken_connection_to_the_source_is_replaced() {
    let mut scene = scene("127.0.0.2");
    let relay = relay(scene.source.address, 1_700_000);
    // The source sees connections of this test's user.
    let seen = SocketAddr::from(([127, 0, 0, 1], 2049));
    let promised = notify(&mut scene.reader, scene.from, seen);
    let from = (scene.from.0, promised.stateid);
    let length = content().len() as u64;
    let copied = copy_on(length, &mut scene.writer, from, scene.to, vec![location(relay)]);
    assert_eq!(copied, Ok(length));
    assert!(scene.copied() == content(), "the same bytes");
}

#[test]
fn a_stopping_server_answers_copies_from_a_slow_source() {
    use std::io::{Read, Write};
    let Scene { places: _places, mut destination, mut writer, from, to, .. } = scene("127.0.0.2");
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    let servers = vec![location(listener.local_addr().expect("an address"))];
    let copier = std::thread::spawn(move || copy(&mut writer, from, to, servers));
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut call = [0; 64];
    stream.read_exact(&mut call).expect("EXCHANGE_ID");
    // A long record, one byte at a time: not silent, and not a reply.
    stream.write_all(&[0x80, 0, 0x10, 0]).expect("sent");
    let dripping = std::thread::spawn(move || {
        while stream.write_all(&[0]).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    destination.signal(rustix::process::Signal::TERM);
    assert!(destination.wait().success(), "{}", destination.log());
    assert_eq!(copier.join().expect("it is answered"), Err(Status::OFFLOAD_DENIED));
    dripping.join().expect("the connection is closed");
    let log = destination.log();
    assert!(!log.contains("had not taken every reply"), "{log}");
}

#[test]
fn a_copy_from_a_silent_source_times_out() {
    let mut scene = scene("127.0.0.2");
    let silent = TcpListener::bind("127.0.0.2:0").expect("a port");
    let servers = vec![location(silent.local_addr().expect("an address"))];
    let denied = copy(&mut scene.writer, scene.from, scene.to, servers);
    assert_eq!(denied, Err(Status::OFFLOAD_DENIED));
    assert_eq!(scene.copied(), b"");
}
