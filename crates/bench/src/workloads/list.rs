//! Listings of random directories of a tree of empty files (2015, Figure 12).

use super::files::{make_directory, make_files};
use super::tree::Tree;
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files};

/// A listing with the attributes of all entries.
const LIST: Op = Op::metadata("list");

/// `list`.
pub struct List {
    files: u64,
    tree: Tree,
}

impl Workload for List {
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        let files = parameters.count("files");
        Self { files, tree: Tree::new(files, parameters.count("directory-width")) }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        if who.client > 0 {
            return Ok(());
        }
        for directory in self.tree.directories() {
            make_directory(files, &directory).await?;
        }
        make_files(files, (0..self.files).map(|index| (self.tree.file(index), 0))).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let mut rng = task.rng.clone();
        task.ready().await;
        while !task.meter.is_over() {
            let path = self.tree.directory_number(rng.u64(0..=self.tree.directory_count()));
            let entries = task.meter.time(LIST, task.files.list(&path)).await?;
            if entries.is_empty() {
                return Err(Fault::new(format!("list {path}: no entries, although it has some")));
            }
        }
        Ok(())
    }
}
