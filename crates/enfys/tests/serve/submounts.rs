//! File systems that are mounted inside an export.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use protocol::mount::MountStat;
use protocol::nfs3::NfsStat;
use protocol::nfs4::attributes::{Attributes, number};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::types::{Bitmap, Component, Handle, Status};

use crate::client::{Client, Client4};
use crate::reload::Mounted;
use crate::server::{Server, TestDir};

/// Creates a directory `data` to export, and the mount point `data/disk` in it.
fn directories(dir: &TestDir) -> (PathBuf, PathBuf) {
    (dir.directory("data"), dir.directory("data/disk"))
}

/// Starts a server with these exports.
fn start(dir: &TestDir, exports: &str) -> Server {
    let state = dir.path("state");
    let text = format!("listen = ['127.0.0.1:0']\nstate-dir = '{}'\n{exports}", state.display());
    let config = dir.file("enfys.toml", &text);
    Server::start(dir, &[Path::new("serve"), Path::new("--config"), &config])
}

fn lookup(name: &'static str) -> Op {
    Op::Lookup(LookupArgs { name: Component::from_static(name.as_bytes()) })
}

#[test]
fn submounts_are_hidden_by_default_and_logged_once() {
    let dir = TestDir::new();
    let (data, disk) = directories(&dir);
    let Some(_mounted) = Mounted::on(&disk) else { return };
    std::fs::write(disk.join("inside"), b"another file system's").unwrap();
    let data_export = format!("[[export]]\npath = '{}'\nsubmounts = 'hide'\n", data.display());
    // A separate export of it.
    let disk_export = format!("[[export]]\npath = '{}'\npseudo = '/disk'\n", disk.display());
    let server = start(&dir, &format!("{data_export}{disk_export}"));
    let mut client = Client::connect(server.address);
    let mut client4 = Client4::connect(server.address);
    let root = client.mount("/export").unwrap();
    for _ in 0..2 {
        assert_eq!(client.lookup(root, "disk").unwrap_err(), NfsStat::ACCES);
        assert_eq!(client.mount("/export/disk").unwrap_err(), MountStat::ACCES);
        let into = vec![Op::PutRootFh, lookup("export"), lookup("disk")];
        assert_eq!(client4.run(into).unwrap_err(), Status::ACCESS);
    }
    let log = server.log();
    let output: Vec<_> = log.lines().filter(|line| line.contains("is mounted inside an export")).collect();
    assert_eq!(output.len(), 1, "{log}");
    let names_it =
        output[0].contains(disk.to_str().unwrap()) && output[0].contains("`submounts = \"serve\"`");
    assert!(names_it, "{log}");
    let own = client.mount("/disk").unwrap();
    client.lookup(own, "inside").unwrap();
    assert_ne!(client.getattr(own).unwrap().fsid, client.getattr(root).unwrap().fsid);
    server.stop();
}

/// NFSv4 attributes that show the file system of an object.
const NUMBERS: [u32; 3] = [number::FSID, number::FILEID, number::MOUNTED_ON_FILEID];

fn ways(path: &[&'static str], last: Op) -> Vec<Op> {
    std::iter::once(Op::PutRootFh).chain(path.iter().map(|name| lookup(name))).chain([last]).collect()
}

fn last(client: &mut Client4, ops: Vec<Op>) -> OpResult {
    client.run(ops).unwrap().pop().unwrap()
}

fn attributes(client: &mut Client4, path: &[&'static str]) -> Attributes {
    match last(client, ways(path, Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&NUMBERS) }))) {
        OpResult::GetAttr(seen) => Attributes::from_file_attributes(seen.as_result().unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Returns name and attributes of the only entry of a directory.
fn listed(client: &mut Client4, path: &[&'static str]) -> (Vec<u8>, Attributes) {
    let args = ReadDirArgs {
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount: 0,
        maxcount: 65_536,
        attributes: Bitmap::of(&NUMBERS),
    };
    match last(client, ways(path, Op::ReadDir(args))) {
        OpResult::ReadDir(listing) => {
            let listing = listing.into_result().unwrap();
            assert!(listing.eof && listing.entries.len() == 1, "{listing:?}");
            let entry = &listing.entries[0];
            (entry.name.to_vec(), Attributes::from_file_attributes(&entry.attributes).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

fn handle(client: &mut Client4, path: &[&'static str], up: Option<Op>) -> Handle {
    let ops = ways(path, Op::GetFh);
    let (get, way) = ops.split_last().unwrap();
    match last(client, way.iter().cloned().chain(up).chain([get.clone()]).collect()) {
        OpResult::GetFh(handle) => handle.into_result().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn submounts_are_served_with_their_own_fsid() {
    let dir = TestDir::new();
    let (data, disk) = directories(&dir);
    let covered = std::fs::metadata(&disk).unwrap().ino();
    let Some(mounted) = Mounted::on(&disk) else { return };
    std::fs::create_dir(disk.join("inner")).unwrap();
    let inner_path = disk.join("inner");
    let covered_inner = std::fs::metadata(&inner_path).unwrap().ino();
    let Some(mounted_inner) = Mounted::on(&inner_path) else { return };
    let exports = format!("[[export]]\npath = '{}'\nsubmounts = 'serve'\n", data.display());
    let server = start(&dir, &exports);
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let top = client.lookup(root, "disk").unwrap();
    let inner = client.lookup(top, "inner").unwrap();
    let handles = [root, top, inner];
    let fsids = handles.map(|handle| client.getattr(handle).unwrap().fsid);
    assert!(fsids[0] != fsids[1] && fsids[0] != fsids[2] && fsids[1] != fsids[2], "{fsids:?}");
    assert_eq!(client.lookup(top, "..").unwrap(), root);
    assert_eq!(client.lookup(inner, "..").unwrap(), top);
    assert_eq!(client.mount("/export/disk").unwrap(), top);
    assert_eq!(client.mount("/export/disk/inner").unwrap(), inner);
    let file = client.create(inner, "file").unwrap();
    assert!(inner_path.join("file").exists(), "it is there");
    assert_eq!(client.rename((inner, "file"), (root, "file")).unwrap_err(), NfsStat::XDEV);

    let mut client4 = Client4::connect(server.address);
    let outside = attributes(&mut client4, &["export"]);
    let (path, path_inner) = (["export", "disk"], ["export", "disk", "inner"]);
    for (path, mount_point, covered) in
        [(&path[..], &disk, covered), (&path_inner[..], &inner_path, covered_inner)]
    {
        let seen = attributes(&mut client4, path);
        assert_ne!(seen.fsid, outside.fsid);
        assert_eq!(seen.fileid, Some(std::fs::metadata(mount_point).unwrap().ino()));
        assert_eq!(seen.mounted_on_fileid, Some(covered));
        let (name, above) = path.split_last().unwrap();
        assert_eq!(listed(&mut client4, above), (name.as_bytes().to_vec(), seen), "as in LOOKUP and GETATTR");
        let up = handle(&mut client4, path, Some(Op::LookupParent));
        assert_eq!(up, handle(&mut client4, above, None));
    }
    assert!(!server.log().contains("is mounted inside an export"), "{}", server.log());

    // Handles and fsids survive a restart.
    server.kill();
    let server = start(&dir, &exports);
    let mut client = Client::connect(server.address);
    assert_eq!(client.getattr(file).unwrap().fsid, fsids[2]);
    assert_eq!(handles.map(|handle| client.getattr(handle).unwrap().fsid), fsids);

    // After a reload, an unmounted file system is stale, and the covered directory is visible.
    drop(mounted_inner);
    drop(mounted);
    server.reload();
    assert_eq!(client.getattr(file).unwrap_err(), NfsStat::STALE);
    assert_eq!(client.getattr(top).unwrap_err(), NfsStat::STALE);
    let below = client.lookup(root, "disk").unwrap();
    assert_eq!(client.getattr(below).unwrap().fsid, fsids[0]);

    // A file system that is mounted later is served after a reload only.
    let Some(_again) = Mounted::on(&disk) else { return };
    assert_eq!(client.lookup(root, "disk").unwrap_err(), NfsStat::ACCES);
    server.reload();
    let again = client.lookup(root, "disk").unwrap();
    assert_ne!(client.getattr(again).unwrap().fsid, fsids[0]);
    server.stop();
}

/// Entries for clients also apply to file systems that are mounted inside.
#[test]
fn entries_of_an_export_apply_to_submounts() {
    let dir = TestDir::new();
    let (data, disk) = directories(&dir);
    let Some(_mounted) = Mounted::on(&disk) else { return };
    std::fs::set_permissions(&disk, crate::server::mode(0o777)).unwrap();
    let exports = format!(
        "[[export]]\npath = '{}'\nsubmounts = 'serve'\nsquash = 'none'\ninsecure = true\n\
         [[export.client]]\nclients = ['127.0.0.1']\nread-only = true\n\
         [[export.client]]\nclients = ['127.0.0.2']\nsquash = 'all'\nanonymous-uid = 77\n",
        data.display()
    );
    let server = start(&dir, &exports);
    let client = |last: u8| Client::connect_from(server.address, [127, 0, 0, last]);
    let mut reader = client(1);
    let root = reader.mount("/export").unwrap();
    let inner = reader.lookup(root, "disk").unwrap();
    assert_eq!(reader.create(inner, "file"), Err(NfsStat::ROFS));
    let mut squashed = client(2);
    let file = squashed.create(inner, "file").unwrap();
    if crate::server::is_root() {
        assert_eq!(squashed.getattr(file).unwrap().uid, 77);
    }
    let mut stranger = client(4);
    for path in ["/export", "/export/disk"] {
        assert_eq!(stranger.mount(path), Err(MountStat::ACCES));
    }
    assert_eq!(stranger.getattr(inner).map(|_| ()), Err(NfsStat::ACCES));
    assert_eq!(stranger.getattr(file).map(|_| ()), Err(NfsStat::ACCES));
    server.stop();
}
