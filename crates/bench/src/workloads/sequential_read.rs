//! Reads of one file, which all clients share, from start to end, repeatedly (2015, Figure 3).

use super::files::{check, make_file};
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Buffer, Fault, Files, How, OpenFile as _};

const FILE: &str = "file";
const READ: Op = Op::read("read");

/// `sequential-read`.
pub struct SequentialRead {
    io_bytes: u64,
    file_bytes: u64,
}

impl Workload for SequentialRead {
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        let io_bytes = parameters.size("io-size");
        Self { io_bytes, file_bytes: parameters.size("file-size").max(io_bytes) }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        if who.client == 0 { make_file(files, FILE, self.file_bytes).await } else { Ok(()) }
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let file = task.files.open(FILE, How::READ).await?;
        let mut buffer = Buffer::default();
        let blocks = self.file_bytes / self.io_bytes;
        // Threads of a client begin at different places.
        let mut block = task.part(blocks).start;
        task.ready().await;
        while !task.meter.is_over() {
            let offset = block * self.io_bytes;
            let read = async { Ok(file.read(offset, self.io_bytes as usize, &mut buffer).await? as u64) };
            task.meter.transfer(READ, self.io_bytes, read).await?;
            check(&task.meter, &buffer, offset)?;
            block = (block + 1) % blocks;
        }
        file.close().await
    }
}
