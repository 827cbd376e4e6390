//! Prints nanoseconds of CPU per operation of a `LocalFs`, and of the bare system calls.
//!
//! `cargo run --release -p enfys-localfs --example micro [DIRECTORY]`

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use localfs::{Config, Durability, LocalFs};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Op, ReadRequest, Removal, SetAttributes,
    Stability, Timestamp,
};

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("runtime");
}

/// Takes the answer, which is mostly ready, without the cost of a runtime.
trait Answer<T> {
    fn answer(self) -> vfs::Result<T>;
}

impl<T> Answer<T> for Op<'_, T> {
    fn answer(self) -> vfs::Result<T> {
        match self {
            Self::Ready(answer) => answer.expect("an answer is taken once"),
            pending => RUNTIME.with(|runtime| runtime.block_on(pending)),
        }
    }
}

const ROUNDS: u32 = 200_000;

/// Returns the CPU time of this thread, on which other work has less effect than on the clock.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Offsets of pages in a file of 64 MiB, in random order.
#[derive(Default)]
struct Places(u64);

impl Places {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % (16 * 1024) * 4096
    }
}

fn measure(name: &str, rounds: u32, mut operation: impl FnMut()) {
    for _ in 0..rounds / 10 {
        operation();
    }
    let mut best = u64::MAX;
    for _ in 0..5 {
        let start = cpu_ns();
        for _ in 0..rounds / 5 {
            operation();
        }
        best = best.min((cpu_ns() - start) / u64::from(rounds / 5));
    }
    println!("{name:32} {best:6} ns");
}

fn main() {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join(format!("localfs-micro-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory to work in");
    let config = Config { durability: Durability::Async, ..Config::new(&directory) };
    let config = Config { state_directory: Some(directory.with_extension("state")), ..config };
    let volume = LocalFs::open(&config).expect("volume");
    println!("acts as callers: {}, index: {}", volume.acts_as_callers(), volume.uses_index());
    let uid = if volume.acts_as_callers() { 1000 } else { rustix::process::geteuid().as_raw() };
    if volume.acts_as_callers() {
        rustix::fs::chown(&directory, Some(rustix::fs::Uid::from_raw(uid)), None).expect("chown");
    }
    bare(&directory);
    through(&volume, uid);
    localfs::become_server();
    drop(volume);
    std::fs::remove_dir_all(&directory).expect("remove");
    let _ = std::fs::remove_dir_all(directory.with_extension("state"));
}

fn bare(directory: &std::path::Path) {
    let top = std::fs::File::open(directory).expect("open");
    let flags = OFlags::RDWR | OFlags::CREATE;
    let file = rustix::fs::openat(&top, c"bare", flags, Mode::from_raw_mode(0o644)).expect("create");
    let mut page = vec![0; 4096];
    rustix::io::pwrite(&file, &page, 0).expect("write");
    let wanted = StatxFlags::BASIC_STATS;
    measure("bare statx", ROUNDS, || {
        rustix::fs::statx(file.as_fd(), c"", AtFlags::EMPTY_PATH, wanted).expect("statx");
    });
    measure("bare statx by name", ROUNDS, || {
        rustix::fs::statx(&top, c"bare", AtFlags::SYMLINK_NOFOLLOW, wanted).expect("statx");
    });
    measure("bare pread 4 KiB", ROUNDS, || {
        rustix::io::pread(&file, &mut page, 0).expect("read");
    });
    measure("bare pwrite 4 KiB", ROUNDS, || {
        rustix::io::pwrite(&file, &page, 0).expect("write");
    });
    let mut place = Places::default();
    measure("bare pwrite and statx, 64 MiB", ROUNDS, || {
        rustix::io::pwrite(&file, &page, place.next()).expect("write");
        rustix::fs::statx(file.as_fd(), c"", AtFlags::EMPTY_PATH, wanted).expect("statx");
    });
    measure("bare create, close and remove", ROUNDS / 10, || {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        drop(rustix::fs::openat(&top, c"new", flags, Mode::from_raw_mode(0o644)).expect("create"));
        rustix::fs::unlinkat(&top, c"new", AtFlags::empty()).expect("remove");
    });
}

fn through(volume: &LocalFs, uid: u32) {
    let as_user = |uid: u32, groups: &[u32]| {
        Context::new(Arc::new(Credentials { uid, gid: uid, groups: Arc::from(groups) }), Timestamp::default())
    };
    let me = as_user(uid, &[uid]);
    let root = volume.root();
    let guarded = Create::File(CreateMode::Unchecked);
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let file = volume.create(&me, &root, b"file", &guarded, &set).answer().expect("create").handle;
    let page = Bytes::from(vec![7; 4096]);
    let write = |context: &Context| {
        volume
            .write(context, &file, 0, &page, Stability::Unstable, Authority::Caller)
            .answer()
            .expect("write");
    };
    write(&me);
    measure("GETATTR", ROUNDS, || {
        volume.getattr(&me, &file).answer().expect("getattr");
    });
    measure("LOOKUP", ROUNDS, || {
        volume.lookup(&me, &root, b"file").answer().expect("lookup");
    });
    let mut into = BytesMut::with_capacity(8192);
    let request = ReadRequest { offset: 0, count: 4096, may_splice: false, authority: Authority::Caller };
    measure("READ 4 KiB", ROUNDS, || {
        into.clear();
        volume.read(&me, &file, request, &mut into).answer().expect("read");
    });
    measure("WRITE 4 KiB", ROUNDS, || write(&me));
    let mut place = Places::default();
    measure("WRITE 4 KiB, 64 MiB", ROUNDS, || {
        let written = volume.write(&me, &file, place.next(), &page, Stability::Unstable, Authority::Caller);
        written.answer().expect("write");
    });
    measure("CREATE and REMOVE", ROUNDS / 10, || {
        volume.create(&me, &root, b"new", &Create::File(CreateMode::Guarded), &set).answer().expect("create");
        volume.remove(&me, &root, b"new", Removal::File).answer().expect("remove");
    });
    if volume.acts_as_callers() {
        let groups: Vec<u32> = (2000..2016).collect();
        let (one, other) = (as_user(uid, &groups), as_user(uid, &groups[1..]));
        measure("LOOKUP by two users in turn", ROUNDS / 10, || {
            volume.lookup(&one, &root, b"file").answer().expect("lookup");
            volume.lookup(&other, &root, b"file").answer().expect("lookup");
        });
    }
    volume.remove(&me, &root, b"file", Removal::File).answer().expect("remove");
}
