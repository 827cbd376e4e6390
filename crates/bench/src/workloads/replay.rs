//! Replays a trace: one task for each stream, in the order of the trace, with its think times.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};

use super::files::{check_with_holes, make_directory, make_files, pattern};
use super::{Parameters, Workload};
use crate::runner::{Ends, Op, Task, Who};
use crate::targets::{Buffer, Fault, Files, How, OpenFile};
use crate::trace::{Kind, Record, Replay as Trace};
use crate::units::size_text;

/// An operation that failed in the trace and fails in the same way.
const FAILS_AS_RECORDED: Op = Op::metadata("fails-as-recorded");
/// Maximum bytes of all files that a trace needs.
const PREPARED_BYTES_MAX: u64 = 1 << 40;
/// Maximum number of files that a stream keeps open for operations whose open is not in the trace.
const IMPLIED_OPEN_MAX: usize = 64;
/// Time after which a wait looks whether the run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Errors that differ from the trace because files do; others end the run.
const OF_NAMES: &[i32] = &[
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    libc::EACCES,
    libc::EAGAIN,
    libc::EPERM,
    libc::EINVAL,
    libc::ELOOP,
    libc::EXDEV,
    libc::ESTALE,
];

/// `replay`.
pub struct Replay {
    trace: Result<Trace, String>,
    /// Think times are divided by this; `None` if there are none.
    speed: Option<f64>,
    /// Tasks that have done their work.
    finished: AtomicU32,
}

impl Workload for Replay {
    const ENDS: Ends = Ends::Work;

    fn new(parameters: &Parameters<'_>) -> Self {
        let path = PathBuf::from(parameters.text("trace"));
        let speed = parameters.count("speed-percent") as f64 / 100.0;
        Self {
            trace: Trace::read(&path),
            speed: parameters.flag("think").then_some(speed),
            finished: AtomicU32::new(0),
        }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        if who.client > 0 {
            return Ok(());
        }
        let trace = self.trace()?;
        let (clients, streams) = trace.trace().size();
        if who.clients < clients || who.threads < streams {
            return Err(Fault::new(format!(
                "the trace has {clients} client(s) with up to {streams} stream(s): set clients and threads to that"
            )));
        }
        let needed = trace.preparation();
        if needed.bytes() > PREPARED_BYTES_MAX {
            let (bytes, most) = (size_text(needed.bytes()), size_text(PREPARED_BYTES_MAX));
            return Err(Fault::new(format!("the trace needs files of {bytes}: at most {most}")));
        }
        for directory in &needed.directories {
            make_directory(files, directory).await?;
        }
        for link in &needed.links {
            files.symlink("target", link).await?;
        }
        make_files(files, needed.files.into_iter()).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let trace = self.trace()?;
        let mut stream =
            Stream { task, open: BTreeMap::new(), implied: BTreeMap::new(), buffer: Buffer::default() };
        task.ready().await;
        let mut ended_us = None;
        for (index, record) in trace.stream(task.who.client, task.who.thread) {
            let thinks_us = record.at_us.saturating_sub(ended_us.unwrap_or(trace.trace().records[0].at_us));
            ended_us = Some(record.ended_us());
            if !self.think(task, thinks_us).await || !wait(task, trace.wait_for_others(index)).await {
                break;
            }
            stream.play(record).await?;
            if trace.is_last_use(index) {
                stream.close_implied(record.path()).await?;
            }
            trace.ended(index);
        }
        stream.close_all().await?;
        self.end(task)
    }
}

impl Replay {
    fn trace(&self) -> Result<&Trace, Fault> {
        self.trace.as_ref().map_err(|why| Fault::new(why.clone()))
    }

    /// Waits as long as the program did between two operations; false if the run has ended.
    async fn think<F: Files>(&self, task: &Task<F>, microseconds: u64) -> bool {
        let Some(speed) = self.speed else { return !task.meter.is_over() };
        let time = Duration::from_secs_f64(microseconds as f64 / 1e6 / speed);
        if time.is_zero() {
            return !task.meter.is_over();
        }
        wait(task, task.meter.sleep(time)).await
    }

    /// A damaged trace is replayed as far as it goes, and the run has failed.
    fn end<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let trace = self.trace()?.trace();
        let tasks = task.who.clients * task.who.threads;
        let is_last = self.finished.fetch_add(1, Ordering::Relaxed) + 1 == tasks;
        match &trace.damage {
            Some(why) if is_last => {
                let count = trace.records.len();
                Err(Fault::new(format!(
                    "the trace is damaged at {why}; the {count} operations before were replayed"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Waits for something that is no operation; false if the run has ended before.
async fn wait<F: Files>(task: &Task<F>, what: impl Future<Output = ()>) -> bool {
    let mut what = pin!(what);
    while let Either::Right(_) = select(&mut what, pin!(task.meter.sleep(LOOK_EVERY))).await {
        task.meter.is_waiting();
        if task.meter.is_over() {
            return false;
        }
    }
    !task.meter.is_over()
}

/// The state of one stream.
struct Stream<'t, F: Files> {
    task: &'t Task<F>,
    /// Files by their number in the trace.
    open: BTreeMap<u64, F::File>,
    /// Files that this stream uses without an open of its own, by path and whether it writes them.
    implied: BTreeMap<(String, bool), F::File>,
    buffer: Buffer,
}

impl<F: Files> Stream<'_, F> {
    /// Does an operation and counts it. A result that differs from the trace is an error, which is counted.
    async fn play(&mut self, record: &Record) -> Result<(), Fault> {
        let done = match record.error {
            Some(errno) => self.play_failure(record, errno).await,
            None => self.play_success(record).await,
        };
        match done {
            Err(fault) if fault.errno.is_none_or(|errno| !OF_NAMES.contains(&errno)) => Err(fault),
            _ => Ok(()),
        }
    }

    async fn play_failure(&mut self, record: &Record, errno: i32) -> Result<(), Fault> {
        let meter = self.task.meter.clone();
        let attempt = async {
            match self.operate(record).await {
                Err(fault) if fault.errno == Some(errno) => Ok(()),
                Err(fault) => Err(fault),
                Ok(_) => {
                    let (op, path) = (record.op, record.path());
                    let text = format!("{op} {path}: succeeded, and failed with {errno} in the trace");
                    Err(Fault { errno: Some(libc::EEXIST), text })
                }
            }
        };
        meter.time(FAILS_AS_RECORDED, attempt).await
    }

    async fn play_success(&mut self, record: &Record) -> Result<(), Fault> {
        let op = Op { name: record.op.name(), effect: record.op.effect() };
        let meter = self.task.meter.clone();
        if !self.is_open(record).await? {
            // Another stream has closed it, or its open has failed.
            return Ok(());
        }
        let moves = matches!(record.op, Kind::Read | Kind::Write);
        if moves {
            let expected = record.result.unwrap_or(0);
            meter.transfer(op, expected, self.operate(record)).await?;
            if record.op == Kind::Read {
                // Every operation that writes writes the pattern, and set sizes leave holes.
                check_with_holes(&meter, &self.buffer, record.offset.unwrap_or(0))?;
            }
            return Ok(());
        }
        meter.time(op, self.operate(record)).await.map(|_| ())
    }

    /// Opens the file of an operation whose open belongs to another stream or to none; false for a close of such a file.
    async fn is_open(&mut self, record: &Record) -> Result<bool, Fault> {
        let is_known = record.file.is_some_and(|file| self.open.contains_key(&file));
        let writes = matches!(record.op, Kind::Write | Kind::Sync);
        let needs_file = matches!(record.op, Kind::Read | Kind::Lock | Kind::Unlock) || writes;
        if is_known || !needs_file {
            return Ok(is_known || record.op != Kind::Close);
        }
        let key = (record.path().to_owned(), writes);
        if !self.implied.contains_key(&key) {
            if self.implied.len() >= IMPLIED_OPEN_MAX
                && let Some((_, file)) = self.implied.pop_first()
            {
                file.close().await?;
            }
            let how = if writes { How::WRITE } else { How::READ };
            match self.task.files.open(&key.0, how).await {
                Ok(file) => drop(self.implied.insert(key, file)),
                // The operation reports it.
                Err(fault) if fault.errno.is_some_and(|errno| OF_NAMES.contains(&errno)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(true)
    }

    fn file(&self, record: &Record) -> Result<&F::File, Fault> {
        if let Some(file) = record.file.and_then(|file| self.open.get(&file)) {
            return Ok(file);
        }
        let writes = matches!(record.op, Kind::Write | Kind::Sync);
        let implied = self.implied.get(&(record.path().to_owned(), writes));
        let text = || format!("{} {}: the file could not be opened", record.op, record.path());
        implied.ok_or_else(|| Fault { errno: Some(libc::ENOENT), text: text() })
    }

    /// Does an operation; returns the bytes that it moved.
    async fn operate(&mut self, record: &Record) -> Result<u64, Fault> {
        let (files, path) = (&self.task.files, record.path());
        let to = record.to.as_deref().unwrap_or_default();
        let (offset, length) = (record.offset.unwrap_or(0), record.length.unwrap_or(0));
        match record.op {
            Kind::Open => {
                let file = files.open(path, record.how()).await?;
                match record.file {
                    Some(number) if record.error.is_none() => drop(self.open.insert(number, file)),
                    _ => file.close().await?,
                }
            }
            Kind::Close => {
                if let Some(file) = record.file.and_then(|file| self.open.remove(&file)) {
                    file.close().await?;
                }
            }
            Kind::Read => {
                let mut buffer = std::mem::take(&mut self.buffer);
                let read = self.file(record)?.read(offset, length as usize, &mut buffer).await;
                self.buffer = buffer;
                return read.map(|read| read as u64);
            }
            Kind::Write => {
                return self
                    .file(record)?
                    .write(offset, pattern(offset, length))
                    .await
                    .map(|written| written as u64);
            }
            Kind::Sync => self.file(record)?.sync().await?,
            Kind::Lock if record.offset.is_some() => {
                let is_granted = self.file(record)?.try_lock_bytes(bytes(record), record.how().write).await?;
                if !is_granted {
                    let text = format!("lock {path}: another open file has it");
                    return Err(Fault { errno: Some(libc::EAGAIN), text });
                }
            }
            Kind::Unlock if record.offset.is_some() => {
                self.file(record)?.unlock_bytes(bytes(record)).await?;
            }
            Kind::Lock => self.file(record)?.lock_shared().await?,
            Kind::Unlock => self.file(record)?.unlock().await?,
            Kind::Stat => drop(files.stat(path).await?),
            Kind::List => drop(files.list(path).await?),
            Kind::Names => drop(files.list_names(path).await?),
            Kind::Mkdir => files.make_directory(path).await?,
            Kind::Rmdir => files.remove_directory(path).await?,
            Kind::Remove => files.remove(path).await?,
            Kind::Rename => files.rename(path, to).await?,
            Kind::Link => files.link(path, to).await?,
            Kind::Symlink => files.symlink(to, path).await?,
            Kind::Readlink => drop(files.read_link(path).await?),
            Kind::Chmod => files.set_mode(path, record.mode.unwrap_or(0o644)).await?,
            Kind::SetSize => files.set_size(path, length).await?,
            Kind::Touch => files.touch(path).await?,
            Kind::Statfs => files.file_system_status().await?,
        }
        Ok(0)
    }

    /// Closes a file that was opened for operations whose open is not in the trace.
    async fn close_implied(&mut self, path: &str) -> Result<(), Fault> {
        for writes in [false, true] {
            if let Some(file) = self.implied.remove(&(path.to_owned(), writes)) {
                file.close().await?;
            }
        }
        Ok(())
    }

    async fn close_all(self) -> Result<(), Fault> {
        for file in self.open.into_values().chain(self.implied.into_values()) {
            match file.close().await {
                Err(fault) if fault.errno.is_none_or(|errno| !OF_NAMES.contains(&errno)) => {
                    return Err(fault);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the bytes of a lock; one without length has no end.
fn bytes(record: &Record) -> Range<u64> {
    let start = record.offset.unwrap_or(0);
    start..record.length.map_or(u64::MAX, |length| start.saturating_add(length))
}
