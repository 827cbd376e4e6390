//! `enfys bench honesty`: this bench against fio and Bonnie++.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::honesty::{Part, Settings, Verdict};
use bench::runner::ThisMachine;

use super::arguments::{HonestyArguments, HonestyPart};
use super::print;
use super::run::{INTERRUPTED, watch_signals};

/// Measures, and prints the comparison.
pub fn run(arguments: &HonestyArguments) -> Result<ExitCode, String> {
    let part = |part: &HonestyPart| match part {
        HonestyPart::Data => Part::Data,
        HonestyPart::Names => Part::Names,
        HonestyPart::Cpu => Part::Cpu,
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    let settings = Settings {
        directory: arguments.directory.clone(),
        file_bytes: arguments.file_size,
        duration: arguments.duration,
        rounds: arguments.rounds,
        threads: arguments.threads,
        files: arguments.files,
        parts: arguments.only.iter().map(part).collect(),
        is_warm: arguments.warm,
        interrupted: Arc::clone(&interrupted),
    };
    settings.check(&ThisMachine)?;
    watch_signals(Arc::clone(&interrupted))?;
    let report = match settings.run(&mut |what| eprintln!("{what}")) {
        Err(_) if interrupted.load(Ordering::Relaxed) => return Ok(ExitCode::from(INTERRUPTED)),
        done => done?,
    };
    if arguments.json {
        print(&serde_json::to_string(&report).map_err(|error| error.to_string())?)?;
    } else {
        print(report.to_string().trim_end())?;
    }
    let differs = report.verdicts().any(|verdict| verdict == Verdict::Differs);
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
