//! Files whose content is offline, and the command that recalls them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use protocol::nfs3::NfsStat;
use protocol::nfs4::PROC_COMPOUND;
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::types::{Component, Handle, Stateid, Status, Utf8};
use rustix::fs::XattrFlags;
use xdr::List;

use crate::client::{Client, Client4, NFS4};
use crate::server::{ENFYS, Server, TestDir};

/// Creates a file whose content is offline; false where files have no extended attributes.
fn offline(path: &Path) -> bool {
    std::fs::write(path, b"").unwrap();
    std::fs::set_permissions(path, crate::server::mode(0o666)).unwrap();
    let marked = rustix::fs::setxattr(path, "user.offline", b"", XattrFlags::empty());
    if marked.is_err() {
        println!("skipped: no extended attributes in {}", path.display());
    }
    marked.is_ok()
}

fn read4(client: &mut Client4, (handle, stateid): (Handle, Stateid)) -> Result<Vec<u8>, Status> {
    let read = Op::Read(ReadArgs { stateid, offset: 0, count: 100 });
    match client.run(vec![Op::PutFh(PutFhArgs { handle }), read])?.pop() {
        Some(OpResult::Read(result)) => Ok(result.into_result()?.data.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// Reads a file of the export in version 4.0, without an open.
fn read40(client: &mut Client, name: &'static [u8]) -> Result<Vec<u8>, Status> {
    let lookup = |name| Op::Lookup(LookupArgs { name: Component::from_static(name) });
    let read = Op::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 100 });
    let ops = vec![Op::PutRootFh, lookup(b"export"), lookup(name), read];
    let ops = List::new(ops).expect("a few operations");
    let args = CompoundArgs { tag: Utf8::default(), minor_version: 0, ops };
    let result: CompoundResult = client.call(NFS4, PROC_COMPOUND, &args);
    match result.results.into_vec().pop() {
        Some(OpResult::Read(result)) => Ok(result.into_result()?.data.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// Runs a command with the URL of a file of the export, over UDP in version 2. Its standard output is a pipe.
fn command_2(server: &Server, command: &str, name: &str) -> Child {
    let url = format!("nfs://{}/export/{name}?version=2&proto=udp", server.address);
    let mut program = Command::new(ENFYS);
    program.args([command, &url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary")
}

/// Repeats a call while its answer is `wait`.
fn in_the_end<E: PartialEq>(wait: E, mut call: impl FnMut() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    let begun = Instant::now();
    loop {
        match call() {
            Err(error) if error == wait && begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            answer => return answer,
        }
    }
}

#[test]
fn clients_of_all_versions_wait_for_an_offline_file() {
    let dir = TestDir::new();
    let data = dir.directory("data");
    let names = ["new", "of 2", "of 4.0", "old"];
    let paths = names.map(|name| data.join(name));
    if !paths.iter().all(|path| offline(path)) {
        return;
    }
    // The files come back when `go` exists; each recall writes a line.
    let (go, log) = (dir.path("go"), dir.path("recalls"));
    let script = format!(
        "echo \"$1\" >>'{}'; until test -e '{}'; do sleep 0.02; done; printf recalled >\"$1\"; setfattr -x user.offline \"$1\"",
        log.display(),
        go.display()
    );
    let config = dir.file(
        "enfys.toml",
        &format!(
            "listen = ['127.0.0.1:0']\nstate-dir = '{}'\nudp = true\nversions = ['2', '3', '4']\n\
             [[export]]\npath = '{}'\ninsecure = true\noffline-xattr = 'user.offline'\noffline-recall = ['/bin/sh', '-c', '''{script}''', 'sh']\n",
            dir.path("state").display(),
            data.display()
        ),
    );
    let server = Server::start(&dir, &[Path::new("serve"), Path::new("--config"), &config]);
    let mut client = Client::connect(server.address);
    let mut client4 = Client4::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.lookup(root, "old").unwrap();
    // An open needs no content.
    let opened = client4.opened("export", "new");
    for _ in 0..3 {
        assert_eq!(client.read(file).unwrap_err(), NfsStat::JUKEBOX);
        assert_eq!(read4(&mut client4, opened).unwrap_err(), Status::DELAY);
        assert_eq!(read40(&mut client, b"of 4.0").unwrap_err(), Status::DELAY);
        assert_eq!(client.getattr(file).unwrap().size, 0);
    }
    // Version 2 has no status for it: the client gets no reply, and asks again.
    let mut reader = command_2(&server, "cat", "of%202");
    let recalls = || std::fs::read_to_string(&log).unwrap();
    in_the_end("not yet", || match recalls().contains("of 2") {
        true => Ok(Vec::new()),
        false => Err("not yet"),
    })
    .expect("its READ has begun the recall");
    let shown = command_2(&server, "stat", "of%202").wait_with_output().unwrap();
    assert!(shown.status.success(), "its attributes need no content: {shown:?}");
    assert!(reader.try_wait().unwrap().is_none(), "it waits");
    std::fs::write(&go, b"").unwrap();
    assert_eq!(in_the_end(NfsStat::JUKEBOX, || client.read(file)).unwrap(), b"recalled");
    assert_eq!(in_the_end(Status::DELAY, || read4(&mut client4, opened)).unwrap(), b"recalled");
    assert_eq!(in_the_end(Status::DELAY, || read40(&mut client, b"of 4.0")).unwrap(), b"recalled");
    let read = reader.wait_with_output().unwrap();
    assert_eq!((read.status.success(), &read.stdout[..]), (true, &b"recalled"[..]), "{read:?}");
    let recalled = recalls();
    let mut recalled: Vec<_> = recalled.lines().collect();
    recalled.sort_unstable();
    assert_eq!(recalled, paths.each_ref().map(|path| path.to_str().expect("text")), "each once");
    server.stop();
}
