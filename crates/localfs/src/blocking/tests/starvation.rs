//! Any number of one client's requests must not block another client.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use vfs::{
    Authority, Context, Create, CreateMode, Credentials, Handle, Removal, SetAttributes, Stability, Timestamp,
};

use super::super::*;
use crate::config::Config;

/// Time after which a test counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes that are reserved by threads for long work.
const LONG_BYTES: u64 = 17 << 20;
/// The address of the client that sends many requests, and of the other client.
const ATTACKER: u8 = 1;
const VICTIM: u8 = 2;

type Call = Pin<Box<dyn Future<Output = Result<()>>>>;

struct Case {
    volume: Arc<Volume>,
    _directory: tempfile::TempDir,
}

/// Occupies threads until it is opened.
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn closed() -> Self {
        Self(Arc::default())
    }

    /// Returns a job that waits until the gate is open.
    fn pass(&self) -> impl FnOnce() + Send + use<> {
        let gate = Arc::clone(&self.0);
        move || gate.1.wait_while(&mut gate.0.lock(), |is_open| !*is_open)
    }

    fn open(self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

fn peer(address: u8, connection: u64) -> Peer {
    Peer { address: Some(IpAddr::from([192, 0, 2, address])), connection }
}

fn context(address: u8, connection: u64) -> Context {
    let uid = rustix::process::geteuid().as_raw();
    let credentials = Credentials { uid, gid: uid, groups: Arc::from([]) };
    Context { peer: peer(address, connection), ..Context::new(Arc::new(credentials), Timestamp::default()) }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, test).await.expect("no hang") });
}

/// Polls a call once, which has to wait.
fn begin(mut call: Call) -> Call {
    let mut task = TaskContext::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut task).is_pending(), "it must wait");
    call
}

impl Case {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().join("export");
        std::fs::create_dir(&top).expect("directory");
        let state_directory = Some(directory.path().join("state"));
        let volume = crate::probe::open(&Config { state_directory, ..Config::new(top) }).expect("volume");
        Self { volume, _directory: directory }
    }

    fn create(&self, context: Context, name: &str) -> impl Future<Output = Result<Handle>> + use<> {
        let (volume, name) = (Arc::clone(&self.volume), name.to_owned());
        async move {
            let (root, what) = (volume.root.handle, Create::File(CreateMode::Unchecked));
            let created =
                volume.create(&context, &root, name.as_bytes(), &what, &SetAttributes::default()).await;
            created.map(|created| created.handle)
        }
    }

    async fn file(&self, name: &str) -> Arc<Object> {
        let handle = self.create(context(VICTIM, 0), name).await.expect("created");
        self.volume.object(&handle).expect("object")
    }

    fn write(&self, context: Context, file: Handle, data: &'static [u8]) -> Call {
        self.write_as(Stability::FileSync, context, file, data)
    }

    fn write_as(&self, stability: Stability, context: Context, file: Handle, data: &'static [u8]) -> Call {
        let (volume, data) = (Arc::clone(&self.volume), Bytes::from_static(data));
        Box::pin(async move {
            volume.write(&context, &file, 0, &data, stability, Authority::Caller).await.map(drop)
        })
    }

    fn allocate(&self, context: Context, file: Handle) -> Call {
        let volume = Arc::clone(&self.volume);
        Box::pin(async move {
            volume.allocate(&context, &file, (0, LONG_BYTES), Authority::Caller).await.map(drop)
        })
    }

    fn link(&self, context: Context, file: Handle, name: &'static str) -> Call {
        let volume = Arc::clone(&self.volume);
        Box::pin(
            async move { volume.link(&context, &file, &volume.root.handle, name.as_bytes()).await.map(drop) },
        )
    }

    /// Executes operations that need threads of each lane, for the victim.
    async fn use_all_lanes(&self, name: &str) {
        let victim = context(VICTIM, 1);
        let file = self.create(victim.clone(), name).await.expect("the directory is synced");
        self.write(victim.clone(), file, b"data").await.expect("the file is synced");
        self.allocate(victim.clone(), file).await.expect("space is reserved");
        // An object that is not open must be opened by a thread that may block.
        self.volume.objects.remove(&file);
        let found = self.volume.getattr(victim.peer, &file).await;
        assert_eq!(found.map(|found| found.size), Ok(LONG_BYTES));
        let removed = self.volume.remove(&victim, &self.volume.root.handle, name.as_bytes(), Removal::File);
        removed.await.expect("removed");
    }

    /// Returns more requests than there are threads in any lane.
    fn many(&self) -> u64 {
        let lanes = [Lane::Work, Lane::Long, Lane::Sync, Lane::Names];
        lanes.iter().map(|lane| 2 * self.volume.pool.max_threads(*lane) as u64).max().expect("some")
    }
}

#[test]
fn requests_that_wait_for_a_lock_do_not_block_other_clients() {
    run(async {
        let case = Case::new();
        let attacked = case.file("attacked").await;
        let lock = attacked.lock.try_lock(true).expect("free");
        let calls: Vec<_> = (0..case.many())
            .flat_map(|number| {
                let context = context(ATTACKER, number % 10);
                let allocation = case.allocate(context.clone(), attacked.handle);
                [begin(allocation), begin(case.write(context, attacked.handle, b"attack"))]
            })
            .collect();
        while attacked.lock.waiting() < calls.len() {
            tokio::task::yield_now().await;
        }
        case.use_all_lanes("victim").await;
        assert_eq!(attacked.lock.waiting(), calls.len(), "no request has the lock");
        drop(lock);
        for call in calls {
            assert_eq!(call.await, Ok(()));
        }
        assert_eq!(attacked.lock.waiting(), 0);
    });
}

#[test]
fn requests_that_occupy_threads_do_not_block_other_clients() {
    run(async {
        let case = Case::new();
        for lane in [Lane::Work, Lane::Long, Lane::Sync] {
            let gate = Gate::closed();
            for number in 0..case.many() {
                let pass = gate.pass();
                case.volume.pool.submit(lane, peer(ATTACKER, number % 10), pass);
            }
            case.use_all_lanes("victim").await;
            gate.open();
        }
    });
}

#[test]
fn syncs_do_not_occupy_threads_for_other_work() {
    run(async {
        let case = Case::new();
        let victim = context(VICTIM, 1);
        let gate = Gate::closed();
        for number in 0..case.many() {
            // Of different clients, so that no address's share is the limit.
            let address = IpAddr::from([198, 51, (number >> 8) as u8, number as u8]);
            let of_many = Peer { address: Some(address), connection: number };
            case.volume.pool.submit(Lane::Sync, of_many, gate.pass());
        }
        let file = case.create(victim.clone(), "new").await.expect("names have threads of their own");
        case.volume.objects.remove(&file);
        case.volume.getattr(victim.peer, &file).await.expect("and so have reads");
        gate.open();
    });
}

#[test]
fn a_request_that_waits_for_one_lock_holds_no_other() {
    run(async {
        let case = Case::new();
        let attacked = case.file("attacked").await;
        let lock = attacked.lock.try_lock(true).expect("free");
        let link = begin(case.link(context(ATTACKER, 1), attacked.handle, "link"));
        case.use_all_lanes("victim").await;
        assert_eq!(attacked.lock.waiting(), 1);
        drop(lock);
        assert_eq!(link.await, Ok(()));
    });
}

#[test]
fn a_call_cancelled_while_it_waits_for_a_lock_has_no_effect() {
    run(async {
        let case = Case::new();
        let file = case.file("f").await;
        let lock = file.lock.try_lock(true).expect("free");
        let given_up = begin(case.write(context(ATTACKER, 1), file.handle, b"given up"));
        let next = begin(case.write(context(VICTIM, 1), file.handle, b"next"));
        drop(given_up);
        drop(lock);
        assert_eq!(next.await, Ok(()));
        let found = case.volume.getattr(peer(VICTIM, 1), &file.handle).await;
        assert_eq!(found.map(|found| found.size), Ok(4));
    });
}

#[test]
fn a_large_range_is_freed_in_steps_that_release_the_lock() {
    const RANGE: u64 = 1 << 40;
    run(async {
        let case = Case::new();
        let file = case.file("f").await;
        let (attacker, victim) = (context(ATTACKER, 1), context(VICTIM, 1));
        let size = SetAttributes { size: Some(RANGE), ..SetAttributes::default() };
        let set = case.volume.setattr(&victim, &file.handle, &size, None, Authority::Caller).await;
        assert!(set.is_ok(), "a hole");
        let (volume, handle) = (Arc::clone(&case.volume), file.handle);
        let freeing: Call = Box::pin(async move {
            volume.deallocate(&attacker, &handle, (0, RANGE), Authority::Caller).await.map(drop)
        });
        let lock = file.lock.try_lock(true).expect("free");
        let mut freeing = begin(freeing);
        while file.lock.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        // It waits for the lock alone, not for a sync.
        let mut write = begin(case.write_as(Stability::Unstable, victim, file.handle, b"data"));
        drop(lock);
        // The WRITE waits for one step of more than a thousand, not for all.
        std::future::poll_fn(|task| {
            assert!(freeing.as_mut().poll(task).is_pending(), "the WRITE is executed first");
            write.as_mut().poll(task)
        })
        .await
        .expect("written");
        assert_eq!(freeing.await, Ok(()));
    });
}

#[test]
fn renames_in_both_directions_do_not_deadlock() {
    const THREADS: u64 = 4;
    const ROUNDS: usize = 100;
    let case = Case::new();
    let (volume, root) = (&case.volume, case.volume.root.handle);
    let context = context(VICTIM, 0);
    let directories = ["a", "b"].map(|name| {
        let mut handle = None;
        run(async {
            let what = Create::Directory;
            let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
            let made = volume.create(&context, &root, name.as_bytes(), &what, &set).await;
            handle = Some(made.expect("directory").handle);
        });
        handle.expect("made")
    });
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let context = &context;
            scope.spawn(move || {
                run(async {
                    let name = format!("f{number}");
                    let [mut from, mut to] = directories;
                    if number % 2 == 0 {
                        std::mem::swap(&mut from, &mut to);
                    }
                    let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
                    volume.create(context, &from, name.as_bytes(), &what, &set).await.expect("file");
                    for _ in 0..ROUNDS {
                        // On the pool, where locks are held during waits for the disk.
                        volume.stall_detector.took(STALL_NS);
                        let name = name.as_bytes();
                        volume.rename(context, (&from, name), (&to, name)).await.expect("renamed");
                        std::mem::swap(&mut from, &mut to);
                    }
                });
            });
        }
    });
    for handle in directories {
        assert_eq!(volume.object(&handle).expect("there").lock.waiting(), 0);
    }
}

#[test]
fn a_resumed_request_whose_object_is_stale_resumes_the_next() {
    run(async {
        let case = Case::new();
        let file = case.file("f").await;
        let lock = file.lock.try_lock(true).expect("free");
        let calls = [b"first".as_slice(), b"next"]
            .map(|data| begin(case.write(context(VICTIM, 1), file.handle, data)));
        std::fs::remove_file(case._directory.path().join("export/f")).expect("removed by a local process");
        // Found again by its handle it is stale, before any lock is taken.
        case.volume.objects.remove(&file.handle);
        drop(lock);
        for call in calls {
            assert_eq!(call.await, Err(Error::Stale));
        }
    });
}
