//! Operations against a server in this process, without a kernel.

use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::cache::attributes::Timeouts;
use client::config::{Config, Version};
use client::engine::Engine;
use fuse::{
    Create, Getattr, Lookup, Mkdir, Name, Open, Read, Readdir, Release, Rename, Setattr, Unlink, Write,
};
use net::transport::{Route, SystemClock, run_transport};
use net::{Limits, Listeners, serve};
use rpc::auth::{AuthSys, GroupList};
use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Squash};
use vfs::{MemFs, MemOptions};
use xdr::Opaque;

use super::*;
use std::collections::HashSet;

const PROGRAM: fuse::Caller = fuse::Caller { uid: 0, gid: 0, tid: 0, is_resent: false };
/// `O_RDWR` and `O_CREAT`.
const READ_WRITE: u32 = 0o2;
const CREATE: u32 = 0o100;

fn root() -> Caller {
    let gids = GroupList::default();
    Caller::sys(&AuthSys { stamp: 0, machine_name: Opaque::from_static(b"test"), uid: 0, gid: 0, gids })
}

fn client_config(port: u16, version: Version) -> Config {
    Config {
        port,
        mount_port: Some(port),
        version: Some(version),
        slots: 64,
        ..Config::new("127.0.0.1", b"test of the mount", [1; 8], root())
    }
}

/// Runs `work` with the root of an empty file system, for each version.
fn with_files<F: Future<Output = ()>>(work: impl Fn(Rc<Files>) -> F) {
    for version in [Version::V2, Version::V3, Version::V41, Version::V42] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let options = ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() };
        let backend = Arc::new(MemFs::new(&MemOptions::default()));
        let (id, path, counts) = (ExportId(1), "/export".into(), Arc::default());
        let export = Export { id, path, backend, options, fsid: (7, 0), counts };
        let mut settings = server::Settings::new(HandleKey([9; 16]), 1, [3; 16], b"test".to_vec());
        settings.versions = server::Versions::IMPLEMENTED;
        let exports = ExportTable::new(vec![export]).expect("one export");
        let limits = Limits { cores: 1, ..Limits::default() };
        let listeners = Listeners { tcp: vec![listener], udp: vec![] };
        let running = serve(Arc::new(Server::new(settings, exports)), listeners, limits, None, None);
        let running = running.expect("a server");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), 1));
            let addresses = vec![Ipv4Addr::LOCALHOST.into()];
            let route = Route { addresses, reserved_port: false, record_max: 2 << 20 };
            tokio::task::spawn_local(run_transport(Arc::clone(&engine), route));
            let client = Client::connect(engine, client_config(port, version)).await.expect("a client");
            let keeper = client.clone();
            tokio::task::spawn_local(async move { keeper.run().await });
            let mount = Mount::new(client.clone(), &root(), &[b"export"]).await.expect("the export");
            work(Rc::new(Files::new(mount, settings_of_mount()).await.expect("the root"))).await;
            client.close().await.expect("a server that answers");
        });
        running.shut_down();
    }
}

fn settings_of_mount() -> Settings {
    Settings {
        identity: Identity::PerProgram { machine_name: "test".to_owned() },
        users: IdMap::default(),
        groups: IdMap::default(),
        caches_missing_names: true,
        has_lists: true,
        machine: root(),
        seed: 1,
    }
}

fn name(text: &str) -> Name {
    Name::new(text.to_owned()).expect("no NUL")
}

impl Files {
    async fn created(&self, text: &str) -> fuse::Created {
        let (parent, name) = (NodeId::ROOT, name(text));
        let flags = READ_WRITE | CREATE;
        let request = Create { parent, name, flags, mode: 0o100_644, umask: 0, kill_suidgid: false };
        self.create(PROGRAM, request).await.expect("a new file")
    }

    async fn found(&self, text: &str) -> Result<Entry, Errno> {
        self.lookup(PROGRAM, Lookup { parent: NodeId::ROOT, name: name(text) }).await
    }
}

fn release(node: NodeId, handle: FileHandle) -> Release {
    let lock_owner = fuse::LockOwner(0);
    Release { node, handle, flags: 0, lock_owner, flushes: false, unlocks_flock: false }
}

#[test]
fn written_data_are_read_and_shown() {
    with_files(async |files: Rc<Files>| {
        let fuse::Created { entry, opened } = files.created("f").await;
        let (node, handle) = (entry.node, opened.handle);
        let data = Bytes::from(vec![7; 3 << 20]);
        let write_flags = fuse::WriteFlags::empty();
        let write =
            Write { node, handle, offset: 5, data: data.clone(), write_flags, lock_owner: None, flags: 0 };
        assert_eq!(files.write(PROGRAM, write).await, Ok(fuse::Copied(3 << 20)));
        let read = Read { node, handle, offset: 4, size: 4 << 20, lock_owner: None, flags: 0 };
        let fuse::Data(parts) = files.read(PROGRAM, read).await.expect("an open file");
        assert!(parts.concat() == [&[0][..], &data].concat());
        let granted = files.getattr(PROGRAM, Getattr { node, handle: None }).await.expect("a file");
        assert_eq!((granted.attributes.size, granted.attributes.mode), ((3 << 20) + 5, 0o100_644));
        files.release(PROGRAM, release(node, handle)).await.expect("an open file");
        let read = Read { node, handle, offset: 0, size: 1, lock_owner: None, flags: 0 };
        assert_eq!(files.read(PROGRAM, read).await, Err(Errno::BADF));
    });
}

#[test]
fn the_kernel_uses_attributes_no_longer_than_the_client() {
    with_files(async |files: Rc<Files>| {
        let fuse::Created { entry, opened } = files.created("f").await;
        let (node, handle) = (entry.node, opened.handle);
        let attributes = Getattr { node, handle: None };
        let inode = files.nodes.get(node).expect("a file").inode.clone();
        let write_flags = fuse::WriteFlags::empty();
        let data = Bytes::from_static(b"text");
        let write = Write { node, handle, offset: 0, data, write_flags, lock_owner: None, flags: 0 };
        files.write(PROGRAM, write).await.expect("an open file");
        if inode.mount().client().delegation_counts().held == 0 {
            assert_eq!(inode.attributes_usable_for(), Duration::ZERO, "the WRITE will change them");
        }
        let granted = files.getattr(PROGRAM, attributes.clone()).await.expect("a file");
        assert_eq!(granted.attributes.size, 4);
        for _ in 0..2 {
            let granted = files.getattr(PROGRAM, attributes.clone()).await.expect("a file");
            let (left, least) = (inode.attributes_usable_for(), Timeouts::default().acregmin);
            assert!(left <= granted.timeout && granted.timeout <= least, "{left:?} {granted:?}");
            assert!(!granted.timeout.is_zero());
        }
        for name in ["missing", "f"] {
            let entry = files.found(name).await.expect("a name that the kernel remembers");
            let (left, most) = (files.mount.root().names_usable_for(), Timeouts::default().acdirmax);
            let granted = entry.entry_timeout;
            assert!(left <= granted && granted <= most, "{name}: {left:?} {granted:?}");
        }
        files.release(PROGRAM, release(node, handle)).await.expect("an open file");
    });
}

#[test]
fn lookups_are_counted_and_forgotten() {
    with_files(async |files: Rc<Files>| {
        let created = files.created("f").await;
        let found = files.found("f").await.expect("the file");
        assert_eq!((found.node, files.known_inodes()), (created.entry.node, 1));
        files.forget(&[Forget { node: found.node, lookups: 1 }]);
        assert_eq!(files.known_inodes(), 1);
        // An answer that was not delivered.
        files.take_back(Granted::Created(created.entry.node, created.opened.handle)).await;
        assert_eq!((files.known_inodes(), files.open_files.all().len()), (0, 0));
        assert_eq!(
            files.getattr(PROGRAM, Getattr { node: found.node, handle: None }).await,
            Err(Errno::STALE)
        );
        let missing = files.found("missing").await.expect("a name that the kernel remembers as missing");
        assert_eq!((missing.node, files.known_inodes()), (NodeId(0), 0));
    });
}

#[test]
fn surplus_inodes_are_the_least_recently_used() {
    with_files(async |files: Rc<Files>| {
        let (few, many) = (Nodes::new(files.mount.root(), 100), Nodes::new(files.mount.root(), 1000));
        let mut ids = Vec::new();
        let mut surplus = Vec::new();
        for number in 0..512 {
            let created = files.created(&number.to_string()).await;
            let node = files.nodes.get(created.entry.node).expect("a known inode");
            files.release(PROGRAM, release(node.id(), created.opened.handle)).await.expect("an open file");
            few.look_up(&node.inode);
            many.look_up(&node.inode);
            ids.push(node.id());
            surplus.extend(few.surplus());
            assert_eq!(many.surplus(), []);
            if number == 300 {
                assert_eq!(surplus, [], "all were just looked up");
                for id in &ids[..10] {
                    few.get(*id).expect("a known inode");
                }
            }
        }
        assert_eq!(surplus, ids[10..256]);
    });
}

#[test]
fn surplus_names_are_of_closed_inodes_that_were_not_used() {
    with_files(async |files: Rc<Files>| {
        let (nodes, names) = (Nodes::new(files.mount.root(), 100), CachedNames::default());
        let mut inodes = Vec::new();
        for number in 0..300 {
            let name = format!("{number:03}");
            let created = files.created(&name).await;
            let node = files.nodes.get(created.entry.node).expect("a known inode");
            files.release(PROGRAM, release(node.id(), created.opened.handle)).await.expect("an open file");
            nodes.look_up(&node.inode);
            names.insert(NodeId::ROOT, name.as_bytes(), Target::Other(node.id()));
            inodes.push(node.inode.clone());
        }
        let open = node_id(&inodes[3]);
        let surplus = |forgets_nodes| nodes.surplus_names(&names, forgets_nodes, || HashSet::from([open]));
        assert_eq!(surplus(true), [], "all were just looked up");
        for (number, inode) in inodes.iter().enumerate().skip(10) {
            nodes.look_up(inode);
            // Others, so that there is another search. They are used, as the file is open.
            names.insert(NodeId(u64::MAX), number.to_string().as_bytes(), Target::Other(open));
        }
        let found: Vec<String> =
            surplus(false).iter().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect();
        let expected: Vec<String> =
            (0..10).filter(|number| *number != 3).map(|number| format!("{number:03}")).collect();
        assert_eq!(found, expected);
        assert_eq!(names.len(), 300 + 290 - 9);
    });
}

/// Returns the positions and types of entries; every record's length is a multiple of eight bytes.
fn names(data: &fuse::Data) -> Vec<(u64, String)> {
    let bytes = data.0.concat();
    let (mut rest, mut names) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let next = u64::from_ne_bytes(rest[8..16].try_into().expect("eight bytes"));
        let length = u32::from_ne_bytes(rest[16..20].try_into().expect("four bytes")) as usize;
        names.push((next, String::from_utf8(rest[24..24 + length].to_vec()).expect("text")));
        rest = &rest[(24 + length).next_multiple_of(8)..];
    }
    names
}

#[test]
fn a_listing_continues_at_any_earlier_position() {
    with_files(async |files: Rc<Files>| {
        for number in 0..50 {
            let (parent, name) = (NodeId::ROOT, name(&format!("d{number}")));
            files.mkdir(PROGRAM, Mkdir { parent, name, mode: 0o755, umask: 0 }).await.expect("a directory");
        }
        let node = NodeId::ROOT;
        let open = Open { node, flags: 0, kill_suidgid: false };
        let handle = files.opendir(PROGRAM, open).await.expect("a directory").handle;
        let list = async |offset, size| {
            let listed = files.readdir(PROGRAM, Readdir { node, handle, offset, size }).await;
            names(&listed.expect("a listing"))
        };
        let mut all = Vec::new();
        loop {
            // Room for a few entries only.
            let part = list(all.last().map_or(0, |(next, _)| *next), 200).await;
            if part.is_empty() {
                break;
            }
            all.extend(part);
        }
        let mut shown: Vec<&str> = all.iter().map(|(_, name)| &**name).collect();
        assert_eq!((&shown[..2], shown.len()), (&[".", ".."][..], 52));
        shown.sort_unstable();
        shown.dedup();
        assert_eq!(shown.len(), 52);
        assert_eq!(list(all[29].0, 1 << 16).await, all[30..], "seekdir(3) back");
        let plus = Readdir { node, handle, offset: 0, size: 1 << 16 };
        let (_, lookups) = files.readdirplus(plus).await.expect("a listing");
        // Version 2 lists only names.
        let count = if files.mount.client().version() == Version::V2 { 0 } else { 50 };
        assert_eq!(lookups.len(), count, "each entry but the two dots is a lookup");
    });
}

#[test]
fn an_open_file_can_be_removed_and_shrunk() {
    with_files(async |files: Rc<Files>| {
        let fuse::Created { entry, opened } = files.created("f").await;
        let (node, handle) = (entry.node, opened.handle);
        files.unlink(PROGRAM, Unlink { parent: NodeId::ROOT, name: name("f") }).await.expect("a name");
        assert_eq!(files.found("f").await.expect("remembered as missing").node, NodeId(0));
        let set = Setattr {
            node,
            handle: Some(handle),
            mode: None,
            uid: None,
            gid: None,
            size: Some(9),
            atime: None,
            mtime: None,
            ctime: None,
            lock_owner: None,
            kill_suidgid: false,
        };
        assert_eq!(files.setattr(PROGRAM, set).await.expect("an open file").attributes.size, 9);
        files.release(PROGRAM, release(node, handle)).await.expect("an open file");
    });
}

#[test]
fn a_rename_with_flags_is_refused() {
    with_files(async |files: Rc<Files>| {
        let (parent, new_parent) = (NodeId::ROOT, NodeId::ROOT);
        let request = Rename { parent, name: name("a"), new_parent, new_name: name("b"), flags: 1 };
        assert_eq!(files.rename(PROGRAM, request).await, Err(Errno::INVAL));
    });
}
