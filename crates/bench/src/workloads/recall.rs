//! Some clients have files open, which others open for writing (2015 §5.3): with delegations each such open needs a recall.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::files::make_files;
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

const OPEN: Op = Op::metadata("open");
const CLOSE: Op = Op::metadata("close");
/// Time between two checks of a holder whether all openers are done.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// `recall`.
pub struct Recall {
    files: u64,
    holders: u32,
    /// Clients that open them for writing.
    openers: u32,
    /// Threads of openers that are not done.
    opening: AtomicU32,
}

fn name(index: u64) -> String {
    format!("file-{index:07}")
}

impl Workload for Recall {
    const ENDS: Ends = Ends::Work;
    const KEEPS_FILES: bool = true;

    fn new(parameters: &Parameters<'_>) -> Self {
        let number = |name| u32::try_from(parameters.count(name)).unwrap_or(u32::MAX);
        let openers = if number("openers") == 0 { u32::MAX } else { number("openers") };
        Self {
            files: parameters.count("files"),
            holders: number("holders"),
            openers,
            opening: AtomicU32::new(0),
        }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        if who.clients <= self.holders {
            let Who { clients, .. } = who;
            let Self { holders, .. } = self;
            return Err(Fault::new(format!(
                "{clients} client(s) with {holders} holder(s): who opens the files?"
            )));
        }
        let wanted = (0..self.files).map(|index| (name(index), 0));
        if who.client == 0 { make_files(files, wanted).await } else { Ok(()) }
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        match task.who.client {
            client if client < self.holders => self.hold(task).await,
            client if client - self.holders < self.openers => self.open(task).await,
            _ => {
                task.ready().await;
                Ok(())
            }
        }
    }
}

impl Recall {
    /// Opens a thread's part of the files, and closes them when all others are done.
    async fn hold<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let mut held = Vec::new();
        for index in task.part(self.files) {
            held.push(task.files.open(&name(index), How::READ).await?);
        }
        task.ready().await;
        while self.opening.load(Ordering::Acquire) > 0 && !task.meter.is_over() {
            task.meter.sleep(LOOK_EVERY).await;
        }
        for file in held {
            file.close().await?;
        }
        Ok(())
    }

    async fn open<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        self.opening.fetch_add(1, Ordering::AcqRel);
        task.ready().await;
        let done = self.open_part(task).await;
        self.opening.fetch_sub(1, Ordering::AcqRel);
        done
    }

    async fn open_part<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        for index in task.part(self.files) {
            if task.meter.is_over() {
                return Ok(());
            }
            let file = task.meter.time(OPEN, task.files.open(&name(index), How::BOTH)).await?;
            task.meter.time(CLOSE, file.close()).await?;
        }
        Ok(())
    }
}
