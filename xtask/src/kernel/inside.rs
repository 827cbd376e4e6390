//! The driver of one combination, inside its own namespaces: network, file systems, server, guest, verdicts.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::channel::{self, Event};
use super::guest::{Guest, Setting, TAPS, Tap};
use super::matrix::{Backend, Combination};
use super::script::Script;
use super::server::{ADDRESS, Kind, Places, QUOTA_MIB, SPACE_MIB, Server, enfys_binary, release_dir};
use super::{Options, scripts_dir};
use crate::report::{Outcome, Tally, workspace_root};

/// How long the kernel may take until its first test begins.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// The guest stops a test at its limit; where the guest itself hangs, the driver does so this much later.
const GRACE: Duration = Duration::from_secs(120);
/// How often to look whether guest and server live.
const TICK: Duration = Duration::from_millis(500);
/// A log's last lines that are shown where a test fails.
const TAIL_LINES: usize = 40;
/// Of the server's log fewer: most of it was said when it started.
const SERVER_LINES: usize = 8;
/// And of neither more than this much.
const TAIL_BYTES: usize = 2000;
/// Of a test's output, this much is kept: the end tells why it failed.
const LOG_BYTES_MAX: usize = 4 << 20;
/// Size of the one with a quota.
const QUOTA_FS_MIB: u64 = 256;

/// Runs the scripts; one line a test.
pub(super) fn run(options: &Options, combination: &Combination, scripts: &[Script]) -> Outcome {
    let work = release_dir().join("kernel-tests").join(slug(options, combination));
    let places = Places::below(&work);
    let _alone = alone(&work)?;
    prepare(&places, combination)?;
    let template = match &options.server {
        Some(command) => command.clone(),
        None => options.server_kind.command(combination, &places)?,
    };
    let mut server = Server::new(&template, &places, options.server_kind != Kind::Knfsd);
    if let Err(why) = server.start() {
        return Err(format!(
            "{why}\n{}",
            tail(&fs::read(places.server_log()).unwrap_or_default(), TAIL_LINES)
        ));
    }
    let setting = Setting {
        combination,
        places: &places,
        scripts_dir: scripts_dir(),
        scripts_kind: options.scripts_kind(),
        suite: options.suite.as_deref(),
        server_kind: options.server_kind,
        enfys: options.serves_enfys().then(enfys_binary),
        mount_port: options.mount_port.unwrap_or(options.server_kind.mount_port()),
        worker: usize::from(options.worker),
    };
    let listener =
        TcpListener::bind((ADDRESS, channel::PORT)).map_err(|error| format!("channel: {error}"))?;
    let (sender, events) = mpsc::channel();
    let server = Arc::new(Mutex::new(server));
    channel::listen(listener, sender, Arc::clone(&server), script_environment(&places));
    let mut driver = Driver {
        options,
        setting,
        server,
        events,
        early: VecDeque::new(),
        logs: HashMap::new(),
        tally: Tally::default(),
    };
    driver.run_all(scripts.iter().filter(|script| script.runs_in(combination)).collect());
    let tally = driver.tally;
    let _ = driver.server().stop();
    if tally.failed == 0 && !options.keep {
        clean(&places);
    }
    Ok(tally)
}

/// The directory's name: guests of the same combination, and the self-check beside them, have one each.
fn slug(options: &Options, combination: &Combination) -> String {
    let selfcheck = if options.selfcheck { "-selfcheck" } else { "" };
    match options.portion {
        0 => format!("{}{selfcheck}", combination.slug()),
        number => format!("{}{selfcheck}-{number}", combination.slug()),
    }
}

/// Keeps a second run of the same combination out of this one's directory, until the result is dropped.
fn alone(work: &Path) -> Result<fs::File, String> {
    let path = PathBuf::from(format!("{}.lock", work.display()));
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(work)).map_err(told)?;
    let file = fs::File::create(&path).map_err(told)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| format!("another run of this combination uses {}", work.display()))?;
    Ok(file)
}

fn script_environment(places: &Places) -> Vec<(String, String)> {
    let probe = release_dir().join("kernel-probe");
    [("EXPORT", &places.export), ("SPACE", &places.space), ("QUOTA", &places.quota), ("PROBE", &probe)]
        .iter()
        .map(|(name, place)| ((*name).to_owned(), place.display().to_string()))
        .collect()
}

/// Makes the network and the file systems; all of it is gone with the namespaces.
fn prepare(places: &Places, combination: &Combination) -> Result<(), String> {
    if places.work.display().to_string().contains(char::is_whitespace) {
        return Err(format!("a kernel's command line has no room for spaces: {}", places.work.display()));
    }
    clean(places);
    for place in [&places.export, &places.space, &places.quota, &places.state] {
        fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    // A server refuses a state directory that others may use.
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&places.state, own)
        .map_err(|error| format!("{}: {error}", places.state.display()))?;
    for name in ["memory", "uml", "log"] {
        fs::create_dir_all(places.work.join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    // Forwarding joins the guest's two networks, where the guest itself is the server.
    run_shell("ip link set lo up; echo 1 >/proc/sys/net/ipv4/ip_forward")?;
    for Tap { name, address } in TAPS {
        run_shell(&format!(
            "ip tuntap add {name} mode tap; ip addr add {address} dev {name}; ip link set {name} up"
        ))?;
    }
    // Servers and their helpers keep sockets in /run and state in /var/lib/nfs: not this machine's.
    run_shell(
        "mount -t tmpfs run /run; mkdir -p /var/lib/nfs; mount -t tmpfs nfs /var/lib/nfs; mkdir /var/lib/nfs/ganesha",
    )?;
    run_shell(&format!("mount -t tmpfs -o size=3G memory {}", places.work.join("memory").display()))?;
    if combination.backend == Backend::Local {
        small_file_systems(places)?;
    }
    Ok(())
}

/// A tmpfs that is soon full; a btrfs with a quota, since btrfs accounts by itself where the kernel has no other quotas.
fn small_file_systems(places: &Places) -> Result<(), String> {
    let (space, quota, image) =
        (places.space.display(), places.quota.display(), places.work.join("quota.img"));
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

fn clean(places: &Places) {
    // Mounts below are this namespace's own; where nothing is mounted, umount has nothing to say that matters.
    for place in [&places.space, &places.quota, &places.work.join("memory")] {
        let _ = run_shell(&format!("umount -q {} || true", place.display()));
    }
    let _ = fs::remove_dir_all(&places.work);
}

struct Driver<'a> {
    options: &'a Options,
    setting: Setting<'a>,
    server: Arc<Mutex<Server>>,
    events: Receiver<Event>,
    /// Events that came while a late log was waited for.
    early: VecDeque<Event>,
    /// Output of tests that have not ended.
    logs: HashMap<String, Output>,
    tally: Tally,
}

/// Why the guest is not listened to any longer.
enum Over {
    /// All tests have ended.
    Done,
    /// The test of this position did not end; those after it have not begun.
    Stuck(usize, String),
}

impl Driver<'_> {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Boots as often as tests hang or bring the guest down, so that one bad test does not hide the rest.
    fn run_all(&mut self, mut scripts: Vec<&Script>) {
        while !scripts.is_empty() {
            let mut guest = match Guest::boot(&self.setting, &scripts) {
                Ok(guest) => guest,
                Err(why) => return self.fail_to_boot(&why),
            };
            let over = self.follow(&mut guest, &scripts);
            guest.kill();
            match over {
                Over::Done => return,
                Over::Stuck(position, why) => {
                    self.verdict(scripts[position], None, Some(&why));
                    scripts.drain(..=position);
                }
            }
            let _ = self.server().kill();
            let started = self.revive();
            if let Err(why) = started {
                return self.fail_to_boot(&why);
            }
        }
    }

    fn fail_to_boot(&mut self, why: &str) {
        println!("FAIL  {}  {why}", self.setting.combination);
        self.tally.count(false);
    }

    /// Listens to one guest until it has run everything, hangs or dies.
    fn follow(&mut self, guest: &mut Guest, scripts: &[&Script]) -> Over {
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
                    let why = self.judge(scripts[current], status);
                    self.verdict(scripts[current], elapsed, why.as_deref());
                    current += 1;
                    deadline = Instant::now() + GRACE;
                    if let Err(why) = self.revive() {
                        return Over::Stuck(current.min(scripts.len() - 1), why);
                    }
                }
                Ok(Event::Done) => return Over::Done,
                Err(RecvTimeoutError::Timeout) if guest.has_ended() => {
                    return Over::Stuck(current.min(scripts.len() - 1), "the guest's kernel ended".into());
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    let what = if started.is_some() { "it hangs" } else { "the guest does not begin" };
                    return Over::Stuck(current.min(scripts.len() - 1), what.into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Over::Stuck(current, "the channel is closed".into());
                }
            }
        }
    }

    /// Starts the server where the last test left none, so that the next one is not judged by it.
    fn revive(&mut self) -> Result<(), String> {
        let mut server = self.server();
        if server.pid().is_some() && server.ended().is_none() {
            return Ok(());
        }
        // One that ended by itself must be taken leave of before another starts.
        let _ = server.kill();
        server.start()
    }

    /// Why a test that ended with this status has failed; nothing where it has not.
    fn judge(&mut self, script: &Script, status: i32) -> Option<String> {
        if let Some(ended) = self.server().ended() {
            return Some(format!("the server ended by itself ({ended})"));
        }
        if self.server().pid().is_none() {
            return Some("the test left the server dead".into());
        }
        match status {
            0 => None,
            124 | 137 => Some(format!("ran past its limit of {} s", script.limit_seconds)),
            _ => Some(format!("exit status {status}")),
        }
    }

    /// Prints a test's line; where it failed, also why, its last output, and how to run it again.
    fn verdict(&mut self, script: &Script, elapsed: Option<Duration>, why: Option<&str>) {
        let log = self.take_log(&script.name);
        let log_file = self.setting.places.work.join("log").join(format!("{}.log", script.name));
        let _ = fs::write(&log_file, &log);
        // Scripts of the self-check are wrong on purpose.
        let (passed, why) = match (self.options.selfcheck, why) {
            (false, why) => (why.is_none(), why),
            (true, None) => (false, Some("a test that is wrong was not noticed")),
            (true, Some(_)) => (true, None),
        };
        self.tally.count(passed);
        let verdict = if passed { "pass" } else { "FAIL" };
        let seconds = elapsed.map_or("  -  ".to_owned(), |elapsed| format!("{:5.1}", elapsed.as_secs_f64()));
        println!("{verdict}  {}  {:<14} {seconds} s", self.setting.combination, script.name);
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
        self.show_end_of("server.log", SERVER_LINES);
        println!("      log: {}", log_file.display());
        let mut replay = format!("cargo xtask kernel {}", self.setting.combination.arguments().join(" "));
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
        let text = fs::read(self.setting.places.work.join(name)).unwrap_or_default();
        if !text.is_empty() {
            println!("      {name} ends:");
            print!("{}", tail(&text[text.len().saturating_sub(TAIL_BYTES)..], lines));
        }
    }

    /// The output of a test. It comes over a connection of its own, so it may be a moment late.
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

/// What a test has said.
#[derive(Default)]
struct Output {
    text: Vec<u8>,
    /// Nothing follows.
    ended: bool,
}

impl Output {
    /// Of much, the end is kept.
    fn extend(&mut self, more: Vec<u8>) {
        self.text.extend(more);
        if self.text.len() > 2 * LOG_BYTES_MAX {
            self.text.drain(..self.text.len() - LOG_BYTES_MAX);
        }
    }
}

/// The last lines of a log, indented.
fn tail(log: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("      | {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_of_much_output() {
        let mut output = Output::default();
        for _ in 0..3 {
            output.extend(vec![b'a'; LOG_BYTES_MAX]);
        }
        output.extend(b"end".to_vec());
        assert!(output.text.len() <= 2 * LOG_BYTES_MAX && output.text.ends_with(b"end"));
    }

    #[test]
    fn a_tail_is_the_last_lines() {
        let log: String = (1..=100).map(|number| format!("line {number}\n")).collect();
        let tail = tail(log.as_bytes(), 40);
        assert_eq!(tail.lines().count(), 40);
        assert!(tail.ends_with("line 100\n"));
        assert!(!tail.contains("line 60\n"));
    }
}
