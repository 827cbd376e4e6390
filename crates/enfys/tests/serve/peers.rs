//! The users that processes on this machine may claim to be; `tests/kernel/guest/ports.sh` tests other machines.
//!
//! The attacks need root, and two users: `daemon` and `nobody`, which exist on every Debian machine.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use protocol::mount::MountStat;
use protocol::nfs3::NfsStat;
use rpc::auth::AuthStatus;
use rpc::message::{Rejection, RpcError};
use rustix::process::Signal;

use crate::client::{Client, NFS3};
use crate::server::{ENFYS, Server, TestDir, is_root, mode, with};

/// Accounts whose only group has the same number.
const DAEMON: u32 = 1;
const NOBODY: u32 = 65_534;

/// Connects as a process of `uid`.
fn connect_as(server: &Server, uid: u32) -> Client {
    let address = server.address;
    let connected = std::thread::spawn(move || {
        let (id, group) = (rustix::thread::Uid::from_raw(uid), rustix::thread::Gid::from_raw(uid));
        rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
        rustix::thread::set_thread_res_uid(id, id, id).expect("root may");
        Client::connect(address)
    });
    let mut client = connected.join().expect("connected");
    client.uid = uid;
    client
}

/// Returns whether a call is refused with AUTH_TOOWEAK.
fn is_too_weak(client: &mut Client) -> bool {
    match client.ask::<()>(NFS3, 0, &()) {
        Ok(()) => {}
        other => panic!("NULL is for all users: {other:?}"),
    }
    let path = protocol::mount::DirPath::from_static(b"/export");
    match client.ask::<protocol::mount::MountResult>((protocol::mount::PROGRAM, 3), 1, &path) {
        Ok(_) => false,
        Err(RpcError::Denied(Rejection::AuthError(AuthStatus::TOOWEAK))) => true,
        Err(other) => panic!("{other:?}"),
    }
}

/// Makes an export with a private directory of `daemon`.
fn private(dir: &TestDir) -> std::path::PathBuf {
    let export = dir.directory("export");
    let private = export.join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::set_permissions(&private, mode(0o700)).unwrap();
    chown(&private, Some(DAEMON), Some(DAEMON)).unwrap();
    export
}

#[test]
fn a_local_user_cannot_act_as_another() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let export = private(&dir);
    let server = Server::start(&dir, &with(&dir, &[&export]));
    let mut owner = connect_as(&server, DAEMON);
    let root = owner.mount("/export").unwrap();
    let directory = owner.lookup(root, "private").unwrap();

    // The attack: `nobody` claims to be `daemon`, creates a file in its directory, and makes it set-uid.
    let mut thief = connect_as(&server, NOBODY);
    assert_eq!(thief.create(directory, "as itself"), Err(NfsStat::ACCES));
    thief.uid = DAEMON;
    assert!(is_too_weak(&mut thief));
    let refused = thief.try_create(directory, "planted");
    assert_eq!(refused.unwrap_err(), RpcError::Denied(Rejection::AuthError(AuthStatus::TOOWEAK)));
    assert_eq!(std::fs::read_dir(export.join("private")).unwrap().count(), 0);
    server.await_log(0, "a local process of uid 65534 may not claim uid 1");
    thief.uid = 0;
    assert!(is_too_weak(&mut thief));
    assert_eq!(server.log().matches("calls refused").count(), 1, "logged once a connection");

    // A process may claim its own user, and root any.
    thief.uid = NOBODY;
    assert!(thief.create(root, "its own").is_ok());
    assert_eq!(std::fs::metadata(export.join("its own")).unwrap().uid(), NOBODY);
    let mut kernel = Client::connect(server.address);
    kernel.uid = DAEMON;
    assert!(kernel.create(directory, "by root's socket").is_ok());
    assert_eq!(std::fs::metadata(export.join("private/by root's socket")).unwrap().uid(), DAEMON);
    server.stop();
}

/// A closed socket has no owner; the kernel shows uid 0 for it.
#[test]
fn a_call_from_a_closed_socket_is_not_from_root() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = Server::start(&dir, &with(&dir, &[&export, "--squash".as_ref(), "none".as_ref()]));
    let root = Client::connect(server.address).mount("/export").unwrap();
    server.signal(Signal::STOP);
    server.await_stopped();
    let mut thief = connect_as(&server, NOBODY);
    thief.uid = 0;
    thief.send_create(root, "planted");
    server.signal(Signal::CONT);
    server.await_log(0, "the owner of this local socket is not known");
    assert_eq!(std::fs::read_dir(&export).unwrap().count(), 0);
    server.stop();
}

#[test]
fn an_unprivileged_server_serves_its_own_user_and_root() {
    if !is_root() {
        return;
    }
    for (option, is_daemon_refused) in [(None, true), (Some("--local-users"), false)] {
        // Not in this user's home, which others may not enter.
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let dir = TestDir::new();
        let (state, export) = (directory.path().join("state"), directory.path().join("export"));
        std::fs::create_dir(&export).unwrap();
        let mut command = Command::new(ENFYS);
        command.args(["serve", "--listen", "127.0.0.1:0", "--state-dir"]).args([&state, &export]);
        command.args(option).uid(NOBODY).gid(NOBODY);
        if !may_run(directory.path()) {
            return println!("skipped: `nobody` cannot run the binary where it was built");
        }
        let server = Server::spawn(&dir, command);
        assert!(!is_too_weak(&mut connect_as(&server, NOBODY)), "its own user");
        assert!(!is_too_weak(&mut connect_as(&server, 0)), "root");
        assert_eq!(is_too_weak(&mut connect_as(&server, DAEMON)), is_daemon_refused, "{option:?}");
        let mut other = connect_as(&server, DAEMON);
        other.uid = NOBODY;
        assert!(is_too_weak(&mut other), "no other user is the server's own, {option:?}");
        server.stop();
    }
}

/// Returns whether `nobody` can run the binary.
fn may_run(directory: &Path) -> bool {
    let mut command = Command::new(ENFYS);
    command.arg("--version").current_dir(directory).uid(NOBODY).gid(NOBODY);
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn ordinary_users_keep_their_clients() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let export = dir.directory("export");
    std::fs::write(export.join("file"), "text").unwrap();
    let server = Server::start(&dir, &with(&dir, &[&export]));
    for version in [3, 4] {
        let url = format!(
            "nfs://127.0.0.1/export/file?version={version}&nfsport={port}&mountport={port}",
            port = server.address.port()
        );
        let mut command = Command::new("nfs-cat");
        match command.arg(&url).uid(NOBODY).gid(NOBODY).output() {
            Ok(output) => assert_eq!(output.stdout, b"text", "{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => return println!("skipped: nfs-cat: {error}"),
        }
    }
    server.stop();
}

/// A command sends the user and all groups of its process: the server refuses one that the account does not have.
#[test]
fn a_commands_groups_are_those_of_its_process() {
    if !is_root() {
        return;
    }
    let dir = TestDir::new();
    let export = dir.directory("export");
    std::fs::write(export.join("file"), "text").unwrap();
    let server = Server::start(&dir, &with(&dir, &[&export]));
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    if !may_run(elsewhere.path()) {
        return println!("skipped: `nobody` cannot run the binary where it was built");
    }
    let port = server.address.port();
    for version in ["3", "4.0", "4.1", "4.2"] {
        let url = format!("nfs://127.0.0.1:{port}/export/file?version={version}&mountport={port}");
        let cat = |groups: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", groups, ENFYS, "cat", &url]);
            command.output().expect("setpriv is part of util-linux")
        };
        let own = cat("--clear-groups");
        assert_eq!(own.stdout, b"text", "{version}: {}", String::from_utf8_lossy(&own.stderr));
        let other = cat("--groups=4242");
        let error = String::from_utf8_lossy(&other.stderr);
        assert!(!other.status.success() && error.contains("AUTH_TOOWEAK"), "{version}: {error}");
        // Not logged each time.
        server.await_log(0, "uid 65534 may not claim gid 4242");
    }
    server.stop();
}

const ENTRIES: &str = "
listen = ['127.0.0.1:0']
[[export]]
memory = true
pseudo = '/by-address'
squash = 'none'
[[export.client]]
clients = ['127.0.0.0/30']
read-only = true
[[export.client]]
clients = ['127.0.0.2']
squash = 'all'
anonymous-uid = 77
[[export]]
memory = true
pseudo = '/by-name'
clients = ['localh[oa]*t']
";

/// The narrowest matching entry applies to a client; a client without one is refused.
#[test]
fn entries_of_an_export_apply_by_client() {
    let dir = TestDir::new();
    let config = dir.file("enfys.toml", ENTRIES);
    let server = Server::start(&dir, &["serve".as_ref(), "--config".as_ref(), config.as_path()]);
    let client = |last: u8| Client::connect_from(server.address, [127, 0, 0, last]);

    let mut reader = client(1);
    let root = reader.mount("/by-address").unwrap();
    assert_eq!(reader.create(root, "file"), Err(NfsStat::ROFS));
    let mut squashed = client(2);
    let file = squashed.create(root, "file").unwrap();
    assert_eq!(squashed.getattr(file).unwrap().uid, 77);
    assert_eq!(reader.getattr(file).unwrap().uid, 77, "the same file system");
    let mut stranger = client(4);
    assert_eq!(stranger.mount("/by-address"), Err(MountStat::ACCES));
    assert_eq!(stranger.getattr(root).map(|_| ()), Err(NfsStat::ACCES));

    assert!(reader.mount("/by-name").is_ok(), "127.0.0.1 is localhost");
    assert_eq!(squashed.mount("/by-name"), Err(MountStat::ACCES), "127.0.0.2 has no such name");
    server.stop();
}

/// The name of a connected client is known when a reload first needs names.
#[test]
fn names_of_connected_clients_are_known_after_a_reload() {
    let dir = TestDir::new();
    let text = |clients: &str| {
        format!(
            "listen = ['127.0.0.1:0']\nstate-dir = '{}'\n[[export]]\nmemory = true\nclients = ['*']\nsquash = 'none'\n{clients}",
            dir.path("state").display()
        )
    };
    let config = dir.file("enfys.toml", &text(""));
    let server = Server::start(&dir, &["serve".as_ref(), "--config".as_ref(), config.as_path()]);
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    assert!(client.create(root, "before").is_ok());
    dir.file("enfys.toml", &text("[[export.client]]\nclients = ['localh?st']\nread-only = true\n"));
    server.reload();
    assert_eq!(client.create(root, "behind"), Err(NfsStat::ROFS));
    server.stop();
}

/// The server refuses a command that calls for another user than its own. The command prints what the server requires.
#[test]
fn a_command_that_is_refused_says_what_to_do() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = Server::start(&dir, &with(&dir, &[&export]));
    let url = |query: &str| format!("nfs://{}/export{query}", server.address);
    let list = |url: String| {
        let mut command = Command::new(ENFYS);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(["ls", &url]).output().expect("the binary starts")
    };
    assert!(list(url("")).status.success(), "as itself");
    let refused = list(url("?uid=0"));
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    let wanted = "does not accept this user or this source port (AUTH_TOOWEAK): run as root, or let the export accept it \
                  (`insecure`)";
    assert!(message.contains(wanted), "{message}");
}
