//! Walks over a tree as large as that of the 1994 paper's Table 2: 9,612 files in 155 directories, at most 7 deep.

use client::config::{Caches, Config};
use client::fs::{FileSystem, NewPath};
use client::many::NewKind;
use client::results::NewObject;
use protocol::mount;
use protocol::nfs3::{PROGRAM, Proc};

use crate::link::{Link, config, root};

const FILES: usize = 9612;
const DIRECTORIES: usize = 155;

/// Returns the path of a directory: each has two below it, as far as there are so many. The first is the root.
fn directory(number: usize) -> String {
    match number {
        0 => "tree".to_owned(),
        number => format!("{}/d{number:04}", directory((number - 1) / 2)),
    }
}

/// Returns the names in a directory, `.` and `..` among them.
fn names_in(number: usize) -> usize {
    let below = (1..DIRECTORIES).filter(|other| (other - 1) / 2 == number).count();
    let files = FILES / DIRECTORIES + usize::from(number < FILES % DIRECTORIES);
    2 + below + files
}

async fn make(fs: &FileSystem) {
    let directories: Vec<String> = (0..DIRECTORIES).map(directory).collect();
    let directory = NewKind::Object(NewObject::Directory);
    for path in &directories {
        let path = path.as_bytes();
        let made = fs.create_many(&[NewPath { path, kind: directory.clone(), mode: 0o755 }]).await;
        made.into_iter().for_each(|made| _ = made.unwrap());
    }
    let files: Vec<String> =
        (0..FILES).map(|at| format!("{}/f{at:04}", directories[at % DIRECTORIES])).collect();
    let new = files.iter().map(|path| NewPath { path: path.as_bytes(), kind: NewKind::File, mode: 0o644 });
    for made in fs.create_many(&new.collect::<Vec<_>>()).await {
        made.unwrap();
    }
}

/// Returns the numbers of READDIRPLUS and of other requests of a walk with replies of at most `bytes`.
fn walk(bytes: u32) -> (usize, usize) {
    let link = Link::new();
    let maker = link.connect(Config { caches: Caches::none(), ..config() }).unwrap();
    let (fs, _) = link.run(FileSystem::mount(maker, root(), b"/export")).unwrap();
    link.run(make(&fs));
    let before = link.calls.borrow().len();
    let owner = bytes::Bytes::from_static(b"walker");
    let walker = link.connect(Config { read_size: bytes, owner, ..config() }).unwrap();
    let (fs, _) = link.run(FileSystem::mount(walker, root(), b"/export")).unwrap();
    let (files, listed) = link.run(async {
        let (mut files, mut listed) = (0, 0);
        let mut walk = fs.walk(fs.resolve(b"tree", false).await.unwrap(), usize::MAX);
        while let Some(directory) = walk.next().await {
            let entries = directory.unwrap().entries;
            assert!(entries.iter().all(|entry| entry.object.is_some()), "attributes of all");
            files += entries.iter().filter(|entry| entry.name.starts_with(b"f")).count();
            listed += 1;
        }
        (files, listed)
    });
    assert_eq!((files, listed), (FILES, DIRECTORIES));
    let calls = link.calls.borrow();
    let plus = |call: &&(u32, u32)| **call == (PROGRAM, Proc::READDIRPLUS.0);
    let calls: Vec<_> = calls[before..].iter().filter(|call| call.0 != mount::PROGRAM).collect();
    let plus = calls.iter().copied().filter(plus).count();
    (plus, calls.len() - plus)
}

/// RFC 1813 §3.3.17: bytes of an entry with a name of five bytes and a handle, and of a reply without entries.
fn entries_in(bytes: usize, handle: usize) -> usize {
    let entry = 4 + 8 + (4 + 8) + 8 + (4 + 84) + (4 + 4 + handle.next_multiple_of(4));
    (bytes - (4 + 4 + 84 + 8 + 4 + 4)) / entry
}

#[test]
fn a_walk_takes_a_readdirplus_for_each_reply_and_no_request_for_each_file() {
    let link = Link::new();
    let handle = link.run(link.client().mount(&root(), &[b"export"])).unwrap().handle.len();
    let of_8_kb = entries_in(8192, handle);
    let expected: usize = (0..DIRECTORIES).map(|number| names_in(number).div_ceil(of_8_kb)).sum();
    let (plus, others) = walk(8192);
    assert!(plus <= expected, "{plus} READDIRPLUS, {of_8_kb} entries in 8 KB: {expected} replies");
    assert!(others <= DIRECTORIES, "{others} other requests");
    let (plus, others) = walk(1 << 20);
    assert!(plus + others <= 480, "{plus} READDIRPLUS and {others} other requests");
}
