//! Copies of trees whose server or client is killed in the middle.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::commands::manifest;
use crate::server::{ENFYS, Server, TestDir, is_root};

const VERSIONS: [&str; 4] = ["3", "4.0", "4.1", "4.2"];
const FILES: usize = 3000;
/// Time for a copy to begin.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A tree to copy, and a server of an empty export that can be killed.
struct Place {
    dir: TestDir,
    export: PathBuf,
    server: Option<Server>,
    listen: String,
}

impl Place {
    fn new() -> Self {
        let dir = TestDir::new();
        let export = dir.directory("export");
        // The grace period ends early: version 4.0 cannot say that it has reclaimed all.
        dir.file("enfys.toml", "[limits]\nlease-seconds = 10\n");
        let tree = dir.directory("tree");
        for number in 0..FILES {
            let folder = tree.join(format!("{}/{}", number % 7, number % 5));
            std::fs::create_dir_all(&folder).expect("directories");
            std::fs::write(folder.join(format!("f{number}")), vec![number as u8; number * 13])
                .expect("a file");
        }
        std::fs::write(tree.join("large"), vec![7; 50_000_001]).expect("a file");
        let mut place = Self { dir, export, server: None, listen: "127.0.0.1:0".into() };
        place.start();
        place.listen = place.server().address.to_string();
        place
    }

    /// Starts the server, after the first time at the same address.
    fn start(&mut self) {
        let (config, state) = (self.dir.path("enfys.toml"), self.dir.path("state"));
        let [config, state, export] =
            [&config, &state, &self.export].map(|path: &PathBuf| path.to_str().expect("text"));
        let arguments = ["serve", "--listen", &self.listen, "--squash", "none", "--config", config];
        let arguments = [&arguments[..], &["--state-dir", state, export]].concat();
        self.server = Some(Server::start(&self.dir, &arguments));
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn url(&self, name: &str, version: &str) -> String {
        format!("nfs://{}/export/{name}?version={version}", self.server().address)
    }

    /// Starts a copy, and returns when its target has files.
    fn begin_copy(&self, from: &str, to: &str, local: &Path) -> Child {
        let mut copy =
            Command::new(ENFYS).args(["cp", "-r", "-p", "-T", from, to]).spawn().expect("the binary");
        let begun = Instant::now();
        while !local.join("0").exists() {
            assert!(copy.try_wait().expect("a child").is_none() && begun.elapsed() < WAIT_MAX, "no files");
            std::thread::sleep(Duration::from_millis(1));
        }
        copy
    }

    fn tree(&self) -> PathBuf {
        self.dir.path("tree")
    }

    /// Copies the tree to the server and back, calls `disturb` when each copy has begun, and compares the trees at the end.
    fn copy_up_and_down(&mut self, version: &str, disturb: impl Fn(&mut Self, Child, [&str; 2])) {
        let expected = manifest(&self.tree(), true);
        let (tree, url) = (self.tree().display().to_string(), self.url("up", version));
        let (up, down) = (self.export.join("up"), self.dir.path("down"));
        let copy = self.begin_copy(&tree, &url, &up);
        disturb(self, copy, [&tree, &url]);
        assert!(manifest(&up, true) == expected, "{version}: the tree at the server");
        let back = down.display().to_string();
        let copy = self.begin_copy(&url, &back, &down);
        disturb(self, copy, [&url, &back]);
        assert!(manifest(&down, true) == expected, "{version}: the tree that came back");
    }
}

#[test]
fn a_copy_goes_on_after_its_server_was_killed() {
    if !is_root() {
        return;
    }
    for version in VERSIONS {
        Place::new().copy_up_and_down(version, |place, mut copy, _| {
            place.server.take().expect("it runs").kill();
            assert!(copy.try_wait().expect("a child").is_none(), "{version}: the copy waits for the server");
            place.start();
            assert!(copy.wait().expect("a child").success(), "{version}");
        });
    }
}

#[test]
fn a_copy_that_was_killed_ends_with_the_right_tree_when_it_is_run_again() {
    if !is_root() {
        return;
    }
    for version in VERSIONS {
        Place::new().copy_up_and_down(version, |_, mut copy, [from, to]| {
            copy.kill().expect("a child");
            assert!(!copy.wait().expect("a child").success(), "{version}: it was killed before its end");
            let again = Command::new(ENFYS).args(["cp", "-r", "-p", "-T", from, to]).status();
            assert!(again.expect("the binary").success(), "{version}");
        });
    }
}
