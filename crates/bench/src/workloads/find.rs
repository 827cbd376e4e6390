//! A tree is searched, with the attributes of all files, as find(1) does (1994, Table 2). Each thread searches all of it.

use super::tree::EmptyFiles;
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Fault, Files};

const LIST: Op = Op::metadata("list");

/// `find`.
pub struct Find(EmptyFiles);

impl Workload for Find {
    const ENDS: Ends = Ends::Work;
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        Self(EmptyFiles::new(parameters))
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        self.0.prepare(files, who).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        task.ready().await;
        let mut waiting = vec![String::new()];
        let mut found = 0;
        while let Some(directory) = waiting.pop().filter(|_| !task.meter.is_over()) {
            let entries = task.meter.time(LIST, task.files.list(&directory)).await?;
            found += entries.len() as u64;
            let separator = if directory.is_empty() { "" } else { "/" };
            let directories = entries.iter().filter(|(_, status)| status.is_directory);
            waiting.extend(directories.map(|(name, _)| format!("{directory}{separator}{name}")));
        }
        let expected = self.0.files + self.0.tree.directory_count();
        if found != expected && !task.meter.is_over() {
            return Err(Fault::new(format!("found {found} entries of {expected}")));
        }
        Ok(())
    }
}
