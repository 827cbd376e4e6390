use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use vfs::{Context, Create, CreateMode, Error, FileKind, Removal, Result, SetAttributes, Thread};

use super::super::tests::{Case, case, run};
use super::super::{Extent, Syncing};
use super::*;

impl Case {
    /// Its syncs have been short of late.
    fn quicken(&self) {
        (0..IN_A_ROW).for_each(|_| self.volume.pace.took(Duration::ZERO));
    }

    /// By a caller that has the thread for itself.
    fn alone(&self) -> Context {
        Context { thread: Thread::Lent, ..self.context.clone() }
    }

    /// A creation in the top directory.
    async fn make(&self, context: &Context, name: &str) -> Result<()> {
        let (root, what) = (self.volume.root.handle, Create::File(CreateMode::Guarded));
        self.volume.create(context, &root, name.as_bytes(), &what, &SetAttributes::default()).await.map(drop)
    }
}

/// What is answered before the thread does anything else.
fn at_once<T>(call: impl Future<Output = T>) -> Option<T> {
    match pin!(call).poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[test]
fn the_next_sync_is_taken_to_be_short_after_enough_that_were() {
    let pace = Pace::default();
    assert!(!pace.is_short(), "nobody knows");
    (1..IN_A_ROW).for_each(|_| pace.took(SHORT - Duration::from_nanos(1)));
    assert!(!pace.is_short());
    pace.took(Duration::ZERO);
    pace.took(Duration::ZERO);
    assert!(pace.is_short());
    pace.took(SHORT);
    (1..IN_A_ROW).for_each(|_| pace.took(Duration::ZERO));
    assert!(!pace.is_short(), "it begins anew");
}

#[test]
fn no_sync_is_short_beside_another() {
    let pace = Pace::default();
    (0..IN_A_ROW).for_each(|_| pace.took(Duration::ZERO));
    let under_way = pace.begin();
    assert!(!pace.is_short());
    drop(under_way);
    assert!(pace.is_short());
}

#[test]
fn who_has_the_thread_alone_is_answered_without_another() {
    run(async {
        let case = case().await;
        case.quicken();
        let syncs = case.syncs();
        assert_eq!(at_once(case.make(&case.alone(), "new")), Some(Ok(())));
        assert_eq!(case.syncs() - syncs, 2, "the file and its directory");
        // However long those took.
        case.quicken();
        let root = case.volume.root.handle;
        let removal = async { case.volume.remove(&case.alone(), &root, b"new", Removal::File).await };
        assert!(at_once(removal).is_some_and(|removed| removed.is_ok()));
        assert_eq!(case.syncs() - syncs, 3);
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_thread_of_others_is_not_kept_nor_any_where_syncs_take_long() {
    run(async {
        let case = case().await;
        case.quicken();
        assert_eq!(at_once(case.make(&case.context, "shared")), None);
        case.make(&case.context, "settled").await.expect("create");
        case.settle();
        case.quicken();
        case.volume.pace.took(SHORT);
        assert_eq!(at_once(case.make(&case.alone(), "slow")), None);
    });
}

#[test]
fn a_sync_in_place_that_fails_is_told_and_leaves_dirt() {
    run(async {
        let case = case().await;
        let verifier = case.volume.verifier();
        case.quicken();
        case.plan_failure(FileKind::Directory);
        assert_eq!(at_once(case.make(&case.alone(), "new")), Some(Err(Error::Io)));
        assert_ne!(case.volume.verifier(), verifier);
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 1, "the directory");
        case.quicken();
        assert_eq!(at_once(case.make(&case.alone(), "later")), Some(Ok(())));
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn what_another_syncs_is_waited_for() {
    run(async {
        let case = case().await;
        case.quicken();
        let root = Arc::clone(&case.volume.root);
        let change = root.dirt.begin().made();
        let (outcome, is_first) = root.dirt.want(change, Extent::All).expect("no failure").expect("dirty");
        assert!(is_first);
        let context = case.alone();
        let mut creation = pin!(case.make(&context, "new"));
        assert_eq!(at_once(creation.as_mut()), None, "another is about to sync the directory");
        Syncing { volume: Arc::clone(&case.volume), object: root, is_done: false }.run_in_place();
        assert_eq!(at_once(creation), Some(Ok(())));
        assert_eq!(outcome.await, Ok(Ok(())));
    });
}
