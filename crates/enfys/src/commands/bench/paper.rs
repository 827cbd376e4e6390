//! `enfys bench paper`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::papers::page::{self, Entry};
use bench::papers::{Figure, Scale, figures};
use bench::plan::Plan;
use bench::result::{RunResult, file};
use bench::runner::{Settings, run_plan};
use bench::targets::local::Starting;

use super::arguments::{PaperArguments, PaperScale};
use super::run::{INTERRUPTED, Progress, watch_signals};
use super::{print, write};

/// Name of the directory for runs on a local disk.
const LOCAL: &str = "enfys-paper-local";

/// Runs figures, judges their findings, and prints or writes the page.
pub fn run(arguments: &PaperArguments) -> Result<ExitCode, String> {
    let figures = figures(arguments.figure.as_deref())?;
    let scale = match (arguments.quick, arguments.scale) {
        (true, _) => Scale::Quick,
        (false, PaperScale::Normal) => Scale::Normal,
        (false, PaperScale::Full) => Scale::Full,
    };
    if arguments.list {
        return print(&listed(&figures, scale)?).map(|()| ExitCode::SUCCESS);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    watch_signals(Arc::clone(&interrupted))?;
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let scratch = arguments.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let local = local_directory(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let starting = Starting { program, scratch, tells_counters: false };
    let mut measured: Vec<(&Figure, Vec<RunResult>)> = Vec::new();
    for figure in figures {
        eprintln!("{}: {}", figure.name, figure.title);
        let Some(plan) = figure.plan(scale, &local).map_err(|errors| errors.join("\n  "))? else {
            measured.push((figure, Vec::new()));
            continue;
        };
        let settings = Settings {
            results: arguments.results.join(&plan.name),
            starting: starting.clone(),
            interrupted: Arc::clone(&interrupted),
            keeps_files: false,
            agents: None,
            record: None,
        };
        let mut progress = Progress::new(&plan);
        run_plan(&plan, &settings, &mut progress)?;
        progress.finish();
        if interrupted.load(Ordering::Relaxed) {
            eprintln!("interrupted: the same command continues");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        measured.push((figure, results_of(&plan, &settings.results)?));
    }
    // Empty, unless files could not be removed.
    let _ = std::fs::remove_dir(&local);
    let entries: Vec<Entry<'_>> = measured
        .iter()
        .map(|(figure, results)| Entry { figure, judgement: figure.judge(results), results })
        .collect();
    let mut text = String::new();
    page::write(&mut text, &entries, scale).map_err(|error| error.to_string())?;
    match &arguments.page {
        Some(path) => write(path, text.as_bytes())?,
        None => print(text.trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates the directory for runs on a local disk. It has the same path each time, since results are found by it.
fn local_directory(scratch: &Path) -> std::io::Result<PathBuf> {
    let path = scratch.canonicalize()?.join(LOCAL);
    std::fs::create_dir_all(&path).map(|()| path)
}

/// Returns the figures with the planned time of each.
fn listed(figures: &[&Figure], scale: Scale) -> Result<String, String> {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    let mut all = Duration::ZERO;
    let mut text = String::new();
    for figure in figures {
        let first = figure.first_with_these_runs(scale);
        let is_first = first == figure.name || figures.iter().all(|figure| figure.name != first);
        let time = figure.planned_time(scale).map_err(|errors| errors.join("\n  "))?;
        let planned = if is_first { clock(time) } else { format!("with {first}") };
        all += if is_first { time } else { Duration::ZERO };
        text.push_str(&format!("{:width$}  {planned:>17}  {}\n", figure.name, figure.title));
    }
    text.push_str(&format!(
        "{:width$}  {:>17}  planned on a machine that does nothing else",
        "all",
        clock(all)
    ));
    Ok(text)
}

/// Returns a time as minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Returns the results of a plan's runs; a directory may have those of other scales too.
fn results_of(plan: &Plan, directory: &Path) -> Result<Vec<RunResult>, String> {
    let ids: BTreeSet<String> = plan.runs().into_iter().map(|run| run.id).collect();
    let mut results = file::read_all(&[directory.to_owned()])?;
    results.retain(|result| ids.contains(&result.run.id));
    Ok(results)
}
