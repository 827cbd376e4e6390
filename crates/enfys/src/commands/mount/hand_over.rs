//! `enfys mount --replace`: another process continues a mount.
//!
//! On the control socket, after the request: the old process sends an [`Offer`] as a line of JSON. The new one connects to the server as
//! the same client, and sends [`READY`]. The old process stops reading requests, finishes those under way, makes written data
//! stable, and sends one byte: [`STATE`], followed by the length of the state in 8 bytes, the state as JSON, and the descriptors; or
//! [`REFUSED`], followed by the reason. The new process answers [`TAKEN`] when only the start of its threads is left; from then on only
//! it serves. Without that answer the old process continues.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::hand_over::Identity;
use fuse::{HandOver, Serving};
use mount::{Adapter, Files, FilesState};
use serde::{Deserialize, Serialize};
use store::error_text;
use tokio::task::spawn_blocking;

use super::MountArguments;

/// The new process is connected to the server.
const READY: u8 = b'r';
/// The state follows.
const STATE: u8 = b's';
/// The reason why there is no hand-over follows.
const REFUSED: u8 = b'e';
/// The new process serves the mount.
const TAKEN: u8 = b't';

/// Longest time for a message. The new process connects to the server meanwhile.
const MESSAGE_MAX: Duration = Duration::from_secs(60);
/// Longest time for the requests under way, and for writing data. Programs wait meanwhile.
const FINISH_MAX: Duration = Duration::from_secs(20);
/// Time between two looks at the requests under way.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum number of bytes of the state: some millions of inodes.
const STATE_BYTES_MAX: u64 = 4 << 30;
/// Maximum number of bytes of an offer.
const OFFER_BYTES_MAX: u64 = 1 << 20;

/// What the new process must know to connect: arguments of the old one, and its identity.
#[derive(Debug, Serialize, Deserialize)]
pub struct Offer {
    /// [`super::control::protocol::VERSION`].
    version: u32,
    source: Vec<u8>,
    directory: Vec<u8>,
    options: Vec<String>,
    map_uid: Vec<String>,
    map_gid: Vec<String>,
    identity: Identity,
}

impl Offer {
    /// Returns the offer of a mount on a directory with these arguments.
    pub fn new(arguments: &MountArguments, directory: &std::path::Path, files: &Files) -> Self {
        Self {
            version: super::control::protocol::VERSION,
            source: arguments.source.as_bytes().to_vec(),
            directory: directory.as_os_str().as_bytes().to_vec(),
            options: arguments.options.clone(),
            map_uid: arguments.map_uid.clone(),
            map_gid: arguments.map_gid.clone(),
            identity: files.mount().client().identity(),
        }
    }

    /// Returns the arguments of the old process, with those of this one that concern the process.
    pub fn arguments(&self, own: &MountArguments) -> MountArguments {
        MountArguments {
            source: std::ffi::OsString::from_vec(self.source.clone()),
            directory: Some(PathBuf::from(std::ffi::OsString::from_vec(self.directory.clone()))),
            options: self.options.clone(),
            map_uid: self.map_uid.clone(),
            map_gid: self.map_gid.clone(),
            cache: None,
            cache_size: None,
            foreground: own.foreground,
            log_file: own.log_file.clone(),
            log: own.log.clone(),
            threads: None,
            replace: false,
            in_background: own.in_background,
        }
    }

    /// Returns who the client is for its server.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// The mount after an attempt to hand it over.
pub enum Outcome {
    /// Another process serves it.
    Taken,
    /// This process still serves it.
    Kept(Serving),
}

/// Why this process keeps the mount.
struct Kept {
    serving: Serving,
    why: String,
}

/// Hands a mount over to the process at the other end of a socket.
///
/// # Errors
/// The device fails: no process serves the mount any longer.
pub async fn give(
    serving: Serving,
    adapter: &Arc<Adapter>,
    files: &Arc<Files>,
    socket: UnixStream,
    offer: &Offer,
) -> io::Result<Outcome> {
    let socket = Arc::new(socket);
    if let Err(error) = agree(&socket, offer).await {
        tracing::warn!(error = %error_text(&error), "another process asked for the mount, and is gone");
        return Ok(Outcome::Kept(serving));
    }
    match give_state(serving, adapter, files, &socket).await? {
        Ok(()) => Ok(Outcome::Taken),
        Err(Kept { serving, why }) => {
            tracing::warn!(why, "the mount was not handed over");
            // The other process may be gone.
            let _ = blocking(&socket, move |mut socket| {
                socket.write_all(&[REFUSED])?;
                socket.write_all(why.as_bytes())
            })
            .await;
            Ok(Outcome::Kept(serving))
        }
    }
}

/// Runs blocking calls on a socket in another thread: this one answers requests meanwhile.
async fn blocking<T: Send + 'static>(
    socket: &Arc<UnixStream>,
    work: impl FnOnce(&UnixStream) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let socket = Arc::clone(socket);
    spawn_blocking(move || work(&socket)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Sends the offer, and waits until the new process is connected.
async fn agree(socket: &Arc<UnixStream>, offer: &Offer) -> io::Result<()> {
    let mut line = serde_json::to_vec(offer)?;
    line.push(b'\n');
    blocking(socket, move |mut socket| {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(MESSAGE_MAX))?;
        socket.set_write_timeout(Some(MESSAGE_MAX))?;
        socket.write_all(&line)?;
        expect(socket, READY)
    })
    .await
}

fn expect(mut socket: &UnixStream, wanted: u8) -> io::Result<()> {
    let mut byte = [0];
    socket.read_exact(&mut byte)?;
    if byte[0] == wanted { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Stops, and sends the state. The outer error is one of the device.
async fn give_state(
    serving: Serving,
    adapter: &Arc<Adapter>,
    files: &Arc<Files>,
    socket: &Arc<UnixStream>,
) -> io::Result<Result<(), Kept>> {
    let stopped = spawn_blocking(move || serving.stop()).await.map_err(io::Error::other)??;
    let finished = async {
        while stopped.unfinished() > 0 {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        files.sync_all().await.map_err(|error| error.to_string())
    };
    let finished = tokio::time::timeout(FINISH_MAX, finished).await;
    if let Err(why) = finished
        .unwrap_or_else(|_| Err("requests under way do not end: the server may not answer".to_owned()))
    {
        let serving = stopped.resume().serve(Arc::clone(adapter))?;
        return Ok(Err(Kept { serving, why }));
    }
    // Only waits for locks are left. They are abandoned here, and begin again there.
    let hand_over = match stopped.hand_over() {
        Ok(hand_over) => Arc::new(hand_over),
        Err(error) => {
            let why = error_text(&error).to_string();
            return Ok(Err(Kept { serving: stopped.resume().serve(Arc::clone(adapter))?, why }));
        }
    };
    let saved = async {
        while adapter.active() > 0 {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        files.save().await.map_err(|error| error.to_string())
    };
    let saved = tokio::time::timeout(FINISH_MAX, saved).await;
    let saved = saved.unwrap_or_else(|_| Err("the server does not answer".to_owned()));
    let sent = match saved {
        Ok(state) => send(socket, state, Arc::clone(&hand_over)).await,
        Err(why) => Err(why),
    };
    let Err(why) = sent else { return Ok(Ok(())) };
    let hand_over = Arc::into_inner(hand_over).ok_or_else(|| io::Error::other("the hand-over is in use"))?;
    let session = fuse::Session::resume(hand_over)?;
    Ok(Err(Kept { serving: session.serve(Arc::clone(adapter))?, why }))
}

/// Sends the state with the descriptors, and waits until the other process has taken the mount.
async fn send(socket: &Arc<UnixStream>, state: FilesState, hand_over: Arc<HandOver>) -> Result<(), String> {
    let sent = blocking(socket, move |mut socket| {
        let state = serde_json::to_vec(&state)?;
        let length = state.len() as u64;
        if length > STATE_BYTES_MAX {
            return Err(io::Error::other("the state is too large"));
        }
        socket.write_all(&[STATE])?;
        socket.write_all(&length.to_ne_bytes())?;
        socket.write_all(&state)?;
        hand_over.send(socket)?;
        expect(socket, TAKEN).or_else(|error| if was_taken(socket) { Ok(()) } else { Err(error) })
    });
    sent.await.map_err(|error| format!("the other process did not take the mount: {}", error_text(&error)))
}

/// Returns whether the answer has come after all. From now on the other process cannot send it any more.
fn was_taken(mut socket: &UnixStream) -> bool {
    let closed = socket.shutdown(Shutdown::Read).and_then(|()| socket.set_nonblocking(true));
    let mut byte = [0];
    closed.is_ok() && matches!(socket.read(&mut byte), Ok(1)) && byte[0] == TAKEN
}

/// Reads the offer of the process that serves a mount.
///
/// # Errors
/// One line: the process refuses, or speaks another version.
pub fn read_offer(socket: &UnixStream) -> Result<Offer, String> {
    let failed = |error: io::Error| format!("the mount's process: {}", error_text(&error));
    socket.set_read_timeout(Some(MESSAGE_MAX)).map_err(failed)?;
    socket.set_write_timeout(Some(MESSAGE_MAX)).map_err(failed)?;
    let mut line = String::new();
    // Nothing follows the line before the answer, so no byte is lost in the buffer.
    BufReader::new(socket.take(OFFER_BYTES_MAX)).read_line(&mut line).map_err(failed)?;
    match serde_json::from_str(&line) {
        Ok(offer) => Ok(offer),
        // A refusal is a response as to other commands.
        Err(_) => Err(super::control::client::parse(&line)
            .err()
            .unwrap_or_else(|| "the mount's process answers another command".to_owned())),
    }
}

/// Says that this process is connected to the server, and takes the state.
///
/// # Errors
/// One line: the other process keeps the mount.
pub fn take(mut socket: &UnixStream) -> Result<(FilesState, HandOver), String> {
    let failed = |error: io::Error| format!("the mount's process: {}", error_text(&error));
    let mut kind = [0];
    socket.write_all(&[READY]).and_then(|()| socket.read_exact(&mut kind)).map_err(failed)?;
    if kind[0] != STATE {
        let mut why = String::new();
        socket.take(OFFER_BYTES_MAX).read_to_string(&mut why).map_err(failed)?;
        return Err(format!("the mount's process keeps it: {why}"));
    }
    let mut length = [0; 8];
    socket.read_exact(&mut length).map_err(failed)?;
    let length = u64::from_ne_bytes(length);
    if length > STATE_BYTES_MAX {
        return Err("the state of the mount is too large".to_owned());
    }
    // Grows as bytes arrive, regardless of the announced length.
    let mut text = Vec::new();
    socket.take(length).read_to_end(&mut text).map_err(failed)?;
    let state = serde_json::from_slice(&text).map_err(|error| format!("the state of the mount: {error}"))?;
    let hand_over = HandOver::receive(socket).map_err(failed)?;
    Ok((state, hand_over))
}

/// Says that this process serves the mount from now on.
///
/// # Errors
/// One line: the other process is gone.
pub fn taken(mut socket: &UnixStream) -> Result<(), String> {
    socket.write_all(&[TAKEN]).map_err(|error| format!("the mount's process: {}", error_text(&error)))
}
