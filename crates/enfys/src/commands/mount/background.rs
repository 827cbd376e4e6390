//! A mount in the background: another process of this program, which the first one starts and waits for.
//!
//! The second process keeps standard error until the mount works, so that its errors appear where the user is. Then it writes one line
//! to standard output, which the first one reads, and leaves the terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use store::error_text;

/// The message that the second process writes when the mount works.
const READY: &str = "ready";

/// The hidden flag of the second process.
pub const FLAG: &str = "--in-background";

/// Starts the mount in the background with the same arguments, and waits until it works or has failed.
///
/// # Errors
/// The process cannot be started.
pub fn start(arguments: &[std::ffi::OsString]) -> Result<ExitCode, String> {
    let failed = |error: io::Error| format!("cannot start the mount's process: {}", error_text(&error));
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // At the end of a process that failed, the line is empty.
        BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    }
    if line.trim_end() == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(failed)?;
    // The process has printed why; one that was killed could not.
    if status.code().is_none() {
        return Err(format!("the mount's process ended: {status}"));
    }
    Ok(ExitCode::FAILURE)
}

/// Leaves the terminal of the first process.
pub fn detach() {
    // Refused only to the leader of a process group, which a terminal's signals reach.
    let _ = rustix::process::setsid();
}

/// Tells the first process that the mount works, and closes the shared descriptors. From then on, log lines go to `log`.
///
/// # Errors
/// The log cannot be opened.
pub fn ready(log: Option<&Path>) -> Result<(), String> {
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| format!("/dev/null: {}", error_text(&error)))?;
    let log = log.map(|path| {
        let opened = File::options().append(true).create(true).open(path);
        opened.map_err(|error| format!("{}: {}", path.display(), error_text(&error)))
    });
    let log = log.transpose()?;
    // The directory in which the program was started can be unmounted.
    let _ = std::env::set_current_dir("/");
    // A first process that was killed reads nothing, but the mount works anyway.
    let _ = writeln!(io::stdout(), "{READY}").and_then(|()| io::stdout().flush());
    let replaced = rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&null)));
    replaced.map_err(|error| format!("standard output: {}", error_text(&error.into())))
}
