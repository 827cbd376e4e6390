//! A mount, and what can be seen of its process from outside.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::Outcome;
use crate::files::Counters;
use crate::serve::{Kind, OnInterrupt};

/// Longest wait for the mount.
const START_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the end of a process after its mount is gone.
const END_MAX: Duration = Duration::from_secs(2);

/// A mount and its process.
pub struct Mounted {
    server: Child,
    directory: TempDir,
}

/// The way in which a process waits for requests.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Descriptors of `/dev/fuse`.
    pub descriptors: usize,
    /// Threads that are blocked in a read of one.
    pub readers: usize,
}

impl Mounted {
    pub fn new(kind: Kind, on_interrupt: OnInterrupt) -> Outcome<Self> {
        let directory = tempfile::tempdir()?;
        let mode = if on_interrupt == OnInterrupt::Eintr { "eintr" } else { "default" };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", kind.name(), mode]).arg(directory.path());
        let server = command.stdin(Stdio::null()).spawn()?;
        let mut mounted = Self { server, directory };
        let start = Instant::now();
        while mounted.counters().is_err() {
            if start.elapsed() > START_MAX || mounted.server.try_wait()?.is_some() {
                return Err(format!("{} does not serve its mount", kind.name()).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(mounted)
    }

    /// Returns the path of a file in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn counters(&self) -> Outcome<Counters> {
        let mut text = [0; 200];
        let file = fs::File::open(self.path("counters"))?;
        let length = rustix::io::read(&file, &mut text)?;
        Ok(Counters::parse(std::str::from_utf8(&text[..length])?).ok_or("counters of another form")?)
    }

    /// Returns the CPU seconds that the process has used, in units of 10 ms.
    pub fn cpu(&self) -> Outcome<f64> {
        cpu_of(self.server.id())
    }

    /// Returns how an idle process waits.
    pub fn reading(&self) -> Outcome<Reading> {
        let process = PathBuf::from(format!("/proc/{}", self.server.id()));
        let mut devices = Vec::new();
        for entry in fs::read_dir(process.join("fd"))? {
            let entry = entry?;
            if fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == "/dev/fuse") {
                let number: u64 = entry.file_name().to_string_lossy().parse()?;
                devices.push(number);
            }
        }
        let mut readers = 0;
        for task in fs::read_dir(process.join("task"))? {
            let call = fs::read_to_string(task?.path().join("syscall")).unwrap_or_default();
            let mut fields = call.split_whitespace();
            let number = fields.next().and_then(|field| field.parse::<i64>().ok());
            let first =
                fields.next().and_then(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok());
            let reads = matches!(number, Some(libc::SYS_read | libc::SYS_readv));
            readers += usize::from(reads && first.is_some_and(|first| devices.contains(&first)));
        }
        Ok(Reading { descriptors: devices.len(), readers })
    }

    /// Ends the process, which ends all requests of the mount.
    pub fn kill(&mut self) -> io::Result<()> {
        self.server.kill()?;
        self.server.wait().map(drop)
    }
}

/// Returns the CPU seconds that a process has used.
pub fn cpu_of(process: u32) -> Outcome<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit_once(')').ok_or("a stat of another form")?.1.split_whitespace();
    // proc_pid_stat(5): utime and stime are fields 14 and 15; the first after the name is field 3.
    seconds(fields.skip(11).take(2))
}

/// Returns the CPU seconds that all processes, and other guests of the same host, have used.
pub fn cpu_of_all() -> Outcome<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    // proc_stat(5): "cpu", user, nice, system, idle, iowait, irq, softirq, steal.
    let fields: Vec<&str> = stat.lines().next().ok_or("an empty stat")?.split_whitespace().collect();
    seconds([1, 2, 3, 6, 7, 8].into_iter().filter_map(|index| fields.get(index).copied()))
}

fn seconds<'a>(ticks: impl Iterator<Item = &'a str>) -> Outcome<f64> {
    let ticks = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Waits for the end of a process for at most `limit`, and returns whether it has ended.
pub fn ends_within(child: &mut Child, limit: Duration) -> io::Result<bool> {
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > limit {
            return Ok(false);
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(true)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.directory.path(), UnmountFlags::DETACH);
        if !ends_within(&mut self.server, END_MAX).unwrap_or(false) {
            let _ = self.kill();
        }
    }
}
