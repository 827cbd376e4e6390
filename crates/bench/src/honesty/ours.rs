//! This side: the workloads of the bench, as `enfys bench run` runs them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    CACHED_BYTES_MAX, CPU_THREADS, Data, NAMES, NameRates, SMALL_BYTES, Settings, empty_caches, file_of,
};
use crate::layout::DIRECTORY;
use crate::plan::{PlanOptions, Run};
use crate::process::CpuTimes;
use crate::result::{Outcome, RunResult};
use crate::runner::{Access, Place, measure, prepare};

/// A workload with its parameters.
struct Work<'w> {
    name: &'w str,
    set: Vec<String>,
    threads: u32,
    round: u32,
}

impl Work<'_> {
    fn run(&self, settings: &Settings, place: &Path) -> Result<Run, String> {
        let options = PlanOptions {
            workload: self.name.to_owned(),
            targets: vec![place.display().to_string()],
            set: self.set.clone(),
            threads: vec![self.threads],
            rounds: Some(1),
            duration: Some(format!("{}ms", settings.duration.as_millis())),
            warm_up: Some("0".to_owned()),
            seed: Some(self.round.into()),
            ..PlanOptions::default()
        };
        let plan = options.plan().map_err(|errors| errors.join("; "))?;
        plan.runs().into_iter().next().ok_or_else(|| "a plan without runs".to_owned())
    }

    /// Makes its files, calls `before`, and measures.
    fn measure(
        &self,
        settings: &Settings,
        path: &Path,
        before: impl FnOnce() -> Result<(), String>,
    ) -> Result<RunResult, String> {
        let run = self.run(settings, path)?;
        let place = target(settings, path);
        prepare(&run, &place)?;
        before()?;
        let result = measure(&run, &place).ok_or("interrupted")?;
        match result.outcome {
            Outcome::Failed(why) => Err(format!("{}: {why}", self.name)),
            Outcome::Complete => {
                // The files of workloads that keep none.
                let own = path.join(DIRECTORY).join(&run.id);
                match std::fs::remove_dir_all(&own) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        Err(format!("{}: {error}", own.display()))
                    }
                    _ => Ok(result),
                }
            }
        }
    }
}

fn target(settings: &Settings, path: &Path) -> Place {
    let place = Place::new(Access::Directory(path.to_owned()), "honesty", Arc::clone(&settings.interrupted));
    Place { export: Some(path.to_owned()), ..place }
}

fn no_rate(work: &Work<'_>) -> String {
    format!("{}: no rate", work.name)
}

/// Returns a rate in the unit of the measure.
pub(super) fn data(settings: &Settings, place: &Path, data: Data, round: u32) -> Result<f64, String> {
    let name = match data {
        Data::SequentialWrite => "stream-write",
        Data::SequentialRead => "sequential-read",
        Data::RandomRead => "random-read",
        Data::RandomWrite => "random-write",
    };
    let mut set = vec![format!("io-size={}", data.io_bytes()), format!("file-size={}", settings.file_bytes)];
    if data == Data::RandomWrite {
        set.push("o-sync=true".to_owned());
    }
    let work = Work { name, set, threads: settings.threads, round };
    let before = || match data {
        Data::SequentialWrite => empty_caches(settings, None),
        _ => empty_caches(settings, Some(&file_of(place, name)?)),
    };
    let result = work.measure(settings, place, before)?;
    let rate = match data {
        Data::SequentialWrite => {
            // Together they take as long as the slowest thread, as fio counts.
            let rates = result.samples.get("until_fsync_mb_per_s");
            let slowest = rates.and_then(|rates| rates.iter().copied().reduce(f64::min));
            slowest.map(|slowest| slowest * f64::from(settings.threads))
        }
        Data::SequentialRead => result.throughput().map(|(_, bytes)| bytes / 1e6),
        Data::RandomRead | Data::RandomWrite => result.throughput().map(|(operations, _)| operations),
    };
    rate.filter(|rate| *rate > 0.0).ok_or_else(|| no_rate(&work))
}

/// Returns files a second. Bonnie++ has a sync(2) in the times of creation and deletion, and so has this side.
pub(super) fn names(settings: &Settings, place: &Path, round: u32) -> Result<NameRates, String> {
    let files = format!("files={}", settings.files);
    let set = ["io-size=8KiB", "file-size=8KiB", "seeks=1", "sync=true", &files].map(str::to_owned).to_vec();
    let work = Work { name: "bonnie", set, threads: 1, round };
    let result = work.measure(settings, place, || empty_caches(settings, None))?;
    let rate = |name: &str| {
        let samples = result.samples.get(&format!("random_{name}_per_s"));
        samples.and_then(|samples| samples.first().copied()).ok_or_else(|| no_rate(&work))
    };
    let [create, stat, delete] = NAMES.map(rate);
    Ok([create?, stat?, delete?])
}

/// CPU time of reads.
pub(super) struct ReadCost {
    pub(super) reads: u64,
    pub(super) times: CpuTimes,
}

/// The size of the file that is cached, in bytes.
pub(super) fn cached_bytes(settings: &Settings) -> u64 {
    settings.file_bytes.min(CACHED_BYTES_MAX)
}

fn cached_reads<'w>(settings: &Settings, round: u32) -> Work<'w> {
    let set = vec![format!("io-size={SMALL_BYTES}"), format!("file-size={}", cached_bytes(settings))];
    Work { name: "random-read", set, threads: CPU_THREADS, round }
}

/// Makes the file of the measurement of CPU time, and reads it into the cache. Returns where it is.
pub(super) fn prepare_cached(settings: &Settings, place: &Path) -> Result<PathBuf, String> {
    let path = place.join("cpu");
    std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let run = cached_reads(settings, 1).run(settings, &path)?;
    prepare(&run, &target(settings, &path))?;
    let file = file_of(&path, &run.case.workload)?;
    std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

/// Measures the CPU time of this process while many threads read cached data.
pub(super) fn cpu(settings: &Settings, place: &Path, round: u32) -> Result<ReadCost, String> {
    prepare_cached(settings, place)?;
    let work = cached_reads(settings, round);
    let mut before = None;
    let result = work.measure(settings, &place.join("cpu"), || {
        before = Some(CpuTimes::of_this_process());
        Ok(())
    })?;
    let now = CpuTimes::of_this_process();
    let reads = result.operations.get("read").map_or(0, |operation| operation.count);
    match before {
        Some(before) if reads > 0 => Ok(ReadCost { reads, times: now.since(&before) }),
        _ => Err(no_rate(&work)),
    }
}
