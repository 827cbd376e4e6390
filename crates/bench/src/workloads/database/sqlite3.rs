//! SQLite itself: the program `sqlite3`, which takes statements from a pipe and answers each with a line.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

use super::{PAGE_BYTES, ROW_BYTES};
use crate::link::system::die_with_this_thread;
use crate::runner::search_path;
use crate::targets::Fault;

/// Milliseconds until SQLite gives up to wait for others.
const BUSY_TIMEOUT_MS: u32 = 60_000;
/// Longest answer in bytes: a message.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// A program that has a database open.
pub(super) struct Shell {
    child: Child,
    /// `None` when it shall end.
    statements: Option<ChildStdin>,
    /// Results and errors: C does not buffer this stream.
    answers: BufReader<ChildStderr>,
    database: PathBuf,
}

fn program(database: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    command.env("PATH", search_path());
    // The settings of the user do not apply. An error ends the program.
    command.args(["-batch", "-bail", "-init", "/dev/null"]).arg(database);
    command
}

fn failed(database: &Path, why: impl std::fmt::Display) -> Fault {
    Fault::new(format!("sqlite3 {}: {why}", database.display()))
}

/// Creates a database with rows in a table.
pub(super) fn create(database: &Path, rows: u64, journal: &str) -> Result<(), Fault> {
    let statements = format!(
        "PRAGMA page_size={PAGE_BYTES}; PRAGMA journal_mode={journal};
         CREATE TABLE data(id INTEGER PRIMARY KEY, value BLOB NOT NULL);
         WITH RECURSIVE numbers(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM numbers WHERE id + 1 < {rows})
         INSERT INTO data SELECT id, randomblob({ROW_BYTES}) FROM numbers;"
    );
    let output = program(database).arg(statements).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(database, error))?;
    if !output.status.success() {
        return Err(failed(database, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let mode = String::from_utf8_lossy(&output.stdout);
    check_mode(database, mode.trim(), journal)
}

/// Where a journal mode is impossible, SQLite keeps the one it has.
fn check_mode(database: &Path, mode: &str, wanted: &str) -> Result<(), Fault> {
    if mode == wanted {
        return Ok(());
    }
    Err(failed(database, format_args!("journal mode {wanted} is not possible here: {mode}")))
}

impl Shell {
    /// Starts the program, and opens the database.
    pub(super) fn start(database: &Path, journal: &str) -> Result<Self, Fault> {
        let mut command = program(database);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A group of its own: an interrupt from the terminal is for the bench.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        die_with_this_thread(&mut command);
        let mut child = command.spawn().map_err(|error| failed(database, error))?;
        let (Some(statements), Some(answers)) = (child.stdin.take(), child.stderr.take()) else {
            return Err(failed(database, "no pipes"));
        };
        let (statements, answers) = (Some(statements), BufReader::new(answers));
        let mut shell = Self { child, statements, answers, database: database.to_owned() };
        let settings = format!(
            ".output stderr\n.timeout {BUSY_TIMEOUT_MS}\nPRAGMA synchronous=FULL; PRAGMA journal_mode={journal};"
        );
        let mode = shell.ask(&settings)?;
        check_mode(database, &mode, journal)?;
        shell.ask("SELECT count(*) FROM (SELECT id FROM data LIMIT 1);")?;
        Ok(shell)
    }

    /// Sends statements with one line of results, and returns it.
    fn ask(&mut self, statements: &str) -> Result<String, Fault> {
        use std::io::Read as _;
        let sent = self.statements.as_mut().map_or(Ok(()), |pipe| {
            pipe.write_all(statements.as_bytes())?;
            pipe.write_all(b"\n")
        });
        let mut line = String::new();
        let read = (&mut self.answers).take(ANSWER_BYTES_MAX).read_line(&mut line);
        // The program's last message says more than a broken pipe.
        match (read, sent) {
            (Ok(0) | Err(_), Err(error)) | (Err(error), Ok(())) => Err(failed(&self.database, error)),
            (Ok(0), Ok(())) => Err(failed(&self.database, "it ended")),
            (Ok(_), _) => Ok(line.trim_end().to_owned()),
        }
    }

    fn count(&mut self, statements: &str) -> Result<u64, Fault> {
        let answer = self.ask(statements)?;
        // An error message is no number.
        answer.parse().map_err(|_| failed(&self.database, answer))
    }

    /// Asks something that needs no file.
    pub(super) fn exchange(&mut self) -> Result<(), Fault> {
        self.count("SELECT 1;").map(drop)
    }

    /// Changes rows in a transaction; returns their number when it is committed.
    pub(super) fn change(&mut self, rows: &[u64]) -> Result<u64, Fault> {
        let mut list = String::new();
        for (index, row) in rows.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(list, "{comma}{row}");
        }
        self.count(&format!(
            "BEGIN IMMEDIATE; UPDATE data SET value=randomblob({ROW_BYTES}) WHERE id IN ({list}); COMMIT; SELECT changes();"
        ))
    }

    /// Ends the program.
    pub(super) fn end(mut self) -> Result<(), Fault> {
        drop(self.statements.take());
        let status = self.child.wait().map_err(|error| failed(&self.database, error))?;
        if status.success() { Ok(()) } else { Err(failed(&self.database, status)) }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
