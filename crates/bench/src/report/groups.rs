//! Groups rounds of the same case.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::Case;
use crate::result::{Measure, Outcome, RunResult};
use crate::server_counters::ServerCounters;
use crate::statistics::{Clusters, clusters, jain, median, warnings};
use crate::units::time_text;

/// A client that uses at least this part of its CPUs is reported as the limit.
const SATURATED: f64 = 0.9;
/// Maximum difference between the starts of clients, as a part of the measured time.
const SKEW_MAX: f64 = 0.01;

/// All rounds of one case.
#[derive(Clone, Debug)]
pub struct Group<'r> {
    /// The case.
    pub case: &'r Case,
    /// Complete runs, in order of time.
    pub runs: Vec<&'r RunResult>,
    /// Failed runs.
    pub failed: Vec<&'r RunResult>,
}

/// Puts the rounds of each case together. Groups have the order in which their cases first occur.
#[must_use]
pub fn group(results: &[RunResult]) -> Vec<Group<'_>> {
    let mut order: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut sorted: Vec<&RunResult> = results.iter().collect();
    sorted.sort_by_key(|result| result.started_unix_ms);
    for result in sorted {
        let case = &result.run.case;
        // A case is identified by its JSON, whose maps are sorted.
        let key = serde_json::to_string(case).unwrap_or_default();
        let at = *order.entry(key).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Group { case, runs: Vec::new(), failed: Vec::new() });
        }
        let is_complete = result.is_complete();
        let list = if is_complete { &mut groups[at].runs } else { &mut groups[at].failed };
        list.push(result);
    }
    groups
}

impl Group<'_> {
    /// Returns a measure of each round, in order of time.
    #[must_use]
    pub fn samples(&self, measure: Measure) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.measure(measure)).collect()
    }

    /// Returns Jain's index, as the median of the rounds, and the clearest clusters of a round; `None` with one client.
    #[must_use]
    pub fn fairness(&self) -> Option<(f64, Option<Clusters>)> {
        let rounds: Vec<Vec<f64>> = self.runs.iter().filter_map(|run| run.client_rates()).collect();
        let clients = rounds.iter().map(Vec::len).min().filter(|clients| *clients > 1)?;
        let index = median(rounds.iter().filter_map(|rates| jain(rates)).collect())?;
        // A client that wins in one round may lose in another: the paper's third trait. Each round has its clusters.
        let found = rounds
            .iter()
            .filter_map(|rates| clusters(&rates[..clients]))
            .max_by(|a, b| a.ratio.total_cmp(&b.ratio));
        Some((index, found))
    }

    /// Returns the warnings about this group's results, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for run in &self.failed {
            if let Outcome::Failed(why) = &run.outcome {
                found.push(format!("round {} failed: {why}. It is not included.", run.run.round));
            }
        }
        found.extend(warnings(&self.samples(Measure::Operations)).iter().map(ToString::to_string));
        let busy = self.runs.iter().filter_map(|run| run.client_busy).fold(0.0, f64::max);
        if busy >= SATURATED {
            found.push(format!(
                "the client was busy for {:.0} % of the time: its own limit may be what was measured. Use more client \
                 machines, or fewer threads.",
                busy * 100.0
            ));
        }
        let skew = self.runs.iter().map(|run| skew_part(run)).fold(0.0, f64::max);
        if skew > SKEW_MAX {
            found.push(format!(
                "clients started apart by {:.1} % of the measured time. Run longer, or synchronize the clocks.",
                skew * 100.0
            ));
        }
        for run in &self.runs {
            let counters = run.server_counters.as_ref();
            let difference = counters.and_then(ServerCounters::difference);
            found.extend(difference.map(|difference| format!("round {}: {difference}", run.run.round)));
        }
        let faults: u64 = self.runs.iter().map(|run| run.faults()).sum();
        if faults > 0 {
            found.push(format!(
                "{faults} operation(s) failed or were incomplete; they are not counted as work."
            ));
        }
        if let Some((index, Some(clusters))) = self.fairness() {
            found.push(format!(
                "{} client(s) won and {} lost by {:.1} to 1 (Jain's index {index:.3}). Try one transmit queue with \
                 `tc qdisc replace dev DEV root sfq perturb 10`; `enfys bench hashcast` explains it.",
                clusters.winners.len(),
                clusters.losers.len(),
                clusters.ratio
            ));
        }
        found
    }
}

fn skew_part(run: &RunResult) -> f64 {
    let skew = run.clients.iter().map(|client| client.skew_us).max().unwrap_or_default();
    if run.seconds > 0.0 { skew as f64 / 1e6 / run.seconds } else { 0.0 }
}

/// Properties by which cases differ, with the value of each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Property<'n> {
    Workload,
    Target,
    Version,
    Options,
    Delay,
    Threads,
    Clients,
    Parameter(&'n str),
}

impl Property<'_> {
    /// Returns the property's name.
    pub(super) fn name(self) -> String {
        match self {
            Self::Workload => "workload".to_owned(),
            Self::Target => "target".to_owned(),
            Self::Version => "version".to_owned(),
            Self::Options => "options".to_owned(),
            Self::Delay => "delay".to_owned(),
            Self::Threads => "threads".to_owned(),
            Self::Clients => "clients".to_owned(),
            Self::Parameter(name) => name.to_owned(),
        }
    }

    /// Returns its value in a case, as text.
    pub(super) fn text(self, case: &Case) -> String {
        match self {
            Self::Workload => case.workload.clone(),
            Self::Target => case.target.name.clone(),
            Self::Version => case.version.map_or("mounted".to_owned(), |version| version.to_string()),
            Self::Options => case.options.clone(),
            Self::Delay => time_text(case.delay),
            Self::Threads => case.threads.to_string(),
            Self::Clients => case.clients.to_string(),
            Self::Parameter(name) => case.parameters.get(name).map_or(String::new(), ToString::to_string),
        }
    }

    /// Returns its value as a number, for an axis; delays in milliseconds, sizes in bytes.
    pub(super) fn number(self, case: &Case) -> Option<f64> {
        match self {
            Self::Delay => Some(case.delay.as_secs_f64() * 1e3),
            Self::Threads => Some(f64::from(case.threads)),
            Self::Clients => Some(f64::from(case.clients)),
            Self::Parameter(_) => {
                let text = self.text(case);
                crate::units::parse_size(&text).ok().map(|number| number as f64)
            }
            Self::Workload | Self::Target | Self::Version | Self::Options => None,
        }
    }

    /// Returns the label of an axis.
    pub(super) fn axis(self) -> String {
        match self {
            Self::Delay => "delay (round trip, ms)".to_owned(),
            Self::Threads => "threads of each client".to_owned(),
            other => other.name(),
        }
    }
}

/// Returns the properties that differ between groups, in the order of columns.
pub(super) fn varying<'r>(groups: &[Group<'r>]) -> Vec<Property<'r>> {
    let names: BTreeSet<&'r str> =
        groups.iter().flat_map(|group| group.case.parameters.keys().map(String::as_str)).collect();
    let fixed = [
        Property::Workload,
        Property::Target,
        Property::Version,
        Property::Options,
        Property::Delay,
        Property::Threads,
        Property::Clients,
    ];
    let all = fixed.into_iter().chain(names.into_iter().map(Property::Parameter));
    all.filter(|property| {
        let mut values = groups.iter().map(|group| property.text(group.case));
        let first = values.next();
        values.any(|value| Some(value) != first)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::result;

    #[test]
    fn rounds_of_a_case_are_grouped_in_order_of_time() {
        let results =
            [result("enfys", "4.1", 2, 1200), result("enfys", "3", 1, 1000), result("enfys", "4.1", 1, 1100)];
        let groups = group(&results);
        assert_eq!(groups.len(), 2);
        assert_eq!(
            groups.iter().find(|g| g.runs.len() == 2).unwrap().samples(Measure::Operations),
            [110.0, 120.0]
        );
        assert_eq!(varying(&groups), [Property::Version]);
    }

    #[test]
    fn doubtful_runs_are_named() {
        let mut slow = result("enfys", "3", 1, 1000);
        slow.client_busy = Some(0.97);
        let problem = Some("no route".to_owned());
        slow.server_counters = Some(ServerCounters { problem, ..ServerCounters::default() });
        slow.operations.get_mut("read").unwrap().short = 3;
        let mut other = slow.clients[0].clone();
        other.operations = vec![40; 10];
        other.skew_us = 500_000;
        slow.clients.push(other);
        let mut failed = result("enfys", "3", 2, 1000);
        failed.outcome = Outcome::Failed("connection refused".to_owned());
        let results = [slow, failed];
        let message = group(&results)[0].warnings().join("\n");
        for part in [
            "round 2 failed: connection refused",
            "1 round(s) only",
            "busy for 97 %",
            "apart by 5.0 %",
            "3 operation(s)",
            "round 1: no counters of the server: no route",
            "1 client(s) won and 1 lost by 2.5 to 1",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
