//! Listings of random directories of a tree of empty files (2015, Figure 12).

use super::tree::EmptyFiles;
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files};

/// A listing with the attributes of all entries.
const LIST: Op = Op::metadata("list");

/// `list`.
pub struct List(EmptyFiles);

impl Workload for List {
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        Self(EmptyFiles::new(parameters))
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        self.0.prepare(files, who).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let mut rng = task.rng.clone();
        task.ready().await;
        while !task.meter.is_over() {
            let path = self.0.tree.directory_number(rng.u64(0..=self.0.tree.directory_count()));
            let entries = task.meter.time(LIST, task.files.list(&path)).await?;
            if entries.is_empty() {
                return Err(Fault::new(format!("list {path}: no entries, although it has some")));
            }
        }
        Ok(())
    }
}
