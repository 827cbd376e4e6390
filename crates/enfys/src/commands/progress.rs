//! Progress of commands that copy and remove: a bar on a terminal, lines of JSON, or nothing.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::output;
use super::session::{Failure, Session};

/// Time between lines of JSON.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Redraws of the bar a second.
const REDRAWS: u8 = 10;
/// The bar: the work done, its part of the known work, and the remaining time.
const TEMPLATE: &str =
    "{msg}  {wide_bar}  {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";

/// The destination of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressKind {
    /// A bar on standard error.
    Bar,
    /// A line on standard output every second, one for each error, and one at the end.
    Json,
    /// Errors only, on standard error.
    Quiet,
}

impl ProgressKind {
    /// Returns the kind for these options: `--json`, or else a bar if standard error is a terminal.
    pub fn choose(json: bool) -> Self {
        match json {
            true => Self::Json,
            false if std::io::stderr().is_terminal() => Self::Bar,
            false => Self::Quiet,
        }
    }
}

/// The work that a command has done, and the work that it knows of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub files: u64,
    pub files_found: u64,
    pub bytes: u64,
    pub bytes_found: u64,
    pub errors: u64,
    /// Files that the server cloned.
    pub cloned: u64,
    /// Files that the server copied itself.
    pub server_copied: u64,
}

/// Runs a command that shows progress: as lines of JSON with `json`, and as a summary at the end with `verbose`.
pub fn run(
    command: &'static str,
    json: bool,
    verbose: bool,
    work: impl AsyncFnOnce(&Session, &Progress) -> Result<(), Failure>,
) -> ExitCode {
    output::run(command, async |session, output| {
        let progress = Progress::new(ProgressKind::choose(json), command);
        if let Err(failure) = work(session, &progress).await {
            progress.failed(&failure.to_string());
        }
        let counts = progress.finish();
        if verbose && !json {
            output.print(format!("{}\n", counts.summary(progress.started.elapsed())).as_bytes());
        }
        if counts.errors > 0 {
            output.raise_status(1);
        }
    })
}

/// Shows the progress of one command. Shared by everything that works on it.
#[derive(Debug)]
pub struct Progress {
    kind: ProgressKind,
    command: &'static str,
    started: Instant,
    bar: ProgressBar,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// When the last line was printed, since the start.
    line_at: Duration,
}

impl Progress {
    /// Starts showing the progress of a command.
    pub fn new(kind: ProgressKind, command: &'static str) -> Self {
        let target = match kind {
            ProgressKind::Bar => ProgressDrawTarget::stderr_with_hz(REDRAWS),
            ProgressKind::Json | ProgressKind::Quiet => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("a template"));
        Self { kind, command, started: Instant::now(), bar, state: Mutex::default() }
    }

    /// Notes files and bytes that will be worked on.
    pub fn found(&self, files: u64, bytes: u64) {
        self.update(|counts| {
            counts.files_found += files;
            counts.bytes_found += bytes;
        });
    }

    /// Notes files and bytes that are done.
    pub fn done(&self, files: u64, bytes: u64) {
        self.update(|counts| {
            counts.files += files;
            counts.bytes += bytes;
        });
    }

    /// Notes files that the server cloned, or copied itself.
    pub fn by_server(&self, cloned: u64, copied: u64) {
        self.update(|counts| {
            counts.cloned += cloned;
            counts.server_copied += copied;
        });
    }

    /// Shows an error. The message names the operation, the path and the reason.
    pub fn failed(&self, message: &str) {
        self.update(|counts| counts.errors += 1);
        match self.kind {
            ProgressKind::Json => print_line(&json!({ "error": message })),
            // The bar is drawn again below the message.
            ProgressKind::Bar => self.bar.suspend(|| eprintln!("enfys {}: {message}", self.command)),
            ProgressKind::Quiet => eprintln!("enfys {}: {message}", self.command),
        }
    }

    /// Ends the display, and returns the work done.
    pub fn finish(&self) -> Counts {
        let counts = self.state.lock().map_or_else(|_| Counts::default(), |state| state.counts);
        self.bar.finish_and_clear();
        if self.kind == ProgressKind::Json {
            print_line(&line(counts, self.started.elapsed(), true));
        }
        counts
    }

    fn update(&self, change: impl FnOnce(&mut Counts)) {
        let Ok(mut state) = self.state.lock() else { return };
        change(&mut state.counts);
        let counts = state.counts;
        match self.kind {
            ProgressKind::Bar => {
                self.bar.set_length(counts.bytes_found.max(counts.bytes));
                self.bar.set_position(counts.bytes);
                self.bar.set_message(format!("{}/{} files", counts.files, counts.files_found));
            }
            ProgressKind::Json => {
                let elapsed = self.started.elapsed();
                if elapsed >= state.line_at + LINE_INTERVAL {
                    state.line_at = elapsed;
                    print_line(&line(counts, elapsed, false));
                }
            }
            ProgressKind::Quiet => {}
        }
    }
}

impl Counts {
    /// Returns the last line of a command for people, as in `12 files, 3.4 MiB in 1.2 s`.
    pub fn summary(&self, took: Duration) -> String {
        let files = if self.files == 1 { "1 file".to_owned() } else { format!("{} files", self.files) };
        let by_server = match (self.cloned, self.server_copied) {
            (0, 0) => String::new(),
            (cloned, copied) => format!("; the server cloned {cloned} and copied {copied} of them"),
        };
        format!("{files}, {} in {:.1} s{by_server}", HumanBytes(self.bytes), took.as_secs_f64())
    }
}

fn line(counts: Counts, elapsed: Duration, is_over: bool) -> Value {
    let Counts { files, files_found, bytes, bytes_found, errors, cloned, server_copied } = counts;
    let seconds = (elapsed.as_secs_f64() * 1e3).round() / 1e3;
    json!({
        "files": files, "files_found": files_found, "bytes": bytes, "bytes_found": bytes_found, "errors": errors,
        "cloned": cloned, "server_copied": server_copied, "seconds": seconds, "done": is_over,
    })
}

/// Prints a line to standard output, which may be closed.
fn print_line(value: &Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{value}").and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_counted() {
        let progress = Progress::new(ProgressKind::Quiet, "cp");
        progress.found(3, 3000);
        progress.done(1, 1000);
        progress.done(0, 500);
        progress.failed("cannot read `a`: Permission denied");
        progress.by_server(1, 2);
        let expected = Counts {
            files: 1,
            files_found: 3,
            bytes: 1500,
            bytes_found: 3000,
            errors: 1,
            cloned: 1,
            server_copied: 2,
        };
        assert_eq!(progress.finish(), expected);
    }

    #[test]
    fn a_line_has_all_counts() {
        let counts = Counts {
            files: 1,
            files_found: 2,
            bytes: 3,
            bytes_found: 4,
            errors: 5,
            cloned: 6,
            server_copied: 7,
        };
        let line = line(counts, Duration::from_micros(1_234_567), true);
        let expected = json!({
            "files": 1, "files_found": 2, "bytes": 3, "bytes_found": 4, "errors": 5, "cloned": 6, "server_copied": 7,
            "seconds": 1.235, "done": true,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn the_summary_is_for_people() {
        let counts = Counts { files: 1, bytes: 3 << 20, ..Counts::default() };
        assert_eq!(counts.summary(Duration::from_millis(1250)), "1 file, 3.00 MiB in 1.2 s");
        let counts = Counts { files: 5, bytes: 0, cloned: 3, server_copied: 1, ..counts };
        let summary = "5 files, 0 B in 1.2 s; the server cloned 3 and copied 1 of them";
        assert_eq!(counts.summary(Duration::from_millis(1250)), summary);
    }
}
