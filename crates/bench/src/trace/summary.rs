//! A trace in numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::format::Kind;
use super::preparation::Preparation;
use super::reader::Trace;
use crate::units::{size_text, time_text};

/// The operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations that succeeded.
    pub succeeded: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// The time of all of them together, in microseconds.
    pub took_us: u64,
}

/// What `enfys bench trace show` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where the operations are from.
    pub source: String,
    /// Clients.
    pub clients: usize,
    /// Streams of all clients.
    pub streams: usize,
    /// From the beginning of the first operation to the end of the last.
    pub duration: Duration,
    /// By kind.
    pub operations: BTreeMap<Kind, Count>,
    /// What must exist before a replay.
    pub preparation: Preparation,
    /// Why there is no more.
    pub damage: Option<String>,
    /// Why the source had more.
    pub incomplete: Option<String>,
}

impl Summary {
    /// Counts the operations of a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut operations: BTreeMap<Kind, Count> = BTreeMap::new();
        let (mut clients, mut streams) = (BTreeSet::new(), BTreeSet::new());
        for record in &trace.records {
            clients.insert(record.client);
            streams.insert((record.client, record.stream));
            let count = operations.entry(record.op).or_default();
            count.took_us = count.took_us.saturating_add(record.took_us);
            if record.error.is_some() {
                count.failed += 1;
                continue;
            }
            count.succeeded += 1;
            if matches!(record.op, Kind::Read | Kind::Write) {
                count.bytes = count.bytes.saturating_add(record.result.unwrap_or(0));
            }
        }
        let began = trace.records.first().map_or(0, |record| record.at_us);
        let ended = trace.records.iter().map(super::Record::ended_us).max().unwrap_or(began);
        Self {
            source: trace.header.source.clone(),
            clients: clients.len(),
            streams: streams.len(),
            duration: Duration::from_micros(ended - began),
            operations,
            preparation: Preparation::of(&trace.records),
            damage: trace.damage.clone(),
            incomplete: trace.incomplete.clone(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: u64 = self.operations.values().map(|count| count.succeeded + count.failed).sum();
        let duration = time_text(Duration::from_millis(self.duration.as_millis() as u64));
        writeln!(f, "{}", self.source)?;
        writeln!(
            f,
            "{count} operations of {} client(s) in {} stream(s), {duration}",
            self.clients, self.streams
        )?;
        let needed = &self.preparation;
        writeln!(
            f,
            "before a replay: {} directories, {} files of {} together, {} symbolic links",
            needed.directories.len(),
            needed.files.len(),
            size_text(needed.bytes()),
            needed.links.len()
        )?;
        writeln!(
            f,
            "\n{:<10} {:>10} {:>8} {:>14} {:>10}",
            "operation", "succeeded", "failed", "bytes", "mean"
        )?;
        for (kind, count) in &self.operations {
            let mean = count.took_us as f64 / (count.succeeded + count.failed).max(1) as f64;
            let Count { succeeded, failed, bytes, .. } = count;
            writeln!(
                f,
                "{:<10} {succeeded:>10} {failed:>8} {bytes:>14} {:>7.3} ms",
                kind.name(),
                mean / 1e3
            )?;
        }
        if let Some(why) = &self.incomplete {
            writeln!(f, "\nincomplete: {why}")?;
        }
        if let Some(why) = &self.damage {
            writeln!(f, "\ndamaged: {why}")?;
        }
        Ok(())
    }
}
