//! Reads of whole small files, which all clients share, at random (2015, Figures 6 and 7).

use super::files::{Pieces, make_files, read_whole};
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

/// Open, read whole, close.
const READ: Op = Op::read("read-file");

/// `small-files`.
pub struct SmallFiles {
    files: u64,
    file_bytes: u64,
}

fn name(index: u64) -> String {
    format!("file-{index:07}")
}

impl Workload for SmallFiles {
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        Self { files: parameters.count("files"), file_bytes: parameters.size("size") }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        let wanted = (0..self.files).map(|index| (name(index), self.file_bytes));
        if who.client == 0 { make_files(files, wanted).await } else { Ok(()) }
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let mut rng = task.rng.clone();
        let mut pieces = Pieces::default();
        task.ready().await;
        while !task.meter.is_over() {
            let path = name(rng.u64(0..self.files));
            let read = async {
                let file = task.files.open(&path, How::READ).await?;
                let length = read_whole(&file, self.file_bytes, self.file_bytes.max(1), &mut pieces).await?;
                file.close().await.map(|()| length)
            };
            task.meter.transfer(READ, self.file_bytes, read).await?;
            pieces.check(&task.meter)?;
        }
        Ok(())
    }
}
