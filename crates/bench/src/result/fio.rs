//! Results in the JSON of fio (`--output-format=json+`), for the tools around it.
//!
//! Each run is a job. Operations on names and attributes are counted with reads, as fio's own engines `filestat` and
//! `filecreate` do.

use serde_json::{Map, Value, json};

use super::{Effect, Latency, RunResult};

/// The version of fio whose output this is like.
const FIO_VERSION: &str = "fio-3.39";
/// The percentiles that fio shows by default.
const PERCENTILES: &[f64] =
    &[1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// Longest latency of fio's histograms, in nanoseconds. Its tools know none beyond it.
const LATENCY_MAX_NS: u64 = 17_112_760_320;

/// Returns the results as one output of fio. Failed runs are left out: fio has no form for them.
#[must_use]
pub fn export(results: &[RunResult]) -> Value {
    let complete: Vec<&RunResult> = results.iter().filter(|result| result.is_complete()).collect();
    let started_ms = complete.iter().map(|result| result.started_unix_ms).max().unwrap_or_default();
    let jobs: Vec<Value> = complete.iter().enumerate().map(|(group, result)| job(group, result)).collect();
    json!({
        "fio version": FIO_VERSION,
        "timestamp": started_ms / 1000,
        "timestamp_ms": started_ms,
        "global options": {},
        "jobs": jobs,
    })
}

fn job(group: usize, result: &RunResult) -> Value {
    let case = &result.run.case;
    let mut options: Map<String, Value> = result.options.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    options.extend(case.parameters.iter().map(|(name, value)| (name.clone(), json!(value.to_string()))));
    options.insert("name".to_owned(), json!(result.run.id));
    options
        .insert("numjobs".to_owned(), json!((u64::from(case.threads) * u64::from(case.clients)).to_string()));
    json!({
        "jobname": result.run.id,
        "groupid": group,
        "job_start": result.started_unix_ms,
        "error": 0,
        "eta": 0,
        "elapsed": result.seconds.ceil() as u64,
        "job options": options,
        "read": direction(result, |effect| effect != Effect::Write),
        "write": direction(result, |effect| effect == Effect::Write),
        "trim": direction(result, |_| false),
        "job_runtime": (result.seconds * 1e3).round() as u64,
        "usr_cpu": 0.0,
        "sys_cpu": 0.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
    })
}

/// Returns the sums of all operations of a direction.
fn direction(result: &RunResult, belongs: impl Fn(Effect) -> bool) -> Value {
    let operations = || result.operations.values().filter(|operation| belongs(operation.effect));
    let (mut latency, mut count, mut bytes, mut short) = (Latency::default(), 0, 0, 0);
    for operation in operations() {
        latency.add(&operation.latency);
        count += operation.count;
        bytes += operation.bytes;
        short += operation.short;
    }
    let (bytes_per_second, per_second) = (bytes as f64 / result.seconds, count as f64 / result.seconds);
    let runtime = if count > 0 { result.seconds * 1e3 } else { 0.0 };
    let none = json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 });
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": bytes_per_second.round() as u64,
        "bw": (bytes_per_second / 1024.0).round() as u64,
        "iops": per_second,
        "runtime": runtime.round() as u64,
        "total_ios": count,
        "short_ios": short,
        "drop_ios": 0,
        "slat_ns": none,
        "clat_ns": latencies(&latency).unwrap_or_else(|| none.clone()),
        "lat_ns": latencies(&latency).map_or(none.clone(), without_percentiles),
        "bw_mean": bytes_per_second / 1024.0,
        "iops_mean": per_second,
    })
}

/// Returns latencies with percentiles and bins; `None` without operations.
fn latencies(latency: &Latency) -> Option<Value> {
    let (mean, deviation) = latency.mean_ns()?;
    let (min, max) = latency.range_ns()?;
    let percentile = |percent: &f64| {
        let value = latency.quantile_ns(percent / 100.0).unwrap_or_default();
        (format!("{percent:.6}"), json!(value.min(LATENCY_MAX_NS)))
    };
    let percentiles: Map<String, Value> = PERCENTILES.iter().map(percentile).collect();
    let mut bins: Map<String, Value> = Map::new();
    for (nanoseconds, count) in latency.pairs() {
        let bin = bins.entry(nanoseconds.min(LATENCY_MAX_NS).to_string()).or_insert(json!(0));
        *bin = json!(bin.as_u64().unwrap_or_default() + count);
    }
    Some(json!({
        "min": min,
        "max": max,
        "mean": mean,
        "stddev": deviation,
        "N": latency.count(),
        "percentile": percentiles,
        "bins": bins,
    }))
}

fn without_percentiles(mut latencies: Value) -> Value {
    if let Some(latencies) = latencies.as_object_mut() {
        latencies.remove("percentile");
        latencies.remove("bins");
    }
    latencies
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::super::Outcome;
    use super::super::tests::result;
    use super::*;

    #[test]
    fn a_job_has_fios_keys_and_units() {
        let exported = export(&[result("enfys", "3", 1, 1000)]);
        let job = &exported["jobs"][0];
        let read = &job["read"];
        assert_eq!((read["total_ios"].as_u64(), read["iops"].as_f64()), (Some(1000), Some(100.0)));
        // fio's `bw` is in KiB a second.
        assert_eq!((read["io_bytes"].as_u64(), read["bw"].as_u64()), (Some(4_096_000), Some(400)));
        assert_eq!(read["runtime"].as_u64(), Some(10_000));
        let counts: u64 =
            read["clat_ns"]["bins"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(counts, 1000);
        assert!(read["clat_ns"]["percentile"]["99.000000"].as_u64().unwrap() > 99_000);
        assert_eq!(job["write"]["total_ios"], 0);
    }

    #[test]
    fn failed_runs_have_no_jobs() {
        let failed = Outcome::Failed("why".to_owned());
        let exported = export(&[RunResult { outcome: failed, ..result("enfys", "3", 1, 1000) }]);
        assert_eq!(exported["jobs"].as_array().map(Vec::len), Some(0));
    }

    /// Runs fio's own converter, if this machine has it.
    #[test]
    fn fios_converter_accepts_the_export() {
        let directory = tempfile::tempdir().unwrap();
        let (json, csv) = (directory.path().join("fio.json"), directory.path().join("fio.csv"));
        let mut slow = result("enfys", "3", 2, 500);
        slow.operations.get_mut("read").unwrap().latency.record(Duration::from_secs(60), 1);
        std::fs::write(&json, export(&[result("enfys", "3", 1, 1000), slow]).to_string()).unwrap();
        for extra in [None, Some("--validate")] {
            let mut command = Command::new("fio_jsonplus_clat2csv");
            command.arg(&json).arg(&csv).args(extra);
            let Ok(output) = command.output() else {
                println!("skipped: fio is not installed");
                return;
            };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let lines = std::fs::read_to_string(directory.path().join("fio_job1.csv")).unwrap();
        assert!(lines.contains("\n17112760320, "), "a minute is beyond fio's longest latency: {lines}");
    }
}
