//! First steps: the commands of the README, and the output and warnings of a start.

use std::path::Path;
use std::process::{Command, Output};

use protocol::nfs3::StableHow;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::lookup::LookupArgs;
use xdr::Opaque;

use crate::client::{Client, Client4};
use crate::libnfs;
use crate::server::{ENFYS, Server, TestDir, mode, run, with};

/// Returns the first commands in README.md.
fn first_commands() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(path).expect("README.md");
    let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("a block of commands").lines().map(String::from).collect()
}

#[test]
fn the_first_commands_of_the_readme_make_a_writable_export() {
    if !crate::server::is_root() {
        return;
    }
    let dir = TestDir::new();
    let directory = dir.path("data").display().to_string();
    let commands = first_commands();
    let [make, serve] = &*commands else { panic!("{commands:?}") };
    let make = make.replace("/srv/data", &directory);
    assert!(Command::new("sh").args(["-c", &make]).status().unwrap().success(), "{make}");
    let serve = serve.strip_prefix("cargo run --release -p enfys -- serve ").expect("the program");
    assert_eq!(serve, "/srv/data");
    let server = Server::start(&dir, &with(&dir, &[directory.as_ref()]));
    assert!(!server.log().contains("WARN"), "{}", server.log());
    let own = rustix::process::geteuid().as_raw();
    let ordinary = if own == 0 { 1000 } else { own };
    // Root, which mounts, is squashed.
    for uid in [0, ordinary] {
        let mut client = Client::connect(server.address);
        client.uid = uid;
        let root = client.mount("/export").unwrap();
        let file = client.create(root, &format!("of-{uid}")).unwrap();
        client.write(file, b"written", StableHow::FileSync).unwrap();
    }
    server.stop();
}

/// Returns the output of `check-config` for an export of a directory with additional lines.
fn checked(dir: &TestDir, directory: &Path, line: &str) -> String {
    let text = format!(
        "state-dir = '{}'\n[[export]]\npath = '{}'\n{line}\n",
        dir.path("state").display(),
        directory.display()
    );
    let file = dir.file("enfys.toml", &text);
    let output = run(&["check-config".as_ref(), file.as_path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_export_without_writers_is_a_warning() {
    let dir = TestDir::new();
    let directory = dir.directory("data");
    std::fs::set_permissions(&directory, mode(0o755)).unwrap();
    let squash_all = "squash = 'all'";
    let warning = format!(
        "probably no client can create files here: {} belongs to {}:{} with mode 755, and every user of every client acts \
         as 65534:65534.",
        directory.display(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    let output = checked(&dir, &directory, squash_all);
    assert!(output.contains(&warning), "{output}");
    assert!(output.contains("--squash none"), "{output}");
    let server = Server::start(&dir, &with(&dir, &[&directory, "--squash=all".as_ref()]));
    assert!(server.log().contains(&warning), "{}", server.log());
    server.stop();
    for line in ["squash = 'none'", "squash = 'all'\nread-only = true"] {
        assert!(!checked(&dir, &directory, line).contains("no client can"), "{line}");
    }
    std::fs::set_permissions(&directory, mode(0o1777)).unwrap();
    assert!(!checked(&dir, &directory, squash_all).contains("no client can"));
}

/// Runs a script as root of new namespaces, with the binary as `$1` and the test's directory as `$2`; `None` if the system does not
/// allow that.
fn isolated(dir: &TestDir, script: &str) -> Option<Output> {
    let run = |words: &[&str]| {
        Command::new("unshare").args(["--user", "--map-root-user", "--mount", "--net"]).args(words).output()
    };
    if !run(&["ip", "link"]).is_ok_and(|output| output.status.success()) {
        println!("skipped: no namespaces for tests, or no `ip`");
        return None;
    }
    let directory = dir.path("").display().to_string();
    let output = run(&["sh", "-c", script, "sh", ENFYS, &directory]).expect("unshare ran before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

#[test]
fn an_export_of_a_read_only_mount_is_shown_as_read_only() {
    let dir = TestDir::new();
    dir.directory("data");
    let script = r#"
        set -e
        mount -t tmpfs -o ro,mode=1777 tmpfs "$2/data"
        printf "state-dir = '%s/state'\n[[export]]\npath = '%s/data'\n" "$2" "$2" >"$2/enfys.toml"
        exec "$1" check-config "$2/enfys.toml"
    "#;
    let Some(output) = isolated(&dir, script) else { return };
    let output = String::from_utf8(output.stdout).unwrap();
    let expected = "as /export: read-only (its file system is mounted read-only here), root squashed";
    assert!(output.contains(expected), "{output}");
}

/// Starts a server on all addresses of a machine with `192.0.2.7`, prints its startup message and log, and stops it.
const ON_ALL_ADDRESSES: &str = r#"
    set -e
    trap 'kill $server 2>/dev/null || true' EXIT
    ip link set lo up
    ip address add 192.0.2.7/24 dev lo
    "$1" serve --memory --listen 0.0.0.0:2049 --metrics 0.0.0.0:9100 >"$2/out" 2>"$2/log" & server=$!
    until grep -q metrics: "$2/out"; do
        kill -0 $server || { cat "$2/log" >&2; exit 1; }
        sleep 0.02
    done
    kill $server; wait $server; server=
    cat "$2/out" "$2/log"
"#;

#[test]
fn the_startup_message_has_addresses_that_clients_can_use() {
    let dir = TestDir::new();
    let Some(output) = isolated(&dir, ON_ALL_ADDRESSES) else { return };
    let output = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "  mount -t nfs -o vers=4.1,port=2049 192.0.2.7:/export /mnt\n",
        "  'nfs://192.0.2.7/export?version=3&nfsport=2049&mountport=2049'\n",
        "metrics: http://192.0.2.7:9100/metrics\n",
        "every machine that reaches 0.0.0.0:2049 may mount it: to limit the clients, use `clients` \
         in a configuration file (--config)\n",
    ] {
        assert!(output.contains(expected), "`{expected}` is missing in: {output}");
    }
}

#[test]
fn the_printed_url_is_quoted_for_a_shell() {
    let dir = TestDir::new();
    let server = Server::start(&dir, &["serve", "--memory", "--listen", "127.0.0.1:0"]);
    let line = server.startup_message.lines().find(|line| line.contains("nfs://")).expect("a URL");
    let output = Command::new("sh").args(["-c", &format!("printf %s {line}")]).output().unwrap();
    let port = server.address.port();
    let expected = format!("nfs://127.0.0.1/export?version=3&nfsport={port}&mountport={port}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    server.stop();
}

#[test]
fn an_export_at_the_root_and_listening_on_a_host_name_work() {
    let dir = TestDir::new();
    let export = dir.directory("data");
    let arguments = ["serve".to_owned(), format!("{}:/", export.display())];
    let state = dir.path("state").display().to_string();
    let more = ["--listen", "localhost:0", "--state-dir", &state].map(String::from);
    let server = Server::start(&dir, &[&arguments[..], &more].concat());
    assert!(server.address.ip().is_loopback());
    assert!(server.startup_message.contains(":/ /mnt\n"), "{}", server.startup_message);
    // A file name can be appended to the path of the printed URL.
    let host = server.address.ip();
    let (before, options) =
        (format!("nfs://{host}//"), format!("?version=3&nfsport={}", server.address.port()));
    assert!(server.startup_message.contains(&format!("{before}{options}")), "{}", server.startup_message);
    let mut client = Client::connect(server.address);
    let root = client.mount("/").unwrap();
    client.create(root, "file").unwrap();
    assert!(export.join("file").exists());
    if libnfs::is_installed() {
        let options = format!("{options}&mountport={}", server.address.port());
        std::fs::write(export.join("file"), "text").unwrap();
        assert_eq!(libnfs::succeeds("nfs-cat", &[&format!("{before}file{options}")]), b"text");
        libnfs::succeeds("nfs-ls", &[&format!("{before}{options}")]);
    }
    // Version 4 finds it below PUTROOTFH.
    let mut client = Client4::connect(server.address);
    let lookup = Op::Lookup(LookupArgs { name: Opaque::from_static(b"file") });
    client.run(vec![Op::PutRootFh, lookup]).unwrap();
    server.stop();
}

#[test]
fn a_port_alone_is_on_loopback() {
    let dir = TestDir::new();
    let server = Server::start(&dir, &["serve", "--memory", "--listen", "0", "--metrics", "0"]);
    assert!(server.address.ip().is_loopback());
    server.stop();
}

#[test]
fn unknown_hosts_and_netgroups_are_warnings() {
    let dir = TestDir::new();
    let directory = dir.directory("data");
    let lines = "clients = [\n'127.0.0.1',\n'no-such-host.invalid']\n[[export.client]]\nclients = ['@no-such-netgroup']";
    let checked = checked(&dir, &directory, lines);
    let file = dir.path("enfys.toml");
    let host = format!(
        "{}:6: export /export: `clients`: host name `no-such-host.invalid` not found",
        file.display()
    );
    let netgroup = format!("{}:8: export /export: `clients`: netgroup `@no-such-netgroup` ", file.display());
    for warning in [&host, &netgroup] {
        assert!(checked.contains(&format!("# warning: {warning}")), "{checked}");
    }
    let arguments =
        ["serve".as_ref(), "--listen".as_ref(), "0".as_ref(), "--config".as_ref(), file.as_path()];
    let server = Server::start(&dir, &arguments);
    let log = server.log();
    assert!(log.contains(&host) && log.contains(&netgroup), "{log}");
    server.stop();
}

#[test]
fn local_users_without_root_is_a_warning() {
    let dir = TestDir::new();
    let directory = dir.directory("data");
    let warning = |uid: u32| {
        format!(
            "--local-users without root: files that other users create belong to uid {uid}, so these users often cannot \
             write to them"
        )
    };
    let server = Server::start(&dir, &with(&dir, &[&directory, "--local-users".as_ref()]));
    let own = rustix::process::geteuid();
    assert_eq!(server.log().contains(&warning(own.as_raw())), !own.is_root(), "{}", server.log());
    server.stop();
    if !own.is_root() {
        return;
    }
    // As another user: uid 1000 in a new namespace.
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-user=1000", "--", ENFYS, "check-config"]);
    let text = format!("local-users = true\n[[export]]\npath = '{}'\n", directory.display());
    let text = format!("state-dir = '{}'\n{text}", dir.path("other-state").display());
    let output = command.arg(dir.file("enfys.toml", &text)).output().expect("unshare");
    if !output.status.success() {
        return println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
    }
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains(&format!("# warning: {}", warning(1000))), "{output}");
}
