//! The contract of every backend, on directories: with root's capabilities and without any, with kernel handles and
//! with the index, on the disk and in memory.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use localfs::{Config, Durability, LocalFs};
use vfs::contract::{Capabilities, Fixture};
use vfs::journal::{Journaled, LOG_BYTES_MIN, Log};
use vfs::{Backend, Credentials};

/// The configuration of a suite.
#[derive(Clone, Copy)]
struct Variant {
    in_memory: bool,
    index: bool,
    durability: Durability,
}

const PLAIN: Variant = Variant { in_memory: false, index: false, durability: Durability::Async };

fn config(fixture: &Path, state: &str, variant: Variant) -> Config {
    Config {
        state_directory: Some(fixture.join(state)),
        always_use_index: variant.index,
        durability: variant.durability,
        ..Config::new(fixture.join("export"))
    }
}

fn open(config: &Config) -> Arc<LocalFs> {
    let volume = LocalFs::open(config).expect("volume");
    if std::env::var_os(common::UNPRIVILEGED).is_some() {
        assert!(!volume.acts_as_callers() && volume.uses_index(), "this process has lost its privileges");
    }
    Arc::new(volume)
}

/// Copies the present state on disk, as a killed server leaves it, while the server under test continues.
fn copy_state(fixture: &Path, number: usize) -> String {
    let copy = format!("state-{number}");
    std::fs::create_dir(fixture.join(&copy)).expect("directory");
    for file in std::fs::read_dir(fixture.join("state")).into_iter().flatten() {
        let file = file.expect("entry");
        std::fs::copy(file.path(), fixture.join(&copy).join(file.file_name())).expect("copy");
    }
    copy
}

fn fixture(variant: Variant) -> Fixture {
    wrapped(variant, |volume| volume)
}

fn wrapped(variant: Variant, wrap: impl FnOnce(Arc<LocalFs>) -> Arc<dyn Backend>) -> Fixture {
    let top = if variant.in_memory { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    let fixture = tempfile::tempdir_in(top).expect("temporary directory");
    let path = fixture.path().to_owned();
    std::fs::create_dir(path.join("export")).expect("directory");
    let volume = open(&config(&path, "state", variant));
    let identities = volume.acts_as_callers();
    let steady_change = volume.has_steady_changes();
    let own = Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Arc::from([]),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let restarts = std::cell::Cell::new(0);
    Fixture {
        backend: wrap(volume),
        caller: if identities { Credentials::root() } else { own },
        capabilities: Capabilities {
            identities,
            devices: identities,
            context_clock: false,
            steady_change,
            holes: true,
        },
        drive: Box::new(move |future| runtime.block_on(future)),
        restart: Some(Box::new(move || {
            localfs::become_server();
            restarts.set(restarts.get() + 1);
            let state = copy_state(&path, restarts.get());
            open(&config(&path, &state, variant)) as Arc<dyn Backend>
        })),
        keep: Box::new(Cleanup(Some(fixture))),
    }
}

/// A volume with a journal, whose device is a thread that keeps nothing.
fn journaled() -> Fixture {
    let log = Arc::new(Log::create([0; 16], ([5; 16], [6; 16]), 64 * LOG_BYTES_MIN, Arc::default()));
    let of_volume = Arc::clone(&log);
    let durable = Variant { durability: Durability::Sync, ..PLAIN };
    let fixture = wrapped(durable, |volume| Arc::new(Journaled::new(volume.as_ref().clone(), of_volume)));
    let of_thread = Arc::clone(&log);
    std::thread::spawn(move || write_until_closed(&of_thread));
    Fixture { keep: Box::new((fixture.keep, Closing(log))), ..fixture }
}

/// Ends the device's thread.
struct Closing(Arc<Log>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn write_until_closed(log: &Log) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        match log.poll_write(&mut context) {
            Poll::Ready(Some(_)) => log.written(true),
            Poll::Ready(None) => return,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// Removes the directory as the server.
struct Cleanup(Option<tempfile::TempDir>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        localfs::become_server();
        drop(self.0.take());
    }
}

fn plain() -> Fixture {
    fixture(PLAIN)
}

fn ordinary_caller() -> Fixture {
    let fixture = plain();
    match fixture.capabilities.identities {
        true => fixture.with_caller(Credentials { uid: 1500, gid: 1500, groups: Arc::from([]) }),
        false => fixture,
    }
}

fn indexed() -> Fixture {
    fixture(Variant { index: true, ..PLAIN })
}

fn in_memory() -> Fixture {
    fixture(Variant { in_memory: true, ..PLAIN })
}

fn durable() -> Fixture {
    fixture(Variant { durability: Durability::Sync, ..PLAIN })
}

vfs::contract_tests!(on_disk, plain);
vfs::contract_tests!(as_ordinary_caller, ordinary_caller);
vfs::contract_tests!(with_index, indexed);
vfs::contract_tests!(on_tmpfs, in_memory);
vfs::contract_tests!(with_durability, durable);
vfs::contract_tests!(with_journal, journaled);

/// The same in a process of an ordinary user without any capability.
#[test]
fn without_privileges() {
    common::again_without_privileges(&["on_disk::", "on_tmpfs::"]);
}

/// ramfs has coarse timestamps, no creation times, no handles, and directory positions that move: the least that a
/// file system can offer.
#[test]
fn on_a_coarse_clock() {
    // Nor can it find holes.
    let unsupported = ["space::", "every_change_of_a_file", "copies_of_sparse_files"];
    let unsupported = unsupported.map(|name| ["--skip", name]).concat();
    common::again_mounted(&["-t", "ramfs", "ramfs"], &[&["on_disk::"], &unsupported[..]].concat());
}

/// As inside a container.
#[test]
fn on_an_overlay() {
    let options = "lowerdir={lower},upperdir={upper},workdir={work}";
    common::again_mounted(&["-t", "overlay", "overlay", "-o", options], &["on_disk::"]);
}
