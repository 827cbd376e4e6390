//! A directory inside the export that clients must not reach: the server's state directory.

mod common;

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use common::{Fixture, me, mode};
use localfs::{Config, LocalFs};
use vfs::{Backend, Create, CreateMode, Error, Handle, ReadDir, Removal};

const GUARDED: Create = Create::File(CreateMode::Guarded);
const UNCHECKED: Create = Create::File(CreateMode::Unchecked);
/// The location of the state directory in the export, and a file in it.
const STATE: &str = ".local/state";
const KEY: &str = ".local/state/key";
const SOCKET: &str = "control";

/// Handles that clients have before the state directory is hidden, because the previous server had another one.
struct Before {
    fixture: Fixture,
    local: Handle,
    /// The directory, a file in it, and another name of a file in it.
    hidden: Vec<Handle>,
}

impl Before {
    fn new(always_use_index: bool) -> Self {
        let fixture = Fixture::with(|config| Config { always_use_index, ..config });
        std::fs::create_dir_all(fixture.path(STATE)).expect("directories");
        std::fs::write(fixture.path(KEY), b"secret").expect("file");
        std::fs::write(fixture.path(".local/state/log"), b"log").expect("file");
        std::fs::hard_link(fixture.path(KEY), fixture.path("link")).expect("link");
        let root = fixture.fs().root();
        let local = fixture.lookup(&me(), &root, ".local").expect("there");
        let state = fixture.lookup(&me(), &local, "state").expect("not hidden yet");
        let log = fixture.lookup(&me(), &state, "log").expect("not hidden yet");
        let link = fixture.lookup(&me(), &root, "link").expect("not hidden yet");
        Self { fixture, local, hidden: vec![state, log, link] }
    }

    fn hide(&mut self) {
        let fixture = &mut self.fixture;
        fixture.config.hidden_directory = Some(fixture.path(STATE));
        fixture.config.hidden_socket = Some(fixture.path(SOCKET));
        fixture.restart();
    }
}

fn in_both_modes(test: impl Fn(Before)) {
    for always_use_index in [false, true] {
        test(Before::new(always_use_index));
    }
}

fn names(fixture: &Fixture, directory: &Handle, plus: bool) -> Vec<String> {
    let mut names = Vec::new();
    let mut visit = |entry: vfs::Entry<'_>| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    };
    let request = ReadDir { cookie: 0, verifier: [0; 8], plus };
    fixture.wait(fixture.fs().readdir(&me(), directory, request, &mut visit)).expect("listed");
    names.sort_unstable();
    names
}

#[test]
fn the_hidden_directory_is_not_listed_and_has_no_name() {
    in_both_modes(|mut before| {
        before.hide();
        let Before { fixture, local, .. } = &before;
        let _socket = UnixListener::bind(fixture.path(SOCKET)).expect("socket");
        std::fs::write(fixture.path("file"), b"").expect("file");
        std::fs::hard_link(fixture.path("file"), fixture.path("other name")).expect("link");
        let root = fixture.fs().root();
        for plus in [false, true] {
            assert_eq!(names(fixture, local, plus), [""; 0]);
            assert_eq!(names(fixture, &root, plus), [".local", "file", "other name"]);
        }
        for (directory, name) in [(local, "state"), (&root, "link"), (&root, SOCKET)] {
            assert_eq!(fixture.lookup(&me(), directory, name), Err(Error::NotFound), "{name}");
            for what in [GUARDED, UNCHECKED, Create::Directory] {
                let made = fixture.make(&me(), directory, name, &what, 0o600);
                assert_eq!(made, Err(Error::Exists), "{name}, {what:?}");
            }
            for removal in [Removal::File, Removal::Directory, Removal::Any] {
                let removed = fixture.wait(fixture.fs().remove(&me(), directory, name.as_bytes(), removal));
                assert_eq!(removed.err(), Some(Error::NotFound), "{name}");
            }
        }
        fixture.lookup(&me(), &root, "other name").expect("another file of two names");
        assert_eq!(std::fs::read(fixture.path("link")).expect("there"), b"secret");
    });
}

#[test]
fn the_hidden_directory_and_its_parents_cannot_be_moved() {
    in_both_modes(|mut before| {
        before.hide();
        let Before { fixture, local, .. } = &before;
        let root = fixture.fs().root();
        let file = fixture.file(&me(), "file", 0o600);
        let empty = fixture.make(&me(), &root, "empty", &Create::Directory, 0o700).expect("mkdir");
        let rename = |from: (&Handle, &str), to: (&Handle, &str)| {
            fixture.wait(fixture.fs().rename(&me(), (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes())))
        };
        assert_eq!(rename((local, "state"), (&root, "mine")).err(), Some(Error::NotFound));
        assert_eq!(rename((&root, "link"), (&root, "mine")).err(), Some(Error::NotFound));
        assert_eq!(rename((&root, "empty"), (local, "state")).err(), Some(Error::Exists));
        assert_eq!(rename((&root, "file"), (&root, "link")).err(), Some(Error::Exists));
        assert_eq!(rename((&root, ".local"), (&root, "mine")).err(), Some(Error::Access));
        let linked = fixture.wait(fixture.fs().link(&me(), &file, local, b"state"));
        assert_eq!(linked.err(), Some(Error::Exists));
        rename((&root, "file"), (&empty, "moved")).expect("another file");
        rename((&root, "empty"), (local, "moved")).expect("a directory that it does not lie in");
        assert!(fixture.path(KEY).exists());
    });
}

#[test]
fn old_handles_of_hidden_files_are_stale() {
    in_both_modes(|mut before| {
        before.hide();
        let Before { fixture, hidden, .. } = &before;
        for handle in hidden {
            assert_eq!(fixture.getattr(handle).err(), Some(Error::Stale));
            assert_eq!(fixture.read(&me(), handle).err(), Some(Error::Stale));
            assert_eq!(fixture.list(&me(), handle).err(), Some(Error::Stale));
            assert_eq!(fixture.lookup(&me(), handle, "key"), Err(Error::Stale));
            let parent = fixture.wait(fixture.fs().parent(&me(), handle));
            assert_eq!(parent.err(), Some(Error::Stale));
            let changed =
                fixture.wait(fixture.fs().setattr(&me(), handle, &mode(0o777), None, vfs::Authority::Caller));
            assert_eq!(changed.err(), Some(Error::Stale));
            let linked = fixture.wait(fixture.fs().link(&me(), handle, &fixture.fs().root(), b"mine"));
            assert_eq!(linked.err(), Some(Error::Stale));
        }
    });
}

#[test]
fn files_created_later_are_hidden_too() {
    in_both_modes(|mut before| {
        before.hide();
        let Before { fixture, .. } = &before;
        let root = fixture.fs().root();
        for number in 0..20 {
            let (inside, link) = (format!("{STATE}/{number}"), format!("link {number}"));
            std::fs::write(fixture.path(&inside), b"secret").expect("file");
            std::fs::hard_link(fixture.path(&inside), fixture.path(&link)).expect("link");
            assert_eq!(fixture.lookup(&me(), &root, &link), Err(Error::NotFound), "{link}");
        }
        assert_eq!(names(fixture, &root, true), [".local"]);
        // A file that has left the directory is an ordinary file.
        std::fs::remove_file(fixture.path(".local/state/7")).expect("remove");
        fixture.lookup(&me(), &root, "link 7").expect("seen");
    });
}

#[test]
fn callers_without_permissions_learn_nothing() {
    if !common::has_powers() {
        return;
    }
    let mut before = Before::new(false);
    before.hide();
    let Before { fixture, local, .. } = &before;
    std::fs::set_permissions(fixture.path(".local"), std::fs::Permissions::from_mode(0o744)).expect("chmod");
    let somebody = common::user(12_345, &[]);
    let listed = fixture.list(&somebody, local).expect("it may be read, and not searched");
    assert!(listed.is_empty(), "{listed:?}");
}

#[test]
fn an_export_of_or_inside_the_hidden_directory_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: without root a volume asks for its own state directory first");
    }
    let before = Before::new(false);
    localfs::become_server();
    let state = before.fixture.path(STATE);
    std::fs::create_dir(state.join("export")).expect("directory");
    for directory in [state.clone(), state.join("export")] {
        let config = Config { hidden_directory: Some(state.clone()), ..Config::new(directory) };
        let refused = LocalFs::open(&config).expect_err("clients would reach it").to_string();
        assert!(refused.contains("the state directory of this server"), "{refused}");
    }
}
