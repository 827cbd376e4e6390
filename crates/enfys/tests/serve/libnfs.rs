//! Rung 4 of the test ladder: another project's client (`libnfs-utils`), over versions 3 and 4.0.

use std::path::Path;
use std::process::{Command, Output};

use crate::server::{Server, TestDir, with};

/// Returns whether the client is installed.
pub fn is_installed() -> bool {
    let all = ["nfs-ls", "nfs-cp", "nfs-cat"].iter().all(|program| {
        Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output()
            .is_ok_and(|o| o.status.success())
    });
    if !all {
        println!("skipped: libnfs-utils is not installed");
    }
    all
}

/// Lengths around the sizes of a call and a page.
const LENGTHS: [usize; 7] = [0, 1, 4095, 4096, 65_537, 1 << 20, (5 << 20) + 3];

/// Pseudorandom bytes, so that misplaced data are noticed.
fn content(length: usize) -> Vec<u8> {
    let mut state = length as u64 + 1;
    let byte = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(length).collect()
}

pub fn url(server: &Server, path: &str, version: u32) -> String {
    let (host, port) = (server.address.ip(), server.address.port());
    format!("nfs://{host}/export{path}?version={version}&nfsport={port}&mountport={port}")
}

#[track_caller]
pub fn succeeds(program: &str, arguments: &[&str]) -> Vec<u8> {
    let Output { status, stdout, stderr } =
        Command::new(program).args(arguments).output().expect("it is installed");
    assert!(status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&stderr));
    stdout
}

/// Copies files in and out, and compares them at each step.
fn copies_both_ways(dir: &TestDir, server: &Server, export: Option<&Path>) {
    for length in LENGTHS {
        let original = dir.path(&format!("original-{length}"));
        std::fs::write(&original, content(length)).unwrap();
        let there = url(server, &format!("/file-{length}"), 3);
        succeeds("nfs-cp", &[original.to_str().unwrap(), &there]);
        assert!(succeeds("nfs-cat", &[&there]) == content(length), "{length} bytes shown differ");
        let back = dir.path(&format!("back-{length}"));
        succeeds("nfs-cp", &[&there, back.to_str().unwrap()]);
        assert!(std::fs::read(&back).unwrap() == content(length), "{length} bytes copied back differ");
        if let Some(export) = export {
            let stored = std::fs::read(export.join(format!("file-{length}"))).unwrap();
            assert!(stored == content(length), "{length} bytes stored differ");
        }
    }
    let listed = String::from_utf8(succeeds("nfs-ls", &[&url(server, "", 3)])).unwrap();
    let mut sizes: Vec<(usize, &str)> = listed
        .lines()
        .map(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            (columns[columns.len() - 2].parse().expect("a size"), columns[columns.len() - 1])
        })
        .collect();
    sizes.sort_unstable();
    let names = LENGTHS.map(|length| format!("file-{length}"));
    let expected: Vec<_> = LENGTHS.into_iter().zip(names.iter().map(String::as_str)).collect();
    assert_eq!(sizes, expected);
}

#[test]
fn files_are_copied_to_and_from_a_directory() {
    if !is_installed() {
        return;
    }
    for options in [&[][..], &["--async".as_ref()]] {
        let dir = TestDir::new();
        let export = dir.directory("export");
        let server = Server::start(&dir, &with(&dir, &[&[export.as_path()], options].concat()));
        copies_both_ways(&dir, &server, Some(&export));
        server.stop();
    }
}

#[test]
fn files_are_copied_to_and_from_memory() {
    if !is_installed() {
        return;
    }
    let dir = TestDir::new();
    let server = Server::start(&dir, &["serve", "--memory", "--listen", "127.0.0.1:0"]);
    copies_both_ways(&dir, &server, None);
    server.stop();
}

#[test]
fn version_4_0_lists_and_reads() {
    if !is_installed() {
        return;
    }
    let dir = TestDir::new();
    let server = Server::start(&dir, &["serve", "--memory", "--squash", "none", "--listen", "127.0.0.1:0"]);
    for length in LENGTHS {
        let original = dir.path(&format!("original-{length}"));
        std::fs::write(&original, content(length)).unwrap();
        // libnfs opens files of version 4 for reading only.
        succeeds("nfs-cp", &[original.to_str().unwrap(), &url(&server, &format!("/file-{length}"), 3)]);
        let shown = succeeds("nfs-cat", &[&url(&server, &format!("/file-{length}"), 4)]);
        assert!(shown == content(length), "{length} bytes shown differ");
    }
    let listed = String::from_utf8(succeeds("nfs-ls", &[&url(&server, "", 4)])).unwrap();
    for length in LENGTHS {
        let line = listed.lines().find(|line| line.ends_with(&format!(" file-{length}")));
        assert!(line.is_some_and(|line| line.contains(&format!(" {length} "))), "{listed}");
    }
    server.stop();
}

#[test]
fn a_disabled_version_is_refused() {
    if !is_installed() {
        return;
    }
    let dir = TestDir::new();
    let config = dir.path("config.toml");
    std::fs::write(
        &config,
        "listen = ['127.0.0.1:0']\nversions = ['3', '4.1']\n[[export]]\nmemory = true\nsquash = 'none'\n",
    )
    .unwrap();
    let server = Server::start(&dir, &["serve", "--config", config.to_str().unwrap()]);
    let output = Command::new("nfs-ls").arg(url(&server, "", 4)).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("NFS4ERR_MINOR_VERS_MISMATCH"), "{stderr}");
    succeeds("nfs-ls", &[&url(&server, "", 3)]);
    server.stop();
}
