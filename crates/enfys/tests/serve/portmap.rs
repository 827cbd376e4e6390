//! Port mapper calls: `rpcinfo` and `showmount` are the clients, in a network namespace where port 111 is free.

use std::process::{Command, Output};

use crate::server::{ENFYS, TestDir};

/// The beginning of every script here.
const PROGRAMS: [&str; 5] = ["unshare", "ip", "rpcinfo", "showmount", "rpcbind"];

/// Starts a server (`$1` is the binary) and waits until it is ready; `stop` stops it in order.
const SERVE: &str = r#"
    set -e
    trap 'kill $server $rpcbind 2>/dev/null || true' EXIT
    ip link set lo up
    serve() {
        enfys=$1 work=$2
        shift 2
        set -- serve --memory --listen 127.0.0.1:2049 --listen '[::1]:2049' --portmap "$@"
        "$enfys" "$@" >"$work/out" 2>"$work/log" & server=$!
        set -- "$enfys" "$work"
        until grep -q nfs:// "$2/out"; do
            kill -0 $server || { cat "$2/log" >&2; exit 1; }
            sleep 0.02
        done
    }
    stop() { kill $server; wait $server; server=; }
"#;

/// Runs a script as root of new namespaces; `None` if the system does not allow that.
fn isolated(dir: &TestDir, options: &[&str], script: &str) -> Option<String> {
    let has = |program: &&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|output| output.status.success())
    };
    if let Some(missing) = PROGRAMS.iter().find(|program| !has(program)) {
        println!("skipped: {missing} is not installed");
        return None;
    }
    let run = |words: &[&str]| {
        Command::new("unshare").args(options).args(words).output().expect("unshare is there")
    };
    if !run(&["true"]).status.success() {
        println!("skipped: no network namespaces for tests");
        return None;
    }
    let whole = format!("{SERVE}{script}");
    let directory = dir.path("").display().to_string();
    let Output { status, stdout, stderr } = run(&["sh", "-c", &whole, "sh", ENFYS, &directory]);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    Some(String::from_utf8(stdout).expect("text"))
}

/// Returns program, version, protocol and port of each line.
fn registrations(text: &str) -> Vec<[&str; 4]> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let reported = lines.filter(|words| words.len() == 5 && words[0] != "program");
    reported.map(|words| [words[0], words[1], words[2], words[3]]).collect()
}

const NFS: [[&str; 4]; 9] = [
    ["100003", "3", "tcp", "2049"],
    ["100003", "4", "tcp", "2049"],
    ["100227", "3", "tcp", "2049"],
    ["100005", "3", "tcp", "2049"],
    ["100021", "1", "tcp", "2049"],
    ["100021", "3", "tcp", "2049"],
    ["100021", "4", "tcp", "2049"],
    ["100024", "1", "tcp", "2049"],
    ["100024", "1", "udp", "2049"],
];

#[test]
fn the_own_port_mapper_answers_with_ports_and_mount_with_exports() {
    let dir = TestDir::new();
    let script = r#"
        serve "$1" "$2"
        rpcinfo -p 127.0.0.1
        showmount -e 127.0.0.1
        rpcinfo -u 127.0.0.1 100000 2
        rpcinfo -t 127.0.0.1 100003 3
        rpcinfo -T tcp 127.0.0.1 100003 4
        rpcinfo -T tcp6 ::1 100005 3
        rpcinfo -T udp 127.0.0.1 100000 4
        rpcinfo -s 127.0.0.1
        echo over UDP
        rpcinfo -T udp 127.0.0.1 100003 3 2>&1 || true
        rpcinfo -T udp6 ::1 100005 3 2>&1 || true
        stop
    "#;
    let Some(output) = isolated(&dir, &["--user", "--map-root-user", "--net"], script) else { return };
    let reported = registrations(output.split("Export list").next().unwrap_or_default());
    let own = ["tcp", "udp"].into_iter().flat_map(|netid| ["2", "3", "4"].map(|version| (version, netid)));
    let own: Vec<_> = own.map(|(version, netid)| ["100000", version, netid, "111"]).collect();
    assert_eq!(reported[..6], own, "{output}");
    assert_eq!(reported[6..], NFS, "{output}");
    assert!(output.contains("/export (everyone)"), "{output}");
    assert!(output.contains("program 100000 version 2 ready and waiting"), "over UDP: {output}");
    let (output, over_udp) = output.split_once("over UDP\n").expect("both");
    for ready in ["100003 version 3", "100003 version 4", "100005 version 3", "100000 version 4"] {
        assert!(output.contains(&format!("program {ready} ready and waiting")), "{ready}: {output}");
    }
    let of_both = |line: &str| line.contains("100000") && line.contains("udp") && line.contains("tcp");
    assert!(output.lines().any(of_both), "in one line of the summary: {output}");
    assert_eq!(over_udp.matches("Program not registered").count(), 2, "{over_udp}");
}

#[test]
fn version_2_and_datagrams_are_found_by_rpcinfo_and_showmount() {
    let dir = TestDir::new();
    let script = r#"
        serve "$1" "$2" --versions 2,3,4 --udp
        rpcinfo -p 127.0.0.1
        showmount -e 127.0.0.1
        for version in 2 3; do
            rpcinfo -u 127.0.0.1 100003 $version
            rpcinfo -t 127.0.0.1 100003 $version
            rpcinfo -T udp6 ::1 100003 $version
        done
        for version in 1 2 3; do
            rpcinfo -u 127.0.0.1 100005 $version
            rpcinfo -t 127.0.0.1 100005 $version
        done
        for version in 1 3 4; do
            rpcinfo -u 127.0.0.1 100021 $version
            rpcinfo -t 127.0.0.1 100021 $version
        done
        rpcinfo -u 127.0.0.1 100024 1
        rpcinfo -t 127.0.0.1 100024 1
        echo not over UDP
        rpcinfo -u 127.0.0.1 100003 4 2>&1 || true
        stop
    "#;
    let Some(said) = isolated(&dir, &["--user", "--map-root-user", "--net"], script) else { return };
    let told = registrations(said.split("Export list").next().unwrap_or_default());
    for (version, transport) in [("2", "tcp"), ("2", "udp"), ("3", "udp")] {
        assert!(told.contains(&["100003", version, transport, "2049"]), "{said}");
    }
    assert!(told.contains(&["100005", "1", "udp", "2049"]), "{said}");
    assert!(!told.contains(&["100003", "4", "udp", "2049"]), "{said}");
    assert!(said.contains("/export (everyone)"), "{said}");
    let (ready, refused) = said.split_once("not over UDP\n").expect("both");
    assert_eq!(ready.matches("ready and waiting").count(), 20, "{said}");
    assert!(!refused.contains("ready and waiting"), "{refused}");
}

#[test]
fn nlm_and_its_status_monitor_keep_their_own_ports_over_a_restart() {
    let dir = TestDir::new();
    let script = r#"
        cat >"$2/enfys.toml" <<END
        listen = ["127.0.0.1:2049"]
        portmap = true
        udp = true
        nlm-port = 4045
        nsm-port = 4046
        [[export]]
        memory = true
        pseudo = "/export"
END
        for time in 1 2; do
            "$1" serve --config "$2/enfys.toml" --state-dir "$2/state" >"$2/out" 2>"$2/log" & server=$!
            until grep -q nfs:// "$2/out"; do
                kill -0 $server || { cat "$2/log" >&2; exit 1; }
                sleep 0.02
            done
            rpcinfo -p 127.0.0.1
            rpcinfo -u 127.0.0.1 100021 4
            rpcinfo -t 127.0.0.1 100021 4
            rpcinfo -u 127.0.0.1 100024 1
            stop
        done
    "#;
    let Some(said) = isolated(&dir, &["--user", "--map-root-user", "--net"], script) else { return };
    let reported = registrations(&said);
    for row in [
        ["100021", "1", "tcp", "4045"],
        ["100021", "4", "tcp", "4045"],
        ["100021", "4", "udp", "4045"],
        ["100024", "1", "udp", "4046"],
        ["100003", "3", "tcp", "2049"],
    ] {
        assert_eq!(reported.iter().filter(|reported| **reported == row).count(), 2, "{row:?}: {said}");
    }
    assert_eq!(said.matches("ready and waiting").count(), 6, "{said}");
}

#[test]
fn the_server_registers_with_a_running_port_mapper_and_unregisters() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: rpcbind needs root");
        return;
    }
    let dir = TestDir::new();
    // rpcbind keeps its socket and its lock in /run.
    let script = r#"
        mount -t tmpfs none /run
        rpcbind -f -w & rpcbind=$!
        until rpcinfo -p 127.0.0.1 >"$2/empty" 2>&1; do kill -0 $rpcbind; sleep 0.02; done
        serve "$1" "$2"
        rpcinfo -p 127.0.0.1
        rpcinfo -T tcp6 ::1 100003 3
        rpcinfo -T tcp6 ::1 100003 4
        rpcinfo ::1
        stop
        echo stopped
        rpcinfo -p 127.0.0.1
        rpcinfo ::1
    "#;
    let Some(output) = isolated(&dir, &["--net", "--mount"], script) else { return };
    let (during, after) = output.split_once("stopped\n").expect("both lists");
    let reported = registrations(during);
    for row in NFS {
        assert!(reported.contains(&row), "{row:?} is missing: {during}");
    }
    for version in [3, 4] {
        let ready = format!("program 100003 version {version} ready and waiting");
        assert!(during.contains(&ready), "over IPv6: {during}");
    }
    assert!(!after.contains("::1.8.1") && !after.contains("127.0.0.1.8.1"), "{after}");
    assert!(registrations(after).iter().all(|row| row[0] == "100000"), "{after}");
}
