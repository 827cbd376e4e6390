//! Writes in place into a file of each client, from start to end, repeatedly (2015, §4.1).

use super::files::{make_file, pattern};
use super::random_write::file_name;
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

const WRITE: Op = Op::write("write");

/// `sequential-write`.
pub struct SequentialWrite {
    io_bytes: u64,
    file_bytes: u64,
    is_sync: bool,
}

impl Workload for SequentialWrite {
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        let io_bytes = parameters.size("io-size");
        let file_bytes = parameters.size("file-size").max(io_bytes);
        Self { io_bytes, file_bytes, is_sync: parameters.flag("o-sync") }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        make_file(files, &file_name(who), self.file_bytes).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let how = How { sync: self.is_sync, ..How::WRITE };
        let file = task.files.open(&file_name(task.who), how).await?;
        let data = pattern(0, self.io_bytes);
        let blocks = self.file_bytes / self.io_bytes;
        let mut block = task.part(blocks).start;
        task.ready().await;
        while !task.meter.is_over() {
            let write = async { Ok(file.write(block * self.io_bytes, data.clone()).await? as u64) };
            task.meter.transfer(WRITE, self.io_bytes, write).await?;
            block = (block + 1) % blocks;
        }
        file.close().await
    }
}
