//! `cargo xtask kernel`: a real Linux kernel mounts the server, and real programs run on the mount.
//!
//! The kernel is Debian's user-mode Linux. Each combination of protocol version, export mode and back end has its own namespaces
//! (network, mounts, processes). There this program runs a second time (`inside`), starts the server, boots the guest and runs all scripts
//! of `tests/kernel/guest` in it. Several guests share a long combination (`portion`).

mod channel;
mod guest;
mod inside;
mod knfsd;
mod matrix;
mod portion;
mod script;
mod second;
mod server;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::report::{Outcome, Tally, target_dir, workspace_root};
use crate::setup::{has_program, is_root};
use crate::tools::TOOLS;
use matrix::{Backend, Combination, Export, Version};
use portion::Portion;
use script::Script;
use server::ServerKind;

/// Options of `cargo xtask kernel`. Without an option that selects combinations, all run.
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
    /// Only this test (can be repeated)
    #[arg(long = "test", value_name = "NAME")]
    tests: Vec<String>,
    /// Print the tests and the combinations; run nothing
    #[arg(long)]
    list: bool,
    /// A server's command line instead of enfys: {dir} {space} {quota} are the exported directories, {state} one for its state; it must serve them as /export /space /quota on 10.99.0.1:2049
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Server to test, without --server
    #[arg(long, default_value = "enfys")]
    server_kind: ServerKind,
    /// Port of the server's MOUNT program, if not the NFS port
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
    /// Number of concurrent guests [default: two per core, at most 4, limited by memory]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: Option<u8>,
    /// Keep the working directory (exports, logs) also of combinations that passed
    #[arg(long)]
    keep: bool,
    /// Run scripts that must fail, to check that failures are detected
    #[arg(long)]
    selfcheck: bool,
    /// Run the scripts of external suites without a package; DIR is the directory in which the suite is built
    #[arg(long, value_name = "DIR", conflicts_with = "selfcheck", value_parser = absolute)]
    suite: Option<PathBuf>,
    /// Run scripts that measure; they print their measurements
    #[arg(long, conflicts_with_all = ["selfcheck", "suite"])]
    timings: bool,
    /// Test the release build, as `--timings` does, and not that of `cargo test`, which checks assertions
    #[arg(long)]
    release: bool,
    /// A variable for the tests, NAME=VALUE, such as FILES=600 for longlink (can be repeated)
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
    /// Internal: run in the namespaces of one combination
    #[arg(long, hide = true)]
    inside: bool,
    /// Internal: the number of this guest in its combination
    #[arg(long, hide = true, default_value_t = 0)]
    portion: u8,
    /// Internal: the number of this guest among the concurrent ones
    #[arg(long, hide = true, default_value_t = 0)]
    worker: u8,
}

/// Guests per core. A guest is idle half of the time: it waits for the server's disk, a killed server, or time limits of a test.
const JOBS_PER_CORE: usize = 2;
/// Maximum number of concurrent guests by default. With more, tests could exceed their time limits.
const JOBS_DEFAULT_MAX: usize = 4;
/// The test that runs the program of [`build_operations`].
const OPERATIONS_TEST: &str = "library";
/// Memory of a guest, its server and the page cache of both.
const JOB_MEMORY_KIB: usize = 1536 << 10;

impl Options {
    fn jobs(&self) -> usize {
        // Guests side by side would measure each other.
        let default = if self.timings { 1 } else { jobs_default() };
        self.jobs.map_or(default, usize::from)
    }

    /// Returns whether the server under test is enfys with its standard state directory.
    fn serves_enfys(&self) -> bool {
        self.server.is_none() && self.server_kind == ServerKind::Enfys
    }

    fn tests_release(&self) -> bool {
        self.release || self.timings
    }

    /// Returns the directory of the programs under test.
    fn programs(&self) -> PathBuf {
        target_dir().join(if self.tests_release() { "release" } else { "debug" })
    }

    /// Returns the directory of the scripts to run.
    fn scripts_kind(&self) -> &'static str {
        match &self.suite {
            _ if self.selfcheck => "selfcheck",
            _ if self.timings => "timings",
            Some(_) => "foreign",
            None => "guest",
        }
    }

    /// Prints the last line, except in a namespace, where it would be one of several.
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

/// Parses `MemAvailable` of /proc/meminfo.
fn memory_available_kib(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Makes a path absolute, because the guest has another working directory.
fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Parses a shell variable, whose value needs no quotes.
fn variable(text: &str) -> Result<(String, String), String> {
    let is_plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match text.split_once('=') {
        Some((name, value)) if is_plain(name) && is_plain(value) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("is not NAME=VALUE of letters, digits and underscores".to_owned()),
    }
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
    run_choices(std::slice::from_ref(options))
}

/// Runs the kernel tests of the test ladder: the full matrix and the self-check.
pub(crate) fn run_rung() -> Outcome {
    run_choices(&[Options::default(), Options { selfcheck: true, ..Options::default() }])
}

/// Runs the tests of all `choices` concurrently; the first sets the number of concurrent guests.
fn run_choices(choices: &[Options]) -> Outcome {
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
    let has_operations =
        portions.iter().any(|portion| portion.options.tests.iter().any(|test| test == OPERATIONS_TEST));
    if options.tests_release() {
        build_release()?;
    }
    if has_operations || !options.tests_release() {
        build_as_tests_do()?;
    }
    if choices.iter().any(|options| options.timings) {
        build_peers();
    }
    portion::longest_first(&mut portions);
    tally += run_all(options.jobs(), &portions);
    Ok(tally)
}

fn chosen_combinations(options: &Options) -> Vec<Combination> {
    let all: Vec<Combination> = match options.server_kind {
        ServerKind::Knfsd => Combination::of_guest().collect(),
        ServerKind::Enfys | ServerKind::Ganesha => Combination::all().collect(),
    };
    all.into_iter().filter(|it| is_chosen(options, it)).collect()
}

fn is_chosen(options: &Options, combination: &Combination) -> bool {
    // One combination is enough to check that failures are detected.
    let (version, export, backend) = match options.selfcheck {
        true => (Some(Version::V3), Some(Export::Sync), Some(Backend::Local)),
        false => (options.version, options.export, options.backend),
    };
    let backend = if options.server_kind == ServerKind::Knfsd { None } else { backend };
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

/// Returns the reason if this machine cannot run kernel tests.
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
        return Some(format!("needs {program} from the package {package}; run cargo xtask setup"));
    }
    // The script of the same name runs the program, as do scripts of the self-check.
    let is_wanted = |name: &str| options.selfcheck || scripts.iter().any(|script| script.name == name);
    let tool = TOOLS.iter().find(|tool| is_wanted(tool.name) && !tool.is_installed())?;
    Some(format!("needs {} from crates.io; run cargo xtask setup", tool.name))
}

/// Builds enfys, which is also a client in tests of other servers, and the scripts' probe program in the release profile.
fn build_release() -> Result<(), String> {
    for package in ["kernel-probe", "enfys"] {
        // The Kerberos tests need it.
        let features: &[&str] = if package == "enfys" { &["--features", "krb5"] } else { &[] };
        cargo_build(&[&["--release", "--package", package], features].concat())?;
    }
    Ok(())
}

/// Builds the same programs and the one that calls every operation of the library as `cargo test` does, so that little is left to
/// build after the tests.
fn build_as_tests_do() -> Result<(), String> {
    let programs = ["--bin", "enfys", "--bin", "kernel-probe", "--example", "operations"];
    cargo_build(&[&["--workspace", "--features", "enfys/krb5"][..], &programs].concat())
}

fn cargo_build(arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet"])
        .args(arguments)
        .current_dir(workspace_root())
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("cargo build {} failed", arguments.join(" "))),
    }
}

/// Builds the programs of other clients, to compare with. A test leaves out those that are missing.
fn build_peers() {
    let sources = workspace_root().join("bench-peers");
    let mut nfs_rs = Command::new(env!("CARGO"));
    nfs_rs.args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(peers_dir());
    nfs_rs.current_dir(sources.join("small_files"));
    let mut libnfs = Command::new("make");
    libnfs
        .arg(format!("OUT={}", programs_of_peers().display()))
        .current_dir(sources.join("small_files_libnfs"));
    for (name, mut command) in [("nfs-rs", nfs_rs), ("libnfs", libnfs)] {
        if !command.stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            eprintln!("skipping {name}: its program cannot be built; libnfs needs the package libnfs-dev");
        }
    }
}

fn peers_dir() -> PathBuf {
    target_dir().join("bench-peers")
}

/// Returns the directory of the programs of other clients.
fn programs_of_peers() -> PathBuf {
    peers_dir().join("release")
}

/// Runs the portions on `jobs` threads; each thread takes the next portion.
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

/// Runs this program again in new namespaces, prints its lines and counts its results.
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
    // When this process ends for any reason, all processes of the namespace end.
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
    for (name, value) in &options.variables {
        command.args(["--set", &format!("{name}={value}")]);
    }
    if let Some(suite) = &options.suite {
        command.arg("--suite").arg(suite);
    }
    if let Some(port) = options.mount_port {
        command.args(["--mount-port", &port.to_string()]);
    }
    let flags = [
        (options.keep, "--keep"),
        (options.selfcheck, "--selfcheck"),
        (options.timings, "--timings"),
        (options.release, "--release"),
    ];
    for (given, flag) in flags {
        if given {
            command.arg(flag);
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::{memory_available_kib, variable};

    #[test]
    fn parses_available_memory() {
        let text = "MemTotal:       24689996 kB\nMemFree:        22000000 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(memory_available_kib(text), Some(23_000_000));
        assert_eq!(memory_available_kib("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn rejects_variables_that_the_shell_would_interpret() {
        assert_eq!(variable("FILES=600"), Ok(("FILES".to_owned(), "600".to_owned())));
        for wrong in ["FILES", "=600", "FILES=", "FILES=$(reboot)", "A B=1"] {
            assert!(variable(wrong).is_err(), "{wrong}");
        }
    }
}
