//! A file system with a journal over crashes of the server and its machine, which tear the write that the log's device has begun.
//! Others come while the log is repeated, and before it is known to be. The kernel may have written back files before.
//!
//! Programs write, truncate and COMMIT overlapping parts of a few files, several operations at once. After each crash, every part of a
//! file has a value that is allowed: one whose write was not followed by another write that was answered as stable. The same holds for
//! each file's mode.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use vfs::around::{Around, Call, Method, Wrapped};
use vfs::journal::{BLOCK_BYTES, Found, Journaled, LOG_BYTES_MIN, Log, LogWrite, Scan, replay, scan};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Error, Handle, MemFs, MemOptions, Op,
    ReadRequest, SetAttributes, Stability, Timestamp,
};

use crate::backend::{Clock, Slow};
use crate::rng::Rng;
use crate::scenario::Report;

const FILES: usize = 3;
/// Parts of a file, each of which has one value.
const PARTS: usize = 12;
/// Bytes of a part: parts share pages, and a write of all is too large for the log.
const PART_BYTES: usize = 12 << 10;
const STEPS: u32 = 900;
const OPERATIONS_MAX: usize = 6;
/// Percent of steps with a crash, also of those of a replay.
const CRASH_PERCENT: u64 = 2;
/// Percent of crashes that end the machine too.
const MACHINE_PERCENT: u64 = 70;
/// Percent of starts that end when the log has been repeated, and its new header is being written.
const CRASH_AT_HEADER_PERCENT: u64 = 20;
/// Percent of files that the kernel has written back before a crash.
const WRITTEN_BACK_PERCENT: u64 = 30;
/// Bytes that the device writes as a whole.
const SECTOR: usize = 512;
const SLOW: Slow = Slow { percent: 40, slowest: Duration::from_millis(20) };
const SLOWEST_WRITE: Duration = Duration::from_millis(10);

/// A value that was written to a part.
#[derive(Debug, Clone, Copy)]
struct Value {
    value: u64,
    /// The steps in which its operation began, and was answered.
    begun: u64,
    ended: Option<u64>,
    is_stable: bool,
}

/// The values that a part may have after a crash.
#[derive(Debug, Default, Clone)]
struct Register(Vec<Value>);

impl Register {
    fn reset(&mut self, value: u64, step: u64) {
        self.0 = vec![Value { value, begun: step, ended: Some(step), is_stable: true }];
    }

    /// Returns whether the part may have this value: no stable write began after the value was answered, and was answered too.
    fn allows(&self, value: u64) -> bool {
        let is_replaced = |one: &Value| {
            let follows = |other: &Value| one.ended.is_some_and(|ended| other.begun > ended);
            self.0.iter().any(|other| other.is_stable && other.ended.is_some() && follows(other))
        };
        self.0.iter().any(|one| one.value == value && !is_replaced(one))
    }
}

/// An operation, as far as the model is concerned.
#[derive(Debug, Clone)]
enum Action {
    /// Writes a value to these parts.
    Write {
        parts: std::ops::Range<usize>,
        value: u64,
        is_stable: bool,
    },
    /// Cuts the file, so that these parts have no content.
    Truncate {
        parts: std::ops::Range<usize>,
    },
    Mode(u32),
    /// Makes the unstable values stable that were answered before.
    Commit,
}

/// The answer of an operation of the journal.
type Answer = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

struct Running {
    file: usize,
    action: Action,
    begun: u64,
    answer: Answer,
}

/// Delays operations of the file system.
#[derive(Debug)]
struct Delays {
    clock: Arc<Clock>,
    rng: Mutex<Rng>,
}

impl Around for Delays {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        match call.method {
            Method::Write | Method::Setattr | Method::Commit => {
                SLOW.take(&self.clock, &self.rng, || run(None))
            }
            _ => run(None),
        }
    }
}

type Files = Wrapped<MemFs, Delays>;

/// The log's device.
struct Device {
    bytes: Vec<u8>,
    writing: Option<(LogWrite, Duration)>,
}

impl Device {
    fn complete(&mut self, write: &LogWrite) {
        for (at, piece) in &write.pieces {
            self.bytes[*at as usize..*at as usize + piece.len()].copy_from_slice(piece);
        }
    }

    /// Writes any sectors of the write that has begun.
    fn tear(&mut self, rng: &mut Rng) {
        let Some((write, _)) = self.writing.take() else { return };
        let percent = rng.below(101);
        for (at, piece) in &write.pieces {
            for (number, sector) in piece.chunks(SECTOR).enumerate() {
                if rng.chance(percent) {
                    let at = *at as usize + number * SECTOR;
                    self.bytes[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
    }
}

struct Run {
    rng: Rng,
    clock: Arc<Clock>,
    step: u64,
    boot: u64,
    device: Device,
    journal: Option<Arc<Journaled<Files>>>,
    files: Vec<Handle>,
    /// Of each part of each file; the last register is the mode.
    model: Vec<Vec<Register>>,
    running: Vec<Running>,
    checkpoint: Option<Answer>,
    checks: usize,
    operations: u64,
    crashes: Crashes,
}

/// Numbers of crashes at certain moments.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Crashes {
    in_checkpoints: u32,
    /// While the log of an earlier server was repeated.
    in_replays: u32,
    /// After that, while the new header was written: the log is mostly repeated again.
    in_headers: u32,
}

/// Runs the scenario.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let run = Run::play(seed)?;
    Ok(Report { time: run.clock.now(), messages: run.operations, checks: run.checks })
}

fn context() -> Context {
    Context::new(Arc::new(Credentials::root()), Timestamp { seconds: 1_700_000_000, nanoseconds: 0 })
}

fn task() -> TaskContext<'static> {
    TaskContext::from_waker(Waker::noop())
}

impl Run {
    fn play(seed: u64) -> Result<Self, String> {
        let mut run = Self::new(Rng::new(seed));
        for _ in 0..STEPS {
            run.step()?;
        }
        run.crash(true)?;
        Ok(run)
    }

    fn new(mut rng: Rng) -> Self {
        let clock = Arc::new(Clock::default());
        let memory = MemFs::new(&MemOptions { is_volatile: true, ..MemOptions::default() });
        let file = |number: usize| {
            let what = Create::File(CreateMode::Guarded);
            let set = SetAttributes { mode: Some(0), ..SetAttributes::default() };
            let name = format!("file-{number}");
            memory
                .create(&context(), &memory.root(), name.as_bytes(), &what, &set)
                .now()
                .expect("a file")
                .handle
        };
        let files = (0..FILES).map(file).collect();
        let delays = Delays { clock: Arc::clone(&clock), rng: Mutex::new(Rng::new(rng.next_u64())) };
        let log = Log::create(memory.identity(), ([5; 16], [1; 16]), LOG_BYTES_MIN, Arc::default());
        let journal = Arc::new(Journaled::new(Wrapped::of(memory, delays), Arc::new(log)));
        let mut register = Register::default();
        register.reset(0, 0);
        Self {
            rng,
            clock,
            step: 1,
            boot: 1,
            device: Device { bytes: vec![0; LOG_BYTES_MIN as usize], writing: None },
            journal: Some(journal),
            files,
            model: vec![vec![register; PARTS + 1]; FILES],
            running: Vec::new(),
            checkpoint: None,
            checks: 0,
            operations: 0,
            crashes: Crashes::default(),
        }
    }

    fn journal(&self) -> &Arc<Journaled<Files>> {
        self.journal.as_ref().expect("the server runs")
    }

    fn step(&mut self) -> Result<(), String> {
        self.step += 1;
        if self.running.len() < OPERATIONS_MAX && self.rng.chance(60) {
            self.begin_operation();
        }
        if self.checkpoint.is_none() && self.rng.chance(3) {
            let journal = Arc::clone(self.journal());
            self.checkpoint = Some(Box::pin(async move { journal.checkpoint().await }));
        }
        self.poll()?;
        self.write_log();
        self.poll()?;
        if self.rng.chance(CRASH_PERCENT) {
            let is_machine = self.rng.chance(MACHINE_PERCENT);
            return self.crash(is_machine);
        }
        let pause = Duration::from_micros(self.rng.below(3_000));
        self.clock.set(self.clock.now() + pause);
        Ok(())
    }

    fn begin_operation(&mut self) {
        self.operations += 1;
        let number = self.rng.below(FILES as u64) as usize;
        let (file, journal, value) = (self.files[number], Arc::clone(self.journal()), self.operations);
        let first = self.rng.below(PARTS as u64) as usize;
        let action = match self.rng.below(100) {
            0..60 => {
                let count = if self.rng.chance(10) { PARTS } else { 1 + self.rng.below(3) as usize };
                let parts = first..(first + count).min(PARTS);
                Action::Write { parts, value, is_stable: self.rng.chance(60) }
            }
            60..80 => Action::Commit,
            80..90 => Action::Truncate { parts: first..PARTS },
            _ => Action::Mode(value as u32 & 0o7777),
        };
        let answer = Box::pin(act(journal, file, action.clone()));
        self.note_begun(number, &action);
        self.running.push(Running { file: number, action, begun: self.step, answer });
    }

    /// Returns the registers that an action changes, and the value that it gives them.
    fn changed<'m>(model: &'m mut [Register], action: &Action) -> (&'m mut [Register], u64, bool) {
        match action {
            Action::Write { parts, value, is_stable } => (&mut model[parts.clone()], *value, *is_stable),
            Action::Truncate { parts } => (&mut model[parts.clone()], 0, true),
            Action::Mode(mode) => (&mut model[PARTS..], u64::from(*mode), true),
            Action::Commit => (&mut [], 0, false),
        }
    }

    fn note_begun(&mut self, file: usize, action: &Action) {
        let begun = self.step;
        let (registers, value, is_stable) = Self::changed(&mut self.model[file], action);
        let value = Value { value, begun, ended: None, is_stable };
        registers.iter_mut().for_each(|register| register.0.push(value));
    }

    fn note_ended(&mut self, file: usize, action: &Action, begun: u64) {
        let ended = self.step;
        if matches!(action, Action::Commit) {
            let registers = self.model[file].iter_mut();
            for value in registers.flat_map(|register| &mut register.0) {
                value.is_stable |= value.ended.is_some_and(|ended| ended < begun);
            }
        }
        let (registers, _, _) = Self::changed(&mut self.model[file], action);
        for value in registers.iter_mut().flat_map(|register| &mut register.0) {
            if value.begun == begun {
                value.ended = Some(ended);
            }
        }
    }

    fn poll(&mut self) -> Result<(), String> {
        let mut index = 0;
        while index < self.running.len() {
            match self.running[index].answer.as_mut().poll(&mut task()) {
                Poll::Pending => index += 1,
                Poll::Ready(answer) => {
                    let Running { file, action, begun, .. } = self.running.swap_remove(index);
                    answer.map_err(|error| format!("{action:?}: {error}"))?;
                    self.note_ended(file, &action, begun);
                }
            }
        }
        if let Some(checkpoint) = &mut self.checkpoint
            && let Poll::Ready(done) = checkpoint.as_mut().poll(&mut task())
        {
            self.checkpoint = None;
            done.map_err(|error| format!("checkpoint: {error}"))?;
        }
        Ok(())
    }

    fn write_log(&mut self) {
        if let Some((write, due)) = self.device.writing.take() {
            if due > self.clock.now() {
                self.device.writing = Some((write, due));
                return;
            }
            self.device.complete(&write);
            self.journal().log().written(true);
        }
        if let Poll::Ready(Some(write)) = self.journal().log().poll_write(&mut task()) {
            let delay = Duration::from_micros(self.rng.below(SLOWEST_WRITE.as_micros() as u64));
            self.device.writing = Some((write, self.clock.now() + delay));
        }
    }

    /// Ends the server, perhaps with its machine, and starts others until one has repeated the log.
    fn crash(&mut self, is_machine: bool) -> Result<(), String> {
        self.running.clear();
        self.crashes.in_checkpoints += u32::from(self.checkpoint.take().is_some());
        let journal = self.journal.take().and_then(Arc::into_inner).ok_or("an operation is left")?;
        let files = journal.into_inner();
        let (mut is_machine, mut machine_crashed) = (is_machine, is_machine);
        let log = loop {
            self.end(&files, is_machine);
            if let Some(log) = self.restart(&files)? {
                break log;
            }
            is_machine = self.rng.chance(MACHINE_PERCENT);
            machine_crashed |= is_machine;
        };
        self.check(&files, machine_crashed)?;
        self.journal = Some(Arc::new(Journaled::new(files, log)));
        Ok(())
    }

    /// What a crash does to the log and the files.
    fn end(&mut self, files: &Files, is_machine: bool) {
        if is_machine {
            self.boot += 1;
            self.device.tear(&mut self.rng);
            for file in &self.files {
                if self.rng.chance(WRITTEN_BACK_PERCENT) {
                    // By the kernel, before the crash.
                    files.inner().commit(&context(), file, 0, 0).now().expect("a file in memory");
                }
            }
            files.inner().crash(self.step.to_le_bytes());
        } else if let Some((write, _)) = self.device.writing.take() {
            // The kernel has it.
            self.device.complete(&write);
        }
    }

    /// Starts a server. Returns its log, whose header is on the device; `None` if the server ended before.
    fn restart(&mut self, files: &Files) -> Result<Option<Arc<Log>>, String> {
        let boot = [self.boot as u8; 16];
        let log = match scan(&self.device.bytes) {
            Scan::Log(found) if found.is_damaged => return Err("the log is damaged".into()),
            Scan::Log(found) => {
                if !found.needs_replay(boot) {
                    files.inner().sync().now().map_err(|error| error.to_string())?;
                } else if !self.repeat(files, &found)? {
                    self.crashes.in_replays += 1;
                    return Ok(None);
                }
                Log::resume(&found, boot, Arc::default())
            }
            Scan::Empty => Log::create(files.identity(), ([5; 16], boot), LOG_BYTES_MIN, Arc::default()),
            Scan::Unknown(why) => return Err(format!("the log is lost: {why}")),
        };
        let write = log.poll_write(&mut task());
        let Poll::Ready(Some(write)) = write else { return Err("no header is written".into()) };
        if self.rng.chance(CRASH_AT_HEADER_PERCENT) {
            self.device.writing = Some((write, self.clock.now()));
            self.crashes.in_headers += 1;
            return Ok(None);
        }
        self.device.complete(&write);
        log.written(true);
        Ok(Some(Arc::new(log)))
    }

    /// Repeats a log. Returns false if the server ended before that was done.
    fn repeat(&mut self, files: &Files, found: &Found) -> Result<bool, String> {
        let root = Credentials::root();
        let mut replay = pin!(replay(files, &found.records, &root, context().now, None));
        loop {
            if let Poll::Ready(repeated) = replay.as_mut().poll(&mut task()) {
                return repeated.map(|_| true).map_err(|error| error.to_string());
            }
            if self.rng.chance(CRASH_PERCENT) {
                return Ok(false);
            }
            self.clock.set(self.clock.now() + SLOWEST_WRITE / 2);
        }
    }

    /// Compares the files with the model, which continues with what they have.
    fn check(&mut self, files: &Files, is_machine: bool) -> Result<(), String> {
        for (number, file) in self.files.iter().enumerate() {
            let mut values = values(files.inner(), file)?;
            let mode = files.inner().getattr(&context(), file).now().map_err(|error| error.to_string())?.mode;
            values.push(u64::from(mode));
            for (part, value) in values.into_iter().enumerate() {
                let register = &mut self.model[number][part];
                if !register.allows(value) {
                    let step = self.step;
                    return Err(format!(
                        "step {step}, file {number}, part {part}: {value} after a crash (of the machine: {is_machine}), allowed by {register:?}"
                    ));
                }
                register.reset(value, self.step);
                self.checks += 1;
            }
        }
        Ok(())
    }
}

async fn act(journal: Arc<Journaled<Files>>, file: Handle, action: Action) -> Result<(), Error> {
    let context = context();
    match action {
        Action::Write { parts, value, is_stable } => {
            let data: Bytes = value.to_le_bytes().repeat(parts.len() * PART_BYTES / 8).into();
            let stability = if is_stable { Stability::FileSync } else { Stability::Unstable };
            let offset = (parts.start * PART_BYTES) as u64;
            journal.write(&context, &file, offset, &data, stability, Authority::Caller).await.map(|_| ())
        }
        Action::Truncate { parts } => {
            let size = Some((parts.start * PART_BYTES) as u64);
            let set = SetAttributes { size, ..SetAttributes::default() };
            journal.setattr(&context, &file, &set, None, Authority::Caller).await.map(|_| ())
        }
        Action::Mode(mode) => {
            let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            journal.setattr(&context, &file, &set, None, Authority::Caller).await.map(|_| ())
        }
        Action::Commit => journal.commit(&context, &file, 0, 0).await.map(|_| ()),
    }
}

/// Returns the value of each part.
fn values(files: &MemFs, file: &Handle) -> Result<Vec<u64>, String> {
    let count = (PARTS * PART_BYTES) as u32;
    let request = ReadRequest { offset: 0, count, may_splice: false, authority: Authority::Opened };
    let mut content = BytesMut::new();
    files.read(&context(), file, request, &mut content).now().map_err(|error| error.to_string())?;
    content.resize(PARTS * PART_BYTES, 0);
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let value = |part: &[u8]| {
        let value = word(part);
        part.chunks_exact(8)
            .all(|bytes| word(bytes) == value)
            .then_some(value)
            .ok_or("a part has two values".to_owned())
    };
    content.chunks_exact(PART_BYTES).map(value).collect()
}

const _: () = assert!(PART_BYTES.is_multiple_of(BLOCK_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_come_in_checkpoints_in_replays_and_before_a_log_is_known_to_be_repeated() {
        let mut all = Crashes::default();
        for seed in 0..20 {
            let Crashes { in_checkpoints, in_replays, in_headers } = Run::play(seed).expect("a run").crashes;
            all.in_checkpoints += in_checkpoints;
            all.in_replays += in_replays;
            all.in_headers += in_headers;
        }
        let Crashes { in_checkpoints, in_replays, in_headers } = all;
        assert!(in_checkpoints > 20 && in_replays > 20 && in_headers > 20, "{all:?}");
    }
}
