//! Medians of runs, by the differences of their cases.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::plan::{NfsVersion, Value};
use crate::result::{Measure, RunResult};
use crate::statistics::median;

/// The results of one figure's plan.
pub struct Runs<'r>(Vec<&'r RunResult>);

/// The selected cases; `None` is any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pick<'p> {
    /// The target's name.
    pub target: Option<&'p str>,
    /// The version.
    pub version: Option<NfsVersion>,
    /// The delay in milliseconds.
    pub delay_ms: Option<u64>,
    /// Threads of a client.
    pub threads: Option<u32>,
    /// Clients.
    pub clients: Option<u32>,
    /// Parameters and their values.
    pub parameters: [Option<(&'p str, &'p str)>; 2],
    /// The options of the client.
    pub options: Option<&'p str>,
}

impl<'p> Pick<'p> {
    pub(super) fn v2() -> Self {
        Self { version: Some(NfsVersion::V2), ..Self::default() }
    }

    pub(super) fn v3() -> Self {
        Self { version: Some(NfsVersion::V3), ..Self::default() }
    }

    pub(super) fn v40() -> Self {
        Self { version: Some(NfsVersion::V40), ..Self::default() }
    }

    pub(super) fn v41() -> Self {
        Self { version: Some(NfsVersion::V41), ..Self::default() }
    }

    pub(super) fn delay_ms(self, delay_ms: u64) -> Self {
        Self { delay_ms: Some(delay_ms), ..self }
    }

    pub(super) fn threads(self, threads: u32) -> Self {
        Self { threads: Some(threads), ..self }
    }

    pub(super) fn target(self, target: &'p str) -> Self {
        Self { target: Some(target), ..self }
    }

    pub(super) fn clients(self, clients: u32) -> Self {
        Self { clients: Some(clients), ..self }
    }

    /// Adds a parameter; at most two.
    pub(super) fn with(self, name: &'p str, value: &'p str) -> Self {
        let parameters = match self.parameters {
            [None, _] => [Some((name, value)), None],
            [first, _] => [first, Some((name, value))],
        };
        Self { parameters, ..self }
    }

    pub(super) fn options(self, options: &'p str) -> Self {
        Self { options: Some(options), ..self }
    }

    fn matches(&self, result: &RunResult) -> bool {
        let case = &result.run.case;
        let has_parameter = |(name, value): (&str, &str)| {
            case.parameters.get(name).map(Value::to_string).as_deref() == Some(value)
        };
        self.target.is_none_or(|target| case.target.name == target)
            && self.version.is_none_or(|version| case.version == Some(version))
            && self.delay_ms.is_none_or(|delay| case.delay == Duration::from_millis(delay))
            && self.threads.is_none_or(|threads| case.threads == threads)
            && self.clients.is_none_or(|clients| case.clients == clients)
            && self.parameters.into_iter().flatten().all(has_parameter)
            && self.options.is_none_or(|options| case.options == options)
    }
}

impl<'r> Runs<'r> {
    /// Takes the complete runs of some results.
    #[must_use]
    pub fn new(results: &'r [RunResult]) -> Self {
        Self(results.iter().filter(|result| result.is_complete()).collect())
    }

    /// Returns the median of a number that runs may have; `None` if no run has it.
    pub(super) fn median(&self, pick: &Pick<'_>, number: impl Fn(&RunResult) -> Option<f64>) -> Option<f64> {
        median(
            self.0.iter().filter(|result| pick.matches(result)).filter_map(|result| number(result)).collect(),
        )
    }

    /// Returns the median of operations a second.
    pub(super) fn rate(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| result.measure(Measure::Operations))
    }

    /// Returns the median of bytes a second.
    pub(super) fn bytes(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| result.measure(Measure::Bytes))
    }

    /// Returns the median of requests for each operation.
    pub(super) fn requests(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| result.measure(Measure::Requests))
    }

    /// Returns the median number of requests of one kind, or of all.
    pub(super) fn request_count(&self, pick: &Pick<'_>, operation: Option<&str>) -> Option<f64> {
        let count = |result: &RunResult| {
            let chosen =
                result.requests.iter().filter(|(name, _)| operation.is_none_or(|wanted| *name == wanted));
            Some(chosen.map(|(_, counters)| counters.requests).sum::<u64>() as f64)
        };
        self.median(pick, count)
    }

    /// Returns the median of the bytes that were sent and received, with all headers of RPC.
    pub(super) fn wire_bytes(&self, pick: &Pick<'_>) -> Option<f64> {
        let bytes = |result: &RunResult| {
            Some(result.requests.values().map(|one| one.bytes_sent + one.bytes_received).sum::<u64>() as f64)
        };
        self.median(pick, bytes)
    }

    /// Returns the kinds of requests of the selected runs.
    pub(super) fn request_kinds(&self, pick: &Pick<'_>) -> BTreeSet<&'r str> {
        let chosen = self.0.iter().filter(|result| pick.matches(result));
        chosen.flat_map(|result| result.requests.keys().map(String::as_str)).collect()
    }

    /// Returns the median of the waits for a slot.
    pub(super) fn slot_waits(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| result.slot_waits.map(|waits| waits as f64))
    }

    /// Returns the median of the mean of a sample.
    pub(super) fn sample(&self, pick: &Pick<'_>, name: &str) -> Option<f64> {
        self.median(pick, |result| mean(result.samples.get(name)?))
    }

    /// Returns the median of `of` over the samples.
    pub(super) fn samples(
        &self,
        pick: &Pick<'_>,
        name: &str,
        of: impl Fn(&[f64]) -> Option<f64>,
    ) -> Option<f64> {
        self.median(pick, |result| of(result.samples.get(name)?))
    }
}

/// Returns the mean; `None` without values.
pub(super) fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}
