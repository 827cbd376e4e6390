//! Writes in place into a file of each client, at random offsets (2015, Figure 5).

use super::client_file::ClientFile;
use super::files::pattern;
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files, OpenFile as _};

const WRITE: Op = Op::write("write");

/// `random-write`.
pub struct RandomWrite(ClientFile);

impl Workload for RandomWrite {
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
        let mut rng = task.rng.clone();
        // The same bytes everywhere: the content does not matter, and making it would be work of the client.
        let data = pattern(0, length);
        task.ready().await;
        while !task.meter.is_over() {
            let offset = rng.u64(0..blocks) * length;
            let write = async { Ok(file.write(offset, data.clone()).await? as u64) };
            task.meter.transfer(WRITE, length, write).await?;
        }
        file.close().await
    }
}
