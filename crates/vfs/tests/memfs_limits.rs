//! The file system in memory at its limits, after a crash, and with several threads.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;

use vfs::contract::{Caller, Fixture, Subject};
use vfs::{
    Authority, Backend, Create, CreateMode, Credentials, Error, Handle, MemFs, MemOptions, Removal,
    SetAttributes, SetXattr, Stability, Timestamp,
};

const GUARDED: Create = Create::File(CreateMode::Guarded);

/// Granularity of content in bytes.
const PAGE: u64 = 4096;

fn subject(options: MemOptions) -> (Arc<MemFs>, Subject) {
    let files = Arc::new(MemFs::new(&options));
    (files.clone(), Subject::new(Fixture::ready(files)))
}

fn small() -> MemOptions {
    MemOptions { max_bytes: 64 * PAGE, max_files: 20, ..MemOptions::default() }
}

/// Fills the rest of the space with one file's content.
fn fill(caller: &Caller<'_>, file: &Handle) -> Error {
    let mut offset = 0;
    loop {
        match caller.write(file, offset, vec![1; 10_000]) {
            Ok(written) => offset += u64::from(written.count),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_full_disk_accepts_only_fitting_data() {
    let (_, t) = subject(small());
    let (root, top) = (t.root(), t.top());
    let file = root.file(&top, "f");
    let pages = root.statfs(&file).unwrap().free_bytes / PAGE;
    let fits = usize::try_from((pages - 1) * PAGE).unwrap();
    assert_eq!(root.write(&file, 0, vec![1; fits]).unwrap().count as usize, fits);
    let part = root.write(&file, fits as u64, vec![2; 3 * PAGE as usize]).unwrap();
    assert_eq!(u64::from(part.count), PAGE, "a partial write");
    let before = root.getattr(&file).unwrap();
    assert_eq!(root.write(&file, before.size, "x").unwrap_err(), Error::NoSpace);
    assert_eq!(root.getattr(&file).unwrap(), before, "a refused write changes nothing");
    root.write(&file, 0, "over existing data").unwrap();
    assert_eq!(root.allocate(&file, 1 << 30, PAGE).unwrap_err(), Error::NoSpace);
    root.truncate(&file, 1 << 40).unwrap();
}

#[test]
fn refusals_because_of_space_or_objects_are_reported() {
    let reported: Arc<Mutex<Vec<u64>>> = Arc::default();
    let sink = Arc::clone(&reported);
    let files = MemFs::new(&small()).when_full(move |bytes| sink.lock().unwrap().push(bytes));
    let files = Arc::new(files);
    let t = Subject::new(Fixture::ready(files.clone()));
    let (root, top) = (t.root(), t.top());
    let file = root.file(&top, "f");
    assert!(reported.lock().unwrap().is_empty());
    fill(&root, &file);
    // The last WRITE that was partly done, and the one that was refused.
    assert_eq!(*reported.lock().unwrap(), [64 * PAGE, 64 * PAGE]);
    files.set_limits(1000 * PAGE, None);
    let more = (0..100).map(|number| format!("more-{number}"));
    let made = more.take_while(|name| root.make(&top, name, &GUARDED, 0o600).is_ok()).count();
    assert!(made < 20, "{made} files, of 20 objects");
    assert_eq!(reported.lock().unwrap().last(), Some(&(1000 * PAGE)));
}

#[test]
fn a_removal_frees_all_charged_space() {
    let (_, t) = subject(small());
    let (root, top) = (t.root(), t.top());
    let before = root.statfs(&top).unwrap();
    for _ in 0..3 {
        let (file, directory) = (root.file(&top, "f"), root.directory(&top, "d"));
        let _ = root.symlink(&directory, "l", "a text");
        root.set_xattr(&file, "name", "value", SetXattr::Create).unwrap();
        root.set_xattr(&file, "name", "a longer value", SetXattr::Replace).unwrap();
        root.link(&file, &directory, "second").unwrap();
        root.rename((&directory, "second"), (&top, "third")).unwrap();
        root.chown(&file, 1001, 1001).unwrap();
        assert_eq!(fill(&root, &file), Error::NoSpace);
        root.deallocate(&file, 5000, 40_000).unwrap();
        root.truncate(&file, 20_000).unwrap();
        let opened = root.open(&file, true, true).unwrap();
        for (directory, name) in [(&top, "f"), (&top, "third"), (&directory, "l"), (&top, "d")] {
            root.remove(directory, name, Removal::Any).unwrap();
        }
        assert!(root.statfs(&top).unwrap().free_bytes < before.free_bytes, "the open file still takes space");
        drop(opened);
        assert_eq!(root.statfs(&top).unwrap(), before);
    }
}

#[test]
fn file_slots_run_out() {
    let (_, t) = subject(MemOptions { max_files: 5, ..MemOptions::default() });
    let (root, top) = (t.root(), t.top());
    let made: Vec<_> = (0..3).map(|number| root.file(&top, format!("{number}"))).collect();
    assert_eq!(root.statfs(&top).unwrap().free_files, 0);
    assert_eq!(root.make(&top, "more", &GUARDED, 0o600).unwrap_err(), Error::NoSpace);
    root.link(&made[0], &top, "a name needs no slot").unwrap();
    root.remove(&top, "1", Removal::File).unwrap();
    let _ = root.file(&top, "more");
}

#[test]
fn names_are_charged_so_that_hard_links_are_bounded() {
    let (_, t) = subject(MemOptions { max_bytes: 100 * 512, ..MemOptions::default() });
    let (root, top) = (t.root(), t.top());
    let file = root.file(&top, "f");
    let made = (0..1000).take_while(|number| root.link(&file, &top, format!("{number}")).is_ok()).count();
    // One entry is the directory to work in, one the file itself.
    assert_eq!(made, 98);
    assert_eq!(root.link(&file, &top, "more").unwrap_err(), Error::NoSpace);
    root.rename((&top, "0"), (&top, "renaming needs no space")).unwrap();
    root.remove(&top, "1", Removal::File).unwrap();
}

#[test]
fn a_quota_limits_its_owner_only() {
    let (_, t) = subject(MemOptions { quota_bytes: Some(10 * PAGE), ..MemOptions::default() });
    let (root, user, top) = (t.root(), t.user(1), t.top());
    root.chmod(&top, 0o777).unwrap();
    let file = user.file(&top, "f");
    assert_eq!(fill(&user, &file), Error::Quota);
    assert_eq!(root.getattr(&file).unwrap().used, 10 * PAGE);
    let space = user.statfs(&file).unwrap();
    assert_eq!(space.available_bytes, 0);
    assert!(space.free_bytes > 0 && t.user(2).statfs(&file).unwrap().available_bytes > 0);
    // It is the owner's space, whichever user writes.
    assert_eq!(root.write(&file, 1 << 20, "x").unwrap_err(), Error::Quota);
    let other = root.file(&top, "other");
    root.write(&other, 0, vec![1; 20 * PAGE as usize]).unwrap();
    assert_eq!(root.chown(&other, 1001, 1001).unwrap_err(), Error::Quota);
    assert_eq!(root.getattr(&other).unwrap().uid, 0, "a refused change of owner has no effect");
    root.chown(&file, 0, 0).unwrap();
    let _ = user.file(&top, "again");
}

#[test]
fn links_have_a_limit() {
    let (_, t) = subject(MemOptions::default());
    let (root, top) = (t.root(), t.top());
    let most = t.backend().properties().max_links;
    let file = root.file(&top, "f");
    for number in 1..most {
        root.link(&file, &top, format!("{number}")).unwrap();
    }
    assert_eq!(root.link(&file, &top, "more").unwrap_err(), Error::TooManyLinks);
    assert_eq!(root.getattr(&file).unwrap().links, most);
    let parent = root.directory(&top, "parent");
    for number in 2..most {
        let _ = root.directory(&parent, format!("{number}"));
    }
    assert_eq!(root.make(&parent, "more", &Create::Directory, 0o700).unwrap_err(), Error::TooManyLinks);
    let _ = root.directory(&top, "moving");
    assert_eq!(root.rename((&top, "moving"), (&parent, "more")).unwrap_err(), Error::TooManyLinks);
    root.rename((&top, "moving"), (&parent, "2")).unwrap();
}

#[test]
fn a_read_only_file_system_refuses_every_change() {
    let options = MemOptions { is_read_only: true, root_mode: 0o777, ..MemOptions::default() };
    let files = MemFs::new(&options);
    let context = vfs::Context::new(Arc::new(Credentials::root()), Timestamp::default());
    let (root, none) = (files.root(), SetAttributes::default());
    assert!(files.properties().read_only);
    let refused = Some(Error::ReadOnly);
    assert_eq!(files.create(&context, &root, b"f", &GUARDED, &none).now().err(), refused);
    assert_eq!(files.setattr(&context, &root, &none, None, Authority::Caller).now().err(), refused);
    assert_eq!(files.remove(&context, &root, b"f", Removal::Any).now().err(), refused);
    assert_eq!(files.rename(&context, (&root, b"f"), (&root, b"g")).now().err(), refused);
    let all = vfs::Access::all();
    let (granted, _) = files.access(&context, &root, all).now().unwrap();
    assert!(!granted.intersects(vfs::Access::MODIFY | vfs::Access::EXTEND | vfs::Access::DELETE));
    assert!(granted.contains(vfs::Access::READ | vfs::Access::LOOKUP));
}

#[test]
fn another_instance_does_not_know_the_handles() {
    let (_, t) = subject(MemOptions::default());
    let file = t.root().file(&t.top(), "f");
    let (_, other) = subject(MemOptions { instance: 2, ..MemOptions::default() });
    let _ = other.root().file(&other.top(), "f");
    assert_eq!(other.root().getattr(&file).unwrap_err(), Error::Stale);
    assert_ne!(t.backend().write_verifier(), other.backend().write_verifier());
    assert_eq!(t.backend().identity(), other.backend().identity());
}

#[test]
fn a_crash_loses_only_unstable_data() {
    let (files, t) = subject(MemOptions { is_volatile: true, ..MemOptions::default() });
    let (root, top) = (t.root(), t.top());
    let file = root.file(&top, "f");
    let write = |offset, data: &str, stability| {
        root.write_with(&file, offset, data, stability, Authority::Caller).unwrap();
    };
    write(0, "stable", Stability::FileSync);
    let free = root.statfs(&file).unwrap().free_bytes;
    write(0, "UNSTABLE", Stability::Unstable);
    write(100_000, "far away", Stability::Unstable);
    let change = root.getattr(&file).unwrap().change;
    files.crash(*b"restart1");
    assert_eq!(t.backend().write_verifier(), *b"restart1");
    assert_eq!(root.read(&file, 0, 200_000).unwrap(), b"stable");
    assert_eq!(root.statfs(&file).unwrap().free_bytes, free);
    assert!(root.getattr(&file).unwrap().change > change, "the content changed once more");
    write(0, "committed", Stability::Unstable);
    root.commit(&file, 0, 0).unwrap();
    write(20, "lost", Stability::Unstable);
    files.crash(*b"restart2");
    assert_eq!(root.read(&file, 0, 100).unwrap(), b"committed");
    write(0, "SYNCED", Stability::Unstable);
    write(6, "!", Stability::DataSync);
    files.crash(*b"restart3");
    assert_eq!(root.read(&file, 0, 100).unwrap(), b"SYNCED!ed");
    write(0, "gone", Stability::Unstable);
    root.remove(&top, "f", Removal::File).unwrap();
    files.crash(*b"restart4");
    assert!(root.names(&top).is_empty(), "names are stable at once");
}

#[test]
fn threads_see_whole_operations() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    let files = MemFs::new(&MemOptions::default());
    let context = || vfs::Context::new(Arc::new(Credentials::root()), Timestamp::default());
    let (root, none) = (files.root(), SetAttributes::default());
    let shared = files.create(&context(), &root, b"shared", &GUARDED, &none).now().unwrap();
    let changes: Vec<Vec<(u64, u64)>> = thread::scope(|scope| {
        let work = |thread: u64| {
            let (files, none, context) = (&files, &none, context());
            move || {
                let around = |round: u64| {
                    let own = format!("{thread}-{round}").into_bytes();
                    files.create(&context, &root, &own, &GUARDED, none).now().unwrap();
                    let data = bytes::Bytes::from(vec![thread as u8; 5000]);
                    let (stability, authority) = (Stability::FileSync, Authority::Caller);
                    let written = files.write(&context, &shared.handle, 0, &data, stability, authority);
                    let written = written.now().unwrap().change;
                    files.remove(&context, &root, &own, Removal::File).now().unwrap();
                    (written.before.change, written.after.change)
                };
                (0..ROUNDS).map(around).collect()
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: BTreeSet<_> = changes.concat().into_iter().collect();
    assert_eq!(all.len() as u64, THREADS * ROUNDS, "no two writes had the same change");
    assert!(all.iter().all(|(before, after)| after == &(before + 1)), "before and after are atomic");
    let mut into = bytes::BytesMut::new();
    let request =
        vfs::ReadRequest { offset: 0, count: 5000, may_splice: false, authority: Authority::Caller };
    files.read(&context(), &shared.handle, request, &mut into).now().unwrap();
    assert!(into.iter().all(|byte| *byte == into[0]), "each write is one change");
    let (space, _) = files.statfs(&context(), &root).now().unwrap();
    assert_eq!(space.total_files - space.free_files, 2);
}

#[test]
fn an_unknown_cookie_is_refused() {
    let (_, t) = subject(MemOptions::default());
    let (root, top) = (t.root(), t.top());
    let _ = root.file(&top, "f");
    for cookie in [1, 2, 4, 1000, u64::MAX] {
        assert_eq!(root.page(&top, (cookie, [0; 8]), 9).unwrap_err(), Error::BadCookie, "{cookie}");
    }
    assert_eq!(root.page(&top, (3, *b"verifier"), 9).unwrap_err(), Error::BadCookie);
    assert!(root.page(&top, (3, [0; 8]), 9).unwrap().entries.is_empty());
}

#[test]
fn access_times_are_relative() {
    const DAY_S: i64 = 24 * 60 * 60;
    let files = MemFs::new(&MemOptions::default());
    let at =
        |seconds| vfs::Context::new(Arc::new(Credentials::root()), Timestamp { seconds, nanoseconds: 0 });
    let file = files.create(&at(10), &files.root(), b"f", &GUARDED, &SetAttributes::default()).now().unwrap();
    let read = |seconds| {
        let request =
            vfs::ReadRequest { offset: 0, count: 1, may_splice: false, authority: Authority::Caller };
        let mut into = bytes::BytesMut::new();
        let reported = files.read(&at(seconds), &file.handle, request, &mut into).now().unwrap().attributes;
        assert_eq!(reported, files.getattr(&at(seconds), &file.handle).now().unwrap());
        assert_eq!(reported.change, file.attributes.change, "an access is not a change");
        reported.accessed.seconds
    };
    assert_eq!(read(20), 20, "older than the last change");
    assert_eq!(read(30), 20, "newer than it");
    assert_eq!(read(19 + DAY_S), 20, "not a day old");
    assert_eq!(read(20 + DAY_S), 20 + DAY_S, "a day old");
}
