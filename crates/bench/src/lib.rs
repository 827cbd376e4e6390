//! Load generation and measurement: a closed-loop generator of NFS requests ([`load`]), the floor with which servers are
//! compared ([`floor`]), the comparison of servers ([`peers`]), and the cost of recalls ([`recalls`]).
//!
//! A workload runs, its results are one serializable value ([`results`]), and a table is a small function of it.

pub mod error;
pub mod floor;
pub mod hashcast;
pub mod honesty;
pub mod kernel_counters;
pub mod layout;
pub mod link;
pub mod load;
pub mod machine;
pub mod operation;
pub mod papers;
pub mod peers;
pub mod plan;
pub mod process;
pub mod recalls;
pub mod report;
pub mod result;
pub mod results;
pub mod runner;
pub mod server_counters;
pub mod statistics;
pub mod targets;
pub mod trace;
pub mod units;
pub mod workloads;
