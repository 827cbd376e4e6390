//! Results: one JSON file for each run, with the data to judge the run and to repeat it.
//!
//! [`RunResult`] is the one value; [`file`] reads and writes it, [`fio`] and [`csv`] export it. A run that failed says why
//! and has no rates: [`RunResult::throughput`] of it is `None`.

pub mod csv;
pub mod file;
pub mod fio;
mod latency;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::latency::Latency;
use crate::machine::Machine;
use crate::plan::Run;
use crate::server_counters::ServerCounters;

/// The value of the first key of a result file.
pub const FORMAT: &str = "enfys-bench-run";
/// Version of the format that this program writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Everything about one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// [`FORMAT`].
    pub format: String,
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Name of the plan.
    pub plan: String,
    /// The run.
    pub run: Run,
    /// Version of this program.
    pub enfys_version: String,
    /// Name and version of the server, as far as they are known.
    pub server_version: Option<String>,
    /// Start of the measured time, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The machine of the clients.
    pub machine: Machine,
    /// Options of mount, client and server, by name.
    pub options: BTreeMap<String, String>,
    /// Whether it is complete.
    pub outcome: Outcome,
    /// Length of the measured time, in seconds.
    pub seconds: f64,
    /// The results of each client.
    pub clients: Vec<ClientResult>,
    /// The calls of programs, by operation: `read`, `create`, `stat`.
    pub operations: BTreeMap<String, OperationResult>,
    /// The requests sent to the server, by operation of the protocol: `READ`, `OPEN`.
    pub requests: BTreeMap<String, RequestCounters>,
    /// Raw samples of other measurements, in order of time; the unit is in the name: `recall_ms`.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// Part of its CPUs that the client's machine was busy; near 1, the client was the limit.
    pub client_busy: Option<f64>,
    /// Resident memory of the clients' process at the end, in bytes.
    #[serde(default)]
    pub client_resident_bytes: Option<u64>,
    /// Requests that waited for a slot, or in version 3 for one of the requests in flight to end.
    #[serde(default)]
    pub slot_waits: Option<u64>,
    /// CPU time of the server, in seconds.
    pub server_cpu_seconds: Option<f64>,
    /// The server's counters over the whole run, and what the clients counted meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_counters: Option<ServerCounters>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The run lasted for the whole time.
    Complete,
    /// It did not, so its counts are not a measurement.
    Failed(String),
}

/// The results of one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientResult {
    /// Its name.
    pub name: String,
    /// Time by which it started after the first client, in microseconds.
    pub skew_us: u64,
    /// Operations of each second.
    pub operations: Vec<u64>,
    /// Bytes read and written in each second.
    pub bytes: Vec<u64>,
}

/// The effect of an operation on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It reads data.
    Read,
    /// It writes data.
    Write,
    /// It works on names and attributes.
    Metadata,
}

/// One operation of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationResult {
    /// Its effect.
    pub effect: Effect,
    /// Operations that succeeded as a whole. Operations that failed or transferred less than requested are not counted.
    pub count: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Reads and writes that transferred less than requested.
    pub short: u64,
    /// Latency of those that succeeded.
    pub latency: Latency,
}

impl OperationResult {
    /// Adds another thread's results of the same operation.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.short += other.short;
        self.latency.add(&other.latency);
    }
}

/// Requests of one operation of the protocol, as mountstats(8) counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestCounters {
    /// Requests.
    pub requests: u64,
    /// Requests that were sent again.
    pub retransmissions: u64,
    /// Requests that ended without a reply.
    pub timeouts: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Sum of the times before a request was sent, in microseconds.
    pub queue_us: u64,
    /// Sum of the times from request to reply, in microseconds.
    pub round_trip_us: u64,
}

impl RequestCounters {
    /// Adds those of another client.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
    }

    /// Returns the counts since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.combine(before, u64::saturating_sub);
        self
    }

    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let Self { requests, retransmissions, timeouts, bytes_sent, bytes_received, queue_us, round_trip_us } =
            self;
        for (own, other) in [
            (requests, other.requests),
            (retransmissions, other.retransmissions),
            (timeouts, other.timeouts),
            (bytes_sent, other.bytes_sent),
            (bytes_received, other.bytes_received),
            (queue_us, other.queue_us),
            (round_trip_us, other.round_trip_us),
        ] {
            *own = with(*own, other);
        }
    }
}

/// A measure of a run, for tables and comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Operations a second.
    Operations,
    /// Bytes a second.
    Bytes,
    /// Latency at a quantile: 500 is the median, 999 the 99.9th percentile, in thousandths.
    Latency(u16),
    /// Requests to the server for each operation.
    Requests,
    /// Waits for a slot, or in versions 3 and 4.0 for one of the calls in flight to end, for each operation.
    SlotWaits,
}

impl RunResult {
    /// Returns whether the run is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.outcome == Outcome::Complete
    }

    /// Returns operations and bytes a second; `None` for a failed run.
    #[must_use]
    pub fn throughput(&self) -> Option<(f64, f64)> {
        if !self.is_complete() || self.seconds <= 0.0 {
            return None;
        }
        let sum = |field: fn(&OperationResult) -> u64| {
            self.operations.values().map(field).sum::<u64>() as f64 / self.seconds
        };
        Some((sum(|operation| operation.count), sum(|operation| operation.bytes)))
    }

    /// Returns the latency of all operations together.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let mut all = Latency::default();
        for operation in self.operations.values() {
            all.add(&operation.latency);
        }
        all
    }

    /// Returns a measure; `None` if the run failed or does not have it.
    #[must_use]
    pub fn measure(&self, measure: Measure) -> Option<f64> {
        let (operations, bytes) = self.throughput()?;
        match measure {
            Measure::Operations => Some(operations),
            Measure::Bytes => (bytes > 0.0).then_some(bytes),
            Measure::Latency(thousandths) => {
                self.latency().quantile_ns(f64::from(thousandths) / 1000.0).map(|ns| ns as f64)
            }
            Measure::Requests => {
                let requests: u64 = self.requests.values().map(|counters| counters.requests).sum();
                (requests > 0 && operations > 0.0).then(|| requests as f64 / (operations * self.seconds))
            }
            Measure::SlotWaits => {
                let waits = self.slot_waits.filter(|_| operations > 0.0)?;
                Some(waits as f64 / (operations * self.seconds))
            }
        }
    }

    /// Returns each client's operations a second, for fairness; `None` for a failed run.
    #[must_use]
    pub fn client_rates(&self) -> Option<Vec<f64>> {
        let rate = |client: &ClientResult| client.operations.iter().sum::<u64>() as f64 / self.seconds;
        self.throughput().map(|_| self.clients.iter().map(rate).collect())
    }

    /// Returns errors and short operations.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.operations.values().map(|operation| operation.errors + operation.short).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Plan;

    /// Returns a complete run of `count` reads in 10 s.
    pub(crate) fn result(target: &str, version: &str, round: u32, count: u64) -> RunResult {
        let plan = format!(
            "rounds = 10\nduration = '10s'\n[matrix]\nversions = ['{version}']\n[[target]]\nname = '{target}'\n\
             server = 'local:enfys'\n[[workload]]\nname = 'random-read'\nset = {{ io-size = '4KiB' }}\n"
        );
        let runs = Plan::parse("plan.toml", &plan).unwrap().runs();
        let run = runs.into_iter().find(|run| run.round == round).unwrap();
        let mut latency = Latency::default();
        latency.record(Duration::from_micros(100), count - count / 100);
        latency.record(Duration::from_micros(2000), count / 100);
        let read = OperationResult {
            effect: Effect::Read,
            count,
            bytes: count * 4096,
            errors: 0,
            short: 0,
            latency,
        };
        let requests =
            RequestCounters { requests: count, bytes_received: count * 4200, ..Default::default() };
        RunResult {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            plan: "plan".to_owned(),
            run,
            enfys_version: "0.1.0".to_owned(),
            server_version: None,
            started_unix_ms: 1_790_000_000_000 + u64::from(round) * 60_000,
            machine: Machine::default(),
            options: BTreeMap::from([("rsize".to_owned(), "1048576".to_owned())]),
            outcome: Outcome::Complete,
            seconds: 10.0,
            clients: vec![ClientResult {
                name: "1".to_owned(),
                skew_us: 0,
                operations: vec![count / 10; 10],
                bytes: vec![count / 10 * 4096; 10],
            }],
            operations: BTreeMap::from([("read".to_owned(), read)]),
            requests: BTreeMap::from([("READ".to_owned(), requests)]),
            samples: BTreeMap::new(),
            client_busy: Some(0.5),
            client_resident_bytes: None,
            slot_waits: None,
            server_cpu_seconds: None,
            server_counters: None,
        }
    }

    #[test]
    fn measures_follow_from_counts() {
        let run = result("enfys", "3", 1, 1000);
        assert_eq!(run.throughput(), Some((100.0, 409_600.0)));
        assert_eq!(run.measure(Measure::Requests), Some(1.0));
        let median = run.measure(Measure::Latency(500)).unwrap();
        assert!((median / 100_000.0 - 1.0).abs() < 0.001, "{median}");
        let worst = run.measure(Measure::Latency(999)).unwrap();
        assert!((worst / 2_000_000.0 - 1.0).abs() < 0.001, "{worst}");
        assert_eq!(run.client_rates(), Some(vec![100.0]));
    }

    #[test]
    fn a_failed_run_has_no_rate() {
        let failed = Outcome::Failed("the server closed the connection".to_owned());
        let run = RunResult { outcome: failed, ..result("enfys", "3", 1, 1000) };
        assert_eq!((run.throughput(), run.client_rates()), (None, None));
        assert_eq!(run.measure(Measure::Latency(500)), None);
    }
}
