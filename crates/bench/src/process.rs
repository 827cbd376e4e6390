//! A process's CPU time to the nanosecond and its resident memory, from the kernel; and CPU affinity.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the CPU time that all threads of process `pid` have used, user and system together.
///
/// # Errors
/// `ESRCH` if there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for one clockid_t; the function only writes it.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for one timespec; the function only writes it.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of a process, outside of the kernel and in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// Outside of the kernel.
    pub user: Duration,
    /// In system calls and faults.
    pub system: Duration,
}

impl CpuTimes {
    /// Returns what all threads of this process have used so far (getrusage(2)).
    #[must_use]
    pub fn of_this_process() -> Self {
        // SAFETY: `rusage` has only integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a valid place for one rusage. With these arguments the call cannot fail.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Self { user: time(usage.ru_utime), system: time(usage.ru_stime) }
    }

    /// Returns what was used since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Returns the resident set of process `pid`, in bytes (`VmRSS`).
///
/// # Errors
/// If the process is gone.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// Returns the largest resident set of process `pid` since its start or [`reset_peak`], in bytes (`VmHWM`).
///
/// # Errors
/// If the process is gone.
pub fn peak_bytes(pid: u32) -> io::Result<u64> {
    status_bytes(pid, "VmHWM:")
}

/// Makes [`peak_bytes`] count from now (proc(5), `clear_refs`).
///
/// # Errors
/// If the process is gone, or belongs to another user.
pub fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// Returns a size from the status of a process.
fn status_bytes(pid: u32, field: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other(format!("no {field} line")))
}

/// Returns whether a process runs: a zombie does not.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    // proc(5): the state comes after the name, which may contain parentheses.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Pins the calling thread, and threads and processes that it starts later, to core `core`.
///
/// # Errors
/// `EINVAL` if there is no such core.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs `start` with the calling thread pinned to `core`, so that a child inherits it; then unpins the thread.
///
/// # Errors
/// Errors of [`pin_to`] and of `start`.
pub fn pinned<T>(core: usize, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    pin_to(core)?;
    let result = start();
    sched_setaffinity(None, &before)?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_does_not_run() {
        assert!(is_running(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while is_running(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }

    #[test]
    fn cpu_time_of_this_process_grows_while_it_works() {
        let me = std::process::id();
        let before = cpu_time(me).unwrap();
        let mut sum = 0u64;
        while cpu_time(me).unwrap() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_time(me).unwrap() > before);
    }

    #[test]
    fn time_outside_of_the_kernel_and_in_it_is_all_time() {
        let begin = CpuTimes::of_this_process();
        let mut sum = 0u64;
        while CpuTimes::of_this_process().since(&begin).user < Duration::from_millis(20) {
            (0..100_000).for_each(|_| sum = std::hint::black_box(sum + 1));
        }
        // The kernel counts running threads up to their last tick.
        let tick = Duration::from_millis(50);
        let before = cpu_time(std::process::id()).unwrap();
        let times = CpuTimes::of_this_process();
        let after = cpu_time(std::process::id()).unwrap();
        let all = times.user + times.system;
        assert!(before <= all + tick && all <= after + tick, "{before:?} {all:?} {after:?}");
    }

    #[test]
    fn a_process_that_has_ended_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(cpu_time(pid).is_err());
        assert!(resident_bytes(pid).is_err());
    }

    #[test]
    fn resident_set_is_that_of_a_real_process() {
        // A Rust test process has at least some pages and less than this machine's memory.
        let bytes = resident_bytes(std::process::id()).unwrap();
        assert!(bytes > 100 << 10 && bytes < 64 << 30, "{bytes}");
    }

    #[test]
    fn the_largest_resident_set_is_kept_until_it_is_reset() {
        const BYTES: usize = 64 << 20;
        // A process of its own: other tests of this one allocate too.
        let script = format!("x=$(head -c {BYTES} /dev/zero | tr '\\0' x); unset x; echo; read line");
        let mut child = std::process::Command::new("bash")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let pid = child.id();
        assert!(peak_bytes(pid).unwrap() >= BYTES as u64);
        assert!(peak_bytes(pid).unwrap() >= resident_bytes(pid).unwrap());
        reset_peak(pid).unwrap();
        assert!(peak_bytes(pid).unwrap() < BYTES as u64, "the variable is gone");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(peak_bytes(pid).is_err() && reset_peak(pid).is_err());
    }

    #[test]
    fn a_child_inherits_the_core() {
        let before = sched_getaffinity(None).unwrap();
        let core = (0..CpuSet::MAX_CPU).find(|core| before.is_set(*core)).unwrap();
        let output =
            pinned(core, || std::process::Command::new("cat").arg("/proc/self/status").output()).unwrap();
        let status = String::from_utf8(output.stdout).unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        assert_eq!(allowed.trim(), core.to_string());
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
