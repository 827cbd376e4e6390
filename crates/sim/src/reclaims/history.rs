//! The last granted lock of each file, and the files' content.

use std::sync::Arc;

use vfs::Backend;

use crate::backend::content;

/// Data that a client writes under a lock.
pub(super) type Mark = [u8; 8];

/// Counts the locks of all files.
#[derive(Debug)]
pub(super) struct History {
    backend: Arc<dyn Backend>,
    generations: Vec<u64>,
    /// Clients that have not completed their reclaims, for which new locks must wait.
    pub(super) is_awaiting: bool,
    pub(super) taken: usize,
    pub(super) reclaimed: usize,
}

impl History {
    pub(super) fn new(files: u64, backend: Arc<dyn Backend>) -> Self {
        Self { backend, generations: vec![0; files as usize], is_awaiting: false, taken: 0, reclaimed: 0 }
    }

    /// Notes a new lock; returns its number.
    ///
    /// # Errors
    /// Another client could still reclaim it.
    pub(super) fn take(&mut self, file: u64, name: &str) -> Result<u64, String> {
        if self.is_awaiting {
            return Err(format!("{name} has a new lock of file {file} before all others have reclaimed"));
        }
        self.taken += 1;
        let generation = &mut self.generations[file as usize];
        *generation += 1;
        Ok(*generation)
    }

    /// Notes a reclaimed lock, under which the client had written `mark`, if set.
    ///
    /// # Errors
    /// Another client has had the lock since, or has changed the file.
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
            return Err(format!(
                "{name} reclaims lock {generation} of file {file}, but the file has changed"
            ));
        }
        match self.generations[file as usize] {
            last if last == generation => Ok(generation),
            last => Err(format!(
                "{name} reclaims lock {generation} of file {file}, but lock {last} was granted since"
            )),
        }
    }
}
