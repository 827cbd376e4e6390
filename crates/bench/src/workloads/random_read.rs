//! Reads of one file, which all clients share, at random offsets (2015, Figures 1 and 2).

use super::files::{check, make_file};
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Buffer, Fault, Files, How, OpenFile as _};

const FILE: &str = "file";
const READ: Op = Op::read("read");

/// `random-read`.
pub struct RandomRead {
    io_bytes: u64,
    file_bytes: u64,
}

impl Workload for RandomRead {
    const ENDS: Ends = Ends::Time;
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
        let mut rng = task.rng.clone();
        let mut buffer = Buffer::default();
        task.ready().await;
        while !task.meter.is_over() {
            let offset = rng.u64(0..self.file_bytes / self.io_bytes) * self.io_bytes;
            let read = async { Ok(file.read(offset, self.io_bytes as usize, &mut buffer).await? as u64) };
            task.meter.transfer(READ, self.io_bytes, read).await?;
            check(&task.meter, &buffer, offset)?;
        }
        file.close().await
    }
}
