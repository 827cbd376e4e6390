//! What programs on clients did, and whether it could have been done one after the other.

use vfs::Timestamp;

/// A write of a value that is written once.
#[derive(Debug, Clone, Copy)]
struct Write {
    value: u64,
    began: u64,
    /// When the program heard that it was done.
    ended: Option<u64>,
}

/// An answer to the question when a file was changed.
#[derive(Debug, Clone, Copy)]
struct Told {
    time: Timestamp,
    began: u64,
    /// When the program heard it.
    ended: u64,
}

/// Reads and writes of some files, each a register of one number that begins as 0.
#[derive(Debug)]
pub(super) struct History {
    files: Vec<Vec<Write>>,
    /// When each file was changed, as programs were told.
    told: Vec<Vec<Told>>,
    /// Counts what happens, so that nothing happens at the same time.
    clock: u64,
    values: u64,
}

impl History {
    pub(super) fn new(files: usize) -> Self {
        let first = Write { value: 0, began: 0, ended: Some(0) };
        Self { files: vec![vec![first]; files], told: vec![Vec::new(); files], clock: 0, values: 0 }
    }

    /// Now.
    pub(super) fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write begins, of a value that nobody has written.
    pub(super) fn begin_write(&mut self, file: u64) -> u64 {
        self.values += 1;
        let began = self.now();
        self.files[file as usize].push(Write { value: self.values, began, ended: None });
        self.values
    }

    /// Its program goes on.
    pub(super) fn end_write(&mut self, file: u64, value: u64) {
        let now = self.now();
        let write = self.files[file as usize].iter_mut().find(|write| write.value == value);
        write.expect("it began").ended = Some(now);
    }

    /// A program that began to read at `began` has read `value`.
    ///
    /// # Errors
    /// Where it had been overwritten by then.
    pub(super) fn read(&mut self, file: u64, value: u64, began: u64) -> Result<(), String> {
        let writes = &self.files[file as usize];
        let read = writes.iter().find(|write| write.value == value);
        let read = read.ok_or_else(|| format!("file {file}: {value} was never written"))?;
        let Some(ended) = read.ended else { return Ok(()) };
        let over = |write: &&Write| write.began > ended && write.ended.is_some_and(|ended| ended < began);
        match writes.iter().find(over) {
            None => Ok(()),
            Some(later) => {
                Err(format!("file {file}: {value} was read long after {} was written", later.value))
            }
        }
    }

    /// A program that began to look at `began` is told that the file was last changed at `seen`.
    ///
    /// # Errors
    /// Where another had been told of a later time by then.
    pub(super) fn stat(&mut self, file: u64, seen: Timestamp, began: u64) -> Result<(), String> {
        let ended = self.now();
        let (told, writes) = (&mut self.told[file as usize], &self.files[file as usize]);
        // A write has the time of its arrival, and may have waited until after that of another was told.
        let waits = |told: &Told| {
            let is_about = |write: &Write| write.ended.is_none_or(|ended| ended > told.began);
            writes.iter().any(|write| write.began < told.ended && is_about(write))
        };
        let is_wrong = |told: &&Told| told.ended < began && told.time > seen && !waits(told);
        if let Some(Told { time, .. }) = told.iter().find(is_wrong) {
            return Err(format!("file {file}: changed at {seen:?}, long after {time:?} was told"));
        }
        told.push(Told { time: seen, began, ended });
        Ok(())
    }
}
