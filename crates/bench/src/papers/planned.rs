//! The planned time of a figure: its measured times, and estimates of work that ends by itself and of preparations.

use std::time::Duration;

use crate::plan::{Case, NfsVersion, Plan, Run};
use crate::runner::Ends;
use crate::units::parse_size;
use crate::workloads::{Any, Parameters};

/// Time of a figure without runs.
pub(super) const COMPUTED: Duration = Duration::from_secs(5);
/// Time to start a server and clients, and to end them, in seconds.
const SETUP: f64 = 0.7;
/// Time of a request without a delay, in seconds.
const REQUEST: f64 = 0.0002;
/// Time of a request that must be stable on a disk, in seconds.
const STABLE: f64 = 0.001;
/// Bytes a second that a disk stores.
const STORED: f64 = 100e6;
/// Bytes a second of the 1994 paper's disk, and with a sync of each WRITE.
const STORED_1994: (f64, f64) = (2.3e6, 0.32e6);
/// Bytes a second of its four striped disks.
const STRIPED_1994: f64 = 19.2e6;

/// Returns the time of all runs of a plan.
pub(super) fn time(plan: &Plan) -> Duration {
    plan.runs().iter().map(|run| Duration::from_secs_f64(SETUP) + preparation(&run.case) + work(run)).sum()
}

fn work(run: &Run) -> Duration {
    let parameters = Parameters(&run.case.parameters);
    match Any::new(&run.case.workload, &parameters).map(|workload| workload.ends()) {
        Some(Ends::Time) => run.warm_up + run.duration,
        _ => Duration::from_secs_f64(work_that_ends(&run.case, &parameters)),
    }
}

/// Returns the seconds of work that ends by itself.
fn work_that_ends(case: &Case, parameters: &Parameters<'_>) -> f64 {
    let count = |name| parameters.count(name) as f64;
    let size = |name| parameters.size(name) as f64;
    let is_stable = !["enfys-memory", "enfys-async"].iter().any(|name| case.target.server.ends_with(name));
    let stable = if is_stable { STABLE } else { REQUEST };
    let files = count("files");
    // Requests, how long each is without a delay, and bytes.
    let (requests, each, bytes) = match case.workload.as_str() {
        "create" => (files, stable, files * size("size")),
        "locked-reads" => (files * count("repeats") * 5.0, REQUEST, 0.0),
        "recall" => (files * 4.0, REQUEST, 0.0),
        "basic" => (11_000.0, REQUEST, 0.0),
        "find" => (files / 4.0, REQUEST, 0.0),
        "source-tree" => (files * 3.0, stable, files * size("mean-size")),
        "bonnie" => (files * 4.0 + count("seeks"), stable, size("file-size") * 4.0),
        _ => (0.0, 0.0, size("file-size")),
    };
    let threads = f64::from(case.threads);
    let server = case.target.server.as_str();
    let stored = match case.version {
        Some(NfsVersion::V2) if server.ends_with("disk-1994") => STORED_1994.1,
        _ if server.contains("disk-1994") => STORED_1994.0,
        _ if server.contains("disks-1994") => STRIPED_1994,
        _ => STORED,
    };
    let waiting = requests / threads * (each + case.delay.as_secs_f64());
    waiting.max(requests * f64::from(case.clients) * REQUEST) + bytes * f64::from(case.clients) / stored
}

/// Returns the time to make the files of a run.
fn preparation(case: &Case) -> Duration {
    let parameters = Parameters(&case.parameters);
    let own = matches!(case.workload.as_str(), "fileserver" | "webserver" | "varmail");
    let has_files =
        own || matches!(case.workload.as_str(), "small-files" | "list" | "locked-reads" | "recall" | "find");
    let sets = if own { case.clients } else { 1 };
    let mean = case.parameters.get("mean-size").map(ToString::to_string);
    let mean = mean.and_then(|text| parse_size(&text).ok()).unwrap_or_default();
    let files = if has_files { parameters.count("files") as f64 * f64::from(sets) } else { 0.0 };
    let whole = if case.workload.starts_with("random") { parameters.size("file-size") as f64 } else { 0.0 };
    Duration::from_secs_f64(files * (STABLE / 2.0 + mean as f64 / STORED) + whole / STORED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(matrix: &str, workload: &str) -> f64 {
        let text = format!(
            "rounds = 1\nduration = '10s'\nwarm-up = '0'\n[matrix]\nversions = ['3']\n{matrix}\n[[target]]\nname = 'x'\n\
             server = 'local:enfys'\n[[workload]]\n{workload}\n"
        );
        time(&Plan::parse("plan.toml", &text).unwrap()).as_secs_f64()
    }

    #[test]
    fn timed_work_takes_its_time_and_work_that_ends_its_requests() {
        let read = "name = 'random-read'\nset = { file-size = '100MB' }";
        assert!((10.5..13.0).contains(&planned("", read)), "{}", planned("", read));
        let create = "name = 'create'\nset = { files = 1000 }";
        let (one, many) =
            (planned("delays = ['10ms']", create), planned("delays = ['10ms']\nthreads = [10]", create));
        assert!((11.0..13.0).contains(&one), "{one}");
        assert!((1.5..3.0).contains(&many), "{many}");
    }
}
