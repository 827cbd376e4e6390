//! Calls of a server's lock manager to a mount of version 3: `rpcbind` is the port mapper, `rpcinfo` another caller, in a network
//! namespace where port 111 is free.

use std::process::Command;

use crate::support::{ENFYS, can_mount};

/// Runs a server, and two mounts of it (`$1` is the binary, `$2` an empty directory). `rpcbind` keeps its socket and its lock in /run.
const SCRIPT: &str = r#"
    set -e
    trap 'umount -l "$2"/one "$2"/two 2>/dev/null || true; kill $server $rpcbind 2>/dev/null || true' EXIT
    ip link set lo up
    mount -t tmpfs none /run
    rpcbind -f -w & rpcbind=$!
    until rpcinfo -p 127.0.0.1 >/dev/null 2>&1; do kill -0 $rpcbind; sleep 0.02; done
    # Not registered: the port mapper of this machine is the mount's.
    "$1" serve --memory --listen 127.0.0.1:2050 --squash none --state-dir "$2/state" >"$2/out" 2>"$2/log" & server=$!
    until grep -q nfs:// "$2/out"; do kill -0 $server; sleep 0.02; done
    mkdir "$2/one" "$2/two"
    for name in one two; do
        "$1" mount 'nfs://127.0.0.1:2050/export?version=3' "$2/$name" --log-file "$2/$name.log" --log debug
    done
    touch "$2/one/f"
    # The first mount that locks is registered.
    flock "$2/two/f" true
    until rpcinfo -t 127.0.0.1 100021 4; do sleep 0.02; done
    rpcinfo -T udp 127.0.0.1 100024 1
    rpcinfo -T tcp 127.0.0.1 100021 3 2>&1 || true
    mkfifo "$2/release" "$2/held"
    granted() { grep -c 'the server calls.*program=100021 procedure=5' "$2/two.log" || true; }
    echo "GRANTED before: $(granted "$@")"
    # A waiter also asks again by itself, which may come just before GRANTED.
    for round in 1 2 3 4 5; do
        (flock 9; echo >"$2/held"; read -r _ <"$2/release") 9<"$2/one/f" & holder=$!
        read -r _ <"$2/held"
        flock "$2/two/f" echo "the waiter has it" & waiter=$!
        until "$1" status --json --state-dir "$2/state" | grep -q '"locks_waiting":1'; do sleep 0.02; done
        echo >"$2/release"
        wait $holder
        wait $waiter
        test "$(granted "$@")" = 0 || break
    done
    echo "GRANTED after: $(granted "$@")"
    "$1" umount "$2/two"
    until ! rpcinfo -p 127.0.0.1 | grep -q 100021; do sleep 0.02; done
    echo gone
    "$1" umount "$2/one"
"#;

#[test]
fn the_server_calls_a_mount_that_waits_for_a_lock() {
    if !can_mount() {
        return;
    }
    for program in ["unshare", "ip", "rpcinfo", "rpcbind", "flock"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            println!("skipped: {program} is not installed");
            return;
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let directory = dir.path().to_str().expect("text");
    let output = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", SCRIPT, "sh", ENFYS, directory])
        .output()
        .expect("unshare is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("program 100021 version 4 ready and waiting"), "{text}");
    assert!(text.contains("program 100024 version 1 ready and waiting"), "{text}");
    assert!(text.contains("low version = 4, high version = 4"), "another version: {text}");
    assert!(text.contains("GRANTED before: 0\nthe waiter has it\n"), "{text}");
    assert!(text.contains("the waiter has it\nGRANTED after: 1\ngone\n"), "{text}");
}
