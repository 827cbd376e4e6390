//! Which lock of each file was given last.

/// The locks of all files, counted.
#[derive(Debug)]
pub(super) struct History {
    generations: Vec<u64>,
    /// Clients have not completed their reclaims for which everybody has to wait.
    pub(super) is_awaiting: bool,
    pub(super) taken: usize,
    pub(super) reclaimed: usize,
}

impl History {
    pub(super) fn new(files: u64) -> Self {
        Self { generations: vec![0; files as usize], is_awaiting: false, taken: 0, reclaimed: 0 }
    }

    /// A client is told that it has a file's lock; which one that is.
    ///
    /// # Errors
    /// Where another one that might have had it has not completed its reclaims.
    pub(super) fn take(&mut self, file: u64, name: &str) -> Result<u64, String> {
        if self.is_awaiting {
            return Err(format!("{name} has a new lock of file {file}, and not all others have come back"));
        }
        self.taken += 1;
        let generation = &mut self.generations[file as usize];
        *generation += 1;
        Ok(*generation)
    }

    /// A client is told that it has the lock again which it had.
    ///
    /// # Errors
    /// Where somebody else has had it since: a second holder, or one that the file was changed under.
    pub(super) fn reclaim(&mut self, file: u64, generation: u64, name: &str) -> Result<u64, String> {
        self.reclaimed += 1;
        match self.generations[file as usize] {
            last if last == generation => Ok(generation),
            last => Err(format!(
                "{name} reclaims lock {generation} of file {file}, and lock {last} was given since"
            )),
        }
    }
}
