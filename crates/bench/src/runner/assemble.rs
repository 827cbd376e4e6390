//! The result of a run, from what its threads have counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::execute::Place;
use super::recorder::Record;
use super::window::{Ends, Window};
use crate::machine::Machine;
use crate::plan::Run;
use crate::process;
use crate::result::{
    ClientCounters, ClientResult, FORMAT, FORMAT_VERSION, Outcome, RequestCounters, RunResult,
};
use crate::server_counters::Exchanged;

/// The results of threads of a client that run together.
pub(super) struct Share {
    pub(super) client: u32,
    pub(super) record: Record,
    pub(super) requests: BTreeMap<String, RequestCounters>,
    /// None for a directory.
    pub(super) client_counters: Option<ClientCounters>,
    /// All requests from connecting to leaving.
    pub(super) exchanged: Exchanged,
    /// When the last of them ended.
    pub(super) ended: Instant,
}

/// What the clients of this process have done in a run.
pub(super) struct Measured {
    /// The result, without the server's counters.
    pub(super) result: RunResult,
    /// All that the clients exchanged with the server, from connecting to leaving.
    pub(super) exchanged: Exchanged,
    /// When the first client began.
    pub(super) began: Option<Instant>,
}

impl Measured {
    /// Of a run that did not begin.
    pub(super) fn failed(run: &Run, place: &Place, why: String) -> Self {
        Self { result: failed(run, place, why), exchanged: Exchanged::default(), began: None }
    }
}

/// Returns the result of a run that did not begin.
#[must_use]
pub(super) fn failed(run: &Run, place: &Place, why: String) -> RunResult {
    let machine = Machine::here(place.export.as_deref().unwrap_or(Path::new("/")));
    RunResult {
        format: FORMAT.to_owned(),
        format_version: FORMAT_VERSION,
        plan: place.plan.clone(),
        run: run.clone(),
        enfys_version: env!("CARGO_PKG_VERSION").to_owned(),
        server_version: place.server_version.clone(),
        started_unix_ms: unix_ms(SystemTime::now()),
        machine,
        options: place.options.clone(),
        outcome: Outcome::Failed(why),
        seconds: 0.0,
        clients: Vec::new(),
        operations: BTreeMap::new(),
        compared: None,
        requests: BTreeMap::new(),
        samples: BTreeMap::new(),
        client_busy: None,
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

pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Puts the results of all threads together.
pub(super) fn assemble(
    run: &Run,
    place: &Place,
    window: &Window,
    ends: Ends,
    started: SystemTime,
    shares: Vec<Share>,
) -> Measured {
    let mut result = failed(run, place, String::new());
    let mut exchanged = Exchanged::default();
    shares.iter().for_each(|share| exchanged.combine(&share.exchanged));
    result.outcome = Outcome::Complete;
    result.started_unix_ms = unix_ms(started);
    let ended = shares.iter().map(|share| share.ended).max();
    let measured = window.begin().zip(ended).map(|(begin, ended)| ended.saturating_duration_since(begin));
    let measured = measured.unwrap_or_default();
    let whole = if ends == Ends::Time { measured.min(run.duration) } else { measured };
    result.seconds = whole.as_secs_f64();
    result.client_resident_bytes = process::resident_bytes(std::process::id()).ok();
    let first = shares.iter().filter_map(|share| share.record.began).min();
    for share in shares {
        add_share(&mut result, share, first);
    }
    let did_nothing = result.operations.values().all(|operation| operation.count == 0);
    if let Some(why) = window.failure() {
        result.outcome = Outcome::Failed(why);
    } else if did_nothing {
        let why = "no operation ended within the measured time: measure longer".to_owned();
        result.outcome = Outcome::Failed(why);
    }
    Measured { result, exchanged, began: first }
}

/// Adds the results of some threads of a client.
fn add_share(result: &mut RunResult, share: Share, first: Option<Instant>) {
    let Share { client, record, requests, client_counters, .. } = share;
    if let Some(counters) = client_counters {
        result.add_client(&counters);
    }
    let index = client as usize;
    if result.clients.len() <= index {
        result.clients.resize_with(index + 1, ClientResult::default);
    }
    let own = &mut result.clients[index];
    own.name = (client + 1).to_string();
    let skew = record.began.zip(first).map(|(began, first)| began.saturating_duration_since(first));
    own.skew_us = own.skew_us.max(skew.map_or(0, |skew| u64::try_from(skew.as_micros()).unwrap_or(u64::MAX)));
    add_series(&mut own.operations, &record.operations_by_second);
    add_series(&mut own.bytes, &record.bytes_by_second);
    for (name, operation) in record.operations {
        match result.operations.get_mut(name) {
            Some(all) => all.add(&operation),
            None => {
                result.operations.insert(name.to_owned(), operation);
            }
        }
    }
    for (name, counters) in requests {
        result.requests.entry(name).or_default().add(&counters);
    }
    for (name, samples) in record.samples {
        result.samples.entry(name.to_owned()).or_default().extend(samples);
    }
}

fn add_series(all: &mut Vec<u64>, some: &[u64]) {
    all.resize(all.len().max(some.len()), 0);
    all.iter_mut().zip(some).for_each(|(all, some)| *all += some);
}
