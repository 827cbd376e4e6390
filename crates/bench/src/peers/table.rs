//! The report: small functions from results to text.

use std::fmt::Write as _;

use super::Comparison;
use super::server::Peer;
use crate::operation::{Operation, Target};
use crate::results::{Shape, Summary};

/// At depth 1, a server may take this many times the floor's median latency.
const LATENCY_TARGET: f64 = 1.2;

/// CPU for each operation, its ratios, and whether the target is met; one table for each shape.
#[must_use]
pub fn targets(comparison: &Comparison) -> String {
    let mut text = String::new();
    for shape in comparison.shapes() {
        let _ = writeln!(
            text,
            "Server CPU in µs an operation, {} connection(s), depth {} (medians)\n",
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
            if comparison.summary(Peer::EnfysAsync, operation, shape).is_some() {
                rows.push(target_row(comparison, Peer::EnfysAsync, operation, shape));
            }
        }
        text.push_str(&align(&rows));
        text.push('\n');
    }
    text
}

/// The row of `own`, a server of this project, beside the others.
fn target_row(comparison: &Comparison, own: Peer, operation: Operation, shape: Shape) -> Vec<String> {
    let cpu = |peer| comparison.summary(peer, operation, shape).and_then(|summary| summary.server_cpu_us);
    let floor = match operation.target() {
        Target::OfSendfileFloor(_) => cpu(Peer::FloorSendfile),
        _ => cpu(Peer::Floor),
    };
    let enfys = cpu(own);
    let (target, verdict) = verdict(comparison, own, operation, shape);
    let export = if own == Peer::EnfysAsync { ", async export" } else { "" };
    let mut row = vec![format!("{}{export}", operation.title())];
    row.extend([floor, enfys, cpu(Peer::Nfs3Server), cpu(Peer::Ganesha)].map(|value| number(value, "")));
    row.push(number(ratio(enfys, floor), "×"));
    row.push(number(ratio(enfys, cpu(Peer::Ganesha)), "×"));
    row.extend([target, verdict]);
    row
}

/// What is promised for `operation` in this shape, and whether `own` keeps it.
fn verdict(comparison: &Comparison, own: Peer, operation: Operation, shape: Shape) -> (String, String) {
    let summary = |peer, operation| comparison.summary(peer, operation, shape);
    let enfys = summary(own, operation);
    let judge = |text: String, reached: Option<f64>, limit: f64| {
        let verdict = match reached {
            None => "–",
            Some(ratio) if ratio <= limit => "met",
            Some(_) => "not met",
        };
        (text, verdict.to_owned())
    };
    // With one request outstanding, what counts is how long the caller waits, not the CPU of waking up for each.
    if shape.depth == 1 && shape.connections == 1 && operation.target_peer().is_some() {
        let p50 = |summary: Option<Summary>| summary.map(|summary| summary.p50_us);
        let floor = operation.target_peer().and_then(|peer| summary(peer, operation));
        let reached = ratio(p50(enfys), p50(floor));
        return judge(
            format!("p50 ≤ {LATENCY_TARGET}× floor ({})", number(reached, "×")),
            reached,
            LATENCY_TARGET,
        );
    }
    let cpu = |summary: Option<Summary>| summary.and_then(|summary| summary.server_cpu_us);
    match operation.target() {
        Target::OfFloor(limit) => {
            judge(format!("≤ {limit}× floor"), ratio(cpu(enfys), cpu(summary(Peer::Floor, operation))), limit)
        }
        Target::OfSendfileFloor(limit) => judge(
            format!("≤ {limit}× sendfile floor"),
            ratio(cpu(enfys), cpu(summary(Peer::FloorSendfile, operation))),
            limit,
        ),
        Target::OfOwnGetattr(limit) => judge(
            format!("≤ {limit}× own v3 GETATTR"),
            ratio(cpu(enfys), cpu(summary(own, Operation::Getattr))),
            limit,
        ),
    }
}

/// Every figure: rate, latencies, CPU and its range, how busy the generator was.
#[must_use]
pub fn details(comparison: &Comparison) -> String {
    let header =
        ["operation", "conn×depth", "server", "op/s", "p50 µs", "p99 µs", "CPU µs/op", "range", "generator"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for operation in comparison.operations() {
        for shape in comparison.shapes() {
            for peer in Peer::ALL {
                let Some(summary) = comparison.summary(*peer, operation, shape) else { continue };
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

fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    value.zip(base).filter(|(_, base)| *base > 0.0).map(|(value, base)| value / base)
}

fn number(value: Option<f64>, unit: &str) -> String {
    value.map_or("–".to_owned(), |value| {
        let digits = if value < 100.0 { 2 } else { 0 };
        format!("{value:.digits$}{unit}")
    })
}

/// A Markdown table whose columns are wide enough to be read as it is; the first row is its head.
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
    fn cpu_is_judged_against_the_target_of_the_operation() {
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
    fn large_read_is_judged_against_sendfile_and_session_against_own_getattr() {
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
    fn one_outstanding_request_is_judged_by_latency() {
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
