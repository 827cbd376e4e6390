//! Files whose content is offline, and the command that recalls them.

use std::path::Path;
use std::time::{Duration, Instant};

use protocol::nfs3::NfsStat;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::types::{Handle, Stateid, Status};
use rustix::fs::XattrFlags;

use crate::client::{Client, Client4};
use crate::server::{Server, TestDir};

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
    let (old, new) = (data.join("old"), data.join("new"));
    if !offline(&old) || !offline(&new) {
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
            "listen = ['127.0.0.1:0']\nstate-dir = '{}'\n[[export]]\npath = '{}'\noffline-xattr = 'user.offline'\n\
             offline-recall = ['/bin/sh', '-c', '''{script}''', 'sh']\n",
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
        assert_eq!(client.getattr(file).unwrap().size, 0);
    }
    std::fs::write(&go, b"").unwrap();
    assert_eq!(in_the_end(NfsStat::JUKEBOX, || client.read(file)).unwrap(), b"recalled");
    assert_eq!(in_the_end(Status::DELAY, || read4(&mut client4, opened)).unwrap(), b"recalled");
    let mut recalled: Vec<_> = std::fs::read_to_string(&log).unwrap().lines().map(String::from).collect();
    recalled.sort();
    assert_eq!(recalled, [new.display().to_string(), old.display().to_string()], "each once");
    server.stop();
}
