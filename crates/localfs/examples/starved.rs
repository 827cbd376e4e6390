//! Prints how long one client's CREATE takes while another client keeps ALLOCATE and DEALLOCATE of 400 MiB in flight:
//! on one file, and on a file for each request.
//!
//! `cargo run --release -p enfys-localfs --example starved [DIRECTORY]`

use std::cell::Cell;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use localfs::{Config, LocalFs};
use tokio::task::LocalSet;
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Handle, Peer, Removal, SetAttributes,
    Timestamp,
};

/// Bytes that each of the attacker's requests reserves or frees.
const ATTACK_BYTES: u64 = 400 << 20;
/// CREATEs of the victim that are timed.
const CREATES: usize = 500;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest time that one round takes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Blocking threads of a core's runtime, as in `enfys serve`.
const BLOCKING_THREADS: usize = 32;

fn main() {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join(format!("localfs-starved-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory to work in");
    let state = directory.with_extension("state");
    let config = Config { state_directory: Some(state.clone()), ..Config::new(&directory) };
    let volume = Rc::new(LocalFs::open(&config).expect("volume"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .expect("runtime");
    for (files, requests) in [(0, 0), (1, 10), (1, 60), (60, 10), (60, 60)] {
        LocalSet::new().block_on(&runtime, measure(Rc::clone(&volume), files, requests));
    }
    runtime.shutdown_timeout(TIMEOUT);
    localfs::become_server();
    drop(volume);
    std::fs::remove_dir_all(&directory).expect("remove");
    let _ = std::fs::remove_dir_all(state);
}

fn context(client: u8, connection: u64) -> Context {
    let uid = rustix::process::geteuid().as_raw();
    let credentials = Credentials { uid, gid: uid, groups: Arc::from([]) };
    let peer = Peer { address: Some(IpAddr::from([192, 0, 2, client])), connection };
    Context { peer, ..Context::new(Arc::new(credentials), Timestamp::default()) }
}

async fn create(volume: &LocalFs, context: &Context, name: &str) -> Handle {
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let what = Create::File(CreateMode::Unchecked);
    let created = volume.create(context, &volume.root(), name.as_bytes(), &what, &set).await;
    created.expect("created").handle
}

/// Times the victim's CREATEs during this many requests of the attacker.
async fn measure(volume: Rc<LocalFs>, files: usize, requests: usize) {
    let (is_over, done) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let mut attack = Vec::new();
    for number in 0..requests {
        let file = create(&volume, &context(1, 0), &format!("attacked-{}", number % files)).await;
        let (volume, is_over, done) = (Rc::clone(&volume), Rc::clone(&is_over), Rc::clone(&done));
        attack.push(tokio::task::spawn_local(async move {
            let context = context(1, 1 + number as u64 % 10);
            while !is_over.get() {
                volume.allocate(&context, &file, 0, ATTACK_BYTES, Authority::Opened).await.expect("space");
                volume.deallocate(&context, &file, 0, ATTACK_BYTES, Authority::Opened).await.expect("freed");
                done.set(done.get() + 2);
            }
        }));
    }
    let victim = context(2, 100);
    let mut took = Vec::new();
    let began = Instant::now();
    while took.len() < CREATES && began.elapsed() < TIMEOUT {
        tokio::time::sleep(PAUSE).await;
        let name = format!("new-{}", took.len());
        let start = Instant::now();
        create(&volume, &victim, &name).await;
        took.push(start.elapsed());
        volume.remove(&victim, &volume.root(), name.as_bytes(), Removal::File).await.expect("removed");
    }
    is_over.set(true);
    let seconds = began.elapsed().as_secs_f64();
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{files:3} files {requests:3} requests: CREATE p50 {:9.3} ms, p99 {:9.3} ms, max {:9.3} ms of {}; {:.0} attacks/s",
        at(0.5),
        at(0.99),
        at(1.0),
        took.len(),
        f64::from(done.get()) / seconds,
    );
    for task in attack {
        task.await.expect("attacker");
    }
}
