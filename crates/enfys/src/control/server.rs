//! The server side.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use net::{AcceptLog, Clock};
use server::{EvictError, Now, Quoted, Server, Throttle};
use store::error_text;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::protocol::{Command, Evicted, MAX_CLIENTS, MAX_REQUEST, Recalled, Reply, Status, VERSION};
use crate::control_messages::{self, ReadError};
use crate::control_socket::Socket;

/// Maximum number of requests at once; further ones wait.
const MAX_CONNECTIONS: usize = 8;
/// Longest time of a connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A bound control socket.
#[derive(Debug)]
pub struct ControlServer(Socket);

impl ControlServer {
    /// Listens on `path`.
    ///
    /// # Errors
    /// One line that names the path.
    pub fn bind(path: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("control socket {}: {}", path.display(), error_text(&error));
        Socket::bind(path).map(Self).map_err(failed)
    }

    /// Starts to answer requests, until the returned value is dropped. Needs a tokio runtime.
    ///
    /// # Errors
    /// One line: the runtime cannot use the socket.
    pub fn start(self, server: Arc<Server>, clock: Clock) -> Result<Answering, String> {
        let listener = self.0.listener().and_then(|listener| {
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        });
        let listener = listener.map_err(|error| format!("control socket: {}", error_text(&error)))?;
        let log = AcceptLog::new("control", clock);
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let refusals = Arc::new(Throttle::default());
        tokio::spawn(async move {
            loop {
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                let accepted = net::accept(|| listener.accept(), |error| log.failed(error));
                let ((stream, _), server) = (accepted.await, Arc::clone(&server));
                let refusals = Arc::clone(&refusals);
                tokio::spawn(async move {
                    // An error means that the peer is gone.
                    let _ = tokio::time::timeout(TIMEOUT, serve(stream, &server, clock, &refusals)).await;
                    drop(permit);
                });
            }
        });
        Ok(Answering(self.0))
    }
}

/// Removes the socket's name when dropped.
#[derive(Debug)]
pub struct Answering(#[allow(dead_code, reason = "dropped for its effect")] Socket);

/// Answers one request. Logs refused users at most once a second.
async fn serve(mut stream: UnixStream, server: &Server, clock: Clock, refusals: &Throttle) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid().as_raw();
    let (reader, mut writer) = stream.split();
    let mut line = Vec::new();
    BufReader::new(reader).take(MAX_REQUEST as u64).read_until(b'\n', &mut line).await?;
    let reply = if uid == own || uid == 0 {
        answer(&line, server, clock).await
    } else {
        if let Some(suppressed) = refusals.admit(clock.now()) {
            warn!(uid, suppressed, "control socket: refused a user other than root and the server's own");
        }
        Reply::Error("permission denied: only root and the server's user may send commands".into())
    };
    writer.write_all(&control_messages::to_line(VERSION, &reply)?).await?;
    writer.shutdown().await
}

async fn answer(line: &[u8], server: &Server, clock: Clock) -> Reply {
    match control_messages::read(line, VERSION) {
        Ok(command) => execute(command, server, clock).await,
        Err(ReadError::OtherVersion(version)) => {
            let software = concat!("enfys ", env!("CARGO_PKG_VERSION"));
            Reply::Error(format!(
                "this server ({software}) speaks version {VERSION} of the control protocol, not {version}: use its own `enfys`"
            ))
        }
        Err(ReadError::Invalid(error)) => Reply::Error(format!("not understood: {error}")),
    }
}

async fn execute(command: Command, server: &Server, clock: Clock) -> Reply {
    let now = clock.now();
    match command {
        Command::Status => Reply::Status(Box::new(Status::from(&server.snapshot(now, MAX_CLIENTS)))),
        Command::Evict { client } => evict(server, now, &client),
        Command::Recall { file } => match server.recall(now, &file).await {
            Ok(done) => {
                info!(
                    file,
                    recalled = done.recalled,
                    revoked = done.revoked,
                    "delegations recalled by the administrator"
                );
                Reply::Recalled(Recalled { recalled: done.recalled, revoked: done.revoked })
            }
            Err(error) => Reply::Error(format!("{file}: {error}")),
        },
        Command::EndGrace => {
            // The server logs it.
            Reply::GraceEnded(server.end_grace(now))
        }
    }
}

/// Evicts a client, or one that the grace period waits for.
fn evict(server: &Server, now: Now, client: &str) -> Reply {
    match server.evict(now, client) {
        Ok((client, lost)) => {
            let (id, name) = (format!("{:#x}", client.id), client.name.escape_ascii().to_string());
            let (shown, host) = (Quoted(&client.name), client.is_host);
            info!(client = %id, name = %shown, opens = lost.opens, locks = lost.locks, delegations = lost.delegations, "evicted");
            let server::Evicted { sessions, opens, locks, delegations, .. } = lost;
            Reply::Evicted(Evicted { id: Some(id), name, host, sessions, opens, locks, delegations })
        }
        Err(EvictError::Unknown) if let Some(owner) = server.evict_reclaimer(now, client) => {
            info!(name = %Quoted(&owner), "evicted before it reclaimed");
            let name = owner.escape_ascii().to_string();
            Reply::Evicted(Evicted {
                id: None,
                name,
                host: false,
                sessions: 0,
                opens: 0,
                locks: 0,
                delegations: 0,
            })
        }
        Err(error) => Reply::Error(format!("{client}: {error}")),
    }
}
