//! `enfys proxy` in front of a server.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use protocol::nfs3::StableHow;
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::server::{ENFYS, Server, TestDir, refusal, run};

/// The data written through the proxy.
static CONTENT: [u8; 100_000] = {
    let mut content = [0; 100_000];
    let mut at = 0;
    while at < content.len() {
        content[at] = (at % 251) as u8;
        at += 1;
    }
    content
};

/// A running proxy; killed when dropped.
pub(crate) struct Proxy {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    message: Vec<String>,
}

impl Proxy {
    pub(crate) fn start(target: SocketAddr, options: &[&str]) -> Self {
        let mut command = Command::new(ENFYS);
        command.args(["proxy", "--listen", "127.0.0.1:0", "--to", &target.to_string()]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let message: Vec<String> = (0..4).map(|_| lines.next().expect("a line").expect("text")).collect();
        let address = message[0].split(' ').nth(1).expect("an address").parse().expect("an address");
        Self { child, lines, address, message }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the proxy runs");
    }

    /// Returns the next statistics.
    fn statistics(&mut self) -> String {
        let lines: Vec<_> = self.lines.by_ref().take(3).map(|line| line.expect("text")).collect();
        lines.join("\n")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_reaches_the_server_through_the_proxy() {
    let dir = TestDir::new();
    let server = Server::start(&dir, &["serve", "--memory", "--listen", "127.0.0.1:0"]);
    let mut proxy = Proxy::start(server.address, &["--delay", "2ms", "--jitter", "1ms", "--rate", "1Gbit/s"]);
    assert_eq!(proxy.message[0], format!("proxy {} -> {}", proxy.address, server.address));
    assert!(proxy.message[1].starts_with("round trip 2 ms (1 ms each way) ± 1 ms, 1 Gbit/s each way; seed "));
    let mut client = Client::connect(proxy.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    client.write_at(file, 0, &CONTENT, StableHow::FileSync).unwrap();
    assert!(client.read_at(file, 0, 100_000).unwrap() == CONTENT);
    proxy.signal(Signal::USR1);
    let statistics = proxy.statistics();
    assert!(statistics.starts_with("connections: 1 accepted, 1 open, 0 broken"), "{statistics}");
    let bytes = |line: &str| {
        let line = statistics.lines().find_map(|text| text.strip_prefix(line)).expect("a line");
        line.split_whitespace().next().expect("a number").parse::<u64>().expect("a number")
    };
    for direction in ["up:", "down:"] {
        assert!((100_000..110_000).contains(&bytes(direction)), "{statistics}");
    }
    proxy.signal(Signal::TERM);
    assert!(proxy.statistics().starts_with("connections: 1 accepted"));
    assert!(proxy.child.wait().expect("a child").success());
    server.stop();
}

#[test]
fn wrong_options_are_named() {
    let usage = |options: &[&str]| {
        let output = run(&[&["proxy", "--listen", "0", "--to", "2049"][..], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    for (options, said) in [
        (["--delay", "10"], "as in 10ms"),
        (["--loss", "0.1"], "as in 0.1%"),
        (["--rate", "100"], "as in 100Mbit/s"),
        (["--outage", "5s"], "`every TIME for TIME` or `at TIME for TIME`"),
        (["--max-connections", "0"], "0 is not in 1.."),
    ] {
        let text = usage(&options);
        assert!(text.contains(said), "{options:?}: {text}");
    }
    let refused =
        refusal(&run(&["proxy", "--listen", "0", "--to", "2049", "--jitter", "2ms", "--delay", "1ms"]));
    assert_eq!(refused, "--jitter 2 ms is more than --delay 1 ms: no round trip can be negative");
}
