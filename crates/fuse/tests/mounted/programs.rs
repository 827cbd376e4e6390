//! Ordinary programs on a mount, and the life of a mount.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use fuse::mount::{MountError, Options, mount, set_read_ahead, unmount};
use fuse::{NodeId, Session};

use super::memory::MemoryFs;
use super::support::{Mounted, Place, await_that, can_mount, config};

#[test]
fn files_are_listed_copied_renamed_and_removed() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(MemoryFs::new());
    let text = mounted.sh(
        "mkdir -p a/b; echo hello > a/b/file; cp a/b/file a/copy; mv a/copy moved; ln -s a/b link; ln moved hard
         cat moved link/file; ls a a/b; stat -c %h moved; readlink link; touch -d @86400 moved; stat -c %Y moved
         chmod 600 moved; stat -c %a hard; rm hard; rm -r a; ls",
    );
    assert_eq!(text, "hello\nhello\na:\nb\n\na/b:\nfile\n2\na/b\n86400\n600\nlink\nmoved\n");
    assert_eq!(
        mounted.sh("i=0; while [ $i -lt 500 ]; do : > f$i; i=$((i+1)); done; ls | wc -l").trim(),
        "502"
    );
    mounted.end();
}

#[test]
fn extended_attributes_allocation_and_seeks_work() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(MemoryFs::new());
    let path = mounted.path("file");
    std::fs::write(&path, "data").expect("a file");
    rustix::fs::setxattr(&path, "user.a", b"value", rustix::fs::XattrFlags::empty()).expect("xattrs");
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&path, "user.a", &mut value[..]).expect("the attribute");
    assert_eq!(&value[..length], b"value");
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..2]), Err(fuse::Errno::RANGE));
    let length = rustix::fs::listxattr(&path, &mut value[..]).expect("names");
    assert_eq!(&value[..length], b"user.a\0");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("the file");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 100).expect("space");
    assert_eq!(file.metadata().expect("attributes").len(), 100);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(4)), Ok(100));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(4)), Ok(4));
    let other = std::fs::File::create(mounted.path("other")).expect("a file");
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 0), &other, Some(&mut 0), 4);
    assert_eq!(copied, Ok(4));
    assert_eq!(std::fs::read(mounted.path("other")).expect("the copy"), b"data");
    drop((file, other));
    mounted.end();
}

#[test]
fn a_shared_mapping_is_written_back() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(MemoryFs::new());
    let path = mounted.path("mapped");
    std::fs::write(&path, vec![b'a'; 10_000]).expect("a file");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("the file");
    // SAFETY: nothing else truncates the file.
    let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.expect("a mapping");
    assert_eq!(map[9_999], b'a');
    map[5000..5003].copy_from_slice(b"xyz");
    map.flush().expect("written back");
    drop((map, file));
    assert_eq!(&std::fs::read(&path).expect("the file")[4999..5004], b"axyza");
    mounted.end();
}

#[test]
fn git_commits_and_checks() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(MemoryFs::new());
    let text =
        mounted.sh("git init -q repo; cd repo; git config user.name t; git config user.email t@example.org
         for i in 1 2 3; do echo $i > f$i; git add .; git commit -q -m c$i; done
         git gc -q; git fsck --strict; git log --oneline | wc -l; git status --short | wc -l");
    assert!(text.lines().rev().take(2).all(|line| ["3", "0"].contains(&line.trim())), "{text}");
    mounted.end();
}

#[test]
fn requests_have_one_mebibyte() {
    if !can_mount() {
        return;
    }
    let files = MemoryFs::new();
    let mounted = Mounted::new(files.clone());
    mounted.sh("dd if=/dev/zero of=f bs=1M count=4 status=none");
    assert_eq!(files.state().largest_write, 1 << 20);
    mounted.sh("dd if=f of=/dev/null bs=1M iflag=direct status=none");
    assert_eq!(files.state().largest_read, 1 << 20);
    files.state().largest_read = 0;
    set_read_ahead(&mounted.place.path, 1024).expect("root may");
    mounted.serving().notifier().invalidate_inode(NodeId(2), 0, 0).expect("an inode that the kernel knows");
    mounted.sh("dd if=f of=/dev/null bs=1M status=none");
    assert_eq!(files.state().largest_read, 1 << 20);
    mounted.end();
}

#[test]
fn several_workers_serve() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(MemoryFs::new());
    mounted.sh("for i in 1 2 3 4 5 6 7 8; do (j=0; while [ $j -lt 50 ]; do echo x > f$i; cat f$i; j=$((j+1)); done) & done; wait");
    let requests = mounted.serving().requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|count| *count > 0), "{requests:?}");
    mounted.end();
}

#[test]
fn a_lock_is_waited_for_by_another_process() {
    if !can_mount() {
        return;
    }
    let files = MemoryFs::new();
    let mounted = Mounted::new(files.clone());
    let flock = |arguments: &[&str]| {
        let mut command = Command::new("flock");
        command.args(arguments).current_dir(&mounted.place.path).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("flock of util-linux")
    };
    let mut first = flock(&["lock", "-c", "echo held; read x"]);
    let mut line = String::new();
    BufReader::new(first.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "held\n");
    assert_eq!(flock(&["-n", "lock", "true"]).wait().expect("a child").code(), Some(1));
    let second = flock(&["lock", "-c", "echo got"]);
    await_that("the second process waits", || files.state().waiting.len() == 1);
    first.stdin.take().expect("a pipe").write_all(b"\n").expect("a reader");
    assert_eq!(second.wait_with_output().expect("a child").stdout, b"got\n");
    first.wait().expect("a child");
    mounted.end();
}

#[test]
fn caches_are_invalidated() {
    if !can_mount() {
        return;
    }
    let files = MemoryFs::new();
    let mounted = Mounted::new(files.clone());
    let path = mounted.path("f");
    std::fs::write(&path, "one").expect("a file");
    assert_eq!(std::fs::read(&path).expect("the file"), b"one");
    let notifier = mounted.serving().notifier();
    notifier.invalidate_entry(NodeId::ROOT, b"f").expect("a cached name");
    notifier.expire_entry(NodeId::ROOT, b"unknown").expect("no error for an unknown name");
    notifier.invalidate_inode(NodeId(1_000_000), 0, 0).expect("no error for an unknown inode");
    let node = NodeId(std::fs::metadata(&path).expect("the file").ino());
    let forgotten = files.state().forgotten;
    match notifier.prune(&[node, NodeId(1_000_000)]) {
        Ok(()) => await_that("an unused inode is forgotten", || files.state().forgotten > forgotten),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "Linux before 6.18"),
    }
    assert_eq!(std::fs::read(&path).expect("the file"), b"one");
    // The kernel forgets the lookup when the name and the inode have gone from its caches.
    let forgotten = files.state().forgotten;
    std::fs::remove_file(&path).expect("the file");
    await_that("the inode is forgotten", || files.state().forgotten > forgotten);
    assert!(notifier.invalidate_entry(NodeId::ROOT, b"").is_err());
    mounted.end();
}

#[test]
fn an_inode_without_name_is_forgotten_when_no_program_uses_it() {
    if !can_mount() {
        return;
    }
    let files = MemoryFs::new();
    let mounted = Mounted::new(files.clone());
    let used = std::fs::File::create(mounted.path("used")).expect("a file");
    std::fs::write(mounted.path("unused"), "").expect("a file");
    let notifier = mounted.serving().notifier();
    notifier.invalidate_entry(NodeId::ROOT, b"used").expect("a cached name");
    assert_eq!(files.state().forgotten, 0);
    notifier.invalidate_entry(NodeId::ROOT, b"unused").expect("a cached name");
    await_that("the unused inode is forgotten", || files.state().forgotten > 0);
    let forgotten = files.state().forgotten;
    assert_eq!(used.metadata().expect("attributes").len(), 0);
    drop(used);
    await_that("the closed inode is forgotten", || files.state().forgotten > forgotten);
    mounted.end();
}

#[test]
fn umount_ends_the_session() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(MemoryFs::new());
    mounted.sh("echo x > f");
    let status = Command::new("umount").arg(&mounted.place.path).status().expect("umount");
    assert!(status.success());
    mounted.serving.take().expect("a session").wait().expect("no error of the device");
    assert_eq!(std::fs::read_dir(&mounted.place.path).expect("the directory below").count(), 0);
}

#[test]
fn a_mount_in_use_is_busy_until_it_is_detached() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(MemoryFs::new());
    let file = std::fs::File::create(mounted.path("f")).expect("a file");
    let error = unmount(&mounted.place.path, false).expect_err("an open file");
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    unmount(&mounted.place.path, true).expect("a mount");
    drop(file);
    mounted.serving.take().expect("a session").wait().expect("no error of the device");
}

#[test]
fn a_second_mount_is_refused() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(MemoryFs::new());
    let error = mount(&mounted.place.path, &Options::default()).expect_err("a mount");
    assert!(matches!(error, MountError::Mounted(_)), "{error}");
    mounted.end();
}

#[test]
fn a_mount_without_process_can_be_unmounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let session = Session::new(place.mount(), &config()).expect("a session");
    drop(session);
    let error = std::fs::read_dir(&place.path).expect_err("no process");
    assert_eq!(error.raw_os_error(), Some(fuse::Errno::NOTCONN.raw_os_error()));
    let error = mount(&place.path, &Options::default()).expect_err("a dead mount");
    assert!(matches!(error, MountError::Dead(_)), "{error}");
    unmount(&place.path, false).expect("a dead mount");
    drop(place.mount());
}
