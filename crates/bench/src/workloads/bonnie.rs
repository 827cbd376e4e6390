//! The tests of Bonnie++ 1.03: a large file, and many empty ones (2008). Each thread has files of its own.

use std::collections::HashSet;
use std::time::Instant;

use fastrand::Rng;

use super::files::{check_block, pattern};
use super::{Parameters, Workload};
use crate::process;
use crate::runner::{Ends, Meter, Op, Task, Who};
use crate::targets::{Buffer, Fault, Files, How, OpenFile as _};

const BLOCK_WRITE: Op = Op::write("block-write");
const REWRITE: Op = Op::write("rewrite");
const BLOCK_READ: Op = Op::read("block-read");
const SEEK: Op = Op::read("seek");
const FSYNC: Op = Op::metadata("fsync");
const CREATE: Op = Op::metadata("create");
const STAT: Op = Op::metadata("stat");
const DELETE: Op = Op::metadata("delete");

/// One of this many seeks is followed by a write of the block.
const WRITES_OF_SEEKS: u64 = 10;
const FILE: &str = "large";
/// Where the pattern of a block begins that the phases write: first, rewriting, seeking.
const FIRST: u64 = 0;
const AGAIN: u64 = 8;
const SOUGHT: u64 = 16;

/// `bonnie`.
pub struct Bonnie {
    file_bytes: u64,
    io_bytes: u64,
    seeks: u64,
    files: u64,
    /// Whether creation and deletion end with a sync of everything, as those of Bonnie++ do.
    is_synced: bool,
}

/// The names of a phase's samples: rate and CPU of this process.
type Samples = (&'static str, &'static str);

impl Workload for Bonnie {
    const ENDS: Ends = Ends::Work;

    fn new(parameters: &Parameters<'_>) -> Self {
        let io_bytes = parameters.size("io-size").max(1);
        Self {
            file_bytes: parameters.size("file-size").max(io_bytes) / io_bytes * io_bytes,
            io_bytes,
            seeks: parameters.count("seeks"),
            files: parameters.count("files"),
            is_synced: parameters.flag("sync"),
        }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        for thread in 0..who.threads {
            files.make_directory(&directory(Who { thread, ..who })).await?;
        }
        Ok(())
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let files = task.files.enter(&directory(task.who)).await?;
        task.ready().await;
        let megabytes = self.file_bytes as f64 / 1e6;
        let mut phase = Phase::begin(&task.meter);
        self.block_write(&files, task).await?;
        phase.end(task, ("block_write_mb_per_s", "block_write_cpu_percent"), megabytes);
        self.rewrite(&files, task).await?;
        phase.end(task, ("rewrite_mb_per_s", "rewrite_cpu_percent"), megabytes);
        self.block_read(&files, task).await?;
        phase.end(task, ("block_read_mb_per_s", "block_read_cpu_percent"), megabytes);
        self.seek(&files, task).await?;
        phase.end(task, ("seeks_per_s", "seek_cpu_percent"), self.seeks as f64);
        let mut order: Vec<u64> = (0..self.files).collect();
        self.small_files(&files, task, &mut phase, &order, &SEQUENTIAL).await?;
        Rng::with_seed(task.who.thread.into()).shuffle(&mut order);
        self.small_files(&files, task, &mut phase, &order, &RANDOM).await
    }
}

const SEQUENTIAL: [Samples; 3] = [
    ("sequential_create_per_s", "sequential_create_cpu_percent"),
    ("sequential_stat_per_s", "sequential_stat_cpu_percent"),
    ("sequential_delete_per_s", "sequential_delete_cpu_percent"),
];
const RANDOM: [Samples; 3] = [
    ("random_create_per_s", "random_create_cpu_percent"),
    ("random_stat_per_s", "random_stat_cpu_percent"),
    ("random_delete_per_s", "random_delete_cpu_percent"),
];

fn directory(who: Who) -> String {
    format!("bonnie-{}-{}", who.client + 1, who.thread + 1)
}

/// The time and CPU of a phase.
struct Phase {
    began: Instant,
    /// `None` in a simulation.
    cpu_seconds: Option<f64>,
}

impl Phase {
    fn begin(meter: &Meter) -> Self {
        let cpu_time = || process::cpu_time(std::process::id()).unwrap_or_default();
        let cpu_seconds = (!meter.is_simulated()).then(|| cpu_time().as_secs_f64());
        Self { began: meter.now(), cpu_seconds }
    }

    /// Notes rate and CPU, and begins the next phase. An interrupted phase has neither.
    fn end<F: Files>(&mut self, task: &Task<F>, samples: Samples, amount: f64) {
        let next = Self::begin(&task.meter);
        let seconds = (next.began - self.began).as_secs_f64().max(1e-9);
        if !task.meter.is_over() {
            task.meter.sample(samples.0, amount / seconds);
            if let (Some(after), Some(before)) = (next.cpu_seconds, self.cpu_seconds) {
                task.meter.sample(samples.1, (after - before) / seconds * 100.0);
            }
        }
        *self = next;
    }
}

impl Bonnie {
    fn offsets<'t, F: Files>(&self, task: &'t Task<F>) -> impl Iterator<Item = u64> + use<'t, F> {
        let io_bytes = self.io_bytes;
        let blocks = self.file_bytes / io_bytes;
        (0..blocks).map(move |block| block * io_bytes).take_while(|_| !task.meter.is_over())
    }

    async fn block_write<F: Files>(&self, files: &F, task: &Task<F>) -> Result<(), Fault> {
        let file = files.open(FILE, How::CREATE).await?;
        let data = pattern(FIRST, self.io_bytes);
        for offset in self.offsets(task) {
            let write = async { Ok(file.write(offset, data.clone()).await? as u64) };
            task.meter.transfer(BLOCK_WRITE, self.io_bytes, write).await?;
        }
        task.meter.time(FSYNC, file.sync()).await?;
        file.close().await
    }

    async fn rewrite<F: Files>(&self, files: &F, task: &Task<F>) -> Result<(), Fault> {
        let file = files.open(FILE, How::BOTH).await?;
        let (data, mut buffer) = (pattern(AGAIN, self.io_bytes), Buffer::default());
        for offset in self.offsets(task) {
            let rewrite = async {
                let read = file.read(offset, self.io_bytes as usize, &mut buffer).await? as u64;
                Ok(read.min(file.write(offset, data.clone()).await? as u64))
            };
            task.meter.transfer(REWRITE, self.io_bytes, rewrite).await?;
            check_block(&task.meter, &buffer, offset, FIRST)?;
        }
        task.meter.time(FSYNC, file.sync()).await?;
        file.close().await
    }

    async fn block_read<F: Files>(&self, files: &F, task: &Task<F>) -> Result<(), Fault> {
        let file = files.open(FILE, How::READ).await?;
        let mut buffer = Buffer::default();
        for offset in self.offsets(task) {
            let read = async { Ok(file.read(offset, self.io_bytes as usize, &mut buffer).await? as u64) };
            task.meter.transfer(BLOCK_READ, self.io_bytes, read).await?;
            check_block(&task.meter, &buffer, offset, AGAIN)?;
        }
        file.close().await
    }

    async fn seek<F: Files>(&self, files: &F, task: &Task<F>) -> Result<(), Fault> {
        let file = files.open(FILE, How::BOTH).await?;
        let (data, mut buffer) = (pattern(SOUGHT, self.io_bytes), Buffer::default());
        let mut written = HashSet::new();
        let mut rng = task.rng.clone();
        for number in (0..self.seeks).take_while(|_| !task.meter.is_over()) {
            let offset = rng.u64(0..self.file_bytes / self.io_bytes) * self.io_bytes;
            let seek = async {
                let read = file.read(offset, self.io_bytes as usize, &mut buffer).await? as u64;
                if number % WRITES_OF_SEEKS == 0 {
                    file.write(offset, data.clone()).await?;
                }
                Ok(read)
            };
            task.meter.transfer(SEEK, self.io_bytes, seek).await?;
            check_block(
                &task.meter,
                &buffer,
                offset,
                if written.contains(&offset) { SOUGHT } else { AGAIN },
            )?;
            if number % WRITES_OF_SEEKS == 0 {
                written.insert(offset);
            }
        }
        file.close().await
    }

    /// Ends a phase.
    async fn sync<F: Files>(&self, files: &F) -> Result<(), Fault> {
        if self.is_synced { files.sync_all().await } else { Ok(()) }
    }

    async fn small_files<F: Files>(
        &self,
        files: &F,
        task: &Task<F>,
        phase: &mut Phase,
        order: &[u64],
        samples: &[Samples; 3],
    ) -> Result<(), Fault> {
        let paths =
            || order.iter().map(|number| format!("{number:07}")).take_while(|_| !task.meter.is_over());
        for path in paths() {
            let create = async { files.open(&path, How::CREATE).await?.close().await };
            task.meter.time(CREATE, create).await?;
        }
        self.sync(files).await?;
        phase.end(task, samples[0], self.files as f64);
        for path in paths() {
            task.meter.time(STAT, files.stat(&path)).await?;
        }
        phase.end(task, samples[1], self.files as f64);
        for path in paths() {
            task.meter.time(DELETE, files.remove(&path)).await?;
        }
        self.sync(files).await?;
        phase.end(task, samples[2], self.files as f64);
        Ok(())
    }
}
