//! Ordinary programs on a mount. Their view is compared with the exported directory.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::stats::{count, stats};
use crate::support::{Mounted, Server, VERSIONS, await_that, can_mount, sh, shell};

/// The lease and grace period, in seconds, of servers that are killed: new opens and locks may wait for it.
const LEASE: u32 = 3;

#[test]
fn files_directories_and_links_of_the_mount_are_those_of_the_server() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        // Under a delegation, the server would get data and times later.
        let mounted = Mounted::new(&server, version, &["-o", "nodelegations"]);
        mounted.sh(
            "mkdir -p a/b/c; echo one > a/one; echo two >> a/one; ln a/one a/b/hard; ln -s ../one a/b/soft
             mkfifo a/pipe; mknod a/null c 1 3; truncate -s 12345 a/hole; chmod 640 a/one; chown 12:34 a/one
             touch -d '2001-02-03 04:05:06.789' a/one; echo x > gone; rm gone; mkdir d; rmdir d
             echo moved > m; mv m a/b/c/moved; echo old > r; echo new > s; mv s r",
        );
        let shown = "find . -printf '%P %y %m %U %G %n %s %T@ %l\\n' | sed '/^ /d' | sort | grep -v ' d '";
        // Times of version 2 have microseconds.
        let microseconds = format!("{shown} | sed 's/\\(\\.[0-9]\\{{6\\}}\\)[0-9]* /\\1 /'");
        let shown = if version == "2" { microseconds.as_str() } else { shown };
        assert_eq!(mounted.sh(shown), sh(&server.export(), shown), "{version}");
        assert_eq!(mounted.sh("cat a/one a/b/soft r"), "one\ntwo\none\ntwo\nnew\n");
        assert_eq!(mounted.sh("stat -c '%h %t %T' a/null"), "1 1 3\n");
        assert_eq!(mounted.sh("ls a/b/c; ls -a | head -2"), "moved\n.\n..\n");
        mounted.sh("rm -r a r");
        assert_eq!(sh(&server.export(), "ls -A"), "", "{version}");
        mounted.end();
    }
}

#[test]
fn a_large_file_is_read_as_it_was_written() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let mounted = Mounted::new(&server, version, &[]);
        let sum = sh(&server.export(), "head -c 60000000 /dev/urandom > ../data; sha256sum < ../data");
        let data = server.export().join("../data");
        mounted.sh(&format!("cp {} big; sync big", data.display()));
        assert_eq!(sh(&server.export(), "sha256sum < big"), sum, "{version}");
        mounted.end();
        // No page of the first mount remains.
        let mounted = Mounted::new(&server, version, &[]);
        assert_eq!(mounted.sh("sha256sum < big"), sum, "{version}");
        // Small writes at odd offsets.
        let odd =
            "dd if=/dev/urandom of=big bs=777 seek=1001 count=99 conv=notrunc status=none; sha256sum < big";
        let sum = mounted.sh(odd);
        mounted.send_all();
        assert_eq!(sum, sh(&server.export(), "sha256sum < big"), "{version}");
        mounted.end();
    }
}

#[test]
fn trees_are_packed_and_synchronized() {
    if !can_mount() {
        return;
    }
    if Command::new("rsync").arg("--version").output().is_err() {
        println!("skipped: needs rsync");
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let mounted = Mounted::new(&server, version, &[]);
        let tree = "mkdir tree; cd tree; for d in 1 2 3; do mkdir $d; for f in $(seq 60); do seq $f > $d/f$f; done; done
                    ln -s 1/f1 link; chmod 600 2/f2; touch -d 2010-01-01 3";
        let made = tempfile::tempdir().expect("a temporary directory");
        sh(made.path(), tree);
        let source = made.path().join("tree").display().to_string();
        mounted.sh(&format!(
            "mkdir t; tar -C {source} -cf - . | tar -C t -xpf -; diff -r --no-dereference {source} t"
        ));
        // tar compares modes, owners, times and content.
        mounted.sh(&format!(
            "tar -C {source} -cf - . | tar -C t -df -; tar -C t -cf - . | tar -C {source} -df -"
        ));
        mounted.sh(&format!("rsync -a {source}/ r/; rsync -anic {source}/ r/ | (! grep .)"));
        mounted.sh("cp -a t c; diff -r --no-dereference t c; rm -rf t r c");
        mounted.end();
    }
}

#[test]
fn rsync_continues_after_a_restart_of_the_server() {
    if !can_mount() {
        return;
    }
    let made = tempfile::tempdir().expect("a temporary directory");
    sh(
        made.path(),
        "for d in 1 2 3; do mkdir $d; for f in $(seq 100); do seq $f > $d/f$f; done; done; ln -s 1/f1 link",
    );
    let source = made.path().display();
    for version in VERSIONS {
        let mut server = Server::with_lease(LEASE);
        let mounted = Mounted::new(&server, version, &[]);
        let copying =
            shell(&mounted.path, &format!("rsync -a {source}/ r/")).spawn().expect("rsync is installed");
        await_that("rsync has begun", || server.export().join("r/1/f1").exists());
        server.restart_during(copying, version);
        mounted.sh(&format!("rsync -anic {source}/ r/ | (! grep .)"));
        mounted.send_all();
        sh(&server.export(), &format!("diff -r --no-dereference {source} r"));
        mounted.end();
    }
}

#[test]
fn sqlite_continues_after_a_restart_of_the_server() {
    if !can_mount() {
        return;
    }
    let write = |writer| {
        format!(
            "for n in $(seq 30); do echo \"INSERT INTO t VALUES ({writer}, $n, hex(randomblob(500)));\"; done |
             sqlite3 -bail -cmd '.timeout 60000' db; touch done{writer}"
        )
    };
    for version in VERSIONS {
        let mut server = Server::with_lease(LEASE);
        // Two clients, which both reclaim.
        let mounts = [(); 2].map(|()| Mounted::new(&server, version, &["-o", "noac"]));
        mounts[0].sh("sqlite3 db 'CREATE TABLE t (writer, number, text, UNIQUE (writer, number))'");
        let [mut other, writer] =
            [1, 0].map(|at| shell(&mounts[at].path, &write(at)).spawn().expect("a shell"));
        let rows =
            || sh(&server.export(), "sqlite3 -readonly -cmd '.timeout 60000' db 'SELECT count(*) FROM t'");
        await_that("both write", || rows().trim().parse::<u32>().is_ok_and(|rows| rows > 10));
        server.restart_during(writer, version);
        assert!(other.wait().expect("a child").success(), "{version}");
        let check = "sqlite3 db 'PRAGMA integrity_check; SELECT writer, count(*) FROM t GROUP BY writer'";
        for mount in &mounts {
            assert_eq!(mount.sh(check), "ok\n0|30\n1|30\n", "{version}");
        }
        mounts.into_iter().for_each(Mounted::end);
    }
}

#[test]
fn git_works_and_its_repositories_are_valid() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let mounted = Mounted::new(&server, version, &[]);
        mounted.sh(
            "git init -q one; cd one; for f in $(seq 100); do seq $f > f$f; done; git add .; git commit -qm first
             seq 200 > f1; git commit -qam second; git gc -q; git checkout -q -b other HEAD~1; git checkout -q -",
        );
        // With a timer that interrupts it each second.
        mounted.sh("git clone --progress --no-local one two 2> /dev/null; cd two; git fsck --strict; git log --oneline | wc -l | grep -qx 2; git status --porcelain | (! grep .)");
        mounted.sh("rm -rf one two");
        mounted.end();
    }
}

#[test]
fn sqlite_keeps_its_data() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let mounted = Mounted::new(&server, version, &[]);
        let script = "import sqlite3
c = sqlite3.connect('db'); c.execute('create table if not exists t(n)')
for n in range(50):
    with c: c.execute('insert into t values(?)', (n,))
print(c.execute('pragma integrity_check').fetchone()[0], c.execute('select count(*), sum(n) from t').fetchone())";
        let output = mounted.sh(&format!("python3 -c \"{script}\"; rm db"));
        assert_eq!(output, "ok (50, 1225)\n", "{version}");
        mounted.end();
    }
}

#[test]
fn two_processes_on_two_mounts_share_a_database() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let (one, two) = (Mounted::new(&server, version, &[]), Mounted::new(&server, version, &[]));
        one.sh("python3 -c \"import sqlite3; c = sqlite3.connect('db'); c.execute('create table t(writer, n, unique(writer, n))')\"");
        let writer = |number: usize| {
            let script = format!(
                "import sqlite3
c = sqlite3.connect('db', timeout=60)
for n in range(40):
    with c: c.execute('insert into t values(?, ?)', ({number}, n))"
            );
            format!("exec python3 -c \"{script}\"")
        };
        let writers = [(&one, 1), (&two, 2), (&one, 3)];
        let children = writers.map(|(mounted, n)| shell(&mounted.path, &writer(n)).spawn().expect("a shell"));
        for mut child in children {
            assert!(child.wait().expect("a child").success(), "{version}");
        }
        let shown = "import sqlite3; c = sqlite3.connect('db'); print(c.execute('pragma integrity_check').fetchone()[0],
            c.execute('select writer, count(*), sum(n) from t group by writer order by writer').fetchall())";
        let expected = "ok [(1, 40, 780), (2, 40, 780), (3, 40, 780)]\n";
        for mounted in [one, two] {
            assert_eq!(mounted.sh(&format!("python3 -c \"{shown}\"")), expected, "{version}");
            mounted.end();
        }
        assert_eq!(sh(&server.export(), "ls"), "db\n", "{version}: a journal is left");
    }
}

#[test]
fn programs_at_the_same_time_do_not_disturb_each_other() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let mounted = Mounted::new(&server, version, &[]);
        let script = |number: usize| {
            format!(
                "mkdir p{number}; cd p{number}; for f in $(seq 40); do seq $f {number} 5000 > f$f; mv f$f g$f; done
                 for f in $(seq 40); do seq $f {number} 5000 | cmp - g$f; done; test $(ls | wc -l) = 40"
            )
        };
        let children: Vec<_> =
            (1..=6).map(|number| shell(&mounted.path, &script(number)).spawn().expect("a shell")).collect();
        for mut child in children {
            assert!(child.wait().expect("a child").success(), "{version}");
        }
        mounted.sh("rm -r p*");
        mounted.end();
    }
}

#[test]
fn an_open_file_remains_when_its_name_is_removed_or_replaced() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let mounted = Mounted::new(&server, version, &[]);
        mounted.sh("echo removed > a; echo replaced > b; echo new > c");
        let open = |name: &str| {
            std::fs::File::options().read(true).write(true).open(mounted.path(name)).expect("a file")
        };
        let (mut a, mut b) = (open("a"), open("b"));
        mounted.sh("rm a; mv c b; test ! -e a; grep -qx new b");
        for (file, expected) in [(&mut a, "removed\n"), (&mut b, "replaced\n")] {
            let mut text = String::new();
            file.read_to_string(&mut text).expect("a file that is open");
            assert_eq!(text, expected, "{version}");
            file.write_all(b"more").expect("a file that is open");
            file.seek(SeekFrom::Start(0)).expect("a position");
            file.read_to_string(&mut text).expect("a file that is open");
            assert_eq!(text, format!("{expected}{expected}more"), "{version}");
        }
        drop((a, b));
        await_that("names of removed files remain", || sh(&server.export(), "ls -A") == "b\n");
        mounted.end();
    }
}

#[test]
fn a_file_that_is_opened_for_reading_can_be_truncated() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let mounted = Mounted::new(&server, version, &[]);
        mounted.sh("echo text > f; cp $(command -v sleep) run; ./run 100 > out 2>&1 & echo $! > pid
             until readlink /proc/$(cat pid)/exe | grep -q '/run$'; do sleep 0.01; done");
        let truncate = |name: &str| {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC;
            rustix::fs::open(mounted.path(name), flags, rustix::fs::Mode::empty()).map(drop)
        };
        assert_eq!(truncate("f"), Ok(()), "{version}");
        assert_eq!(std::fs::metadata(mounted.path("f")).expect("a file").len(), 0);
        assert_eq!(truncate("run"), Err(rustix::io::Errno::TXTBSY), "{version}");
        mounted.sh("kill $(cat pid); rm -f f run pid out");
        mounted.end();
    }
}

#[test]
fn a_change_of_another_client_is_seen_at_the_next_open() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let (one, two) = (Mounted::new(&server, version, &[]), Mounted::new(&server, version, &[]));
        one.sh("echo short > f");
        assert_eq!(two.sh("cat f"), "short\n");
        one.sh("echo much longer than before > f");
        assert_eq!(two.sh("cat f"), "much longer than before\n", "{version}");
        one.sh("echo tiny > f");
        assert_eq!(two.sh("cat f"), "tiny\n", "{version}");
        one.sh("echo other > g; mv g f");
        assert_eq!(two.sh("cat f"), "other\n", "{version}");
        one.end();
        two.end();
    }
}

#[test]
fn the_server_sees_each_program_as_its_user() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let mounted = Mounted::new(&server, version, &["--map-uid", "4000:3000"]);
        sh(
            &server.export(),
            "mkdir own; chown 4000 own; chmod 700 own; mkdir team; chgrp 77 team; chmod 770 team",
        );
        let as_user = |uid: u32, groups: &str, script: &str| {
            format!("setpriv --reuid={uid} --regid=3000 --groups={groups} sh -ec '{script}'")
        };
        assert_eq!(mounted.sh("stat -c %u own"), "3000\n");
        mounted.sh(&as_user(3000, "3000", "echo mine > own/f; test -r own/f"));
        assert_eq!(
            std::fs::metadata(server.export().join("own/f")).expect("a file").uid(),
            4000,
            "{version}"
        );
        mounted.sh(&as_user(
            3001,
            "3001",
            "! cat own/f 2>/dev/null; ! ls own 2>/dev/null; ! touch team/f 2>/dev/null",
        ));
        mounted.sh(&as_user(3001, "77", "touch team/f"));
        assert_eq!(
            std::fs::metadata(server.export().join("team/f")).expect("a file").uid(),
            3001,
            "{version}"
        );
        mounted.end();
    }
}

#[test]
fn extended_attributes_holes_and_copies_are_those_of_the_server() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let mounted = Mounted::new(&server, "4.2", &[]);
    let script = "import os
f = 'f'; open(f, 'w').write('x' * 100000)
os.setxattr(f, 'user.a', b'one'); os.setxattr(f, 'user.b', b'')
assert sorted(os.listxattr(f)) == ['user.a', 'user.b'] and os.getxattr(f, 'user.a') == b'one'
os.removexattr(f, 'user.b')
d = os.open(f, os.O_RDWR); os.posix_fallocate(d, 0, 1 << 20); assert os.fstat(d).st_size == 1 << 20
h = os.open('holes', os.O_RDWR | os.O_CREAT); os.ftruncate(h, 10 << 20); os.pwrite(h, b'data', 5 << 20); os.fsync(h)
assert os.lseek(h, 0, os.SEEK_DATA) == 5 << 20 and os.lseek(h, 0, os.SEEK_HOLE) == 0
c = os.open('copy', os.O_RDWR | os.O_CREAT); n = 0
while n < 1 << 20: n += os.copy_file_range(d, c, (1 << 20) - n, n, n)
assert os.pread(c, 1 << 20, 0) == os.pread(d, 1 << 20, 0)
# Within a file the server does not copy.
assert os.copy_file_range(c, c, 1000, 0, 2 << 20) == 1000 and os.pread(c, 2000, 2 << 20) == b'x' * 1000
os.ftruncate(c, 1 << 20)";
    mounted.sh(&format!("python3 -c \"{script}\""));
    mounted.send_all();
    let there = "import os; print(os.listxattr('f'), os.getxattr('f', 'user.a'), os.stat('copy').st_size)";
    let shown = sh(&server.export(), &format!("python3 -c \"{there}\"; cmp f copy"));
    // The kernel would copy by itself otherwise.
    assert!(count(&stats(&mounted.path), "COPY", "requests") >= 1, "the server copies");
    assert_eq!(shown, "['user.a'] b'one' 1048576\n");
    mounted.end();
}

#[test]
fn a_lock_of_one_mount_is_seen_by_another() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    for version in VERSIONS {
        let (one, two) = (Mounted::new(&server, version, &[]), Mounted::new(&server, version, &[]));
        one.sh("echo text > f");
        let holder = "import fcntl, sys, time
f = open('f', 'r+'); fcntl.KIND(f, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()";
        let other = "import fcntl
f = open('f', 'r+')
try: fcntl.KIND(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')
except BlockingIOError: print('locked')";
        for kind in ["flock", "lockf"] {
            let python = |script: &str| format!("python3 -c \"{}\"", script.replace("KIND", kind));
            let mut child = shell(&one.path, &format!("exec {}", python(holder)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a shell");
            let mut line = String::new();
            let stdout = child.stdout.take().expect("a pipe");
            BufReader::new(stdout).read_line(&mut line).expect("text");
            assert_eq!(line, "locked\n", "{version} {kind}");
            assert_eq!(two.sh(&python(other)), "locked\n", "{version} {kind}");
            drop(child.stdin.take());
            assert!(child.wait().expect("a child").success());
            await_that("the lock ends with its process", || two.sh(&python(other)) == "free\n");
        }
        one.sh("rm f");
        one.end();
        two.end();
    }
}

#[test]
fn a_wait_for_a_lock_ends_with_a_signal() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    for version in ["2", "3", "4.2"] {
        a_wait_ends(&server, version);
    }
}

fn a_wait_ends(server: &Server, version: &str) {
    let (one, two) = (Mounted::new(server, version, &[]), Mounted::new(server, version, &[]));
    one.sh("echo text > f");
    let held = std::fs::File::options().write(true).open(one.path("f")).expect("a file");
    held.lock().expect("a free lock");
    let waiter = "import fcntl, signal
def stop(*_): raise SystemExit(7)
signal.signal(signal.SIGALRM, stop); signal.setitimer(signal.ITIMER_REAL, 0.3)
fcntl.flock(open('f', 'r+'), fcntl.LOCK_EX)";
    let status = shell(&two.path, &format!("exec python3 -c \"{waiter}\"")).status().expect("a shell");
    assert_eq!(status.code(), Some(7));
    held.unlock().expect("a lock");
    // The abandoned wait holds no lock.
    two.sh("flock -n f true");
    drop(held);
    one.end();
    two.end();
}
