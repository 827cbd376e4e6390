//! SIGHUP: other exports for the clients that are there.

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::mount::MountStat;
use protocol::nfs3::{NfsStat, StableHow};
use protocol::nfs4::types::Status;
use rustix::process::Signal;

use crate::client::{Client, Client4};
use crate::server::{Place, Server};

/// A server whose configuration can be changed.
struct Lab {
    place: Place,
    config: PathBuf,
    server: Server,
}

impl Lab {
    /// `text` is the configuration; `DIR` in it stands for the place's directory.
    fn start(place: Place, text: &str) -> Self {
        let config = place.path("enfys.toml");
        std::fs::write(&config, Self::fill_in(&place, text)).unwrap();
        let arguments = ["serve", "--config", config.to_str().unwrap()];
        let server = Server::start(&place, &arguments);
        Self { place, config, server }
    }

    fn fill_in(place: &Place, text: &str) -> String {
        let head = "listen = ['127.0.0.1:0']\nstate-dir = 'DIR/state'\n";
        format!("{head}{text}").replace("DIR", place.path("").to_str().unwrap().trim_end_matches('/'))
    }

    fn reload(&self, text: &str) -> String {
        std::fs::write(&self.config, Self::fill_in(&self.place, text)).unwrap();
        self.server.reload()
    }
}

const MEMORY: &str = "[[export]]\nmemory = true\npseudo = '/memory'\n";

#[test]
fn clients_keep_their_connections_and_memory_its_content() {
    let lab = Lab::start(Place::new(), MEMORY);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/memory").unwrap();
    let file = client.create(root, "file").unwrap();
    client.write(file, b"kept", StableHow::FileSync).unwrap();
    let said = lab.reload(&format!("{MEMORY}read-only = true\nmemory-bytes = 65536\n"));
    assert!(said.contains("reloaded: serving memory (64 KiB) as /memory: read-only"), "{said}");
    assert_eq!(client.read(file).unwrap(), b"kept");
    assert_eq!(client.write(file, b"more", StableHow::FileSync).unwrap_err(), NfsStat::ROFS);
    lab.reload(&format!("{MEMORY}memory-bytes = 65536\n"));
    client.write(file, b"more", StableHow::FileSync).unwrap();
    // Directory and file take something too.
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
fn a_removed_export_goes_stale_and_comes_back() {
    let place = Place::new();
    place.directory("one");
    place.directory("two");
    let one = "[[export]]\npath = 'DIR/one'\npseudo = '/one'\n";
    let two = "[[export]]\npath = 'DIR/two'\npseudo = '/two'\n";
    let lab = Lab::start(place, &format!("{one}{two}"));
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
    // The session is not touched; only the way is gone.
    assert_eq!(client4.open("two", "file").unwrap_err(), Status::NOENT);
    lab.reload(&format!("{one}{two}"));
    client.getattr(file).unwrap();
    client4.open("two", "file").unwrap();
    lab.server.stop();
}

/// What a client was told of one opening of a directory, another one cannot keep: it knows nothing of what the first may have lost.
#[test]
fn a_directory_that_is_opened_again_has_another_write_verifier() {
    let place = Place::new();
    place.directory("one");
    let one = "[[export]]\npath = 'DIR/one'\npseudo = '/one'\n";
    let two = "[[export]]\nmemory = true\npseudo = '/two'\n";
    let lab = Lab::start(place, &format!("{one}{two}"));
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
    // Nothing was lost: the next server's is the first server's, and nobody takes it for the second.
    lab.server.stop();
    let server = Server::start(&lab.place, &["serve", "--config", lab.config.to_str().unwrap()]);
    let mut client = Client::connect(server.address);
    assert_eq!(client.commit(file).unwrap(), first);
    server.stop();
}

#[test]
fn changed_options_are_in_effect() {
    if !crate::server::is_root() {
        return;
    }
    let place = Place::new();
    place.directory("data");
    let export = "[[export]]\npath = 'DIR/data'\n";
    let lab = Lab::start(place, export);
    let mut client = Client::connect(lab.server.address);
    client.uid = 0;
    let root = client.mount("/export").unwrap();
    let owner = |client: &mut Client, name| {
        let file = client.create(root, name).unwrap();
        client.getattr(file).unwrap().uid
    };
    let is_root = rustix::process::geteuid().is_root();
    let squashed = owner(&mut client, "squashed");
    // Without root's powers, all files are the server's user's.
    assert!(squashed == 65_534 || !is_root);
    lab.reload(&format!("{export}squash = 'none'\nasync = true\n"));
    assert!(owner(&mut client, "root") == 0 || !is_root);
    let said = lab.reload(&format!("{export}squash = 'none'\nclients = ['192.0.2.0/24']\n"));
    assert!(said.contains("(sync)") && said.contains("for 192.0.2.0/24"), "{said}");
    assert_eq!(client.getattr(root).unwrap_err(), NfsStat::ACCES);
    assert_eq!(client.mount("/export").unwrap_err(), MountStat::ACCES);
    lab.reload(export);
    client.getattr(root).unwrap();
    lab.server.stop();
}

#[test]
fn a_broken_configuration_changes_nothing_and_says_why() {
    let lab = Lab::start(Place::new(), MEMORY);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/memory").unwrap();
    let file = lab.config.display();
    for (text, why) in [
        (format!("{MEMORY}reed-only = true\n"), format!("{file}:6: unknown key `reed-only`")),
        ("[[export]]\npath = 'DIR/missing'\n".into(), format!("{file}:4: export /export: ")),
        (format!("{MEMORY}{MEMORY}"), "another export has this path".into()),
        (String::new(), "nothing to serve".into()),
    ] {
        let said = lab.reload(&text);
        assert!(said.contains("reload failed, nothing was changed: "), "{said}");
        assert!(said.contains(&why), "{why}: {said}");
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

/// What a client that was there before finds when `replace` has put something else where the export was, with a file `new` in it.
fn another_is_served(lab: &Lab, client4: &mut Client4, replace: impl FnOnce()) {
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "old").unwrap();
    client4.open("export", "old").unwrap();
    replace();
    // Nobody has said so yet.
    client.getattr(file).unwrap();
    let said = lab.server.reload();
    assert!(said.contains(REPLACED), "{said}");
    assert_eq!(client.getattr(file).unwrap_err(), NfsStat::STALE);
    assert_eq!(client.getattr(root).unwrap_err(), NfsStat::STALE);
    let root = client.mount("/export").unwrap();
    assert_eq!(client.lookup(root, "old").unwrap_err(), NfsStat::NOENT);
    client.lookup(root, "new").unwrap();
    assert_eq!(client4.open("export", "old").unwrap_err(), Status::NOENT);
    client4.open("export", "new").unwrap();
    // The same is found the next time, and nothing is said of it.
    assert!(!lab.server.reload().contains(REPLACED));
    client.lookup(root, "new").unwrap();
}

fn put_new_file(directory: &Path) {
    let file = directory.join("new");
    std::fs::write(&file, "content").unwrap();
    std::fs::set_permissions(&file, crate::server::mode(0o666)).unwrap();
}

#[test]
fn a_directory_in_the_place_of_the_one_that_was_served_is_served_after_a_reload() {
    let place = Place::new();
    let data = place.directory("data");
    let lab = Lab::start(place, DATA);
    let mut client4 = Client4::connect(lab.server.address);
    another_is_served(&lab, &mut client4, || {
        std::fs::rename(&data, lab.place.path("before")).unwrap();
        put_new_file(&lab.place.directory("data"));
    });
    lab.server.stop();
}

#[test]
fn a_path_that_is_gone_is_reported_and_the_export_stays() {
    let place = Place::new();
    let data = place.directory("data");
    let lab = Lab::start(place, DATA);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/export").unwrap();
    std::fs::rename(&data, lab.place.path("before")).unwrap();
    let said = lab.server.reload();
    let why = format!("{}: No such file or directory", data.display());
    assert!(said.contains("reload failed, nothing was changed: ") && said.contains(&why), "{said}");
    client.create(root, "file").unwrap();
    lab.server.stop();
}

/// A file system in memory over a directory; taken away by `umount -l` when dropped.
pub struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    /// `None`, and why on the standard output, where nothing can be mounted.
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

/// `umount -l` takes a file system from its path while it is in use.
#[test]
fn what_is_mounted_and_unmounted_where_the_export_is_is_served_after_a_reload() {
    let place = Place::new();
    let data = place.directory("data");
    put_new_file(&data);
    let Some(first) = Mounted::on(&data) else { return };
    let lab = Lab::start(place, DATA);
    let mut client4 = Client4::connect(lab.server.address);
    another_is_served(&lab, &mut client4, || drop(first));
    std::fs::remove_file(data.join("new")).unwrap();
    let mut second = None;
    another_is_served(&lab, &mut client4, || {
        second = Mounted::on(&data);
        put_new_file(&data);
    });
    lab.server.stop();
}

#[test]
fn what_takes_effect_at_a_start_only_is_named() {
    let lab = Lab::start(Place::new(), MEMORY);
    let said = lab.reload(&format!("portmap = true\n[limits]\nconnections = 5\n{MEMORY}"));
    assert!(said.contains("changes of portmap, limits take effect at the next start"), "{said}");
    // Compared with what is in effect, so it is said again.
    assert!(lab.server.reload().contains("portmap, limits"));
    assert!(!lab.reload(MEMORY).contains("next start"));
    lab.server.stop();
}

#[test]
fn many_reloads_lose_no_call() {
    let lab = Lab::start(Place::new(), MEMORY);
    let mut client = Client::connect(lab.server.address);
    let root = client.mount("/memory").unwrap();
    for round in 0..50 {
        lab.server.signal(Signal::HUP);
        client.create(root, &format!("file {round}")).unwrap();
    }
    assert!(lab.server.reload().contains("reloaded"));
    lab.server.stop();
}
