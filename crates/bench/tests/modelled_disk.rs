//! The modelled disk of 1994: what syncs, and how often. No test asserts time that has passed.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bench::plan::NfsVersion;
use bench::targets::nfs::Server;
use bench::targets::{Files as _, How, OpenFile as _};
use bytes::Bytes;
use futures_util::future::{join_all, select};
use net::modelled_disk::{Counts, Disk, DiskServer, ModelledDisk, Syncs, Wait};
use vfs::around::Wrapped;
use vfs::journal::{Journaled, LOG_BYTES_MIN, Log};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Handle, MemFs, MemOptions, SetAttributes,
    Stability, Timestamp,
};

const BLOCK: usize = 8192;
const MEGABYTES: u64 = 10;

/// Waits for all others that can run.
const INSTANT: Wait = |_| {
    let mut has_waited = false;
    Box::pin(poll_fn(move |context| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }))
};

/// An empty file on a disk whose time passes at once.
struct Place<B = Wrapped<MemFs, ModelledDisk>> {
    files: B,
    context: Context,
    file: Handle,
    counts: Arc<Counts>,
}

impl Place {
    fn new(syncs: Syncs) -> Self {
        let disk = ModelledDisk::new(Disk::One, syncs, INSTANT);
        let counts = disk.counts();
        let files = Wrapped::of(MemFs::new(&MemOptions::default()), disk);
        let now = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
        let context = Context::new(Arc::new(Credentials::root()), now);
        let (root, set) = (files.root(), SetAttributes::default());
        let created =
            files.create(&context, &root, b"file", &Create::File(CreateMode::Unchecked), &set).now();
        let file = created.expect("a file").handle;
        Self { files, context, file, counts }
    }

    /// Puts a journal before the disk.
    fn with_journal(self) -> (Place<Journaled<Wrapped<MemFs, ModelledDisk>>>, Arc<Log>) {
        let Self { files, context, file, counts } = self;
        let log = Log::create(files.identity(), ([1; 16], [1; 16]), LOG_BYTES_MIN, Arc::default());
        let log = Arc::new(log);
        let files = Journaled::new(files, Arc::clone(&log));
        (Place { files, context, file, counts }, log)
    }
}

impl<B: Backend> Place<B> {
    async fn write(&self, block: u64, stability: Stability) {
        let (offset, data) = (block * BLOCK as u64, Bytes::from(vec![1; BLOCK]));
        let written =
            self.files.write(&self.context, &self.file, offset, &data, stability, Authority::Opened).await;
        assert_eq!(written.expect("room").count, BLOCK as u32);
    }

    /// Writes 10 MB by seven writers, and commits them. Returns bytes a second of the disk's own time.
    async fn rate(&self, stability: Stability) -> f64 {
        let blocks = MEGABYTES * 1_000_000 / BLOCK as u64;
        let write = |writer: u64| async move {
            for block in (writer..blocks).step_by(7) {
                self.write(block, stability).await;
            }
        };
        join_all((0..7).map(write)).await;
        self.files.commit(&self.context, &self.file, 0, 0).await.expect("a commit");
        assert_eq!(self.counts.bytes(), blocks * BLOCK as u64);
        self.counts.bytes() as f64 / self.counts.busy().as_secs_f64()
    }
}

#[tokio::test]
async fn stable_writes_have_a_sync_each() {
    let place = Place::new(Syncs::Each);
    join_all((0..8).map(|block| place.write(block, Stability::FileSync))).await;
    assert_eq!((place.counts.syncs(), place.counts.bytes()), (8, 8 * BLOCK as u64));
    place.files.commit(&place.context, &place.file, 0, 0).await.expect("nothing to do");
    assert_eq!(place.counts.syncs(), 8);
}

#[tokio::test]
async fn gathered_writes_share_the_sync_after_the_running_one() {
    let place = Place::new(Syncs::Gathered);
    join_all((0..8).map(|block| place.write(block, Stability::FileSync))).await;
    assert_eq!((place.counts.syncs(), place.counts.bytes()), (2, 8 * BLOCK as u64));
}

#[tokio::test]
async fn unstable_writes_share_the_sync_of_their_commit() {
    let place = Place::new(Syncs::Each);
    join_all((0..8).map(|block| place.write(block, Stability::Unstable))).await;
    assert_eq!(place.counts.syncs(), 0);
    for _ in 0..2 {
        place.files.commit(&place.context, &place.file, 0, 0).await.expect("a commit");
        assert_eq!((place.counts.syncs(), place.counts.bytes()), (1, 8 * BLOCK as u64));
    }
}

#[tokio::test]
async fn writes_in_a_journal_share_the_sync_of_the_checkpoint() {
    for syncs in [Syncs::Each, Syncs::Gathered] {
        let (place, log) = Place::new(syncs).with_journal();
        let writes = async {
            for _ in 0..8 {
                join_all((0..8).map(|block| place.write(block, Stability::FileSync))).await;
            }
            assert_eq!(place.counts.syncs(), 0, "{syncs:?}: answered before the disk has them");
            for _ in 0..2 {
                place.files.checkpoint().await.expect("neither fails");
                assert_eq!((place.counts.syncs(), place.counts.bytes()), (1, 64 * BLOCK as u64), "{syncs:?}");
            }
        };
        let device = async {
            while poll_fn(|context| log.poll_write(context)).await.is_some() {
                log.written(true);
            }
        };
        select(pin!(writes), pin!(device)).await;
    }
}

/// By the disk's own time, as the model counts it.
#[tokio::test]
async fn unstable_writes_are_seven_times_as_fast() {
    let plain = Place::new(Syncs::Each).rate(Stability::FileSync).await;
    let gathered = Place::new(Syncs::Gathered).rate(Stability::FileSync).await;
    let unstable = Place::new(Syncs::Each).rate(Stability::Unstable).await;
    assert!((300e3..340e3).contains(&plain), "the paper measured 320 KB/s: {plain}");
    assert!(unstable >= 7.0 * plain, "{unstable} against {plain}");
    assert!(gathered > 3.0 * plain && gathered < unstable, "{gathered}");
}

/// Writes through the client, and returns syncs and WRITEs.
async fn written(server: &DiskServer, version: NfsVersion, blocks: usize) -> (u64, u64) {
    let options = "caches=on&wsize=8192&v3_calls=7";
    let files =
        Server::resolve(&server.url(), options, version).expect("a URL").connect().await.expect("it runs");
    let before = server.counts().syncs();
    let file = files.open(&format!("{version:?}"), How::CREATE).await.expect("a file");
    for block in 0..blocks {
        let offset = (block * BLOCK) as u64;
        file.write(offset, Bytes::from(vec![1; BLOCK])).await.expect("a write");
    }
    file.sync().await.expect("a sync");
    file.close().await.expect("a close");
    let writes = files.traffic().get("WRITE").map_or(0, |counters| counters.requests);
    files.leave().await;
    (server.counts().syncs() - before, writes)
}

#[tokio::test]
async fn writes_of_version_2_are_answered_from_the_journal() {
    for syncs in [Syncs::Each, Syncs::Gathered] {
        let server = DiskServer::start(([127, 0, 0, 1], 0).into(), Disk::One, syncs, true).expect("a server");
        let local = tokio::task::LocalSet::new();
        let (disk_syncs, writes) = local.run_until(written(&server, NfsVersion::V2, 32)).await;
        assert_eq!(writes, 32, "{syncs:?}");
        // A quarter of the journal: only the interval of checkpoints can have ended.
        assert!(disk_syncs <= 2, "{syncs:?}: {disk_syncs}");
    }
}

#[tokio::test]
async fn each_write_of_version_2_is_a_sync_and_version_3_commits_once() {
    let server =
        DiskServer::start(([127, 0, 0, 1], 0).into(), Disk::One, Syncs::Each, false).expect("a server");
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            assert_eq!(written(&server, NfsVersion::V2, 32).await, (32, 32));
            assert_eq!(written(&server, NfsVersion::V3, 32).await, (1, 32));
        })
        .await;
}
