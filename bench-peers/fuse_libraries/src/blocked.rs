//! A program that is blocked in a read.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::consts::SIGCHLD;

use crate::Outcome;

/// Reads the file in each of `threads` threads, and prints the number of an error. SIGCHLD has a handler with `SA_RESTART`.
pub fn read(path: &Path, threads: usize) -> Outcome<()> {
    signal_hook::flag::register(SIGCHLD, Arc::new(AtomicBool::new(false)))?;
    let file = File::open(path)?;
    let read = || {
        // read(2) would hold the lock of the file's position, so that only one thread's request would be sent.
        if let Err(error) = rustix::io::pread(&file, &mut [0; 16], 0) {
            println!("{}", error.raw_os_error());
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(read);
        }
        // The first thread is one of them: it is the one to which the kernel gives a signal of the process.
        read();
    });
    Ok(())
}
