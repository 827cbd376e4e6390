//! `enfys bench`: from the command line to the library, and the library's values to the terminal.

mod arguments;
mod disk;
mod honesty;
mod paper;
mod run;
mod setup;
mod simulate;
mod trace;

use std::io::{self, Write as _};
use std::net::ToSocketAddrs as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

use bench::hashcast::{self, Simulation};
use bench::link::{self, Commands, Settings, measure, proxied};
use bench::report;
use bench::result::{RunResult, csv, file, fio};
use net::modelled_disk::{Disk, Syncs};
use net::proxy::DirectionCounts;

pub use arguments::BenchCommand;
use arguments::{CompareArguments, Format, HashcastArguments, LinkArguments, ReportArguments};

impl BenchCommand {
    /// Returns whether output and errors are JSON.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Hashcast(arguments) => arguments.json,
            Self::Simulate(arguments) => arguments.json,
            Self::Honesty(arguments) => arguments.json,
            Self::Report(arguments) => arguments.json || arguments.format == Format::Json,
            Self::Link(_)
            | Self::Compare(_)
            | Self::List(_)
            | Self::Run(_)
            | Self::Paper(_)
            | Self::Trace(_)
            | Self::Setup
            | Self::Agent { .. }
            | Self::Disk { .. } => false,
        }
    }
}

/// Runs a command.
pub fn run(command: &BenchCommand) -> Result<ExitCode, String> {
    match command {
        BenchCommand::Hashcast(arguments) => hashcast(arguments).map(|()| ExitCode::SUCCESS),
        BenchCommand::Link(arguments) => link(arguments),
        BenchCommand::List(arguments) => run::list(arguments).map(|()| ExitCode::SUCCESS),
        BenchCommand::Run(arguments) => run::run(arguments),
        BenchCommand::Simulate(arguments) => simulate::run(arguments),
        BenchCommand::Trace(command) => trace::run(command),
        BenchCommand::Paper(arguments) => paper::run(arguments),
        BenchCommand::Honesty(arguments) => honesty::run(arguments),
        BenchCommand::Setup => setup::run().map(|()| ExitCode::SUCCESS),
        BenchCommand::Agent { job: Some(job) } => bench::runner::run_agent(job).map(|()| ExitCode::SUCCESS),
        BenchCommand::Agent { job: None } => {
            let serve = bench::runner::serve(io::BufReader::new(io::stdin()), io::stdout());
            serve.map(|()| ExitCode::SUCCESS)
        }
        BenchCommand::Disk { listen, metrics, striped, gather, journal } => {
            let modelled = if *striped { Disk::FourStriped } else { Disk::One };
            let syncs = if *gather { Syncs::Gathered } else { Syncs::Each };
            let served = disk::run(*listen, *metrics, modelled, syncs, *journal);
            served.map(|()| ExitCode::SUCCESS).map_err(|error| format!("bench disk: {error}"))
        }
        BenchCommand::Report(arguments) => report(arguments).map(|()| ExitCode::SUCCESS),
        BenchCommand::Compare(arguments) => compare(arguments).map(|()| ExitCode::SUCCESS),
    }
}

fn hashcast(arguments: &HashcastArguments) -> Result<(), String> {
    let base = if arguments.paper { Simulation::papers() } else { Simulation::default() };
    let mut simulation = Simulation {
        seed: arguments.seed,
        bytes_per_second: arguments.rate as f64 / 8.0,
        packet_bytes: arguments.packet,
        window_bytes: arguments.window,
        round_trip_seconds: arguments.round_trip.as_secs_f64(),
        interval_seconds: arguments.interval.as_secs_f64(),
        duration_seconds: arguments.duration.as_secs_f64(),
        stall_seconds: arguments.stall.as_secs_f64(),
        ..base
    };
    if !arguments.paper {
        simulation.flows = arguments.flows;
        simulation.queues = arguments.queues;
        simulation.stall_every_seconds = arguments.stall_every.as_secs_f64();
    }
    let every = arguments.every.as_secs() as usize;
    if every == 0 {
        return Err("--every: at least 1s".to_owned());
    }
    let made = hashcast::Report::of(&simulation, arguments.trials)?;
    if let Some(path) = &arguments.html {
        write(path, report::html::of_hashcast(&made, every, &command_line())?.as_bytes())?;
    }
    if arguments.json {
        return print(&serde_json::to_string(&made).map_err(|error| error.to_string())?);
    }
    let mut text = String::new();
    hashcast::write_report(&mut text, &made, every).map_err(|error| error.to_string())?;
    print(text.trim_end())
}

fn link(arguments: &LinkArguments) -> Result<ExitCode, String> {
    let settings = Settings {
        delay: arguments.delay,
        jitter: arguments.jitter,
        bits_per_second: arguments.rate,
        loss: arguments.loss,
        reorder: arguments.reorder,
        queue_packets: arguments.queue,
        outages: arguments.outage.clone(),
        mtu: arguments.mtu,
        seed: arguments.seed,
    };
    settings.check()?;
    if arguments.measure {
        let measured = measure::measure(&settings).map_err(|error| error.to_string())?;
        if arguments.json {
            eprintln!("{}", serde_json::to_string(&measured).map_err(|error| error.to_string())?);
        }
        print(&measured.to_string())?;
        let is_right = measured.round_trip_is_right()
            && measured.rate_is_right() != Some(false)
            && measured.loss_is_right();
        return Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if let Some(target) = &arguments.proxy {
        return proxied_link(&settings, arguments, target);
    }
    let commands = Commands {
        server: arguments.server.clone(),
        ready_port: arguments.ready_port,
        client: arguments.client.clone(),
        tcp_buffer_bytes: arguments.tcp_buffer,
    };
    let finished = link::run(&settings, &commands).map_err(|error| error.to_string())?;
    if arguments.json {
        eprintln!("{}", serde_json::to_string(&finished.carried).map_err(|error| error.to_string())?);
    } else {
        eprintln!("link: {settings}\n{}", finished.carried);
    }
    Ok(exit_code(finished.client))
}

/// Runs the client over a proxy.
fn proxied_link(settings: &Settings, arguments: &LinkArguments, target: &str) -> Result<ExitCode, String> {
    let targets = target.to_socket_addrs().map_err(|error| format!("--proxy {target}: {error}"))?.collect();
    let proxied = proxied::run(settings, &arguments.client, targets).map_err(|error| error.to_string())?;
    if arguments.json {
        let proxied::Proxied { statistics, .. } = &proxied;
        let direction = |counts: &DirectionCounts| serde_json::json!({ "bytes": counts.bytes, "lost_segments": counts.lost_segments });
        let line = serde_json::json!({
            "connections": statistics.connections,
            "up": direction(&statistics.up),
            "down": direction(&statistics.down),
            "cannot_show": proxied::CANNOT_SHOW,
        });
        eprintln!("{line}");
    } else {
        eprintln!("proxy to {target}: {settings}\n{proxied}");
    }
    Ok(exit_code(proxied.client))
}

/// Returns a program's status as a shell reports it: 128 and the signal's number.
fn exit_code(status: ExitStatus) -> ExitCode {
    let status = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}

fn report(arguments: &ReportArguments) -> Result<(), String> {
    let results = file::read_all(&arguments.results)?;
    if let Some(path) = &arguments.html {
        write(path, report::html::of_results(&results)?.as_bytes())?;
    }
    #[cfg(feature = "png")]
    if let Some(directory) = &arguments.png {
        write_figures(directory, &results)?;
    }
    let format = match arguments {
        ReportArguments { json: true, .. } => Format::Json,
        ReportArguments { csv: true, .. } => Format::Csv,
        other => other.format,
    };
    print(formatted(format, &results)?.trim_end())
}

fn formatted(format: Format, results: &[RunResult]) -> Result<String, String> {
    let mut text = String::new();
    match format {
        Format::Table => report::write_table(&mut text, results).map_err(|error| error.to_string())?,
        Format::Csv => csv::write(&mut text, results).map_err(|error| error.to_string())?,
        Format::Json => text = serde_json::to_string(results).map_err(|error| error.to_string())?,
        Format::FioJson => text = format!("{:#}", fio::export(results)),
    }
    Ok(text)
}

#[cfg(feature = "png")]
fn write_figures(directory: &Path, results: &[RunResult]) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    for (number, figure) in report::figure::of_results(results).iter().enumerate() {
        write(&directory.join(format!("figure-{}.png", number + 1)), &report::png::render(figure)?)?;
    }
    Ok(())
}

fn compare(arguments: &CompareArguments) -> Result<(), String> {
    let read = |path: &Path| file::read_all(&[path.to_owned()]);
    let comparison = report::compare(&read(&arguments.before)?, &read(&arguments.after)?)?;
    print(comparison.to_string().trim_end())?;
    let Some(part) = arguments.fail_if_slower else { return Ok(()) };
    let slower = comparison.slower(part);
    if slower.is_empty() {
        return Ok(());
    }
    Err(format!("slower by at least {} %:\n  {}", part * 100.0, slower.join("\n  ")))
}

/// Returns the command line, to repeat the run.
fn command_line() -> String {
    let quoted = |word: String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=%,+".contains(c);
        if word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    std::iter::once("enfys".to_owned())
        .chain(std::env::args().skip(1).map(quoted))
        .collect::<Vec<_>>()
        .join(" ")
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    std::fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}

/// Prints to standard output; a closed pipe is not an error.
fn print(text: &str) -> Result<(), String> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}
