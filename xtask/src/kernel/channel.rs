//! How the guest talks to the driver: one TCP connection a request, a line of words, a reply until the end.
//!
//! | line | meaning | reply |
//! |---|---|---|
//! | `begin NAME` | a test starts | nothing |
//! | `log NAME` | what follows on this connection is the test's output | nothing |
//! | `end NAME STATUS` | a test ended | nothing |
//! | `server kill`, `server start`, `server restart`, `server stop` | what it says | status |
//! | `sh HEX` | run this shell script beside the server | status, output |
//! | `done` | the last test has ended | nothing |
//!
//! A status is a line: `0` or a number other than zero, then what there is to say.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use super::server::Server;

/// The driver's port.
pub(super) const PORT: u16 = 7049;
/// A request's line may be no longer than this.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// What the guest has to say about its tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Begin(String),
    /// More of a test's output.
    Log(String, Vec<u8>),
    /// Nothing follows of a test's output on one connection.
    LogEnd(String),
    End(String, i32),
    Done,
}

/// Answers the guest until the process ends. `environment` is that of scripts run beside the server.
pub(super) fn listen(
    listener: TcpListener,
    events: Sender<Event>,
    server: Arc<Mutex<Server>>,
    environment: Vec<(String, String)>,
) {
    let shared = Arc::new((events, server, environment));
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (events, server, environment) = &*shared;
                let line =
                    connection.peer_addr().map_or_else(|error| error.to_string(), |peer| peer.to_string());
                if let Err(error) = answer(connection, events, server, environment) {
                    eprintln!("channel from {line}: {error}");
                }
            });
        }
    });
}

fn answer(
    mut connection: TcpStream,
    events: &Sender<Event>,
    server: &Mutex<Server>,
    environment: &[(String, String)],
) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut line = String::new();
    (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let event = match words[..] {
        ["begin", name] => Event::Begin(name.to_owned()),
        ["log", name] => {
            pass_on_log(&mut reader, name, events)?;
            Event::LogEnd(name.to_owned())
        }
        ["end", name, status] => Event::End(name.to_owned(), status.parse().unwrap_or(-1)),
        ["done"] => Event::Done,
        ["server", verb] => return reply(&mut connection, steer(&mut lock(server), verb)),
        ["sh", script] => return reply(&mut connection, shell(script, environment)),
        _ => return reply(&mut connection, Err(format!("unknown request: {line}"))),
    };
    // The receiver is gone only when the driver is about to end.
    let _ = events.send(event);
    connection.write_all(b"0\n")
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Passes a test's output on as it comes: a program that a failed test left behind may keep the connection open.
fn pass_on_log(reader: &mut impl Read, name: &str, events: &Sender<Event>) -> io::Result<()> {
    let mut chunk = [0; 8192];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            // The receiver is gone only when the driver is about to end.
            Ok(length) => drop(events.send(Event::Log(name.to_owned(), chunk[..length].to_vec()))),
            // The guest's kernel is gone; what it said until then is what we have.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn steer(server: &mut Server, verb: &str) -> Result<String, String> {
    match verb {
        "kill" => server.kill()?,
        "start" => server.start()?,
        "stop" => server.stop()?,
        "restart" => {
            server.kill()?;
            server.start()?;
        }
        _ => return Err(format!("unknown: server {verb}")),
    }
    Ok(String::new())
}

/// Runs a script, given in hexadecimal digits; its output where it succeeds.
fn shell(script: &str, environment: &[(String, String)]) -> Result<String, String> {
    let script = from_hex(script).ok_or("not hexadecimal")?;
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c"])
        .arg(String::from_utf8(script).map_err(|error| error.to_string())?)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn reply(connection: &mut TcpStream, result: Result<String, String>) -> io::Result<()> {
    match result {
        Ok(text) => write!(connection, "0\n{text}"),
        Err(text) => writeln!(connection, "1\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_travel_in_hexadecimal() {
        assert_eq!(from_hex("6563686f0a").as_deref(), Some(&b"echo\n"[..]));
        assert_eq!(from_hex("6x"), None);
    }

    #[test]
    fn a_failing_script_tells_its_output() {
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let environment = [("GREETING".to_owned(), "hello".to_owned())];
        assert_eq!(shell(&hex("echo $GREETING"), &environment), Ok("hello\n".to_owned()));
        let failure = shell(&hex("echo out; echo err >&2; false"), &environment).expect_err("a failure");
        assert!(failure.contains("out") && failure.contains("err"), "{failure}");
    }

    #[test]
    fn a_log_is_passed_on_before_its_end() {
        let (events, received) = std::sync::mpsc::channel();
        let mut unending = (&b"failed at"[..]).chain(Broken);
        assert!(pass_on_log(&mut unending, "locks", &events).is_err());
        assert_eq!(received.try_recv(), Ok(Event::Log("locks".to_owned(), b"failed at".to_vec())));
    }

    /// A connection that neither says anything nor ends.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}
