use super::*;
use crate::papers::figures;
use crate::plan::Value;
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

/// A result with a delay in milliseconds, and options.
fn with(version: &str, count: u64, delay_ms: u64, options: &str) -> RunResult {
    let mut run = result("enfys", version, 1, count);
    run.run.case.delay = std::time::Duration::from_millis(delay_ms);
    options.clone_into(&mut run.run.case.options);
    run
}

/// Sets the requests of a result, each with its number and the sum of its round trips in microseconds.
fn requests(run: &mut RunResult, all: &[(&str, u64, u64)]) {
    let one = |requests, round_trip_us| crate::result::RequestCounters {
        requests,
        round_trip_us,
        ..Default::default()
    };
    run.requests = all.iter().map(|(name, count, trip)| ((*name).to_owned(), one(*count, *trip))).collect();
}

fn set(run: &mut RunResult, parameter: &str, value: Value) {
    run.run.case.parameters.insert(parameter.to_owned(), value);
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

/// Small files of which version 3 has asked for each, and version 4.1 for a part.
fn small(first: (u64, u64), late: (u64, u64), v41_requests: u64) -> Vec<RunResult> {
    let of = |version, first, late, requests_sent: u64| {
        let mut run = result("enfys", version, 1, 10_000);
        run.clients[0].operations = [vec![first], vec![late; 9]].concat();
        run.slot_waits = Some(0);
        requests(&mut run, &[("OPEN", requests_sent, 1000)]);
        run
    };
    vec![of("3", first.0, late.0, 10_000), of("4.1", first.1, late.1, v41_requests)]
}

#[test]
fn delegated_files_are_faster_by_fewer_requests() {
    assert_eq!(verdict("2015:fig6", &small((100, 100), (1000, 2000), 1000)), Verdict::Confirmed);
    assert_eq!(
        verdict("2015:fig6", &small((100, 100), (1000, 2000), 9000)),
        Verdict::NotSeen,
        "without the cause"
    );
    assert_eq!(verdict("2015:fig6", &small((100, 100), (1000, 1100), 1000)), Verdict::NotSeen);
}

#[test]
fn a_slow_start_is_judged_by_the_first_second() {
    assert_eq!(verdict("2015:fig7", &small((8100, 723), (1000, 9000), 1000)), Verdict::Confirmed);
    assert_eq!(verdict("2015:fig7", &small((8100, 8000), (1000, 9000), 1000)), Verdict::Reversed);
    assert_eq!(
        verdict("2015:fig7", &small((8100, 4655), (1000, 9000), 1000)),
        Verdict::NotSeen,
        "the patched client"
    );
}

#[test]
fn small_reads_suffer_from_a_delay_and_large_ones_do_not() {
    let judge = |small: u64, large: u64| {
        let mut all = Vec::new();
        for version in ["3", "4.1"] {
            for (size, delay, count) in [
                ("4KiB", 0, 20_000),
                ("4KiB", 10, small),
                ("64KiB", 0, 10_000),
                ("64KiB", 10, 5000),
                ("1MiB", 0, 1000),
                ("1MiB", 10, large),
            ] {
                let mut run = with(version, count, delay, "");
                set(&mut run, "io-size", Value::Text(size.to_owned()));
                all.push(run);
            }
        }
        verdict("2015:fig1", &all)
    };
    assert_eq!(judge(1000, 1000), Verdict::Confirmed);
    assert_eq!(judge(15_000, 1000), Verdict::NotSeen, "4 KiB are divided by 1.3");
    assert_eq!(judge(1000, 500), Verdict::NotSeen, "1 MiB are halved");
}

#[test]
fn buffers_limit_what_threads_can_read() {
    // Bytes of ten seconds, in reads of 4 KiB.
    let reads = |mb_per_s: u64| mb_per_s * 10_000_000 / 4096;
    let judge = |small: (u64, u64), large: u64| {
        let of = |buffer, threads, rate| {
            let mut run = with("4.1", reads(rate), 40, &format!("rate=1gbit&tcp_buffer={buffer}"));
            run.run.case.threads = threads;
            run
        };
        verdict(
            "2015:fig2",
            &[of("2MiB", 4, small.0), of("2MiB", 16, small.1), of("32MiB", 4, 80), of("32MiB", 16, large)],
        )
    };
    assert_eq!(judge((25, 26), 115), Verdict::Confirmed);
    assert_eq!(judge((25, 50), 115), Verdict::NotSeen, "more threads help");
    assert_eq!(judge((25, 26), 60), Verdict::NotSeen, "the line is not filled");
}

#[test]
fn outstanding_requests_tell_why_creations_differ() {
    let judge = |v41_waits_us| {
        let of = |version, name, waits_us| {
            let mut run = result("enfys", version, 1, 1000);
            run.run.case.threads = 16;
            requests(&mut run, &[(name, 1000, waits_us)]);
            run
        };
        verdict("2015:fig9", &[of("3", "CREATE", 40_000_000), of("4.1", "OPEN", v41_waits_us)])
    };
    assert_eq!(judge(90_000_000), Verdict::Confirmed);
    assert_eq!(judge(41_000_000), Verdict::Reversed);
    assert_eq!(judge(20_000_000), Verdict::NotSeen);
}

#[test]
fn slots_bind_from_the_first_threads_that_wait() {
    let judge = |at_64, at_512| {
        let of = |options, threads, waits| {
            let mut run = with("4.1", 1000, 0, options);
            run.run.case.threads = threads;
            run.slot_waits = Some(waits);
            run
        };
        let granted = [of("caches=on", 64, at_64), of("caches=on", 512, at_512)];
        let papers = [of("caches=on&slots=160", 64, 0), of("caches=on&slots=160", 512, 900)];
        verdict("2015:fig11", &[granted, papers].concat())
    };
    assert_eq!(judge(5, 900), Verdict::Confirmed);
    assert_eq!(judge(0, 0), Verdict::Reversed);
    assert_eq!(judge(0, 900), Verdict::NotSeen);
}

/// Results of both versions at 0 and 10 ms: operations, and requests with their round trips.
fn near_and_far(v41: (u64, u64), v41_requests: u64, v41_trip_us: u64) -> Vec<RunResult> {
    let of = |version, count, delay, sent, trip| {
        let mut run = with(version, count, delay, "");
        requests(&mut run, &[("OPEN", sent, sent * trip)]);
        run
    };
    vec![
        of("3", 1000, 0, 1000, 100),
        of("3", 500, 10, 500, 100),
        of("4.1", v41.0, 0, v41_requests * v41.0 / 1000, v41_trip_us),
        of("4.1", v41.1, 10, v41_requests * v41.1 / 1000, v41_trip_us),
    ]
}

#[test]
fn a_small_loss_does_not_confirm_a_large_one() {
    assert_eq!(verdict("2015:fig16", &near_and_far((750, 510), 1000, 119)), Verdict::Confirmed);
    assert_eq!(
        verdict("2015:fig16", &near_and_far((970, 510), 1000, 119)),
        Verdict::NotSeen,
        "3 % are not 25 %"
    );
    assert_eq!(
        verdict("2015:fig16", &near_and_far((750, 400), 1000, 119)),
        Verdict::NotSeen,
        "slower with delay too"
    );
    assert_eq!(verdict("2015:fig16", &near_and_far((1010, 510), 1000, 100)), Verdict::Reversed);
    assert_eq!(
        verdict("2015:fig16", &near_and_far((1010, 510), 1000, 119)),
        Verdict::NotSeen,
        "with the cause"
    );
}

#[test]
fn the_file_server_is_judged_by_rates_and_requests() {
    assert_eq!(verdict("2015:fig14", &near_and_far((880, 440), 1560, 100)), Verdict::Confirmed);
    assert_eq!(verdict("2015:fig14", &near_and_far((1000, 500), 1560, 100)), Verdict::NotSeen);
    assert_eq!(verdict("2015:fig14", &near_and_far((1000, 500), 1000, 100)), Verdict::Reversed);
    assert_eq!(verdict("2015:fig15", &near_and_far((880, 440), 1560, 100)), Verdict::Confirmed);
    assert_eq!(verdict("2015:fig15", &near_and_far((880, 440), 1000, 100)), Verdict::Reversed);
    assert_eq!(verdict("2015:fig15", &near_and_far((880, 440), 1200, 100)), Verdict::NotSeen);
}

#[test]
fn the_mail_server_gains_by_outstanding_requests() {
    assert_eq!(verdict("2015:fig18", &near_and_far((1000, 650), 1000, 100)), Verdict::Confirmed);
    assert_eq!(verdict("2015:fig18", &near_and_far((1000, 500), 1000, 100)), Verdict::Reversed);
    assert_eq!(verdict("2015:fig18", &near_and_far((1000, 500), 1000, 200)), Verdict::NotSeen);
}

#[test]
fn the_mail_server_grows_with_clients() {
    let judge = |three, five| {
        let of = |delay, clients, count| {
            let mut run = with("4.1", count, delay, "");
            run.run.case.clients = clients;
            run
        };
        let near = [of(0, 1, 1000), of(0, 3, three), of(0, 5, 3100)];
        let far = [of(10, 1, 500), of(10, 3, 1500), of(10, 5, five)];
        verdict("2015:fig19", &[near, far].concat())
    };
    assert_eq!(judge(2900, 2500), Verdict::Confirmed);
    assert_eq!(judge(1500, 2500), Verdict::NotSeen);
    assert_eq!(judge(2900, 1000), Verdict::NotSeen);
}

#[test]
fn delegations_help_the_web_server_with_one_thread() {
    let judge = |delegated, many| {
        let of = |version, threads, options, count| {
            let mut run = with(version, count, 0, options);
            run.run.case.threads = threads;
            run
        };
        let one = [
            of("3", 1, DELEGATED, 6000),
            of("4.1", 1, NOT_DELEGATED, 1800),
            of("4.1", 1, DELEGATED, delegated),
        ];
        let sixteen = [of("4.1", 16, NOT_DELEGATED, 10_000), of("4.1", 16, DELEGATED, many)];
        verdict("2015:fig17", &[&one[..], &sixteen[..]].concat())
    };
    assert_eq!(judge(13_700, 10_300), Verdict::Confirmed);
    assert_eq!(judge(3000, 10_300), Verdict::NotSeen);
}

/// Locked reads, five operations each.
fn locked(target: &str, version: &str, requests_each: f64, seconds: f64) -> RunResult {
    let mut run = result(target, version, 1, 5000);
    let sent = (requests_each * 1000.0) as u64;
    requests(&mut run, &[("OPEN", sent, 1000)]);
    run.seconds = seconds;
    run
}

#[test]
fn locked_reads_are_judged_by_requests_and_time() {
    let requests = |v41, delegated| {
        let all = [
            locked("plain", "3", 6.0, 10.0),
            locked("plain", "4.1", v41, 10.0),
            locked("delegated", "4.1", delegated, 10.0),
        ];
        verdict("2015:table1", &all)
    };
    assert_eq!(requests(8.8, 0.3), Verdict::Confirmed);
    assert_eq!(requests(5.0, 0.3), Verdict::Reversed);
    assert_eq!(requests(5.0, 4.0), Verdict::NotSeen);
    let time = |delegated| {
        let all = [
            locked("plain", "3", 6.0, 12.0),
            locked("plain", "4.1", 8.8, 15.0),
            locked("delegated", "4.1", 0.3, delegated),
        ];
        verdict("2015:fig13", &all)
    };
    assert_eq!(time(2.0), Verdict::Confirmed);
    assert_eq!(time(6.0), Verdict::NotSeen);
}

#[test]
fn recalls_are_judged_by_the_time_of_an_open() {
    let judge = |micros| {
        let of = |delay, options, micros| {
            let mut run = with("4.1", 1000, delay, options);
            set(&mut run, "holders", Value::Count(1));
            set(&mut run, "openers", Value::Count(1));
            let mut open = run.operations["read"].clone();
            open.latency = crate::result::Latency::default();
            open.latency.record(std::time::Duration::from_micros(micros), 100);
            run.operations = [("open".to_owned(), open.clone()), ("close".to_owned(), open)].into();
            run
        };
        let far = [of(10, NOT_DELEGATED, 20_000), of(10, DELEGATED, 40_000)];
        let near = [of(0, NOT_DELEGATED, 200), of(0, DELEGATED, micros)];
        verdict("2015:recall", &[near, far].concat())
    };
    assert_eq!(judge(500), Verdict::Reversed);
    assert_eq!(judge(100_000), Verdict::NotSeen, "500 times at 0 ms, twice at 10 ms");
}

#[test]
fn listings_lose_at_no_delay_only() {
    assert_eq!(verdict("2015:fig12", &near_and_far((850, 490), 1000, 127)), Verdict::Confirmed);
    assert_eq!(verdict("2015:fig12", &near_and_far((850, 400), 1000, 127)), Verdict::NotSeen);
    assert_eq!(verdict("2015:fig12", &near_and_far((1000, 500), 1000, 100)), Verdict::Reversed);
}

#[test]
fn the_model_of_hash_cast_confirms_itself() {
    let judgement = figures(Some("2015:fig3")).unwrap()[0].judge(&[]);
    assert_eq!(judgement.verdict, Verdict::Confirmed, "{judgement:?}");
    assert!(judgement.counter.contains("of 7776 assignments 720"), "{}", judgement.counter);
    assert!(judgement.counter.contains("69.4 %"), "{}", judgement.counter);
}
