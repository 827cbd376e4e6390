//! How the client finds MOUNT, mounts paths, and chooses versions.

use std::cell::RefCell;
use std::rc::Rc;

use client::attributes::{FileKind, SetAttributes};
use client::config::{Config, Version};
use client::errno::Errno;
use client::error::{Fault, OpError};
use client::fs::FileSystem;
use client::results::{Creation, NewObject, OpenMode};
use protocol::mount::{MountOk, MountResult, MountStat};
use protocol::nfs4::types::Status;
use protocol::{mount, nfs3, portmap};
use server::Versions;
use xdr::List;

use crate::link::{Answer, Call, Link, config, root};

/// The port of MOUNT in these tests.
const MOUNT_PORT: u16 = 20048;

fn mount_path(call: &Call) -> Vec<u8> {
    call.arguments::<mount::DirPath>().to_vec()
}

/// Answers the port mapper's GETPORT; other calls are served.
fn with_port_mapper(call: &Call, ports: &[(u32, u16)]) -> Answer {
    if call.header.program != portmap::PROGRAM {
        return Answer::Serve;
    }
    assert_eq!((call.port, call.header.version, call.header.procedure), (111, 2, 3));
    let asked: portmap::Mapping = call.arguments();
    assert_eq!((asked.version, asked.protocol), (3, portmap::Protocol::TCP));
    let port = ports.iter().find(|(program, _)| *program == asked.program).map_or(0, |(_, port)| *port);
    call.reply(&u32::from(port))
}

#[test]
fn the_port_mapper_knows_the_port_of_mount() {
    let link = Link::new();
    link.listen(&[2049, 111, MOUNT_PORT]);
    let ports = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&ports);
    link.answer(move |call| {
        if call.header.program == mount::PROGRAM {
            seen.borrow_mut().push((call.port, call.header.procedure));
        }
        with_port_mapper(call, &[(mount::PROGRAM, MOUNT_PORT)])
    });
    let client = link.connect(Config { mount_port: None, ..config() }).unwrap();
    let object = link.run(client.mount(&root(), &[b"export"])).unwrap();
    assert_eq!(object.attributes.kind, FileKind::Directory);
    link.run(client.close()).unwrap();
    let (mnt, umnt) = (mount::Proc::MNT.0, mount::Proc::UMNT.0);
    assert_eq!(*ports.borrow(), [(MOUNT_PORT, mnt), (MOUNT_PORT, umnt)]);
}

#[test]
fn without_a_port_mapper_mount_is_at_the_nfs_port() {
    for has_port_mapper in [false, true] {
        let link = Link::new();
        link.listen(if has_port_mapper { &[2049, 111] } else { &[2049] });
        link.answer(|call| with_port_mapper(call, &[]));
        let client = link.connect(Config { mount_port: None, ..config() }).unwrap();
        link.run(client.mount(&root(), &[b"export"])).unwrap();
    }
}

/// The port mapper of that machine belongs to another server.
#[test]
fn at_an_unusual_port_mount_is_asked_there_first() {
    let link = Link::new();
    link.listen(&[12049, 111]);
    let client = link.connect(Config { port: 12049, mount_port: None, ..config() }).unwrap();
    link.run(client.mount(&root(), &[b"export"])).unwrap();
    assert_eq!(link.count(portmap::PROGRAM, portmap::Proc::GETPORT.0), 0);
}

#[test]
fn the_port_mapper_knows_the_port_of_nfs() {
    for version in [Some(Version::V3), None] {
        let link = Link::new();
        link.listen(&[111, 12049]);
        link.answer(|call| with_port_mapper(call, &[(nfs3::PROGRAM, 12049), (mount::PROGRAM, 12049)]));
        let client = link.connect(Config { version, mount_port: None, ..config() }).unwrap();
        assert_eq!(client.version(), Version::V3);
        link.run(client.mount(&root(), &[b"export"])).unwrap();
    }
}

#[test]
fn a_server_without_any_port_is_unreachable() {
    for version in [Some(Version::V3), Some(Version::V42), None] {
        let link = Link::new();
        link.listen(&[]);
        let error = link.connect(Config { version, mount_port: None, ..config() }).err().unwrap();
        assert_eq!(error.fault(), Fault::Network);
        assert_eq!(error.to_string(), "port 2049: Connection refused");
    }
}

#[test]
fn the_highest_version_that_the_server_has_is_used() {
    for (versions, expected) in [
        (Versions::V3, Version::V3),
        (Versions::V3 | Versions::V4_1, Version::V41),
        (Versions::V3 | Versions::V4_1 | Versions::V4_2, Version::V42),
    ] {
        let link = Link::with_settings(|settings| settings.versions = versions);
        let client = link.connect(Config { version: None, ..config() }).unwrap();
        assert_eq!(client.version(), expected);
    }
    let link = Link::with_settings(|settings| settings.versions = Versions::V4_1);
    let error = link.connect(config()).err().unwrap();
    assert_eq!(error, OpError::Unsupported("NFS version 3"));
}

#[test]
fn paths_below_an_export_and_files_are_looked_up() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let set = SetAttributes::with_mode(0o755);
        let (dir, _) = client.create_object(&caller, top, b"dir", &NewObject::Directory, &set).await.unwrap();
        let opened = client
            .open(&caller, dir.handle, b"file", OpenMode::WRITE, Creation::IfMissing, &set)
            .await
            .unwrap();
        let below = client.mount(&caller, &[b"export", b"dir"]).await.unwrap();
        assert_eq!(below.handle, dir.handle);
        let file = client.mount(&caller, &[b"export", b"dir", b"file"]).await.unwrap();
        assert_eq!((file.handle, file.attributes.kind), (opened.object.handle, FileKind::Regular));
        let missing = client.mount(&caller, &[b"export", b"dir", b"none"]).await.unwrap_err();
        assert_eq!(missing, OpError::Status(Status::NOENT));
        assert_eq!(client.mount(&caller, &[b"other"]).await, Err(OpError::Status(Status::NOENT)));
    });
}

#[test]
fn a_server_that_mounts_exports_only_is_asked_for_each_parent() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let set = SetAttributes::with_mode(0o755);
        let (a, _) = client.create_object(&caller, top, b"a", &NewObject::Directory, &set).await.unwrap();
        client.create_object(&caller, a.handle, b"b", &NewObject::Directory, &set).await.unwrap();
    });
    let asked = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&asked);
    link.answer(move |call| {
        if !call.is(mount::PROGRAM, mount::Proc::MNT.0) {
            return Answer::Serve;
        }
        let path = mount_path(call);
        seen.borrow_mut().push(path.clone());
        match &path[..] {
            b"/export" => Answer::Serve,
            b"/export/a" => call.reply(&MountResult::Fail(MountStat::NOTDIR)),
            _ => call.reply(&MountResult::Fail(MountStat::ACCES)),
        }
    });
    link.run(client.mount(&caller, &[b"export", b"a", b"b"])).unwrap();
    assert_eq!(*asked.borrow(), [&b"/export/a/b"[..], b"/export/a", b"/export"]);
    // Nothing can be mounted: the error is about the path itself.
    let refused = link.run(client.mount(&caller, &[b"secret", b"x"])).unwrap_err();
    assert_eq!(refused.errno(), Errno::EACCES);
    assert_eq!(asked.borrow()[3..], [&b"/secret/x"[..], b"/secret", b"/"]);
}

#[test]
fn other_refusals_end_the_search() {
    let link = Link::new();
    let client = link.client();
    link.answer(|call| match call.header.program {
        mount::PROGRAM => call.reply(&MountResult::Fail(MountStat::SERVERFAULT)),
        _ => Answer::Serve,
    });
    let error = link.run(client.mount(&root(), &[b"export", b"a"])).unwrap_err();
    assert_eq!(error, OpError::Status(Status::SERVERFAULT));
    assert_eq!(link.count(mount::PROGRAM, mount::Proc::MNT.0), 1);
}

#[test]
fn an_export_for_kerberos_only_is_refused_with_the_names_of_its_flavors() {
    let link = Link::new();
    let client = link.client();
    link.answer(|call| match call.header.program {
        mount::PROGRAM => {
            let fhandle = nfs3::FileHandle::new(b"handle").unwrap();
            let auth_flavors = List::new(vec![390_004, 390_005]).unwrap();
            call.reply(&MountResult::Ok(MountOk { fhandle, auth_flavors }))
        }
        _ => Answer::Serve,
    });
    let error = link.run(client.mount(&root(), &[b"export"])).unwrap_err();
    assert_eq!(error, OpError::Flavors([390_004, 390_005].into()));
}

#[test]
fn many_mounts_leave_no_connections_behind() {
    let link = Link::new();
    let client = link.client();
    const MOUNTS: usize = 3 * client::engine::CONNECTIONS_MAX;
    for _ in 0..MOUNTS {
        link.run(client.mount(&root(), &[b"export"])).unwrap();
    }
    link.run(client.close()).unwrap();
    assert_eq!(link.count(mount::PROGRAM, mount::Proc::UMNT.0), MOUNTS);
}

/// Servers for which a port above 1023 proves nothing (exports(5), `secure`) refuse the mount with a status that has many reasons.
#[test]
fn a_refused_mount_names_the_port_if_it_may_be_the_reason() {
    let denied = MountResult::Fail(MountStat::ACCES);
    for (port, says_so) in [(1023, false), (1024, true)] {
        let link = Link::new();
        link.engine.note_local_port(port);
        let denied = denied.clone();
        link.answer(move |call| match call.is(mount::PROGRAM, mount::Proc::MNT.0) {
            true => call.reply(&denied),
            false => Answer::Serve,
        });
        let client = link.connect(config()).unwrap();
        let Err(error) = link.run(FileSystem::mount(client, root(), b"/export")) else {
            panic!("it is refused")
        };
        assert_eq!((error.errno(), error.fault()), (Errno::EACCES, Fault::Caller));
        assert_eq!(error.to_string().contains("(`insecure`)"), says_so, "{error}");
    }
}
