//! Commands at both ends of a link.

use std::path::Path;
use std::process::Output;

use crate::{ENFYS, bench};

/// Runs a link; `None` if namespaces are not allowed.
fn link(arguments: &[&str]) -> Option<Output> {
    let output = bench(&[&["link"], arguments].concat());
    let complained = String::from_utf8_lossy(&output.stderr);
    if complained.contains("cannot make a") {
        println!("skipped: {}", complained.trim());
        return None;
    }
    Some(output)
}

#[test]
fn client_ends_with_its_own_status_in_a_network_of_its_own() {
    let script = "echo $LINK_CLIENT $LINK_SERVER; ls /sys/class/net >/dev/null; cat /proc/net/dev; exit 7";
    let Some(output) = link(&["--delay", "1ms", "--", "sh", "-c", script]) else { return };
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("10.77.0.2 10.77.0.1\n"), "{said}");
    let mut devices: Vec<&str> =
        said.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    devices.sort_unstable();
    assert_eq!(devices, ["link0", "lo"], "{said}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("link: round trip 1ms\n"));
}

#[test]
fn server_is_ready_before_the_client_and_ends_after_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pid_file = dir.path().join("pid");
    let serve = format!(
        "echo $$ > '{}'; exec '{ENFYS}' serve --memory --listen 10.77.0.1:2049 --insecure --state-dir '{}' --log error",
        pid_file.display(),
        dir.path().join("state").display()
    );
    let client = ["--", "sh", "-c", "test -s \"$0\"", pid_file.to_str().expect("a plain path")];
    let arguments = [&["--server", &serve, "--ready-port", "2049"], &client[..]].concat();
    let Some(output) = link(&arguments) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pid = std::fs::read_to_string(&pid_file).expect("the server's id");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the server still runs");
}

#[test]
fn server_that_ends_at_once_is_reported() {
    let arguments = ["--server", "exit 3", "--ready-port", "2049", "--", "true"];
    let Some(output) = link(&arguments) else { return };
    assert_eq!(output.status.code(), Some(1));
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(complained.contains("the server ended before it was ready: exit status: 3"), "{complained}");
}

#[test]
fn missing_client_command_is_named() {
    let Some(output) = link(&["--", "/no/such/program"]) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program: No such file"));
}

#[test]
fn impossible_links_are_refused() {
    for (arguments, why) in [
        (&["--jitter", "2ms", "--delay", "1ms"][..], "a jitter of 2ms is more than the delay of 1ms"),
        (&["--reorder", "5%"], "reordering needs a delay"),
        (&["--mtu", "100"], "packets of 100 bytes: expected 1280 to 65535"),
    ] {
        let output = bench(&[&["link"], arguments, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{arguments:?}");
    }
}

/// Answers one line of one connection with the same line.
fn echo() -> std::net::SocketAddr {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut line = String::new();
        BufReader::new(stream.try_clone().expect("a stream")).read_line(&mut line).expect("a line");
        stream.write_all(line.as_bytes()).expect("an open connection");
    });
    address
}

#[test]
fn a_proxy_relays_to_a_server_elsewhere_and_says_what_it_cannot_show() {
    let script =
        "exec 3<>/dev/tcp/$LINK_SERVER/$LINK_PORT; echo hello >&3; read -r line <&3; echo \"$line\"; exit 3";
    for json in [false, true] {
        let target = echo().to_string();
        let format: &[&str] = if json { &["--json"] } else { &[] };
        let words = ["link", "--delay", "2ms", "--proxy", &target];
        let output = bench(&[&words, format, &["--", "bash", "-c", script]].concat());
        assert_eq!(output.status.code(), Some(3), "the client's status");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
        let said = String::from_utf8_lossy(&output.stderr);
        if json {
            let line: serde_json::Value = serde_json::from_str(&said).expect("JSON");
            assert_eq!((&line["up"]["bytes"], &line["down"]["bytes"]), (&6.into(), &6.into()));
            assert!(line["cannot_show"].as_str().is_some_and(|text| text.contains("congestion control")));
        } else {
            for part in ["round trip 2ms", "up:          6 bytes", "It cannot show: buffers and windows"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    }
}

#[test]
fn a_proxy_refuses_what_it_does_not_have() {
    let with = |words: &[&str]| {
        let output =
            bench(&[&["link", "--delay", "1ms", "--proxy", "127.0.0.1:1"], words, &["--", "true"]].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, why) = with(&["--reorder", "5%"]);
    assert!(status == Some(1) && why.contains("a proxy cannot reorder packets"), "{why}");
    assert_eq!(with(&["--tcp-buffer", "1MiB"]).0, Some(2), "its two connections have the system's");
}
