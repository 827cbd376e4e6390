//! Output and exit status of commands.

use std::cell::{Cell, RefCell};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::process::ExitCode;

use store::error_text;
use tokio::task::LocalSet;

use super::session::{Failure, Session};

/// Bytes that are printed at once.
const BUFFER: usize = 64 << 10;
/// Exit status of a program that SIGPIPE ends, as a shell shows it.
const BROKEN_PIPE: i32 = 141;

/// Standard output and the exit status of one command.
pub struct Output {
    command: &'static str,
    stdout: RefCell<BufWriter<Stdout>>,
    is_terminal: bool,
    status: Cell<u8>,
}

impl Output {
    fn new(command: &'static str) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let stdout = RefCell::new(BufWriter::with_capacity(BUFFER, io::stdout()));
        Self { command, stdout, is_terminal, status: Cell::new(0) }
    }

    /// Returns whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Prints bytes. Ends the process if the reader has closed the pipe.
    pub fn print(&self, bytes: &[u8]) {
        let mut stdout = self.stdout.borrow_mut();
        let printed =
            stdout.write_all(bytes).and_then(|()| if self.is_terminal { stdout.flush() } else { Ok(()) });
        self.check(printed);
    }

    /// Prints the held output.
    pub fn flush(&self) {
        let flushed = self.stdout.borrow_mut().flush();
        self.check(flushed);
    }

    fn check(&self, printed: io::Result<()>) {
        let Err(error) = printed else { return };
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(BROKEN_PIPE);
        }
        eprintln!("enfys {}: cannot write to standard output: {}", self.command, error_text(&error));
        std::process::exit(1);
    }

    /// Prints an error, and notes the exit status.
    pub fn fail(&self, failure: &Failure) {
        self.fail_with(1, failure);
    }

    /// Prints an error, and notes an exit status; the largest counts.
    pub fn fail_with(&self, status: u8, failure: &Failure) {
        // Errors appear among the lines where they occurred.
        self.flush();
        eprintln!("enfys {}: {failure}", self.command);
        self.raise_status(status);
    }

    /// Notes an exit status; the largest counts.
    pub fn raise_status(&self, status: u8) {
        self.status.set(self.status.get().max(status));
    }
}

/// Runs a command with connections to servers.
pub fn run(command: &'static str, work: impl AsyncFnOnce(&Session, &Output)) -> ExitCode {
    let output = Output::new(command);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output.fail(&Failure::new(format!("cannot start the runtime: {}", error_text(&error))));
            return ExitCode::FAILURE;
        }
    };
    LocalSet::new().block_on(&runtime, async {
        let session = Session::default();
        work(&session, &output).await;
        output.flush();
        session.close().await;
    });
    ExitCode::from(output.status.get())
}
