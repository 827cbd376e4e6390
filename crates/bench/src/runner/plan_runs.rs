//! The runs of a plan, one after the other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::agent::run_over_link;
use super::agents::{Agents, measure_with_agents};
use super::assemble::failed;
use super::execute::{Access, Place, clean, clean_all, measure, prepare};
use crate::plan::{Caches, Cold, Plan, Run, Target, TargetKind};
use crate::result::{RunResult, file};
use crate::targets::local::{LocalServer, Starting, needs_link};
use crate::targets::nfs::Server;
use crate::trace::TraceWriter;

/// The environment of runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the result files.
    pub results: PathBuf,
    /// The start options of local servers.
    pub starting: Starting,
    /// Set from outside to end: the run in progress is dropped, and repeated next time.
    pub interrupted: Arc<AtomicBool>,
    /// Whether files remain at targets after the last run.
    pub keeps_files: bool,
    /// Where the clients are; `None` for this process.
    pub agents: Option<Agents>,
    /// The trace into which the only run is recorded.
    pub record: Option<PathBuf>,
}

/// Receives the progress of a plan's runs.
pub trait Observer {
    /// Called when a run begins: with its number, from 1, and the number of runs.
    fn begins(&mut self, run: &Run, number: usize, of: usize);
    /// Called when a run has ended, and its result is saved.
    fn ended(&mut self, result: &RunResult);
    /// Called for a failure outside a run.
    fn warn(&mut self, why: &str);
}

/// The outcome of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs that were complete before.
    pub kept: usize,
    /// Runs that are complete now.
    pub complete: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Whether it was interrupted.
    pub is_interrupted: bool,
}

/// Executes all runs of a plan that have no complete result in the directory yet, and saves the result of each.
///
/// # Errors
/// If results cannot be read or written.
pub fn run_plan(plan: &Plan, settings: &Settings, observer: &mut dyn Observer) -> Result<Summary, String> {
    let done = file::completed(&settings.results)?;
    let runs = plan.remaining(&done);
    if let Some(agents) = &settings.agents {
        agents.check(&runs)?;
    }
    let recording =
        settings.record.as_deref().map(|path| start_recording(path, &runs, settings)).transpose()?;
    let mut summary = Summary { kept: plan.runs().len() - runs.len(), ..Summary::default() };
    let mut targets =
        Targets { plan: &plan.name, settings, open: BTreeMap::new(), recording: recording.clone() };
    for (index, run) in runs.iter().enumerate() {
        if settings.interrupted.load(Ordering::Relaxed) {
            break;
        }
        observer.begins(run, index + 1, runs.len());
        let Some(result) = targets.run(run, observer) else { break };
        file::save(&settings.results, &result)?;
        if result.is_complete() {
            summary.complete += 1;
        } else {
            summary.failed += 1;
        }
        observer.ended(&result);
    }
    if !settings.keeps_files {
        targets.clean_all(observer);
    }
    if let Some(recording) = recording {
        recording.finish(None)?;
    }
    summary.is_interrupted = settings.interrupted.load(Ordering::Relaxed);
    Ok(summary)
}

/// Begins the trace of a plan's only run, whose clients must be in this process.
fn start_recording(path: &Path, runs: &[Run], settings: &Settings) -> Result<Arc<TraceWriter>, String> {
    let run = match runs {
        [run] => run,
        [] => return Err("the run is complete from before: choose another directory of results".to_owned()),
        more => return Err(format!("a trace has one run, and these are {}: use --rounds 1", more.len())),
    };
    let is_elsewhere = settings.agents.is_some()
        || matches!(&run.case.target.kind, TargetKind::Local { server } if needs_link(server) || !run.case.delay.is_zero());
    if is_elsewhere {
        return Err("clients on other machines or at the end of a link cannot be recorded".to_owned());
    }
    TraceWriter::create(path, &format!("recorded by enfys bench run: {}", run.case.label())).map(Arc::new)
}

/// The targets that were used so far.
struct Targets<'p> {
    plan: &'p str,
    settings: &'p Settings,
    recording: Option<Arc<TraceWriter>>,
    open: BTreeMap<String, Open>,
}

/// A target in use.
struct Open {
    server: Option<LocalServer>,
    place: Place,
}

impl Targets<'_> {
    /// Executes a run; `None` if it was interrupted.
    fn run(&mut self, run: &Run, observer: &mut dyn Observer) -> Option<RunResult> {
        let name = &run.case.target.name;
        if let TargetKind::Local { server } = &run.case.target.kind
            && (!run.case.delay.is_zero() || needs_link(server) || !run.case.link().is_empty())
        {
            let Settings { starting, interrupted, .. } = self.settings;
            let done = run_over_link(run, server, self.plan, starting, interrupted);
            return done.unwrap_or_else(|why| Some(failed(run, &self.nowhere(), why)));
        }
        let agents = self.settings.agents.as_ref();
        let done = self.open(run).and_then(|open| open.run(run, agents));
        let result = match done {
            Ok(result) => result,
            Err(why) if self.settings.interrupted.load(Ordering::Relaxed) => {
                observer.warn(&why);
                None
            }
            Err(why) => {
                let place = self.open.get(name).map_or_else(|| self.nowhere(), |open| open.place.clone());
                Some(failed(run, &place, why))
            }
        };
        let Some(open) = self.open.get_mut(name) else { return result };
        let has_ended = open.server.as_mut().is_some_and(|server| server.check().is_err());
        if has_ended {
            // The next run restarts it.
            self.open.remove(name);
        } else if let Err(why) = clean(run, &open.place) {
            observer.warn(&format!("{name}: files of {} remain: {why}", run.id));
        }
        result
    }

    fn nowhere(&self) -> Place {
        let nowhere = Access::Directory(PathBuf::from("/"));
        let place = Place::new(nowhere, self.plan, Arc::clone(&self.settings.interrupted));
        Place { recording: self.recording.clone(), ..place }
    }

    /// Returns the target of a run, and starts it if necessary.
    fn open(&mut self, run: &Run) -> Result<&mut Open, String> {
        let target = &run.case.target;
        if !self.open.contains_key(&target.name) {
            let mut place = self.nowhere();
            let mut server = None;
            match &target.kind {
                TargetKind::Local { server: name } => {
                    let started = LocalServer::start(name, &self.settings.starting)?;
                    place.server_version = Some(started.version());
                    place.export = Some(started.export());
                    place.metrics = started.metrics().map(|address| address.to_string());
                    server = Some(started);
                }
                TargetKind::Directory { path } => place.export = Some(PathBuf::from(path)),
                TargetKind::Remote { .. } => {}
            }
            place.metrics = target.metrics.clone().or(place.metrics);
            self.open.insert(target.name.clone(), Open { server, place });
        }
        let open = self.open.get_mut(&target.name).ok_or("no target")?;
        open.set_access(run)?;
        Ok(open)
    }

    fn clean_all(&mut self, observer: &mut dyn Observer) {
        for (name, open) in &self.open {
            // The files of a local server end with it.
            if open.server.is_none()
                && let Err(why) = clean_all(&open.place)
            {
                observer.warn(&format!("{name}: cannot find files to remove: {why}"));
            }
        }
    }
}

impl Open {
    /// Sets the address by which clients of a run reach the target.
    fn set_access(&mut self, run: &Run) -> Result<(), String> {
        let Target { kind, server, .. } = &run.case.target;
        let url = match (&self.server, kind) {
            (_, TargetKind::Directory { path }) => {
                self.place.access = Access::Directory(Path::new(path).to_owned());
                return Ok(());
            }
            (Some(local), _) => {
                self.place.server_pid = Some(local.pid());
                // After a restart it may have another.
                self.place.metrics = local.metrics().map(|address| address.to_string());
                local.url()
            }
            (None, _) => server.clone(),
        };
        let version = run.case.version.ok_or("a target without a version")?;
        let server = Server::resolve(&url, &run.case.options, version)?;
        self.place.options.extend(server.options().described());
        self.place.access = Access::Nfs(Box::new(server));
        Ok(())
    }

    /// Prepares and measures a run. A failure includes the server's exit status, if it ended.
    fn run(&mut self, run: &Run, agents: Option<&Agents>) -> Result<Option<RunResult>, String> {
        let mut result = self.attempt(run, agents);
        let why = match &mut result {
            Ok(Some(RunResult { outcome: crate::result::Outcome::Failed(why), .. })) | Err(why) => why,
            Ok(_) => return result,
        };
        if let Some(ended) = self.server.as_mut().and_then(LocalServer::await_end) {
            *why = format!("{why}; {ended}");
        }
        result
    }

    fn attempt(&mut self, run: &Run, agents: Option<&Agents>) -> Result<Option<RunResult>, String> {
        prepare(run, &self.place)?;
        if run.caches == Caches::Cold {
            self.make_cold(run)?;
        }
        match agents {
            Some(agents) => measure_with_agents(run, &self.place, agents),
            None => Ok(measure(run, &self.place)),
        }
    }

    fn make_cold(&mut self, run: &Run) -> Result<(), String> {
        match &run.case.target.cold {
            None | Some(Cold::NewClient) => Ok(()),
            Some(Cold::Restart) => {
                let Some(server) = &mut self.server else { return Ok(()) };
                if server.is_in_memory() {
                    return Err("cold = \"restart\": a file system in memory would be lost".to_owned());
                }
                server.restart()?;
                self.set_access(run)
            }
            Some(cold) => cold.apply(),
        }
    }
}

impl Cold {
    /// Empties caches of this machine, or runs the plan's command.
    ///
    /// # Errors
    /// The caches could not be emptied.
    pub(crate) fn apply(&self) -> Result<(), String> {
        match self {
            Self::NewClient | Self::Restart => Ok(()),
            Self::DropCaches => {
                rustix::fs::sync();
                std::fs::write("/proc/sys/vm/drop_caches", "3")
                    .map_err(|error| format!("/proc/sys/vm/drop_caches: {error}"))
            }
            Self::Command(command) => {
                let status = Command::new("/bin/sh").arg("-c").arg(command).status();
                let status = status.map_err(|error| format!("{command}: {error}"))?;
                if status.success() { Ok(()) } else { Err(format!("`{command}` failed: {status}")) }
            }
        }
    }
}
