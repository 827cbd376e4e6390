//! Developer tasks, run as `cargo xtask <task>`.
//!
//! `cargo xtask check` runs everything that needs neither network nor root: format, lints, layer and module rules, tests.
//! `cargo xtask test` also installs missing programs and runs the higher rungs of the test ladder that this machine supports.

mod check;
mod kernel;
mod ladder;
mod peers;
mod report;
mod setup;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer tasks", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

/// The tasks and their options.
#[derive(Subcommand)]
enum Task {
    /// Check format, lints, layer and module rules; run tests that need no network or root
    Check(check::Options),
    /// Print a crate's modules bottom to top, what each imports, and import circles
    Modules(check::modules::Options),
    /// Mount the server with a real Linux kernel and run programs on the mount
    Kernel(kernel::Options),
    /// Install Debian packages and crates.io programs that the tests need
    Setup(setup::Options),
    /// Compare Enfys, its floor and other servers under the same load
    Peers(peers::Options),
    /// Run setup, check and kernel tests
    Test(ladder::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Check(options) => check::run(&options),
        Task::Modules(options) => check::modules::print(&options),
        Task::Kernel(options) => kernel::run(&options).inspect(|tally| options.print(tally)),
        Task::Setup(options) => setup::run(&options),
        Task::Peers(options) => peers::run(&options),
        Task::Test(options) => ladder::run(&options),
    };
    match outcome {
        Ok(tally) => tally.exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
