//! Options of a mount as programs notice them.

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
