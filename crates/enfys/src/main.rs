//! The `enfys` binary: flags and printing only.
#![deny(unsafe_code)]
// Nothing is reachable from outside a binary; `pub` says here what other modules use.
#![allow(unreachable_pub)]

mod address;
mod announce;
mod backends;
mod cli;
mod config;
mod control;
mod descriptors;
mod directories;
mod explain;
mod export_plan;
mod getent;
mod hosts;
mod id_names;
mod in_force;
mod kerberos;
mod latency;
mod listen;
mod metrics;
mod name_services;
mod places;
mod plan;
#[cfg(feature = "krb5")]
mod principals;
mod reach;
mod sandbox;
mod security;
mod serve;
mod service;
mod signals;
mod size;
mod state_dir;
mod submounts;
mod users;
mod writable;

use std::process::ExitCode;

use clap::Parser;

/// Freed memory goes back to small requests without a system call: replies are allocated and freed all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A huge page for each thread's first small allocation is 2 MiB of memory a core, and no call is measurably faster
    // for it. Where the kernel does not let a process choose, nothing is lost but that.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    let wants_json = cli.command.wants_json();
    let done = match cli.command {
        cli::Command::Serve(arguments) => serve::run(&arguments),
        cli::Command::CheckConfig(arguments) => plan::check(&arguments),
        cli::Command::Status(arguments) => control::ask::status(&arguments),
        cli::Command::Evict(arguments) => control::ask::evict(&arguments),
        cli::Command::Recall(arguments) => control::ask::recall(&arguments),
        cli::Command::Grace(command) => control::ask::grace(&command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) if wants_json => {
            print_error_as_json(&why);
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("enfys: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Exit status for a command line that is not understood, as clap has it.
const USAGE: u8 = 2;

/// Prints help, or what is wrong with the command line: as JSON where that was asked for.
fn not_understood(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        print_error_as_json(&usage_error(&error.to_string()));
        return ExitCode::from(USAGE);
    }
    // A closed standard output or error is no reason to say more.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// Returns clap's message in one line: its first paragraph, without the tips and the usage behind it.
fn usage_error(text: &str) -> String {
    let paragraph: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let message = paragraph.join(" ");
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

/// Standard output, since that is what a program reads whose answer this is.
fn print_error_as_json(why: &str) {
    println!("{}", serde_json::json!({ "error": why }));
}
