//! Rung 4: a client in user space that others wrote (`libnfs-utils`), over versions 3 and 4.0.

use std::path::Path;
use std::process::{Command, Output};

use crate::server::{Place, Server, with};

/// Whether the client is on this machine.
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

/// Lengths around what goes into one call, and into one page.
const LENGTHS: [usize; 7] = [0, 1, 4095, 4096, 65_537, 1 << 20, (5 << 20) + 3];

/// Bytes without a pattern that a fault could preserve.
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

/// Copies files in and out again, and compares them on every way.
fn copies_both_ways(place: &Place, server: &Server, export: Option<&Path>) {
    for length in LENGTHS {
        let original = place.path(&format!("original-{length}"));
        std::fs::write(&original, content(length)).unwrap();
        let there = url(server, &format!("/file-{length}"), 3);
        succeeds("nfs-cp", &[original.to_str().unwrap(), &there]);
        assert!(succeeds("nfs-cat", &[&there]) == content(length), "{length} bytes shown differ");
        let back = place.path(&format!("back-{length}"));
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
        let place = Place::new();
        let export = place.directory("export");
        let server = Server::start(&place, &with(&place, &[&[export.as_path()], options].concat()));
        copies_both_ways(&place, &server, Some(&export));
        server.stop();
    }
}

#[test]
fn files_are_copied_to_and_from_memory() {
    if !is_installed() {
        return;
    }
    let place = Place::new();
    let server = Server::start(&place, &["serve", "--memory", "--listen", "127.0.0.1:0"]);
    copies_both_ways(&place, &server, None);
    server.stop();
}

#[test]
fn version_4_0_lists_and_reads() {
    if !is_installed() {
        return;
    }
    let place = Place::new();
    let server = Server::start(&place, &["serve", "--memory", "--squash", "none", "--listen", "127.0.0.1:0"]);
    for length in LENGTHS {
        let original = place.path(&format!("original-{length}"));
        std::fs::write(&original, content(length)).unwrap();
        // It writes nothing over version 4: its OPENs there ask for reading alone.
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
fn a_version_that_is_switched_off_is_told_so() {
    if !is_installed() {
        return;
    }
    let place = Place::new();
    let config = place.path("config.toml");
    std::fs::write(
        &config,
        "listen = ['127.0.0.1:0']\nversions = ['3', '4.1']\n[[export]]\nmemory = true\nsquash = 'none'\n",
    )
    .unwrap();
    let server = Server::start(&place, &["serve", "--config", config.to_str().unwrap()]);
    let output = Command::new("nfs-ls").arg(url(&server, "", 4)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("NFS4ERR_MINOR_VERS_MISMATCH"), "{said}");
    succeeds("nfs-ls", &[&url(&server, "", 3)]);
    server.stop();
}
