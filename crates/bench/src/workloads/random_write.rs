//! Writes in place into a file of each client, at random offsets (2015, Figure 5).

use super::files::{make_file, pattern};
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

const WRITE: Op = Op::write("write");

/// `random-write`.
pub struct RandomWrite {
    io_bytes: u64,
    file_bytes: u64,
    is_sync: bool,
}

/// Returns the name of a client's file.
pub(super) fn file_name(who: Who) -> String {
    format!("file-{}", who.client + 1)
}

impl Workload for RandomWrite {
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
        let mut rng = task.rng.clone();
        // The same bytes everywhere: the content does not matter, and making it would be work of the client.
        let data = pattern(0, self.io_bytes);
        task.ready().await;
        while !task.meter.is_over() {
            let offset = rng.u64(0..self.file_bytes / self.io_bytes) * self.io_bytes;
            let write = async { Ok(file.write(offset, data.clone()).await? as u64) };
            task.meter.transfer(WRITE, self.io_bytes, write).await?;
        }
        file.close().await
    }
}
