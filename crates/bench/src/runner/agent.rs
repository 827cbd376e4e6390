//! A run in a process of its own, at the client's end of a link.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::execute::{Access, Place, failed, measure, prepare};
use crate::link::namespace::SERVER;
use crate::link::system::die_with_this_thread;
use crate::plan::{Caches, Cold, Run};
use crate::result::{RunResult, file};
use crate::targets::local::{Starting, enfys_arguments, prepare_place, url, version};
use crate::targets::nfs::Server;
use crate::units::time_text;

/// The port of a server at its end of the link.
const PORT: u16 = 2049;
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
    server: String,
    /// The file with the server's process ID.
    pid_file: PathBuf,
    /// The directory that the server exports.
    export: PathBuf,
    is_prepared: bool,
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
    let place = Place {
        access: Access::Nfs(Server::resolve(&job.url, version)?),
        server_pid: pid,
        server_version: Some(version_of(&job)),
        options: job.options,
        export: Some(job.export),
        plan: job.plan,
        interrupted: Arc::default(),
    };
    let prepared = if job.is_prepared { Ok(()) } else { prepare(&job.run, &place) };
    let result = match prepared {
        Ok(()) => measure(&job.run, &place),
        Err(why) => Some(failed(&job.run, &place, why)),
    };
    result.map_or(Ok(()), |result| file::save(&job.results, &result).map(|_| ()))
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
    let is_prepared = server != "enfys-memory";
    if is_prepared {
        // In the directory itself, where a delay does not matter.
        let export = path.join("export");
        let local = Place {
            access: Access::Directory(export.clone()),
            server_pid: None,
            server_version: None,
            options: BTreeMap::new(),
            export: Some(export),
            plan: plan.to_owned(),
            interrupted: Arc::clone(interrupted),
        };
        prepare(run, &local)?;
    }
    make_cold(run)?;
    let delay = time_text(run.case.delay);
    let address = SocketAddr::from((SERVER, PORT));
    let job = Job {
        enfys_version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: plan.to_owned(),
        run: run.clone(),
        url: url(address),
        server: server.to_owned(),
        pid_file: path.join("pid"),
        export: path.join("export"),
        is_prepared,
        options: BTreeMap::from([("link".to_owned(), format!("packet link, round trip {delay}"))]),
        results: path.join("results"),
    };
    let job_path = path.join("job");
    let text = serde_json::to_vec(&job).map_err(|error| error.to_string())?;
    fs::write(&job_path, text).map_err(|error| format!("{}: {error}", job_path.display()))?;
    let mut command = link_command(&job, &job_path, path, starting, address);
    let Some(said) = wait(&mut command, interrupted)? else { return Ok(None) };
    let result = file::read(&job.results.join(format!("{}.json", run.id)));
    result.map(Some).map_err(|_| format!("the agent has no result: {said}"))
}

fn make_cold(run: &Run) -> Result<(), String> {
    match (&run.caches, &run.case.target.cold) {
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
    address: SocketAddr,
) -> Command {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let words: Vec<String> =
        enfys_arguments(&job.server, place, address).iter().map(|word| quoted(Path::new(word))).collect();
    let program = quoted(&starting.program);
    let log = quoted(&place.join("log"));
    let server =
        format!("echo $$ > {}; exec {program} {} >{log} 2>&1", quoted(&job.pid_file), words.join(" "));
    let mut command = Command::new(&starting.program);
    command.args(["bench", "link", "--delay", &time_text(job.run.case.delay)]);
    command.args([
        "--seed",
        &job.run.seed.to_string(),
        "--ready-port",
        &PORT.to_string(),
        "--server",
        &server,
    ]);
    command.arg("--").arg(&starting.program).args(["bench", "agent"]).arg(job_path);
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
