//! Whether the bench tells the truth: its workloads and the programs that others trust do the same work in the same directory, in turns,
//! and their rates are compared. The CPU time of the harness is compared with that of a loop that has none.
//!
//! What makes sides equal: the same sizes, threads and system calls (pread, pwrite; O_SYNC for random writes); the same file for reads and
//! random writes; caches emptied before each measurement, by the kernel for root and of the file for others. Rounds alternate
//! which side begins. A round's two rates are compared with each other, so that a drift of the machine affects both.

mod bare;
mod bonnie;
mod fio;
mod ours;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::plan::{BONNIE, FIO, Machine, Requirement};

pub use self::report::{CpuShare, Pair, Report, Verdict};

/// Data rates may differ by this part.
pub const DATA_TOLERANCE: f64 = 0.05;
/// Rates of creation, stat and deletion may differ by this part.
pub const NAMES_TOLERANCE: f64 = 0.10;
/// The harness may take this part of its process's CPU time.
pub const CPU_SHARE_MAX: f64 = 0.10;
/// Threads that read cached data while CPU time is measured.
pub const CPU_THREADS: u32 = 64;
/// Files of one step of Bonnie++, which counts in units of these.
pub const FILES_STEP: u64 = 1024;
/// Bytes of a sequential read or write.
const LARGE_BYTES: u64 = 1 << 20;
/// Bytes of a random read or write.
const SMALL_BYTES: u64 = 4 << 10;
/// The largest file of the measurement of CPU time, which shall be in the cache.
const CACHED_BYTES_MAX: u64 = 64 << 20;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Data rates, with fio.
    Data,
    /// Creation, stat and deletion of empty files, with Bonnie++.
    Names,
    /// The CPU time of the harness.
    Cpu,
}

/// The parameters of all measurements.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory; everything is in a directory below it, which is removed at the end.
    pub directory: PathBuf,
    /// Size of a file in bytes; a multiple of 1 MiB, so that both sides have the same.
    pub file_bytes: u64,
    /// Measured time of reads and random writes.
    pub duration: Duration,
    /// Rounds.
    pub rounds: u32,
    /// Threads of data.
    pub threads: u32,
    /// Files that are created; a multiple of [`FILES_STEP`].
    pub files: u64,
    /// What is compared.
    pub parts: Vec<Part>,
    /// Leaves caches as they are.
    pub is_warm: bool,
    /// Ends everything from outside.
    pub interrupted: Arc<AtomicBool>,
}

/// A rate that both sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    SequentialWrite,
    SequentialRead,
    RandomRead,
    RandomWrite,
}

impl Data {
    const ALL: [Self; 4] = [Self::SequentialWrite, Self::SequentialRead, Self::RandomRead, Self::RandomWrite];

    fn name(self) -> &'static str {
        match self {
            Self::SequentialWrite => "sequential write, fsync",
            Self::SequentialRead => "sequential read",
            Self::RandomRead => "random read, 4 KiB",
            Self::RandomWrite => "random write, 4 KiB, O_SYNC",
        }
    }

    fn is_write(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::RandomWrite)
    }

    fn is_sequential(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::SequentialRead)
    }

    fn unit(self) -> &'static str {
        if self.is_sequential() { "MB/s" } else { "operations/s" }
    }

    /// Bytes of one read or write.
    fn io_bytes(self) -> u64 {
        if self.is_sequential() { LARGE_BYTES } else { SMALL_BYTES }
    }
}

/// Creation, stat and deletion of files a second.
type NameRates = [f64; 3];

const NAMES: [&str; 3] = ["create", "stat", "delete"];

impl Settings {
    /// Checks directory, numbers and programs.
    ///
    /// # Errors
    /// What is wrong or missing, and how to get it.
    pub fn check(&self, machine: &impl Machine) -> Result<(), String> {
        let Self { directory, file_bytes, rounds, files, .. } = self;
        machine.can_write(directory).map_err(|why| format!("{}: {why}", directory.display()))?;
        let wrong = [
            (*file_bytes == 0 || file_bytes % LARGE_BYTES != 0, "--file-size: a multiple of 1 MiB"),
            (*rounds == 0, "--rounds: at least 1"),
            (*files == 0 || files % FILES_STEP != 0, "--files: a multiple of 1024, as Bonnie++ counts them"),
            (self.duration < Duration::from_secs(1), "--duration: at least 1s"),
            (self.threads == 0, "--threads: at least 1"),
        ];
        if let Some((_, why)) = wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            return Err((*why).to_owned());
        }
        for (part, program) in [(Part::Data, FIO), (Part::Names, BONNIE)] {
            if self.parts.contains(&part) && !program.is_met(machine) {
                let Requirement { name, .. } = program;
                return Err(format!("`{name}` is not installed: {}", program.remedy()));
            }
        }
        Ok(())
    }

    /// Measures everything, round by round. `tell` is called before each measurement with what it is.
    ///
    /// # Errors
    /// A measurement that failed, or the interrupt.
    pub fn run(&self, tell: &mut dyn FnMut(&str)) -> Result<Report, String> {
        let base = self.directory.canonicalize().map_err(|error| self.failed(&error))?;
        let place = tempfile::Builder::new().prefix("enfys-honesty-").tempdir_in(base);
        let place = place.map_err(|error| self.failed(&error))?;
        let mut round = Round { settings: self, place: place.path(), tell, number: 0 };
        let mut report = Report::new(self);
        for number in 1..=self.rounds {
            round.number = number;
            if self.parts.contains(&Part::Data) {
                round.data(&mut report)?;
            }
            if self.parts.contains(&Part::Names) {
                round.names(&mut report)?;
            }
            if self.parts.contains(&Part::Cpu) {
                round.cpu(&mut report)?;
            }
        }
        place.close().map_err(|error| self.failed(&error))?;
        Ok(report)
    }

    fn failed(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.directory.display())
    }

    fn is_interrupted(&self) -> Result<(), String> {
        if self.interrupted.load(Ordering::Relaxed) { Err("interrupted".to_owned()) } else { Ok(()) }
    }
}

/// One round.
struct Round<'r> {
    settings: &'r Settings,
    place: &'r Path,
    tell: &'r mut dyn FnMut(&str),
    number: u32,
}

impl Round<'_> {
    fn tell(&mut self, what: &str, who: &str) -> Result<(), String> {
        self.settings.is_interrupted()?;
        let (number, of) = (self.number, self.settings.rounds);
        (self.tell)(&format!("[{number}/{of}] {what}: {who}"));
        Ok(())
    }

    /// Measures both sides; which begins depends on the round.
    fn both<T>(
        &mut self,
        what: &str,
        program: &str,
        ours: impl Fn(&Self) -> Result<T, String>,
        theirs: impl Fn(&Self) -> Result<T, String>,
    ) -> Result<(T, T), String> {
        if self.number % 2 == 1 {
            self.tell(what, "enfys")?;
            let own = ours(self)?;
            self.tell(what, program)?;
            Ok((own, theirs(self)?))
        } else {
            self.tell(what, program)?;
            let other = theirs(self)?;
            self.tell(what, "enfys")?;
            Ok((ours(self)?, other))
        }
    }

    fn data(&mut self, report: &mut Report) -> Result<(), String> {
        for (data, pair) in Data::ALL.into_iter().zip(&mut report.data) {
            let (own, other) = self.both(
                data.name(),
                "fio",
                |round| ours::data(round.settings, round.place, data, round.number),
                |round| fio::data(round.settings, round.place, data),
            )?;
            pair.add(own, other);
        }
        Ok(())
    }

    fn names(&mut self, report: &mut Report) -> Result<(), String> {
        let (own, other) = self.both(
            "create, stat, delete",
            "bonnie++",
            |round| ours::names(round.settings, round.place, round.number).map(|rates| rates.map(Some)),
            |round| bonnie::names(round.settings, round.place),
        )?;
        for (pair, (own, other)) in report.names.iter_mut().zip(own.into_iter().zip(other)) {
            match (own, other) {
                (Some(own), Some(other)) => pair.add(own, other),
                // Bonnie++ has no rate of a phase below half a second.
                _ => pair.too_short += 1,
            }
        }
        Ok(())
    }

    fn cpu(&mut self, report: &mut Report) -> Result<(), String> {
        let what = "CPU time of cached reads";
        let (own, bare) = self.both(
            what,
            "a loop of pread",
            |round| ours::cpu(round.settings, round.place, round.number),
            |round| bare::cpu(round.settings, round.place, round.number),
        )?;
        report.cpu.add(&own, &bare);
        Ok(())
    }
}

/// The only file of a workload in the bench's directory below `place`.
fn file_of(place: &Path, workload: &str) -> Result<PathBuf, String> {
    let first = |directory: &Path, prefix: &str| {
        let entries = std::fs::read_dir(directory).ok()?;
        let is_it =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
        entries.flatten().map(|entry| entry.path()).find(is_it)
    };
    let found = first(&place.join(crate::layout::DIRECTORY), workload).and_then(|set| first(&set, "file"));
    found.ok_or_else(|| format!("{}: no file of {workload}", place.display()))
}

/// Empties the caches of the machine as root, of a file otherwise.
fn empty_caches(settings: &Settings, file: Option<&Path>) -> Result<(), String> {
    use rustix::fs::{Advice, fadvise};
    if settings.is_warm {
        return Ok(());
    }
    if rustix::process::geteuid().is_root() {
        return crate::plan::Cold::DropCaches.apply();
    }
    let Some(path) = file else { return Ok(()) };
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    // Pages that are not on the disk yet stay.
    file.sync_all().map_err(failed)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests;
