//! The comparison: rounds in which each library is measured once, and tables of medians.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::Outcome;
use crate::files::Counters;
use crate::interrupts::{End, Watched, kill_blocked, watch};
use crate::load::{Load, Measured, measure};
use crate::mounted::{Mounted, Reading};
use crate::serve::{Kind, OnInterrupt};

/// Loads, and the threads that make them.
const LOADS: [(Load, usize); 7] = [
    (Load::Stat, 1),
    (Load::Stat, 16),
    (Load::Stat, 64),
    (Load::Read, 1),
    (Load::Read, 16),
    (Load::Write, 1),
    (Load::Write, 16),
];
/// Blocked threads of the measurement of watched requests.
const WATCHED: usize = 1000;
/// Time in which a process becomes idle.
const IDLE: Duration = Duration::from_millis(100);
/// Bytes of a call and of the units of the tables.
const CALL: f64 = (1 << 20) as f64;
const MB: f64 = 1e6;
const GB: f64 = 1e9;

/// Results of one library.
#[derive(Default)]
struct Results {
    loads: BTreeMap<usize, Vec<Measured>>,
    reading: Option<Reading>,
    largest: Counters,
    killed: Vec<End>,
    interrupted: Vec<End>,
    with_eintr: Vec<End>,
}

/// Measures all libraries `rounds` times, and prints tables.
pub fn compare(rounds: usize) -> Outcome<()> {
    let mut results: Vec<Results> = Kind::ALL.iter().map(|_| Results::default()).collect();
    let mut watched = Vec::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        watched.push(watch(WATCHED)?);
        for turn in 0..Kind::ALL.len() {
            // Each round begins with another library.
            let index = (round + turn) % Kind::ALL.len();
            run(Kind::ALL[index], &mut results[index])
                .map_err(|error| format!("{}: {error}", Kind::ALL[index].name()))?;
        }
        kill(&mut results)?;
    }
    print(&results, &watched);
    Ok(())
}

fn run(kind: Kind, results: &mut Results) -> Outcome<()> {
    let mounted = Mounted::new(kind, OnInterrupt::Default)?;
    thread::sleep(IDLE);
    results.reading = Some(mounted.reading()?);
    for (index, (load, threads)) in LOADS.into_iter().enumerate() {
        if load == Load::Stat || kind.has_content() {
            results.loads.entry(index).or_default().push(measure(&mounted, load, threads)?);
        }
    }
    results.largest = mounted.counters()?;
    Ok(())
}

/// Kills a blocked program of each library in each way. They wait together, since waiting needs no CPU.
fn kill(results: &mut [Results]) -> Outcome<()> {
    let ways = [(OnInterrupt::Default, false), (OnInterrupt::Default, true), (OnInterrupt::Eintr, true)];
    let kinds = Kind::ALL.into_iter().enumerate().filter(|(_, kind)| kind.has_content());
    let mut plan = Vec::new();
    for (index, kind) in kinds {
        let ways = ways.into_iter().filter(|(on, _)| *on == OnInterrupt::Default || kind.passes_interrupts());
        plan.extend(ways.map(|(on_interrupt, interrupted)| (index, kind, on_interrupt, interrupted)));
    }
    let ends: Vec<Result<End, String>> = thread::scope(|scope| {
        let start = |&(_, kind, on_interrupt, interrupted): &(usize, Kind, OnInterrupt, bool)| {
            scope.spawn(move || {
                kill_blocked(kind, on_interrupt, interrupted).map_err(|error| error.to_string())
            })
        };
        let threads: Vec<_> = plan.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for ((index, kind, on_interrupt, interrupted), end) in plan.into_iter().zip(ends) {
        let results = &mut results[index];
        let list = match (on_interrupt, interrupted) {
            (OnInterrupt::Eintr, _) => &mut results.with_eintr,
            (OnInterrupt::Default, true) => &mut results.interrupted,
            (OnInterrupt::Default, false) => &mut results.killed,
        };
        list.push(end.map_err(|error| format!("{}: {error}", kind.name()))?);
    }
    Ok(())
}

fn median<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|one, other| one.partial_cmp(other).expect("no NaN"));
    values.get(values.len() / 2).copied()
}

fn end(ends: &[End]) -> String {
    match median(ends.iter().copied()) {
        Some(End::Dead(seconds)) => format!("{:.0} ms", seconds * 1e3),
        Some(End::Eintr) => "EINTR".to_owned(),
        Some(End::Never) => "never".to_owned(),
        None => "-".to_owned(),
    }
}

fn print(results: &[Results], watched: &[Watched]) {
    let named = || Kind::ALL.iter().map(|kind| kind.name()).zip(results);
    println!("| stat(2) a second, µs of CPU | 1 thread | 16 | 64 |\n|---|---|---|---|");
    for (name, results) in named() {
        let cell = |index: &usize| {
            let measured = results.loads.get(index)?;
            let rate = median(measured.iter().map(|one| one.rate))?;
            Some(format!("{rate:.0}, {:.2}", median(measured.iter().map(|one| one.cpu))? * 1e6))
        };
        println!("| {name} | {} |", cells(&[0, 1, 2], cell));
    }
    println!("\n| MB/s, CPU s/GB | read, 1 thread | 16 | write, 1 thread | 16 |\n|---|---|---|---|---|");
    for (name, results) in named().filter(|(_, results)| results.loads.len() == LOADS.len()) {
        let cell = |index: &usize| {
            let measured = results.loads.get(index)?;
            let rate = median(measured.iter().map(|one| one.rate))? * CALL / MB;
            Some(format!("{rate:.0}, {:.3}", median(measured.iter().map(|one| one.cpu))? * GB / CALL))
        };
        println!("| {name} | {} |", cells(&[3, 4, 5, 6], cell));
    }
    println!(
        "\n| | descriptors | blocked readers | largest READ, WRITE in KiB | SIGKILL | SIGCHLD, SIGKILL | with EINTR |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, results) in named().filter(|(_, results)| !results.killed.is_empty()) {
        let Some(Reading { descriptors, readers }) = results.reading else { continue };
        let largest =
            format!("{}, {}", results.largest.largest_read >> 10, results.largest.largest_write >> 10);
        let ends =
            [&results.killed, &results.interrupted, &results.with_eintr].map(|ends| end(ends)).join(" | ");
        println!("| {name} | {descriptors} | {readers} | {largest} | {ends} |");
    }
    let all = || results.iter().flat_map(|results| results.loads.values().flatten());
    let disturbed = all().filter(|measured| measured.is_disturbed()).count();
    println!("\n{disturbed} of {} measurements were disturbed by other processes", all().count());
    let cores = median(watched.iter().map(|one| one.cores)).unwrap_or_default();
    let dead = median(watched.iter().map(|one| one.dead)).unwrap_or_default();
    println!(
        "\n{WATCHED} interrupted requests of enfys: {cores:.3} cores; {:.0} ms from SIGKILL to the end",
        dead * 1e3
    );
}

fn cells(indices: &[usize], cell: impl Fn(&usize) -> Option<String>) -> String {
    let cells: Vec<String> =
        indices.iter().map(|index| cell(index).unwrap_or_else(|| "-".to_owned())).collect();
    cells.join(" | ")
}
