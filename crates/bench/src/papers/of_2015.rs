//! Chen et al., Newer Is Sometimes Better: An Evaluation of NFSv4.1 (SIGMETRICS 2015).

use super::runs::{Pick, Runs};
use super::{ENFYS, Figure, Judgement, Scale, Verdict};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "2015:fig1",
        title: "Random reads over a long link",
        finding: "With 16 threads, 10 ms divide the throughput of 4 KiB reads by 20, and leave that of 1 MiB reads unchanged. v3 and \
                  v4.1 are equal.",
        plan: reads_plan,
        judge: judge_reads,
    },
    Figure {
        name: "2015:fig5",
        title: "Synchronous random writes",
        finding: "v4.1 is slower by 2 %.",
        plan: writes_plan,
        judge: judge_writes,
    },
    Figure {
        name: "2015:fig6",
        title: "Small files, one thread",
        finding: "v4.1 reads twice as many files as v3 once they are delegated, with 8.3 times fewer requests.",
        plan: |scale| small_plan(scale, "0", 1),
        judge: judge_small,
    },
    Figure {
        name: "2015:fig7",
        title: "Small files, 16 threads, 10 ms",
        finding: "v4.1 starts at 723 files a second where v3 has 8,100: opens wait for each other.",
        plan: |scale| small_plan(scale, "10ms", 16),
        judge: judge_slow_start,
    },
    Figure {
        name: "2015:fig8",
        title: "Creation of files, 10 ms",
        finding: "At 1 thread v4.1 and v3 are equal; with 2 to 32 threads v4.1 is 1.1 to 1.5 times as fast, with more 1.1 to 4.6 \
                  times slower, since requests wait for slots; a patched client is 2.5 to 2.9 times as fast.",
        plan: |scale| create_plan(scale, "10ms"),
        judge: |runs| judge_create(runs, 10),
    },
    Figure {
        name: "2015:fig10",
        title: "Creation of files, no delay",
        finding: "From 1.76 times as fast to 3 times slower than v3; slots bind from 32 threads.",
        plan: |scale| create_plan(scale, "0"),
        judge: |runs| judge_create(runs, 0),
    },
    Figure {
        name: "2015:fig12",
        title: "Listings of directories",
        finding: "v4.1 is 15 % slower at 0 ms, and has 94 to 99 % of v3 with delay.",
        plan: list_plan,
        judge: |runs| judge_ratio(runs, 0.75, 0.97),
    },
    Figure {
        name: "2015:table1",
        title: "Locked reads",
        finding: "v4.1 needs 88,009 requests for 10,000 locked reads, v3 60,008: GETATTR after LOCK, and FREE_STATEID.",
        plan: |scale| {
            let files = scale.pick(100, 1000, 1000);
            format!(
                "[matrix]\nversions = ['4.1']\n{ENFYS}[[workload]]\nname = 'locked-reads'\nset = {{ files = {files} }}\n"
            )
        },
        judge: judge_locks,
    },
    Figure {
        name: "2015:recall",
        title: "Recalls of delegations",
        finding: "Opening 1,000 files that others have delegated takes 100 s instead of 0.2 s, with a delay of 1 to 10 ms 120 s: \
                  the opener waits 100 ms for each file.",
        plan: recall_plan,
        judge: judge_recall,
    },
    Figure {
        name: "2015:fig14",
        title: "File server",
        finding: "v4.1 is 12 % slower at 0 ms, with 56 % more requests: OPEN and CLOSE.",
        plan: |scale| filebench_plan(scale, "fileserver", 10_000),
        judge: |runs| judge_ratio(runs, 0.75, 0.97),
    },
    Figure {
        name: "2015:fig16",
        title: "Web server",
        finding: "v4.1 is 25 % slower at 0 ms.",
        plan: |scale| filebench_plan(scale, "webserver", 1000),
        judge: |runs| judge_ratio(runs, 0.6, 0.97),
    },
    Figure {
        name: "2015:fig18",
        title: "Mail server",
        finding: "v4.1 and v3 are equal at 0 ms.",
        plan: |scale| filebench_plan(scale, "varmail", 1000),
        judge: |runs| judge_ratio(runs, 0.9, 1.1),
    },
];

fn reads_plan(scale: Scale) -> String {
    let size = scale.pick("64MiB", "256MiB", "20GiB");
    format!(
        "[matrix]\nversions = ['3', '4.1']\ndelays = ['0', '10ms']\nthreads = [16]\n{ENFYS}[[workload]]\n\
         name = 'random-read'\nset = {{ io-size = ['4KiB', '1MiB'], file-size = '{size}' }}\n"
    )
}

fn judge_reads(runs: &Runs<'_>) -> Option<Judgement> {
    let bytes = |size, delay| runs.bytes(&Pick::v41().delay_ms(delay).with("io-size", size));
    let small = bytes("4KiB", 0)? / bytes("4KiB", 10)?;
    let large = bytes("1MiB", 0)? / bytes("1MiB", 10)?;
    let versions = runs.bytes(&Pick::v41().delay_ms(10).with("io-size", "4KiB"))?
        / runs.bytes(&Pick::v3().delay_ms(10).with("io-size", "4KiB"))?;
    let is_same = (0.9..=1.1).contains(&versions);
    let verdict = if small > 2.0 * large && is_same { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours =
        format!("10 ms divide 4 KiB by {small:.1}, 1 MiB by {large:.1}; v4.1 to v3 at 4 KiB {versions:.2}");
    let counter =
        "the link has no rate limit here, so that large reads are limited by delay and TCP's buffers";
    Some(Judgement::new(verdict, ours, counter))
}

fn writes_plan(scale: Scale) -> String {
    let size = scale.pick("16MiB", "256MiB", "20GiB");
    format!(
        "[matrix]\nversions = ['3', '4.1']\nthreads = [1, 16]\n{ENFYS}[[workload]]\nname = 'random-write'\n\
         set = {{ io-size = '64KiB', file-size = '{size}' }}\n"
    )
}

fn judge_writes(runs: &Runs<'_>) -> Option<Judgement> {
    let ratio =
        |threads| Some(runs.rate(&Pick::v41().threads(threads))? / runs.rate(&Pick::v3().threads(threads))?);
    let (one, many) = (ratio(1)?, ratio(16)?);
    let is_near = |ratio: f64| (0.9..=1.1).contains(&ratio);
    let verdict = if is_near(one) && is_near(many) { Verdict::Confirmed } else { Verdict::NotSeen };
    let requests = runs.requests(&Pick::v41())?;
    let ours = format!("v4.1 to v3: {one:.2} with 1 thread, {many:.2} with 16");
    Some(Judgement::new(verdict, ours, format!("{requests:.2} requests a write")))
}

fn small_plan(scale: Scale, delay: &str, threads: u32) -> String {
    let files = scale.pick(500, 10_000, 10_000);
    format!(
        "[matrix]\nversions = ['3', '4.1']\ndelays = ['{delay}']\nthreads = [{threads}]\n{ENFYS}[[workload]]\n\
         name = 'small-files'\nset = {{ files = {files} }}\n"
    )
}

fn judge_small(runs: &Runs<'_>) -> Option<Judgement> {
    let ratio = runs.rate(&Pick::v41())? / runs.rate(&Pick::v3())?;
    let (v3, v41) = (runs.requests(&Pick::v3())?, runs.requests(&Pick::v41())?);
    // Without fewer requests the cause of the finding, files that are read locally, is missing.
    let verdict = if ratio >= 1.5 && v3 >= 2.0 * v41 { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours = format!("v4.1 to v3: {ratio:.2}");
    Some(Judgement::new(verdict, ours, format!("requests a file: v3 {v3:.2}, v4.1 {v41:.2}")))
}

fn judge_slow_start(runs: &Runs<'_>) -> Option<Judgement> {
    let (v3, v41) = (runs.rate(&Pick::v3())?, runs.rate(&Pick::v41())?);
    let requests = (runs.requests(&Pick::v3())?, runs.requests(&Pick::v41())?);
    let verdict = match v41 / v3 {
        ratio if ratio >= 0.9 => Verdict::Reversed,
        ratio if ratio <= 0.2 => Verdict::Confirmed,
        _ => Verdict::NotSeen,
    };
    let ours = format!("files a second: v3 {v3:.0}, v4.1 {v41:.0}");
    let counter = format!(
        "requests a file: v3 {:.2}, v4.1 {:.2}; opens do not wait for each other",
        requests.0, requests.1
    );
    Some(Judgement::new(verdict, ours, counter))
}

fn create_plan(scale: Scale, delay: &str) -> String {
    let files = scale.pick(512, 5000, 10_000);
    let threads = scale.pick("1, 16, 128", "1, 4, 16, 64, 256, 512", "1, 2, 4, 8, 16, 32, 64, 128, 256, 512");
    format!(
        "[matrix]\nversions = ['3', '4.1']\ndelays = ['{delay}']\nthreads = [{threads}]\n{ENFYS}[[workload]]\n\
         name = 'create'\nset = {{ files = {files} }}\n"
    )
}

fn judge_create(runs: &Runs<'_>, delay_ms: u64) -> Option<Judgement> {
    let ratio = |threads: u32| {
        let (v3, v41) = (Pick::v3().delay_ms(delay_ms), Pick::v41().delay_ms(delay_ms));
        Some((threads, runs.rate(&v41.threads(threads))? / runs.rate(&v3.threads(threads))?))
    };
    let ratios: Vec<(u32, f64)> =
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].into_iter().filter_map(ratio).collect();
    let (most, worst) =
        *ratios.iter().filter(|(threads, _)| *threads > 32).min_by(|a, b| a.1.total_cmp(&b.1))?;
    // The paper's unpatched client is slower with many threads.
    let verdict = match worst {
        ratio if ratio >= 1.0 => Verdict::Reversed,
        ratio if ratio <= 0.9 => Verdict::Confirmed,
        _ => Verdict::NotSeen,
    };
    let waits = runs.slot_waits(&Pick::v41().delay_ms(delay_ms).threads(most))?;
    let requests = (runs.requests(&Pick::v3())?, runs.requests(&Pick::v41())?);
    let list: Vec<String> = ratios.iter().map(|(threads, ratio)| format!("{threads}: {ratio:.2}")).collect();
    let counter = format!(
        "requests a file: v3 {:.2}, v4.1 {:.2}; {waits:.0} waits for a slot at {most} threads",
        requests.0, requests.1
    );
    Some(Judgement::new(verdict, format!("v4.1 to v3 by threads: {}", list.join(", ")), counter))
}

/// Judges locked reads. A locked read is five operations of a program; the paper's v3 client sent 6.0 requests for them.
fn judge_locks(runs: &Runs<'_>) -> Option<Judgement> {
    const V3: f64 = 6.0;
    let each = runs.requests(&Pick::v41())? * 5.0;
    let of = |operation| runs.request_count(&Pick::v41(), Some(operation));
    let (getattr, free) = (of("GETATTR")?, of("FREE_STATEID")?);
    let verdict = if each <= V3 { Verdict::Reversed } else { Verdict::Confirmed };
    let ours = format!("{each:.2} requests a locked read in v4.1 (paper: 8.8, v3 6.0)");
    Some(Judgement::new(verdict, ours, format!("{getattr:.0} GETATTR and {free:.0} FREE_STATEID alone")))
}

fn list_plan(scale: Scale) -> String {
    let files = scale.pick(1000, 10_000, 50_000);
    format!(
        "[matrix]\nversions = ['3', '4.1']\n{ENFYS}[[workload]]\nname = 'list'\nset = {{ files = {files} }}\n"
    )
}

const NOT_DELEGATED: &str = "caches=on&nodelegations";
const DELEGATED: &str = "caches=on&delegations";

fn recall_plan(scale: Scale) -> String {
    let files = scale.pick(200, 1000, 1000);
    format!(
        "[matrix]\nversions = ['4.1']\ndelays = ['0', '10ms']\nclients = [2]\noptions = ['{NOT_DELEGATED}', '{DELEGATED}']\n\
         {ENFYS}[[workload]]\nname = 'recall'\nset = {{ files = {files} }}\n"
    )
}

fn judge_recall(runs: &Runs<'_>) -> Option<Judgement> {
    let slower = |delay| {
        let rate = |options| runs.rate(&Pick::v41().delay_ms(delay).options(options));
        Some(rate(NOT_DELEGATED)? / rate(DELEGATED)?)
    };
    let (near, far) = (slower(0)?, slower(10)?);
    let verdict = match near.max(far) {
        ratio if ratio <= 5.0 => Verdict::Reversed,
        ratio if ratio >= 100.0 => Verdict::Confirmed,
        _ => Verdict::NotSeen,
    };
    let returned = runs.request_count(&Pick::v41().options(DELEGATED), Some("DELEGRETURN"))?;
    let ours = format!("opens and closes take {near:.1} times as long with recalls, at 10 ms {far:.1} times");
    let counter = format!(
        "{returned:.0} delegations returned; the server answers an open when the holder has returned its own"
    );
    Some(Judgement::new(verdict, ours, counter))
}

fn filebench_plan(scale: Scale, workload: &str, files: u64) -> String {
    let files = scale.pick(files / 10, files / 2, files);
    let threads = match workload {
        "fileserver" => 50,
        "webserver" => 100,
        _ => 16,
    };
    format!(
        "[matrix]\nversions = ['3', '4.1']\nthreads = [{threads}]\n{ENFYS}[[workload]]\nname = '{workload}'\n\
         set = {{ files = {files} }}\n"
    )
}

/// Judges the ratio of v4.1 to v3: within these bounds the finding is confirmed, above both 1 and the bounds reversed.
fn judge_ratio(runs: &Runs<'_>, least: f64, most: f64) -> Option<Judgement> {
    let ratio = runs.rate(&Pick::v41())? / runs.rate(&Pick::v3())?;
    let (v3, v41) = (runs.requests(&Pick::v3())?, runs.requests(&Pick::v41())?);
    let verdict = match ratio {
        ratio if (least..=most).contains(&ratio) => Verdict::Confirmed,
        ratio if ratio > most && ratio >= 1.0 => Verdict::Reversed,
        _ => Verdict::NotSeen,
    };
    let ours = format!("v4.1 to v3: {ratio:.2}");
    Some(Judgement::new(verdict, ours, format!("requests an operation: v3 {v3:.2}, v4.1 {v41:.2}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures;
    use crate::result::RunResult;
    use crate::result::tests::result;

    /// Results of both versions with this many operations each, at these threads.
    fn results(threads: &[(u32, u64, u64)]) -> Vec<RunResult> {
        let of = |version, threads, count| {
            let mut run = result("enfys", version, 1, count);
            run.run.case.threads = threads;
            run.slot_waits = Some(7);
            run
        };
        threads
            .iter()
            .flat_map(|(threads, v3, v41)| [of("3", *threads, *v3), of("4.1", *threads, *v41)])
            .collect()
    }

    fn verdict(figure: &str, results: &[RunResult]) -> Verdict {
        figures(Some(figure)).unwrap()[0].judge(results).verdict
    }

    #[test]
    fn writes_are_confirmed_within_a_tenth() {
        assert_eq!(verdict("2015:fig5", &results(&[(1, 1000, 980), (16, 1000, 1050)])), Verdict::Confirmed);
        assert_eq!(verdict("2015:fig5", &results(&[(1, 1000, 980), (16, 1000, 2000)])), Verdict::NotSeen);
        assert_eq!(verdict("2015:fig5", &results(&[(1, 1000, 980)])), Verdict::NotMeasured);
    }

    #[test]
    fn creation_is_reversed_if_many_threads_are_no_slower() {
        let judge = |worst| {
            let results = results(&[(1, 1000, 1000), (128, 1000, worst), (512, 1000, 2500)]);
            figures(Some("2015:fig10")).unwrap()[0].judge(&results)
        };
        assert_eq!(judge(1000).verdict, Verdict::Reversed);
        assert_eq!(judge(500).verdict, Verdict::Confirmed, "like the paper's client");
        assert_eq!(judge(950).verdict, Verdict::NotSeen);
        assert!(judge(500).counter.contains("7 waits for a slot at 128 threads"));
        assert!(judge(500).ours.contains("128: 0.50, 512: 2.50"));
    }

    #[test]
    fn failed_runs_give_no_verdict() {
        let mut all = results(&[(1, 1000, 980), (16, 1000, 1050)]);
        all[3].outcome = crate::result::Outcome::Failed("no space".to_owned());
        assert_eq!(verdict("2015:fig5", &all), Verdict::NotMeasured);
    }
}
