//! Deferred changes: their syncs are counted, and their failures found.

use std::sync::Arc;

use vfs::{
    Create, CreateMode, Error, FileKind, GroupCommit, NotDurable, Peer, Removal, SetAttributes, Stability,
    Thread,
};

use super::{Case, case, run};

/// A case whose operations defer their changes.
async fn deferring() -> (Case, Arc<GroupCommit>) {
    let (mut case, group) = (case().await, Arc::<GroupCommit>::default());
    case.context.group = Some(Arc::clone(&group));
    (case, group)
}

impl Case {
    async fn new_file(&self, name: &str) -> vfs::Handle {
        let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
        let root = self.volume.root.handle;
        self.volume.create(&self.context, &root, name.as_bytes(), &what, &set).await.expect("created").handle
    }

    async fn remove(&self, name: &str) {
        let root = self.volume.root.handle;
        self.volume.remove(&self.context, &root, name.as_bytes(), Removal::File).await.expect("removed");
    }
}

async fn commit(group: &GroupCommit) -> Result<(), NotDurable> {
    group.commit(Thread::Shared, Peer::default()).await
}

#[test]
fn removals_of_a_directory_share_one_sync() {
    run(async {
        let (case, group) = deferring().await;
        for number in 0..50 {
            case.new_file(&number.to_string()).await;
        }
        commit(&group).await.expect("committed");
        case.settle();
        let syncs = case.syncs();
        for number in 0..50 {
            group.begin_operation(number);
            case.remove(&number.to_string()).await;
        }
        assert_eq!((case.syncs(), group.last_deferred()), (syncs, Some(49)), "nothing is synced yet");
        assert!(case.volume.root.sync_state.is_dirty());
        assert_eq!(commit(&group).await, Ok(()));
        assert_eq!(case.syncs(), syncs + 1);
        assert!(!case.volume.root.sync_state.is_dirty());
    });
}

#[test]
fn each_new_file_and_their_directory_are_synced_once() {
    run(async {
        let (case, group) = deferring().await;
        let syncs = case.syncs();
        for number in 0..10 {
            case.new_file(&number.to_string()).await;
        }
        assert_eq!(commit(&group).await, Ok(()));
        assert_eq!(case.syncs(), syncs + 11);
    });
}

#[test]
fn stable_writes_and_a_commit_of_one_file_share_one_sync() {
    run(async {
        let (case, group) = deferring().await;
        let syncs = case.syncs();
        case.write(Stability::FileSync).await.expect("written");
        case.write(Stability::DataSync).await.expect("written");
        case.write(Stability::Unstable).await.expect("written");
        case.commit().await.expect("committed later");
        assert_eq!((case.syncs(), commit(&group).await), (syncs, Ok(())));
        assert_eq!(case.syncs(), syncs + 1);
        case.commit().await.expect("clean");
        assert_eq!(group.last_deferred(), None, "nothing is left to commit");
    });
}

#[test]
fn the_first_operation_whose_object_was_not_synced_is_reported() {
    run(async {
        let (case, group) = deferring().await;
        // A write comes between changes of the directory, whose sync fails.
        group.begin_operation(3);
        case.write(Stability::FileSync).await.expect("written");
        group.begin_operation(5);
        case.new_file("a").await;
        group.begin_operation(7);
        case.remove("a").await;
        case.plan_failure(FileKind::Directory);
        assert_eq!(commit(&group).await, Err(NotDurable { operation: 5, error: Error::Io }));
        case.settle();
        // The other order.
        group.begin_operation(1);
        case.remove("f").await;
        case.plan_failure(FileKind::Directory);
        assert_eq!(commit(&group).await, Err(NotDurable { operation: 1, error: Error::Io }));
    });
}

#[test]
fn a_change_before_a_sync_that_failed_meanwhile_is_not_durable() {
    run(async {
        let (case, group) = deferring().await;
        group.begin_operation(2);
        case.write(Stability::FileSync).await.expect("written");
        // Another request syncs the file and fails.
        let object = case.volume.object(&case.file).expect("object");
        case.plan_failure(FileKind::Regular);
        let volume = Arc::clone(&case.volume);
        let other = tokio::task::spawn_blocking(move || volume.sync_now(&object));
        assert_eq!(other.await.expect("thread"), Err(Error::Io));
        group.begin_operation(4);
        case.write(Stability::FileSync).await.expect("written");
        assert_eq!(commit(&group).await, Err(NotDurable { operation: 2, error: Error::Io }));
    });
}
