//! Runs a server at one end of a link, and a client at the other.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::carrier::{Carried, Carrier};
use super::namespace::{CLIENT, Ends, SERVER};
use super::settings::Settings;
use super::system;

/// Time limit until a server accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the end of a server after SIGTERM; then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two checks of a server that starts or ends.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The programs at the ends of a link.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// The server, as a shell command; `None` if the client starts its own.
    pub server: Option<String>,
    /// The port that the server listens on, at any address of its end: the client starts when it accepts connections.
    pub ready_port: Option<u16>,
    /// The client with its arguments.
    pub client: Vec<OsString>,
    /// Largest TCP buffers of both ends, in bytes; `None` for the system's.
    pub tcp_buffer_bytes: Option<u64>,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Finished {
    /// The client's exit status.
    pub client: ExitStatus,
    /// The packets that the link has carried.
    pub carried: Carried,
}

/// Creates a link, runs the commands, and waits for the client. The server is stopped then.
///
/// The client and the server find their addresses in `LINK_CLIENT` and `LINK_SERVER`. This process must have one thread
/// only, unless it may create network namespaces.
///
/// # Errors
/// The link cannot be created, or a command does not start.
pub fn run(settings: &Settings, commands: &Commands) -> io::Result<Finished> {
    let Some((program, arguments)) = commands.client.split_first() else {
        return Err(io::Error::other("no command for the client"));
    };
    let ends = Ends::new(settings)?;
    if let Some(bytes) = commands.tcp_buffer_bytes {
        ends.server.limit_tcp_buffers(bytes)?;
        ends.client.limit_tcp_buffers(bytes)?;
    }
    let carrier = Carrier::start(&ends, settings)?;
    let server = commands.server.as_deref().map(|command| Server::start(&ends, command)).transpose()?;
    if let (Some(server), Some(port)) = (&server, commands.ready_port) {
        server.wait_until_ready(&ends, port)?;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    set_addresses(&mut command);
    let client = ends.client.run(move || {
        let status = command.status();
        status.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", command.get_program().display()))
        })
    });
    drop(server);
    Ok(Finished { client: client?, carried: carrier.stop()? })
}

fn set_addresses(command: &mut Command) {
    command.env("LINK_SERVER", SERVER.to_string()).env("LINK_CLIENT", CLIENT.to_string());
}

/// A server at its end. It is stopped when this is dropped, and killed if this process dies.
struct Server {
    /// The server's process group.
    group: Pid,
    /// Tells the server's thread to stop it.
    stop: Sender<()>,
    /// Its exit status, if it ended by itself.
    ended: Receiver<ExitStatus>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server from a thread that lives as long as the server: the kernel kills the server when that thread ends.
    fn start(ends: &Ends, command: &str) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        // A group of its own, so that all programs that the shell starts can be ended too.
        shell.arg("-c").arg(command).stdin(Stdio::null());
        set_addresses(&mut shell);
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        system::die_with_this_thread(&mut shell);
        let namespace = ends.server.duplicate()?;
        let (stop, stopped) = mpsc::channel();
        let (tell_end, ended) = mpsc::channel();
        let (tell_start, started) = mpsc::channel();
        let body = move || {
            let child = namespace.enter().and_then(|()| shell.spawn());
            match child {
                Ok(child) => {
                    let group = Pid::from_child(&child);
                    // Both ends of the channels are in `start`'s caller, which may be gone.
                    let _ = tell_start.send(Ok(group));
                    let _ = wait_or_stop(child, group, &stopped).map(|status| tell_end.send(status));
                }
                Err(error) => {
                    let _ = tell_start.send(Err(error));
                }
            }
        };
        let thread = thread::Builder::new().name("server".to_owned()).spawn(body)?;
        let group =
            started.recv().unwrap_or_else(|_| Err(io::Error::other("the server's thread panicked")))?;
        Ok(Self { group, stop, ended, thread: Some(thread) })
    }

    fn wait_until_ready(&self, ends: &Ends, port: u16) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(status) = self.ended.try_recv() {
                return Err(io::Error::other(format!("the server ended before it was ready: {status}")));
            }
            // From the server's own end, so that no packet of this passes the link.
            let is_ready = ends.server.run(|| {
                let accepts = |address: Ipv4Addr| {
                    TcpStream::connect_timeout(&SocketAddr::from((address, port)), LOOK_EVERY).is_ok()
                };
                Ok(accepts(SERVER) || accepts(Ipv4Addr::LOCALHOST))
            })?;
            if is_ready {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let seconds = START_TIMEOUT.as_secs();
                return Err(io::Error::other(format!("no server on port {port} after {seconds} s")));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Waits until a server ends, or stops it when told to. Returns its exit status.
fn wait_or_stop(mut child: Child, group: Pid, stopped: &Receiver<()>) -> Option<ExitStatus> {
    let mut deadline = None;
    loop {
        if let Some(status) = child.try_wait().ok()? {
            return Some(status);
        }
        match deadline {
            // A dropped sender means the same as a message.
            None if stopped.recv_timeout(LOOK_EVERY) != Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = kill_process_group(group, Signal::TERM);
                deadline = Some(Instant::now() + STOP_TIMEOUT);
            }
            None => {}
            Some(deadline) if Instant::now() >= deadline => {
                let _ = kill_process_group(group, Signal::KILL);
                thread::sleep(LOOK_EVERY);
            }
            Some(_) => thread::sleep(LOOK_EVERY),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Kills processes that the shell has left in its group; fails if there are none.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}
