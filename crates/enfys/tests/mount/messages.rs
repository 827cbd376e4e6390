//! Error messages of the commands: one line that names the problem.

use std::path::Path;
use std::process::Command;

use crate::support::{ENFYS, Mounted, Server, can_mount, is_mounted, run, sh};

/// Returns the one line of a command that must fail.
#[track_caller]
fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    text.trim_end().strip_prefix("enfys: ").expect("the program's name comes first").to_owned()
}

#[test]
fn each_unusable_directory_is_named() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let url = server.url("/export", "4.2");
    let mounted = Mounted::new(&server, "4.2", &[]);
    let top = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(top.path().join("file"), "").expect("a file");
    let path = |name: &str| top.path().join(name).display().to_string();
    let mount = |directory: &str| refusal(&["mount", &url, directory]);
    assert_eq!(mount(&path("missing")), format!("{}: no such directory", path("missing")));
    assert_eq!(mount(&path("file")), format!("{}: not a directory", path("file")));
    assert_eq!(
        mount(top.path().to_str().unwrap()),
        format!("{}: directory is not empty", top.path().display())
    );
    let directory = mounted.path.display().to_string();
    assert_eq!(mount(&directory), format!("{directory}: already mounted"));
    mounted.end();
}

#[test]
fn a_wrong_option_source_or_server_is_named() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let url = server.url("/export", "4.2");
    let top = tempfile::tempdir().expect("a temporary directory");
    let directory = top.path().to_str().unwrap();
    let with = |list: &str| refusal(&["mount", &url, directory, "-o", list]);
    assert_eq!(with("ro,frobnicate"), "unknown option `frobnicate`: see nfs(5)");
    assert_eq!(with("vers=5"), "`vers=5`: expected one of 2, 3, 4, 4.0, 4.1, 4.2");
    assert_eq!(
        refusal(&["mount", "server", directory]),
        "expected nfs://HOST/PATH or HOST:/PATH, found `server`"
    );
    let missing = refusal(&["mount", &server.url("/missing", "4.2"), directory]);
    assert!(missing.starts_with("cannot mount nfs://127.0.0.1"), "{missing}");
    assert!(missing.ends_with("/missing: No such file or directory"), "{missing}");
    let unreachable = refusal(&["mount", "nfs://127.0.0.1:1/export", directory]);
    assert!(
        unreachable.contains("nfs://127.0.0.1:1/export: cannot connect to 127.0.0.1:1: "),
        "{unreachable}"
    );
    assert!(!is_mounted(top.path()));
}

#[test]
fn only_own_mounts_are_unmounted() {
    if !can_mount() {
        return;
    }
    let top = tempfile::tempdir().expect("a temporary directory");
    let directory = top.path().to_str().unwrap();
    assert_eq!(refusal(&["umount", directory]), format!("{directory}: not mounted"));
    assert_eq!(refusal(&["umount", "/proc"]), "/proc: not a mount of enfys (type proc): use umount(8)");
}

#[test]
fn a_mount_in_use_is_not_unmounted() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let mounted = Mounted::new(&server, "4.2", &[]);
    let directory = mounted.path.display().to_string();
    mounted.sh("echo text > f");
    let file = std::fs::File::open(mounted.path("f")).expect("a file");
    let text = refusal(&["umount", &directory]);
    assert!(text.starts_with(&format!("{directory}: in use (`fuser -vm {directory}`")), "{text}");
    drop(file);
    // The file is released at the server after its program has ended.
    mounted.end();
}

#[test]
fn mount_8_mounts_by_its_helper() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let top = tempfile::tempdir().expect("a temporary directory");
    let helper = top.path().join("mount.enfys");
    std::os::unix::fs::symlink(Path::new(ENFYS), &helper).expect("a link");
    let directory = top.path().join("mnt");
    std::fs::create_dir(&directory).expect("a directory");
    let output = Command::new(&helper)
        .arg(server.url("/export", "4.2"))
        .arg(&directory)
        .args(["-o", "rw,_netdev,x-systemd.automount"])
        .output()
        .expect("the helper");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sh(&directory, "echo text > f; sync f");
    assert_eq!(sh(&server.export(), "cat f"), "text\n");
    // By umount(8), which does not know this mount.
    sh(Path::new("/"), &format!("umount {}", directory.display()));
    assert!(!is_mounted(&directory));
}
