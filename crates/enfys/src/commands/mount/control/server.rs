//! The side of the mount's process.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mount::Files;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, spawn_local};

use super::protocol::{Command, Identity, MAX_REQUEST, Reply, Stats, VERSION};
use crate::control_messages::{self, ReadError};
use crate::control_socket::Socket;

/// Maximum number of requests at once; further ones wait.
const MAX_CONNECTIONS: usize = 8;
/// Longest time of a connection.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept(2), which fails while the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests until it is dropped, which removes the socket's name.
#[derive(Debug)]
pub struct Control {
    _socket: Socket,
    task: JoinHandle<()>,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The mount that answers are about.
struct Subject {
    identity: Identity,
    files: Arc<Files>,
    started: Instant,
    /// Sockets of processes that ask for the mount.
    successors: mpsc::Sender<std::os::unix::net::UnixStream>,
}

impl Control {
    /// Starts to answer requests about a mount with this device. Must be called in a [`tokio::task::LocalSet`].
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn start(
        device: u32,
        identity: Identity,
        files: &Arc<Files>,
        successors: mpsc::Sender<std::os::unix::net::UnixStream>,
    ) -> io::Result<Self> {
        let socket = Socket::bind(&super::own_path(device)?)?;
        let listener = socket.listener()?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let subject =
            Rc::new(Subject { identity, files: Arc::clone(files), started: Instant::now(), successors });
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let task = spawn_local(async move {
            loop {
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let subject = Rc::clone(&subject);
                spawn_local(async move {
                    // An error means that the peer is gone.
                    let _ = tokio::time::timeout(TIMEOUT, subject.serve(stream)).await;
                    drop(permit);
                });
            }
        });
        Ok(Self { _socket: socket, task })
    }
}

impl Subject {
    /// Answers one request.
    async fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let (uid, own) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
        let mut line = Vec::new();
        BufReader::new(&mut stream).take(MAX_REQUEST as u64).read_until(b'\n', &mut line).await?;
        let is_allowed = uid == 0 || uid == own;
        let command = if is_allowed {
            parse(&line)
        } else {
            Err("permission denied: only root and the mount's user may send commands".to_owned())
        };
        let reply = match command {
            Ok(Command::Stats) => Reply::Stats(Box::new(self.stats())),
            Ok(Command::HandOver) if uid != own => {
                Reply::Error("only the mount's own user can replace its process".to_owned())
            }
            Ok(Command::HandOver) => {
                // One at a time: the others are refused by the end of their connection.
                let _ = self.successors.try_send(stream.into_std()?);
                return Ok(());
            }
            Err(error) => Reply::Error(error),
        };
        respond(&mut stream, reply).await
    }

    fn stats(&self) -> Stats {
        let age = self.started.elapsed().as_secs_f64();
        Stats::of(&self.identity, age, self.files.mount(), self.files.known_inodes())
    }
}

/// Returns the command of a request.
fn parse(line: &[u8]) -> Result<Command, String> {
    control_messages::read(line, VERSION).map_err(|error| match error {
        ReadError::OtherVersion(version) => {
            let software = concat!("enfys ", env!("CARGO_PKG_VERSION"));
            format!(
                "this mount ({software}) speaks version {VERSION} of the control protocol, not {version}: use its own `enfys`"
            )
        }
        ReadError::Invalid(error) => format!("not understood: {error}"),
    })
}

async fn respond(stream: &mut UnixStream, reply: Reply) -> io::Result<()> {
    stream.write_all(&control_messages::to_line(VERSION, &reply)?).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_another_version_are_refused() {
        assert_eq!(parse(br#"{"version":1,"command":"stats"}"#), Ok(Command::Stats));
        let refused = parse(br#"{"version":9,"command":"stats"}"#).expect_err("another version");
        assert!(refused.contains("speaks version 1 of the control protocol, not 9"), "{refused}");
        assert!(parse(br#"{"version":1,"command":"destroy"}"#).is_err());
        assert!(parse(b"").is_err());
    }
}
