//! A mount as the lower layer of overlayfs, as containers use it.

use std::process::Command;

use crate::support::{Mounted, Server, VERSIONS, await_that, can_mount, sh};

/// Returns whether this machine has overlayfs and mount namespaces. Machines of CI must have them.
fn has_overlays() -> bool {
    let listed = std::fs::read_to_string("/proc/filesystems").expect("proc");
    let has = listed.contains("overlay")
        && Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|is| is.success());
    let must = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(has || !must, "no overlayfs, or no mount namespaces");
    if !has {
        println!("skipped: needs overlayfs and unshare(1)");
    }
    has
}

#[test]
fn an_overlay_reads_a_mount_and_keeps_changes_above_it() {
    if !can_mount() || !has_overlays() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        sh(
            &server.export(),
            "mkdir -p d/e gone; seq 100000 > big; echo low > f; echo low > d/g; ln -s f link; echo x > gone/x; chmod 640 f",
        );
        let mounted = Mounted::new(&server, version, &[]);
        // The upper layer is on a file system with extended attributes.
        let top = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
        let overlay = format!(
            "mkdir upper work merged
             mount -t overlay overlay -o lowerdir={},upperdir=upper,workdir=work merged
             cd merged
             seq 100000 | cmp - big; test \"$(cat link d/g)\" = \"$(printf 'low\\nlow')\"; test \"$(ls)\" = \"$(printf 'big\\nd\\nf\\ngone\\nlink')\"
             echo more >> f; test \"$(cat f)\" = \"$(printf 'low\\nmore')\"; test $(stat -c %a f) = 640
             rm d/g; ! test -e d/g; rm -r gone; ! test -e gone; mkdir gone; test -z \"$(ls gone)\"
             echo new > d/e/new; mv big large; seq 100000 | cmp - large; chmod 600 large
             cd ..; umount merged; test \"$(cat upper/f)\" = \"$(printf 'low\\nmore')\"; test -c upper/d/g",
            mounted.path.display()
        );
        let output =
            Command::new("unshare").args(["-m", "sh", "-euc", &overlay]).current_dir(top.path()).output();
        let output = output.expect("unshare");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{version}: {text}");
        // The lower layer is unchanged.
        let shown = "cat f d/g gone/x; ls; ls d/e; seq 100000 | cmp - big";
        assert_eq!(sh(&server.export(), shown), "low\nlow\nx\nbig\nd\nf\ngone\nlink\n", "{version}");
        mounted.end();
    }
}

#[test]
fn programs_on_an_overlay_continue_after_a_restart_of_the_server() {
    if !can_mount() || !has_overlays() {
        return;
    }
    let files = "for d in 1 2 3; do mkdir $d; for f in $(seq 80); do seq $f > $d/f$f; done; done";
    let sums = "find . -type f | sort | xargs -n 1 sha256sum";
    for version in VERSIONS {
        let mut server = Server::with_lease(3);
        sh(&server.export(), files);
        let expected = sh(&server.export(), sums);
        let mounted = Mounted::new(&server, version, &[]);
        let top = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
        // It reads every file, and then copies some up.
        let script = format!(
            "mkdir upper work merged
             mount -t overlay overlay -o lowerdir={},upperdir=upper,workdir=work merged
             cd merged; cat 1/f1 > ../begun
             {sums} > ../sums
             for f in $(seq 80); do echo more >> 3/f$f; {{ seq $f; echo more; }} | cmp - 3/f$f; done
             cd ..; umount merged",
            mounted.path.display()
        );
        let program =
            Command::new("unshare").args(["-m", "sh", "-euc", &script]).current_dir(top.path()).spawn();
        await_that("the program has begun", || top.path().join("begun").exists());
        server.restart_during(program.expect("unshare"), version);
        assert_eq!(std::fs::read_to_string(top.path().join("sums")).expect("a file"), expected, "{version}");
        assert_eq!(sh(&server.export(), sums), expected, "{version}: the lower layer is unchanged");
        mounted.end();
    }
}
