//! A run in a process of its own, at the client's end of a link.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::assemble::failed;
use super::execute::{Access, Place, measure, prepare};
use crate::link::namespace::SERVER;
use crate::link::system::die_with_this_thread;
use crate::plan::{Caches, Cold, NfsVersion, Run};
use crate::result::{RunResult, file};
use crate::targets::local::{
    AtLink, GUEST_NETWORK, Launch, Starting, accepts, end_of_log, has_directory, needs_link, prepare_place,
    version,
};
use crate::targets::nfs::Server;
use crate::units::time_text;

/// Time until a server that the link does not wait for accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two checks of the process.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of a failed link's messages that are shown.
const MESSAGES: usize = 3;

/// The task of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    /// Version of the program that wrote this; an agent of another refuses it.
    enfys_version: String,
    plan: String,
    run: Run,
    url: String,
    /// Its addresses, which the agent waits for.
    addresses: Vec<SocketAddr>,
    server: String,
    /// The file with the server's process ID.
    pid_file: PathBuf,
    /// The directory that the server exports.
    export: PathBuf,
    is_prepared: bool,
    /// Where the server's counters are.
    metrics: Option<String>,
    options: BTreeMap<String, String>,
    results: PathBuf,
}

/// Does the job in a file, and saves its result.
///
/// # Errors
/// If the job cannot be read, or the result not be saved.
pub fn run_agent(path: &Path) -> Result<(), String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let text = fs::read(path).map_err(|error| wrong(&error))?;
    let job: Job = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    let own = env!("CARGO_PKG_VERSION");
    if job.enfys_version != own {
        return Err(wrong(&format_args!("written by enfys {}, this is {own}", job.enfys_version)));
    }
    let pid = fs::read_to_string(&job.pid_file).ok().and_then(|text| text.trim().parse().ok());
    let version = job.run.case.version.ok_or("a target without a version")?;
    let server = Server::resolve(&job.url, &job.run.case.options, version)?;
    let mut options = job.options.clone();
    options.extend(server.options().described());
    let place = Place {
        access: Access::Nfs(Box::new(server)),
        server_pid: pid,
        server_version: Some(version_of(&job)),
        options,
        metrics: job.metrics,
        export: Some(job.export),
        plan: job.plan,
        recording: None,
        interrupted: Arc::default(),
    };
    let ready = job.addresses.iter().try_for_each(|address| await_server(*address));
    let prepared = if job.is_prepared { ready } else { ready.and_then(|()| prepare(&job.run, &place)) };
    let result = match prepared {
        Ok(()) => measure(&job.run, &place),
        Err(why) => Some(failed(&job.run, &place, why)),
    };
    result.map_or(Ok(()), |result| file::save(&job.results, &result).map(|_| ()))
}

/// Waits until the server accepts connections.
fn await_server(address: SocketAddr) -> Result<(), String> {
    let deadline = Instant::now() + START_TIMEOUT;
    while !accepts(address) {
        if Instant::now() >= deadline {
            return Err(format!("no server at {address} after {} s", START_TIMEOUT.as_secs()));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn version_of(job: &Job) -> String {
    version(&job.server)
}

/// Does a run with a server that is started at the other end of a packet link; `None` if it was interrupted.
///
/// # Errors
/// Why the link cannot be made, or the agent has no result.
pub(super) fn run_over_link(
    run: &Run,
    server: &str,
    plan: &str,
    starting: &Starting,
    interrupted: &Arc<AtomicBool>,
) -> Result<Option<RunResult>, String> {
    let place = tempfile::Builder::new().prefix("enfys-bench-").tempdir_in(&starting.scratch);
    let place = place.map_err(|error| format!("{}: {error}", starting.scratch.display()))?;
    let path = place.path();
    prepare_place(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let is_prepared = has_directory(server);
    if is_prepared {
        // In the directory itself, where a delay does not matter.
        let export = path.join("export");
        let local = Place::new(Access::Directory(export.clone()), plan, Arc::clone(interrupted));
        let local = Place { export: Some(export), ..local };
        prepare(run, &local)?;
    }
    make_cold(run, is_prepared)?;
    let is_version_4 = run.case.version.is_none_or(|version| version >= NfsVersion::V40);
    let AtLink { launch, address, url } = AtLink::prepare(server, starting, path, SERVER, is_version_4)?;
    let delay = time_text(run.case.delay);
    let job = Job {
        enfys_version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: plan.to_owned(),
        run: run.clone(),
        url,
        addresses: vec![address.server, (address.server.ip(), address.mount_port).into()],
        server: server.to_owned(),
        pid_file: path.join("pid"),
        export: path.join("export"),
        is_prepared,
        metrics: address.metrics.map(|address| address.to_string()),
        options: BTreeMap::from([(
            "link".to_owned(),
            format!("packet link, round trip {delay}{}", run.case.link()),
        )]),
        results: path.join("results"),
    };
    let job_path = path.join("job");
    let text = serde_json::to_vec(&job).map_err(|error| error.to_string())?;
    fs::write(&job_path, text).map_err(|error| format!("{}: {error}", job_path.display()))?;
    let mut command = link_command(&job, &job_path, path, starting, &launch, address.server.port());
    let Some(said) = wait(&mut command, interrupted)? else { return Ok(None) };
    let result = file::read(&job.results.join(format!("{}.json", run.id)));
    result.map(Some).map_err(|_| format!("the agent has no result: {said}{}", end_of_log(path)))
}

fn make_cold(run: &Run, is_prepared: bool) -> Result<(), String> {
    match (&run.caches, &run.case.target.cold) {
        (Caches::Cold, Some(Cold::Restart)) if !is_prepared => {
            Err("cold = \"restart\": the server makes its files after its start".to_owned())
        }
        // The server and the clients are new.
        (Caches::Warm, _) | (_, None | Some(Cold::NewClient | Cold::Restart)) => Ok(()),
        (Caches::Cold, Some(cold)) => cold.apply(),
    }
}

fn link_command(
    job: &Job,
    job_path: &Path,
    place: &Path,
    starting: &Starting,
    launch: &Launch,
    ready_port: u16,
) -> Command {
    let quoted = |word: &OsStr| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"));
    let words: Vec<String> = launch.arguments.iter().map(|word| quoted(word)).collect();
    let (program, log) = (quoted(launch.program.as_os_str()), quoted(place.join("log").as_os_str()));
    let pid_file = quoted(job.pid_file.as_os_str());
    let server = format!("echo $$ > {pid_file}; exec {program} {} >{log} 2>&1", words.join(" "));
    let mut command = Command::new(&starting.program);
    command.args(["bench", "link", "--delay", &time_text(job.run.case.delay)]);
    command.args(job.run.case.link().arguments());
    command.args(["--seed", &job.run.seed.to_string(), "--server", &server]);
    if needs_link(&job.server) {
        // A machine behind the server's end: the agent waits for it.
        let route = format!("ip route add {GUEST_NETWORK} via {SERVER} && exec \"$@\"");
        command.args(["--", "/bin/sh", "-c", &route, "sh"]);
    } else {
        command.args(["--ready-port", &ready_port.to_string(), "--"]);
    }
    command.arg(&starting.program).args(["bench", "agent"]).arg(job_path);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Runs a command until it ends, and returns the end of its output; `None` if it was interrupted.
fn wait(command: &mut Command, interrupted: &AtomicBool) -> Result<Option<String>, String> {
    let said = tempfile::tempfile().map_err(|error| error.to_string())?;
    command.stderr(said.try_clone().map_err(|error| error.to_string())?);
    std::os::unix::process::CommandExt::process_group(command, 0);
    die_with_this_thread(command);
    let mut child =
        command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    while matches!(child.try_wait(), Ok(None)) {
        if interrupted.load(Ordering::Relaxed) {
            end(&mut child);
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(Some(last_lines(said)))
}

fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

fn last_lines(mut file: fs::File) -> String {
    use std::io::{Read as _, Seek as _};
    let mut text = String::new();
    if file.rewind().and_then(|()| file.read_to_string(&mut text)).is_err() {
        return "nothing".to_owned();
    }
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(MESSAGES)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanOptions;

    #[test]
    fn a_job_of_another_version_is_refused() {
        let options = PlanOptions {
            workload: "create".to_owned(),
            targets: vec!["local:enfys-memory".to_owned()],
            versions: vec!["4.1".to_owned()],
            ..PlanOptions::default()
        };
        let directory = tempfile::tempdir().unwrap();
        let job = Job {
            enfys_version: "0.0.1".to_owned(),
            plan: "test".to_owned(),
            run: options.plan().unwrap().runs().remove(0),
            url: "nfs://127.0.0.1/export".to_owned(),
            addresses: Vec::new(),
            server: "enfys-memory".to_owned(),
            pid_file: PathBuf::new(),
            export: PathBuf::new(),
            is_prepared: false,
            metrics: None,
            options: BTreeMap::new(),
            results: directory.path().to_owned(),
        };
        let path = directory.path().join("job");
        fs::write(&path, serde_json::to_vec(&job).unwrap()).unwrap();
        let why = run_agent(&path).unwrap_err();
        assert!(why.contains("job: written by enfys 0.0.1, this is "), "{why}");
        fs::write(&path, "{").unwrap();
        assert!(run_agent(&path).unwrap_err().contains("job: EOF"));
    }
}
