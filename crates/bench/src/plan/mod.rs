//! Plans of measurements: TOML files that become ordered lists of runs.
//!
//! A plan multiplies targets, versions, delays, threads, clients and any parameter of its workloads. Each round runs
//! every case once, so that a change of the machine affects all cases equally. [`Plan::parse`] finds all errors in the text,
//! [`Plan::check`] missing requirements of this machine; both name the line. A run has a [`Run::id`] that depends on everything
//! that affects its result, so that an interrupted plan continues where it stopped.

mod case;
mod catalogue;
mod client_options;
mod errors;
mod file;
mod options;
mod requirements;
mod resolve;
mod value;

pub use self::case::{Case, Cold, Run, Target, TargetKind};
pub use self::catalogue::{Kind, Parameter, WORKLOADS, Workload};
pub use self::client_options::{ClientOptions, LinkOptions};
pub use self::file::{Caches, NfsVersion};
pub use self::options::PlanOptions;
pub use self::requirements::{BONNIE, FIO, GANESHA, KNFSD, Machine, Requirement, SQLITE};
pub use self::resolve::Plan;
pub use self::value::Value;

/// Maximum number of cases of a plan, before rounds.
pub const CASES_MAX: usize = 100_000;
/// Maximum number of rounds.
pub const ROUNDS_MAX: u32 = 1000;
/// Maximum number of threads of a client; the 2015 paper uses 512.
pub const THREADS_MAX: u32 = 4096;
/// Maximum number of clients.
pub const CLIENTS_MAX: u32 = 10_000;
