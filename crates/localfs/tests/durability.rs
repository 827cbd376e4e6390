//! What answers promise can change while the volume is in use.

use std::sync::Arc;

use localfs::{Config, Durability, LocalFs};
use vfs::{Backend, Context, Create, CreateMode, Credentials, Op, SetAttributes, Timestamp};

/// Whether creating a file has to wait for the device.
fn waits(volume: &LocalFs, name: &[u8]) -> bool {
    let me = Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Arc::from([]),
    };
    let now = Timestamp { seconds: 0, nanoseconds: 0 };
    let context = Context { credentials: Arc::new(me), now };
    let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
    match volume.create(&context, &volume.root(), name, &what, &set) {
        Op::Ready(created) => {
            created.expect("an answer").expect("created");
            false
        }
        Op::Pending(_) => true,
    }
}

#[test]
fn a_volume_keeps_another_promise_from_the_moment_it_is_made() {
    // Not in memory, where there is nothing to wait for.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temporary directory");
    std::fs::create_dir(place.path().join("export")).expect("directory");
    let config = Config {
        state_directory: Some(place.path().join("state")),
        durability: Durability::Async,
        ..Config::new(place.path().join("export"))
    };
    let volume = LocalFs::open(&config).expect("volume");
    assert!(!waits(&volume, b"first"));
    volume.set_durability(Durability::Sync).expect("sync");
    assert!(waits(&volume, b"second"));
    volume.set_durability(Durability::Async).expect("nothing to do");
    assert!(!waits(&volume, b"third"));
    assert_eq!(volume.write_verifier(), config.verifier_seed, "nothing was lost");
}
