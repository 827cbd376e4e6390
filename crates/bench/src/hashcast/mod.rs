//! Hash-Cast: unfairness among TCP flows that share a network card with several transmit queues.
//!
//! The model of §3.2 of "Newer Is Sometimes Better" (Chen et al., SIGMETRICS 2015): the system hashes a flow to a queue,
//! and keeps it there while packets of the flow wait in it. All queues that have packets send at the same rate. A busy
//! flow therefore shares its queue with the same other flows for minutes. [`outcomes`] counts the distributions of flows over
//! queues; [`simulation`] simulates clients that start one after another, and their scheduling by SFQ.

pub mod outcomes;
mod queues;
pub mod simulation;
mod text;

use serde::Serialize;

pub use self::outcomes::{Outcome, Outcomes};
pub use self::simulation::{Event, Simulated, Simulation};
pub use self::text::write_report;

/// Maximum number of flows of a model.
pub const FLOWS_MAX: usize = 32;
/// Maximum number of transmit queues of a model: `ixgbe`, `mlx5` and other drivers offer fewer.
pub const QUEUES_MAX: usize = 1024;
/// Software queues of SFQ in the paper.
pub const SFQ_QUEUES: usize = 127;
/// Seconds between two changes of SFQ's hash in the paper (`perturb 10`).
pub const SFQ_PERTURB_SECONDS: f64 = 10.0;

/// All results of the model for one set of parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Distributions of flows over queues.
    pub outcomes: Outcomes,
    /// Clients that start one after another, with the card's queues.
    pub hashed: Simulated,
    /// The same with one transmit queue and SFQ.
    pub fair: Simulated,
}

impl Report {
    /// Counts outcomes, and runs `simulation` with hashed queues and with SFQ.
    ///
    /// # Errors
    /// A parameter is out of its bounds.
    pub fn of(simulation: &Simulation, trials: u32) -> Result<Self, String> {
        Ok(Self {
            outcomes: Outcomes::of(simulation.flows, simulation.queues, trials, simulation.seed)?,
            hashed: simulation.run()?,
            fair: simulation.with_sfq().run()?,
        })
    }
}
