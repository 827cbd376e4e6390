//! SIGHUP: new exports for connected clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::mount::MountStat;
use protocol::nfs3::{NfsStat, StableHow};
use protocol::nfs4::types::Status;
use rustix::process::Signal;

use crate::client::{Client, Client4};
use crate::server::{Server, TestDir};

/// A server whose configuration can be changed.
struct Lab {
    dir: TestDir,
    config: PathBuf,
    server: Server,
}

impl Lab {
    /// Starts a server with the configuration `text`, in which `DIR` is the test's directory.
    fn start(dir: TestDir, text: &str) -> Self {
        let config = dir.path("enfys.toml");
        std::fs::write(&config, Self::fill_in(&dir, text)).unwrap();
        let arguments = ["serve", "--config", config.to_str().unwrap()];
        let server = Server::start(&dir, &arguments);
        Self { dir, config, server }
    }

    fn fill_in(dir: &TestDir, text: &str) -> String {
        let head = "listen = ['127.0.0.1:0']\nstate-dir = 'DIR/state'\n";
        format!("{head}{text}").replace("DIR", dir.path("").to_str().unwrap().trim_end_matches('/'))
    }

    fn reload(&self, text: &str) -> String {
        std::fs::write(&self.config, Self::fill_in(&self.dir, text)).unwrap();
        self.server.reload()
    }
}

const MEMORY: &str = "[[export]]\nmemory = true\npseudo = '/memory'\n";

#[test]
fn a_reload_keeps_connections_and_memory() {
    let lab = Lab::start(TestDir::new(), MEMORY);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/memory").unwrap();
    let file = client.create(root, "file").unwrap();
    client.write(file, b"kept", StableHow::FileSync).unwrap();
    let output = lab.reload(&format!("{MEMORY}read-only = true\nmemory-bytes = 65536\n"));
    assert!(output.contains("reloaded: serving memory (64 KiB) as /memory: read-only"), "{output}");
    assert_eq!(client.read(file).unwrap(), b"kept");
    assert_eq!(client.write(file, b"more", StableHow::FileSync).unwrap_err(), NfsStat::ROFS);
    lab.reload(&format!("{MEMORY}memory-bytes = 65536\n"));
    client.write(file, b"more", StableHow::FileSync).unwrap();
    // Directory and file need memory, too.
    let other = client.create(root, "other").unwrap();
    client.write(other, &[1; 57_344], StableHow::FileSync).unwrap();
    let third = client.create(root, "third").unwrap();
    assert_eq!(client.write(third, &[1; 8192], StableHow::FileSync).unwrap_err(), NfsStat::NOSPC);
    assert_eq!(client.read(file).unwrap(), b"more");
    lab.reload(MEMORY);
    client.write(third, &[1; 8192], StableHow::FileSync).unwrap();
    lab.server.stop();
}

#[test]
fn a_removed_export_is_stale_and_can_return() {
    let dir = TestDir::new();
    dir.directory("one");
    dir.directory("two");
    let one = "[[export]]\npath = 'DIR/one'\npseudo = '/one'\n";
    let two = "[[export]]\npath = 'DIR/two'\npseudo = '/two'\n";
    let lab = Lab::start(dir, &format!("{one}{two}"));
    let mut client = Client::connect(lab.server.address);
    let one_root = client.mount("/one").unwrap();
    let two_root = client.mount("/two").unwrap();
    let file = client.create(two_root, "file").unwrap();
    let mut client4 = Client4::connect(lab.server.address);
    client4.open("two", "file").unwrap();
    lab.reload(one);
    client.getattr(one_root).unwrap();
    assert_eq!(client.getattr(two_root).unwrap_err(), NfsStat::STALE);
    assert_eq!(client.getattr(file).unwrap_err(), NfsStat::STALE);
    assert_eq!(client.mount("/two").unwrap_err(), MountStat::NOENT);
    // The session is not affected; only the path is missing.
    assert_eq!(client4.open("two", "file").unwrap_err(), Status::NOENT);
    lab.reload(&format!("{one}{two}"));
    client.getattr(file).unwrap();
    client4.open("two", "file").unwrap();
    lab.server.stop();
}

/// A directory that is opened again gets a new verifier, since the earlier opening may have lost data.
#[test]
fn a_reopened_directory_has_another_write_verifier() {
    let dir = TestDir::new();
    dir.directory("one");
    let one = "[[export]]\npath = 'DIR/one'\npseudo = '/one'\n";
    let two = "[[export]]\nmemory = true\npseudo = '/two'\n";
    let lab = Lab::start(dir, &format!("{one}{two}"));
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/one").unwrap();
    let file = client.create(root, "file").unwrap();
    let first = client.write(file, b"unstable", StableHow::Unstable).unwrap();
    lab.reload(&format!("{one}{two}"));
    assert_eq!(client.commit(file).unwrap(), first, "it was not opened again");
    lab.reload(two);
    lab.reload(&format!("{one}{two}"));
    let second = client.commit(file).unwrap();
    assert_ne!(second, first);
    assert_eq!(client.write(file, b"unstable", StableHow::Unstable).unwrap(), second);
    // No data were lost: the next server has the verifier of the start, not the later one.
    lab.server.stop();
    let server = Server::start(&lab.dir, &["serve", "--config", lab.config.to_str().unwrap()]);
    let mut client = Client::connect(server.address);
    assert_eq!(client.commit(file).unwrap(), first);
    server.stop();
}

#[test]
fn changed_options_take_effect() {
    if !crate::server::is_root() {
        return;
    }
    let dir = TestDir::new();
    dir.directory("data");
    let export = "[[export]]\npath = 'DIR/data'\n";
    let lab = Lab::start(dir, export);
    let mut client = Client::connect(lab.server.address);
    client.uid = 0;
    let root = client.mount("/export").unwrap();
    let owner = |client: &mut Client, name| {
        let file = client.create(root, name).unwrap();
        client.getattr(file).unwrap().uid
    };
    let is_root = rustix::process::geteuid().is_root();
    let squashed = owner(&mut client, "squashed");
    // Without root, all files belong to the server's user.
    assert!(squashed == 65_534 || !is_root);
    lab.reload(&format!("{export}squash = 'none'\nasync = true\n"));
    assert!(owner(&mut client, "root") == 0 || !is_root);
    let output = lab.reload(&format!("{export}squash = 'none'\nclients = ['192.0.2.0/24']\n"));
    assert!(output.contains("(sync)") && output.contains("for 192.0.2.0/24"), "{output}");
    assert_eq!(client.getattr(root).unwrap_err(), NfsStat::ACCES);
    assert_eq!(client.mount("/export").unwrap_err(), MountStat::ACCES);
    lab.reload(export);
    client.getattr(root).unwrap();
    lab.server.stop();
}

#[test]
fn a_broken_configuration_changes_nothing_and_is_logged() {
    let lab = Lab::start(TestDir::new(), MEMORY);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/memory").unwrap();
    let file = lab.config.display();
    for (text, why) in [
        (format!("{MEMORY}reed-only = true\n"), format!("{file}:6: unknown key `reed-only`")),
        ("[[export]]\npath = 'DIR/missing'\n".into(), format!("{file}:4: export /export: ")),
        (format!("{MEMORY}{MEMORY}"), "another export has this path".into()),
        (String::new(), "nothing to serve".into()),
    ] {
        let output = lab.reload(&text);
        assert!(output.contains("reload failed, nothing was changed: "), "{output}");
        assert!(output.contains(&why), "{why}: {output}");
        client.getattr(root).unwrap();
        client.mount("/memory").unwrap();
    }
    std::fs::remove_file(&lab.config).unwrap();
    assert!(lab.server.reload().contains("No such file or directory"));
    client.getattr(root).unwrap();
    lab.server.stop();
}

const DATA: &str = "[[export]]\npath = 'DIR/data'\n";
const REPLACED: &str =
    "is another directory or file system now: serving it; handles of the previous one are stale";

/// Checks the view of a connected client after `replace` has put another directory, with a file `new`, at the export's path.
fn check_replacement(lab: &Lab, client4: &mut Client4, replace: impl FnOnce()) {
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "old").unwrap();
    client4.open("export", "old").unwrap();
    replace();
    // The server has not been notified yet.
    client.getattr(file).unwrap();
    let output = lab.server.reload();
    assert!(output.contains(REPLACED), "{output}");
    assert_eq!(client.getattr(file).unwrap_err(), NfsStat::STALE);
    assert_eq!(client.getattr(root).unwrap_err(), NfsStat::STALE);
    let root = client.mount("/export").unwrap();
    assert_eq!(client.lookup(root, "old").unwrap_err(), NfsStat::NOENT);
    client.lookup(root, "new").unwrap();
    assert_eq!(client4.open("export", "old").unwrap_err(), Status::NOENT);
    client4.open("export", "new").unwrap();
    // The next reload finds the same directory, and does not log it.
    assert!(!lab.server.reload().contains(REPLACED));
    client.lookup(root, "new").unwrap();
}

fn put_new_file(directory: &Path) {
    let file = directory.join("new");
    std::fs::write(&file, "content").unwrap();
    std::fs::set_permissions(&file, crate::server::mode(0o666)).unwrap();
}

#[test]
fn a_replaced_directory_is_served_after_a_reload() {
    let dir = TestDir::new();
    let data = dir.directory("data");
    let lab = Lab::start(dir, DATA);
    let mut client4 = Client4::connect(lab.server.address);
    check_replacement(&lab, &mut client4, || {
        std::fs::rename(&data, lab.dir.path("before")).unwrap();
        put_new_file(&lab.dir.directory("data"));
    });
    lab.server.stop();
}

#[test]
fn a_missing_path_is_reported_and_the_export_remains() {
    let dir = TestDir::new();
    let data = dir.directory("data");
    let lab = Lab::start(dir, DATA);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/export").unwrap();
    std::fs::rename(&data, lab.dir.path("before")).unwrap();
    let output = lab.server.reload();
    let why = format!("{}: No such file or directory", data.display());
    assert!(output.contains("reload failed, nothing was changed: ") && output.contains(&why), "{output}");
    client.create(root, "file").unwrap();
    lab.server.stop();
}

/// A file system in memory, mounted over a directory; unmounted by `umount -l` when dropped.
pub struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    /// `None`, and the reason on standard output, if nothing can be mounted.
    pub fn on(directory: &'a Path) -> Option<Self> {
        let options = ["-t", "tmpfs", "-o", "size=1m,mode=777", "enfys-test"];
        let mounted = Command::new("mount").args(options).arg(directory).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            println!("skipped: needs root and mount");
        }
        is_mounted.then_some(Self(directory))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// `umount -l` unmounts a file system while it is in use.
#[test]
fn mounts_and_unmounts_over_an_export_take_effect_after_a_reload() {
    let dir = TestDir::new();
    let data = dir.directory("data");
    put_new_file(&data);
    let Some(first) = Mounted::on(&data) else { return };
    let lab = Lab::start(dir, DATA);
    let mut client4 = Client4::connect(lab.server.address);
    check_replacement(&lab, &mut client4, || drop(first));
    std::fs::remove_file(data.join("new")).unwrap();
    let mut second = None;
    check_replacement(&lab, &mut client4, || {
        second = Mounted::on(&data);
        put_new_file(&data);
    });
    lab.server.stop();
}

#[test]
fn settings_that_need_a_restart_are_named() {
    let lab = Lab::start(TestDir::new(), MEMORY);
    let output = lab.reload(&format!("portmap = true\n[limits]\nconnections = 5\n{MEMORY}"));
    assert!(output.contains("changes of portmap, limits take effect at the next start"), "{output}");
    // It still differs from the setting in effect, so it is logged again.
    assert!(lab.server.reload().contains("portmap, limits"));
    assert!(!lab.reload(MEMORY).contains("next start"));
    lab.server.stop();
}

#[test]
fn reloads_lose_no_call() {
    let lab = Lab::start(TestDir::new(), MEMORY);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/memory").unwrap();
    for round in 0..50 {
        lab.server.signal(Signal::HUP);
        client.create(root, &format!("file {round}")).unwrap();
    }
    assert!(lab.server.reload().contains("reloaded"));
    lab.server.stop();
}
