//! Lever and Honeyman, Linux NFS Client Write Performance (FREENIX 2002).

use super::claims::is_gain_of;
use super::runs::{Pick, Runs, mean};
use super::{ENFYS, Figure, Judgement, ON_LOCAL_DISK, Scale, Verdict};
use crate::statistics::median;

/// Maximum ratio of the latest tenth of calls to the earliest tenth.
const GROWTH_MAX: f64 = 2.0;
/// A call that takes at least this multiple of the mean is a spike; the paper's took 40 times the mean.
const SPIKE: f64 = 40.0;
/// Maximum 99th percentile of calls that only fill memory, in medians.
const TAIL_MAX: f64 = 3.0;
/// Files of Figure 7. The client keeps at most 512 MiB of data that are written and not committed.
const WITHIN_MEMORY: [&str; 3] = ["25MiB", "100MiB", "400MiB"];
const BEYOND_MEMORY: &str = "1500MiB";
/// Servers of Figures 5 and 6: files in memory, and on a model of a disk that writes 2.3 MB/s.
const FAST: &str = "enfys-memory";
const SLOW: &str = "enfys-disk-1994";
/// Minimum ratio of the usual call on the fast server to that on the slow one, for the writer to count as slower.
const SLOWER: f64 = 1.1;
/// The same ratio in Figure 6: 127 to 105 µs.
const SLIGHTLY_SLOWER: f64 = 1.21;
/// Writes against the network in Table 1, without the lock: 140 and 38 MB/s, the smaller gain of both servers.
const TABLE_GAIN: f64 = 3.7;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "2002:fig1",
        title: "Throughput of write(2) by size of the file, on NFS and on the local disk",
        finding: "Local files that fit into memory are written at its speed, those on NFS at that of network and server: 28 MB/s for \
                  100 MB.",
        plan: |scale| {
            let sizes = scale.pick("'25MiB'", "'25MiB', '100MiB', '400MiB'", "'25MiB', '100MiB', '400MiB'");
            format!(
                "[matrix]\nversions = ['3']\noptions = ['caches=on']\n{ENFYS}{ON_LOCAL_DISK}[[workload]]\nname = 'stream-write'\n\
                 set = {{ file-size = [{sizes}], io-size = '8KiB' }}\n"
            )
        },
        judge: judge_local,
    },
    Figure {
        name: "2002:fig2",
        title: "Latency of each write(2) of a 40 MB file",
        finding: "Calls of more than 19 ms, every 85 calls (0.2 % to 1.2 % of all), raise the mean from 140 to 482 µs: the \
                  client flushes all at a soft limit of requests.",
        plan: |scale| plan(scale.pick("10MB", "40MB", "40MB")),
        judge: judge_spikes,
    },
    Figure {
        name: "2002:fig3",
        title: "Latency of each write(2) of a 100 MB file",
        finding: "Latency rises with the number of outstanding requests, which are searched as a list: mean 485 µs, against \
                  137 µs and flat with a hash table.",
        plan: |scale| plan(scale.pick("25MB", "100MB", "100MB")),
        judge: judge_growth,
    },
    Figure {
        name: "2002:fig4",
        title: "Latency of each write(2) of a 100 MB file, with a hash table",
        finding: "Latency stays low as the number of outstanding requests grows: mean 137 µs, without spikes.",
        plan: |scale| plan(scale.pick("25MB", "100MB", "100MB")),
        judge: judge_tail,
    },
    Figure {
        name: "2002:fig5",
        title: "Latency of each write(2) of a 30 MB file on a fast and on a slow server",
        finding: "A faster server makes the writer slower, because both want the kernel's lock: mean 149 µs on the fast and 113 µs on the \
                  slow server; 127 and 105 µs (Figure 6) when the lock is not held over a send.",
        plan: |scale| servers_plan(scale.pick("5MB", "30MB", "30MB")),
        judge: judge_servers,
    },
    Figure {
        name: "2002:fig6",
        title: "Latency of each write(2) of a 30 MB file, with less contention for the lock",
        finding: "When the lock is not held over a send, the longest calls are shorter (381 to 292 µs), and the fast server's mean \
                  is 127 µs, the slow one's 105 µs.",
        plan: |scale| servers_plan(scale.pick("5MB", "30MB", "30MB")),
        judge: judge_jitter,
    },
    Figure {
        name: "2002:table1",
        title: "Throughput of write(2) of a 5 MB file, and of the network",
        finding: "A file is written at memory's speed to both servers: 140 MB/s, with the lock 115, where network and server have 38; \
                  and 147, with the lock 138, where they have 26.",
        plan: |_: Scale| servers_plan("5MB"),
        judge: judge_table,
    },
    Figure {
        name: "2002:fig7",
        title: "Throughput of write(2) by size of the file",
        finding: "Files that fit into the client's memory are written at its speed, 115 to 140 MB/s, and not at the server's, 26 to \
                  38 MB/s; larger ones at the server's.",
        plan: |scale| {
            let sizes = WITHIN_MEMORY.iter().chain(&[BEYOND_MEMORY]);
            let sizes: Vec<String> = sizes.map(|size| format!("'{size}'")).collect();
            let sizes = sizes[..scale.pick(2, sizes.len(), sizes.len())].join(", ");
            plan_of(&format!("[{sizes}]"))
        },
        judge: judge_sizes,
    },
];

fn plan(size: &str) -> String {
    plan_of(&format!("'{size}'"))
}

/// Returns the plan for some sizes. Without caches the client would wait for each WRITE.
fn plan_of(sizes: &str) -> String {
    format!(
        "[matrix]\nversions = ['3', '4.1']\noptions = ['caches=on']\n{ENFYS}[[workload]]\nname = 'stream-write'\n\
         set = {{ file-size = {sizes}, io-size = '8KiB' }}\n"
    )
}

/// Returns the plan for a fast and a slow server.
fn servers_plan(size: &str) -> String {
    let targets: String =
        [FAST, SLOW].map(|name| format!("[[target]]\nname = '{name}'\nserver = 'local:{name}'\n")).concat();
    format!(
        "[matrix]\nversions = ['3']\noptions = ['caches=on']\n{targets}[[workload]]\nname = 'stream-write'\n\
         set = {{ file-size = '{size}', io-size = '8KiB' }}\n"
    )
}

/// Judges whether writes to NFS wait for the server, which those to a local file do not.
fn judge_local(runs: &Runs<'_>) -> Option<Judgement> {
    let (mut gains, mut texts) = (Vec::new(), Vec::new());
    for size in WITHIN_MEMORY {
        let of = |target| {
            let pick = Pick::default().target(target).with("file-size", size);
            Some((runs.sample(&pick, "until_write_mb_per_s")?, runs.sample(&pick, "until_close_mb_per_s")?))
        };
        let Some((nfs, local)) = of("enfys").zip(of("local")) else { continue };
        gains.push(nfs.0 / nfs.1);
        texts.push(format!(
            "{size}: NFS {:.0} until write, {:.0} until close, local {:.0} and {:.0}",
            nfs.0, nfs.1, local.0, local.1
        ));
    }
    let least = gains.into_iter().min_by(f64::total_cmp)?;
    let ours = format!("MB/s {}", texts.join("; "));
    if (1.2..1.5).contains(&least) {
        return Some(Judgement::new(Verdict::NotSeen, ours, format!("{least:.2} times the server's rate")));
    }
    Some(conclude(runs, least < 1.2, ours, "calls do not wait for the server"))
}

fn judge_spikes(runs: &Runs<'_>) -> Option<Judgement> {
    let part = |samples: &[f64]| {
        let limit = mean(samples)? * SPIKE;
        Some(samples.iter().filter(|time| **time > limit).count() as f64 / samples.len() as f64)
    };
    let spikes = runs.samples(&Pick::v3(), "write_us", part)?;
    let average = runs.sample(&Pick::v3(), "write_us")?;
    let ours = format!("mean {average:.0} µs; {:.3} % of calls take over {SPIKE} times that", spikes * 100.0);
    let is_seen = spikes >= 0.002;
    Some(conclude(runs, is_seen, ours, "no limit at which all requests are flushed"))
}

/// Returns the ratio of the median of the last tenth of calls to that of the first.
fn growth(samples: &[f64]) -> Option<f64> {
    let tenth = (samples.len() / 10).max(1).min(samples.len());
    let (first, last) = (samples[..tenth].to_vec(), samples[samples.len() - tenth..].to_vec());
    Some(median(last)? / median(first)?.max(1e-3))
}

/// Returns the 99th percentile in medians.
fn tail(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted.get(sorted.len() * 99 / 100)? / median(sorted.clone())?.max(1e-3))
}

fn judge_growth(runs: &Runs<'_>) -> Option<Judgement> {
    let (v3, v41) =
        (runs.samples(&Pick::v3(), "write_us", growth)?, runs.samples(&Pick::v41(), "write_us", growth)?);
    let ours = format!("median of the last tenth of calls to that of the first: v3 {v3:.2}, v4.1 {v41:.2}");
    let is_seen = v3.max(v41) >= GROWTH_MAX;
    Some(conclude(runs, is_seen, ours, "requests are found by a hash of their number"))
}

fn judge_tail(runs: &Runs<'_>) -> Option<Judgement> {
    let of = |pick: Pick<'_>| {
        let number = |number: fn(&[f64]) -> Option<f64>| runs.samples(&pick, "write_us", number);
        Some((number(mean)?, number(tail)?, number(growth)?))
    };
    let (v3, v41) = (of(Pick::v3())?, of(Pick::v41())?);
    let text = |(mean, tail, growth): (f64, f64, f64)| {
        format!("mean {mean:.1} µs, 99 % within {tail:.1} medians, last tenth of calls to first {growth:.2}")
    };
    let is_seen = v3.1.max(v41.1) <= TAIL_MAX && v3.2.max(v41.2) < GROWTH_MAX;
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let writes = runs.request_count(&Pick::v41(), Some("WRITE"))?;
    Some(Judgement::new(
        verdict,
        format!("v3 {}; v4.1 {}", text(v3), text(v41)),
        format!("{writes:.0} WRITEs by v4.1"),
    ))
}

/// Compares the usual calls: a mean has the calls that waited for one of the machine's processors, which the fast server uses too.
fn judge_servers(runs: &Runs<'_>) -> Option<Judgement> {
    let of = |server| {
        let pick = Pick::v3().target(server);
        let number = |number: fn(&[f64]) -> Option<f64>| runs.samples(&pick, "write_us", number);
        let usual = number(|calls| median(calls.to_vec()))?;
        Some((number(mean)?, usual, runs.sample(&pick, "until_close_mb_per_s")?))
    };
    let (fast, slow) = (of(FAST)?, of(SLOW)?);
    let text = |(mean, usual, rate): (f64, f64, f64)| {
        format!("mean {mean:.1} µs, median {usual:.1} µs at {rate:.0} MB/s until close")
    };
    let ours = format!("fast server: {}; slow one: {}", text(fast), text(slow));
    let is_seen = fast.1 > slow.1 * SLOWER;
    Some(conclude(runs, is_seen, ours, "no lock is held over a send"))
}

/// Judges the tails of both servers, without the first call, and that the fast one is hardly slower.
fn judge_jitter(runs: &Runs<'_>) -> Option<Judgement> {
    let of = |server| {
        let pick = Pick::v3().target(server);
        let number = |number: fn(&[f64]) -> Option<f64>| {
            runs.samples(&pick, "write_us", |calls| number(calls.get(1..)?))
        };
        Some((number(mean)?, number(|calls| median(calls.to_vec()))?, number(tail)?))
    };
    let (fast, slow) = (of(FAST)?, of(SLOW)?);
    let text = |(mean, usual, tail): (f64, f64, f64)| {
        format!("mean {mean:.1} µs, median {usual:.1} µs, 99 % within {tail:.1} medians")
    };
    let slower = fast.1 / slow.1;
    let is_seen = fast.2.max(slow.2) <= TAIL_MAX && slower <= SLIGHTLY_SLOWER;
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let writes = |server| runs.request_count(&Pick::v3().target(server), Some("WRITE"));
    let counter = format!(
        "the usual call of the fast server takes {slower:.2} times that of the slow one; {:.0} and {:.0} WRITEs",
        writes(FAST)?,
        writes(SLOW)?
    );
    Some(Judgement::new(verdict, format!("fast server: {}; slow one: {}", text(fast), text(slow)), counter))
}

/// Judges whether both servers' files are written at memory's speed.
fn judge_table(runs: &Runs<'_>) -> Option<Judgement> {
    let of = |server| {
        let pick = Pick::v3().target(server);
        Some((runs.sample(&pick, "until_write_mb_per_s")?, runs.sample(&pick, "until_close_mb_per_s")?))
    };
    let (fast, slow) = (of(FAST)?, of(SLOW)?);
    let (fast_gain, slow_gain) = (fast.0 / fast.1, slow.0 / slow.1);
    let verdict =
        if is_gain_of(fast_gain.min(slow_gain), TABLE_GAIN) { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours = format!(
        "MB/s until write and until close: fast server {:.0} and {:.0}, slow one {:.0} and {:.1}",
        fast.0, fast.1, slow.0, slow.1
    );
    let writes = runs.request_count(&Pick::v3().target(SLOW), Some("WRITE"))?;
    let counter = format!(
        "calls are {fast_gain:.1} and {slow_gain:.1} times as fast as network and server; {writes:.0} WRITEs to the slow server"
    );
    Some(Judgement::new(verdict, ours, counter))
}

fn judge_sizes(runs: &Runs<'_>) -> Option<Judgement> {
    let of = |size: &str| {
        let pick = Pick::v41().with("file-size", size);
        let rate = |name| runs.sample(&pick, name);
        let (write, close) = (rate("until_write_mb_per_s")?, rate("until_close_mb_per_s")?);
        Some((write, close, runs.samples(&pick, "write_us", tail)?))
    };
    let within: Vec<_> = WITHIN_MEMORY.into_iter().filter_map(|size| Some((size, of(size)?))).collect();
    let beyond = of(BEYOND_MEMORY);
    let is_faster = |(write, close, _): (f64, f64, f64)| write >= 1.2 * close;
    let is_seen = !within.is_empty()
        && within.iter().all(|(_, rates)| is_faster(*rates))
        && beyond.is_none_or(|rates| rates.0 < within[0].1.0);
    let all = within.into_iter().chain(beyond.map(|rates| (BEYOND_MEMORY, rates)));
    let all = all.map(|(size, (write, close, tail))| {
        format!("{size}: {write:.0} until write, {close:.0} until close, 99 % within {tail:.1} medians")
    });
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let counter = format!("of v4.1; {:.0} WRITEs", runs.request_count(&Pick::v41(), Some("WRITE"))?);
    Some(Judgement::new(verdict, format!("MB/s {}", all.collect::<Vec<_>>().join("; ")), counter))
}

/// Returns the verdict. The finding applies to clients that write behind, not to those that wait for each WRITE.
fn conclude(runs: &Runs<'_>, is_seen: bool, ours: String, cause: &str) -> Judgement {
    let calls =
        runs.samples(&Pick::v3(), "write_us", |samples| Some(samples.len() as f64)).unwrap_or_default();
    let writes = runs.request_count(&Pick::v3(), Some("WRITE")).unwrap_or_default();
    let verdict = match is_seen {
        true => Verdict::Confirmed,
        false if writes < calls => Verdict::Reversed,
        false => {
            let counter =
                format!("{writes:.0} WRITEs for {calls:.0} calls: this client waits for each WRITE");
            return Judgement::new(Verdict::NotSeen, ours, counter);
        }
    };
    Judgement::new(verdict, ours, format!("{writes:.0} WRITEs for {calls:.0} calls; {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures;
    use crate::result::RunResult;
    use crate::result::tests::result;

    /// Results of both versions whose calls take these times.
    fn results(write_us: &[f64]) -> Vec<RunResult> {
        let of = |version| {
            let mut run = result("enfys", version, 1, 100);
            run.samples.insert("write_us".to_owned(), write_us.to_vec());
            run
        };
        vec![of("3"), of("4.1")]
    }

    fn verdict(figure: &str, results: &[RunResult]) -> Verdict {
        figures(Some(figure)).unwrap()[0].judge(results).verdict
    }

    #[test]
    fn flat_latency_is_confirmed_and_growth_or_a_tail_is_not() {
        assert_eq!(verdict("2002:fig4", &results(&[10.0; 1000])), Verdict::Confirmed);
        let grows: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(verdict("2002:fig4", &results(&grows)), Verdict::NotSeen);
        let spikes: Vec<f64> = (0..1000).map(|call| if call % 50 == 0 { 31.0 } else { 10.0 }).collect();
        assert_eq!(verdict("2002:fig4", &results(&spikes)), Verdict::NotSeen);
    }

    #[test]
    fn a_fast_server_that_slows_the_writer_is_told_from_one_that_does_not() {
        let of = |server: &str, usual: f64| {
            let mut run = result(server, "3", 1, 100);
            let mut calls = vec![usual; 99];
            // One call has waited for a processor.
            calls.push(5000.0);
            run.samples.insert("write_us".to_owned(), calls);
            run.samples.insert("until_close_mb_per_s".to_owned(), vec![100.0]);
            run
        };
        let judge = |fast, slow| verdict("2002:fig5", &[of(FAST, fast), of(SLOW, slow)]);
        assert_eq!(judge(149.0, 113.0), Verdict::Confirmed);
        assert_eq!(judge(3.0, 3.0), Verdict::Reversed);
        assert_eq!(judge(2.0, 3.0), Verdict::Reversed);
    }

    /// A result with the rates of a file of 25 MiB, and calls of which the last two of a hundred take `late` µs.
    fn rated(target: &str, write: f64, close: f64, late: f64) -> RunResult {
        let mut run = result(target, "3", 1, 100);
        run.run.case.parameters.insert("file-size".to_owned(), crate::plan::Value::Text("25MiB".to_owned()));
        let calls = [vec![10.0; 98], vec![late; 2]].concat();
        for (name, values) in [
            ("until_write_mb_per_s", vec![write]),
            ("until_close_mb_per_s", vec![close]),
            ("write_us", calls),
        ] {
            run.samples.insert(name.to_owned(), values);
        }
        // Fewer WRITEs than calls: this client writes behind.
        let write = crate::result::RequestCounters { requests: 5, ..Default::default() };
        run.requests.insert("WRITE".to_owned(), write);
        run
    }

    #[test]
    fn writes_that_wait_for_the_server_are_told_from_those_that_do_not() {
        let judge = |write| {
            verdict("2002:fig1", &[rated("enfys", write, 100.0, 10.0), rated("local", 1000.0, 900.0, 10.0)])
        };
        assert_eq!(judge(105.0), Verdict::Confirmed);
        assert_eq!(judge(140.0), Verdict::NotSeen);
        assert_eq!(judge(500.0), Verdict::Reversed);
        assert_eq!(verdict("2002:fig1", &[rated("enfys", 105.0, 100.0, 10.0)]), Verdict::NotMeasured);
    }

    #[test]
    fn jitter_and_rates_of_two_servers_are_judged() {
        let jitter =
            |late| verdict("2002:fig6", &[rated(FAST, 500.0, 300.0, late), rated(SLOW, 500.0, 2.0, 10.0)]);
        assert_eq!(jitter(20.0), Verdict::Confirmed);
        assert_eq!(jitter(50.0), Verdict::NotSeen);
        let table =
            |write| verdict("2002:table1", &[rated(FAST, write, 100.0, 10.0), rated(SLOW, 500.0, 2.0, 10.0)]);
        assert_eq!(table(240.0), Verdict::Confirmed);
        assert_eq!(table(230.0), Verdict::NotSeen);
    }

    #[test]
    fn memory_speed_is_seen_only_if_writes_are_faster_than_the_server() {
        let of = |size: &str, write: f64, close: f64| {
            let mut run = result("enfys", "4.1", 1, 100);
            run.run.case.parameters.insert("file-size".to_owned(), crate::plan::Value::Text(size.to_owned()));
            for (name, value) in
                [("until_write_mb_per_s", write), ("until_close_mb_per_s", close), ("write_us", 10.0)]
            {
                run.samples.insert(name.to_owned(), vec![value]);
            }
            run
        };
        let judge = |write| verdict("2002:fig7", &[of("25MiB", write, 100.0), of("1500MiB", 110.0, 100.0)]);
        assert_eq!(judge(500.0), Verdict::Confirmed);
        assert_eq!(judge(105.0), Verdict::NotSeen);
        assert_eq!(verdict("2002:fig7", &[of("1500MiB", 110.0, 100.0)]), Verdict::NotSeen);
    }
}
