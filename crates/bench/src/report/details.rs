//! Counters of a case in sentences: requests by operation, caches and delegations of clients, CPU and memory, and what the kernel
//! counted. Counters that say nothing are left out.

use std::collections::BTreeMap;

use super::groups::Group;
use super::numbers::short;
use crate::kernel_counters::{DiskCounters, KernelCounters, SystemCounters};
use crate::result::{CacheUse, ClientCounters, Compared, Delegations, RunResult, SlotWaits};
use crate::statistics::median;

/// Operations of the protocol that are fewer than this part of the operations of programs are not shown.
const SHARE_MIN: f64 = 0.000_5;

/// A sentence about a case, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) subject: String,
    pub(super) text: String,
}

/// Returns what the counters of a case say, over all its rounds together.
pub(super) fn details(group: &Group<'_>) -> Vec<Detail> {
    let seconds: f64 = group.runs.iter().map(|run| run.seconds).sum();
    if seconds <= 0.0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut add = |subject: &str, text: Option<String>| {
        found.extend(text.map(|text| Detail { subject: subject.to_owned(), text }));
    };
    add("requests/operation", requests(&group.runs));
    add("compared reads", compared(&group.runs));
    let mut counters = ClientCounters::default();
    group.runs.iter().filter_map(|run| run.client_counters.as_ref()).for_each(|one| counters.add(one));
    add("slot waits", slot_waits(&counters.slots));
    add("caches", caches(&counters));
    add("delegations", delegations(&counters.delegations));
    add("directory delegations", delegations(&counters.directory_delegations));
    add("clients", process(&group.runs, |run| run.client_cpu_seconds, |run| run.client_resident_bytes));
    add("server", process(&group.runs, |run| run.server_cpu_seconds, |run| run.server_peak_bytes));
    let kernels: Vec<&KernelCounters> = group.runs.iter().flat_map(|run| &run.kernel).collect();
    let mut mounts = kernels.iter().filter_map(|kernel| kernel.mount.as_ref());
    add("mount", mounts.next_back().map(|mount| format!("{} {}", mount.file_system, mount.options)));
    let systems: Vec<&SystemCounters> = kernels.iter().filter_map(|kernel| kernel.system.as_ref()).collect();
    add("system", system(&systems, seconds));
    let disks: Vec<&DiskCounters> = kernels.iter().filter_map(|kernel| kernel.disk.as_ref()).collect();
    for name in names(&disks) {
        let of_name = disks.iter().filter(|disk| disk.name == name).copied().collect::<Vec<_>>();
        add(&format!("disk {name}"), disk(&of_name, seconds));
    }
    found
}

/// Returns the requests of each kind for one operation of programs, the most frequent first.
fn requests(runs: &[&RunResult]) -> Option<String> {
    let operations: u64 = runs.iter().flat_map(|run| run.operations.values()).map(|one| one.count).sum();
    let mut requests: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, counters) in runs.iter().flat_map(|run| &run.requests) {
        *requests.entry(name).or_default() += counters.requests;
    }
    let share = |count: u64| count as f64 / operations as f64;
    let mut shown: Vec<(&str, u64)> =
        requests.into_iter().filter(|(_, count)| operations > 0 && share(*count) >= SHARE_MIN).collect();
    shown.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let texts: Vec<String> =
        shown.into_iter().map(|(name, count)| format!("{name} {}", short(share(count)))).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Returns how many reads were compared with what was written.
fn compared(runs: &[&RunResult]) -> Option<String> {
    let of = |field: fn(&Compared) -> u64| {
        runs.iter().filter_map(|run| run.compared.as_ref()).map(field).sum::<u64>()
    };
    let (reads, whole) = (of(|compared| compared.reads), of(|compared| compared.whole));
    (reads > 0).then(|| format!("{whole} of {reads} as a whole, the others at their beginning"))
}

/// Returns how many requests waited for a slot, and how long.
fn slot_waits(slots: &SlotWaits) -> Option<String> {
    let (mean_ms, deviation_ms) = slots.mean_and_deviation_ms()?;
    let sum_s = slots.sum_us as f64 / 1e6;
    Some(format!(
        "{} requests, {} ms in the mean (deviation {} ms), {} s together",
        slots.count,
        short(mean_ms),
        short(deviation_ms),
        short(sum_s)
    ))
}

/// Returns what part of its uses each cache answered; nothing if no cache answered anything.
fn caches(counters: &ClientCounters) -> Option<String> {
    let ClientCounters { attributes, names, access, listings, data_bytes, .. } = counters;
    let all = [
        ("attributes", attributes, ""),
        ("names", names, ""),
        ("permissions", access, ""),
        ("listings", listings, ""),
        ("data", data_bytes, "B"),
    ];
    if all.iter().all(|(_, of, _)| of.hits == 0) {
        return None;
    }
    let text = |(name, of, unit): (&str, &CacheUse, &str)| {
        let total = (of.hits + of.misses) as f64;
        (total > 0.0)
            .then(|| format!("{name} {:.1} % of {}{unit}", of.hits as f64 / total * 100.0, short(total)))
    };
    Some(all.into_iter().filter_map(text).collect::<Vec<_>>().join(", "))
}

/// Returns what became of delegations; nothing if there were none.
fn delegations(of: &Delegations) -> Option<String> {
    let Delegations { held, granted, recalled, returned, lost, local_opens } = *of;
    let numbers = [
        (granted, "granted"),
        (recalled, "recalled"),
        (returned, "returned"),
        (lost, "lost"),
        (held, "held at the end"),
        (local_opens, "opens without a request"),
    ];
    let is_used = numbers.iter().any(|(number, _)| *number > 0);
    is_used.then(|| numbers.map(|(number, what)| format!("{number} {what}")).join(", "))
}

/// Returns the CPU time of a process for each operation, and its memory as the median of the rounds.
fn process(
    runs: &[&RunResult],
    cpu_seconds: fn(&RunResult) -> Option<f64>,
    bytes: fn(&RunResult) -> Option<u64>,
) -> Option<String> {
    let known: Vec<(f64, &RunResult)> =
        runs.iter().filter_map(|run| cpu_seconds(run).map(|seconds| (seconds, *run))).collect();
    let sum = |of: fn(&(f64, &RunResult)) -> f64| known.iter().map(of).sum::<f64>();
    let cpu = sum(|(cpu, _)| *cpu);
    let operations = sum(|(_, run)| run.operations.values().map(|one| one.count as f64).sum());
    let cpu = (operations > 0.0).then(|| {
        let busy = cpu / sum(|(_, run)| run.seconds) * 100.0;
        format!("{} µs of CPU/operation ({busy:.0} % of one CPU)", short(cpu / operations * 1e6))
    });
    let memory = median(runs.iter().filter_map(|run| bytes(run)).map(|bytes| bytes as f64).collect());
    let memory = memory.map(|bytes| format!("{} MB of memory", short(bytes / 1e6)));
    let texts: Vec<String> = cpu.into_iter().chain(memory).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Returns rates and shares of CPU time, as vmstat(8) shows them.
fn system(systems: &[&SystemCounters], seconds: f64) -> Option<String> {
    let count = |field: fn(&SystemCounters) -> u64| {
        systems.iter().map(|one| field(one)).sum::<u64>() as f64 / seconds
    };
    let time = |field: fn(&SystemCounters) -> f64| systems.iter().map(|one| field(one)).sum::<f64>();
    let all = time(SystemCounters::cpu_seconds);
    let part = |field| if all > 0.0 { time(field) / all * 100.0 } else { 0.0 };
    let dirty = systems.last()?.dirty_pages;
    Some(format!(
        "CPU {:.0} % user, {:.0} % system, {:.0} % waiting for disks; {} context switches/s, {} interrupts/s; \
         {} MB/s paged in, {} MB/s out; {dirty} changed pages at the end",
        part(|one| one.cpu_user_seconds),
        part(|one| one.cpu_system_seconds),
        part(|one| one.cpu_io_wait_seconds),
        short(count(|one| one.context_switches)),
        short(count(|one| one.interrupts)),
        short(count(|one| one.paged_in_bytes) / 1e6),
        short(count(|one| one.paged_out_bytes) / 1e6),
    ))
}

fn names(disks: &[&DiskCounters]) -> Vec<String> {
    let mut names: Vec<String> = disks.iter().map(|disk| disk.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns rates, times and use, as iostat(1) shows them.
fn disk(disks: &[&DiskCounters], seconds: f64) -> Option<String> {
    let sum = |field: fn(&DiskCounters) -> u64| disks.iter().map(|one| field(one)).sum::<u64>() as f64;
    let rate = |field| short(sum(field) / seconds);
    let mean = |time, count| if sum(count) > 0.0 { short(sum(time) / sum(count)) } else { "–".to_owned() };
    (!disks.is_empty()).then(|| {
        format!(
            "{} reads/s of {} MB/s and {} ms, {} writes/s of {} MB/s and {} ms, {} flushes/s; busy {:.0} %, {} requests at \
             once in the mean",
            rate(|one| one.reads),
            short(sum(|one| one.read_bytes) / 1e6 / seconds),
            mean(|one| one.read_ms, |one| one.reads),
            rate(|one| one.writes),
            short(sum(|one| one.written_bytes) / 1e6 / seconds),
            mean(|one| one.write_ms, |one| one.writes),
            rate(|one| one.flushes),
            (sum(|one| one.busy_ms) / 1e3 / seconds * 100.0).min(100.0),
            short(sum(|one| one.weighted_ms) / 1e3 / seconds),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_counters::MountCounters;
    use crate::report::groups::group;
    use crate::result::RequestCounters;
    use crate::result::tests::result;

    fn texts(results: &[RunResult]) -> Vec<(String, String)> {
        let groups = group(results);
        details(&groups[0]).into_iter().map(|detail| (detail.subject, detail.text)).collect()
    }

    #[test]
    fn requests_are_listed_by_operation() {
        let mut run = result("enfys", "4.1", 1, 1000);
        run.requests
            .insert("OPEN".to_owned(), RequestCounters { requests: 250, ..RequestCounters::default() });
        run.requests.insert("RENEW".to_owned(), RequestCounters::default());
        let expected = ("requests/operation".to_owned(), "READ 1.00, OPEN 0.250".to_owned());
        assert_eq!(texts(&[run]), [expected]);
    }

    /// Two rounds of 1000 operations in 10 s.
    #[test]
    fn counters_of_clients_and_processes_are_of_all_rounds() {
        let counters = ClientCounters {
            slots: SlotWaits { count: 3, sum_us: 6000, squares_us2: 14e6 },
            attributes: CacheUse { hits: 75, misses: 25 },
            data_bytes: CacheUse { hits: 0, misses: 1_000_000 },
            delegations: Delegations { granted: 5, recalled: 2, ..Delegations::default() },
            ..ClientCounters::default()
        };
        let rounds = [1, 2].map(|round| {
            let mut run = result("enfys", "4.1", round, 1000);
            run.add_client(&counters);
            run.client_cpu_seconds = Some(0.5);
            run.server_cpu_seconds = Some(1.0);
            run.server_peak_bytes = Some(u64::from(round) * 10_000_000);
            run
        });
        let told = texts(&rounds);
        let text = |subject: &str| told.iter().find(|(found, _)| found == subject).unwrap().1.clone();
        // Waits of 1, 2 and 3 ms in each round: the deviation of all six is √(4 / 5).
        assert_eq!(
            text("slot waits"),
            "6 requests, 2.00 ms in the mean (deviation 0.894 ms), 0.012 s together"
        );
        assert_eq!(text("caches"), "attributes 75.0 % of 200, data 0.0 % of 2.00MB");
        let delegations =
            "10 granted, 4 recalled, 0 returned, 0 lost, 0 held at the end, 0 opens without a request";
        assert_eq!(text("delegations"), delegations);
        assert_eq!(text("clients"), "500 µs of CPU/operation (5 % of one CPU)");
        assert_eq!(text("server"), "1.00k µs of CPU/operation (10 % of one CPU), 15.0 MB of memory");
        assert!(!told.iter().any(|(subject, _)| subject == "directory delegations"), "there were none");
    }

    /// Two rounds of 10 s, on a machine with two processors.
    #[test]
    fn kernels_counters_become_rates_of_all_rounds() {
        let system = SystemCounters {
            cpu_user_seconds: 2.0,
            cpu_system_seconds: 4.0,
            cpu_io_wait_seconds: 1.0,
            cpu_idle_seconds: 13.0,
            context_switches: 10_000,
            interrupts: 500,
            paged_out_bytes: 20_000_000,
            dirty_pages: 7,
            ..SystemCounters::default()
        };
        let disk = DiskCounters {
            name: "vda".to_owned(),
            writes: 100,
            written_bytes: 20_000_000,
            write_ms: 50,
            busy_ms: 2500,
            weighted_ms: 5000,
            flushes: 10,
            ..DiskCounters::default()
        };
        let mount = MountCounters {
            source: "server:/export".to_owned(),
            point: "/mnt".into(),
            file_system: "nfs4".to_owned(),
            options: "rw,vers=4.2".to_owned(),
            program_bytes: (0, 0),
            server_bytes: (0, 0),
        };
        let counters = KernelCounters {
            boot_id: "a".to_owned(),
            mount: Some(mount),
            system: Some(system),
            disk: Some(disk),
        };
        let rounds = [1, 2].map(|round| {
            let mut run = result("mount", "4.1", round, 1000);
            run.add_kernel(counters.clone(), std::collections::BTreeMap::new());
            run
        });
        let told = texts(&rounds);
        let text = |subject: &str| told.iter().find(|(found, _)| found == subject).unwrap().1.clone();
        assert_eq!(text("mount"), "nfs4 rw,vers=4.2");
        assert_eq!(
            text("system"),
            "CPU 10 % user, 20 % system, 5 % waiting for disks; 1.00k context switches/s, 50.0 interrupts/s; \
             0 MB/s paged in, 2.00 MB/s out; 7 changed pages at the end"
        );
        assert_eq!(
            text("disk vda"),
            "0 reads/s of 0 MB/s and – ms, 10.0 writes/s of 2.00 MB/s and 0.500 ms, 1.00 flushes/s; busy 25 %, \
             0.500 requests at once in the mean"
        );
    }
}
