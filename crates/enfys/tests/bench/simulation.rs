//! Workloads in virtual time: the same numbers for the same seed, and those that follow from the round trip.

use serde_json::Value;

use crate::runs::{count, requests};
use crate::{bench, printed};

#[track_caller]
fn simulate(workload: &str, more: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["simulate", workload, "--json"];
    arguments.extend(more);
    serde_json::from_str(&printed(&bench(&arguments))).expect("JSON")
}

fn seconds(result: &Value) -> f64 {
    result["seconds"].as_f64().expect("seconds")
}

#[test]
fn the_same_seed_has_the_same_numbers() {
    let run = |seed| {
        let options = ["--nfs", "3,4.1", "--delay", "5ms", "--loss", "2%", "--outage", "50ms+1s"];
        let size = ["--clients", "7", "--threads", "3", "--set", "files=30", "--set", "size=8KiB"];
        simulate("create", &[&options[..], &size, &["--seed", seed]].concat())
    };
    let mut first = run("1");
    assert_eq!(first, run("1"));
    let other = run("2");
    assert_ne!(seconds(&first[0]), seconds(&other[0]), "losses differ");
    assert_eq!(first.len(), 2);
    for result in first.drain(..) {
        assert_eq!(result["outcome"], "complete");
        assert_eq!(count(&result, "create"), 7 * 30);
        assert!(seconds(&result) > 1.0, "nothing passes in the outage");
    }
}

/// A request takes exactly a round trip, and nothing else takes time: so the time is a number of round trips.
#[test]
fn times_are_whole_round_trips() {
    for (workload, version, set) in [
        ("create", "3", &["files=10", "size=4KiB"][..]),
        ("create", "4.1", &["files=10", "size=4KiB"]),
        ("stream-write", "4.2", &["file-size=64KiB"]),
        ("find", "3", &["files=60", "directory-width=10"]),
        ("find", "4.0", &["files=60", "directory-width=10"]),
    ] {
        let mut options = vec!["--nfs", version, "--delay", "1ms,300ms"];
        set.iter().for_each(|set| options.extend(["--set", *set]));
        let results = simulate(workload, &options);
        let trips: Vec<f64> =
            results.iter().zip([0.001, 0.3]).map(|(result, delay)| seconds(result) / delay).collect();
        assert!((trips[0] - trips[1]).abs() < 1e-6, "{workload} {version}: {trips:?}");
        assert!((trips[0] - trips[0].round()).abs() < 1e-6, "{workload} {version}: {trips:?}");
        let sent: u64 = results[0]["requests"]
            .as_object()
            .expect("requests")
            .values()
            .map(|of| of["requests"].as_u64().unwrap_or(0))
            .sum();
        assert!(
            trips[0] >= 1.0 && trips[0] <= sent as f64,
            "{workload} {version}: one thread, {sent} requests, {trips:?}"
        );
    }
}

/// In version 3, creating an empty file is one CREATE, and one thread waits for each.
#[test]
fn creation_by_one_thread_takes_its_requests_one_after_the_other() {
    let results =
        simulate("create", &["--nfs", "3", "--delay", "100ms", "--threads", "1,10", "--set", "files=20"]);
    let [one, ten] = &results[..] else { panic!("two results") };
    assert_eq!(requests(one, "CREATE"), 20);
    let trips_of_a_file = (seconds(one) / 0.1 / 20.0).round();
    assert!((seconds(one) - 20.0 * trips_of_a_file * 0.1).abs() < 0.1 + 1e-6, "{}", seconds(one));
    assert!(
        (seconds(one) / seconds(ten) - 10.0).abs() < 1.0,
        "ten threads: {} and {}",
        seconds(one),
        seconds(ten)
    );
}

/// Twice as many threads as calls in flight: while one half waits for replies, the other half waits for their turn, each time for a round
/// trip.
#[test]
fn a_wait_for_calls_in_flight_is_a_round_trip() {
    let options = ["--nfs", "3", "--delay", "100ms", "--threads", "256", "--set", "files=1024"];
    let [result] = &simulate("create", &options)[..] else { panic!("one result") };
    let waits = &result["client_counters"]["slots"];
    let number = waits["count"].as_u64().expect("a count");
    // LOOKUP and CREATE of each file; the first 128 and at most as many last ones have not waited.
    assert!((2 * 1024 - 256..=2 * 1024 - 128).contains(&number), "{waits}");
    let (sum_us, squares) = (waits["sum_us"].as_f64(), waits["squares_us2"].as_f64());
    let (sum_ms, mean_square) = (sum_us.expect("a sum") / 1e3, squares.expect("a sum") / number as f64 / 1e6);
    assert!((sum_ms / number as f64 - 100.0).abs() < 0.01, "{waits}");
    assert!((mean_square - 100.0 * 100.0).abs() < 1.0, "no deviation: {waits}");
}

#[test]
fn a_thousand_clients_read_list_and_write() {
    for (workload, set, op, expected) in [
        ("create", &["files=2"][..], "create", 2000),
        ("small-files", &["files=50"], "read-file", 0),
        ("list", &["files=100"], "list", 0),
        ("stream-write", &["file-size=16KiB"], "write", 2000),
    ] {
        let mut options = vec!["--nfs", "4.1", "--clients", "1000", "--delay", "50ms", "--duration", "1s"];
        set.iter().for_each(|set| options.extend(["--set", *set]));
        let [result] = &simulate(workload, &options)[..] else { panic!("one result") };
        assert_eq!(result["outcome"], "complete", "{workload}");
        assert_eq!(result["clients"].as_array().map(Vec::len), Some(1000), "{workload}");
        let done = count(result, op);
        assert!(if expected > 0 { done == expected } else { done >= 1000 }, "{workload}: {done}");
    }
}

#[test]
fn workloads_that_wait_lock_or_measure_phases_are_the_same_for_the_same_seed() {
    for (workload, set, op) in [
        ("request-mix", &["rate=200", "files=100"][..], "stat"),
        ("recall", &["files=20"], "open"),
        ("locked-reads", &["files=10"], "lock"),
        ("basic", &[], "stat"),
        ("bonnie", &["file-size=1MiB", "files=50", "seeks=50"], "seek"),
        ("database", &["shared=true"], "transaction"),
    ] {
        let mut options = vec!["--nfs", "3,4.1", "--clients", "2", "--delay", "2ms", "--duration", "3s"];
        set.iter().for_each(|set| options.extend(["--set", *set]));
        let results = simulate(workload, &options);
        assert_eq!(results.len(), 2, "{workload}");
        for result in &results {
            assert_eq!(result["outcome"], "complete", "{workload}: {result}");
            assert!(count(result, op) > 0, "{workload}: {result}");
        }
        assert_eq!(simulate(workload, &options), results, "{workload}");
    }
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    for (arguments, why) in [
        (&["create", "--delay", "0"][..], "--delay: at least 1us"),
        (&["database", "--set", "engine=sqlite3"], "engine = \"sqlite3\" needs a mounted directory"),
        (&["create", "--set", "fils=3"], "create has no parameter `fils` (did you mean `files`?)"),
    ] {
        let output = bench(&[&["simulate"], arguments].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(why), "{said}");
    }
}
