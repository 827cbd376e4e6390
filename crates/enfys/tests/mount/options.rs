//! Options of a mount as programs notice them.

use std::path::Path;
use std::process::Command;

use crate::stats::{count, stats};
use crate::support::{Mounted, Server, VERSIONS, can_mount, sh};

#[test]
fn a_read_only_mount_changes_nothing() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        sh(&server.export(), "echo text > f");
        let mounted = Mounted::new(&server, version, &["-o", "ro"]);
        assert_eq!(mounted.sh("cat f"), "text\n");
        for change in ["echo more >> f", "touch new", "rm f", "mkdir d", "chmod 600 f", "mv f g", "ln f g"] {
            let refused = format!("({change}) 2>&1 | grep -q 'Read-only file system'");
            mounted.sh(&refused);
        }
        assert_eq!(sh(&server.export(), "ls; cat f; stat -c %a f"), "f\ntext\n644\n", "{version}");
        mounted.end();
    }
}

#[test]
fn other_users_need_allow_other() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    sh(&server.export(), "echo text > f; chmod 755 .");
    for (options, may) in [("noallow_other", false), ("allow_other", true)] {
        let mounted = Mounted::new(&server, "4.2", &["-o", options]);
        sh(mounted.path.parent().expect("a directory"), "chmod 755 .");
        let as_other = Command::new("setpriv")
            .args(["--reuid=3000", "--regid=3000", "--clear-groups", "cat"])
            .arg(mounted.path("f"))
            .output()
            .expect("setpriv");
        assert_eq!(as_other.status.success(), may, "{options}");
        mounted.end();
    }
}

#[test]
fn rsize_and_wsize_bound_requests() {
    if !can_mount() {
        return;
    }
    const SIZE: u64 = 1 << 20;
    for version in ["3", "4.0", "4.1", "4.2"] {
        for (option, request) in [("hard", SIZE), ("rsize=65536,wsize=65536", 1 << 16)] {
            let server = Server::start();
            sh(&server.export(), &format!("head -c {} /dev/zero > read", 8 * SIZE));
            let mounted = Mounted::new(&server, version, &["-o", option]);
            // Direct requests are as large as the program's: nothing joins or splits them but the size of requests.
            mounted.sh("dd if=/dev/zero of=written bs=1M count=8 oflag=direct status=none; dd if=read of=/dev/null bs=1M iflag=direct status=none");
            let stats = stats(&mounted.path);
            assert_eq!(count(&stats, "WRITE", "requests"), 8 * SIZE / request, "{version} {option}");
            let reads = count(&stats, "READ", "requests");
            // A READ at the end finds no data.
            assert!(
                (8 * SIZE / request..=8 * SIZE / request + 1).contains(&reads),
                "{version} {option}: {reads}"
            );
            mounted.end();
        }
    }
}

/// READDIR alone makes a list with attributes cost a request for each file.
#[test]
fn rdirplus_decides_about_attributes_in_listings() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    sh(&server.export(), "mkdir d; touch d/1 d/2 d/3 d/4 d/5");
    for (option, has_attributes) in [("rdirplus=force", true), ("rdirplus", true), ("nordirplus", false)] {
        let mounted = Mounted::new(&server, "3", &["-o", option]);
        assert_eq!(mounted.sh("ls -l d | wc -l"), "6\n");
        let stats = stats(&mounted.path);
        let requests = |operation| count(&stats, operation, "requests");
        assert_eq!(requests("READDIRPLUS") > 0, has_attributes, "{option}: {stats}");
        assert_eq!(requests("READDIR") > 0, !has_attributes, "{option}: {stats}");
        // One for the directory itself.
        assert_eq!(requests("LOOKUP"), if has_attributes { 1 } else { 6 }, "{option}: {stats}");
        mounted.end();
    }
}

#[test]
fn a_mount_over_udp_keeps_a_tree() {
    if !can_mount() {
        return;
    }
    for version in ["2", "3"] {
        let server = Server::with_udp();
        let mounted = Mounted::new(&server, version, &["-o", "proto=udp,mountproto=udp"]);
        mounted.sh("mkdir -p d/e; for n in $(seq 200); do echo $n > d/e/$n; done; ln -s e/7 d/link; \
             head -c 3000000 /dev/urandom > large; head -c 100001 /dev/urandom > d/odd; \
             mv d/e/1 d/first; rm d/e/2; chmod 751 d/odd");
        mounted.send_all();
        const SUMS: &str = "find . -type f | sort | xargs sha256sum; readlink d/link; stat -c %a d/odd";
        let (written, kept) = (mounted.sh(SUMS), sh(&server.export(), SUMS));
        assert_eq!(written.lines().count(), 203, "{version}: {written}");
        assert_eq!(written, kept, "{version}");
        let counted = stats(&mounted.path);
        // 8 KiB in version 2, and in version 3 no more than a datagram has.
        assert!(count(&counted, "WRITE", "requests") >= 3_000_000 / 65_507, "{version}: {counted}");
        assert_eq!(server.connections(), 0, "{version}: all goes over UDP");
        mounted.end();
        // Another mount has nothing in its caches.
        let again = Mounted::new(&server, version, &["-o", "proto=udp,mountproto=udp"]);
        assert_eq!(again.sh(SUMS), kept, "{version}");
        assert!(count(&stats(&again.path), "READ", "requests") >= 3_000_000 / 65_507, "{version}");
        again.end();
        let connected = Mounted::new(&server, version, &[]);
        assert!(server.connections() > 0, "{version}: over TCP it would be seen");
        connected.end();
    }
}

#[test]
fn local_locks_are_unknown_to_the_server() {
    if !can_mount() {
        return;
    }
    // Of each kind, whether two mounts exclude each other.
    for (option, fcntl, flock) in [
        ("nolock", false, false),
        ("local_lock=posix", false, true),
        ("local_lock=flock", true, false),
        ("local_lock=none", true, true),
    ] {
        let server = Server::start();
        sh(&server.export(), "echo content > f");
        let mounts = [0; 2].map(|_| Mounted::new(&server, "3", &["-o", option]));
        let files = mounts.each_ref().map(|mount| mount.path("f"));
        let excludes = |one: usize, other: usize, kind| are_exclusive((&files[one], &files[other]), kind);
        // The kernel, or the server, excludes the programs on one mount.
        assert_eq!((excludes(0, 0, "lockf"), excludes(0, 0, "flock")), (true, true), "{option}");
        assert_eq!((excludes(0, 1, "lockf"), excludes(0, 1, "flock")), (fcntl, flock), "{option}");
        let counted = stats(&mounts[1].path);
        let calls: u64 =
            ["LOCK", "TEST", "UNLOCK"].map(|call| count(&counted, call, "requests")).iter().sum();
        assert_eq!(calls > 0, fcntl || flock, "{option}: {counted}");
        mounts.into_iter().for_each(Mounted::end);
    }
}

/// Returns whether a lock of one program keeps another one from a lock. `kind` is the function of Python's `fcntl`.
fn are_exclusive((one, other): (&Path, &Path), kind: &str) -> bool {
    const TRY: &str = r#"
import fcntl, os, sys
one, other, kind = sys.argv[1:]
lock = getattr(fcntl, kind)
held = open(one, "r+b")
lock(held, fcntl.LOCK_EX)
child = os.fork()
if child == 0:
    held.close() if kind == "lockf" else None
    try:
        lock(open(other, "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        os._exit(0)
    except BlockingIOError:
        os._exit(1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"#;
    let output = Command::new("python3").args(["-c", TRY]).args([one, other]).arg(kind).output();
    let output = output.expect("python3 is installed");
    match String::from_utf8_lossy(&output.stdout).trim() {
        "0" => false,
        "1" => true,
        _ => panic!("{}", String::from_utf8_lossy(&output.stderr)),
    }
}
