//! Signals that reload or stop the server.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// SIGHUP: reload the exports.
    Reload,
    /// SIGTERM, SIGINT: stop.
    Stop,
}

/// The handled signals. Once registered, none of them ends the process.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    /// SIGXFSZ: a file grew beyond RLIMIT_FSIZE. The client gets an error, and the server continues.
    _file_size: Signal,
}

impl Signals {
    /// Registers the signals. Needs a tokio runtime.
    ///
    /// # Errors
    /// One line: the system refuses.
    pub fn new() -> Result<Self, String> {
        let register =
            |kind| signal(kind).map_err(|error| format!("cannot register signal handlers: {error}"));
        Ok(Self {
            hangup: register(SignalKind::hangup())?,
            terminate: register(SignalKind::terminate())?,
            interrupt: register(SignalKind::interrupt())?,
            _file_size: register(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }

    /// Waits for a signal to stop.
    pub async fn stop(&mut self) {
        while self.next().await != SignalAction::Stop {}
    }
}
