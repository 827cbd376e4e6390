//! Statistics of this process from the kernel, for the metrics that all Prometheus clients have.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Indexes of fields of `/proc/self/stat` after the name in parentheses: proc_pid_stat(5).
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const THREADS: usize = 17;
const START_TICKS: usize = 19;
const VIRTUAL_BYTES: usize = 20;
const RESIDENT_PAGES: usize = 21;

/// The statistics of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_s: f64,
    /// Seconds since 1970.
    pub(super) start_s: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) threads: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
}

/// The units of `/proc/self/stat`.
#[derive(Debug, Clone, Copy)]
struct Units {
    ticks_per_second: f64,
    page_bytes: u64,
    /// The time of the boot, in seconds since 1970.
    boot_s: f64,
}

impl Process {
    /// Returns the statistics of this process; `None` without `/proc`.
    pub(super) fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let open_fds = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        // The directory's own descriptor is no longer open.
        let open_fds = open_fds.saturating_sub(1);
        let max_fds = crate::descriptor_limits::limit() as u64;
        Some(Self { open_fds, max_fds, ..Self::of(&stat, Units::here())? })
    }

    fn of(stat: &str, units: Units) -> Option<Self> {
        let (_, numbers) = stat.rsplit_once(')')?;
        let numbers: Vec<&str> = numbers.split_ascii_whitespace().collect();
        let number = |index: usize| numbers.get(index)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / units.ticks_per_second;
        Some(Self {
            cpu_s: seconds(number(USER_TICKS)? + number(SYSTEM_TICKS)?),
            start_s: units.boot_s + seconds(number(START_TICKS)?),
            resident_bytes: number(RESIDENT_PAGES)?.saturating_mul(units.page_bytes),
            virtual_bytes: number(VIRTUAL_BYTES)?,
            threads: number(THREADS)?,
            ..Self::default()
        })
    }
}

impl Units {
    fn here() -> Self {
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        Self { ticks_per_second, page_bytes: rustix::param::page_size() as u64, boot_s: *BOOT_S }
    }
}

/// The time of the boot, from which process start times count. Read once, so that the start time does not change with the clock.
static BOOT_S: LazyLock<f64> = LazyLock::new(boot_s);

fn boot_s() -> f64 {
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let since_boot = Duration::new(since_boot.tv_sec as u64, since_boot.tv_nsec as u32);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(since_boot).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_skipped() {
        let stat =
            "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 400 1048576 3 18446744073709551615 1";
        let units = Units { ticks_per_second: 100.0, page_bytes: 4096, boot_s: 1000.0 };
        let expected = Process {
            cpu_s: 2.0,
            start_s: 1004.0,
            resident_bytes: 12_288,
            virtual_bytes: 1_048_576,
            threads: 9,
            ..Process::default()
        };
        assert_eq!(Process::of(stat, units), Some(expected));
        assert_eq!(Process::of("7 (a) S 1", units), None);
    }

    #[test]
    fn the_statistics_of_this_process_are_plausible() {
        let process = Process::read().expect("proc");
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        // Clock ticks are ten milliseconds.
        assert!(process.start_s > now_s - 86_400.0 && process.start_s < now_s + 1.0, "{process:?}");
        assert!(process.resident_bytes > 0 && process.virtual_bytes >= process.resident_bytes);
        assert!(process.open_fds >= 3 && process.max_fds >= process.open_fds && process.threads > 0);
    }
}
