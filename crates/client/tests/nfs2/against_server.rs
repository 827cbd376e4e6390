//! Every operation against the server of this workspace.

use std::collections::HashSet;

use bytes::Bytes;
use client::Client;
use client::acl::{Acl, PosixAcl, PosixEntry, Subject};
use client::attributes::{FileKind, SetAttributes, SetTime, Timestamp};
use client::config::{Config, Version};
use client::errno::Errno;
use client::error::OpError;
use client::fs::inode::{Mount, OpenFlags};
use client::fs::{FileSystem, OpenOptions};
use client::results::{Content, Creation, NewObject, OpenMode, OpenState, Stability, access};
use protocol::mount;
use protocol::nfs2::{PROGRAM, Proc};
use protocol::nfs4::types::Status;

use crate::link::{Link, config, root, user};

const FILE: SetAttributes = SetAttributes {
    mode: Some(0o640),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

/// The first size in bytes that version 2 does not have.
const TOO_LARGE: u64 = u32::MAX as u64;

fn v3(link: &Link) -> Client {
    link.connect(Config { version: Some(Version::V3), ..config() }).unwrap()
}

#[test]
fn files_are_created_written_read_and_truncated() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        assert_eq!((top.len(), link.count(mount::PROGRAM, mount::Proc::MNT.0)), (32, 1));
        let opened =
            client.open(&caller, top, b"file", OpenMode::BOTH, Creation::IfMissing, &FILE).await.unwrap();
        assert_eq!((opened.object.attributes.mode, opened.object.attributes.size), (0o640, 0));
        let (file, state) = (opened.object.handle, OpenState::default());
        let data = Bytes::from(vec![7; 10_001]);
        let written = client.write(&caller, file, &state, 5, data, Stability::Unstable).await.unwrap();
        assert_eq!((written.count, written.stability), (8192, Stability::FileSync));
        assert_eq!(written.file.after.unwrap().size, 8197);
        client.commit(&caller, file, 0, 0).await.unwrap();
        let read = client.read(&caller, file, &state, 3, 4).await.unwrap();
        assert_eq!((&read.data[..], read.eof), (&[0, 0, 7, 7][..], false));
        let most = client.read(&caller, file, &state, 0, 100_000).await.unwrap();
        assert_eq!((most.data.len(), most.eof), (8192, false));
        let end = client.read(&caller, file, &state, 8190, 100).await.unwrap();
        assert_eq!((end.data.len(), end.eof), (7, true));
        let set = SetAttributes { size: Some(3), ..SetAttributes::default() };
        assert_eq!(client.set_attributes(&caller, file, &state, &set).await.unwrap().size, 3);
        let behind = client.read(&caller, file, &state, 1 << 40, 100).await.unwrap();
        assert_eq!((behind.data.len(), behind.eof), (0, true));
        let emptied = SetAttributes { size: Some(0), mode: Some(0o777), ..FILE };
        let creation = Creation::IfMissing;
        let again = client.open(&caller, top, b"file", OpenMode::WRITE, creation, &emptied).await.unwrap();
        let attributes = again.object.attributes;
        assert_eq!((again.object.handle, attributes.size, attributes.mode), (file, 0, 0o640));
    });
    assert_eq!(link.count(PROGRAM, Proc::WRITE.0), 1, "COMMIT is no procedure of version 2");
}

#[test]
fn sizes_of_more_than_32_bits_are_refused_and_nothing_is_cut() {
    let link = Link::new();
    let (client, newer) = (link.client(), v3(&link));
    let (caller, state) = (root(), OpenState::default());
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let open = |client: Client, name: &'static [u8], top| async move {
            let creation = Creation::IfMissing;
            let opened = client.open(&root(), top, name, OpenMode::BOTH, creation, &FILE).await;
            opened.map(|opened| opened.object.handle)
        };
        let file = open(client.clone(), b"file", top).await.unwrap();
        let byte = || Bytes::from_static(b"x");
        let written = client.write(&caller, file, &state, TOO_LARGE - 2, byte(), Stability::FileSync).await;
        assert_eq!(written.unwrap().file.after.unwrap().size, TOO_LARGE - 1);
        for offset in [TOO_LARGE - 1, TOO_LARGE, 1 << 32, 1 << 40, u64::MAX] {
            let refused = client.write(&caller, file, &state, offset, byte(), Stability::FileSync).await;
            assert_eq!(refused.unwrap_err().errno(), Errno::EFBIG, "{offset}");
        }
        for bytes in [TOO_LARGE, 1 << 32, (1 << 32) + 7] {
            let refused = client.set_attributes(&caller, file, &state, &size(bytes)).await;
            assert_eq!(refused.unwrap_err().errno(), Errno::EFBIG, "{bytes}");
        }
        assert_eq!(client.get_attributes(&caller, file).await.unwrap().size, TOO_LARGE - 1);

        let root_3 = newer.mount(&caller, &[b"export"]).await.unwrap().handle;
        let large = open(newer.clone(), b"large", root_3).await.unwrap();
        newer.set_attributes(&caller, large, &state, &size((1 << 32) + 5)).await.unwrap();
        assert_eq!(client.lookup(&caller, top, b"large").await.unwrap_err().errno(), Errno::EFBIG);
        let fs = FileSystem::mount(client.clone(), caller.clone(), b"/export").await.unwrap().0;
        assert_eq!(fs.open(b"large", &OpenOptions::READ).await.err().unwrap().errno(), Errno::EFBIG);
        assert_eq!(newer.get_attributes(&caller, large).await.unwrap().size, (1 << 32) + 5);
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
            (&b"dir"[..], NewObject::Directory),
            (b"link", NewObject::Symlink(Bytes::from_static(b"dir/x"))),
            (b"block", NewObject::BlockDevice(1, 2)),
            (b"char", NewObject::CharacterDevice(0xabc, 0xd_ef12)),
            (b"socket", NewObject::Socket),
            (b"pipe", NewObject::Fifo),
        ];
        for (name, what) in &kinds {
            let set = SetAttributes::with_mode(0o751);
            let (object, _) = client.create_object(&caller, top, name, what, &set).await.unwrap();
            assert_eq!(object.attributes.kind, what.file_kind());
            assert_eq!(client.lookup(&caller, top, name).await.unwrap(), object);
            if let NewObject::BlockDevice(major, minor) | NewObject::CharacterDevice(major, minor) = what {
                assert_eq!(object.attributes.device, (*major, *minor));
            }
            let again = client.create_object(&caller, top, name, what, &set).await.unwrap_err();
            assert_eq!(again, OpError::Status(Status::EXIST));
        }
        let symlink = client.lookup(&caller, top, b"link").await.unwrap().handle;
        assert_eq!(&client.read_link(&caller, symlink).await.unwrap()[..], b"dir/x");
        let directory = client.lookup(&caller, top, b"dir").await.unwrap().handle;
        let pipe = client.lookup(&caller, top, b"pipe").await.unwrap().handle;
        client.link(&caller, pipe, directory, b"hard").await.unwrap();
        assert_eq!(client.get_attributes(&caller, pipe).await.unwrap().nlink, 2);
        client.rename(&caller, (directory, b"hard"), (top, b"moved")).await.unwrap();
        assert_eq!(client.lookup_chain(&caller, top, &[b"moved"]).await.unwrap().handle, pipe);
        assert_eq!(client.remove_file(&caller, top, b"dir").await.unwrap_err().errno(), Errno::EISDIR);
        for name in [&b"link"[..], b"block", b"char", b"socket", b"pipe", b"moved"] {
            client.remove_file(&caller, top, name).await.unwrap();
        }
        client.remove_directory(&caller, top, b"dir").await.unwrap();
        let missing = client.remove_directory(&caller, top, b"dir").await.unwrap_err();
        assert_eq!(missing, OpError::Status(Status::NOENT));
    });
}

#[test]
fn permissions_follow_from_the_mode() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = client.mount(&root(), &[b"export"]).await.unwrap().handle;
        let set = SetAttributes { mode: Some(0o754), uid: Some(7), gid: Some(8), ..FILE };
        let made = |name: &'static [u8], set: SetAttributes| {
            let client = client.clone();
            async move {
                let creation = Creation::IfMissing;
                let opened = client.open(&root(), top, name, OpenMode::BOTH, creation, &set).await;
                opened.unwrap().object.handle
            }
        };
        let file = made(b"file", set).await;
        let plain = made(b"plain", SetAttributes { mode: Some(0), ..set }).await;
        let set_directory = SetAttributes { mode: Some(0o751), ..set };
        let (directory, _) =
            client.create_object(&root(), top, b"dir", &NewObject::Directory, &set_directory).await.unwrap();
        let change = access::MODIFY | access::EXTEND;
        let granted = async |caller, handle| client.access(&caller, handle, 0x3f).await.unwrap().0;
        assert_eq!(granted(user(7), file).await, access::READ | change | access::EXECUTE);
        assert_eq!(granted(user(8), file).await, access::READ | access::EXECUTE, "the group");
        assert_eq!(granted(user(9), file).await, access::READ);
        assert_eq!(granted(root(), file).await, access::READ | change | access::EXECUTE);
        assert_eq!(granted(root(), plain).await, access::READ | change, "nobody may execute it");
        assert_eq!(granted(user(7), plain).await, 0);
        let of_directory = access::READ | access::LOOKUP;
        assert_eq!(granted(user(7), directory.handle).await, of_directory | change | access::DELETE);
        assert_eq!(granted(user(8), directory.handle).await, of_directory);
        assert_eq!(granted(user(9), directory.handle).await, access::LOOKUP);
        for (id, mode) in [(8, OpenMode::WRITE), (9, OpenMode::BOTH)] {
            let opened = client.open(&user(id), top, b"file", mode, Creation::No, &FILE).await;
            assert_eq!(opened.unwrap_err(), OpError::Status(Status::ACCESS));
        }
        client.open(&user(9), top, b"file", OpenMode::READ, Creation::No, &FILE).await.unwrap();
    });
}

#[test]
fn attributes_are_set_with_times_of_microseconds() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let opened =
            client.open(&caller, top, b"f", OpenMode::WRITE, Creation::IfMissing, &FILE).await.unwrap();
        let (file, state) = (opened.object.handle, OpenState::default());
        let atime = SetTime::To(Timestamp { seconds: 1234, nanoseconds: 5678 });
        let mtime = SetTime::To(Timestamp { seconds: 1 << 40, nanoseconds: 1 });
        let set =
            SetAttributes { mode: Some(0o4604), uid: Some(11), gid: Some(12), size: Some(99), atime, mtime };
        let found = client.set_attributes(&caller, file, &state, &set).await.unwrap();
        assert_eq!((found.mode, found.uid, found.gid, found.size), (0o4604, 11, 12, 99));
        assert_eq!(found.atime, Timestamp { seconds: 1234, nanoseconds: 5000 });
        assert_eq!(found.mtime.seconds, i64::from(u32::MAX) - 1, "the nearest time that can be set");
        let now = SetAttributes { atime: SetTime::Now, mtime: SetTime::Now, ..SetAttributes::default() };
        let found = client.set_attributes(&caller, file, &state, &now).await.unwrap();
        assert_eq!((found.atime.seconds, found.mtime.seconds), (1_000_000, 1_000_000));
        let info = client.fs_info(&caller, file).await.unwrap();
        assert_eq!((info.read_max, info.write_max), (8192, 8192));
        assert_eq!(info.file_size_max, TOO_LARGE - 1);
        let space = client.fs_stat(&caller, file).await.unwrap();
        assert!(space.available_bytes > 0 && space.available_bytes <= space.total_bytes);
    });
}

#[test]
fn listings_are_whole_and_names_are_looked_up_for_attributes() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let (fs, _) = FileSystem::mount(client.clone(), caller.clone(), b"/export").await.unwrap();
        let names: HashSet<String> = (0..700).map(|number| format!("directory {number}")).collect();
        for name in &names {
            fs.mkdir(name.as_bytes(), 0o700).await.unwrap();
        }
        let listed = fs.read_dir(b"", true).await.unwrap();
        let found = listed.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap());
        assert_eq!(found.collect::<HashSet<_>>(), names);
        assert_eq!(listed.len(), 700);
        assert!(link.count(PROGRAM, Proc::READDIR.0) > 1);
        let mount = Mount::new(client.clone(), &caller, &[b"export"]).await.unwrap();
        let (object, attributes) = mount.root().lookup(&caller, b"directory 7").await.unwrap();
        assert_eq!((object.kind(), attributes.mode), (FileKind::Directory, 0o700));
    });
}

#[test]
fn an_exclusive_creation_refuses_an_existing_file() {
    let link = Link::new();
    let client = link.client();
    let caller = root();
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let open = |verifier| {
            client.open(&caller, top, b"file", OpenMode::WRITE, Creation::Exclusive(verifier), &FILE)
        };
        let opened = open([1; 8]).await.unwrap();
        assert_eq!((opened.object.attributes.mode, opened.object.attributes.nlink), (0o640, 1));
        assert_eq!(open([2; 8]).await.unwrap_err(), OpError::Status(Status::EXIST));
        let found = client.lookup(&caller, top, b"file").await.unwrap();
        assert_eq!(found.handle, opened.object.handle, "the second call has not replaced it");
        let listed = client.read_directory(&caller, top, (0, [0; 8]), 4096, false).await.unwrap();
        let names: Vec<_> = listed.entries.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!(names, [b"file"], "no other name is left");
    });
    // LOOKUP and CREATE would let two clients succeed: the name is made by LINK.
    assert_eq!(link.count(PROGRAM, Proc::LINK.0), 2);
}

#[test]
fn own_writes_keep_cached_data_and_those_of_others_do_not() {
    let link = Link::new();
    let client = link.client();
    let other = link.connect(Config { owner: Bytes::from_static(b"other"), ..config() }).unwrap();
    link.run(async {
        let top = Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root();
        let others = Mount::new(other.clone(), &root(), &[b"export"]).await.unwrap().root();
        let file = top.create(&root(), b"file", OpenFlags::BOTH, Creation::IfMissing, &FILE).await.unwrap();
        for part in 0..10_u64 {
            file.write(part * 5000, Bytes::from(vec![part as u8; 5000])).await.unwrap();
            file.sync().await.unwrap();
        }
        let read = file.read(0, 100_000).await.unwrap().concat();
        assert!(read.chunks(5000).enumerate().all(|(part, data)| data == [part as u8; 5000]));
        file.attributes().await.unwrap();
        assert_eq!((read.len(), link.count(PROGRAM, Proc::READ.0)), (50_000, 0));
        file.flush().await.unwrap();
        file.release().await.unwrap();
        let open =
            others.create(&root(), b"file", OpenFlags::BOTH, Creation::IfMissing, &FILE).await.unwrap();
        open.write(0, Bytes::from_static(b"changed")).await.unwrap();
        open.flush().await.unwrap();
        open.release().await.unwrap();
        let before = link.count(PROGRAM, Proc::READ.0);
        let file = top.create(&root(), b"file", OpenFlags::BOTH, Creation::No, &FILE).await.unwrap();
        assert_eq!(file.read(0, 7).await.unwrap().concat(), b"changed");
        assert!(link.count(PROGRAM, Proc::READ.0) > before);
        file.release().await.unwrap();
    });
}

#[test]
fn what_version_2_does_not_have_is_refused_with_its_name() {
    let link = Link::new();
    let client = link.client();
    let (caller, state) = (root(), OpenState::default());
    let of_mode = [(Subject::Owner, 6), (Subject::OwningGroup, 4), (Subject::Other, 0)];
    let entries = of_mode.map(|(subject, permissions)| PosixEntry { subject, permissions });
    let list = PosixAcl { access: entries.to_vec(), default: Vec::new() };
    link.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let errors = [
            client.get_xattr(&caller, top, b"name").await.unwrap_err(),
            client.allocate(&caller, top, &state, 0, 1).await.unwrap_err(),
            client.seek(&caller, top, &state, 0, Content::Hole).await.unwrap_err(),
            client.get_acl(&caller, top).await.unwrap_err(),
            client.set_acl(&caller, top, &Acl::Posix(list)).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.errno(), Errno::EOPNOTSUPP, "{error}");
            assert!(error.to_string().contains("version 2"), "{error}");
        }
    });
}

#[test]
fn version_2_is_used_only_on_request() {
    let link = Link::with_settings(|settings| settings.versions = server::Versions::V2);
    let by_default = link.connect(Config { version: None, ..config() }).map(|_| ()).unwrap_err();
    assert!(matches!(by_default, OpError::Unsupported(_)), "{by_default}");
    assert_eq!(link.client().version(), Version::V2);
    let link = Link::with_settings(|settings| settings.versions = server::Versions::DEFAULT);
    assert_eq!(link.connect(config()).map(|_| ()), Err(OpError::Unsupported("NFS version 2")));
}
