//! `cargo xtask kernel`: a real Linux kernel mounts the server, and real programs run on the mount.
//!
//! The kernel is Debian's user-mode Linux. Each combination of protocol version, export mode and back end gets
//! namespaces of its own (network, mounts, processes), in which this program runs once more (`inside`),
//! starts the server, boots the guest and lets it run every script of `tests/kernel/guest`. A combination that takes long is
//! given to several guests (`portion`).

mod channel;
mod guest;
mod inside;
mod matrix;
mod portion;
mod script;
mod server;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::report::{Outcome, Tally, workspace_root};
use crate::setup::{has_program, is_root};
use crate::tools::TOOLS;
use matrix::{Backend, Combination, Export, Version};
use portion::Portion;
use script::Script;
use server::Kind;

/// Options of `cargo xtask kernel`. Those that select a combination may be left out: then all are run.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Options {
    /// Only this protocol version
    #[arg(long)]
    version: Option<Version>,
    /// Only this export mode
    #[arg(long)]
    export: Option<Export>,
    /// Only this back end
    #[arg(long)]
    backend: Option<Backend>,
    /// Only this test (may be given more than once)
    #[arg(long = "test", value_name = "NAME")]
    tests: Vec<String>,
    /// Print the tests and the combinations; run nothing
    #[arg(long)]
    list: bool,
    /// A server's command line instead of enfys: {dir} {space} {quota} are the exported directories, {state} one for its state; it must serve them as /export /space /quota on 10.99.0.1:2049
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Which server to test, where --server is not given
    #[arg(long, default_value = "enfys")]
    server_kind: Kind,
    /// Port of the server's MOUNT program, where it is not the NFS port
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
    /// Guests at once [default: two a core, 4 at most, where there is memory for them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: Option<u8>,
    /// Keep the working directory (exports, logs) of combinations that passed, too
    #[arg(long)]
    keep: bool,
    /// Run the scripts that must fail, to see that a failure is noticed
    #[arg(long)]
    selfcheck: bool,
    /// Run the scripts of foreign suites that are no packages; DIR is where the suite is built
    #[arg(long, value_name = "DIR", conflicts_with = "selfcheck", value_parser = absolute)]
    suite: Option<PathBuf>,
    /// Called by itself, inside the namespaces of one combination
    #[arg(long, hide = true)]
    inside: bool,
    /// Which of the combination's guests this is, inside
    #[arg(long, hide = true, default_value_t = 0)]
    portion: u8,
    /// Which of the guests at once this is, inside
    #[arg(long, hide = true, default_value_t = 0)]
    worker: u8,
}

/// A guest waits for half of its time: for the server's disk, for a killed server, for what a test has to wait for.
const JOBS_PER_CORE: usize = 2;
/// More at once have not been tried: what waits for somebody else's work waits too long for it some day.
const JOBS_DEFAULT_MAX: usize = 4;
/// What a guest has in memory, with its server and what both read and write of this machine's files.
const JOB_MEMORY_KIB: usize = 1536 << 10;

impl Options {
    fn jobs(&self) -> usize {
        self.jobs.map_or_else(jobs_default, usize::from)
    }

    /// Whether the server under test is this project's, with the state directory that the tests know of.
    fn serves_enfys(&self) -> bool {
        self.server.is_none() && self.server_kind == Kind::Enfys
    }

    /// The directory of the scripts to run.
    fn scripts_kind(&self) -> &'static str {
        match (self.selfcheck, &self.suite) {
            (true, _) => "selfcheck",
            (false, Some(_)) => "foreign",
            (false, None) => "guest",
        }
    }

    /// Prints the closing line, except inside, where it would be one of several.
    pub(crate) fn print(&self, tally: &Tally) {
        if !self.inside && !self.list {
            tally.print();
        }
    }
}

fn jobs_default() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let memory_kib = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_available_kib(&text));
    let room = memory_kib.map_or(1, |kib| kib / JOB_MEMORY_KIB);
    (cores * JOBS_PER_CORE).min(JOBS_DEFAULT_MAX).min(room).max(1)
}

/// Of /proc/meminfo.
fn memory_available_kib(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The guest has another working directory.
fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Runs all chosen tests in all chosen combinations.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.list {
        list(&chosen_scripts(options)?, &chosen_combinations(options));
        return Ok(Tally::default());
    }
    if options.inside {
        let combinations = chosen_combinations(options);
        let combination = combinations.first().ok_or("no such combination")?;
        return inside::run(options, combination, &chosen_scripts(options)?);
    }
    run_together(std::slice::from_ref(options))
}

/// The kernel tests as the test ladder runs them: the full matrix, and the self-check.
pub(crate) fn run_rung() -> Outcome {
    run_together(&[Options::default(), Options { selfcheck: true, ..Options::default() }])
}

/// Runs what each of these chooses, all beside each other; the first says how many at once.
fn run_together(choices: &[Options]) -> Outcome {
    let mut tally = Tally::default();
    let mut portions = Vec::new();
    for options in choices {
        let scripts = chosen_scripts(options)?;
        let chosen = chosen_combinations(options)
            .into_iter()
            .flat_map(|it| portion::of_combination(options, it, &scripts));
        match missing(options, &scripts) {
            Some(why) => {
                let tests = chosen.map(|portion| portion.options.tests.len()).sum::<usize>();
                tally.skip(tests as u64, "kernel tests", &why);
            }
            None => portions.extend(chosen),
        }
    }
    let Some(options) = choices.first().filter(|_| !portions.is_empty()) else {
        return Ok(tally);
    };
    build(options)?;
    portion::longest_first(&mut portions);
    tally += run_all(options.jobs(), &portions);
    Ok(tally)
}

fn chosen_combinations(options: &Options) -> Vec<Combination> {
    Combination::all().filter(|it| is_chosen(options, it)).collect()
}

fn is_chosen(options: &Options, combination: &Combination) -> bool {
    // One combination shows whether failures are noticed.
    let (version, export, backend) = match options.selfcheck {
        true => (Some(Version::V3), Some(Export::Async), Some(Backend::Local)),
        false => (options.version, options.export, options.backend),
    };
    // The kernel's own server is in the guest's memory, whatever is asked for.
    let backend = if options.server_kind == Kind::Knfsd { Some(Backend::Memory) } else { backend };
    version.is_none_or(|it| it == combination.version)
        && export.is_none_or(|it| it == combination.export)
        && backend.is_none_or(|it| it == combination.backend)
}

fn chosen_scripts(options: &Options) -> Result<Vec<Script>, String> {
    let mut scripts = Script::all(&scripts_dir().join(options.scripts_kind()))?;
    if let Some(unknown) =
        options.tests.iter().find(|name| scripts.iter().all(|script| script.name != **name))
    {
        return Err(format!("no kernel test is named {unknown}; see cargo xtask kernel --list"));
    }
    scripts.retain(|script| options.tests.is_empty() || options.tests.contains(&script.name));
    Ok(scripts)
}

fn scripts_dir() -> PathBuf {
    workspace_root().join("tests/kernel")
}

fn list(scripts: &[Script], combinations: &[Combination]) {
    for script in scripts {
        let runs_in = combinations.iter().filter(|it| script.runs_in(it)).count();
        println!("{:<14} {} ({runs_in} combinations)", script.name, script.title);
    }
    for combination in combinations {
        println!("{combination}");
    }
}

/// Why this machine cannot run kernel tests; nothing where it can.
fn missing(options: &Options, scripts: &[Script]) -> Option<String> {
    if !is_root() {
        return Some("needs root for network namespaces and for files of other owners".into());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("needs /dev/net/tun".into());
    }
    let programs = [
        ("linux.uml", "user-mode-linux"),
        ("modprobe", "kmod"),
        ("ip", "iproute2"),
        ("mount.nfs", "nfs-common"),
        ("mkfs.btrfs", "btrfs-progs"),
        ("sqlite3", "sqlite3"),
        ("git", "git"),
        ("make", "make"),
        ("gcc", "gcc"),
        ("setfattr", "attr"),
        ("setfacl", "acl"),
        ("dumpcap", "tshark"),
        ("tshark", "tshark"),
        ("rpc.gssd", "nfs-common"),
        ("krb5kdc", "krb5-kdc"),
        ("kadmin.local", "krb5-admin-server"),
        ("kinit", "krb5-user"),
        ("krb5-config", "libkrb5-dev"),
    ];
    if let Some((program, package)) = programs.iter().find(|(program, _)| !has_program(program)) {
        return Some(format!("needs {program} of the package {package}; run cargo xtask setup"));
    }
    // Each is what the script of its name runs, and those that are wrong on purpose.
    let is_wanted = |name: &str| options.selfcheck || scripts.iter().any(|script| script.name == name);
    let tool = TOOLS.iter().find(|tool| is_wanted(tool.name) && !tool.is_installed())?;
    Some(format!("needs {} of crates.io; run cargo xtask setup", tool.name))
}

/// Builds the server in its release profile, and the program that the scripts use.
fn build(options: &Options) -> Result<(), String> {
    let mut packages = vec!["kernel-probe"];
    if options.serves_enfys() {
        packages.push("enfys");
    }
    for package in packages {
        // Users of the guest prove who they are to this server.
        let features: &[&str] = if package == "enfys" { &["--features", "krb5"] } else { &[] };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--package", package])
            .args(features)
            .current_dir(workspace_root())
            .status()
            .map_err(|error| format!("cargo build: {error}"))?;
        if !status.success() {
            return Err(format!("cargo build --package {package} failed"));
        }
    }
    Ok(())
}

/// Runs the portions on a few threads; each takes the next one that nobody has taken.
fn run_all(jobs: usize, portions: &[Portion]) -> Tally {
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    thread::scope(|scope| {
        for worker in 0..jobs {
            let (next, total) = (&next, &total);
            scope.spawn(move || {
                while let Some(portion) = portions.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tally = run_one(portion, worker);
                    *total.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += tally;
                }
            });
        }
    });
    total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs this program again in new namespaces, passes its lines on, and counts the results among them.
fn run_one(portion: &Portion, worker: usize) -> Tally {
    let combination = portion.combination;
    let mut tally = Tally::default();
    let mut child = match inside_command(portion, worker).and_then(|mut command| {
        command
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))
    }) {
        Ok(child) => child,
        Err(why) => {
            println!("FAIL  {combination}  could not start: {why}");
            tally.count(false);
            return tally;
        }
    };
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            match line.split_whitespace().next() {
                Some("pass") => tally.count(true),
                Some("FAIL") => tally.count(false),
                _ => {}
            }
            println!("{line}");
        }
    }
    let ended_well = child.wait().is_ok_and(|status| status.success());
    if !ended_well && tally.failed == 0 {
        println!("FAIL  {combination}  the driver ended early");
        tally.count(false);
    }
    tally
}

fn inside_command(portion: &Portion, worker: usize) -> Result<Command, String> {
    let options = &portion.options;
    let own_path = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let mut command = Command::new("unshare");
    // When this process ends, however it ends, so does everything in the process namespace.
    command.args([
        "--net",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.arg("--").arg(own_path).args(["kernel", "--inside"]).args(portion.combination.arguments());
    command.args(["--portion", &options.portion.to_string(), "--worker", &worker.to_string()]);
    for test in &options.tests {
        command.args(["--test", test]);
    }
    if let Some(server) = &options.server {
        command.args(["--server", server]);
    }
    command.args(["--server-kind", options.server_kind.name()]);
    if let Some(suite) = &options.suite {
        command.arg("--suite").arg(suite);
    }
    if let Some(port) = options.mount_port {
        command.args(["--mount-port", &port.to_string()]);
    }
    for (given, flag) in [(options.keep, "--keep"), (options.selfcheck, "--selfcheck")] {
        if given {
            command.arg(flag);
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::memory_available_kib;

    #[test]
    fn reads_what_memory_there_is() {
        let text = "MemTotal:       24689996 kB\nMemFree:        22000000 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(memory_available_kib(text), Some(23_000_000));
        assert_eq!(memory_available_kib("MemTotal: 5 kB\n"), None);
    }
}
