//! Creation of files by each client in its own directory (2015, Figures 8 to 11).

use super::files::{make_directory, pattern};
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

/// Create, write whole, close.
const CREATE: Op = Op::write("create");

/// `create`.
pub struct Create {
    files: u64,
    file_bytes: u64,
}

fn directory(who: Who) -> String {
    format!("client-{}", who.client + 1)
}

impl Workload for Create {
    const ENDS: Ends = Ends::Work;

    fn new(parameters: &Parameters<'_>) -> Self {
        Self { files: parameters.count("files"), file_bytes: parameters.size("size") }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        make_directory(files, &directory(who)).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let files = task.files.enter(&directory(task.who)).await?;
        let data = pattern(0, self.file_bytes);
        task.ready().await;
        for index in task.part(self.files) {
            if task.meter.is_over() {
                break;
            }
            let path = format!("file-{index:07}");
            let create = async {
                let file = files.open(&path, How { truncate: false, ..How::CREATE }).await?;
                let written = if data.is_empty() { 0 } else { file.write(0, data.clone()).await? };
                file.close().await.map(|()| written as u64)
            };
            task.meter.transfer(CREATE, self.file_bytes, create).await?;
        }
        Ok(())
    }
}
