//! `enfys watch`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::attributes::FileKind;
use client::url::Url;
use client::watch::{Change, Event, Notice, Report, Settings, Watch, WatchError};
use serde_json::{Map, Value, json};
use store::error_text;
use tokio::task::LocalSet;

use super::mount::watched_url;
use super::quote::shell_quoted;
use super::session::{Failure, Session, failed, parse_url, shown};
use crate::duration::Span;
use crate::signals::Signals;

/// Exit status of a program that SIGPIPE ends, as a shell shows it.
const BROKEN_PIPE: u8 = 141;
/// Exit status if the tree cannot be watched, or not any longer.
const NOT_WATCHED: u8 = 2;
/// The shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Entries of a tree without an option: some hundred MB.
const ENTRIES_DEFAULT: &str = "1000000";

const HELP: &str = "\
Examples:
  enfys watch nfs://server/export/project
      created  src/new.rs
      renamed  draft.txt -> report.txt
  enfys watch --json /mnt/data | jq 'select(.event == \"created\")'
      A directory of a mount of `enfys mount`, changes as lines of JSON.
  enfys watch --depth 1 --interval 10s nfs://server/export
      A large tree: only the entries of its directory and of those in it, compared every 10 s.
  enfys watch -0 nfs://server/spool | while IFS= read -r -d '' change; do …; done
      Names with any bytes: the change and the path, separated by a tab, each record ended by a zero byte.

Changes: created, removed, renamed (within the tree), changed (content or size), attributes (mode, owner, number of names). \
Paths are relative, and quoted for a shell where they need it; with -0 they are as they are, and a renamed entry has two records, \
`renamed` with the old and `to` with the new path. JSON has `event`, `path`, for a renamed entry `from`, and if known `type` and \
`size`; a name that is not UTF-8 is also in `path_hex` and `from_hex`.

Where the server tells of changes (directory delegations of versions 4.1 and 4.2), names appear at once. Everything else is found \
by comparing once in each --interval; what happens twice in between is reported once. After a restart of the server the tree is \
compared with what was known, so that no change is missed. Messages about the watch itself are on standard error; changes are \
reported after the line `watching`.

Exit status: 0 after SIGINT or SIGTERM; 1 then, if a directory could not be read; 2 if the tree cannot be watched, or not any \
longer; 141 if standard output was closed.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct WatchArguments {
    /// A directory of a server, as a URL or in a mount of `enfys mount`
    #[arg(value_name = "DIR|URL")]
    pub place: OsString,
    /// Print changes as lines of JSON
    #[arg(long, conflicts_with = "null")]
    pub json: bool,
    /// End records with a zero byte, and print names as they are
    #[arg(short = '0', long)]
    pub null: bool,
    /// Time between two comparisons
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Span,
    /// Levels of directories to watch; 0: only the entries of the directory itself [default: all]
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Maximum number of entries: each takes about 300 bytes of memory
    #[arg(long, value_name = "N", default_value = ENTRIES_DEFAULT)]
    pub max_entries: usize,
    /// Do not ask the server to tell of changes
    #[arg(long)]
    pub poll: bool,
}

fn interval(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0 < INTERVAL_MIN { Err(format!("at least {}", Span(INTERVAL_MIN))) } else { Ok(span) }
}

/// Watches a directory until a signal, or until it cannot be watched any longer.
pub fn run(arguments: &WatchArguments) -> ExitCode {
    let complain = |error: &str| eprintln!("enfys watch: {error}");
    let url = match url_of(&arguments.place) {
        Ok(url) => url,
        Err(error) => {
            complain(&error);
            return ExitCode::from(NOT_WATCHED);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start the runtime: {}", error_text(&error)));
            return ExitCode::from(NOT_WATCHED);
        }
    };
    let ended = LocalSet::new().block_on(&runtime, async {
        let session = Session::default();
        let ended = watch(&session, arguments, &url).await;
        let must_wait = matches!(ended, Ok(Ended::ByOutput(_)) | Ok(Ended::BySignal(_)));
        if must_wait {
            // A server that does not answer forgets the watch after its lease.
            let _ = tokio::time::timeout(Duration::from_secs(2), session.close()).await;
        }
        ended
    });
    match ended {
        Ok(Ended::BySignal(status)) => ExitCode::from(status),
        Ok(Ended::ByOutput(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::from(BROKEN_PIPE)
        }
        Ok(Ended::ByOutput(error)) => {
            complain(&format!("cannot write to standard output: {}", error_text(&error)));
            ExitCode::FAILURE
        }
        Err(failure) => {
            complain(&failure.to_string());
            ExitCode::from(NOT_WATCHED)
        }
    }
}

/// Returns the URL of a place: itself, or that of a directory of a mount.
fn url_of(place: &OsStr) -> Result<Url, String> {
    match place.to_str().filter(|text| text.starts_with("nfs://")) {
        Some(text) => parse_url(text),
        None => watched_url(Path::new(place)),
    }
}

enum Ended {
    /// With this exit status.
    BySignal(u8),
    ByOutput(io::Error),
}

async fn watch(session: &Session, arguments: &WatchArguments, url: &Url) -> Result<Ended, Failure> {
    let location = session.locate(url).await?;
    let start = location.object("access", true).await?;
    if start.attributes.kind != FileKind::Directory {
        return Err(Failure::new(format!("cannot watch {}: Not a directory", shown(url))));
    }
    let settings = Settings {
        interval: arguments.interval.0,
        depth_max: arguments.depth.unwrap_or(usize::MAX),
        entries_max: arguments.max_entries,
        notifications: !arguments.poll,
    };
    let mut signals = Signals::new().map_err(Failure::new)?;
    let mut watch = Watch::new(location.fs.clone(), &start, settings);
    let mut printer = Printer::new(arguments, url);
    let (stop, mut stopped) = tokio::sync::mpsc::channel(1);
    let ended = {
        let mut report = |report| {
            if let Err(error) = printer.print(&report) {
                // The first error counts.
                let _ = stop.try_send(error);
            }
        };
        tokio::select! {
            biased;
            () = signals.stop() => Ok(None),
            error = stopped.recv() => Ok(error),
            ended = watch.run(&mut report) => ended.map(|()| None),
        }
    };
    match ended {
        Ok(None) => {
            let status = u8::from(printer.has_failed);
            let flushed = printer.flush();
            // A server that does not answer forgets the watch after its lease.
            let _ = tokio::time::timeout(Duration::from_secs(2), watch.end()).await;
            Ok(flushed.map_or_else(Ended::ByOutput, |()| Ended::BySignal(status)))
        }
        Ok(Some(error)) => {
            let _ = tokio::time::timeout(Duration::from_secs(2), watch.end()).await;
            Ok(Ended::ByOutput(error))
        }
        Err(error) => {
            let _ = printer.flush();
            Err(ended_by(url, error, arguments))
        }
    }
}

fn ended_by(url: &Url, error: WatchError, arguments: &WatchArguments) -> Failure {
    match error {
        WatchError::Root(cause) | WatchError::Failed(cause) => failed("watch", url, &cause),
        WatchError::TooManyEntries => Failure::new(format!(
            "cannot watch {}: more than {} entries; use --depth, a directory below, or --max-entries",
            shown(url),
            arguments.max_entries
        )),
    }
}

/// Prints reports.
struct Printer<'a> {
    out: io::BufWriter<io::Stdout>,
    arguments: &'a WatchArguments,
    url: &'a Url,
    has_failed: bool,
}

impl<'a> Printer<'a> {
    fn new(arguments: &'a WatchArguments, url: &'a Url) -> Self {
        Self { out: io::BufWriter::new(io::stdout()), arguments, url, has_failed: false }
    }

    fn print(&mut self, report: &Report) -> io::Result<()> {
        match report {
            Report::Event(event) if self.arguments.json => {
                let line = json_of(event).to_string();
                writeln!(self.out, "{line}")
            }
            Report::Event(event) if self.arguments.null => self.out.write_all(&record(event)),
            Report::Event(event) => {
                let line = line(event);
                writeln!(self.out, "{line}")
            }
            Report::Notice(notice) => {
                self.flush()?;
                self.notice(notice);
                Ok(())
            }
            Report::Idle => self.flush(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints a message about the watch. Progress is for people only.
    fn notice(&mut self, notice: &Notice) {
        let url = shown(self.url);
        let interval = self.arguments.interval;
        let text = match notice {
            Notice::Watching { directories, entries, notified: 0 } => format!(
                "watching {url}: {entries} entries in {directories} directories, compared every {interval}"
            ),
            Notice::Watching { directories, entries, notified } => format!(
                "watching {url}: {entries} entries in {directories} directories, compared every {interval}; the server tells of names in {notified} of them"
            ),
            Notice::Reading(entries) if io::stderr().is_terminal() => format!("{entries} entries so far"),
            Notice::Reading(_) => return,
            Notice::Forgotten => {
                "the server has forgotten the watch, probably by a restart: comparing the tree with what was known".to_owned()
            }
            Notice::Silent => format!("{url}: the server does not answer; waiting"),
            Notice::Answers => format!("{url}: the server answers again; changes meanwhile are reported"),
            Notice::Unreadable(path, cause) => {
                self.has_failed = true;
                failed("read", &super::session::below(self.url, path), cause).to_string()
            }
        };
        eprintln!("enfys watch: {text}");
    }
}

fn name_of(change: &Change) -> &'static str {
    match change {
        Change::Created => "created",
        Change::Removed => "removed",
        Change::Renamed(_) => "renamed",
        Change::Content => "changed",
        Change::Attributes => "attributes",
    }
}

/// Returns the path of the directory itself as `.`.
fn path_of(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

fn line(event: &Event) -> String {
    let (name, path) = (name_of(&event.change), shell_quoted(path_of(&event.path)));
    match &event.change {
        Change::Renamed(from) => format!("{name:<10} {} -> {path}", shell_quoted(from)),
        _ => format!("{name:<10} {path}"),
    }
}

fn record(event: &Event) -> Vec<u8> {
    let name = name_of(&event.change).as_bytes();
    let path = path_of(&event.path);
    match &event.change {
        Change::Renamed(from) => [name, b"\t", from, b"\0to\t", path, b"\0"].concat(),
        _ => [name, b"\t", path, b"\0"].concat(),
    }
}

fn json_of(event: &Event) -> Value {
    let mut object = Map::new();
    object.insert("event".into(), name_of(&event.change).into());
    let mut path = |key: &str, path: &[u8]| {
        object.insert(key.into(), String::from_utf8_lossy(path).into());
        if std::str::from_utf8(path).is_err() {
            let hex: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
            object.insert(format!("{key}_hex"), hex.into());
        }
    };
    path("path", path_of(&event.path));
    if let Change::Renamed(from) = &event.change {
        path("from", from);
    }
    if let Some((kind, size)) = event.object {
        object.insert("type".into(), json!(type_of(kind)));
        if kind == FileKind::Regular {
            object.insert("size".into(), json!(size));
        }
    }
    Value::Object(object)
}

fn type_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::BlockDevice => "block-device",
        FileKind::CharacterDevice => "character-device",
        FileKind::Socket => "socket",
        FileKind::Fifo => "fifo",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(from: &[u8], to: &[u8]) -> Event {
        let object = Some((FileKind::Regular, 7));
        Event { change: Change::Renamed(from.to_vec()), path: to.to_vec(), object }
    }

    #[test]
    fn names_with_any_bytes_stay_one_record() {
        let event = renamed(b"a\nb", b"c\xff d");
        assert_eq!(line(&event), r"renamed    'a'$'\n''b' -> 'c'$'\377'' d'");
        assert_eq!(record(&event), b"renamed\ta\nb\0to\tc\xff d\0");
        let expected =
            r#"{"event":"renamed","from":"a\nb","path":"c� d","path_hex":"63ff2064","size":7,"type":"file"}"#;
        assert_eq!(json_of(&event), serde_json::from_str::<Value>(expected).unwrap());
    }

    #[test]
    fn the_directory_itself_is_a_dot() {
        let event = Event { change: Change::Attributes, path: Vec::new(), object: None };
        assert_eq!(line(&event), "attributes .");
    }
}
