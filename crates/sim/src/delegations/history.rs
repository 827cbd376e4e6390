//! The reads and writes of programs, checked for staleness.

use vfs::Timestamp;

/// A write of a unique value.
#[derive(Debug, Clone, Copy)]
struct Write {
    value: u64,
    began: u64,
    /// When the program learned that it succeeded.
    ended: Option<u64>,
}

/// A reported modification time.
#[derive(Debug, Clone, Copy)]
struct SeenTime {
    time: Timestamp,
    began: u64,
    /// When the program learned it.
    ended: u64,
}

/// Reads and writes of some files, each a register of one number that begins as 0.
#[derive(Debug)]
pub(super) struct History {
    files: Vec<Vec<Write>>,
    /// Reported modification times of each file.
    seen_times: Vec<Vec<SeenTime>>,
    /// A logical clock that advances with each event.
    clock: u64,
    values: u64,
}

impl History {
    pub(super) fn new(files: usize) -> Self {
        let first = Write { value: 0, began: 0, ended: Some(0) };
        Self { files: vec![vec![first]; files], seen_times: vec![Vec::new(); files], clock: 0, values: 0 }
    }

    /// Returns the next logical time.
    pub(super) fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Begins a write; returns its unique value.
    pub(super) fn begin_write(&mut self, file: u64) -> u64 {
        self.values += 1;
        let began = self.now();
        self.files[file as usize].push(Write { value: self.values, began, ended: None });
        self.values
    }

    /// Ends a write.
    pub(super) fn end_write(&mut self, file: u64, value: u64) {
        let now = self.now();
        let write = self.files[file as usize].iter_mut().find(|write| write.value == value);
        write.expect("it began").ended = Some(now);
    }

    /// Notes that a read that began at `began` has returned `value`.
    ///
    /// # Errors
    /// The value had been overwritten before.
    pub(super) fn read(&mut self, file: u64, value: u64, began: u64) -> Result<(), String> {
        let writes = &self.files[file as usize];
        let read = writes.iter().find(|write| write.value == value);
        let read = read.ok_or_else(|| format!("file {file}: {value} was never written"))?;
        let Some(ended) = read.ended else { return Ok(()) };
        let over = |write: &&Write| write.began > ended && write.ended.is_some_and(|ended| ended < began);
        match writes.iter().find(over) {
            None => Ok(()),
            Some(later) => Err(format!("file {file}: {value} was read after {} was written", later.value)),
        }
    }

    /// Notes that a GETATTR that began at `began` has returned the modification time `seen`.
    ///
    /// # Errors
    /// A later time was reported before.
    pub(super) fn stat(&mut self, file: u64, seen: Timestamp, began: u64) -> Result<(), String> {
        let ended = self.now();
        let (seen_times, writes) = (&mut self.seen_times[file as usize], &self.files[file as usize]);
        // A write has the time of its arrival, and may have waited until another time was reported.
        let waits = |seen: &SeenTime| {
            let is_about = |write: &Write| write.ended.is_none_or(|ended| ended > seen.began);
            writes.iter().any(|write| write.began < seen.ended && is_about(write))
        };
        let is_wrong = |other: &&SeenTime| other.ended < began && other.time > seen && !waits(other);
        if let Some(SeenTime { time, .. }) = seen_times.iter().find(is_wrong) {
            return Err(format!("file {file}: modification time {seen:?} was reported after {time:?}"));
        }
        seen_times.push(SeenTime { time: seen, began, ended });
        Ok(())
    }
}
