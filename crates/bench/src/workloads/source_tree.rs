//! A tree of source files is unpacked, searched and removed (2008). Each thread has a tree of its own.

use super::file_set::FileSet;
use super::files::pattern;
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

const MKDIR: Op = Op::metadata("mkdir");
/// Create, write whole, close.
const UNPACK: Op = Op::write("unpack-file");
/// A listing with the attributes of all entries.
const LIST: Op = Op::metadata("list");
const REMOVE: Op = Op::metadata("remove");
const RMDIR: Op = Op::metadata("rmdir");

/// `source-tree`.
pub struct SourceTree {
    set: FileSet,
}

impl Workload for SourceTree {
    const ENDS: Ends = Ends::Work;

    fn new(parameters: &Parameters<'_>) -> Self {
        let (files, mean) = (parameters.count("files"), parameters.size("mean-size"));
        Self { set: FileSet::new(files, mean, parameters.count("directory-width"), 0.0) }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        for thread in 0..who.threads {
            files.make_directory(&directory(Who { thread, ..who })).await?;
        }
        Ok(())
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let files = task.files.enter(&directory(task.who)).await?;
        task.ready().await;
        let began = task.meter.now();
        self.unpack(&files, task).await?;
        task.meter.sample("unpack_s", task.meter.since(began).as_secs_f64());
        let began = task.meter.now();
        let found = self.find(&files, task).await?;
        task.meter.sample("find_s", task.meter.since(began).as_secs_f64());
        let expected = self.set.count() + self.set.tree().directory_count();
        if found != expected && !task.meter.is_over() {
            return Err(Fault::new(format!("found {found} entries of {expected}")));
        }
        let began = task.meter.now();
        self.remove(&files, task).await?;
        task.meter.sample("remove_s", task.meter.since(began).as_secs_f64());
        Ok(())
    }
}

fn directory(who: Who) -> String {
    format!("tree-{}-{}", who.client + 1, who.thread + 1)
}

impl SourceTree {
    async fn unpack<F: Files>(&self, files: &F, task: &Task<F>) -> Result<(), Fault> {
        for directory in self.set.tree().directories() {
            task.meter.time(MKDIR, files.make_directory(&directory)).await?;
        }
        for number in 0..self.set.count() {
            if task.meter.is_over() {
                break;
            }
            let (path, size) = (self.set.path(number), self.set.size(number));
            let data = pattern(0, size);
            let unpack = async {
                let file = files.open(&path, How::CREATE).await?;
                let written = if data.is_empty() { 0 } else { file.write(0, data).await? };
                file.close().await.map(|()| written as u64)
            };
            task.meter.transfer(UNPACK, size, unpack).await?;
        }
        Ok(())
    }

    /// Lists all directories, as find(1) does, and returns the number of their entries.
    async fn find<F: Files>(&self, files: &F, task: &Task<F>) -> Result<u64, Fault> {
        let mut waiting = vec![String::new()];
        let mut found = 0;
        while let Some(directory) = waiting.pop().filter(|_| !task.meter.is_over()) {
            let entries = task.meter.time(LIST, files.list(&directory)).await?;
            found += entries.len() as u64;
            let separator = if directory.is_empty() { "" } else { "/" };
            let directories = entries.iter().filter(|(_, status)| status.is_directory);
            waiting.extend(directories.map(|(name, _)| format!("{directory}{separator}{name}")));
        }
        Ok(found)
    }

    async fn remove<F: Files>(&self, files: &F, task: &Task<F>) -> Result<(), Fault> {
        for number in 0..self.set.count() {
            if task.meter.is_over() {
                return Ok(());
            }
            task.meter.time(REMOVE, files.remove(&self.set.path(number))).await?;
        }
        let directories: Vec<String> = self.set.tree().directories().collect();
        for directory in directories.iter().rev() {
            task.meter.time(RMDIR, files.remove_directory(directory)).await?;
        }
        Ok(())
    }
}
