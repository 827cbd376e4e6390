//! Runs: from a plan to result files.
//!
//! [`run_plan`] executes the runs of a plan that have no complete result yet. [`execute`] executes one: a separate client makes
//! the files, then all measured clients connect, wait for each other, and work. `recorder` counts their operations, `window` has the measured time.

mod agent;
mod agents;
mod assemble;
mod barrier;
mod execute;
mod plan_runs;
mod recorder;
mod simulated;
mod task;
mod this_machine;
mod window;

pub use self::agent::run_agent;
pub use self::agents::{Agents, serve};
pub use self::execute::{Access, Place, measure, prepare};
pub use self::plan_runs::{Observer, Settings, Summary, run_plan};
pub use self::recorder::{Meter, Op, Record, Sleeper};
pub use self::simulated::Simulated;
pub use self::task::{Task, Who};
pub use self::this_machine::ThisMachine;
pub(crate) use self::this_machine::search_path;
pub use self::window::{Ends, VirtualClock, Window};
