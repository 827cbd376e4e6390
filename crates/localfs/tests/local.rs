//! Situations that only a local file system has: local processes, mount points, ACLs, many users, few descriptors.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use bytes::Bytes;
use common::{Fixture, answer, has_powers, me, mode, user};
use localfs::Durability;
use vfs::{
    Access, Authority, Backend, Context, Create, CreateMode, Error, OpenAccess, Removal, SetAttributes,
    Stability,
};

const GUARDED: Create = Create::File(CreateMode::Guarded);

/// Runs a program as root, outside the export.
fn run(program: &str, arguments: &[&str]) -> bool {
    localfs::become_server();
    Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

#[test]
fn a_local_rename_keeps_the_handle_and_a_local_removal_makes_it_stale() {
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    std::fs::rename(fixture.path("a"), fixture.path("b")).expect("rename");
    assert_eq!(fixture.getattr(&file).expect("there").links, 1);
    std::fs::remove_file(fixture.path("b")).expect("remove");
    assert_eq!(fixture.getattr(&file).err(), Some(Error::Stale));
    assert_eq!(fixture.read(&me(), &file).err(), Some(Error::Stale));
}

#[test]
fn a_directory_removed_locally_is_stale_for_lookups_too() {
    let fixture = Fixture::new();
    let directory = fixture.make(&me(), &fixture.fs().root(), "d", &Create::Directory, 0o755).expect("mkdir");
    std::fs::remove_dir(fixture.path("d")).expect("rmdir");
    assert_eq!(fixture.lookup(&me(), &directory, "f"), Err(Error::Stale));
    assert_eq!(fixture.make(&me(), &directory, "f", &GUARDED, 0o600), Err(Error::Stale));
}

#[test]
fn with_an_index_a_local_rename_in_the_directory_is_found_after_a_restart() {
    let mut fixture = Fixture::with(|config| localfs::Config { always_use_index: true, ..config });
    let root = fixture.fs().root();
    let directory = fixture.make(&me(), &root, "d", &Create::Directory, 0o755).expect("mkdir");
    let file = fixture.make(&me(), &directory, "a", &GUARDED, 0o600).expect("create");
    let other = fixture.make(&me(), &directory, "other", &GUARDED, 0o600).expect("create");
    fixture.write(&me(), &file, b"mine", Stability::Unstable).expect("write");
    fixture.volume = None;
    std::fs::rename(fixture.path("d"), fixture.path("renamed")).expect("rename");
    std::fs::rename(fixture.path("renamed/a"), fixture.path("renamed/b")).expect("rename");
    // Another file gets the old name, and must not be mistaken for the first.
    std::fs::write(fixture.path("renamed/a"), b"not mine").expect("write");
    std::fs::remove_file(fixture.path("renamed/other")).expect("remove");
    fixture.restart();
    assert!(fixture.fs().uses_index());
    assert_eq!(fixture.read(&me(), &file).expect("found"), b"mine");
    assert_eq!(fixture.getattr(&other).err(), Some(Error::Stale));
    assert_eq!(fixture.lookup(&me(), &directory, "b"), Ok(file));
}

/// Directories above each other: their path is longer than `PATH_MAX`.
const DEPTH: usize = 1000;
const LONG_NAME: &str = "a directory with a long name";

/// Removes a chain of directories whose path is too long for system calls.
fn remove_chain(fixture: &Fixture) {
    let (top, next) = (fixture.path(LONG_NAME), fixture.path("next"));
    while std::fs::rename(top.join(LONG_NAME), &next).is_ok() {
        std::fs::remove_dir_all(&top).expect("remove");
        std::fs::rename(&next, &top).expect("rename");
    }
}

#[test]
fn with_an_index_a_file_below_a_thousand_directories_is_found_after_a_restart() {
    // A file system in memory never waits for a disk; deep directories are opened on the pool anyway.
    let indexed = |config| localfs::Config { always_use_index: true, max_open_files: Some(64), ..config };
    let mut fixture = Fixture::with(indexed);
    let mut directory = fixture.fs().root();
    let mut ways = Vec::new();
    for _ in 0..DEPTH {
        directory = fixture.make(&me(), &directory, LONG_NAME, &Create::Directory, 0o755).expect("mkdir");
        ways.push(directory);
    }
    let file = fixture.make(&me(), &directory, "file", &GUARDED, 0o600).expect("create");
    fixture.write(&me(), &file, b"deep", Stability::Unstable).expect("write");
    fixture.restart();
    assert_eq!(fixture.read(&me(), &file).expect("found"), b"deep");
    assert_eq!(fixture.lookup(&me(), &directory, "file"), Ok(file));
    // Also each from the exported directory.
    for at in [DEPTH - 1, 300, 256, 0] {
        fixture.restart();
        fixture.getattr(&ways[at]).expect("found");
    }
    fixture.volume = None;
    std::fs::rename(fixture.path(LONG_NAME), fixture.path("elsewhere")).expect("rename");
    fixture.restart();
    assert_eq!(fixture.read(&me(), &file).expect("renamed at the top"), b"deep");
    fixture.volume = None;
    std::fs::rename(fixture.path("elsewhere"), fixture.path(LONG_NAME)).expect("rename");
    remove_chain(&fixture);
}

#[test]
fn with_an_index_directories_moved_into_each_other_are_stale() {
    let mut fixture = Fixture::with(|config| localfs::Config { always_use_index: true, ..config });
    let root = fixture.fs().root();
    let outer = fixture.make(&me(), &root, "outer", &Create::Directory, 0o755).expect("mkdir");
    let inner = fixture.make(&me(), &outer, "inner", &Create::Directory, 0o755).expect("mkdir");
    // The index has seen `inner` below `outer`, and later `outer` below `inner`.
    std::fs::rename(fixture.path("outer/inner"), fixture.path("inner")).expect("rename");
    std::fs::rename(fixture.path("outer"), fixture.path("inner/outer")).expect("rename");
    assert_eq!(fixture.lookup(&me(), &inner, "outer"), Ok(outer));
    fixture.restart();
    assert_eq!(fixture.getattr(&inner).err(), Some(Error::Stale));
    assert_eq!(fixture.lookup(&me(), &fixture.fs().root(), "inner"), Ok(inner), "seen again");
    fixture.getattr(&outer).expect("below it");
}

#[test]
fn with_an_index_a_reused_inode_number_is_another_file() {
    let mut fixture = Fixture::with(|config| localfs::Config { always_use_index: true, ..config });
    let old = fixture.file(&me(), "old", 0o600);
    let number = fixture.getattr(&old).expect("there").fileid;
    fixture.volume = None;
    std::fs::remove_file(fixture.path("old")).expect("remove");
    // The file system decides whether it reuses the number; with this many attempts it mostly does.
    let reused = (0..4000).any(|round| {
        std::fs::write(fixture.path("old"), b"new").expect("write");
        let is_same = std::fs::metadata(fixture.path("old")).expect("there").ino() == number;
        if !is_same {
            std::fs::rename(fixture.path("old"), fixture.path(&format!("kept-{round}"))).expect("rename");
        }
        is_same
    });
    println!("inode number reused: {reused}");
    fixture.restart();
    assert_eq!(fixture.getattr(&old).err(), Some(Error::Stale));
}

#[test]
fn local_changes_move_the_change_attribute() {
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    let mut last = fixture.getattr(&file).expect("there").change;
    for round in 0..300 {
        // The same size and, on a coarse clock, the same time.
        std::fs::write(fixture.path("a"), format!("{round:04}")).expect("write");
        let mut now = fixture.getattr(&file).expect("there").change;
        for _ in 0..1000 {
            if now > last {
                break;
            }
            // A coarse clock may show it when its tick is over, and a stalled machine has long ticks.
            std::thread::sleep(std::time::Duration::from_millis(20));
            now = fixture.getattr(&file).expect("there").change;
        }
        assert!(now > last, "round {round}: from {last} to {now}");
        last = now;
    }
}

#[test]
fn symlinks_out_of_the_export_are_not_followed() {
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    std::fs::write(fixture.outside().join("secret"), b"secret").expect("write");
    symlink(fixture.outside(), fixture.path("out")).expect("symlink");
    symlink(fixture.outside().join("secret"), fixture.path("file")).expect("symlink");
    let out = fixture.lookup(&me(), &root, "out").expect("the link itself");
    assert_eq!(fixture.lookup(&me(), &out, "secret"), Err(Error::NotDirectory));
    assert_eq!(fixture.make(&me(), &out, "x", &GUARDED, 0o600), Err(Error::NotDirectory));
    let file = fixture.lookup(&me(), &root, "file").expect("the link itself");
    assert!(fixture.read(&me(), &file).is_err());
    assert_eq!(
        fixture.make(&me(), &root, "file", &Create::File(CreateMode::Unchecked), 0o600),
        Err(Error::IsSymlink)
    );
    assert_eq!(fixture.lookup(&me(), &root, ".."), Err(Error::BadName));
}

#[test]
fn the_parent_of_a_directory_moved_out_of_the_export_is_stale() {
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let inner = fixture.make(&me(), &root, "d", &Create::Directory, 0o755).expect("mkdir");
    let found = fixture.wait(fixture.fs().parent(&me(), &inner)).expect("parent");
    assert_eq!(found.handle, root);
    assert_eq!(fixture.wait(fixture.fs().parent(&me(), &root)).err(), Some(Error::NotFound));
    std::fs::rename(fixture.path("d"), fixture.outside().join("d")).expect("rename");
    let above = fixture.wait(fixture.fs().parent(&me(), &inner));
    if fixture.fs().uses_index() {
        assert_eq!(above.expect("where it was").handle, root);
    } else {
        assert_eq!(above.err(), Some(Error::Stale));
    }
}

#[test]
fn a_mount_point_inside_is_listed_and_not_entered() {
    if !has_powers() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let below = fixture.make(&me(), &root, "m", &Create::Directory, 0o755).expect("mkdir");
    let (top, path) = (fixture.path(""), fixture.path("m"));
    let (top, path) = (top.to_str().expect("a plain path"), path.to_str().expect("a plain path"));
    for what in [&["-t", "tmpfs", "tmpfs"][..], &["--bind", top]] {
        if !run("mount", &[what, &[path]].concat()) {
            println!("skipped: cannot mount here");
            return;
        }
        // It exists already if it is the same file system.
        let _ = std::fs::create_dir(fixture.path("m/m"));
        let seen = [(); 2].map(|()| (fixture.lookup(&me(), &root, "m"), fixture.list(&me(), &root)));
        let inside = fixture.lookup(&me(), &below, "m");
        assert!(run("umount", &[path]));
        assert_eq!(seen, [(); 2].map(|()| (Err(Error::Access), Ok(vec![(String::from("m"), None)]))));
        assert_eq!(inside, Err(Error::NotFound), "the handle means the directory below the mount");
    }
}

#[test]
fn a_mount_point_of_a_file_system_without_handles_is_not_entered_either() {
    if !has_powers() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    fixture.make(&me(), &root, "m", &Create::Directory, 0o755).expect("mkdir");
    let path = fixture.path("m");
    let path = path.to_str().expect("a plain path");
    // proc has no handles that can be opened.
    if !run("mount", &["-t", "proc", "proc", path]) {
        println!("skipped: cannot mount here");
        return;
    }
    let looked_up = fixture.lookup(&me(), &root, "m");
    let removed = fixture.wait(fixture.fs().remove(&me(), &root, b"m", Removal::Directory));
    assert!(run("umount", &[path]));
    assert_eq!(looked_up, Err(Error::Access));
    assert_eq!(removed.err(), Some(Error::Busy));
}

#[test]
fn an_open_beside_a_removal_gets_the_file_or_an_error_but_no_stale_handle() {
    let fixture = Fixture::new();
    let (root, access) = (fixture.fs().root(), OpenAccess { read: true, write: true });
    for round in 0..300 {
        let file = fixture.file(&me(), "f", 0o600);
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| {
                both.wait();
                answer(fixture.fs().remove(&me(), &root, b"f", Removal::File)).expect("removed");
            });
            both.wait();
            let opened = answer(fixture.fs().open(&me(), &file, access, Authority::Caller));
            removal.join().expect("removal");
            match opened {
                Ok(_pin) => assert_eq!(fixture.getattr(&file).expect("an open keeps it").links, 0, "{round}"),
                Err(error) => assert_eq!(error, Error::Stale),
            }
            assert_eq!(fixture.getattr(&file).err(), Some(Error::Stale), "given up in round {round}");
        });
    }
}

#[test]
fn an_acl_decides_for_cached_descriptors_too() {
    if !has_powers() || !run("setfacl", &["--version"]) {
        println!("skipped: needs setfacl");
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.path("a");
    let file = fixture.file(&me(), "a", 0o640);
    fixture.write(&me(), &file, b"data", Stability::Unstable).expect("write");
    let (named, masked, member, other) =
        (user(2001, &[]), user(2002, &[]), user(2003, &[77]), user(2004, &[]));
    // Cached, and so far checked by mode bits.
    assert_eq!(fixture.read(&named, &file).err(), Some(Error::Access));
    let acl = "u:2001:rw,u:2002:rw,g:77:r";
    if !run("setfacl", &["-m", acl, path.to_str().expect("path")]) {
        println!("skipped: this file system has no ACLs");
        return;
    }
    assert_eq!(fixture.read(&named, &file).expect("named"), b"data");
    assert_eq!(fixture.write(&named, &file, b"DATA", Stability::Unstable), Ok(4));
    assert_eq!(fixture.read(&member, &file).expect("member"), b"DATA");
    assert_eq!(fixture.write(&member, &file, b"x", Stability::Unstable), Err(Error::Access));
    assert_eq!(fixture.read(&other, &file).err(), Some(Error::Access));
    let (granted, _) = fixture.wait(fixture.fs().access(&masked, &file, Access::all())).expect("access");
    assert!(granted.contains(Access::READ | Access::MODIFY));
    assert!(run("setfacl", &["-m", "m::r", path.to_str().expect("path")]));
    assert_eq!(
        fixture.write(&masked, &file, b"x", Stability::Unstable),
        Err(Error::Access),
        "the mask limits it"
    );
    assert!(run("setfacl", &["-b", path.to_str().expect("path")]));
    assert_eq!(fixture.read(&named, &file).err(), Some(Error::Access));
}

#[test]
fn an_immutable_flag_applies_to_the_next_request() {
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "immutable", 0o666);
    let write = || fixture.write(&me(), &file, b"data", Stability::Unstable).map(drop);
    let path = fixture.path("immutable");
    let path = path.to_str().expect("UTF-8");
    for (seal, unseal) in [("+i", "-i"), ("+a", "-a")] {
        // Twice, so that the second uses data that the first cached.
        assert_eq!((write(), write()), (Ok(()), Ok(())));
        if !run("chattr", &[seal, path]) {
            println!("skipped: files cannot be immutable here");
            return;
        }
        let answers = (write(), write(), fixture.getattr(&file).map(|attributes| attributes.mode), write());
        assert!(run("chattr", &[unseal, path]));
        let refused = Err(Error::NotPermitted);
        assert_eq!(answers, (refused, refused, Ok(0o666), refused), "{seal}");
    }
    assert_eq!(write(), Ok(()));
}

#[test]
fn users_in_turn_get_their_own_rights_and_files() {
    if !has_powers() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    std::fs::set_permissions(&fixture.config.directory, std::fs::Permissions::from_mode(0o777))
        .expect("chmod");
    let users: Vec<Context> = (0..8).map(|number| user(3000 + number, &[500 + number, 9])).collect();
    let files: Vec<_> = users
        .iter()
        .enumerate()
        .map(|(number, context)| {
            fixture.make(context, &root, &format!("f{number}"), &GUARDED, 0o600).expect("create")
        })
        .collect();
    for round in 0..200 {
        let (mine, theirs) = (round % 8, (round * 5 + 3) % 8);
        let file = fixture.getattr(&files[mine]).expect("there");
        assert_eq!((file.uid, file.gid), (3000 + mine as u32, 3000 + mine as u32));
        assert_eq!(fixture.write(&users[mine], &files[mine], b"x", Stability::Unstable), Ok(1));
        if mine != theirs {
            assert_eq!(
                fixture.write(&users[mine], &files[theirs], b"y", Stability::Unstable),
                Err(Error::Access)
            );
            assert_eq!(fixture.read(&users[mine], &files[theirs]).err(), Some(Error::Access));
        }
    }
}

#[test]
fn many_threads_with_many_users_never_mix_them_up() {
    if !has_powers() {
        return;
    }
    let fixture = Fixture::new();
    std::fs::set_permissions(&fixture.config.directory, std::fs::Permissions::from_mode(0o777))
        .expect("chmod");
    let volume = fixture.fs().clone();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let volume = volume.clone();
            scope.spawn(move || {
                let root = volume.root();
                for round in 0..300_u32 {
                    let context = user(4000 + (round + thread) % 5, &[round % 3]);
                    let name = format!("t{thread}-{round}");
                    let set = mode(0o600);
                    let made = volume.create(&context, &root, name.as_bytes(), &GUARDED, &set);
                    let made = answer(made).expect("create");
                    assert_eq!(made.attributes.uid, context.credentials.uid);
                    answer(volume.remove(&context, &root, name.as_bytes(), Removal::File)).expect("remove");
                }
            });
        }
    });
}

#[test]
fn few_descriptors_serve_many_files() {
    let fixture = Fixture::with(|config| localfs::Config { max_open_files: Some(16), ..config });
    let context = me();
    let files: Vec<_> = (0..200).map(|number| fixture.file(&context, &format!("f{number}"), 0o600)).collect();
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let before = open();
    for round in 0..3_u8 {
        for (number, file) in files.iter().enumerate() {
            let text = format!("{round} {number}");
            fixture.write(&context, file, text.as_bytes(), Stability::Unstable).expect("write");
            assert_eq!(fixture.read(&context, file).expect("read"), text.as_bytes());
        }
    }
    // Other tests run in this process too; without the bound there would be two hundred more.
    assert!(open() < before + 120, "{} descriptors, {before} before", open());
}

#[test]
fn too_many_dirty_files_go_to_the_device_at_once() {
    let fixture = Fixture::with(|config| localfs::Config {
        max_open_files: Some(16),
        durability: Durability::Sync,
        ..config
    });
    let context = me();
    let files: Vec<_> = (0..40).map(|number| fixture.file(&context, &format!("f{number}"), 0o600)).collect();
    let data = Bytes::from_static(b"data");
    let write = |file| {
        let written = fixture.wait(fixture.fs().write(
            &context,
            file,
            0,
            &data,
            Stability::Unstable,
            Authority::Caller,
        ));
        written.expect("write").stability
    };
    let stabilities: Vec<_> = files.iter().map(write).collect();
    assert_eq!(stabilities[0], Stability::Unstable);
    if common::is_in_memory(&fixture.config.directory) {
        println!("skipped: no file in memory is ever dirty");
        return;
    }
    assert_eq!(
        stabilities[39],
        Stability::DataSync,
        "no more than half of the descriptors are held by dirty files"
    );
}

#[test]
fn a_file_written_here_can_be_executed_locally_soon_after() {
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "true", 0o755);
    let program = std::fs::read("/bin/true").expect("a program");
    fixture.write(&me(), &file, &program, Stability::Unstable).expect("write");
    fixture.wait(fixture.fs().commit(&me(), &file, 0, 0)).expect("commit");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match Command::new(fixture.path("true")).status() {
            Ok(status) => break assert!(status.success()),
            // ETXTBSY: still open for writing.
            Err(error) => assert_eq!(error.raw_os_error(), Some(26), "{error}"),
        }
        assert!(std::time::Instant::now() < deadline, "the descriptor is never released");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // And written again afterwards.
    assert_eq!(fixture.write(&me(), &file, b"#!", Stability::Unstable), Ok(2));
}

#[test]
fn an_open_keeps_content_whose_name_a_local_process_removed() {
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    fixture.write(&me(), &file, b"kept", Stability::Unstable).expect("write");
    let access = OpenAccess { read: true, write: false };
    let opened = fixture.wait(fixture.fs().open(&me(), &file, access, Authority::Caller)).expect("open");
    std::fs::remove_file(fixture.path("a")).expect("remove");
    assert_eq!(fixture.read(&me(), &file).expect("still there"), b"kept");
    drop(opened);
    assert_eq!(fixture.read(&me(), &file).err(), Some(Error::Stale));
}

#[test]
fn special_files_are_never_opened() {
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let pipe = fixture.make(&me(), &root, "pipe", &Create::Fifo, 0o600).expect("mkfifo");
    // Opening a pipe without a writer would block forever.
    assert_eq!(fixture.read(&me(), &pipe).err(), Some(Error::WrongKind));
    assert_eq!(fixture.write(&me(), &pipe, b"x", Stability::Unstable), Err(Error::WrongKind));
    let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    let changed =
        fixture.wait(fixture.fs().setattr(&me(), &pipe, &set, None, Authority::Caller)).expect("chmod");
    assert_eq!(changed.after.mode, 0o640);
}

#[test]
fn the_identity_is_the_directorys_not_the_paths() {
    let mut fixture = Fixture::new();
    let identity = fixture.fs().identity();
    let file = fixture.file(&me(), "a", 0o600);
    fixture.volume = None;
    let moved = fixture.outside().join("moved");
    std::fs::rename(&fixture.config.directory, &moved).expect("rename");
    fixture.config.directory = moved;
    fixture.restart();
    assert_eq!(fixture.fs().identity(), identity);
    assert_eq!(fixture.getattr(&file).expect("there").kind, vfs::FileKind::Regular);
    let other = Fixture::new();
    assert_ne!(other.fs().identity(), identity);
}

#[test]
fn exclusive_verifiers_are_not_visible_to_clients() {
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let exclusive = Create::File(CreateMode::Exclusive(*b"verifier"));
    let file = fixture.make(&me(), &root, "a", &exclusive, 0o600).expect("create");
    assert_eq!(fixture.wait(fixture.fs().list_xattrs(&me(), &file)), Ok(Vec::new()));
    let name = b"enfys.create_verifier";
    assert_eq!(fixture.wait(fixture.fs().get_xattr(&me(), &file, name)), Err(Error::NoXattr));
    assert_eq!(fixture.wait(fixture.fs().remove_xattr(&me(), &file, name)).err(), Some(Error::NotPermitted));
    if !fixture.fs().properties().xattrs {
        println!("skipped: the verifier is kept in the times, which a SETATTR replaces");
        return;
    }
    // A SETATTR of times, as clients send after an exclusive create, does not make it another file.
    let now = SetAttributes { modified: Some(vfs::SetTime::Now), ..SetAttributes::default() };
    fixture.wait(fixture.fs().setattr(&me(), &file, &now, None, Authority::Caller)).expect("setattr");
    assert_eq!(fixture.make(&me(), &root, "a", &exclusive, 0o600), Ok(file));
}

#[test]
fn an_exclusive_create_reports_a_verifier_in_times() {
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let exclusive = Create::File(CreateMode::Exclusive([0, 0, 1, 0, 0, 0, 0, 2]));
    let set = mode(0o600);
    // The retransmission gets the same answer.
    for _ in 0..2 {
        let created =
            fixture.wait(fixture.fs().create(&me(), &root, b"a", &exclusive, &set)).expect("create");
        assert_eq!(created.verifier_in_times, !fixture.fs().properties().xattrs);
        let times = (created.attributes.accessed.seconds, created.attributes.modified.seconds);
        assert_eq!(created.verifier_in_times, times == (256, 2));
    }
}

/// ramfs has no user attributes.
#[test]
fn an_exclusive_create_without_extended_attributes_reports_it() {
    common::again_mounted(&["-t", "ramfs", "ramfs"], &["an_exclusive_create_reports_a_verifier_in_times"]);
}

#[test]
fn times_of_a_file_with_content_are_no_verifier() {
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let file = fixture.file(&me(), "a", 0o600);
    fixture.write(&me(), &file, b"content", Stability::FileSync).expect("write");
    let second = |seconds| Some(vfs::SetTime::To(vfs::Timestamp { seconds, nanoseconds: 0 }));
    let times = SetAttributes { accessed: second(1), modified: second(2), ..SetAttributes::default() };
    fixture.wait(fixture.fs().setattr(&me(), &file, &times, None, Authority::Caller)).expect("setattr");
    let exclusive = Create::File(CreateMode::Exclusive([0, 0, 0, 1, 0, 0, 0, 2]));
    assert_eq!(fixture.make(&me(), &root, "a", &exclusive, 0o600), Err(Error::Exists));
}

#[test]
fn the_error_of_an_unreadable_directory_names_it_in_one_line() {
    let config = localfs::Config::new("/nonexistent/export");
    let error = localfs::LocalFs::open(&config).expect_err("no such directory").to_string();
    assert!(error.contains("/nonexistent/export") && !error.contains('\n'), "{error}");
}

#[test]
fn the_error_of_a_missing_state_directory_names_the_export() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let config = localfs::Config { always_use_index: true, ..localfs::Config::new(directory.path()) };
    let error = localfs::LocalFs::open(&config).expect_err("no directory for it").to_string();
    assert!(error.contains("state directory"), "{error}");
}

#[test]
fn a_thousand_entries_are_listed_once_while_local_processes_come_and_go() {
    let fixture = Fixture::new();
    for number in 0..1000 {
        std::fs::write(fixture.path(&format!("stay-{number}")), b"").expect("write");
    }
    let root = fixture.fs().root();
    let mut seen = Vec::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let mut left = 7;
        let request = vfs::ReadDir { cookie, verifier: [0; 8], plus: false };
        let mut visit = |entry: vfs::Entry<'_>| {
            if left == 0 {
                return std::ops::ControlFlow::Break(());
            }
            left -= 1;
            seen.push(String::from_utf8_lossy(entry.name).into_owned());
            cookie = entry.cookie;
            std::ops::ControlFlow::Continue(())
        };
        let context = me();
        let end = fixture.wait(fixture.fs().readdir(&context, &root, request, &mut visit)).expect("readdir");
        if end.eof {
            break;
        }
        round += 1;
        std::fs::write(fixture.path(&format!("come-{round}")), b"").expect("write");
        let _ = std::fs::remove_file(fixture.path(&format!("come-{}", round / 2)));
    }
    seen.retain(|name| name.starts_with("stay"));
    seen.sort();
    let mut all: Vec<_> = (0..1000).map(|number| format!("stay-{number}")).collect();
    all.sort();
    assert_eq!(seen, all);
}

#[test]
fn a_listed_handle_and_its_attributes_match_while_names_change() {
    let fixture = Fixture::new();
    let [a, b, aside] = ["a", "b", "aside"].map(|name| fixture.path(name));
    let files = ["a", "b"].map(|name| fixture.file(&me(), name, 0o600));
    let files = files.map(|file| (file, fixture.getattr(&file).expect("there").fileid));
    let root = fixture.fs().root();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    // Checked at the end: an earlier panic would wait for the other thread.
    let mut mixed = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for (from, to) in [(&a, &aside), (&b, &a), (&aside, &b)] {
                    std::fs::rename(from, to).expect("rename");
                }
            }
        });
        for _ in 0..5000 {
            let request = vfs::ReadDir { cookie: 0, verifier: [0; 8], plus: true };
            let mut visit = |entry: vfs::Entry<'_>| {
                if let Some((handle, attributes)) = entry.object {
                    mixed += u32::from(!files.contains(&(handle, attributes.fileid)));
                }
                std::ops::ControlFlow::Continue(())
            };
            fixture.wait(fixture.fs().readdir(&me(), &root, request, &mut visit)).expect("readdir");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(mixed, 0, "handles with another's attributes");
}

#[test]
fn a_write_by_another_user_clears_set_user_id() {
    if !has_powers() {
        return;
    }
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o4777);
    fixture.write(&me(), &file, b"root's", Stability::Unstable).expect("write");
    assert_eq!(fixture.getattr(&file).expect("there").mode, 0o4777, "root may keep it");
    fixture.write(&user(5000, &[]), &file, b"other", Stability::Unstable).expect("write");
    assert_eq!(fixture.getattr(&file).expect("there").mode, 0o777);
}

/// All of this in a process of an ordinary user without any capability.
#[test]
fn without_privileges() {
    common::again_without_privileges(&[]);
}

/// A file of a lower layer gets another inode when it is first changed; its handle stays.
#[test]
fn on_an_overlay_a_handle_survives_the_first_change() {
    if !has_powers() {
        return;
    }
    let layers = tempfile::tempdir().expect("temporary directory");
    for name in ["lower", "upper", "work", "top"] {
        std::fs::create_dir(layers.path().join(name)).expect("directory");
    }
    std::fs::write(layers.path().join("lower/f"), b"from below").expect("write");
    let path = |name: &str| layers.path().join(name).to_string_lossy().into_owned();
    let options = format!("lowerdir={},upperdir={},workdir={}", path("lower"), path("upper"), path("work"));
    if !run("mount", &["-t", "overlay", "overlay", "-o", &options, &path("top")]) {
        println!("skipped: cannot mount an overlay here");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let mut fixture = Fixture::with(|config| localfs::Config { directory: path("top").into(), ..config });
        let root = fixture.fs().root();
        let file = fixture.lookup(&me(), &root, "f").expect("lookup");
        assert_eq!(fixture.read(&me(), &file).expect("read"), b"from below");
        fixture.write(&me(), &file, b"FROM above", Stability::Unstable).expect("write");
        assert_eq!(fixture.read(&me(), &file).expect("read"), b"FROM above");
        assert_eq!(fixture.lookup(&me(), &root, "f"), Ok(file));
        fixture.restart();
        assert_eq!(fixture.read(&me(), &file).expect("found again"), b"FROM above");
        assert_eq!(fixture.lookup(&me(), &root, "f"), Ok(file));
    });
    assert!(run("umount", &[&path("top")]));
    assert!(outcome.is_ok());
}
