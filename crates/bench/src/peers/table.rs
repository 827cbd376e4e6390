//! The report: small functions from results to text.

use std::fmt::{self, Write as _};

use super::server::Peer;
use super::{Case, Comparison};
use crate::operation::{Operation, Target};
use crate::results::{Ratio, Shape};

/// At depth 1, a server may take this many times the floor's median latency.
const LATENCY_TARGET: f64 = 1.2;

/// Returns the CPU time of each operation, its ratios, and whether the target is met; one table for each shape.
#[must_use]
pub fn targets(comparison: &Comparison) -> String {
    let mut text = String::new();
    for shape in comparison.shapes() {
        let _ = writeln!(
            text,
            "Server CPU in µs an operation, {} connection(s), depth {} (medians; ratios: medians of each round's ratio)\n",
            shape.connections, shape.depth
        );
        let mut rows = vec![
            [
                "operation",
                "floor",
                "enfys",
                "nfs3_server",
                "ganesha",
                "enfys/floor",
                "enfys/ganesha",
                "target",
                "verdict",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for operation in comparison.operations() {
            rows.push(target_row(comparison, Peer::Enfys, operation, shape));
            if comparison.summary((Peer::EnfysAsync, operation), shape).is_some() {
                rows.push(target_row(comparison, Peer::EnfysAsync, operation, shape));
            }
        }
        text.push_str(&align(&rows));
        text.push('\n');
    }
    text
}

/// Returns the row of `own`, a server of this project, next to the others.
fn target_row(comparison: &Comparison, own: Peer, operation: Operation, shape: Shape) -> Vec<String> {
    let cpu = |case| comparison.summary(case, shape).and_then(|summary| summary.server_cpu_us);
    let of = |base| cpu_ratio(comparison, ((own, operation), base), shape).map(|ratio| ratio.median);
    let floor = floor_of(own, operation);
    let ganesha = (Peer::Ganesha, operation);
    let (target, verdict) = verdict(comparison, own, operation, shape);
    let export = if own == Peer::EnfysAsync { ", async export" } else { "" };
    let mut row = vec![format!("{}{export}", operation.title())];
    let columns = [floor, (own, operation), (Peer::Nfs3Server, operation), ganesha];
    row.extend(columns.map(|case| number(cpu(case), "")));
    row.extend([floor, ganesha].map(|base| number(of(base), "×")));
    row.extend([target, verdict]);
    row
}

fn cpu_ratio(comparison: &Comparison, cases: (Case, Case), shape: Shape) -> Option<Ratio> {
    comparison.ratio(cases, shape, |measurement| measurement.server_cpu_us)
}

/// Returns the server and the operation that define the floor for `operation` on `own`.
fn floor_of(own: Peer, operation: Operation) -> Case {
    let bare = operation.on_the_floor();
    let sends_files = operation.targets().iter().any(|target| matches!(target, Target::OfSendfileFloor(_)));
    // A server that replies before a change is on disk is not compared with one that waits.
    let waits = own == Peer::Enfys && Peer::FloorSync.serves(bare);
    if sends_files {
        (Peer::FloorSendfile, bare)
    } else if waits {
        (Peer::FloorSync, bare)
    } else {
        (Peer::Floor, bare)
    }
}

/// Returns the targets of `operation` in this shape, and whether `own` meets them; only targets that were measured.
fn verdict(comparison: &Comparison, own: Peer, operation: Operation, shape: Shape) -> (String, String) {
    let checks: Vec<TargetCheck> = operation
        .targets()
        .iter()
        .map(|target| check_target(comparison, own, operation, shape, *target))
        .collect();
    let text: Vec<String> = checks.iter().map(TargetCheck::to_string).collect();
    let verdict = match checks.iter().filter_map(TargetCheck::met).max() {
        None => "–",
        Some(Met::Yes) => "met",
        Some(Met::Open) => "open",
        Some(Met::No) => "not met",
    };
    (text.join(", "), verdict.to_owned())
}

/// The outcome of a target, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    /// With the confidence of [`Ratio::interval`].
    Yes,
    /// The limit lies within the interval of the rounds: more rounds are needed.
    Open,
    /// With that confidence.
    No,
}

/// A target and its outcome.
struct TargetCheck {
    target: String,
    reached: Option<Ratio>,
    limit: f64,
    /// The floor's own ratio, if the target compares with another server: this file system allows no less.
    least: Option<Ratio>,
}

impl TargetCheck {
    fn met(&self) -> Option<Met> {
        self.reached.map(|Ratio { interval: (low, high), .. }| match self.limit {
            limit if high <= limit => Met::Yes,
            limit if low > limit => Met::No,
            _ => Met::Open,
        })
    }
}

impl fmt::Display for TargetCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.reached.map_or("–".to_owned(), |Ratio { median, interval: (low, high) }| {
            format!("{median:.2}×, {low:.2} to {high:.2}")
        });
        match self.least.filter(|_| self.met() != Some(Met::Yes)) {
            Some(least) => write!(f, "{} ({reached}; the floor alone {:.2}×)", self.target, least.median),
            None => write!(f, "{} ({reached})", self.target),
        }
    }
}

fn check_target(
    comparison: &Comparison,
    own: Peer,
    operation: Operation,
    shape: Shape,
    target: Target,
) -> TargetCheck {
    let floor = floor_of(own, operation);
    let (limit, base, of) = match target {
        Target::OfFloor(limit) => (limit, floor, floor.0.name().to_owned()),
        Target::OfSendfileFloor(limit) => (limit, floor, "sendfile floor".to_owned()),
        Target::OfBareCalls(limit) => (limit, floor, "bare calls".to_owned()),
        Target::OfOwn(other, limit) => (limit, (own, other), format!("own {other}")),
        Target::OfGanesha(limit) => (limit, (Peer::Ganesha, operation), "ganesha".to_owned()),
    };
    let cases = ((own, operation), base);
    // With one outstanding request, the latency counts, not the CPU time of wake-ups.
    let alone = shape.depth == 1 && shape.connections == 1;
    if alone && matches!(target, Target::OfFloor(_) | Target::OfSendfileFloor(_)) {
        let text = format!("p50 ≤ {LATENCY_TARGET}× {of}");
        let reached = comparison.ratio(cases, shape, |measurement| Some(measurement.p50_us));
        return TargetCheck { target: text, reached, limit: LATENCY_TARGET, least: None };
    }
    let least = matches!(target, Target::OfGanesha(_)).then(|| cpu_ratio(comparison, (floor, base), shape));
    let reached = cpu_ratio(comparison, cases, shape);
    TargetCheck { target: format!("≤ {limit}× {of}"), reached, limit, least: least.flatten() }
}

/// Returns every result: rate, latencies, CPU and its range, use of the generator.
#[must_use]
pub fn details(comparison: &Comparison) -> String {
    let header =
        ["operation", "conn×depth", "server", "op/s", "p50 µs", "p99 µs", "CPU µs/op", "range", "generator"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for operation in comparison.operations() {
        for shape in comparison.shapes() {
            for peer in Peer::ALL {
                let Some(summary) = comparison.summary((*peer, operation), shape) else { continue };
                let range = summary
                    .server_cpu_range_us
                    .map_or(String::new(), |(low, high)| format!("{low:.2}–{high:.2}"));
                rows.push(vec![
                    operation.title().to_owned(),
                    shape.to_string(),
                    peer.name().to_owned(),
                    format!("{:.0}", summary.rate),
                    format!("{:.1}", summary.p50_us),
                    format!("{:.1}", summary.p99_us),
                    number(summary.server_cpu_us, ""),
                    range,
                    format!("{:.0} %", summary.load_busy * 100.0),
                ]);
            }
        }
    }
    align(&rows)
}

fn number(value: Option<f64>, unit: &str) -> String {
    value.map_or("–".to_owned(), |value| {
        let digits = if value < 100.0 { 2 } else { 0 };
        format!("{value:.digits$}{unit}")
    })
}

/// Returns a Markdown table with aligned columns, so that it is readable as plain text; the first row has the titles.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if index == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Run;
    use crate::results::Measurement;

    fn run(peer: Peer, operation: Operation, depth: u32, p50_us: f64, cpu: f64) -> Run {
        Run {
            peer,
            round: 0,
            measurement: Measurement {
                operation,
                shape: Shape { connections: 1, depth },
                operations: 1000,
                seconds: 1.0,
                rate: 1000.0,
                p50_us,
                p99_us: 2.0 * p50_us,
                max_us: 3.0 * p50_us,
                server_cpu_us: Some(cpu),
                server_busy: Some(0.5),
                load_busy: 0.25,
            },
        }
    }

    fn verdict_of(runs: Vec<Run>, operation: Operation, depth: u32) -> String {
        verdict(
            &Comparison { runs, ..Comparison::default() },
            Peer::Enfys,
            operation,
            Shape { connections: 1, depth },
        )
        .1
    }

    #[test]
    fn cpu_is_compared_with_the_target_of_the_operation() {
        let runs = |enfys| {
            vec![
                run(Peer::Floor, Operation::Getattr, 64, 60.0, 1.0),
                run(Peer::Enfys, Operation::Getattr, 64, 99.0, enfys),
            ]
        };
        assert_eq!(verdict_of(runs(2.3), Operation::Getattr, 64), "met");
        assert_eq!(verdict_of(runs(2.31), Operation::Getattr, 64), "not met");
        assert_eq!(verdict_of(runs(2.3), Operation::Lookup, 64), "–");
    }

    #[test]
    fn large_read_is_compared_with_sendfile_and_session_with_own_getattr() {
        let read = vec![
            run(Peer::Floor, Operation::Read1m, 64, 1.0, 236.0),
            run(Peer::FloorSendfile, Operation::Read1m, 64, 1.0, 108.0),
            run(Peer::Enfys, Operation::Read1m, 64, 1.0, 140.0),
        ];
        assert_eq!(verdict_of(read, Operation::Read1m, 64), "not met");
        let session = vec![
            run(Peer::Enfys, Operation::Getattr, 64, 1.0, 2.0),
            run(Peer::Enfys, Operation::SequenceGetattr41, 64, 1.0, 2.8),
        ];
        assert_eq!(verdict_of(session, Operation::SequenceGetattr41, 64), "met");
    }

    #[test]
    fn creation_is_compared_with_a_floor_of_equal_durability() {
        let runs = |own, cpu| {
            vec![
                run(Peer::Floor, Operation::CreateRemove, 64, 1.0, 10.0),
                run(Peer::FloorSync, Operation::CreateRemove, 64, 1.0, 50.0),
                run(own, Operation::CreateRemove, 64, 1.0, cpu),
            ]
        };
        let shape = Shape { connections: 1, depth: 64 };
        let verdict_of = |own, cpu| {
            let comparison = Comparison { runs: runs(own, cpu), ..Comparison::default() };
            verdict(&comparison, own, Operation::CreateRemove, shape)
        };
        assert_eq!(
            verdict_of(Peer::Enfys, 90.0),
            ("≤ 1.8× floor (sync) (1.80×, 1.80 to 1.80)".into(), "met".into())
        );
        assert_eq!(verdict_of(Peer::Enfys, 90.1).1, "not met");
        assert_eq!(
            verdict_of(Peer::EnfysAsync, 18.0),
            ("≤ 1.8× floor (1.80×, 1.80 to 1.80)".into(), "met".into())
        );
        assert_eq!(verdict_of(Peer::EnfysAsync, 18.1).1, "not met");
    }

    #[test]
    fn listings_are_compared_with_the_floors() {
        let runs = |operation, cpu| {
            vec![
                run(Peer::Floor, Operation::Readdirplus, 64, 1.0, 100.0),
                run(Peer::Enfys, operation, 64, 1.0, cpu),
            ]
        };
        for operation in [Operation::Readdirplus, Operation::Readdir41, Operation::Readdir42] {
            assert_eq!(verdict_of(runs(operation, 180.0), operation, 64), "met");
            assert_eq!(verdict_of(runs(operation, 181.0), operation, 64), "not met");
        }
    }

    #[test]
    fn open_read_close_is_compared_with_bare_calls_version_3_and_ganesha() {
        let operation = Operation::OpenReadClose41;
        let runs = |enfys, own3, ganesha| {
            vec![
                run(Peer::Floor, Operation::OpenReadFloor, 64, 1.0, 3.0),
                run(Peer::Enfys, operation, 64, 1.0, enfys),
                run(Peer::Enfys, Operation::OpenRead, 64, 1.0, own3),
                run(Peer::Ganesha, operation, 64, 1.0, ganesha),
            ]
        };
        assert_eq!(verdict_of(runs(9.0, 8.2, 60.0), operation, 64), "met");
        assert_eq!(verdict_of(runs(9.1, 9.1, 80.0), operation, 64), "not met", "3 times the floor");
        assert_eq!(verdict_of(runs(9.0, 8.1, 80.0), operation, 64), "not met", "1.1 times version 3");
        assert_eq!(verdict_of(runs(9.0, 9.0, 59.0), operation, 64), "not met", "0.15 times NFS-Ganesha");
        let without_ganesha = runs(9.0, 9.0, 59.0).into_iter().take(3).collect();
        assert_eq!(
            verdict_of(without_ganesha, operation, 64),
            "met",
            "targets without a measurement do not count"
        );
    }

    #[test]
    fn a_missed_target_shows_the_cost_of_the_floor() {
        let (operation, shape) = (Operation::CreateRemove42, Shape { connections: 1, depth: 64 });
        let text = |cpu| {
            let runs = vec![
                run(Peer::Floor, Operation::CreateRemove, 64, 1.0, 16.0),
                run(Peer::EnfysAsync, operation, 64, 1.0, cpu),
                run(Peer::Ganesha, operation, 64, 1.0, 100.0),
            ];
            verdict(&Comparison { runs, ..Comparison::default() }, Peer::EnfysAsync, operation, shape)
        };
        let (beyond, within) = (text(19.0), text(15.0));
        assert_eq!(
            beyond,
            (
                "≤ 1.1× own create-remove (–), ≤ 0.15× ganesha (0.19×, 0.19 to 0.19; the floor alone 0.16×)"
                    .into(),
                "not met".into()
            )
        );
        let promises = "≤ 1.1× own create-remove (–), ≤ 0.15× ganesha (0.15×, 0.15 to 0.15)";
        assert_eq!(within, (promises.into(), "met".into()));
    }

    /// Rounds of version 3's and version 4.1's creation; the former's figures vary with the load of the machine.
    fn creations(ratios: &[f64]) -> Vec<Run> {
        let moods = [10.0, 20.0, 13.0, 11.0, 30.0, 17.0].into_iter().cycle();
        let rounds = ratios.iter().zip(moods).enumerate().flat_map(|(round, (ratio, mood))| {
            let run = |operation, cpu| Run { round, ..run(Peer::Enfys, operation, 64, 1.0, cpu) };
            [run(Operation::CreateRemove, mood), run(Operation::CreateRemove41, mood * ratio)]
        });
        rounds.collect()
    }

    #[test]
    fn a_target_is_decided_when_the_rounds_agree() {
        let verdict = |ratios: &[f64]| verdict_of(creations(ratios), Operation::CreateRemove41, 64);
        assert_eq!(
            verdict(&[1.05, 1.02, 1.08, 1.09, 1.05, 1.03]),
            "met",
            "independently of the load of the machine"
        );
        assert_eq!(verdict(&[1.05, 1.02, 1.08, 1.11, 1.05, 1.03]), "open", "one of six");
        assert_eq!(verdict(&[1.12, 1.3, 1.11, 1.09, 1.2, 1.2]), "open", "the same");
        assert_eq!(verdict(&[1.12, 1.3, 1.11, 1.09, 1.2, 1.2, 1.2, 1.2, 1.2]), "not met", "one of nine");
        let mut shuffled = creations(&[1.05, 1.02, 1.08, 1.09, 1.05, 1.03]);
        shuffled.reverse();
        assert_eq!(verdict(&[]), "–");
        assert_eq!(verdict_of(shuffled, Operation::CreateRemove41, 64), "met", "in any order");
    }

    #[test]
    fn a_round_in_which_one_of_the_two_failed_has_no_ratio() {
        let mut runs = creations(&[1.05, 1.02, 1.08, 1.09, 1.05, 1.03, 1.05]);
        runs.remove(0);
        assert_eq!(verdict_of(runs.clone(), Operation::CreateRemove41, 64), "met");
        let shape = Shape { connections: 1, depth: 64 };
        let comparison = Comparison { runs, ..Comparison::default() };
        let cases = ((Peer::Enfys, Operation::CreateRemove41), (Peer::Enfys, Operation::CreateRemove));
        let ratio = cpu_ratio(&comparison, cases, shape).unwrap();
        assert!((ratio.median - 1.05).abs() < 1e-9 && (ratio.interval.0 - 1.02).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn one_outstanding_request_is_compared_by_latency() {
        let runs = |p50| {
            vec![
                run(Peer::Floor, Operation::Null, 1, 10.0, 5.0),
                run(Peer::Enfys, Operation::Null, 1, p50, 50.0),
            ]
        };
        assert_eq!(verdict_of(runs(12.0), Operation::Null, 1), "met");
        assert_eq!(verdict_of(runs(12.5), Operation::Null, 1), "not met");
    }

    #[test]
    fn tables_are_rectangular() {
        let runs = vec![
            run(Peer::Floor, Operation::Null, 64, 1.0, 0.3),
            run(Peer::Ganesha, Operation::Null, 64, 1.0, 28.0),
        ];
        let comparison = Comparison { runs, ..Comparison::default() };
        for table in [targets(&comparison), details(&comparison)] {
            let bars: Vec<usize> = table
                .lines()
                .filter(|line| line.starts_with('|'))
                .map(|line| line.chars().filter(|character| *character == '|').count())
                .collect();
            assert!(bars.len() >= 3 && bars.iter().all(|count| *count == bars[0]), "{table}");
        }
    }
}
