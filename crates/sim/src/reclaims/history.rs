//! Which lock of each file was given last, and what is in the files.

use std::sync::Arc;

use vfs::Backend;

use crate::backend::content;

/// What a client writes under a lock.
pub(super) type Mark = [u8; 8];

/// The locks of all files, counted.
#[derive(Debug)]
pub(super) struct History {
    backend: Arc<dyn Backend>,
    generations: Vec<u64>,
    /// Clients have not completed their reclaims for which everybody has to wait.
    pub(super) is_awaiting: bool,
    pub(super) taken: usize,
    pub(super) reclaimed: usize,
}

impl History {
    pub(super) fn new(files: u64, backend: Arc<dyn Backend>) -> Self {
        Self { backend, generations: vec![0; files as usize], is_awaiting: false, taken: 0, reclaimed: 0 }
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

    /// A client is told that it has the lock again which it had, under which it had written `mark`, if anything.
    ///
    /// # Errors
    /// Where somebody else has had it since, or has changed the file, though he may never have been told that he might.
    pub(super) fn reclaim(
        &mut self,
        file: u64,
        generation: u64,
        mark: Option<Mark>,
        name: &str,
    ) -> Result<u64, String> {
        self.reclaimed += 1;
        if let Some(mark) = mark
            && content(&*self.backend, &super::file_name(file), u32::MAX).as_deref() != Some(&mark[..])
        {
            return Err(format!("{name} reclaims lock {generation} of file {file}, which was changed since"));
        }
        match self.generations[file as usize] {
            last if last == generation => Ok(generation),
            last => Err(format!(
                "{name} reclaims lock {generation} of file {file}, and lock {last} was given since"
            )),
        }
    }
}
