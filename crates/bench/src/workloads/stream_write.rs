//! Writes a new file from start to end, syncs and closes it; each call is timed (2002).
//!
//! Three throughputs count from the start: until all calls of write(2) have returned, until fsync(2) has, until close(2) has.

use std::time::Duration;

use super::files::pattern;
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

const WRITE: Op = Op::write("write");
const FSYNC: Op = Op::metadata("fsync");
const CLOSE: Op = Op::metadata("close");

/// `stream-write`.
pub struct StreamWrite {
    io_bytes: u64,
    file_bytes: u64,
}

impl Workload for StreamWrite {
    const ENDS: Ends = Ends::Work;

    fn new(parameters: &Parameters<'_>) -> Self {
        Self { io_bytes: parameters.size("io-size").max(1), file_bytes: parameters.size("file-size") }
    }

    async fn prepare<F: Files>(&self, _: &F, _: Who) -> Result<(), Fault> {
        Ok(())
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let path = format!("file-{}-{}", task.who.client + 1, task.who.thread + 1);
        let file = task.files.open(&path, How::CREATE).await?;
        let data = pattern(0, self.io_bytes);
        task.ready().await;
        let began = task.meter.now();
        let mut offset = 0;
        while offset < self.file_bytes && !task.meter.is_over() {
            let length = self.io_bytes.min(self.file_bytes - offset);
            let part = data.slice(..length as usize);
            let called = task.meter.now();
            let write = async { Ok(file.write(offset, part).await? as u64) };
            let written = task.meter.transfer(WRITE, length, write).await?;
            task.meter.sample("write_us", task.meter.since(called).as_secs_f64() * 1e6);
            offset += written;
        }
        let rate = |passed: Duration| offset as f64 / 1e6 / passed.as_secs_f64().max(1e-9);
        task.meter.sample("until_write_mb_per_s", rate(task.meter.since(began)));
        task.meter.time(FSYNC, file.sync()).await?;
        task.meter.sample("until_fsync_mb_per_s", rate(task.meter.since(began)));
        task.meter.time(CLOSE, file.close()).await?;
        task.meter.sample("until_close_mb_per_s", rate(task.meter.since(began)));
        Ok(())
    }
}
