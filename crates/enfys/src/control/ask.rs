//! The side that asks: `enfys status`, `evict`, `recall`, `grace end`.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use store::error_text;

use super::print;
use super::protocol::{Answer, Command, Greeting, MAX_ANSWER, Question, Reply, VERSION};
use super::socket::{IN_STATE_DIR, connect_to};
use crate::cli::{ControlArguments, EvictArguments, GraceCommand, RecallArguments, StatusArguments};
use crate::config::Config;
use crate::state_dir;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// `enfys status`.
///
/// # Errors
/// One line that names the socket and what is wrong.
pub fn status(arguments: &StatusArguments) -> Result<(), String> {
    let path = socket_path(&arguments.control)?;
    loop {
        let (answer, line) = ask(&path, Command::Status)?;
        let Reply::Status(status) = answer else { return Err(unexpected(&path)) };
        let text = if arguments.json { line } else { print::status(&status) };
        let clear = arguments.watch.is_some() && !arguments.json && io::stdout().is_terminal();
        say(&format!("{}{text}", if clear { "\x1b[H\x1b[2J" } else { "" }))?;
        match arguments.watch {
            Some(seconds) => std::thread::sleep(Duration::from_secs(u64::from(seconds.get()))),
            None => return Ok(()),
        }
    }
}

/// `enfys evict`.
///
/// # Errors
/// One line that names what is wrong.
pub fn evict(arguments: &EvictArguments) -> Result<(), String> {
    let path = socket_path(&arguments.control)?;
    let (answer, line) = ask(&path, Command::Evict { client: arguments.client.clone() })?;
    let Reply::Evicted(lost) = answer else { return Err(unexpected(&path)) };
    say(&if arguments.json { line } else { print::evicted(&lost) })
}

/// `enfys recall`.
///
/// # Errors
/// One line that names what is wrong.
pub fn recall(arguments: &RecallArguments) -> Result<(), String> {
    let path = socket_path(&arguments.control)?;
    let (answer, line) = ask(&path, Command::Recall { file: arguments.file.clone() })?;
    let Reply::Recalled(done) = answer else { return Err(unexpected(&path)) };
    say(&if arguments.json { line } else { print::recalled(&done) })
}

/// `enfys grace end`.
///
/// # Errors
/// One line that names what is wrong.
pub fn grace(command: &GraceCommand) -> Result<(), String> {
    let GraceCommand::End(arguments) = command;
    let path = socket_path(&arguments.control)?;
    let (answer, line) = ask(&path, Command::EndGrace)?;
    let Reply::GraceEnded(waiting) = answer else { return Err(unexpected(&path)) };
    say(&if arguments.json { line } else { print::grace_ended(waiting) })
}

/// The socket that was asked for, that of the state directory that was asked for, or what `enfys serve` uses by default.
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

/// Asks, and returns the answer and its text.
fn ask(path: &Path, command: Command) -> Result<(Reply, String), String> {
    let failed = |error: io::Error| format!("{}: {}", path.display(), error_text(&error));
    let mut stream = connect_to(path).map_err(|error| unreachable_because(path, &error))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut question = serde_json::to_vec(&Question { version: VERSION, command })
        .map_err(|error| format!("cannot ask: {error}"))?;
    question.push(b'\n');
    let mut text = String::new();
    let exchange = stream
        .write_all(&question)
        .and_then(|()| (&stream).take(MAX_ANSWER).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("{}: no answer within {} s", path.display(), PATIENCE.as_secs())
            }
            _ => failed(error),
        });
    exchange?;
    let garbled = |error| format!("{}: the answer is not understood: {error}", path.display());
    let greeting: Greeting = serde_json::from_str(&text).map_err(garbled)?;
    if greeting.version != VERSION {
        return Err(format!(
            "{}: the server speaks version {} of the control protocol, this program {VERSION}: use the server's own `enfys`",
            path.display(),
            greeting.version
        ));
    }
    let answer: Answer = serde_json::from_str(&text).map_err(garbled)?;
    match answer.reply {
        Reply::Error(why) => Err(why),
        reply => Ok((reply, text)),
    }
}

/// Why a server cannot be asked, and what to do about it.
fn unreachable_because(path: &Path, error: &io::Error) -> String {
    let place = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "no server answers at {place}: there is no such socket. Give the server's --state-dir or --control, or its --config; \
             one that serves memory alone has a socket only where it is given a --state-dir or --control"
        ),
        io::ErrorKind::ConnectionRefused => {
            format!("no server answers at {place}: the socket is left from one that has ended")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{place}: permission denied: ask as the user who started the server, or as root")
        }
        _ => format!("{place}: {}", error_text(error)),
    }
}

fn unexpected(path: &Path) -> String {
    format!("{}: the server answered something else than was asked", path.display())
}

/// Writes to standard output; a reader that has had enough is no error.
fn say(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| format!("standard output: {}", error_text(&error))),
    }
}
