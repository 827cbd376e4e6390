//! Commands on trees take requests by depth and bytes, not by files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use crate::metrics::scrape_at_rest;
use crate::server::{ENFYS, Server, TestDir};

/// Directories of the sample tree, all in one.
const DIRECTORIES: u64 = 20;
/// Files in each of them.
const FILES: u64 = 25;
/// Maximum number of requests that do not depend on the number of files: create a session, find the named objects, create the
/// directories of each level, list each directory, and destroy the session.
const FIXED_MAX: u64 = 30 + DIRECTORIES;
/// Minimum number of files in a compound, and number of requests in flight together.
const FILES_OF_COMPOUND: u64 = 8;

/// A server in memory whose requests are counted, and a sample tree on this machine.
struct Place {
    _server: Server,
    dir: TestDir,
    address: SocketAddr,
    metrics: SocketAddr,
    tree: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = TestDir::new();
        let mut server = Server::start(
            &dir,
            &["serve", "--memory", "--listen", "127.0.0.1:0", "--squash", "none", "--metrics", "127.0.0.1:0"],
        );
        let (address, metrics) = (server.address, server.metrics_address());
        let tree = dir.directory("tree");
        for directory in 0..DIRECTORIES {
            std::fs::create_dir(tree.join(format!("{directory}"))).expect("a directory");
            for file in 0..FILES {
                let content = format!("{directory} {file}").repeat(300);
                std::fs::write(tree.join(format!("{directory}/{file}")), content).expect("a file");
            }
        }
        Self { _server: server, dir, address, metrics, tree }
    }

    /// Runs a command in which `@` begins a path below the export, and returns the number of its requests.
    #[track_caller]
    fn requests(&self, version: &str, line: &str) -> u64 {
        let before = self.count();
        let words = line.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(path) => format!("nfs://{}/export/{path}?version={version}", self.address),
            None => word.to_owned(),
        });
        let output = Command::new(ENFYS).args(words).output().expect("the binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{line}: {:?} {stderr}", output.status);
        self.count() - before
    }

    fn count(&self) -> u64 {
        let values = scrape_at_rest(self.metrics);
        let is_request = |name: &str| {
            name.starts_with("enfys_operations_total{")
                && (name.contains("\"nfs3\"") || name.contains("\"mount\"") || name.contains("\"COMPOUND\""))
        };
        values.iter().filter(|(name, _)| is_request(name)).map(|(_, count)| *count as u64).sum()
    }

    /// Returns names and contents below a directory of this machine.
    fn contents(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let root = self.dir.path(name);
        let mut contents = Vec::new();
        for directory in 0..DIRECTORIES {
            for entry in std::fs::read_dir(root.join(format!("{directory}"))).expect("a directory") {
                let path = entry.expect("an entry").path();
                contents.push((
                    path.strip_prefix(&root).expect("below").display().to_string(),
                    std::fs::read(&path).expect("a file"),
                ));
            }
        }
        contents.sort();
        contents
    }
}

#[test]
fn with_compounds_files_and_directories_share_requests() {
    let place = Place::new();
    let at_most = |most: u64, line: &str| {
        let requests = place.requests("4.2", line);
        assert!(requests <= most, "{line}: {requests} requests, at most {most} are expected");
    };
    let (tree, bulk) = (place.tree.display(), (DIRECTORIES * FILES).div_ceil(FILES_OF_COMPOUND));
    at_most(FIXED_MAX + bulk, &format!("cp -r -T {tree} @tree"));
    at_most(FIXED_MAX, "find @tree -size +1");
    at_most(FIXED_MAX, "du @tree");
    at_most(FIXED_MAX, "ls -R @tree");
    at_most(FIXED_MAX + bulk, &format!("cp -r -T @tree {}", place.dir.path("down").display()));
    assert_eq!(place.contents("down"), place.contents("tree"));
    at_most(FIXED_MAX + 2 * bulk, "cp -r @tree @again");
    at_most(FIXED_MAX + bulk, &format!("sync {tree} @tree"));
    at_most(FIXED_MAX, &format!("sync {tree} @tree"));
    at_most(FIXED_MAX + bulk, &format!("sync --checksum {tree} @tree"));
    at_most(FIXED_MAX + bulk, "chmod -R 700 @tree");
    at_most(FIXED_MAX + bulk, "rm -r @tree");
    at_most(FIXED_MAX + bulk, &format!("sync --delete {} @again", place.dir.directory("empty").display()));
    at_most(FIXED_MAX, "rm -d @again");
}

#[test]
fn a_big_file_takes_a_request_for_each_mebibyte_and_one_commit() {
    const MEBIBYTES: u64 = 24;
    let place = Place::new();
    let big = place.dir.path("big");
    std::fs::write(&big, vec![7; (MEBIBYTES as usize) << 20]).expect("a file");
    for (version, program) in [("3", "nfs3"), ("4.0", "nfs4"), ("4.2", "nfs4")] {
        let executed = || {
            let values = scrape_at_rest(place.metrics);
            ["READ", "WRITE", "COMMIT"].map(|operation| {
                let name =
                    format!("enfys_operations_total{{program=\"{program}\",operation=\"{operation}\"}}");
                values.get(&name[..]).map_or(0, |count| *count as u64)
            })
        };
        let before = executed();
        place.requests(version, &format!("cp {} @big", big.display()));
        place.requests(version, &format!("cp @big {}", place.dir.path("back").display()));
        place.requests(version, "cat @big");
        let counts: Vec<u64> = executed().iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(counts[1..], [MEBIBYTES, 1], "{version}");
        // `cat` asks once more whether the file has grown.
        assert!((2 * MEBIBYTES..=2 * MEBIBYTES + 1).contains(&counts[0]), "{version}: {} READs", counts[0]);
        assert!(
            std::fs::read(place.dir.path("back")).expect("a file") == vec![7; (MEBIBYTES as usize) << 20]
        );
    }
}

#[test]
fn version_3_takes_few_requests_for_each_file() {
    let place = Place::new();
    let at_most = |each: u64, line: &str| {
        let (requests, most) =
            (place.requests("3", line), FIXED_MAX + 3 * DIRECTORIES + each * DIRECTORIES * FILES);
        assert!(requests <= most, "{line}: {requests} requests, at most {most} are expected");
    };
    let tree = place.tree.display();
    at_most(2, &format!("cp -r -T {tree} @tree"));
    at_most(0, "find @tree -size +1");
    at_most(1, &format!("cp -r -T @tree {}", place.dir.path("down").display()));
    assert_eq!(place.contents("down"), place.contents("tree"));
    at_most(0, "du @tree");
    // Once without times, which make all files different: LOOKUP, ACCESS, two SETATTR and WRITE, after an attempt to create.
    at_most(6, &format!("sync {tree} @tree"));
    at_most(0, &format!("sync {tree} @tree"));
    at_most(1, "rm -r @tree");
}

#[test]
fn a_copy_of_many_files_skips_those_that_are_their_own_targets() {
    let place = Place::new();
    let tree = place.tree.display().to_string();
    place.requests("4.2", &format!("cp -r -T {tree} @tree"));
    place.requests("4.2", "mkdir @other @other/3");
    place.requests("4.2", "ln @tree/3/7 @other/3/7");
    for number in 0..20 {
        place.requests("4.2", &format!("ln -s ../../tree/3/8 @other/3/{}", number + 100));
    }
    place.requests("4.2", "ln -s ../../tree/3/9 @other/3/8");
    let url = |path: &str| format!("nfs://{}/export/{path}", place.address);
    let output = Command::new(ENFYS)
        .args(["cp", "-r", "-T", &url("tree"), &url("other")])
        .output()
        .expect("the binary starts");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("/tree/3/7 and ") && stderr.contains("are the same file"), "{stderr}");
    // The link was replaced, and its target has its content.
    for copied in ["tree", "other"] {
        place.requests("4.2", &format!("cp -r -T @{copied} {}", place.dir.path(copied).display()));
    }
    let others: Vec<_> = place.contents("other");
    let own: Vec<_> =
        others.iter().filter(|(name, _)| !name.starts_with("3/1") || name.len() < 5).cloned().collect();
    assert_eq!(own, place.contents("tree"));
}
