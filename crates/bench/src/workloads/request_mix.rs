//! Operations in the proportions of SPEC SFS 97 for version 3, at a given rate: latency against load.
//!
//! A thread starts operations at fixed times, whether the operation before has ended in time or not. An operation that could
//! not start in time has waited, and that is part of its latency.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::files::{check, make_directory, make_files, pattern};
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Buffer, Fault, Files, How, OpenFile as _};

const STAT: Op = Op::metadata("stat");
const READ: Op = Op::read("read");
const WRITE: Op = Op::write("write");
const LIST: Op = Op::metadata("list");
const READLINK: Op = Op::metadata("readlink");
const CREATE: Op = Op::metadata("create");
const REMOVE: Op = Op::metadata("remove");
const CHMOD: Op = Op::metadata("chmod");
const STATFS: Op = Op::metadata("statfs");

/// Operations in a hundred. LOOKUP, GETATTR and ACCESS count as one here: the client decides which of them a stat needs.
/// COMMIT counts as part of WRITE.
const MIX: [(Op, u32); 9] = [
    (STAT, 45),
    (READ, 18),
    (WRITE, 14),
    (LIST, 11),
    (READLINK, 7),
    (CREATE, 1),
    (REMOVE, 1),
    (CHMOD, 1),
    (STATFS, 2),
];
/// Bytes of a READ and a WRITE.
const IO_BYTES: u64 = 8 << 10;
/// Bytes of a file.
const FILE_BYTES: u64 = 64 << 10;
/// Files of a directory.
const FILES_OF_DIRECTORY: u64 = 50;

/// `request-mix`.
pub struct RequestMix {
    /// Operations a second of each client.
    rate: u64,
    files: u64,
}

impl Workload for RequestMix {
    fn new(parameters: &Parameters<'_>) -> Self {
        Self { rate: parameters.count("rate"), files: parameters.count("files") }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        let root = format!("client-{}", who.client + 1);
        make_directory(files, &root).await?;
        for directory in 0..self.directories() {
            make_directory(files, &format!("{root}/{directory}")).await?;
            files.symlink("file", &format!("{root}/{directory}/link")).await?;
        }
        make_files(files, (0..self.files).map(|number| (format!("{root}/{}", path(number)), FILE_BYTES)))
            .await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let files = task.files.enter(&format!("client-{}", task.who.client + 1)).await?;
        let mut rng = task.rng.clone();
        let mut own =
            Own { name: format!("own-{}", task.who.thread + 1), exists: false, buffer: Buffer::default() };
        let interval = Duration::from_secs_f64(f64::from(task.who.threads) / self.rate.max(1) as f64);
        task.ready().await;
        // Threads begin at different times of the interval.
        let mut due = task.meter.now() + interval.mul_f64(rng.f64());
        while !task.meter.is_over() {
            let now = task.meter.now();
            let mut began = due;
            if now < due {
                task.meter.sleep(due - now).await;
                // The timer's own lateness is not the server's.
                began = task.meter.now();
            }
            self.operate(&files, task, &mut rng, began, &mut own).await?;
            due += interval;
        }
        Ok(())
    }
}

/// The state of one thread.
struct Own {
    /// The file that it creates and removes.
    name: String,
    exists: bool,
    buffer: Buffer,
}

fn path(number: u64) -> String {
    format!("{}/file-{number}", number / FILES_OF_DIRECTORY)
}

/// Returns a random operation of the mix.
fn pick(rng: &mut Rng) -> Op {
    let mut left = rng.u32(0..MIX.iter().map(|(_, share)| share).sum());
    for (op, share) in MIX {
        if left < share {
            return op;
        }
        left -= share;
    }
    STAT
}

impl RequestMix {
    fn directories(&self) -> u64 {
        self.files.div_ceil(FILES_OF_DIRECTORY)
    }

    async fn operate<F: Files>(
        &self,
        files: &F,
        task: &Task<F>,
        rng: &mut Rng,
        began: Instant,
        own: &mut Own,
    ) -> Result<(), Fault> {
        let (meter, op) = (&task.meter, pick(rng));
        let path = path(rng.u64(0..self.files));
        let directory = rng.u64(0..self.directories());
        let offset = rng.u64(0..FILE_BYTES / IO_BYTES) * IO_BYTES;
        match op {
            READ => {
                let read = async {
                    let file = files.open(&path, How::READ).await?;
                    let read = file.read(offset, IO_BYTES as usize, &mut own.buffer).await? as u64;
                    file.close().await.map(|()| read)
                };
                meter.transfer_since(op, began, IO_BYTES, read).await?;
                check(meter, &own.buffer, offset)
            }
            WRITE => {
                let write = async {
                    let file = files.open(&path, How::WRITE).await?;
                    let written = file.write(offset, pattern(offset, IO_BYTES)).await? as u64;
                    file.close().await.map(|()| written)
                };
                meter.transfer_since(op, began, IO_BYTES, write).await.map(|_| ())
            }
            LIST => meter.time_since(op, began, files.list(&directory.to_string())).await.map(|_| ()),
            READLINK => {
                meter.time_since(op, began, files.read_link(&format!("{directory}/link"))).await.map(|_| ())
            }
            CHMOD => meter.time_since(op, began, files.set_mode(&path, 0o644)).await,
            STATFS => meter.time_since(op, began, files.file_system_status()).await,
            // Each thread has one file that is created and removed alternately, as the mix has equal parts of both.
            CREATE | REMOVE if own.exists => {
                own.exists = false;
                meter.time_since(REMOVE, began, files.remove(&own.name)).await
            }
            CREATE | REMOVE => {
                own.exists = true;
                let create = async { files.open(&own.name, How::CREATE).await?.close().await };
                meter.time_since(CREATE, began, create).await
            }
            _ => meter.time_since(op, began, files.stat(&path)).await.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_a_hundred_and_met() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u32>(), 100);
        let mut rng = Rng::with_seed(7);
        let reads = (0..100_000).filter(|_| pick(&mut rng) == READ).count();
        // Binomial: 18,000 with a deviation of 121.
        assert!((17_400..=18_600).contains(&reads), "{reads}");
    }
}
