//! The side that asks: finds the socket of a mount, and sends a command.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use store::error_text;

use super::super::table;
use super::protocol::{Command, MAX_RESPONSE, Reply, VERSION};
use crate::control_messages::{self, ReadError};
use crate::control_socket::connect_to;

/// Longest time for a response.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Sends a command to the process of the mount on a directory. Returns the reply, and the response's text.
///
/// # Errors
/// One line that names the directory and the error.
pub fn ask(directory: &Path, command: Command) -> Result<(Reply, String), String> {
    let mut stream = connect(directory)?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!(
                "{}: the mount's process does not answer within {} s",
                directory.display(),
                TIMEOUT.as_secs()
            )
        }
        _ => format!("{}: {}", directory.display(), error_text(&error)),
    };
    let mut text = String::new();
    send(&mut stream, command)
        .and_then(|()| (&stream).take(MAX_RESPONSE).read_to_string(&mut text))
        .map_err(failed)?;
    let reply = parse(&text).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok((reply, text))
}

/// Parses a response.
///
/// # Errors
/// The response is invalid or of another version, or says that the command failed.
pub fn parse(text: &str) -> Result<Reply, String> {
    match control_messages::read(text.as_bytes(), VERSION) {
        Ok(Reply::Error(why)) => Err(why),
        Ok(reply) => Ok(reply),
        Err(ReadError::OtherVersion(version)) => Err(format!(
            "the mount's process speaks version {version} of the control protocol, this program {VERSION}: use the `enfys` of the mount"
        )),
        Err(ReadError::Invalid(error)) => Err(format!("invalid response of the mount's process: {error}")),
    }
}

/// Sends a command.
///
/// # Errors
/// Those of the socket.
pub fn send(stream: &mut UnixStream, command: Command) -> io::Result<()> {
    stream.write_all(&control_messages::to_line(VERSION, &command)?)
}

/// Connects to the process of the mount on a directory, with a time limit for each message.
///
/// # Errors
/// One line that names the directory and the error.
pub fn connect(directory: &Path) -> Result<UnixStream, String> {
    let shown = directory.display();
    let failed = |error: io::Error| format!("{shown}: {}", error_text(&error));
    let path = table::absolute(directory).map_err(failed)?;
    let found = match table::find(&path).map_err(failed)? {
        None => return Err(format!("{shown}: not mounted")),
        Some(found) if !found.is_ours => {
            return Err(format!("{shown}: not a mount of enfys (type {})", found.kind));
        }
        Some(found) => found,
    };
    let mut outcome: io::Result<UnixStream> = Err(io::ErrorKind::NotFound.into());
    for parent in super::directories(found.user) {
        outcome = connect_to(&parent.join(super::name(found.device)));
        if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    let stream = outcome.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{shown}: the mount's process has no control socket"),
        io::ErrorKind::ConnectionRefused => format!("{shown}: the mount's process is gone"),
        io::ErrorKind::PermissionDenied => {
            format!("{shown}: permission denied: run this as the user that mounted it, or as root")
        }
        _ => failed(error),
    })?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    Ok(stream)
}
