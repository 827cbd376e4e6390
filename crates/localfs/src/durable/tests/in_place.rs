use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use vfs::{
    Authority, Context, Create, CreateMode, Error, FileKind, Removal, Result, SetAttributes, Stability,
    SyncLatency, Thread,
};

use super::super::wait::SyncJob;
use super::{Case, case, run};
use crate::object::Object;
use crate::sync_state::Extent;

impl Case {
    /// Makes the next syncs count as short, after all running syncs have ended.
    fn assume_short_syncs(&self) {
        self.settle();
        while self.file().sync_state.is_syncing() {
            std::thread::yield_now();
        }
        (0..SyncLatency::SHORT_SYNCS).for_each(|_| self.volume.sync_latency.record(Duration::ZERO));
    }

    fn file(&self) -> Arc<Object> {
        self.volume.object(&self.file).expect("object")
    }

    /// Returns the context of a caller with exclusive use of the thread.
    fn alone(&self) -> Context {
        Context { thread: Thread::Exclusive, ..self.context.clone() }
    }

    /// Creates a file in the exported directory.
    async fn make(&self, context: &Context, name: &str) -> Result<()> {
        let (root, what) = (self.volume.root.handle, Create::File(CreateMode::Guarded));
        self.volume.create(context, &root, name.as_bytes(), &what, &SetAttributes::default()).await.map(drop)
    }
}

impl Case {
    async fn write_alone(&self, bytes: usize, stability: Stability) -> Result<()> {
        let (context, data) = (self.alone(), Bytes::from(vec![1; bytes]));
        self.volume.write(&context, &self.file, 0, &data, stability, Authority::Caller).await.map(drop)
    }

    async fn commit_alone(&self) -> Result<()> {
        self.volume.commit(&self.alone(), &self.file, 0, 0).await.map(drop)
    }
}

/// Syncs that the calling thread makes, and syncs that other threads make.
#[derive(Debug, PartialEq, Eq)]
struct Syncs {
    here: usize,
    elsewhere: usize,
}

const NAMES: Syncs = Syncs { here: 2, elsewhere: 0 };
const HERE: Syncs = Syncs { here: 1, elsewhere: 0 };
const ELSEWHERE: Syncs = Syncs { here: 0, elsewhere: 1 };

impl Case {
    /// Returns the answer of a call whose syncs count as short, and the threads that sync for it.
    async fn call_with_short_syncs<T>(&self, call: impl Future<Output = T>) -> (T, Syncs) {
        self.assume_short_syncs();
        let before = self.syncs();
        let answer = call.await;
        let me = std::thread::current().id();
        let threads = &self.volume.syncs.lock()[before..];
        let here = threads.iter().filter(|thread| **thread == me).count();
        (answer, Syncs { here, elsewhere: threads.len() - here })
    }
}

#[test]
fn an_exclusive_thread_syncs_names_in_place() {
    run(async {
        let case = case().await;
        assert_eq!(
            case.call_with_short_syncs(case.make(&case.alone(), "new")).await,
            (Ok(()), NAMES),
            "the file and its directory"
        );
        let root = case.volume.root.handle;
        let removal =
            async { case.volume.remove(&case.alone(), &root, b"new", Removal::File).await.map(drop) };
        assert_eq!(case.call_with_short_syncs(removal).await, (Ok(()), HERE));
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_shared_thread_or_slow_device_does_not_sync_in_place() {
    run(async {
        let case = case().await;
        let (made, syncs) = case.call_with_short_syncs(case.make(&case.context, "shared")).await;
        assert_eq!((made, syncs.here), (Ok(()), 0));
        let slow = async {
            case.volume.sync_latency.record(SyncLatency::SHORT);
            case.make(&case.alone(), "slow").await
        };
        let (made, syncs) = case.call_with_short_syncs(slow).await;
        assert_eq!((made, syncs.here), (Ok(()), 0));
    });
}

#[test]
fn a_failed_sync_in_place_is_reported_and_leaves_the_object_dirty() {
    run(async {
        let case = case().await;
        let verifier = case.volume.verifier();
        case.plan_failure(FileKind::Directory);
        assert_eq!(
            case.call_with_short_syncs(case.make(&case.alone(), "new")).await,
            (Err(Error::Io), NAMES)
        );
        assert_ne!(case.volume.verifier(), verifier);
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 1, "the directory");
        assert_eq!(case.call_with_short_syncs(case.make(&case.alone(), "later")).await, (Ok(()), NAMES));
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn little_content_is_synced_in_place_and_more_is_not() {
    run(async {
        let case = case().await;
        let little = SyncLatency::SMALL_BYTES as usize;
        for stability in [Stability::DataSync, Stability::FileSync] {
            assert_eq!(case.call_with_short_syncs(case.write_alone(little, stability)).await, (Ok(()), HERE));
            assert_eq!(
                case.call_with_short_syncs(case.write_alone(little + 1, stability)).await,
                (Ok(()), ELSEWHERE)
            );
        }
        for _ in 0..4 {
            case.write_alone(little / 4, Stability::Unstable).await.expect("write");
        }
        assert_eq!(case.call_with_short_syncs(case.commit_alone()).await, (Ok(()), HERE));
        case.write_alone(little, Stability::Unstable).await.expect("write");
        case.write_alone(1, Stability::Unstable).await.expect("write");
        assert_eq!(
            case.call_with_short_syncs(case.commit_alone()).await,
            (Ok(()), ELSEWHERE),
            "together they are more"
        );
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn content_of_unknown_size_is_not_synced_in_place() {
    run(async {
        let case = case().await;
        case.plan_failure(FileKind::Regular);
        let failed = case.call_with_short_syncs(case.write_alone(1, Stability::FileSync)).await;
        assert_eq!(failed, (Err(Error::Io), HERE));
        assert_eq!(
            case.call_with_short_syncs(case.commit_alone()).await,
            (Ok(()), ELSEWHERE),
            "a sync failed"
        );
        _ = case.file().sync_state.begin_change().finish();
        assert_eq!(
            case.call_with_short_syncs(case.commit_alone()).await,
            (Ok(()), ELSEWHERE),
            "another's change"
        );
        assert_eq!(case.file().sync_state.unsynced(), 0);
    });
}

#[test]
fn a_call_waits_for_a_running_sync_of_another_thread() {
    run(async {
        let case = case().await;
        let root = Arc::clone(&case.volume.root);
        let change = root.sync_state.begin_change().finish();
        let (outcome, is_first) =
            root.sync_state.request(change, Extent::All).expect("no failure").expect("dirty");
        assert!(is_first);
        let context = case.alone();
        let both = async {
            // Another thread is about to sync the directory when the creation begins to wait for it.
            let sync = async {
                while root.sync_state.waiting() < 2 {
                    tokio::task::yield_now().await;
                }
                SyncJob::new(&case.volume, &root).run_in_place();
            };
            tokio::join!(biased; case.make(&context, "new"), sync).0
        };
        assert_eq!(case.call_with_short_syncs(both).await, (Ok(()), NAMES));
        assert_eq!(outcome.await, Ok(Ok(())));
    });
}
