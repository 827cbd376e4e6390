//! Results as CSV (RFC 4180): one line for each run.

use std::fmt::{self, Write};

use super::{Measure, Outcome, RunResult};

/// The columns, with their content.
type Column = (&'static str, fn(&RunResult) -> String);

const COLUMNS: &[Column] = &[
    ("id", |result| result.run.id.clone()),
    ("plan", |result| result.plan.clone()),
    ("workload", |result| result.run.case.workload.clone()),
    ("parameters", |result| {
        let parameters = result.run.case.parameters.iter().map(|(name, value)| format!("{name}={value}"));
        parameters.collect::<Vec<_>>().join(" ")
    }),
    ("target", |result| result.run.case.target.name.clone()),
    ("server", |result| result.run.case.target.server.clone()),
    ("version", |result| result.run.case.version.map_or("mounted".to_owned(), |version| version.to_string())),
    ("options", |result| result.run.case.options.clone()),
    ("delay_ms", |result| (result.run.case.delay.as_secs_f64() * 1e3).to_string()),
    ("threads", |result| result.run.case.threads.to_string()),
    ("clients", |result| result.run.case.clients.to_string()),
    ("round", |result| result.run.round.to_string()),
    ("started_unix_ms", |result| result.started_unix_ms.to_string()),
    ("seconds", |result| result.seconds.to_string()),
    ("outcome", |result| match &result.outcome {
        Outcome::Complete => "complete".to_owned(),
        Outcome::Failed(why) => format!("failed: {why}"),
    }),
    ("operations_per_second", |result| measure(result, Measure::Operations)),
    ("bytes_per_second", |result| measure(result, Measure::Bytes)),
    ("p50_ns", |result| measure(result, Measure::Latency(5000))),
    ("p90_ns", |result| measure(result, Measure::Latency(9000))),
    ("p99_ns", |result| measure(result, Measure::Latency(9900))),
    ("p999_ns", |result| measure(result, Measure::Latency(9990))),
    ("p9999_ns", |result| measure(result, Measure::Latency(9999))),
    ("requests_per_operation", |result| measure(result, Measure::Requests)),
    ("slot_waits", |result| result.slot_waits.map_or(String::new(), |waits| waits.to_string())),
    ("slot_wait_mean_ms", |result| measure(result, Measure::SlotWaitTime)),
    ("outstanding_requests", |result| measure(result, Measure::Outstanding)),
    ("retransmissions", |result| measure(result, Measure::Retransmissions)),
    ("timeouts", |result| measure(result, Measure::Timeouts)),
    ("client_cpu_seconds", |result| number(result.client_cpu_seconds)),
    ("server_cpu_seconds", |result| number(result.server_cpu_seconds)),
    ("server_peak_bytes", |result| number(result.server_peak_bytes)),
    ("errors_and_short", |result| result.faults().to_string()),
];

/// Returns a measure, or nothing if the run has none.
fn measure(result: &RunResult, measure: Measure) -> String {
    result.measure(measure).map_or(String::new(), |value| value.to_string())
}

/// Returns a number, or nothing if it is not known.
fn number(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Writes a header and one line for each run.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, results: &[RunResult]) -> fmt::Result {
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    write_line(out, names)?;
    for result in results {
        write_line(out, COLUMNS.iter().map(|(_, cell)| cell(result)))?;
    }
    Ok(())
}

fn write_line(out: &mut impl Write, cells: impl Iterator<Item = String>) -> fmt::Result {
    for (number, cell) in cells.enumerate() {
        if number > 0 {
            out.write_char(',')?;
        }
        // RFC 4180 §2: cells with commas, quotes and line breaks are quoted, and quotes doubled.
        if cell.contains([',', '"', '\n', '\r']) {
            write!(out, "\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            out.write_str(&cell)?;
        }
    }
    out.write_str("\r\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::result;
    use super::*;

    #[test]
    fn one_line_for_each_run() {
        let mut text = String::new();
        write(&mut text, &[result("enfys", "3", 1, 1000)]).unwrap();
        let lines: Vec<Vec<&str>> = text.split("\r\n").map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 3, "a header, a run, and nothing after the last line break");
        let cell = |name: &str| lines[1][lines[0].iter().position(|column| *column == name).unwrap()];
        assert_eq!((cell("version"), cell("round"), cell("operations_per_second")), ("3", "1", "100"));
        assert_eq!(cell("parameters"), "file-size=20GiB io-size=4KiB");
    }

    #[test]
    fn cells_are_quoted_and_failed_runs_have_no_numbers() {
        let failed = Outcome::Failed("said \"no\", twice".to_owned());
        let mut text = String::new();
        write(&mut text, &[RunResult { outcome: failed, ..result("enfys", "3", 1, 1000) }]).unwrap();
        assert!(text.contains(",\"failed: said \"\"no\"\", twice\",,,,,,,"), "{text}");
    }
}
