//! A disk that a test can stop: ext4 on a loop device, on a file that this process serves over FUSE from memory. Reads wait while the
//! disk is stopped, or fail at bad sectors. No test reads a clock: a waiting read shows that the server waits for the disk, and
//! replies to others show that it continues.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::server::TestDir;

/// Longest wait for a read; far above the usual time.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of a disk.
const DISK_BYTES: usize = 48 << 20;
/// Longest request: a write of 1 MiB, and its head.
const REQUEST_BYTES: usize = (1 << 20) + 4096;

// linux/fuse.h
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const IN_HEADER: usize = 40;
/// FOPEN_DIRECT_IO: no cache in between.
const DIRECT: u32 = 1;
const REGULAR: u32 = 0o100_600;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

/// State shared by the test and the thread that serves the disk.
#[derive(Default)]
struct State {
    image: Vec<u8>,
    is_held: bool,
    /// Waiting reads: number and range of each request.
    held: Vec<(u64, Range<usize>)>,
    bad: Option<Range<usize>>,
}

struct Shared {
    state: Mutex<State>,
    came: Condvar,
    device: File,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    fn reply(&self, unique: u64, error: i32, body: &[u8]) {
        let mut reply = Vec::with_capacity(16 + body.len());
        reply.extend(((16 + body.len()) as u32).to_le_bytes());
        reply.extend((-error).to_le_bytes());
        reply.extend(unique.to_le_bytes());
        reply.extend(body);
        // The kernel may have aborted the request.
        let _ = (&self.device).write(&reply);
    }

    fn answer_read(&self, state: &State, unique: u64, range: Range<usize>) {
        let is_bad = state.bad.as_ref().is_some_and(|bad| bad.start < range.end && range.start < bad.end);
        match is_bad {
            true => self.reply(unique, EIO, &[]),
            false => self.reply(unique, 0, &state.image[range]),
        }
    }

    fn serve(&self) {
        let mut request = vec![0; REQUEST_BYTES];
        // Fails when the file system is unmounted.
        while let Ok(length) = (&self.device).read(&mut request) {
            self.answer(&request[..length]);
        }
    }

    fn answer(&self, request: &[u8]) {
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        let (unique, body) = (long(8), IN_HEADER);
        let range = || {
            let start = (long(body + 8) as usize).min(DISK_BYTES);
            start..(start + word(body + 16) as usize).min(DISK_BYTES)
        };
        match word(4) {
            INIT => self.reply(unique, 0, &init_reply()),
            GETATTR | SETATTR => self.reply(unique, 0, &attributes()),
            OPEN => {
                let mut open = [0; 16];
                open[8..12].copy_from_slice(&DIRECT.to_le_bytes());
                self.reply(unique, 0, &open);
            }
            READ => {
                let mut state = self.lock();
                if state.is_held {
                    state.held.push((unique, range()));
                    self.came.notify_all();
                } else {
                    self.answer_read(&state, unique, range());
                }
            }
            WRITE => {
                let (range, data) = (range(), &request[body + 40..]);
                let length = range.len();
                self.lock().image[range].copy_from_slice(&data[..length]);
                self.reply(unique, 0, &(length as u64).to_le_bytes());
            }
            FSYNC | FLUSH | RELEASE => self.reply(unique, 0, &[]),
            FORGET | BATCH_FORGET | INTERRUPT | DESTROY => {}
            _ => self.reply(unique, ENOSYS, &[]),
        }
    }
}

/// `struct fuse_init_out`.
fn init_reply() -> [u8; 64] {
    let mut reply = [0; 64];
    reply[0..4].copy_from_slice(&7_u32.to_le_bytes());
    reply[4..8].copy_from_slice(&31_u32.to_le_bytes());
    // Background requests, and the longest write.
    reply[16..18].copy_from_slice(&64_u16.to_le_bytes());
    reply[18..20].copy_from_slice(&48_u16.to_le_bytes());
    reply[20..24].copy_from_slice(&(128_u32 << 10).to_le_bytes());
    reply
}

/// `struct fuse_attr_out`.
fn attributes() -> [u8; 104] {
    let mut reply = [0; 104];
    reply[0..8].copy_from_slice(&3600_u64.to_le_bytes());
    let attributes = &mut reply[16..];
    attributes[0..8].copy_from_slice(&1_u64.to_le_bytes());
    attributes[8..16].copy_from_slice(&(DISK_BYTES as u64).to_le_bytes());
    attributes[16..24].copy_from_slice(&(DISK_BYTES as u64 / 512).to_le_bytes());
    attributes[60..64].copy_from_slice(&REGULAR.to_le_bytes());
    attributes[64..68].copy_from_slice(&1_u32.to_le_bytes());
    attributes[80..84].copy_from_slice(&4096_u32.to_le_bytes());
    reply
}

/// A mounted disk; unmounted when dropped.
pub struct Disk {
    shared: Arc<Shared>,
    file: PathBuf,
    top: PathBuf,
    device: String,
}

fn run(program: &str, arguments: &[&Path]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Disk {
    /// Creates a disk, lets `fill` create files on it, and remounts it, so that nothing is cached. `None`, and the reason on standard
    /// output, if that is impossible here.
    pub fn new(dir: &TestDir, fill: impl FnOnce(&Path)) -> Option<Self> {
        let disk = Self::try_new(dir, fill);
        if disk.is_none() {
            println!("skipped: needs root, FUSE, loop devices and mkfs.ext4");
        }
        disk
    }

    fn try_new(dir: &TestDir, fill: impl FnOnce(&Path)) -> Option<Self> {
        let (image, file, top) = (dir.path("image"), dir.path("disk"), dir.path("top"));
        File::create(&image).ok()?.set_len(DISK_BYTES as u64).ok()?;
        std::fs::create_dir(&top).ok()?;
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), &image])?;
        run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &top])?;
        fill(&top);
        run("umount", &[&top])?;

        let shared = serve(&file, std::fs::read(&image).ok()?)?;
        let mut disk = Self { shared, file, top, device: String::new() };
        disk.device = run("losetup", &["--find".as_ref(), "--show".as_ref(), &disk.file])?;
        // Without the kernel's initialization thread, whose reads would disturb the test.
        let quiet = "-onoinit_itable,no_prefetch_block_bitmaps";
        run("mount", &[quiet.as_ref(), disk.device.as_ref(), &disk.top])?;
        Some(disk)
    }

    /// Returns the mount point.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Makes reads wait until the returned value is dropped.
    #[must_use = "reads are answered when it is dropped"]
    pub fn hold(&self) -> Held<'_> {
        self.shared.lock().is_held = true;
        Held(self)
    }

    /// Waits until a read waits.
    pub fn await_read(&self) {
        let state = self.shared.lock();
        let none_waits = |state: &mut State| state.held.is_empty();
        let (_state, waited) = self
            .shared
            .came
            .wait_timeout_while(state, TIME_LIMIT, none_waits)
            .expect("no thread panics with it");
        assert!(!waited.timed_out(), "no read reached the disk");
    }

    /// Returns whether a read waits.
    pub fn has_held(&self) -> bool {
        !self.shared.lock().held.is_empty()
    }

    /// Answers waiting and later reads.
    fn release(&self) {
        let mut state = self.shared.lock();
        state.is_held = false;
        for (unique, range) in std::mem::take(&mut state.held) {
            self.shared.answer_read(&state, unique, range);
        }
    }

    /// Makes the sectors with `text` unreadable.
    pub fn spoil(&self, text: &[u8]) {
        let mut state = self.shared.lock();
        let at = state.image.windows(text.len()).position(|window| window == text).expect("on the disk");
        let start = at - at % 4096;
        state.bad = Some(start..start + 4096);
    }
}

/// Reads wait until it is dropped: a failing test must not leave unkillable processes.
pub struct Held<'a>(&'a Disk);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.release();
        run("umount", &[&self.top]);
        if !self.device.is_empty() {
            run("losetup", &["--detach".as_ref(), self.device.as_ref()]);
        }
        run("umount", &[&self.file]);
    }
}

/// Mounts a FUSE file system that consists of one file with these bytes on `file`.
fn serve(file: &Path, image: Vec<u8>) -> Option<Arc<Shared>> {
    File::create(file).ok()?;
    let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
    let options = format!("fd={},rootmode={REGULAR:o},user_id=0,group_id=0", device.as_raw_fd());
    let shared = Arc::new(Shared {
        state: Mutex::new(State { image, ..State::default() }),
        came: Condvar::new(),
        device,
    });
    let options = std::ffi::CString::new(options).ok()?;
    let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
    rustix::mount::mount("enfys-test", file, "fuse", flags, options.as_c_str()).ok()?;
    let serving = Arc::clone(&shared);
    std::thread::spawn(move || serving.serve());
    Some(shared)
}
