//! Loads: stat(2), and reads and writes of 1 MiB.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::files::{CONTENT, FILE_SIZE, REQUEST_MAX};
use crate::mounted::{Mounted, cpu_of, cpu_of_all};

/// The time of a measurement.
const WINDOW: Duration = Duration::from_secs(1);
/// CPU that others may use during a measurement, in cores. It is repeated if they use more.
const OTHERS_MAX: f64 = 0.1;
/// Most attempts at a measurement; the last counts in any case.
const ATTEMPTS: usize = 2;
/// Alignment of buffers: pages, so that 1 MiB is 256 pages, the kernel's maximum of a request.
const PAGE: usize = 4096;
const BYTES: usize = REQUEST_MAX as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Stat,
    Read,
    Write,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Calls a second.
    pub rate: f64,
    /// CPU seconds of the FUSE process for a call.
    pub cpu: f64,
    /// CPU that others used meanwhile, in cores.
    pub others: f64,
}

impl Measured {
    /// Whether others disturbed the measurement.
    pub fn is_disturbed(&self) -> bool {
        self.others > OTHERS_MAX
    }
}

/// Runs a load in `threads` threads, each with its own file, until others have not disturbed it.
pub fn measure(mounted: &Mounted, load: Load, threads: usize) -> Outcome<Measured> {
    for _ in 1..ATTEMPTS {
        let measured = measure_once(mounted, load, threads)?;
        if !measured.is_disturbed() {
            return Ok(measured);
        }
    }
    measure_once(mounted, load, threads)
}

fn measure_once(mounted: &Mounted, load: Load, threads: usize) -> Outcome<Measured> {
    let open = |number: usize| File::options().read(true).write(true).open(mounted.path(&number.to_string()));
    let files = (0..threads).map(open).collect::<Result<Vec<File>, _>>()?;
    let is_over = AtomicBool::new(false);
    let before = mounted.counters()?;
    let used = || Outcome::Ok((mounted.cpu()?, cpu_of(std::process::id())?, cpu_of_all()?));
    let (server, own, all) = used()?;
    let start = Instant::now();
    let calls = thread::scope(|scope| {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| run(file, load, &is_over))).collect();
        thread::sleep(WINDOW);
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<rustix::io::Result<u64>>()
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    let (server_end, own_end, all_end) = used()?;
    let (cpu, own, all) = (server_end - server, own_end - own, all_end - all);
    if load == Load::Stat && mounted.counters()?.getattrs < before.getattrs + calls {
        return Err("stat(2) was answered by the kernel's cache".into());
    }
    let calls = calls as f64;
    Ok(Measured { rate: calls / elapsed, cpu: cpu / calls, others: (all - own - cpu) / elapsed })
}

fn run(file: &File, load: Load, is_over: &AtomicBool) -> rustix::io::Result<u64> {
    let mut space = if load == Load::Stat { Vec::new() } else { vec![0; BYTES + PAGE] };
    let start = space.as_ptr().align_offset(PAGE);
    let mut calls = 0;
    while !is_over.load(Ordering::Relaxed) {
        let offset = calls * BYTES as u64 % FILE_SIZE;
        let length = match load {
            Load::Stat => rustix::fs::fstat(file).map(|_| BYTES)?,
            Load::Read => {
                let buffer = &mut space[start..start + BYTES];
                let length = rustix::io::pread(file, &mut *buffer, offset)?;
                assert!(buffer[0] == CONTENT && buffer[BYTES - 1] == CONTENT, "other content");
                length
            }
            Load::Write => rustix::io::pwrite(file, &space[start..start + BYTES], offset)?,
        };
        assert_eq!(length, BYTES, "a call was cut short");
        calls += 1;
    }
    Ok(calls)
}
