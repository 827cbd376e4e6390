//! The driver of one combination in its own namespaces: network, file systems, server, guest, results.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::channel::{self, Event, Requests};
use super::guest::{Guest, GuestConfig, TAPS, Tap};
use super::knfsd;
use super::matrix::{Backend, Combination};
use super::script::Script;
use super::second::{self, Second};
use super::server::{ADDRESS, Directories, QUOTA_MIB, SPACE_MIB, Server, ServerKind};
use super::{Options, scripts_dir};
use crate::report::{Outcome, Tally, target_dir, workspace_root};

/// Maximum time from the kernel's start to its first test.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// The guest stops a test at its time limit. If the guest hangs, the driver stops it after this additional time.
const GRACE: Duration = Duration::from_secs(120);
/// Interval of checks whether guest and server are running.
const TICK: Duration = Duration::from_millis(500);
/// Last lines of a log to show if a test fails.
const TAIL_LINES: usize = 40;
/// Last lines of the server's log to show; most of the log is from its start.
const SERVER_LINES: usize = 8;
/// Maximum bytes to show of a log.
const TAIL_BYTES: usize = 2000;
/// Maximum bytes to keep of a test's output; its end shows why it failed.
const LOG_BYTES_MAX: usize = 4 << 20;
/// Size of the file system with a quota.
const QUOTA_FS_MIB: u64 = 256;

/// Runs the scripts and prints one line per test.
pub(super) fn run(options: &Options, combination: &Combination, scripts: &[Script]) -> Outcome {
    let work = target_dir().join("kernel-tests").join(slug(options, combination));
    let directories = Directories::new(options.programs(), &work);
    let _lock = lock_directory(&work)?;
    let is_knfsd = options.server.is_none() && options.server_kind == ServerKind::Knfsd;
    prepare(&directories, combination, is_knfsd)?;
    let template = match &options.server {
        Some(command) => command.clone(),
        None => options.server_kind.command(combination, &directories)?,
    };
    // The two guests have a core each.
    let core = is_knfsd.then_some(usize::from(options.worker) + 1);
    let mut server = Server::new(&template, &directories, options.server_kind.address(), core);
    if let Err(why) = server.start() {
        return Err(format!(
            "{why}\n{}",
            tail(&fs::read(directories.server_log()).unwrap_or_default(), TAIL_LINES)
        ));
    }
    let config = GuestConfig {
        combination,
        directories: &directories,
        scripts_dir: scripts_dir(),
        scripts_kind: options.scripts_kind(),
        suite: options.suite.as_deref(),
        server_kind: options.server_kind,
        enfys: options.serves_enfys().then(|| directories.enfys()),
        mount_port: options.mount_port.unwrap_or(options.server_kind.mount_port()),
        worker: usize::from(options.worker),
        variables: &options.variables,
    };
    let listener =
        TcpListener::bind((ADDRESS, channel::PORT)).map_err(|error| format!("channel: {error}"))?;
    let (sender, events) = mpsc::channel();
    let server = Arc::new(Mutex::new(server));
    let core = usize::from(options.worker) + 1;
    let second = Arc::new(Mutex::new(Second::new(&directories, scripts_dir(), core)));
    let requests = Requests {
        events: sender,
        server: Arc::clone(&server),
        second: Arc::clone(&second),
        environment: script_environment(&directories),
    };
    channel::listen(listener, requests);
    let mut driver = Driver {
        options,
        config,
        server,
        second,
        events,
        early: VecDeque::new(),
        logs: HashMap::new(),
        tally: Tally::default(),
    };
    driver.run_all(scripts.iter().filter(|script| script.runs_in(combination)).collect());
    let tally = driver.tally;
    let _ = driver.server().stop();
    if tally.failed == 0 && !options.keep {
        clean(&directories);
    }
    Ok(tally)
}

/// Returns the directory's name, which is different for each guest of a combination and for the self-check.
fn slug(options: &Options, combination: &Combination) -> String {
    let selfcheck = if options.selfcheck { "-selfcheck" } else { "" };
    match options.portion {
        0 => format!("{}{selfcheck}", combination.slug()),
        number => format!("{}{selfcheck}-{number}", combination.slug()),
    }
}

/// Locks the directory against a second run of the same combination until the result is dropped.
fn lock_directory(work: &Path) -> Result<fs::File, String> {
    let path = PathBuf::from(format!("{}.lock", work.display()));
    let context = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(work)).map_err(context)?;
    let file = fs::File::create(&path).map_err(context)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| format!("another run of this combination uses {}", work.display()))?;
    Ok(file)
}

fn script_environment(directories: &Directories) -> Vec<(String, String)> {
    let probe = directories.programs.join("kernel-probe");
    [
        ("EXPORT", &directories.export),
        ("SPACE", &directories.space),
        ("QUOTA", &directories.quota),
        ("PROBE", &probe),
    ]
    .iter()
    .map(|(name, place)| ((*name).to_owned(), place.display().to_string()))
    .collect()
}

/// Creates the network and the file systems, which end with the namespaces.
fn prepare(directories: &Directories, combination: &Combination, is_knfsd: bool) -> Result<(), String> {
    if directories.work.display().to_string().contains(char::is_whitespace) {
        return Err(format!(
            "the path has spaces, which a kernel command line cannot contain: {}",
            directories.work.display()
        ));
    }
    clean(directories);
    for place in [&directories.export, &directories.space, &directories.quota, &directories.state] {
        fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    // A server rejects a state directory that other users can access.
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&directories.state, own)
        .map_err(|error| format!("{}: {error}", directories.state.display()))?;
    for name in ["memory", "uml", "log"] {
        fs::create_dir_all(directories.work.join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    // Forwarding connects the guest with the guest of the server.
    run_shell("ip link set lo up; echo 1 >/proc/sys/net/ipv4/ip_forward")?;
    for Tap { name, address } in TAPS.into_iter().chain([second::TAP]).chain(is_knfsd.then_some(knfsd::TAP)) {
        run_shell(&format!(
            "ip tuntap add {name} mode tap; ip addr add {address} dev {name}; ip link set {name} up"
        ))?;
    }
    // Servers and their helpers have sockets in /run and state in /var/lib/nfs; keep those of the machine out.
    run_shell(
        "mount -t tmpfs run /run; mkdir -p /var/lib/nfs; mount -t tmpfs nfs /var/lib/nfs; mkdir /var/lib/nfs/ganesha",
    )?;
    run_shell(&format!("mount -t tmpfs -o size=3G memory {}", directories.work.join("memory").display()))?;
    if combination.backend == Backend::Local {
        small_file_systems(directories)?;
    }
    Ok(())
}

/// Mounts a small tmpfs, and a btrfs with a quota. Btrfs has its own quotas, which need no other kernel support.
fn small_file_systems(directories: &Directories) -> Result<(), String> {
    let (space, quota, image) =
        (directories.space.display(), directories.quota.display(), directories.work.join("quota.img"));
    run_shell(&format!("mount -t tmpfs -o size={SPACE_MIB}m,nr_inodes=2000 space {space}"))?;
    let image_file = fs::File::create(&image).map_err(|error| format!("{}: {error}", image.display()))?;
    image_file.set_len(QUOTA_FS_MIB << 20).map_err(|error| format!("{}: {error}", image.display()))?;
    let image = image.display();
    run_shell(&format!(
        "mkfs.btrfs -q {image}; mount -o loop {image} {quota}; btrfs quota enable {quota}; \
         btrfs qgroup limit {QUOTA_MIB}M {quota}"
    ))
}

fn run_shell(script: &str) -> Result<(), String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-euc", script])
        .env("PATH", path)
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn clean(directories: &Directories) {
    // These mounts belong to this namespace. Errors do not matter, because nothing may be mounted.
    for place in [&directories.space, &directories.quota, &directories.work.join("memory")] {
        let _ = run_shell(&format!("umount -q {} || true", place.display()));
    }
    let _ = fs::remove_dir_all(&directories.work);
}

struct Driver<'a> {
    options: &'a Options,
    config: GuestConfig<'a>,
    server: Arc<Mutex<Server>>,
    second: Arc<Mutex<Second>>,
    events: Receiver<Event>,
    /// Events that arrived while waiting for a log.
    early: VecDeque<Event>,
    /// Output of running tests.
    logs: HashMap<String, Output>,
    tally: Tally,
}

/// Why a guest's run ended.
enum GuestEnd {
    /// All tests have ended.
    Done,
    /// The test at this position did not end; later tests have not started.
    Stuck(usize, String),
}

impl Driver<'_> {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Boots again after a test hangs or crashes the guest, so that the other tests run.
    fn run_all(&mut self, mut scripts: Vec<&Script>) {
        while !scripts.is_empty() {
            let mut guest = match Guest::boot(&self.config, &scripts) {
                Ok(guest) => guest,
                Err(why) => return self.fail_to_boot(&why),
            };
            let end = self.follow(&mut guest, &scripts);
            guest.kill();
            self.end_second();
            match end {
                GuestEnd::Done => return,
                GuestEnd::Stuck(position, why) => {
                    self.verdict(scripts[position], None, Some(&why));
                    scripts.drain(..=position);
                }
            }
            let _ = self.server().kill();
            let started = self.ensure_server_runs();
            if let Err(why) = started {
                return self.fail_to_boot(&why);
            }
        }
    }

    fn fail_to_boot(&mut self, why: &str) {
        println!("FAIL  {}  {why}", self.config.combination);
        self.tally.count(false);
    }

    /// Handles the events of one guest until it has run all tests, hangs or ends.
    fn follow(&mut self, guest: &mut Guest, scripts: &[&Script]) -> GuestEnd {
        let mut current = 0;
        let mut started: Option<Instant> = None;
        let mut deadline = Instant::now() + BOOT_LIMIT;
        loop {
            let early = self.early.pop_front();
            let event = early.map_or_else(|| self.events.recv_timeout(TICK), Ok);
            match event {
                Ok(Event::Begin(name)) => {
                    current = scripts.iter().position(|script| script.name == name).unwrap_or(current);
                    started = Some(Instant::now());
                    deadline = Instant::now() + Duration::from_secs(scripts[current].limit_seconds) + GRACE;
                }
                Ok(Event::Log(name, log)) => self.logs.entry(name).or_default().extend(log),
                Ok(Event::LogEnd(name)) => self.logs.entry(name).or_default().ended = true,
                Ok(Event::End(_, status)) => {
                    let elapsed = started.take().map(|started| started.elapsed());
                    self.end_second();
                    let why = self.failure(scripts[current], status);
                    self.verdict(scripts[current], elapsed, why.as_deref());
                    current += 1;
                    deadline = Instant::now() + GRACE;
                    if let Err(why) = self.ensure_server_runs() {
                        return GuestEnd::Stuck(current.min(scripts.len() - 1), why);
                    }
                }
                Ok(Event::Done) => return GuestEnd::Done,
                Err(RecvTimeoutError::Timeout) if guest.has_ended() => {
                    return GuestEnd::Stuck(
                        current.min(scripts.len() - 1),
                        "the guest's kernel ended".into(),
                    );
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    let what = if started.is_some() { "it hangs" } else { "the guest does not start" };
                    return GuestEnd::Stuck(current.min(scripts.len() - 1), what.into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return GuestEnd::Stuck(current, "the channel is closed".into());
                }
            }
        }
    }

    /// Kills the second guest if a test has left it running.
    fn end_second(&self) {
        let _ = self.second.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).kill();
    }

    /// Starts the server if it does not run after a test, so that the next test does not fail too.
    fn ensure_server_runs(&mut self) -> Result<(), String> {
        let mut server = self.server();
        if server.pid().is_some() && server.ended().is_none() {
            return Ok(());
        }
        // A server that ended by itself must be reaped before the next start.
        let _ = server.kill();
        server.start()
    }

    /// Returns the reason why a test with this exit status has failed, if it has.
    fn failure(&mut self, script: &Script, status: i32) -> Option<String> {
        if let Some(ended) = self.server().ended() {
            return Some(format!("the server ended by itself ({ended})"));
        }
        if self.server().pid().is_none() {
            return Some("the test did not restart the server".into());
        }
        match status {
            0 => None,
            124 | 137 => Some(format!("exceeded its limit of {} s", script.limit_seconds)),
            _ => Some(format!("exit status {status}")),
        }
    }

    /// Prints a test's line; for a failure also the reason, the last output, and how to run it again.
    fn verdict(&mut self, script: &Script, elapsed: Option<Duration>, why: Option<&str>) {
        let log = self.take_log(&script.name);
        let log_file = self.config.directories.work.join("log").join(format!("{}.log", script.name));
        let _ = fs::write(&log_file, &log);
        // Scripts of the self-check must fail.
        let (passed, why) = match (self.options.selfcheck, why) {
            (false, why) => (why.is_none(), why),
            (true, None) => (false, Some("a failing test was not detected")),
            (true, Some(_)) => (true, None),
        };
        self.tally.count(passed);
        let verdict = if passed { "pass" } else { "FAIL" };
        let seconds = elapsed.map_or("  -  ".to_owned(), |elapsed| format!("{:5.1}", elapsed.as_secs_f64()));
        println!("{verdict}  {}  {:<14} {seconds} s", self.config.combination, script.name);
        if self.options.timings {
            print!("{}", String::from_utf8_lossy(&log));
        }
        if let Some(why) = why {
            self.explain(script, why, &log, &log_file);
            if elapsed.is_none() || log.is_empty() {
                self.show_end_of("console.log", TAIL_LINES);
            }
        }
    }

    fn explain(&mut self, script: &Script, why: &str, log: &[u8], log_file: &Path) {
        println!("      {} ({}): {why}", script.title, script.name);
        print!("{}", tail(log, TAIL_LINES));
        self.show_end_of(&second::log_of(&script.name), TAIL_LINES);
        self.show_end_of("server.log", SERVER_LINES);
        println!("      log: {}", log_file.display());
        let mut replay = format!("cargo xtask kernel {}", self.config.combination.arguments().join(" "));
        if let Some(suite) = &self.options.suite {
            replay.push_str(&format!(" --suite {}", suite.display()));
        }
        if let Some(server) = &self.options.server {
            replay.push_str(&format!(" --server '{server}'"));
        } else if self.options.server_kind != Default::default() {
            replay.push_str(&format!(" --server-kind {}", self.options.server_kind.name()));
        }
        println!("      replay: (cd {} && {replay} --test {})", workspace_root().display(), script.name);
    }

    fn show_end_of(&self, name: &str, lines: usize) {
        let text = fs::read(self.config.directories.work.join(name)).unwrap_or_default();
        if !text.is_empty() {
            println!("      {name} ends:");
            print!("{}", tail(&text[text.len().saturating_sub(TAIL_BYTES)..], lines));
        }
    }

    /// Returns the output of a test. It has its own connection, so it may arrive late.
    fn take_log(&mut self, name: &str) -> Vec<u8> {
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.logs.get(name).is_none_or(|output| !output.ended) && Instant::now() < deadline {
            match self.events.recv_timeout(Duration::from_millis(50)) {
                Ok(Event::Log(of, log)) => self.logs.entry(of).or_default().extend(log),
                Ok(Event::LogEnd(of)) => self.logs.entry(of).or_default().ended = true,
                Ok(other) => self.early.push_back(other),
                Err(_) => {}
            }
        }
        self.logs.remove(name).unwrap_or_default().text
    }
}

/// The output of a test.
#[derive(Default)]
struct Output {
    text: Vec<u8>,
    /// The output is complete.
    ended: bool,
}

impl Output {
    /// Appends output; keeps only the end if it is too long.
    fn extend(&mut self, more: Vec<u8>) {
        self.text.extend(more);
        if self.text.len() > 2 * LOG_BYTES_MAX {
            self.text.drain(..self.text.len() - LOG_BYTES_MAX);
        }
    }
}

/// Returns the last lines of a log, indented.
fn tail(log: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("      | {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_of_long_output() {
        let mut output = Output::default();
        for _ in 0..3 {
            output.extend(vec![b'a'; LOG_BYTES_MAX]);
        }
        output.extend(b"end".to_vec());
        assert!(output.text.len() <= 2 * LOG_BYTES_MAX && output.text.ends_with(b"end"));
    }

    #[test]
    fn tail_returns_the_last_lines() {
        let log: String = (1..=100).map(|number| format!("line {number}\n")).collect();
        let tail = tail(log.as_bytes(), 40);
        assert_eq!(tail.lines().count(), 40);
        assert!(tail.ends_with("line 100\n"));
        assert!(!tail.contains("line 60\n"));
    }
}
