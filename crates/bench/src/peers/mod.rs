//! Servers side by side: the same load on each, in interleaved rounds.
//!
//! All servers run at once, and all but the measured one are idle. So the figures of an operation are taken within seconds of each
//! other, and slow changes of the machine affect all servers alike.

mod idle;
mod server;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, Write as _};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::idle::{CONNECTIONS, Idle, idle};
pub use self::server::{NAMESPACE_VARIABLE, Peer, PeerConfig, RunningPeer};
pub use self::table::{details, targets};
use crate::load::{self, LoadPlan, Xids};
use crate::machine::Machine;
use crate::operation::Operation;
use crate::results::{Measurement, Ratio, Shape, Summary};
use crate::targets::local::EXPORT;

/// Servers and loads to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Servers to start.
    pub peers: Vec<Peer>,
    /// Operations to run on each.
    pub operations: Vec<Operation>,
    /// Shapes of load for each.
    pub shapes: Vec<Shape>,
    /// Number of rounds.
    pub rounds: usize,
    /// Warm-up before each window.
    pub warm_up: Duration,
    /// Length of each window.
    pub window: Duration,
}

/// A row of the report: a server and an operation.
pub type Case = (Peer, Operation);

/// One measurement of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The server.
    pub peer: Peer,
    /// The round, from 0.
    pub round: usize,
    /// The figures.
    pub measurement: Measurement,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The machine.
    pub machine: Machine,
    /// All measurements, in the order in which they were taken.
    pub runs: Vec<Run>,
    /// Servers and measurements left out: one line each with the reason.
    pub missing: Vec<String>,
}

impl Comparison {
    /// Operations measured, in the order of the report.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        let seen: BTreeSet<Operation> = self.runs.iter().map(|run| run.measurement.operation).collect();
        seen.into_iter().collect()
    }

    /// Shapes measured.
    #[must_use]
    pub fn shapes(&self) -> Vec<Shape> {
        let seen: BTreeSet<Shape> = self.runs.iter().map(|run| run.measurement.shape).collect();
        seen.into_iter().collect()
    }

    /// Medians over the rounds.
    #[must_use]
    pub fn summary(&self, case: Case, shape: Shape) -> Option<Summary> {
        Summary::of(&self.measured(case, shape).map(|run| &run.measurement).collect::<Vec<_>>())
    }

    /// Returns the ratio of `figure` between `own` and `base`, over the rounds in which both were measured and `base` is positive.
    #[must_use]
    pub fn ratio(
        &self,
        (own, base): (Case, Case),
        shape: Shape,
        figure: impl Fn(&Measurement) -> Option<f64>,
    ) -> Option<Ratio> {
        let rounds = |case| {
            let measured = self.measured(case, shape);
            measured.filter_map(|run| Some((run.round, figure(&run.measurement)?)))
        };
        let bases: BTreeMap<usize, f64> = rounds(base).filter(|(_, figure)| *figure > 0.0).collect();
        Ratio::of(rounds(own).filter_map(|(round, figure)| Some(figure / bases.get(&round)?)).collect())
    }

    fn measured(&self, (peer, operation): Case, shape: Shape) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| {
            run.peer == peer && run.measurement.operation == operation && run.measurement.shape == shape
        })
    }
}

/// Starts all available servers and measures them; progress goes to standard error.
///
/// A server that is missing or answers wrongly is left out with the reason in [`Comparison::missing`].
#[must_use]
pub fn compare(plan: &Plan, place: &PeerConfig) -> Comparison {
    let mut comparison = Comparison { machine: Machine::here(&place.export), ..Comparison::default() };
    let mut servers = Vec::new();
    for peer in &plan.peers {
        match RunningPeer::start(*peer, place) {
            Ok(running) => servers.push(running),
            Err(why) => comparison.missing.push(why),
        }
    }
    let xids = Rc::new(Xids::starting_at(1));
    let mut failed = BTreeMap::new();
    for round in 0..plan.rounds {
        // Each round starts with another server, so that none always follows the same one.
        let turn = round % servers.len().max(1);
        servers.rotate_left(usize::from(turn > 0));
        // And with another operation: ext4 without a journal does not reuse an inode for a minute after its removal, so earlier
        // creations make later ones slower.
        let (behind, first) = plan.operations.split_at(round * plan.operations.len() / plan.rounds);
        let operations = first.iter().chain(behind);
        for (operation, shape) in operations.flat_map(|o| plan.shapes.iter().map(move |s| (*o, *s))) {
            progress(&format!("round {} of {}: {operation} {shape}", round + 1, plan.rounds));
            for server in servers.iter().filter(|server| server.peer.serves(operation)) {
                if failed.contains_key(&(server.peer, operation)) {
                    continue;
                }
                match load::run(&load_plan(plan, server, operation, shape, &xids)) {
                    Ok(measurement) => comparison.runs.push(Run { peer: server.peer, round, measurement }),
                    Err(why) => {
                        failed.insert((server.peer, operation), format!("{shape}: {why}"));
                    }
                }
            }
        }
    }
    progress("");
    let failures =
        failed.into_iter().map(|((peer, operation), why)| format!("{} {operation} {why}", peer.name()));
    comparison.missing.extend(failures);
    comparison
}

/// Shows the progress of a long run on a line that a terminal overwrites; prints nothing to a file.
fn progress(line: &str) {
    let mut errors = std::io::stderr();
    if errors.is_terminal() {
        let _ = write!(errors, "\r\x1b[K{line}");
        let _ = errors.flush();
    }
}

fn load_plan(
    plan: &Plan,
    server: &RunningPeer,
    operation: Operation,
    shape: Shape,
    xids: &Rc<Xids>,
) -> LoadPlan {
    LoadPlan {
        server: server.server,
        mount: server.mount,
        export: EXPORT.into(),
        operation,
        shape,
        warm_up: plan.warm_up,
        window: plan.window,
        server_pid: Some(server.pid()),
        xids: Rc::clone(xids),
    }
}
