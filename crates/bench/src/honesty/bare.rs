//! A loop of pread(2) without a harness: what the reads themselves cost.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fastrand::Rng;

use super::ours::{ReadCost, cached_bytes, prepare_cached};
use super::{CPU_THREADS, SMALL_BYTES, Settings};
use crate::process::CpuTimes;

/// Measures the CPU time of this process while many threads read cached data, at random offsets of the same file.
pub(super) fn cpu(settings: &Settings, place: &Path, round: u32) -> Result<ReadCost, String> {
    let file = prepare_cached(settings, place)?;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let blocks = cached_bytes(settings) / SMALL_BYTES;
    let is_over = AtomicBool::new(false);
    let before = CpuTimes::of_this_process();
    let reads = thread::scope(|scope| {
        let start = |number: u32| {
            let (file, is_over) = (&file, &is_over);
            let read = move || read_all(file, blocks, u64::from(number) << 32 | u64::from(round), is_over);
            thread::Builder::new().spawn_scoped(scope, read)
        };
        let threads: Vec<_> = (0..CPU_THREADS).map(start).collect();
        thread::sleep(settings.duration);
        is_over.store(true, Ordering::Relaxed);
        let mut reads = 0;
        for thread in threads {
            let thread = thread.map_err(|error| failed(&error))?;
            let done = thread.join().map_err(|_| failed(&"a thread ended early"))?;
            reads += done.map_err(|error| failed(&error))?;
        }
        Ok::<u64, String>(reads)
    })?;
    let times = CpuTimes::of_this_process().since(&before);
    if reads == 0 { Err(failed(&"no reads")) } else { Ok(ReadCost { reads, times }) }
}

fn read_all(path: &Path, blocks: u64, seed: u64, is_over: &AtomicBool) -> std::io::Result<u64> {
    let file = File::open(path)?;
    let (mut rng, mut buffer) = (Rng::with_seed(seed), vec![0; SMALL_BYTES as usize]);
    let mut reads = 0;
    while !is_over.load(Ordering::Relaxed) {
        file.read_exact_at(&mut buffer, rng.u64(0..blocks) * SMALL_BYTES)?;
        reads += 1;
    }
    Ok(reads)
}
