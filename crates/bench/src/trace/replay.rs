//! A trace that is ready to be replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tokio::sync::SetOnce;

use super::format::Record;
use super::order::{Dependencies, last_uses};
use super::preparation::Preparation;
use super::reader::Trace;

/// A trace with what must exist before, and the order between its streams.
#[derive(Debug)]
pub struct Replay {
    trace: Trace,
    dependencies: Dependencies,
    streams: BTreeMap<(u32, u32), Vec<usize>>,
    last_uses: BTreeSet<usize>,
    /// Set when an operation has ended that others wait for.
    ended: BTreeMap<usize, SetOnce<()>>,
}

impl Replay {
    /// Reads a trace.
    ///
    /// # Errors
    /// If it cannot be read, or has no undamaged operation.
    pub fn read(path: &Path) -> Result<Self, String> {
        let trace = Trace::read(path)?;
        if trace.records.is_empty() {
            let why = trace.damage.as_deref().unwrap_or("no operations");
            return Err(format!("{}: {why}", path.display()));
        }
        Ok(Self::new(trace))
    }

    /// Takes a trace.
    #[must_use]
    pub fn new(trace: Trace) -> Self {
        let dependencies = Dependencies::of(&trace.records);
        let ended = dependencies.awaited().map(|index| (index, SetOnce::new())).collect();
        let mut streams: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, record) in trace.records.iter().enumerate() {
            streams.entry((record.client, record.stream)).or_default().push(index);
        }
        let last_uses = last_uses(&trace.records);
        Self { trace, dependencies, streams, last_uses, ended }
    }

    /// Returns the trace.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns what must exist before.
    #[must_use]
    pub fn preparation(&self) -> Preparation {
        Preparation::of(&self.trace.records)
    }

    /// Returns the operations of a stream in their order, each with its number; empty if there is no such stream.
    pub fn stream(&self, client: u32, stream: u32) -> impl Iterator<Item = (usize, &Record)> {
        let own = self.streams.get(&(client, stream)).map_or(&[][..], Vec::as_slice);
        own.iter().map(|index| (*index, &self.trace.records[*index]))
    }

    /// Waits until the operations of other streams have ended on which one depends.
    pub async fn wait_for_others(&self, index: usize) {
        for before in self.dependencies.before(index) {
            if let Some(ended) = self.ended.get(before) {
                ended.wait().await;
            }
        }
    }

    /// Returns whether a stream must close the file of an operation after it, if the file was opened for this operation.
    #[must_use]
    pub fn is_last_use(&self, index: usize) -> bool {
        self.last_uses.contains(&index)
    }

    /// Tells others that an operation has ended.
    pub fn ended(&self, index: usize) {
        if let Some(ended) = self.ended.get(&index) {
            // It is set once: each operation belongs to one stream.
            let _ = ended.set(());
        }
    }
}
