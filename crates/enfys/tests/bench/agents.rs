//! Runs whose clients are in several agents, here all of this machine.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::runs::{count, read_results, requests};
use crate::{ENFYS, bench, printed};

/// A server of a file system in memory.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Server {
    fn start() -> Self {
        Self::start_with("--memory")
    }

    /// Starts a server with an option for its memory.
    pub(crate) fn start_with(memory: &str) -> Self {
        let mut child = Command::new(ENFYS)
            .args(["serve", memory, "--squash", "none", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains(",port=")).expect("the server starts");
        let port = line.split(",port=").nth(1).expect("a port");
        let port = port.split(|byte: char| !byte.is_ascii_digit()).next().expect("digits");
        let url = format!("nfs://127.0.0.1:{port}/export");
        std::thread::spawn(move || lines.count());
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates 20 files by each of five clients with two agents.
fn creates(server: &Server, results: &Path, agent_command: &str) -> Output {
    let results = results.to_str().expect("a plain path");
    bench(&[
        "run",
        "create",
        "--target",
        &server.url,
        "--nfs",
        "4.1",
        "--rounds",
        "1",
        "--clients",
        "5",
        "--set",
        "files=20",
        "--agents",
        "one,two",
        "--agent-command",
        agent_command,
        "--results",
        results,
    ])
}

#[test]
fn agents_share_the_clients_and_their_results_are_one() {
    let (server, dir) = (Server::start(), tempfile::tempdir().expect("a temporary directory"));
    printed(&creates(&server, dir.path(), &format!("exec '{ENFYS}' bench agent")));
    let [result] = &read_results(dir.path())[..] else { panic!("one result") };
    assert_eq!(result["outcome"], "complete");
    assert_eq!(count(result, "create"), 5 * 20);
    assert_eq!(requests(result, "OPEN"), 5 * 20);
    let clients = result["clients"].as_array().expect("clients");
    let each: Vec<u64> = clients.iter().map(|client| sum(&client["operations"])).collect();
    assert_eq!(each, [20; 5]);
    let agents = result["options"]["agents"].as_str().expect("the agents");
    assert!(
        agents.starts_with("one: 3 client(s), clock within ") && agents.contains("; two: 2 client(s)"),
        "{agents}"
    );
}

fn sum(counts: &serde_json::Value) -> u64 {
    counts.as_array().expect("counts").iter().filter_map(serde_json::Value::as_u64).sum()
}

#[test]
fn a_run_whose_agent_is_killed_keeps_what_the_other_has_done() {
    let (server, dir) = (Server::start(), tempfile::tempdir().expect("a temporary directory"));
    // The second one is gone when its clients are ready.
    let command = format!(
        "if [ $HOST = one ]; then exec '{ENFYS}' bench agent; fi
         (while read -r order; do echo \"$order\"; case $order in *begin*) exit;; esac; done) | '{ENFYS}' bench agent"
    );
    let output = creates(&server, dir.path(), &command);
    assert!(!output.status.success());
    let [result] = &read_results(dir.path())[..] else { panic!("one result") };
    let why = result["outcome"]["failed"].as_str().expect("a failure");
    assert!(why.starts_with("agent two has ended"), "{why}");
    assert_eq!(count(result, "create"), 3 * 20);
}

#[test]
fn agents_that_do_not_start_are_reported_before_the_first_run() {
    let (server, dir) = (Server::start(), tempfile::tempdir().expect("a temporary directory"));
    let output = creates(&server, dir.path(), "echo no route to $HOST >&2; exit 255");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("agent one has ended (exit status: 255): no route to one"), "{said}");
    assert!(read_results(dir.path()).is_empty());
}
