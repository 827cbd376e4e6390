//! Every operation against the server of this workspace.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use client::acl::{Acl, PosixAcl, PosixEntry, Subject};
use client::attributes::{Before, FileKind, SetAttributes, SetTime, Timestamp};
use client::config::Config;
use client::errno::Errno;
use client::error::OpError;
use client::fs::{FileSystem, OpenOptions};
use client::results::{Creation, NewObject, OpenMode, OpenState, Stability, access};
use futures_util::future::join_all;
use protocol::nfs3::{PROGRAM, Proc};
use protocol::nfs4::types::Status;

use crate::link::{Answer, Link, config, root, user};

const FILE: SetAttributes = SetAttributes {
    mode: Some(0o640),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

#[test]
fn files_are_created_written_read_and_truncated() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let export = client.mount(&caller, &[b"export"]).await.unwrap();
        assert_eq!(export.attributes.kind, FileKind::Directory);
        let top = export.handle;
        let creation = Creation::IfMissing;
        let opened = client.open(&caller, top, b"file", OpenMode::BOTH, creation, &FILE).await.unwrap();
        assert_eq!((opened.object.attributes.mode, opened.object.attributes.size), (0o640, 0));
        let Some(Before::Weak { mtime, .. }) = opened.directory.unwrap().before else { panic!("{opened:?}") };
        assert_eq!(mtime, export.attributes.mtime);
        let (file, state) = (opened.object.handle, OpenState::default());

        let data = Bytes::from(vec![7; 10_001]);
        let written = client.write(&caller, file, &state, 5, data, Stability::Unstable).await.unwrap();
        assert_eq!(written.count, 10_001);
        let Some(Before::Weak { size: 0, .. }) = written.file.before else { panic!("{written:?}") };
        assert_eq!(written.file.after.unwrap().size, 10_006);
        let committed = client.commit(&caller, file, 0, 0).await.unwrap();
        assert_eq!(committed.verifier, written.verifier);

        let read = client.read(&caller, file, &state, 3, 4).await.unwrap();
        assert_eq!((&read.data[..], read.eof), (&[0, 0, 7, 7][..], false));
        assert_eq!(read.attributes.unwrap().size, 10_006);
        let end = client.read(&caller, file, &state, 10_000, 100).await.unwrap();
        assert_eq!((end.data.len(), end.eof), (6, true));
        let behind = client.read(&caller, file, &state, 20_000, 100).await.unwrap();
        assert_eq!((behind.data.len(), behind.eof), (0, true));

        let creation = Creation::IfMissing;
        let set = SetAttributes { size: Some(0), mode: Some(0o777), ..FILE };
        let again = client.open(&caller, top, b"file", OpenMode::WRITE, creation, &set).await.unwrap();
        assert_eq!(again.object.handle, file);
        assert_eq!((again.object.attributes.size, again.object.attributes.mode), (0, 0o640));
        client.close_file(&caller, file, &again.state).await.unwrap();
    });
}

#[test]
fn an_exclusive_creation_sets_its_attributes_and_refuses_an_existing_file() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let set = SetAttributes { uid: Some(7), gid: Some(8), ..FILE };
        let open = |verifier| {
            client.open(&caller, top, b"file", OpenMode::WRITE, Creation::Exclusive(verifier), &set)
        };
        let opened = open([1; 8]).await.unwrap();
        let attributes = opened.object.attributes;
        assert_eq!((attributes.mode, attributes.uid, attributes.gid), (0o640, 7, 8));
        // The server's time, not the verifier that it kept there.
        assert_eq!(attributes.mtime.seconds, 1_000_000);
        assert_eq!(open([2; 8]).await.unwrap_err(), OpError::Status(Status::EXIST));
        assert_eq!(link.count(PROGRAM, Proc::SETATTR.0), 1);
    });
}

#[test]
fn opening_asks_the_server_for_permission() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = client.mount(&root(), &[b"export"]).await.unwrap().handle;
        let set = SetAttributes { mode: Some(0o444), uid: Some(7), ..FILE };
        let open = |id, mode, creation| {
            let (client, caller, set) = (client.clone(), user(id), set);
            async move { client.open(&caller, top, b"file", mode, creation, &set).await.map(|_| ()) }
        };
        // Its creator may write it.
        open(0, OpenMode::WRITE, Creation::IfMissing).await.unwrap();
        assert_eq!(open(9, OpenMode::READ, Creation::No).await, Ok(()));
        let refused = Err(OpError::Status(Status::ACCESS));
        for mode in [OpenMode::WRITE, OpenMode::BOTH] {
            assert_eq!(open(9, mode, Creation::No).await, refused);
            assert_eq!(open(9, mode, Creation::IfMissing).await, refused);
        }
        // The directory is root's: an existing file is opened without permission to change it, none is created.
        assert_eq!(open(9, OpenMode::READ, Creation::IfMissing).await, Ok(()));
        let missing = client.open(&user(9), top, b"new", OpenMode::READ, Creation::IfMissing, &set).await;
        assert_eq!(missing.unwrap_err(), OpError::Status(Status::ACCESS));
        let directory = client.open(&root(), top, b"none", OpenMode::READ, Creation::No, &set).await;
        assert_eq!(directory.unwrap_err(), OpError::Status(Status::NOENT));
    });
}

#[test]
fn objects_of_every_kind_are_created_linked_renamed_and_removed() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let kinds = [
            (&b"dir"[..], NewObject::Directory, FileKind::Directory),
            (b"link", NewObject::Symlink(Bytes::from_static(b"dir/x")), FileKind::Symlink),
            (b"block", NewObject::BlockDevice(1, 2), FileKind::BlockDevice),
            (b"char", NewObject::CharacterDevice(3, 4), FileKind::CharacterDevice),
            (b"socket", NewObject::Socket, FileKind::Socket),
            (b"pipe", NewObject::Fifo, FileKind::Fifo),
        ];
        for (name, what, kind) in &kinds {
            let set = SetAttributes::with_mode(0o751);
            let (object, changed) = client.create_object(&caller, top, name, what, &set).await.unwrap();
            assert_eq!(object.attributes.kind, *kind);
            assert!(changed.before.is_some() && changed.after.is_some());
            assert_eq!(client.lookup(&caller, top, name).await.unwrap(), object);
            if let NewObject::BlockDevice(major, minor) | NewObject::CharacterDevice(major, minor) = what {
                assert_eq!(object.attributes.device, (*major, *minor));
            }
            let again = client.create_object(&caller, top, name, what, &set).await.unwrap_err();
            assert_eq!(again, OpError::Status(Status::EXIST));
        }
        let symlink = client.lookup(&caller, top, b"link").await.unwrap().handle;
        assert_eq!(&client.read_link(&caller, symlink).await.unwrap()[..], b"dir/x");
        let open = |name: &'static [u8]| {
            let (client, caller) = (client.clone(), root());
            async move {
                let opened = client.open(&caller, top, name, OpenMode::READ, Creation::No, &FILE).await;
                opened.unwrap_err().errno()
            }
        };
        assert_eq!(open(b"dir").await, Errno::EISDIR);
        assert_eq!(open(b"link").await, Errno::ELOOP);
        assert_eq!(open(b"pipe").await, Errno::ENXIO);

        let directory = client.lookup(&caller, top, b"dir").await.unwrap().handle;
        let pipe = client.lookup(&caller, top, b"pipe").await.unwrap().handle;
        client.link(&caller, pipe, directory, b"hard").await.unwrap();
        assert_eq!(client.get_attributes(&caller, pipe).await.unwrap().nlink, 2);
        let (from, to) = client.rename(&caller, (directory, b"hard"), (top, b"moved")).await.unwrap();
        assert!(from.before.is_some() && to.after.is_some());
        assert_eq!(client.lookup_chain(&caller, top, &[b"moved"]).await.unwrap().handle, pipe);
        assert_eq!(client.remove_file(&caller, top, b"dir").await.unwrap_err().errno(), Errno::EISDIR);
        for name in [&b"link"[..], b"block", b"char", b"socket", b"pipe", b"moved"] {
            assert!(client.remove_file(&caller, top, name).await.unwrap().after.is_some());
        }
        client.remove_directory(&caller, top, b"dir").await.unwrap();
        let missing = client.remove_directory(&caller, top, b"dir").await.unwrap_err();
        assert_eq!(missing, OpError::Status(Status::NOENT));
    });
}

#[test]
fn attributes_are_set_and_permissions_returned() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let opened =
            client.open(&caller, top, b"f", OpenMode::WRITE, Creation::IfMissing, &FILE).await.unwrap();
        let (file, state) = (opened.object.handle, OpenState::default());
        let time = Timestamp { seconds: 1234, nanoseconds: 5678 };
        let set = SetAttributes {
            mode: Some(0o604),
            uid: Some(11),
            gid: Some(12),
            size: Some(99),
            atime: SetTime::To(time),
            mtime: SetTime::Now,
        };
        let attributes = client.set_attributes(&caller, file, &state, &set).await.unwrap();
        assert_eq!((attributes.mode, attributes.uid, attributes.gid, attributes.size), (0o604, 11, 12, 99));
        assert_eq!((attributes.atime, attributes.mtime.seconds), (time, 1_000_000));
        assert_eq!(attributes.change, None);
        // A mode with set-ID bits is set after the owner, which may clear them.
        let before = link.count(PROGRAM, Proc::SETATTR.0);
        let set = SetAttributes { mode: Some(0o4604), gid: Some(12), ..SetAttributes::default() };
        assert_eq!(client.set_attributes(&caller, file, &state, &set).await.unwrap().mode, 0o4604);
        assert_eq!(link.count(PROGRAM, Proc::SETATTR.0), before + 2);
        let set = SetAttributes::with_mode(0o604);
        client.set_attributes(&caller, file, &state, &set).await.unwrap();
        let asked = access::READ | access::MODIFY | access::EXTEND;
        assert_eq!(client.access(&user(5), file, asked).await.unwrap().0, access::READ);
        assert_eq!(client.access(&user(11), file, asked).await.unwrap().0, asked);
        let info = client.fs_info(&caller, file).await.unwrap();
        assert_eq!((info.read_max, info.write_max, info.lease_seconds), (1 << 20, 1 << 20, 0));
        assert!(info.name_max >= 255 && info.link_max > 1 && info.file_size_max > 1 << 40);
        let stat = client.fs_stat(&caller, file).await.unwrap();
        assert!(stat.available_bytes > 0 && stat.available_bytes <= stat.total_bytes);
    });
}

#[test]
fn listings_are_whole_with_and_without_attributes() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let names: Vec<String> = (0..200).map(|number| format!("directory {number}")).collect();
        for name in &names {
            let set = SetAttributes::with_mode(0o700);
            client.create_object(&caller, top, name.as_bytes(), &NewObject::Directory, &set).await.unwrap();
        }
        for plus in [true, false] {
            let (mut position, mut listed, mut pages) = ((0, [0; 8]), HashSet::new(), 0);
            loop {
                let page = client.read_directory(&caller, top, position, 4096, plus).await.unwrap();
                pages += 1;
                assert!(page.directory.is_some());
                for entry in page.entries {
                    assert_eq!(entry.object.is_some(), plus);
                    assert!(entry.object.is_none_or(|object| object.attributes.fileid == entry.fileid));
                    assert!(listed.insert(String::from_utf8(entry.name.to_vec()).unwrap()));
                }
                if page.eof {
                    break;
                }
                position = (page.next_cookie, page.verifier);
            }
            assert!(pages > 1, "{pages}");
            assert_eq!(listed, names.iter().cloned().collect());
        }
        assert!(link.count(PROGRAM, Proc::READDIRPLUS.0) > link.count(PROGRAM, Proc::READDIR.0));
    });
}

#[test]
fn access_control_lists_are_set_and_got() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let set = SetAttributes::with_mode(0o750);
        let (dir, _) = client.create_object(&caller, top, b"d", &NewObject::Directory, &set).await.unwrap();
        let entry = |subject, permissions| PosixEntry { subject, permissions };
        let of_mode =
            vec![entry(Subject::Owner, 7), entry(Subject::OwningGroup, 5), entry(Subject::Other, 0)];
        let minimal = Acl::Posix(PosixAcl { access: of_mode.clone(), default: Vec::new() });
        assert_eq!(client.get_acl(&caller, dir.handle).await, Ok(minimal));
        let mut named = of_mode;
        named.insert(1, entry(Subject::User(77), 6));
        named.insert(3, entry(Subject::Mask, 7));
        let acl = Acl::Posix(PosixAcl { access: named.clone(), default: named });
        let attributes = client.set_acl(&caller, dir.handle, &acl).await.unwrap().unwrap();
        assert_eq!(attributes.mode, 0o770, "the mask shows as the group's permissions");
        assert_eq!(client.get_acl(&caller, dir.handle).await, Ok(acl));
        let none = client.set_acl(&caller, dir.handle, &Acl::Posix(PosixAcl::default())).await.unwrap_err();
        assert_eq!(none.errno(), Errno::EINVAL);
    });
    link.answer(|call| match call.header.program {
        protocol::nfsacl::PROGRAM => call.not_executed(1, &[]),
        _ => Answer::Serve,
    });
    let missing = link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        client.get_acl(&caller, top).await
    });
    assert_eq!(missing, Err(OpError::Unsupported("access control lists")));
}

#[test]
fn no_more_calls_are_in_flight_than_configured() {
    let link = Link::new();
    let client = link.connect(Config { v3_calls: 3, ..config() }).unwrap();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        assert_eq!(client.slot_use(), (0, 0));
        link.longest_queue.set(0);
        let calls = (0..20).map(|_| client.get_attributes(&caller, top));
        for outcome in join_all(calls).await {
            outcome.unwrap();
        }
    });
    assert_eq!((link.longest_queue.get(), client.slot_use()), (3, (0, 17)));
    assert_eq!(link.engine.waits().count, 17, "each of them has had its turn");
}

/// A caller that stops waiting frees its permit only when the server has answered.
#[test]
fn a_dropped_call_counts_until_its_reply() {
    let link = Link::new();
    let client = link.connect(Config { v3_calls: 2, ..config() }).unwrap();
    let caller = root();
    let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
    {
        let mut dropped = Box::pin(client.get_attributes(&caller, top));
        assert!(futures_util::FutureExt::now_or_never(dropped.as_mut()).is_none());
        let mut context = std::task::Context::from_waker(futures_util::task::noop_waker_ref());
        let ids: Vec<_> = link.connection_ids();
        let sent = link.engine.poll_record(ids[0], &mut context);
        drop(dropped);
        assert_eq!(client.slot_use().0, 1);
        let std::task::Poll::Ready(Some(record)) = sent else { panic!("nothing was sent") };
        let reply = link.executed(record.concat().into()).unwrap();
        assert!(link.engine.handle_record(ids[0], reply));
    }
    assert_eq!(client.slot_use().0, 0);
}

#[test]
fn files_by_path_work_as_in_version_4() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let (fs, name) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        assert_eq!(name, None);
        fs.mkdir(b"a", 0o755).await.unwrap();
        fs.mkdir(b"a/b", 0o755).await.unwrap();
        let file = fs.open(b"a/b/file", &OpenOptions::CREATE).await.unwrap();
        let content = Bytes::from(vec![3; 2_500_000]);
        file.write_at(0, content.clone()).await.unwrap();
        file.close().await.unwrap();
        fs.symlink(b"b/file", b"a/link").await.unwrap();
        let file = fs.open(b"a/link", &OpenOptions::READ).await.unwrap();
        assert!(file.read_at(0, 3_000_000).await.unwrap().concat() == content);
        let file = fs.open(b"a/link", &OpenOptions::CREATE).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(fs.stat(b"a/b/file").await.unwrap().size, 0);
        assert_eq!(fs.lstat(b"a/link").await.unwrap().kind, FileKind::Symlink);
        assert_eq!(fs.unlink(b"a").await.unwrap_err().errno(), Errno::EISDIR);
        assert_eq!(fs.rmdir(b"a/link").await.unwrap_err().errno(), Errno::ENOTDIR);
        let listed = fs.read_dir(b"a", true).await.unwrap();
        assert_eq!(listed.len(), 2);
    });
    link.run(client.close()).unwrap();
    assert!(Arc::clone(&link.engine).is_shut_down());
}
