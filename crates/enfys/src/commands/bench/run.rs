//! `enfys bench list` and `enfys bench run`.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::plan::{Plan, PlanOptions, Run, WORKLOADS, Workload};
use bench::result::{Outcome, RunResult, file};
use bench::runner::{Agents, Observer, Settings, Summary, ThisMachine, run_plan};
use bench::targets::local::Starting;
use bench::units::time_text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::{ListArguments, RunArguments};
use super::{print, write};

/// Exit status after an interrupt, as shells report SIGINT.
pub(super) const INTERRUPTED: u8 = 130;
/// The progress: the run, and the time that the rest takes at least.
const TEMPLATE: &str = "{wide_bar} {pos}/{len} runs, {msg}";

/// Prints the workloads, or the parameters of one.
pub fn list(arguments: &ListArguments) -> Result<(), String> {
    let Some(name) = &arguments.workload else {
        let width = WORKLOADS.iter().map(|workload| workload.name.len()).max().unwrap_or(0);
        let lines = WORKLOADS.iter().map(|workload| format!("{:width$}  {}", workload.name, workload.about));
        return print(&lines.collect::<Vec<_>>().join("\n"));
    };
    let workload = WORKLOADS.iter().find(|workload| workload.name == name);
    let workload = workload.ok_or_else(|| format!("no workload `{name}`; `enfys bench list` shows all"))?;
    print(&parameters(workload))
}

fn parameters(workload: &Workload) -> String {
    let width = |cell: fn(&bench::plan::Parameter) -> &str| {
        workload.parameters.iter().map(|parameter| cell(parameter).chars().count()).max().unwrap_or(0)
    };
    let (name, default) = (width(|parameter| parameter.name), width(|parameter| parameter.default));
    let mut text = format!("{}: {}", workload.name, workload.about);
    for parameter in workload.parameters {
        text.push_str(&format!(
            "\n  {:name$}  {:default$}  {}",
            parameter.name, parameter.default, parameter.about
        ));
    }
    text
}

/// Runs a plan or a workload.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, String> {
    let plan = plan(arguments)?;
    let missing = plan.check(&ThisMachine);
    if !missing.is_empty() {
        return Err(format!("the plan cannot run here:\n  {}", missing.join("\n  ")));
    }
    if let Some(advice) = plan.advice() {
        eprintln!("note: {advice}");
    }
    if arguments.runs.dry_run {
        let lines = plan.runs().into_iter().map(|run| run.id);
        return print(&lines.collect::<Vec<_>>().join("\n")).map(|()| ExitCode::SUCCESS);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    watch_signals(Arc::clone(&interrupted))?;
    let results = arguments.runs.results.clone().unwrap_or_else(|| Path::new("results").join(&plan.name));
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let scratch = arguments.runs.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let settings = Settings {
        results: results.clone(),
        starting: Starting { program, scratch, tells_counters: arguments.runs.metrics.is_some() },
        interrupted,
        keeps_files: arguments.runs.keep_files,
        agents: (!arguments.agents.is_empty())
            .then(|| Agents { hosts: arguments.agents.clone(), command: arguments.agent_command.clone() }),
        record: arguments.record.clone(),
    };
    let mut progress = Progress::new(&plan);
    let summary = run_plan(&plan, &settings, &mut progress)?;
    progress.finish();
    if let Some(path) = &arguments.runs.metrics {
        write_counters(path, &plan, &results)?;
    }
    conclude(&summary, &results)
}

/// Writes the growth of the servers' counters in the runs of a plan.
fn write_counters(path: &Path, plan: &Plan, results: &Path) -> Result<(), String> {
    let ids: BTreeSet<String> = plan.runs().into_iter().map(|run| run.id).collect();
    let mut text = String::new();
    for result in file::read_all(&[results.to_owned()])? {
        if let Some(counters) = result.server_counters.filter(|_| ids.contains(&result.run.id)) {
            if let Some(difference) = counters.difference() {
                eprintln!("warning: {}: {difference}", result.run.id);
            }
            let line = serde_json::json!({ "run": result.run.id, "counters": counters });
            text.push_str(&format!("{line}\n"));
        }
    }
    if path == Path::new("-") { print(text.trim_end()) } else { write(path, text.as_bytes()) }
}

fn conclude(summary: &Summary, results: &Path) -> Result<ExitCode, String> {
    let Summary { kept, complete, failed, is_interrupted } = *summary;
    let shown = results.display();
    eprintln!(
        "{complete} run(s) complete, {kept} from before, {failed} failed; `enfys bench report {shown}` shows them"
    );
    if is_interrupted {
        eprintln!("interrupted: the same command continues");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the plan file, or creates a plan from options.
fn plan(arguments: &RunArguments) -> Result<Plan, String> {
    let together = |errors: Vec<String>| match &errors[..] {
        [one] => one.clone(),
        all => format!("{} errors:\n  {}", all.len(), all.join("\n  ")),
    };
    let is_workload = WORKLOADS.iter().any(|workload| workload.name == arguments.what);
    if is_workload || !arguments.what.contains(['.', '/']) {
        return options(arguments).plan().map_err(together);
    }
    let path = PathBuf::from(&arguments.what);
    let no_options = PlanOptions { workload: arguments.what.clone(), ..PlanOptions::default() };
    if options(arguments) != no_options {
        return Err("options that describe a plan need a workload, not a plan file".to_owned());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Plan::parse(&arguments.what, &text).map_err(together)
}

fn options(arguments: &RunArguments) -> PlanOptions {
    PlanOptions {
        workload: arguments.what.clone(),
        targets: arguments.runs.target.clone(),
        set: arguments.set.clone(),
        versions: arguments.runs.nfs.clone(),
        options: arguments.runs.options.clone(),
        delays: arguments.runs.delay.clone(),
        threads: arguments.threads.clone(),
        clients: arguments.clients.clone(),
        rounds: arguments.runs.rounds,
        duration: arguments.duration.clone(),
        warm_up: arguments.warm_up.clone(),
        seed: arguments.runs.seed,
        scrape: arguments.runs.scrape.clone(),
        cold: arguments.runs.cold.clone(),
    }
}

/// Sets the flag at the first SIGINT or SIGTERM; a second one ends the process.
pub(super) fn watch_signals(interrupted: Arc<AtomicBool>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    let watch = move || {
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            loop {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
                if interrupted.swap(true, Ordering::Relaxed) {
                    std::process::exit(i32::from(INTERRUPTED));
                }
                eprintln!("interrupted: the run in progress is dropped");
            }
        });
    };
    let started = std::thread::Builder::new().name("signals".to_owned()).spawn(watch);
    started.map(|_| ()).map_err(|error| format!("cannot start a thread: {error}"))
}

/// A bar on a terminal, else one line for each run.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// Minimum time of one run.
    each: Duration,
    number: usize,
    of: usize,
}

impl Progress {
    pub(super) fn new(plan: &Plan) -> Self {
        let count = u32::try_from(plan.runs().len()).unwrap_or(u32::MAX).max(1);
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(count.into()), ProgressDrawTarget::stderr());
            bar.set_style(
                ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Self { bar, each: plan.least_time() / count, number: 0, of: 0 }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn begins(&mut self, run: &Run, number: usize, of: usize) {
        (self.number, self.of) = (number, of);
        let Some(bar) = &self.bar else { return };
        let left = self.each * u32::try_from(of + 1 - number).unwrap_or(u32::MAX);
        let left = Duration::from_secs(left.as_secs());
        bar.set_length(of as u64);
        bar.set_position(number as u64 - 1);
        bar.set_message(format!("at least {} left: {}", time_text(left), run.case.label()));
    }

    fn ended(&mut self, result: &RunResult) {
        let (number, of) = (self.number, self.of);
        let said = match (&result.outcome, result.throughput()) {
            (Outcome::Failed(why), _) => format!("failed: {why}"),
            (_, Some((operations, bytes))) if bytes > 0.0 => {
                format!("{operations:.1} operations/s, {:.1} MB/s", bytes / 1e6)
            }
            (_, Some((operations, _))) => format!("{operations:.1} operations/s"),
            (_, None) => String::new(),
        };
        let line = format!("[{number}/{of}] {}: {said}", result.run.id);
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    fn warn(&mut self, why: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("warning: {why}")),
            None => eprintln!("warning: {why}"),
        }
    }
}
