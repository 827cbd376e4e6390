//! A user's quota on the server, and a full file system.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{ENFYS, can_mount, run, sh};

/// Fills an export that is mounted by a version.
type Exceed = fn(&Path, &str);

/// Room for 4 MiB: for a user, and for all.
const CONFIG: &str = "[[export]]
memory = true
pseudo = \"/quota\"
squash = \"none\"
quota-bytes = 4194304
[[export]]
memory = true
pseudo = \"/small\"
squash = \"none\"
memory-bytes = 4194304
";

#[test]
fn a_program_gets_edquot_beyond_its_quota_and_enospc_on_a_full_disk() {
    if !can_mount() {
        return;
    }
    let top = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(top.path().join("enfys.toml"), CONFIG).expect("a file");
    let mut server = Command::new(ENFYS)
        .args(["serve", "--listen", "127.0.0.1:0", "--versions", "2,3,4", "--config"])
        .arg(top.path().join("enfys.toml"))
        .arg("--state-dir")
        .arg(top.path().join("state"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary");
    let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let line = lines.by_ref().map_while(Result::ok).find(|line| line.contains(",port=")).expect("it starts");
    let port = line.split(",port=").nth(1).expect("a port");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    std::thread::spawn(move || lines.count());
    let mount = top.path().join("mount");
    std::fs::create_dir(&mount).expect("a directory");
    let cases = [("quota", exceed_quota as Exceed), ("small", exceed_space)];
    for (version, (export, exceed)) in
        ["3", "4.0", "4.1", "4.2"].iter().flat_map(|version| cases.map(|case| (version, case)))
    {
        let url = format!("nfs://127.0.0.1:{port}/{export}?version={version}&mountport={port}");
        let output = run(&["mount", &url, mount.to_str().expect("text")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let done = std::panic::catch_unwind(|| exceed(&mount, version));
        let output = run(&["umount", mount.to_str().expect("text")]);
        assert!(done.is_ok() && output.status.success(), "{version} {export}");
    }
    server.kill().expect("a living child");
    server.wait().expect("a child");
}

const USER: &str = "export LC_ALL=C; user() { setpriv --reuid=1000 --regid=1000 --clear-groups \"$@\"; }";

/// Writes more than there is room for, in all ways to write.
fn exceed(mount: &Path, version: &str, error: &str) {
    sh(mount, "mkdir -m 777 d");
    for flags in ["conv=fsync", "oflag=direct", "oflag=sync"] {
        let output = sh(
            mount,
            &format!(
                "{USER}; if user dd if=/dev/zero of=d/file bs=1M count=8 {flags} 2>&1; then echo written; fi
                 user rm d/file"
            ),
        );
        assert!(output.contains(error), "{version} {flags}: {output}");
        assert!(!output.contains("written"), "{version} {flags}: {output}");
    }
    // close(2) reports it too.
    let close = "open(F, \">d/closed\"); for (1..8) { syswrite(F, \"\\0\" x 1048576) // last } close(F) or 1; print \"$!\\n\"";
    let output = sh(mount, &format!("{USER}; user perl -e '{close}'; user rm d/closed"));
    assert_eq!(output, format!("{error}\n"), "{version}");
}

fn exceed_quota(mount: &Path, version: &str) {
    exceed(mount, version, "Disk quota exceeded");
    // There is room again, and the quota is that of a user.
    sh(mount, &format!("{USER}; head -c 3000000 /dev/urandom > data; user cp data d/copy; cmp data d/copy"));
    sh(mount, "head -c 8000000 /dev/zero > large; sync large; rm -r large data d");
}

fn exceed_space(mount: &Path, version: &str) {
    exceed(mount, version, "No space left on device");
    // There is room again.
    sh(mount, "head -c 3000000 /dev/urandom > data; cp data /dev/null; sync data; rm -r data d");
}
