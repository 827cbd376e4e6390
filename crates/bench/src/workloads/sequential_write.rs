//! Writes in place into a file of each client, from start to end, repeatedly (2015, §4.1).

use super::client_file::ClientFile;
use super::files::pattern;
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files, OpenFile as _};

const WRITE: Op = Op::write("write");

/// `sequential-write`.
pub struct SequentialWrite(ClientFile);

impl Workload for SequentialWrite {
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        Self(ClientFile::new(parameters))
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        self.0.prepare(files, who).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let file = self.0.open(task).await?;
        let (length, blocks) = (self.0.io_bytes, self.0.blocks());
        let data = pattern(0, length);
        let mut block = task.part(blocks).start;
        task.ready().await;
        while !task.meter.is_over() {
            let write = async { Ok(file.write(block * length, data.clone()).await? as u64) };
            task.meter.transfer(WRITE, length, write).await?;
            block = (block + 1) % blocks;
        }
        file.close().await
    }
}
