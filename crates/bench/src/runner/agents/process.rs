//! An agent's process, or that of the program that reaches it.

use std::io::{BufReader, Read as _, Seek as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::READY_MAX;
use super::clock::{COMPARISONS, ClockOffset};
use super::messages::{Order, Report, read, write};
use crate::units::time_text;

/// Time for a process to end after its input has ended.
const END_MAX: Duration = Duration::from_secs(2);
/// Bytes of an agent's error messages that are shown at most.
const SAID_MAX: usize = 500;

/// A running agent.
pub(super) struct Agent {
    host: String,
    child: Child,
    /// `None` after the agent was stopped.
    input: Option<ChildStdin>,
    reports: Receiver<Result<Report, String>>,
    errors: std::fs::File,
    /// The start of the coordinator's clock.
    started: Instant,
    pub(super) clock: ClockOffset,
}

impl Agent {
    /// Starts an agent with [`super::Agents::command`], and compares its clock with ours, which began at `started`.
    ///
    /// # Errors
    /// It does not start, or is another version.
    pub(super) fn start(host: &str, command: &str, started: Instant) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("agent {host}: {error}");
        let errors = tempfile::tempfile().map_err(wrong)?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .env("HOST", host)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().map_err(wrong)?)
            .spawn()
            .map_err(wrong)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (to_reports, reports) = mpsc::channel();
        if let Some(output) = output {
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                while let Some(report) = read(&mut output).transpose() {
                    let is_last = report.is_err();
                    if to_reports.send(report).is_err() || is_last {
                        break;
                    }
                }
            });
        }
        let clock = ClockOffset::default();
        let mut agent = Self { host: host.to_owned(), child, input, reports, errors, started, clock };
        agent.greet()?;
        agent.compare_clocks()?;
        Ok(agent)
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the time of the coordinator's clock.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn greet(&mut self) -> Result<(), String> {
        let own = env!("CARGO_PKG_VERSION");
        match self.awaited_report()? {
            Report::Hello { enfys_version } if enfys_version == own => Ok(()),
            Report::Hello { enfys_version } => {
                Err(format!("agent {} is enfys {enfys_version}, this is {own}: install the same", self.host))
            }
            other => Err(self.unexpected(&other)),
        }
    }

    fn compare_clocks(&mut self) -> Result<(), String> {
        let mut times = Vec::new();
        for _ in 0..COMPARISONS {
            let asked = self.now();
            self.order(&Order::Time)?;
            match self.awaited_report()? {
                Report::Time(theirs) => times.push((asked, theirs, self.now())),
                other => return Err(self.unexpected(&other)),
            }
        }
        self.clock = ClockOffset::best(times).unwrap_or_default();
        Ok(())
    }

    fn awaited_report(&mut self) -> Result<Report, String> {
        let late = |host: &str| format!("agent {host}: no answer after {}", time_text(READY_MAX));
        self.report_within(READY_MAX)?.ok_or_else(|| late(&self.host))
    }

    /// Returns the next report; `None` if there is none within `limit`.
    ///
    /// # Errors
    /// The agent has ended, or sends something else.
    pub(super) fn report_within(&mut self, limit: Duration) -> Result<Option<Report>, String> {
        match self.reports.recv_timeout(limit) {
            Ok(Ok(report)) => Ok(Some(report)),
            Ok(Err(why)) => Err(format!("agent {}: {why}{}", self.host, self.said())),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.end().map_or(String::new(), |status| format!(" ({status})"));
                Err(format!("agent {} has ended{status}{}", self.host, self.said()))
            }
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    /// The agent has ended.
    pub(super) fn order(&mut self, order: &Order) -> Result<(), String> {
        let Some(input) = &mut self.input else { return Ok(()) };
        write(input, order).map_err(|_| {
            self.end();
            format!("agent {} has ended{}", self.host, self.said())
        })
    }

    /// Ends the agent without a result.
    pub(super) fn stop(&mut self) {
        let _ = self.order(&Order::Stop);
        self.input = None;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.input.is_none()
    }

    pub(super) fn unexpected(&self, report: &Report) -> String {
        let name = match report {
            Report::Hello { .. } => "a greeting",
            Report::Time(_) => "a time",
            Report::Ready => "that it is ready",
            Report::Ended(_) => "a result",
        };
        format!("agent {}: sends {name}, which is not what it was asked", self.host)
    }

    /// Returns the end of its error messages.
    fn said(&self) -> String {
        let mut text = Vec::new();
        let mut errors = &self.errors;
        if errors.rewind().and_then(|()| errors.read_to_end(&mut text)).is_err() {
            return String::new();
        }
        let end = &text[text.len().saturating_sub(SAID_MAX)..];
        let lines = String::from_utf8_lossy(end).trim().replace('\n', "; ");
        if lines.is_empty() { lines } else { format!(": {lines}") }
    }

    /// Ends its input, waits a little, and kills it.
    fn end(&mut self) -> Option<std::process::ExitStatus> {
        self.input = None;
        let deadline = Instant::now() + END_MAX;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}
