//! The client side: `enfys status`, `evict`, `recall`, `grace end`.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::error_text;

use super::print;
use super::protocol::{Command, MAX_RESPONSE, Reply, VERSION};
use crate::cli::{ControlArguments, EvictArguments, GraceCommand, RecallArguments, StatusArguments};
use crate::config::Config;
use crate::control_messages::{self, ReadError};
use crate::control_socket::{IN_STATE_DIR, connect_to};
use crate::state_dir;

/// Longest time for a response.
const TIMEOUT: Duration = Duration::from_secs(15);

/// `enfys status`.
///
/// # Errors
/// One line that names the socket and what is wrong.
pub fn status(arguments: &StatusArguments) -> Result<(), String> {
    let path = socket_path(&arguments.control)?;
    loop {
        let (reply, line) = send(&path, Command::Status)?;
        let Reply::Status(status) = reply else { return Err(unexpected(&path)) };
        let text = if arguments.json { line } else { print::status(&status) };
        let clear = arguments.watch.is_some() && !arguments.json && io::stdout().is_terminal();
        print_text(&format!("{}{text}", if clear { "\x1b[H\x1b[2J" } else { "" }))?;
        match arguments.watch {
            Some(seconds) => std::thread::sleep(Duration::from_secs(u64::from(seconds.get()))),
            None => return Ok(()),
        }
    }
}

/// `enfys evict`.
///
/// # Errors
/// One line that names the error.
pub fn evict(arguments: &EvictArguments) -> Result<(), String> {
    let path = socket_path(&arguments.control)?;
    let (reply, line) = send(&path, Command::Evict { client: arguments.client.clone() })?;
    let Reply::Evicted(lost) = reply else { return Err(unexpected(&path)) };
    print_text(&if arguments.json { line } else { print::evicted(&lost) })
}

/// `enfys recall`.
///
/// # Errors
/// One line that names the error.
pub fn recall(arguments: &RecallArguments) -> Result<(), String> {
    let path = socket_path(&arguments.control)?;
    let (reply, line) = send(&path, Command::Recall { file: arguments.file.clone() })?;
    let Reply::Recalled(done) = reply else { return Err(unexpected(&path)) };
    print_text(&if arguments.json { line } else { print::recalled(&done) })
}

/// `enfys grace end`.
///
/// # Errors
/// One line that names the error.
pub fn grace(command: &GraceCommand) -> Result<(), String> {
    let GraceCommand::End(arguments) = command;
    let path = socket_path(&arguments.control)?;
    let (reply, line) = send(&path, Command::EndGrace)?;
    let Reply::GraceEnded(waiting) = reply else { return Err(unexpected(&path)) };
    print_text(&if arguments.json { line } else { print::grace_ended(waiting) })
}

/// Returns the given socket, that of the given state directory, or the default of `enfys serve`.
fn socket_path(arguments: &ControlArguments) -> Result<PathBuf, String> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let configured = config.control.socket.filter(|_| arguments.state_dir.is_none());
    if let Some(path) = arguments.control.clone().or(configured) {
        return Ok(path);
    }
    let directory = arguments.state_dir.clone().or(config.state_dir);
    let directory = directory.map_or_else(state_dir::default_path, Ok)?;
    Ok(directory.join(IN_STATE_DIR))
}

/// Sends a command. Returns the reply, and the response's text.
fn send(path: &Path, command: Command) -> Result<(Reply, String), String> {
    let failed = |error: io::Error| format!("{}: {}", path.display(), error_text(&error));
    let mut stream = connect_to(path).map_err(|error| connect_error(path, &error))?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    let request = control_messages::to_line(VERSION, &command)
        .map_err(|error| format!("cannot encode the request: {error}"))?;
    let mut text = String::new();
    let exchange = stream
        .write_all(&request)
        .and_then(|()| (&stream).take(MAX_RESPONSE).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("{}: no answer within {} s", path.display(), TIMEOUT.as_secs())
            }
            _ => failed(error),
        });
    exchange?;
    match control_messages::read(text.as_bytes(), VERSION) {
        Ok(Reply::Error(why)) => Err(why),
        Ok(reply) => Ok((reply, text)),
        Err(ReadError::OtherVersion(version)) => Err(format!(
            "{}: the server speaks version {version} of the control protocol, this program {VERSION}: use the server's own `enfys`",
            path.display()
        )),
        Err(ReadError::Invalid(error)) => Err(format!("{}: invalid response: {error}", path.display())),
    }
}

/// Returns the reason why the server cannot be reached, and a remedy.
fn connect_error(path: &Path, error: &io::Error) -> String {
    let socket = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "no server answers at {socket}: there is no such socket. Give the server's --state-dir, --control or --config. \
             A server of memory alone has a socket only with --state-dir or --control"
        ),
        io::ErrorKind::ConnectionRefused => {
            format!("no server answers at {socket}: the socket is left from a server that has ended")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{socket}: permission denied: run this as the server's user or as root")
        }
        _ => format!("{socket}: {}", error_text(error)),
    }
}

fn unexpected(path: &Path) -> String {
    format!("{}: the response is for another command", path.display())
}

/// Writes to standard output. A closed pipe is not an error.
fn print_text(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| format!("standard output: {}", error_text(&error))),
    }
}
