//! Changes of another client that this one learns before the kernel's copies are too old. Two mounts of a server; attributes and names
//! are valid for longer than a test waits, so only an invalidation can show the change.

use std::process::Stdio;

use crate::stats::stats;
use crate::support::{Mounted, Server, VERSIONS, await_that, can_mount, sh, shell};

/// Far longer than a test waits.
const LONG: [&str; 2] = ["-o", "actimeo=3600"];

#[test]
fn names_of_a_directory_are_looked_up_again_after_a_change_of_another_client_is_detected() {
    if !can_mount() {
        return;
    }
    for version in ["3", "4.0", "4.1", "4.2"] {
        let server = Server::start();
        sh(
            &server.export(),
            "mkdir d; echo old > d/gone; echo old > d/replaced; mkdir d/kept; echo x > d/kept/f",
        );
        // The recall of a delegation would detect the change too.
        let options = ["-o", "actimeo=3600,nodelegations"];
        let (one, two) = (Mounted::new(&server, version, &options), Mounted::new(&server, version, &options));
        // The kernel remembers all of these.
        assert_eq!(one.sh("cat d/gone d/replaced d/kept/f; ! cat d/new 2> /dev/null"), "old\nold\nx\n");
        two.sh("cd d; rm gone; echo new > new; echo other > r; mv r replaced");
        assert_eq!(
            one.sh("! cat d/new 2> /dev/null; stat -c %s d/gone"),
            "4\n",
            "{version}: valid for an hour"
        );
        // The reply to a change of the own has the state of the directory before it.
        let within = "cd d/kept; echo own > ../own; cd ..; cat own";
        assert_eq!(one.sh(within), "own\n");
        await_that("the change is seen", || one.path("d/new").exists() && !one.path("d/gone").exists());
        assert_eq!(one.sh("cat d/new d/replaced d/kept/f"), "new\nother\nx\n", "{version}");
        one.end();
        two.end();
    }
}

#[test]
fn each_of_two_mounts_appends_after_what_the_other_has_closed() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        sh(&server.export(), "touch f g");
        // The kernel looks up no name again, which would show the size.
        let options = ["-o", "actimeo=3600,nodelegations"];
        let (one, two) = (Mounted::new(&server, version, &options), Mounted::new(&server, version, &options));
        let both = "import os
f = os.open('g', os.O_RDWR | os.O_APPEND); os.write(f, b'first\\n'); os.write(f, b'second\\n')";
        for turn in 0..3 {
            for mounted in [&one, &two] {
                mounted
                    .sh(&format!("echo {turn} >> f; (echo {turn}; echo {turn}) >> f; python3 -c \"{both}\""));
            }
        }
        let expected = "0\n0\n0\n0\n0\n0\n1\n1\n1\n1\n1\n1\n2\n2\n2\n2\n2\n2\n";
        assert_eq!(sh(&server.export(), "cat f"), expected, "{version}");
        assert_eq!(sh(&server.export(), "cat g"), "first\nsecond\n".repeat(6), "{version}");
        for mounted in [one, two] {
            await_that("the kernel reads the file again", || {
                mounted.sh("cat g") == "first\nsecond\n".repeat(6)
            });
            mounted.end();
        }
    }
}

#[test]
fn the_kernel_keeps_pages_over_an_open_until_another_client_changes_the_file() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        sh(&server.export(), "head -c 500000 /dev/zero > f");
        let (one, two) = (Mounted::new(&server, version, &[]), Mounted::new(&server, version, &[]));
        // Bytes for which the kernel has asked.
        let asked = || {
            let bytes = &stats(&one.path)["caches"]["data_bytes"];
            bytes["hits"].as_u64().expect("a number") + bytes["misses"].as_u64().expect("a number")
        };
        let mut last = 0;
        let mut read_anew = |is_new: bool, what: &str| {
            one.sh("cmp f ../expected");
            let now = asked();
            assert_eq!(now > last, is_new, "{version}: {what}: {last}, {now}");
            last = now;
        };
        let expect = |script: &str| sh(one.path.parent().expect("a directory"), script);
        expect("head -c 500000 /dev/zero > expected");
        read_anew(true, "first");
        read_anew(false, "unchanged");
        // Of the same size.
        two.sh("head -c 500000 /dev/zero | tr '\\0' x > new; cp new f");
        // The other client hands in data and times at the end of a delegation, so it leaves before the next look.
        two.end();
        expect("head -c 500000 /dev/zero | tr '\\0' x > expected");
        read_anew(true, "changed");
        read_anew(false, "unchanged since");
        one.end();
    }
}

#[test]
fn a_working_directory_stays_valid_when_its_name_is_looked_up_again() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    sh(&server.export(), "mkdir -p d/work");
    let (one, two) = (Mounted::new(&server, "4.2", &LONG), Mounted::new(&server, "4.2", &LONG));
    let fifo = tempfile::tempdir().expect("a temporary directory");
    let place = fifo.path().display();
    sh(fifo.path(), "mkfifo go");
    let script = format!("cd d/work; read line < {place}/go; pwd -P; echo text > f; cat f; ls ..");
    let child = shell(&one.path, &script).stdout(Stdio::piped()).spawn().expect("a shell");
    assert_eq!(one.sh("ls d; ! stat d/new 2> /dev/null"), "work\n");
    two.sh("echo new > d/new");
    one.sh("echo own > d/own");
    await_that("the change is seen", || one.path("d/new").exists());
    sh(fifo.path(), "echo > go");
    let output = child.wait_with_output().expect("a child");
    let work = one.path("d/work").display().to_string();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{work}\ntext\nnew\nown\nwork\n"));
    one.end();
    two.end();
}

#[test]
fn attributes_are_requested_again_after_the_end_of_a_delegation() {
    if !can_mount() {
        return;
    }
    for version in ["4.1", "4.2"] {
        let server = Server::start();
        sh(&server.export(), "echo old > f");
        let one = Mounted::new(&server, version, &["-o", "actimeo=3600,delegations"]);
        let two = Mounted::new(&server, version, &LONG);
        // The server grants nothing before it has tried the back channel.
        let granted = || crate::stats::stats(&one.path)["delegations"]["granted"].as_u64().expect("a number");
        await_that("a delegation", || {
            one.sh("cat f > /dev/null");
            granted() > 0
        });
        assert_eq!(one.sh("stat -c %s f"), "4\n");
        // The server recalls the delegation.
        two.sh("echo much longer > f");
        await_that("the change is seen", || one.path("f").metadata().expect("attributes").len() == 12);
        assert_eq!(one.sh("cat f"), "much longer\n", "{version}");
        one.end();
        two.end();
    }
}

#[test]
fn a_delegated_directory_needs_no_requests_until_another_client_changes_it() {
    if !can_mount() {
        return;
    }
    for version in ["4.1", "4.2"] {
        let server = Server::start();
        sh(&server.export(), "mkdir d; echo old > d/f");
        // Neither the client nor the kernel uses a directory for longer than a second, unless it is delegated.
        let options = ["-o", "acdirmin=1,acdirmax=1,acregmin=3600,acregmax=3600"];
        let one = Mounted::new(&server, version, &options);
        let two = Mounted::new(&server, version, &LONG);
        let look = || one.sh("stat -c %s d/f; ! stat d/new 2> /dev/null; ls d");
        let held =
            || crate::stats::stats(&one.path)["directory_delegations"]["held"].as_u64().expect("a number");
        await_that("delegations of the root and of the directory", || {
            assert_eq!(look(), "4\nf\n");
            held() == 2
        });
        look();
        let requests = || {
            let stats = crate::stats::stats(&one.path);
            let of = |operation| crate::stats::count(&stats, operation, "requests");
            ["ACCESS", "GETATTR", "GET_DIR_DELEGATION", "LOOKUP", "READDIR"].map(of)
        };
        let before = requests();
        sh(&one.path, "sleep 3");
        assert_eq!((look(), requests()), ("4\nf\n".to_owned(), before), "{version}: after three timeouts");
        // The server recalls the delegation.
        two.sh("echo new > d/new");
        await_that("the change is seen", || one.path("d/new").exists());
        assert_eq!(one.sh("ls d"), "f\nnew\n", "{version}");
        one.end();
        two.end();
    }
}
