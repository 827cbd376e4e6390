//! Small files, which all clients share, are opened, locked, read, unlocked and closed, several times each (2015, Table 1).

use super::files::{Pieces, make_files, read_whole};
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

const OPEN: Op = Op::metadata("open");
const LOCK: Op = Op::metadata("lock");
const READ: Op = Op::read("read");
const UNLOCK: Op = Op::metadata("unlock");
const CLOSE: Op = Op::metadata("close");

/// `locked-reads`.
pub struct LockedReads {
    files: u64,
    repeats: u64,
    file_bytes: u64,
}

fn name(index: u64) -> String {
    format!("file-{index:07}")
}

impl Workload for LockedReads {
    const ENDS: Ends = Ends::Work;
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        Self {
            files: parameters.count("files"),
            repeats: parameters.count("repeats"),
            file_bytes: parameters.size("size"),
        }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        let wanted = (0..self.files).map(|index| (name(index), self.file_bytes));
        if who.client == 0 { make_files(files, wanted).await } else { Ok(()) }
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let (meter, mut pieces) = (&task.meter, Pieces::default());
        task.ready().await;
        for index in task.part(self.files) {
            for _ in 0..self.repeats {
                if meter.is_over() {
                    return Ok(());
                }
                let file = meter.time(OPEN, task.files.open(&name(index), How::READ)).await?;
                meter.time(LOCK, file.lock_shared()).await?;
                let read = read_whole(&file, self.file_bytes, self.file_bytes, &mut pieces);
                meter.transfer(READ, self.file_bytes, read).await?;
                pieces.check(meter)?;
                meter.time(UNLOCK, file.unlock()).await?;
                meter.time(CLOSE, file.close()).await?;
            }
        }
        Ok(())
    }
}
