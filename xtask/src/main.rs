//! The project's own chores, run as `cargo xtask <chore>`.
//!
//! `cargo xtask check` is the one door: format, lints, layer rules, and the tests that need neither network nor root.
//! `cargo xtask test` installs what is missing and goes through it, and then runs every rung of the test ladder above
//! that this machine can run.

mod check;
mod door;
mod kernel;
mod peers;
mod report;
mod setup;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own chores", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

/// One line a chore: its name, its options, and below the function that does it.
#[derive(Subcommand)]
enum Chore {
    /// Format, lints, layer rules, tests without network or root
    Check(check::Options),
    /// Print a crate's modules bottom to top, what each imports, and import circles
    Modules(check::modules::Options),
    /// A real Linux kernel mounts the server and runs programs on it
    Kernel(kernel::Options),
    /// Install the Debian packages and the programs of crates.io that the tests need
    Setup(setup::Options),
    /// Enfys, its floor and other servers under the same load
    Peers(peers::Options),
    /// Everything: setup, check, kernel tests
    Test(door::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Check(options) => check::run(&options),
        Chore::Modules(options) => check::modules::print(&options),
        Chore::Kernel(options) => kernel::run(&options).inspect(|tally| options.print(tally)),
        Chore::Setup(options) => setup::run(&options),
        Chore::Peers(options) => peers::run(&options),
        Chore::Test(options) => door::run(&options),
    };
    match outcome {
        Ok(tally) => tally.exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
