//! `/proc/stat` and `/proc/vmstat` (proc(5)): the counters of vmstat(8).

use serde::{Deserialize, Serialize};

/// Ticks of a second in `/proc/stat` (`USER_HZ`), on all architectures of this program.
const TICKS_OF_SECOND: f64 = 100.0;
/// Bytes of the unit of `pgpgin` and `pgpgout`.
const PAGED_UNIT: u64 = 1024;

/// Counters of a whole system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemCounters {
    /// CPU time of programs, in seconds of all CPUs together.
    pub cpu_user_seconds: f64,
    /// CPU time of the kernel, interrupts included.
    pub cpu_system_seconds: f64,
    /// Time that CPUs had nothing to do.
    pub cpu_idle_seconds: f64,
    /// Time that CPUs had nothing to do and waited for a disk.
    pub cpu_io_wait_seconds: f64,
    /// Time in which the host of a virtual machine had other things to do.
    pub cpu_steal_seconds: f64,
    /// Context switches.
    pub context_switches: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Bytes read from disks.
    pub paged_in_bytes: u64,
    /// Bytes written to disks.
    pub paged_out_bytes: u64,
    /// Pages swapped in and out.
    pub swapped_pages: (u64, u64),
    /// Page faults that needed a disk.
    pub major_faults: u64,
    /// Pages of files that were changed in memory.
    pub dirtied_pages: u64,
    /// Changed pages that are not written at this moment; no counter, and not part of a difference.
    pub dirty_pages: u64,
}

impl SystemCounters {
    /// Takes the text of both files. Counters that are missing are 0.
    pub(crate) fn parse(stat: &str, vmstat: &str) -> Self {
        let mut counters = Self::default();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_default();
            match name {
                "cpu" => counters.add_cpu(&std::array::from_fn(|_| number())),
                "ctxt" => counters.context_switches = number(),
                // The first number is the sum of the others.
                "intr" => counters.interrupts = number(),
                _ => {}
            }
        }
        for line in vmstat.lines() {
            let Some((name, number)) = line.split_once(' ') else { continue };
            let Ok(number) = number.trim().parse::<u64>() else { continue };
            match name {
                "pgpgin" => counters.paged_in_bytes = number.saturating_mul(PAGED_UNIT),
                "pgpgout" => counters.paged_out_bytes = number.saturating_mul(PAGED_UNIT),
                "pswpin" => counters.swapped_pages.0 = number,
                "pswpout" => counters.swapped_pages.1 = number,
                "pgmajfault" => counters.major_faults = number,
                "nr_dirtied" => counters.dirtied_pages = number,
                "nr_dirty" => counters.dirty_pages = number,
                _ => {}
            }
        }
        counters
    }

    /// Adds the line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal. The sums are those of vmstat(8).
    fn add_cpu(&mut self, [user, nice, system, idle, io_wait, irq, soft_irq, steal]: &[u64; 8]) {
        let seconds = |ticks: u64| ticks as f64 / TICKS_OF_SECOND;
        self.cpu_user_seconds = seconds(user.saturating_add(*nice));
        self.cpu_system_seconds = seconds(system.saturating_add(*irq).saturating_add(*soft_irq));
        self.cpu_idle_seconds = seconds(*idle);
        self.cpu_io_wait_seconds = seconds(*io_wait);
        self.cpu_steal_seconds = seconds(*steal);
    }

    /// Returns the growth since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        // Ticks are whole: rounding removes what floating point adds.
        let time = |field: fn(&Self) -> f64| {
            let ticks = (field(self) - field(before)) * TICKS_OF_SECOND;
            ticks.round().max(0.0) / TICKS_OF_SECOND
        };
        let count = |field: fn(&Self) -> u64| field(self).saturating_sub(field(before));
        Self {
            cpu_user_seconds: time(|counters| counters.cpu_user_seconds),
            cpu_system_seconds: time(|counters| counters.cpu_system_seconds),
            cpu_idle_seconds: time(|counters| counters.cpu_idle_seconds),
            cpu_io_wait_seconds: time(|counters| counters.cpu_io_wait_seconds),
            cpu_steal_seconds: time(|counters| counters.cpu_steal_seconds),
            context_switches: count(|counters| counters.context_switches),
            interrupts: count(|counters| counters.interrupts),
            paged_in_bytes: count(|counters| counters.paged_in_bytes),
            paged_out_bytes: count(|counters| counters.paged_out_bytes),
            swapped_pages: (
                count(|counters| counters.swapped_pages.0),
                count(|counters| counters.swapped_pages.1),
            ),
            major_faults: count(|counters| counters.major_faults),
            dirtied_pages: count(|counters| counters.dirtied_pages),
            dirty_pages: self.dirty_pages,
        }
    }

    /// Returns the CPU time of all kinds together.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_user_seconds
            + self.cpu_system_seconds
            + self.cpu_idle_seconds
            + self.cpu_io_wait_seconds
            + self.cpu_steal_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 6.18 with two processors; lines of other counters are left out.
    const STAT: &str = "cpu  67389 35151 8127 21735 363 0 82 46 0 0\n\
        cpu0 29201 22032 3424 11747 29 0 13 21 0 0\ncpu1 38188 13119 4703 9988 334 0 68 25 0 0\n\
        intr 550279 0 0 0 0 0 0 0 0 0 0\nctxt 818838\nbtime 1795979000\nprocesses 19000\n\
        procs_running 6\nprocs_blocked 0\n";
    const VMSTAT: &str = "nr_dirty 9910\nnr_writeback 0\nnr_dirtied 1218299\nnr_written 913184\npgpromote_success 0\n\
        nr_dirty_threshold 1132738\npgpgin 2016901\npgpgout 3684960\npswpin 0\npswpout 0\npgfree 21036333\n\
        pgmajfault 527\n";

    #[test]
    fn counters_of_both_files_are_found() {
        let counters = SystemCounters::parse(STAT, VMSTAT);
        // In hundredths of a second: 67389 + 35151, and 8127 + 0 + 82.
        assert_eq!((counters.cpu_user_seconds, counters.cpu_system_seconds), (1025.40, 82.09));
        assert_eq!((counters.cpu_idle_seconds, counters.cpu_io_wait_seconds), (217.35, 3.63));
        assert_eq!((counters.context_switches, counters.interrupts), (818_838, 550_279));
        assert_eq!((counters.paged_in_bytes, counters.paged_out_bytes), (2_016_901 * 1024, 3_684_960 * 1024));
        assert_eq!(
            (counters.dirty_pages, counters.dirtied_pages, counters.major_faults),
            (9910, 1_218_299, 527)
        );
    }

    #[test]
    fn differences_keep_what_is_no_counter() {
        let before = SystemCounters::parse(STAT, VMSTAT);
        let later = STAT.replace("cpu  67389", "cpu  67489").replace("ctxt 818838", "ctxt 818848");
        let after = SystemCounters::parse(&later, &VMSTAT.replace("pgpgout 3684960", "pgpgout 3684964"));
        let expected = SystemCounters {
            cpu_user_seconds: 1.0,
            context_switches: 10,
            paged_out_bytes: 4096,
            dirty_pages: 9910,
            ..SystemCounters::default()
        };
        assert_eq!(after.since(&before), expected);
    }

    #[test]
    fn unknown_and_damaged_lines_are_ignored() {
        let odd = "cpu\ncpu x y\nctxt\nctxt -1\nintr\n\nfuture 1 2 3\n";
        assert_eq!(SystemCounters::parse(odd, "pgpgin\npgpgin x\nfuture 1\n\n"), SystemCounters::default());
        assert_eq!(
            SystemCounters::parse("cpu 100\n", "").cpu_user_seconds,
            1.0,
            "as older kernels had fewer"
        );
    }
}
