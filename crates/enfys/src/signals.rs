//! What the process is told by signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What somebody wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// SIGHUP: read the exports again.
    Reload,
    /// SIGTERM, SIGINT: end.
    Stop,
}

/// The signals that are handled. From their registration on none of them ends the process by itself.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    /// A file grew beyond RLIMIT_FSIZE: the client is told by an error, the server goes on.
    _file_size: Signal,
}

impl Signals {
    /// Registers them; within a runtime.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn new() -> Result<Self, String> {
        let register = |kind| signal(kind).map_err(|error| format!("signals cannot be received: {error}"));
        Ok(Self {
            hangup: register(SignalKind::hangup())?,
            terminate: register(SignalKind::terminate())?,
            interrupt: register(SignalKind::interrupt())?,
            _file_size: register(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }

    /// Waits until told to end.
    pub async fn stop(&mut self) {
        while self.next().await != Wish::Stop {}
    }
}
