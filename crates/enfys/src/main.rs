//! The `enfys` binary: flags and printing only.
#![forbid(unsafe_code)]
// Nothing is reachable from outside a binary; `pub` says here what other modules use.
#![allow(unreachable_pub)]

mod backends;
mod cli;
mod config;
mod metrics;
mod plan;
mod serve;
mod state_dir;

use std::process::ExitCode;

use clap::Parser;

/// Freed memory goes back to small requests without a system call: replies are allocated and freed all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let done = match cli.command {
        cli::Command::Serve(arguments) => serve::run(&arguments),
        cli::Command::CheckConfig(arguments) => plan::check(&arguments.config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("enfys: {why}");
            ExitCode::FAILURE
        }
    }
}
