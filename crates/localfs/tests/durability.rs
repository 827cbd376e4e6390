//! The durability can change while the volume is in use.

use std::sync::Arc;

use localfs::{Config, Durability, LocalFs};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Op, SetAttributes, Stability, Timestamp,
};

/// Creates a file. Returns whether that had to wait.
fn waits(volume: &LocalFs, name: &str) -> bool {
    let me = Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Arc::from([]),
    };
    let now = Timestamp { seconds: 0, nanoseconds: 0 };
    let context = Context::new(Arc::new(me), now);
    let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
    let root = volume.root();
    let created = volume.create(&context, &root, name.as_bytes(), &what, &set);
    let is_pending = matches!(created, Op::Pending(_));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    runtime.block_on(created).expect("created");
    is_pending
}

/// Returns whether files are created in place. Not all have to be: a directory is read on the pool first, and on a busy
/// machine the stall detector moves changes to the pool.
fn works_in_place(volume: &LocalFs, prefix: &str) -> bool {
    (0..200).any(|number| !waits(volume, &format!("{prefix}{number}")))
}

#[test]
fn a_new_durability_applies_at_once() {
    // Not in memory, where nothing has to wait.
    let fixture = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temporary directory");
    std::fs::create_dir(fixture.path().join("export")).expect("directory");
    let config = Config {
        state_directory: Some(fixture.path().join("state")),
        durability: Durability::Async,
        ..Config::new(fixture.path().join("export"))
    };
    let volume = LocalFs::open(&config).expect("volume");
    assert!(works_in_place(&volume, "first"));
    volume.set_durability(Durability::Sync).expect("sync");
    assert!(!works_in_place(&volume, "second"), "each waits for the device");
    volume.set_durability(Durability::Async).expect("nothing to do");
    assert!(works_in_place(&volume, "third"));
    assert_eq!(volume.write_verifier(), config.verifier_seed, "nothing was lost");
}

#[test]
fn a_growing_file_goes_to_the_disk_before_its_commit() {
    const MIB: u64 = 1 << 20;
    let fixture = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temporary directory");
    std::fs::create_dir(fixture.path().join("export")).expect("directory");
    let config = Config {
        state_directory: Some(fixture.path().join("state")),
        ..Config::new(fixture.path().join("export"))
    };
    let volume = LocalFs::open(&config).expect("volume");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let own = Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Arc::from([]),
    };
    let context = Context::new(Arc::new(own), Timestamp { seconds: 0, nanoseconds: 0 });
    let data = vec![7; MIB as usize].into();
    let flushes = |name: &str, offsets: &[u64]| {
        let before = localfs::early_flushes();
        let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let what = Create::File(CreateMode::Guarded);
        let created = volume.create(&context, &volume.root(), name.as_bytes(), &what, &set);
        let file = runtime.block_on(created).expect("created").handle;
        for offset in offsets {
            let (offset, how) = (offset * MIB, Stability::Unstable);
            let written = volume.write(&context, &file, offset, &data, how, Authority::Opened);
            assert_eq!(u64::from(runtime.block_on(written).expect("written").count), MIB);
        }
        runtime.block_on(volume.commit(&context, &file, 0, 0)).expect("committed");
        localfs::early_flushes() - before
    };
    let in_order: Vec<_> = (0..32).collect();
    // A flush that still runs makes the next one longer.
    assert!((1..=4).contains(&flushes("growing", &in_order)));
    assert_eq!(flushes("small", &in_order[..7]), 0);
    assert_eq!(flushes("repeated", &[0; 32]), 0);
}
