//! `enfys bench trace`.

use std::path::Path;
use std::process::ExitCode;

use bench::trace::{Summary, Trace, import};

use super::arguments::{ReplayArguments, RunArguments, TraceCommand};
use super::print;

/// Runs a command on a trace.
pub fn run(command: &TraceCommand) -> Result<ExitCode, String> {
    match command {
        TraceCommand::Show { trace } => show(trace),
        TraceCommand::Import { capture, trace } => import_capture(capture, trace.as_deref()),
        TraceCommand::Replay(arguments) => replay(arguments),
    }
}

/// Prints what could be read; a damaged trace is an error.
fn show(path: &Path) -> Result<ExitCode, String> {
    let trace = Trace::read(path)?;
    print(Summary::of(&trace).to_string().trim_end())?;
    Ok(if trace.damage.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Imports a capture, and prints what was found; a damaged capture is an error.
fn import_capture(capture: &Path, trace: Option<&Path>) -> Result<ExitCode, String> {
    let beside = capture.with_extension("trace");
    let trace = trace.unwrap_or(&beside);
    let imported = import(capture, trace)?;
    print(&format!("{imported}{}", trace.display()))?;
    Ok(if imported.damage.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the workload `replay` with as many clients and threads as the trace has.
fn replay(arguments: &ReplayArguments) -> Result<ExitCode, String> {
    let ReplayArguments { trace: path, speed, no_think, runs } = arguments;
    let trace = Trace::read(path)?;
    for why in trace.damage.iter().chain(&trace.incomplete) {
        eprintln!("warning: {}: {why}", path.display());
    }
    let (clients, threads) = trace.size();
    let set = vec![
        format!("trace={}", path.display()),
        format!("speed-percent={}", (speed * 100.0).round()),
        format!("think={}", !no_think),
    ];
    super::run::run(&RunArguments {
        what: "replay".to_owned(),
        set,
        threads: vec![threads],
        clients: vec![clients],
        duration: None,
        warm_up: None,
        record: None,
        agents: Vec::new(),
        agent_command: String::new(),
        runs: runs.clone(),
    })
}
