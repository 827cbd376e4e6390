//! A client whose machine or network disappears.

use std::process::Command;

use crate::server::{ENFYS, TestDir};

/// `$1` is the binary, `$2` a directory. The link goes down under an idle connection, which only the server's own probes can
/// notice.
const SCRIPT: &str = r#"
    set -e
    trap 'kill $server 2>/dev/null || true' EXIT
    ip link set lo up
    printf '[limits]\nsilence-seconds = 9\n' >"$2/enfys.toml"
    "$1" serve --config "$2/enfys.toml" --memory --listen 127.0.0.1:2049 --metrics 127.0.0.1:9100 \
        >"$2/out" 2>"$2/log" & server=$!
    until grep -q nfs:// "$2/out"; do
        kill -0 $server || { cat "$2/log" >&2; exit 1; }
        sleep 0.02
    done
    metric() {
        exec 4<>/dev/tcp/127.0.0.1/9100
        printf 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n' >&4
        sed -n "s/^enfys_$1 //p" <&4
    }
    connections() { metric connections; }
    exec 3<>/dev/tcp/127.0.0.1/2049
    until [ "$(connections)" = 1 ]; do sleep 0.02; done
    ip link set lo down
    for _ in $(seq 600); do
        [ -n "$(ss -Htn state established 'sport = :2049')" ] || break
        sleep 0.1
    done
    ip link set lo up
    # The kernel has given it up; the server hears of that in its own time, and has nothing else to hear it by.
    for _ in $(seq 600); do
        [ "$(connections)" != 0 ] || break
        sleep 0.1
    done
    echo "left: $(connections)"
    echo "stalled: $(metric stalled_connections_total)"
    echo "unreachable: $(metric unreachable_connections_total)"
    grep -c 'connection lost: the peer is unreachable' "$2/log"
"#;

#[test]
fn the_connection_of_an_unreachable_peer_is_closed() {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|output| output.status.success())
    };
    if let Some(missing) = ["unshare", "ip", "ss", "bash"].into_iter().find(|program| !has(program)) {
        return println!("skipped: {missing} is not installed");
    }
    let isolated = |words: &[&str]| {
        let options = ["--user", "--map-root-user", "--net"];
        Command::new("unshare").args(options).args(words).output().expect("unshare is there")
    };
    if !isolated(&["true"]).status.success() {
        return println!("skipped: no network namespaces for tests");
    }
    let dir = TestDir::new();
    let directory = dir.path("").display().to_string();
    let output = isolated(&["bash", "-c", SCRIPT, "bash", ENFYS, &directory]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "left: 0\nstalled: 0\nunreachable: 1\n1\n");
}
