//! Inodes without paths, as an adapter for FUSE uses them.

use bytes::Bytes;
use client::attributes::{FileKind, SetAttributes};
use client::config::Version;
use client::fs::inode::{Inode, Mount, OpenFlags};
use client::results::{Creation, NewObject, access};
use futures_util::future::join;
use protocol::nfs4::types::Status;

use crate::link::{Link, root, user};
use client::error::OpError;

const FILE: SetAttributes = SetAttributes {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    atime: client::attributes::SetTime::Keep,
    mtime: client::attributes::SetTime::Keep,
};

async fn mount(client: client::Client) -> Inode {
    Mount::new(client, &root(), &[b"export"]).await.unwrap().root()
}

async fn names(directory: &Inode) -> Vec<String> {
    let listing = directory.open_directory().unwrap().read(&root(), 0, true).await.unwrap();
    assert!(listing.is_end);
    listing.entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()).collect()
}

/// Creates a file with some content.
async fn create(top: &Inode, name: &[u8], content: &'static [u8]) {
    let flags = OpenFlags::WRITE;
    let file = top.create(&root(), name, flags, Creation::IfMissing, &FILE).await.unwrap();
    file.write(0, Bytes::from_static(content)).await.unwrap();
    file.flush().await.unwrap();
    file.release().await.unwrap();
}

#[test]
fn one_inode_per_object_and_rights_per_caller() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(client).await;
        create(&top, b"file", b"content").await;
        let (file, attributes) = top.lookup(&root(), b"file").await.unwrap();
        assert_eq!((attributes.size, file.kind()), (7, FileKind::Regular));
        file.link(&root(), &top, b"hard").await.unwrap();
        assert_eq!(top.lookup(&root(), b"hard").await.unwrap().0, file);
        assert_eq!(top.mount().inode_by_id(file.id()), Some(file.clone()));
        let asked = access::READ | access::MODIFY;
        let granted = join(file.access(&root(), asked), file.access(&user(9), asked)).await;
        assert_eq!(granted, (Ok(asked), Ok(access::READ)));
        assert_eq!(file.open(&user(9), OpenFlags::WRITE).await.unwrap_err(), OpError::Status(Status::ACCESS));
        let open = file.open(&user(9), OpenFlags::READ).await.unwrap();
        assert_eq!(open.read(3, 100).await.unwrap().concat(), b"tent");
        open.release().await.unwrap();
    });
}

#[test]
fn directories_are_read_in_parts_from_any_cookie() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(client).await;
        for name in [&b"a"[..], b"b", b"c"] {
            let set = SetAttributes::with_mode(0o755);
            top.make(&root(), name, &NewObject::Directory, &set).await.unwrap();
        }
        let open = top.open_directory().unwrap();
        let all = open.read(&root(), 0, true).await.unwrap();
        assert!(all.is_end && all.entries.len() == 3);
        // Version 2 lists names only.
        assert!(all.entries.iter().all(|entry| entry.object.is_some() == (crate::VERSION == Version::V3)));
        let rest = open.read(&root(), all.entries[0].cookie, false).await.unwrap();
        let rest: Vec<_> = rest.entries.iter().map(|entry| entry.name.clone()).collect();
        let expected: Vec<_> = all.entries[1..].iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(rest, expected);
    });
}

#[test]
fn removed_open_file_stays_until_its_last_release() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(client).await;
        create(&top, b"file", b"content").await;
        let (file, _) = top.lookup(&root(), b"file").await.unwrap();
        let first = file.open(&root(), OpenFlags::READ).await.unwrap();
        let second = file.open(&root(), OpenFlags::READ).await.unwrap();
        top.unlink(&root(), b"file").await.unwrap();
        assert_eq!(top.lookup(&root(), b"file").await.unwrap_err(), OpError::Status(Status::NOENT));
        let hidden = names(&top).await;
        assert!(hidden.len() == 1 && hidden[0].starts_with(".nfs"), "{hidden:?}");
        first.release().await.unwrap();
        assert_eq!(second.read(0, 100).await.unwrap().concat(), b"content");
        second.release().await.unwrap();
        assert_eq!(names(&top).await, Vec::<String>::new());
    });
}

#[test]
fn replaced_open_file_keeps_its_content() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(client).await;
        create(&top, b"old", b"old content").await;
        create(&top, b"new", b"new content").await;
        let (old, _) = top.lookup(&root(), b"old").await.unwrap();
        let open = old.open(&root(), OpenFlags::READ).await.unwrap();
        let missing = top.rename(&root(), b"none", &top, b"old").await.unwrap_err();
        assert_eq!(missing, OpError::Status(Status::NOENT));
        assert_eq!(names(&top).await.len(), 2, "a rename that fails hides nothing");
        top.rename(&root(), b"new", &top, b"old").await.unwrap();
        assert_eq!(open.read(0, 100).await.unwrap().concat(), b"old content");
        open.release().await.unwrap();
        assert_eq!(names(&top).await, ["old"]);
        let (new, _) = top.lookup(&root(), b"old").await.unwrap();
        let open = new.open(&root(), OpenFlags::READ).await.unwrap();
        assert_eq!(open.read(0, 100).await.unwrap().concat(), b"new content");
        open.release().await.unwrap();
    });
}
