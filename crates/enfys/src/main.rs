//! The `enfys` binary: command line, configuration, start and stop of the server, and the output of all commands.
#![deny(unsafe_code)]
// Nothing is visible outside a binary; here, `pub` means that other modules use it.
#![allow(unreachable_pub)]

mod address;
mod check_config;
mod cli;
mod client_addresses;
mod commands;
mod config;
mod control;
mod control_messages;
mod control_socket;
mod descriptor_limits;
mod duration;
mod effective_config;
mod exports;
mod figures;
mod flavors;
mod kerberos;
mod listen;
mod metrics;
mod name_services;
mod plan;
mod quotas;
mod sandbox;
mod serve;
mod signals;
mod size;
mod sockets;
mod startup_code;
mod startup_message;
mod state_dir;
mod systemd;

use std::process::ExitCode;

/// Replies are allocated and freed all the time; mimalloc reuses freed memory without system calls.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Huge pages for the first small allocation of each thread take 2 MiB a core, and make no call measurably faster. A failure
    // costs that memory only.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    if let Some(called) = commands::mount::helper::from_command_line() {
        return called.map_or_else(|error| print_usage(&error), mount_as_helper);
    }
    if quotas::helper::is_called() {
        return match quotas::helper::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("enfys: {why}");
                ExitCode::FAILURE
            }
        };
    }
    let cli = match cli::Cli::from_command_line() {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error),
    };
    let wants_json = cli.command.wants_json();
    let success = |()| ExitCode::SUCCESS;
    let done = match cli.command {
        cli::Command::Serve(arguments) => serve::run(&arguments).map(success),
        cli::Command::CheckConfig(arguments) => check_config::run(&arguments).map(success),
        cli::Command::Status(arguments) => control::client::status(&arguments).map(success),
        cli::Command::Evict(arguments) => control::client::evict(&arguments).map(success),
        cli::Command::Recall(arguments) => control::client::recall(&arguments).map(success),
        cli::Command::Grace(command) => control::client::grace(&command).map(success),
        cli::Command::Mount(arguments) => commands::mount::run(&arguments),
        cli::Command::Umount(arguments) => commands::mount::umount::run(&arguments).map(success),
        cli::Command::Stats(arguments) => commands::mount::stats::run(&arguments).map(success),
        cli::Command::Proxy(arguments) => commands::proxy::run(&arguments).map(success),
        cli::Command::Bench(command) => commands::bench::run(&command),
        cli::Command::Client(command) => Ok(command.run()),
    };
    match done {
        Ok(status) => status,
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

/// Mounts for mount(8), or returns at once if only the arguments had to be checked.
fn mount_as_helper(arguments: Option<commands::mount::MountArguments>) -> ExitCode {
    let mounted = arguments.map_or(Ok(ExitCode::SUCCESS), |arguments| commands::mount::run(&arguments));
    mounted.unwrap_or_else(|why| {
        eprintln!("mount.enfys: {why}");
        ExitCode::FAILURE
    })
}

/// Exit status for an invalid command line, as clap uses it.
const USAGE: u8 = 2;

/// Prints help, or an error about the command line; as JSON with `--json`.
fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        print_error_as_json(&usage_error(&error.to_string()));
        return ExitCode::from(USAGE);
    }
    // Standard output or error may be closed.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// Returns the first paragraph of clap's message in one line, without tips and usage.
fn usage_error(text: &str) -> String {
    let paragraph: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let message = paragraph.join(" ");
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

/// Prints an error to standard output, which the calling program reads.
fn print_error_as_json(why: &str) {
    println!("{}", serde_json::json!({ "error": why }));
}
