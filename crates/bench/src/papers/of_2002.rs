//! Lever and Honeyman, Linux NFS Client Write Performance (FREENIX 2002).

use super::runs::{Pick, Runs, mean};
use super::{ENFYS, Figure, Judgement, Verdict};

/// Maximum ratio of the latest tenth of calls to the earliest tenth.
const GROWTH_MAX: f64 = 2.0;
/// A call that takes at least this multiple of the mean is a spike; the paper's took 40 times the mean.
const SPIKE: f64 = 40.0;

pub(super) const FIGURES: &[Figure] = &[
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
];

fn plan(size: &str) -> String {
    format!(
        "[matrix]\nversions = ['3', '4.1']\n{ENFYS}[[workload]]\nname = 'stream-write'\n\
         set = {{ file-size = '{size}', io-size = '8KiB' }}\n"
    )
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

fn judge_growth(runs: &Runs<'_>) -> Option<Judgement> {
    let growth = |samples: &[f64]| {
        let tenth = (samples.len() / 10).max(1);
        let mut first = samples[..tenth.min(samples.len())].to_vec();
        let mut last = samples[samples.len().saturating_sub(tenth)..].to_vec();
        first.sort_by(f64::total_cmp);
        last.sort_by(f64::total_cmp);
        let middle = |sorted: &[f64]| sorted.get(sorted.len() / 2).copied();
        Some(middle(&last)? / middle(&first)?.max(1e-3))
    };
    let (v3, v41) =
        (runs.samples(&Pick::v3(), "write_us", growth)?, runs.samples(&Pick::v41(), "write_us", growth)?);
    let ours = format!("median of the last tenth of calls to that of the first: v3 {v3:.2}, v4.1 {v41:.2}");
    let is_seen = v3.max(v41) >= GROWTH_MAX;
    Some(conclude(runs, is_seen, ours, "requests are found by a hash of their number"))
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
