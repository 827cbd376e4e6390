//! The thread that writes a journal.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use tracing::error;
use vfs::journal::{Log, LogWrite};

use super::JournalFile;
use crate::files::error_text;

/// Writes a log to its file until it is dropped. Nothing may be appended then.
#[derive(Debug)]
pub struct JournalWriter {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl JournalWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(file: JournalFile, log: Arc<Log>, path: &Path) -> io::Result<Self> {
        let (of_thread, name) = (Arc::clone(&log), path.display().to_string());
        let thread =
            thread::Builder::new().name("journal".into()).spawn(move || run(&file, &of_thread, &name))?;
        Ok(Self { log, thread: Some(thread) })
    }
}

fn run(file: &JournalFile, log: &Log, name: &str) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match log.poll_write(&mut context) {
            Poll::Pending => thread::park(),
            Poll::Ready(None) => return,
            Poll::Ready(Some(write)) => {
                let written = file.write(&write);
                if let Err(error) = &written {
                    error!(
                        "journal {name}: {}: no more changes enter it, and files with changes in it take no others \
                         until the server starts again",
                        error_text(error)
                    );
                }
                log.written(written.is_ok());
            }
        }
    }
}

impl JournalFile {
    /// Writes, and waits until it is on stable storage.
    fn write(&self, write: &LogWrite) -> io::Result<()> {
        for (at, piece) in &write.pieces {
            self.file.write_all_at(piece, *at)?;
        }
        self.file.sync_data()
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.log.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
