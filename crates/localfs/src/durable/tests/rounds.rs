use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;
use vfs::{Create, CreateMode, Created, Error, FileKind, Result, SetAttributes, Thread};

use super::super::rounds::{Leader, Round, RoundPart};
use super::{Case, block_on, case, run};
use crate::object::Object;
use crate::sync_group::is_short_sync;
use crate::sync_state::{Extent, Outcome};

/// Calls of one read.
const CALLS: usize = 64;

impl Case {
    fn create(&self, name: &str) -> impl Future<Output = Result<Created>> + use<> {
        let (volume, context, name) = (Arc::clone(&self.volume), self.context.clone(), name.to_owned());
        async move {
            let (root, what) = (volume.root.handle, Create::File(CreateMode::Guarded));
            volume.create(&context, &root, name.as_bytes(), &what, &SetAttributes::default()).await
        }
    }

    /// Waits like [`CALLS`] creations in the exported directory that were made in place, one after the other. All of
    /// them wait before the thread has nothing else to do. Returns the results and the number of syncs. `failing`
    /// makes the next sync of such an object fail.
    async fn wait_as_creations(&self, failing: Option<FileKind>) -> (Vec<Result<()>>, usize) {
        let mut files = Vec::new();
        for number in 0..CALLS {
            let created = self.create(&format!("new-{number}")).await.expect("create");
            files.push(self.volume.object(&created.handle).expect("object"));
        }
        self.settle();
        let syncs = self.syncs();
        failing.into_iter().for_each(|kind| self.plan_failure(kind));
        let wait = |file: Arc<Object>| {
            let (volume, root) = (Arc::clone(&self.volume), Arc::clone(&self.volume.root));
            let own = file.sync_state.begin_change().finish().creation();
            let change = root.sync_state.begin_change().finish();
            tokio::spawn(async move {
                volume.answer_when_durable(Thread::Shared, [(file, own), (root, change)], ()).await
            })
        };
        let calls: Vec<_> = files.into_iter().map(wait).collect();
        let mut outcomes = Vec::new();
        for call in calls {
            outcomes.push(call.await.expect("task"));
        }
        (outcomes, self.syncs() - syncs)
    }

    fn want_directory(&self) -> Outcome {
        let root = &self.volume.root;
        let change = root.sync_state.begin_change().finish();
        let (outcome, is_first) =
            root.sync_state.request(change, Extent::All).expect("no failure").expect("not durable");
        assert!(is_first);
        outcome
    }
}

#[test]
fn concurrent_creations_share_one_sync_of_their_directory() {
    run(async {
        let case = case().await;
        let (outcomes, syncs) = case.wait_as_creations(None).await;
        assert_eq!(outcomes, [Ok(()); CALLS]);
        assert_eq!(syncs, CALLS + 1, "one for each file");
        assert_eq!(case.volume.dirty_objects.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_failed_sync_of_the_directory_fails_all_creations_of_the_round() {
    run(async {
        let case = case().await;
        let (outcomes, _) = case.wait_as_creations(Some(FileKind::Directory)).await;
        assert_eq!(outcomes, [Err(Error::Io); CALLS]);
        case.create("later").await.expect("later changes are not affected");
    });
}

#[test]
fn a_failed_sync_of_a_new_file_fails_its_creation_only() {
    run(async {
        let case = case().await;
        let (outcomes, _) = case.wait_as_creations(Some(FileKind::Regular)).await;
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Err(Error::Io)).count(), 1);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), CALLS - 1);
    });
}

#[test]
fn a_running_round_does_not_cover_later_changes() {
    let case = &block_on(case());
    let syncs = case.syncs();
    std::thread::scope(|scope| {
        // The running syncs of directory and file wait for their plan.
        let plan = case.volume.planned_sync_failure.lock();
        let first = scope.spawn(|| block_on(case.create("first")));
        while case.syncs() < syncs + 2 {
            std::thread::yield_now();
        }
        let second = scope.spawn(|| block_on(case.create("second")));
        while case.volume.root.sync_state.waiting() == 0 {
            std::thread::yield_now();
        }
        drop(plan);
        assert!(first.join().expect("thread").is_ok() && second.join().expect("thread").is_ok());
    });
    assert_eq!(case.syncs(), syncs + 4, "the directory and a file, twice");
}

#[test]
fn long_syncs_are_not_part_of_a_round() {
    run(async {
        let case = case().await;
        let file = case.volume.object(&case.file).expect("object");
        let written = file.sync_state.begin_change().finish();
        let created = written.creation();
        assert!(is_short_sync(&file, created) && !is_short_sync(&file, written));
        assert!(is_short_sync(&case.volume.root, written));
    });
}

#[test]
fn a_dropped_leader_leaves_the_work_to_the_next() {
    run(async {
        let case = case().await;
        let (volume, root) = (&case.volume, &case.volume.root);
        let outcome = case.want_directory();
        assert!(volume.sync_group.join(root));
        let (volume, core) = (Arc::clone(volume), Handle::current());
        drop(Leader::new(&volume, &core));
        assert!(outcome.await.is_err(), "never answered");
        case.create("later").await.expect("another leader");
    });
}

#[test]
fn a_panicked_thread_ends_the_round_and_fails_waiting_requests() {
    run(async {
        let case = case().await;
        let (volume, root) = (&case.volume, &case.volume.root);
        let outcome = case.want_directory();
        assert!(volume.sync_group.join(root));
        let mut objects = Vec::new();
        assert!(volume.sync_group.begin_round(&mut objects));
        let round = Round::of(volume, &Handle::current(), objects);
        drop(RoundPart::new(&round, root));
        assert!(outcome.await.is_err(), "never answered");
        case.create("later").await.expect("another leader");
    });
}
