//! Results: one JSON file for each run, with the data to judge the run and to repeat it.
//!
//! [`RunResult`] is the one value; [`file`] reads and writes it, [`fio`] and [`csv`] export it. A run that failed says why
//! and has no rates: [`RunResult::throughput`] of it is `None`.

mod client_counters;
pub mod csv;
pub mod file;
pub mod fio;
mod latency;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::client_counters::{CacheUse, ClientCounters, Delegations, SlotWaits};
pub use self::latency::Latency;
use crate::kernel_counters::{KernelCounters, Operation};
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
    /// Reads whose data were compared with what was written; `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// The requests sent to the server, by operation of the protocol: `READ`, `OPEN`. Those of a directory are its mount's, which the
    /// kernel counts for all of its users.
    pub requests: BTreeMap<String, RequestCounters>,
    /// Raw samples of other measurements, in order of time; the unit is in the name: `recall_ms`.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// Part of its CPUs that the client's machine was busy; near 1, the client was the limit.
    pub client_busy: Option<f64>,
    /// Resident memory of the clients' process at the end, in bytes.
    #[serde(default)]
    pub client_resident_bytes: Option<u64>,
    /// CPU time of the clients' process, in seconds.
    #[serde(default)]
    pub client_cpu_seconds: Option<f64>,
    /// Requests that waited for a slot, or in version 3 for one of the requests in flight to end.
    #[serde(default)]
    pub slot_waits: Option<u64>,
    /// The other counters of Enfys's clients; `None` for a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_counters: Option<ClientCounters>,
    /// CPU time of the server, in seconds.
    pub server_cpu_seconds: Option<f64>,
    /// Largest resident memory of the server in the measured time, in bytes.
    #[serde(default)]
    pub server_peak_bytes: Option<u64>,
    /// The server's counters over the whole run, and what the clients counted meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_counters: Option<ServerCounters>,
    /// What the kernels of the clients' machines counted, one each, if the target is a directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<KernelCounters>,
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

/// Reads that were compared with what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// Reads; each of them at least at its beginning.
    pub reads: u64,
    /// Reads of which all data were compared.
    pub whole: u64,
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
    /// Requests that ended without a reply; of a kernel's mount, its major timeouts.
    pub timeouts: u64,
    /// Replies with an error status.
    #[serde(default)]
    pub errors: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Sum of the times before a request was sent, in microseconds.
    pub queue_us: u64,
    /// Sum of the times from request to reply, in microseconds.
    pub round_trip_us: u64,
    /// Sum of the times from the start of requests to their end, in microseconds.
    #[serde(default)]
    pub execute_us: u64,
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
        let Self {
            requests,
            retransmissions,
            timeouts,
            errors,
            bytes_sent,
            bytes_received,
            queue_us,
            round_trip_us,
            execute_us,
        } = self;
        for (own, other) in [
            (requests, other.requests),
            (retransmissions, other.retransmissions),
            (timeouts, other.timeouts),
            (errors, other.errors),
            (bytes_sent, other.bytes_sent),
            (bytes_received, other.bytes_received),
            (queue_us, other.queue_us),
            (round_trip_us, other.round_trip_us),
            (execute_us, other.execute_us),
        ] {
            *own = with(*own, other);
        }
    }
}

impl From<Operation> for RequestCounters {
    fn from(operation: Operation) -> Self {
        let Operation { requests, transmissions, major_timeouts, bytes_sent, bytes_received, errors, .. } =
            operation;
        let Operation { queue_ms, round_trip_ms, execute_ms, .. } = operation;
        Self {
            requests,
            retransmissions: transmissions.saturating_sub(requests),
            timeouts: major_timeouts,
            errors,
            bytes_sent,
            bytes_received,
            queue_us: queue_ms.saturating_mul(1000),
            round_trip_us: round_trip_ms.saturating_mul(1000),
            execute_us: execute_ms.saturating_mul(1000),
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
    /// Latency at a quantile: 5000 is the median, 9999 the 99.99th percentile, in ten-thousandths.
    Latency(u16),
    /// Requests to the server for each operation.
    Requests,
    /// Waits for a slot, or in versions 3 and 4.0 for one of the calls in flight to end, for each operation.
    SlotWaits,
    /// Mean length of such a wait, in milliseconds.
    SlotWaitTime,
    /// Requests that were outstanding at the same time, in the mean.
    Outstanding,
    /// Requests that were sent again.
    Retransmissions,
    /// Requests that ended without a reply.
    Timeouts,
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
            Measure::Latency(ten_thousandths) => {
                self.latency().quantile_ns(f64::from(ten_thousandths) / 10_000.0).map(|ns| ns as f64)
            }
            Measure::Requests => {
                let requests: u64 = self.requests.values().map(|counters| counters.requests).sum();
                (requests > 0 && operations > 0.0).then(|| requests as f64 / (operations * self.seconds))
            }
            Measure::SlotWaits => {
                let waits = self.slot_waits.filter(|_| operations > 0.0)?;
                Some(waits as f64 / (operations * self.seconds))
            }
            Measure::SlotWaitTime => {
                self.client_counters?.slots.mean_and_deviation_ms().map(|(mean_ms, _)| mean_ms)
            }
            // Little's law: what each second has of the times of all requests.
            Measure::Outstanding => self
                .sum_of_requests(|counters| counters.round_trip_us)
                .map(|sum_us| sum_us / 1e6 / self.seconds),
            Measure::Retransmissions => self.sum_of_requests(|counters| counters.retransmissions),
            Measure::Timeouts => self.sum_of_requests(|counters| counters.timeouts),
        }
    }

    /// Returns a sum over all requests; `None` if they are not known.
    fn sum_of_requests(&self, field: fn(&RequestCounters) -> u64) -> Option<f64> {
        let sum: u64 = self.requests.values().map(field).sum();
        (!self.requests.is_empty()).then_some(sum as f64)
    }

    /// Returns each client's operations a second, for fairness; `None` for a failed run.
    #[must_use]
    pub fn client_rates(&self) -> Option<Vec<f64>> {
        let rate = |client: &ClientResult| client.operations.iter().sum::<u64>() as f64 / self.seconds;
        self.throughput().map(|_| self.clients.iter().map(rate).collect())
    }

    /// Adds the counters of a client.
    pub fn add_client(&mut self, counters: &ClientCounters) {
        *self.slot_waits.get_or_insert(0) += counters.slots.count;
        self.client_counters.get_or_insert_default().add(counters);
    }

    /// Adds what the kernel of a client's machine counted, with the requests of a mount. Clients of another process on the same mount
    /// have the same counters, which are added once.
    pub fn add_kernel(&mut self, counters: KernelCounters, requests: BTreeMap<String, RequestCounters>) {
        if self.kernel.iter().any(|known| known.is_same(&counters)) {
            return;
        }
        self.kernel.push(counters);
        for (name, counters) in requests {
            self.requests.entry(name).or_default().add(&counters);
        }
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
            compared: None,
            requests: BTreeMap::from([("READ".to_owned(), requests)]),
            samples: BTreeMap::new(),
            client_busy: Some(0.5),
            client_resident_bytes: None,
            client_cpu_seconds: None,
            slot_waits: None,
            client_counters: None,
            server_cpu_seconds: None,
            server_peak_bytes: None,
            server_counters: None,
            kernel: Vec::new(),
        }
    }

    #[test]
    fn measures_follow_from_counts() {
        let run = result("enfys", "3", 1, 1000);
        assert_eq!(run.throughput(), Some((100.0, 409_600.0)));
        assert_eq!(run.measure(Measure::Requests), Some(1.0));
        let median = run.measure(Measure::Latency(5000)).unwrap();
        assert!((median / 100_000.0 - 1.0).abs() < 0.001, "{median}");
        let worst = run.measure(Measure::Latency(9990)).unwrap();
        assert!((worst / 2_000_000.0 - 1.0).abs() < 0.001, "{worst}");
        assert_eq!(run.client_rates(), Some(vec![100.0]));
    }

    #[test]
    fn requests_of_a_mount_are_added_once_for_each_machine() {
        let of = |boot_id: &str| {
            let counters =
                KernelCounters { boot_id: boot_id.to_owned(), mount: None, system: None, disk: None };
            let requests = RequestCounters { requests: 7, round_trip_us: 50, ..RequestCounters::default() };
            (counters, BTreeMap::from([("OPEN".to_owned(), requests)]))
        };
        let mut run = result("mount", "3", 1, 1000);
        for boot_id in ["a", "a", "b"] {
            let (counters, requests) = of(boot_id);
            run.add_kernel(counters, requests);
        }
        assert_eq!((run.kernel.len(), run.requests["OPEN"].requests), (2, 14));
        // 100 µs in 10 s.
        assert!((run.measure(Measure::Outstanding).unwrap() - 1e-5).abs() < 1e-12);
    }

    #[test]
    fn transmissions_after_the_first_are_retransmissions() {
        let operation = Operation {
            requests: 10,
            transmissions: 13,
            major_timeouts: 1,
            queue_ms: 2,
            round_trip_ms: 3,
            execute_ms: 6,
            errors: 4,
            ..Operation::default()
        };
        let expected = RequestCounters {
            requests: 10,
            retransmissions: 3,
            timeouts: 1,
            errors: 4,
            queue_us: 2000,
            round_trip_us: 3000,
            execute_us: 6000,
            ..RequestCounters::default()
        };
        assert_eq!(RequestCounters::from(operation), expected);
    }

    #[test]
    fn a_failed_run_has_no_rate() {
        let failed = Outcome::Failed("the server closed the connection".to_owned());
        let run = RunResult { outcome: failed, ..result("enfys", "3", 1, 1000) };
        assert_eq!((run.throughput(), run.client_rates()), (None, None));
        assert_eq!(run.measure(Measure::Latency(5000)), None);
    }
}
