mod gathering;
mod group;
mod in_place;
mod rounds;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfs::{
    Authority, Context, Create, CreateMode, Credentials, Error, FileKind, Handle, Result, SetAttributes,
    Stability, Thread, Timestamp,
};

use super::wait::SyncJob;
use crate::config::{Config, Durability};
use crate::sync_state::{ChangeId, Extent, SyncState};
use crate::volume::Volume;

pub(super) struct Case {
    pub(super) volume: Arc<Volume>,
    pub(super) context: Context,
    pub(super) file: Handle,
    _directory: tempfile::TempDir,
}

/// Opens a durable volume with one file, all of it synced.
pub(super) async fn case() -> Case {
    case_of(Durability::Sync).await
}

async fn case_of(durability: Durability) -> Case {
    let directory = tempfile::tempdir().expect("temporary directory");
    let top = directory.path().join("export");
    std::fs::create_dir(&top).expect("directory");
    let state_directory = Some(directory.path().join("state"));
    let config = Config { state_directory, durability, ..Config::new(top) };
    let volume = crate::probe::open(&config).expect("volume");
    let uid = rustix::process::geteuid().as_raw();
    let credentials = Arc::new(Credentials { uid, gid: uid, groups: Arc::from([]) });
    let context = Context::new(credentials, Timestamp::default());
    let what = Create::File(CreateMode::Guarded);
    let root = volume.root.handle;
    let created =
        volume.create(&context, &root, b"f", &what, &SetAttributes::default()).await.expect("create");
    let case = Case { file: created.handle, volume, context, _directory: directory };
    case.settle();
    case
}

impl Case {
    /// Waits until the thread that synced for a creation has found no more waiting requests.
    pub(super) fn settle(&self) {
        while self.volume.sync_group.has_leader() {
            std::thread::yield_now();
        }
    }

    pub(super) async fn write(&self, stability: Stability) -> Result<()> {
        let data = bytes::Bytes::from_static(b"data");
        let (context, file) = (&self.context, &self.file);
        self.volume.write(context, file, 0, &data, stability, Authority::Caller).await.map(drop)
    }

    pub(super) async fn commit(&self) -> Result<()> {
        self.volume.commit(&self.context, &self.file, 0, 0).await.map(drop)
    }

    pub(super) fn syncs(&self) -> usize {
        self.volume.syncs.lock().len()
    }

    /// Makes the next sync of an object of this kind fail.
    pub(super) fn plan_failure(&self, kind: FileKind) {
        *self.volume.planned_sync_failure.lock() = Some((kind, Error::Io));
    }
}

pub(super) fn run(test: impl Future<Output = ()>) {
    block_on(test);
}

pub(super) fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(test)
}

#[test]
fn a_failed_sync_is_reported_changes_the_verifier_and_leaves_the_file_dirty() {
    run(async {
        let case = case().await;
        let verifier = case.volume.verifier();
        case.write(Stability::Unstable).await.expect("write");
        case.plan_failure(FileKind::Regular);
        assert_eq!(case.commit().await, Err(Error::Io));
        let after = case.volume.verifier();
        assert_ne!(after, verifier, "unstable data may be lost");
        // The next COMMIT syncs again, although nothing was written since.
        let syncs = case.syncs();
        assert_eq!(case.commit().await, Ok(()));
        assert_eq!((case.syncs(), case.volume.verifier()), (syncs + 1, after));
    });
}

#[test]
fn a_failed_sync_fails_its_stable_write() {
    run(async {
        let case = case().await;
        case.plan_failure(FileKind::Regular);
        assert_eq!(case.write(Stability::FileSync).await, Err(Error::Io));
        assert_eq!(case.write(Stability::DataSync).await, Ok(()));
    });
}

#[test]
fn a_failed_sync_of_a_directory_fails_the_create() {
    run(async {
        let case = case().await;
        case.plan_failure(FileKind::Directory);
        let root = case.volume.root.handle;
        let made = case
            .volume
            .create(&case.context, &root, b"d", &Create::Directory, &SetAttributes::default())
            .await;
        assert_eq!(made.err(), Some(Error::Io));
    });
}

#[test]
fn a_create_of_an_existing_file_waits_for_the_device_too() {
    run(async {
        let case = case().await;
        let (context, root, volume) = (&case.context, case.volume.root.handle, &case.volume);
        let set = SetAttributes::default();
        let exclusive = Create::File(CreateMode::Exclusive(*b"verifier"));
        case.plan_failure(FileKind::Directory);
        let first = volume.create(context, &root, b"e", &exclusive, &set).await;
        assert_eq!(first.err(), Some(Error::Io));
        case.plan_failure(FileKind::Directory);
        let unchecked = Create::File(CreateMode::Unchecked);
        let second = volume.create(context, &root, b"e", &unchecked, &set).await;
        assert_eq!(second.err(), Some(Error::Io), "its name is not on stable storage yet");
        let third = volume.create(context, &root, b"e", &unchecked, &set).await;
        assert!(third.is_ok_and(|created| !created.is_new));
        // After a restart nothing is known to be dirty, but the first call was never answered.
        let syncs = case.syncs();
        volume.create(context, &root, b"e", &exclusive, &set).await.expect("the same call again");
        assert_eq!(case.syncs(), syncs + 2, "file and directory");
        volume.create(context, &root, b"e", &unchecked, &set).await.expect("found");
        assert_eq!(case.syncs(), syncs + 2, "nothing is dirty");
    });
}

#[test]
fn a_commit_of_a_clean_file_syncs_nothing() {
    run(async {
        let case = case().await;
        case.write(Stability::Unstable).await.expect("write");
        case.commit().await.expect("commit");
        let syncs = case.syncs();
        case.commit().await.expect("commit");
        case.commit().await.expect("commit");
        assert_eq!(case.syncs(), syncs);
        case.write(Stability::FileSync).await.expect("write");
        assert_eq!(case.syncs(), syncs + 1);
        case.commit().await.expect("commit");
        assert_eq!(case.syncs(), syncs + 1, "a stable write leaves nothing to commit");
    });
}

#[test]
fn unstable_writes_sync_nothing() {
    run(async {
        let case = case().await;
        let syncs = case.syncs();
        for _ in 0..10 {
            case.write(Stability::Unstable).await.expect("write");
        }
        assert_eq!(case.syncs(), syncs);
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 1);
        case.commit().await.expect("commit");
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_sync_that_began_before_a_change_was_made_does_not_cover_it() {
    let sync_state = SyncState::new(&Arc::default());
    let pending = sync_state.begin_change();
    let _outcome = sync_state.wait_for_next(Extent::All);
    let (up_to, extent, _) = sync_state.begin_sync().expect("a caller waits");
    // The change is made only now, during the running fsync, which then succeeds.
    let change = pending.finish();
    sync_state.mark_durable(up_to, extent);
    assert_eq!((sync_state.is_dirty(), sync_state.unsynced_change()), (true, Some(change)));
    assert!(sync_state.durable(Extent::All) < change.number);
    sync_state.mark_durable(change.number, Extent::All);
    assert!(!sync_state.is_dirty());
}

#[test]
fn an_object_being_changed_is_dirty_and_counted_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let sync_state = SyncState::new(&count);
    let (one, other) = (sync_state.begin_change(), sync_state.begin_change());
    assert!(sync_state.is_dirty() && sync_state.unsynced_change().is_none(), "no change to wait for yet");
    let number = one.finish().number;
    sync_state.mark_durable(number, Extent::Data);
    assert!(sync_state.is_dirty(), "the other is still being made");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(other);
    assert_eq!((sync_state.is_dirty(), count.load(Ordering::Relaxed)), (false, 0));
    let _change = sync_state.begin_change().finish();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(sync_state);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn a_failed_operation_leaves_a_dirty_object_dirty() {
    run(async {
        let case = case().await;
        case.write(Stability::Unstable).await.expect("write");
        let (context, root, volume) = (&case.context, case.volume.root.handle, &case.volume);
        let linked = volume.link(context, &case.file, &root, b"f").await;
        assert_eq!(linked.err(), Some(Error::Exists));
        let removed = volume.remove_xattr(context, &case.file, b"none").await;
        assert!(removed.is_err());
        let set = SetAttributes { uid: Some(u32::MAX), ..SetAttributes::default() };
        assert!(volume.setattr(context, &case.file, &set, None, Authority::Caller).await.is_err());
        let syncs = case.syncs();
        case.commit().await.expect("commit");
        assert_eq!(case.syncs(), syncs + 1, "the write is not on stable storage yet");
    });
}

#[test]
fn an_async_volume_keeps_nothing_dirty() {
    run(async {
        let case = case_of(Durability::Async).await;
        let set = SetAttributes { size: Some(10), ..SetAttributes::default() };
        let (context, volume) = (&case.context, &case.volume);
        volume.setattr(context, &case.file, &set, None, Authority::Caller).await.expect("truncate");
        case.write(Stability::Unstable).await.expect("write");
        volume.allocate(context, &case.file, (0, 4096), Authority::Caller).await.expect("allocate");
        let far = u64::from(u32::MAX) << 20;
        let too_much = volume.allocate(context, &case.file, (0, far), Authority::Caller).await;
        too_much.expect_err("no such space");
        assert_eq!(volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn all_waiting_requests_share_two_syncs() {
    const OTHERS: usize = 99;
    let case = &block_on(case());
    let object = case.volume.object(&case.file).expect("object");
    let syncs = case.syncs();
    let wait = || {
        let (volume, object) = (Arc::clone(&case.volume), Arc::clone(&object));
        let change = object.sync_state.begin_change().finish();
        async move { volume.answer_when_synced(Thread::Shared, (object, change, Extent::Data), ()).await }
    };
    std::thread::scope(|scope| {
        // The running sync waits for its plan until all others wait for the next sync.
        let plan = case.volume.planned_sync_failure.lock();
        let first = scope.spawn(|| block_on(wait()));
        while case.syncs() == syncs {
            std::thread::yield_now();
        }
        let others = scope.spawn(|| {
            block_on(async {
                for task in [(); OTHERS].map(|()| tokio::spawn(wait())) {
                    task.await.expect("task").expect("sync");
                }
            });
        });
        while object.sync_state.waiting() < OTHERS {
            std::thread::yield_now();
        }
        drop(plan);
        first.join().expect("thread").expect("sync");
        others.join().expect("thread");
    });
    assert_eq!(case.syncs(), syncs + 2);
}

#[test]
fn a_sync_now_waits_for_the_running_one() {
    run(async {
        let case = case().await;
        let object = case.volume.object(&case.file).expect("object");
        let change = object.sync_state.begin_change().finish();
        let (first, is_first) =
            object.sync_state.request(change, Extent::Data).expect("no failure").expect("not durable");
        assert!(is_first, "this one syncs");
        case.plan_failure(FileKind::Regular);
        let (volume, same) = (Arc::clone(&case.volume), Arc::clone(&object));
        let at_once = tokio::task::spawn_blocking(move || volume.sync_now(&same));
        while object.sync_state.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        case.volume.sync_while_wanted(&object);
        assert_eq!((first.await, at_once.await.expect("task")), (Ok(Err(Error::Io)), Err(Error::Io)));
        assert!(object.sync_state.is_dirty());
    });
}

#[test]
fn an_abandoned_sync_leaves_the_work_to_the_next() {
    run(async {
        let case = case().await;
        let object = case.volume.object(&case.file).expect("object");
        let change = object.sync_state.begin_change().finish();
        let (first, _) =
            object.sync_state.request(change, Extent::Data).expect("no failure").expect("not durable");
        drop(SyncJob::new(&case.volume, &object));
        assert!(first.await.is_err(), "never answered");
        let volume = Arc::clone(&case.volume);
        let synced = tokio::task::spawn_blocking(move || volume.sync_now(&object)).await;
        assert_eq!(synced.expect("task"), Ok(()));
    });
}

#[test]
fn a_failed_sync_is_reported_to_all_requests_that_waited_for_it() {
    run(async {
        let case = case().await;
        let object = case.volume.object(&case.file).expect("object");
        object.sync_state.begin_change().finish();
        let first = object.sync_state.wait_for_next(Extent::Data);
        let second = object.sync_state.wait_for_next(Extent::All);
        case.plan_failure(FileKind::Regular);
        case.volume.sync_while_wanted(&object);
        assert_eq!((first.await, second.await), (Ok(Err(Error::Io)), Ok(Err(Error::Io))));
        assert!(object.sync_state.is_dirty());
    });
}

#[test]
fn a_stable_write_made_while_a_sync_fails_fails_too() {
    let case = &block_on(case());
    let object = case.volume.object(&case.file).expect("object");
    let syncs = case.syncs();
    std::thread::scope(|scope| {
        // The running sync waits for its plan.
        let mut plan = case.volume.planned_sync_failure.lock();
        let first = scope.spawn(|| block_on(case.write(Stability::FileSync)));
        while case.syncs() == syncs {
            std::thread::yield_now();
        }
        let second = scope.spawn(|| block_on(case.write(Stability::FileSync)));
        while object.sync_state.waiting() == 0 {
            std::thread::yield_now();
        }
        *plan = Some((FileKind::Regular, Error::Io));
        drop(plan);
        assert_eq!(first.join().expect("thread"), Err(Error::Io));
        // The kernel reports a failed write-back once per descriptor, so the next sync would succeed without these
        // pages.
        assert_eq!(second.join().expect("thread"), Err(Error::Io));
    });
    assert_eq!(block_on(case.write(Stability::FileSync)), Ok(()), "later changes are not affected");
}

#[test]
fn a_change_made_beside_a_failed_sync_is_never_durable() {
    run(async {
        let case = case().await;
        let object = case.volume.object(&case.file).expect("object");
        // One change is finished but not waited for yet, the other is being made.
        let (made, pending) = (object.sync_state.begin_change().finish(), object.sync_state.begin_change());
        case.plan_failure(FileKind::Regular);
        assert_eq!(case.write(Stability::FileSync).await, Err(Error::Io));
        let late = pending.finish();
        let synced = |change, extent| {
            case.volume.answer_when_synced(Thread::Shared, (Arc::clone(&object), change, extent), ())
        };
        for extent in [Extent::Data, Extent::All] {
            assert_eq!(synced(made, extent).await, Err(Error::Io));
            // A later success says nothing about them.
            assert_eq!(case.write(Stability::FileSync).await, Ok(()));
            assert_eq!(synced(late, extent).await, Err(Error::Io));
        }
        assert_eq!(synced(ChangeId::NONE, Extent::All).await, Ok(()));
    });
}
