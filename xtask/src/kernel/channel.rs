//! Requests from the guest to the driver: one TCP connection per request, with one line of words and a reply.
//!
//! | line | meaning | reply |
//! |---|---|---|
//! | `begin NAME` | a test starts | nothing |
//! | `log NAME` | the rest of the connection is the test's output | nothing |
//! | `end NAME STATUS` | a test ended | nothing |
//! | `server kill`, `server start`, `server restart`, `server stop` | controls the server | status |
//! | `guest start NAME` | boots the second guest, which runs this test's script | status |
//! | `guest kill` | kills the second guest | status |
//! | `guest wait` | waits for the second guest, whose script must pass | status |
//! | `sh HEX` | runs this shell script on the server's side | status, output |
//! | `done` | the last test has ended | nothing |
//!
//! A status is a line with `0` or another number, followed by text.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use super::second::{self, Second};
use super::server::Server;

/// The driver's port.
pub(super) const PORT: u16 = 7049;
/// Maximum length of a request's line in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// An event of the guest's tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Begin(String),
    /// More output of a test.
    Log(String, Vec<u8>),
    /// One connection with a test's output ended.
    LogEnd(String),
    End(String, i32),
    Done,
}

/// What requests use.
pub(super) struct Requests {
    pub(super) events: Sender<Event>,
    pub(super) server: Arc<Mutex<Server>>,
    pub(super) second: Arc<Mutex<Second>>,
    /// Variables of scripts on the server's side.
    pub(super) environment: Vec<(String, String)>,
}

/// Handles requests of the guests until the process ends.
pub(super) fn listen(listener: TcpListener, requests: Requests) {
    let shared = Arc::new(requests);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let line =
                    connection.peer_addr().map_or_else(|error| error.to_string(), |peer| peer.to_string());
                if let Err(error) = handle_request(connection, &shared) {
                    eprintln!("channel from {line}: {error}");
                }
            });
        }
    });
}

fn handle_request(mut connection: TcpStream, requests: &Requests) -> io::Result<()> {
    let Requests { events, server, second, environment } = requests;
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut line = String::new();
    (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let event = match words[..] {
        ["begin", name] => Event::Begin(name.to_owned()),
        ["log", name] => {
            forward_log(&mut reader, name, events)?;
            Event::LogEnd(name.to_owned())
        }
        ["end", name, status] => Event::End(name.to_owned(), status.parse().unwrap_or(-1)),
        ["done"] => Event::Done,
        ["server", verb] => return reply(&mut connection, control_server(&mut lock(server), verb)),
        ["guest", "start", test] => return reply(&mut connection, nothing(lock(second).start(test))),
        ["guest", "kill"] => return reply(&mut connection, nothing(lock(second).kill())),
        ["guest", "wait"] => return reply(&mut connection, nothing(second::wait(second))),
        ["sh", script] => return reply(&mut connection, shell(script, environment)),
        _ => return reply(&mut connection, Err(format!("unknown request: {line}"))),
    };
    // There is no receiver only when the driver is about to end.
    let _ = events.send(event);
    connection.write_all(b"0\n")
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Forwards a test's output immediately, because a remaining program of a failed test may keep the connection open.
fn forward_log(reader: &mut impl Read, name: &str, events: &Sender<Event>) -> io::Result<()> {
    let mut chunk = [0; 8192];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            // There is no receiver only when the driver is about to end.
            Ok(length) => drop(events.send(Event::Log(name.to_owned(), chunk[..length].to_vec()))),
            // The guest's kernel ended; keep the output received so far.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn control_server(server: &mut Server, verb: &str) -> Result<String, String> {
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

/// Runs a script in hexadecimal digits; returns its output.
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

/// Returns the result of a request whose answer has no text.
fn nothing(result: Result<(), String>) -> Result<String, String> {
    result.map(|()| String::new())
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
    fn decodes_hexadecimal_scripts() {
        assert_eq!(from_hex("6563686f0a").as_deref(), Some(&b"echo\n"[..]));
        assert_eq!(from_hex("6x"), None);
    }

    #[test]
    fn failing_script_returns_its_output() {
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let environment = [("GREETING".to_owned(), "hello".to_owned())];
        assert_eq!(shell(&hex("echo $GREETING"), &environment), Ok("hello\n".to_owned()));
        let failure = shell(&hex("echo out; echo err >&2; false"), &environment).expect_err("a failure");
        assert!(failure.contains("out") && failure.contains("err"), "{failure}");
    }

    #[test]
    fn forwards_a_log_before_its_end() {
        let (events, received) = std::sync::mpsc::channel();
        let mut unending = (&b"failed at"[..]).chain(Broken);
        assert!(forward_log(&mut unending, "locks", &events).is_err());
        assert_eq!(received.try_recv(), Ok(Event::Log("locks".to_owned(), b"failed at".to_vec())));
    }

    /// A connection that times out.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}
