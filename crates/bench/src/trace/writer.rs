//! Writes a trace while its operations happen.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::format::{End, Header, Record};

/// A trace that is being written, by any number of threads. What was written before a crash can be read.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    began: Instant,
    files: AtomicU64,
    output: Mutex<Output>,
}

#[derive(Debug)]
struct Output {
    writer: BufWriter<File>,
    records: u64,
    /// The first error; nothing is written after it.
    error: Option<String>,
}

impl TraceWriter {
    /// Creates the file, and writes the header. `source` says where the operations are from.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn create(path: &Path, source: &str) -> Result<Self, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut output = Output { writer: BufWriter::new(file), records: 0, error: None };
        output.line(&Header::new(source));
        let output = Mutex::new(output);
        Ok(Self { path: path.to_owned(), began: Instant::now(), files: AtomicU64::new(0), output })
    }

    /// Returns the microseconds since the start of the trace.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns a number for a file that is opened.
    #[must_use]
    pub fn new_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an operation. An error is reported by [`Self::finish`].
    pub fn add(&self, record: &Record) {
        let mut output = self.output();
        output.line(record);
        output.records += 1;
    }

    /// Writes the last line and closes the file; returns the number of operations. `incomplete` says why the source had more.
    ///
    /// # Errors
    /// If any line could not be written.
    pub fn finish(&self, incomplete: Option<&str>) -> Result<u64, String> {
        let mut output = self.output();
        let records = output.records;
        output.line(&End { end: records, incomplete: incomplete.map(str::to_owned) });
        if let Err(error) = output.writer.flush() {
            output.error.get_or_insert(error.to_string());
        }
        match &output.error {
            Some(error) => Err(format!("{}: the trace is not complete: {error}", self.path.display())),
            None => Ok(records),
        }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    fn line(&mut self, line: &impl serde::Serialize) {
        if self.error.is_some() {
            return;
        }
        let written = serde_json::to_writer(&mut self.writer, line).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| self.writer.write_all(b"\n")) {
            self.error = Some(error.to_string());
        }
    }
}
