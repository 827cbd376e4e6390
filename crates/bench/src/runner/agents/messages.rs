//! What the coordinator of a run and an agent tell each other: one line of JSON for each message.

use std::io::{self, BufRead, Write};
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::Run;
use crate::result::RunResult;
use crate::server_counters::Exchanged;

/// Bytes of a message at most: the result of a run with its samples.
const MESSAGE_MAX: u64 = 256 << 20;

/// To an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Tell the time.
    Time,
    /// Connect the clients of a run, and wait.
    Prepare(Box<Job>),
    /// Begin at this time of the agent's clock, in microseconds.
    Begin(u64),
    /// End without a result.
    Stop,
}

/// A run, or a part of its clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    pub(super) plan: String,
    pub(super) run: Run,
    /// The clients of this agent.
    pub(super) clients: Range<u32>,
}

/// From an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Report {
    /// The first message: the version of the agent's program.
    Hello {
        /// `CARGO_PKG_VERSION`.
        enfys_version: String,
    },
    /// Microseconds since the agent's start.
    Time(u64),
    /// All clients have connected.
    Ready,
    /// The run has ended.
    Ended(Box<Part>),
}

/// An agent's part of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// The result, in which only the agent's clients have done something.
    pub(super) result: RunResult,
    /// All that its clients have exchanged with the server.
    pub(super) exchanged: Exchanged,
    /// When its first client began, in microseconds of its clock.
    pub(super) began_us: Option<u64>,
}

/// Writes one message.
///
/// # Errors
/// The other end is gone.
pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; `None` at the end of the input.
///
/// # Errors
/// Why it is no message.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>, String> {
    let mut line = Vec::new();
    let mut limited = io::Read::take(from, MESSAGE_MAX);
    match limited.read_until(b'\n', &mut line) {
        Ok(0) => Ok(None),
        Ok(_) if line.last() == Some(&b'\n') => {
            serde_json::from_slice(&line).map(Some).map_err(|error| format!("`{}`: {error}", start_of(&line)))
        }
        Ok(_) => Err(format!("`{}`: no whole message", start_of(&line))),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the start of a line for an error.
fn start_of(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(80)]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines_and_everything_else_is_named() {
        let mut text = Vec::new();
        write(&mut text, &Order::Begin(7)).unwrap();
        write(&mut text, &Order::Stop).unwrap();
        assert_eq!(text, b"{\"begin\":7}\n\"stop\"\n");
        let mut from = &text[..];
        assert!(matches!(read(&mut from), Ok(Some(Order::Begin(7)))));
        assert!(matches!(read(&mut from), Ok(Some(Order::Stop))));
        assert!(matches!(read::<Order>(&mut from), Ok(None)));

        let wrong = read::<Order>(&mut &b"Last login: yesterday\n"[..]).unwrap_err();
        assert!(wrong.starts_with("`Last login: yesterday`: "), "{wrong}");
        let cut = read::<Order>(&mut &b"{\"begin\":7"[..]).unwrap_err();
        assert_eq!(cut, "`{\"begin\":7`: no whole message");
    }
}
