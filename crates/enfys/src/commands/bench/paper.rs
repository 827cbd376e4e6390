//! `enfys bench paper`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::papers::page::{self, Entry};
use bench::papers::{Figure, Scale, figures};
use bench::plan::Plan;
use bench::result::{RunResult, file};
use bench::runner::{Settings, run_plan};
use bench::targets::local::Starting;

use super::arguments::{PaperArguments, PaperScale};
use super::run::{INTERRUPTED, Progress, watch_signals};
use super::{print, write};

/// Runs figures, judges their findings, and prints or writes the page.
pub fn run(arguments: &PaperArguments) -> Result<ExitCode, String> {
    let figures = figures(arguments.figure.as_deref())?;
    if arguments.list {
        let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
        let lines = figures.iter().map(|figure| format!("{:width$}  {}", figure.name, figure.title));
        return print(&lines.collect::<Vec<_>>().join("\n")).map(|()| ExitCode::SUCCESS);
    }
    let scale = match (arguments.quick, arguments.scale) {
        (true, _) => Scale::Quick,
        (false, PaperScale::Normal) => Scale::Normal,
        (false, PaperScale::Full) => Scale::Full,
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    watch_signals(Arc::clone(&interrupted))?;
    let program = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let scratch = arguments.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let starting = Starting { program, scratch, tells_counters: false };
    let mut measured: Vec<(&Figure, Vec<RunResult>)> = Vec::new();
    for figure in figures {
        let plan = figure.plan(scale).map_err(|errors| errors.join("\n  "))?;
        let settings = Settings {
            results: arguments.results.join(&plan.name),
            starting: starting.clone(),
            interrupted: Arc::clone(&interrupted),
            keeps_files: false,
            agents: None,
            record: None,
        };
        eprintln!("{}: {}", figure.name, figure.title);
        let mut progress = Progress::new(&plan);
        run_plan(&plan, &settings, &mut progress)?;
        progress.finish();
        if interrupted.load(Ordering::Relaxed) {
            eprintln!("interrupted: the same command continues");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        measured.push((figure, results_of(&plan, &settings.results)?));
    }
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

/// Returns the results of a plan's runs; a directory may have those of other scales too.
fn results_of(plan: &Plan, directory: &Path) -> Result<Vec<RunResult>, String> {
    let ids: BTreeSet<String> = plan.runs().into_iter().map(|run| run.id).collect();
    let mut results = file::read_all(&[directory.to_owned()])?;
    results.retain(|result| ids.contains(&result.run.id));
    Ok(results)
}
