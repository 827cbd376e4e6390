//! Runs the command that recalls files: a bounded number at once, each file once at a time, for a bounded time. Never on a thread that
//! serves requests.
//!
//! The command is the administrator's and runs without a shell, with the server's rights inside its sandbox. Its last argument is the path of
//! the file, its standard input a descriptor that only names the file (O_PATH): a user who may rename directories can make the path
//! lead to another file, but not the descriptor.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use localfs::LocalFs;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use store::error_text;
use tracing::{info, warn};
use vfs::{Error, Handle};

/// Maximum number of files that wait for the command. Requests for others are answered `Later` too, and ask again.
const QUEUE_MAX: usize = 1024;
/// Maximum number of files whose last recall is remembered.
const REMEMBERED_MAX: usize = 4096;
/// The time after a failure in which requests for the file fail. After it, the next request has it recalled again.
const FAILED_FOR: Duration = Duration::from_secs(10);
/// The time after a success in which the file is not recalled again: the command may only have asked for it.
const ASKED_FOR: Duration = Duration::from_secs(30);
/// Longest pause between two looks at a running command.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// The search path of the command, which gets no other variable.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How files are recalled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecallRule {
    /// The program and its first arguments; not empty.
    pub command: Vec<String>,
    /// Maximum number of commands at once.
    pub at_once: usize,
    /// Maximum time of a command.
    pub limit: Duration,
}

/// The recalls of a directory.
#[derive(Debug)]
pub struct Recaller {
    directory: LocalFs,
    rule: RecallRule,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<Handle, Progress>,
    queue: VecDeque<Handle>,
    /// Threads that run commands.
    threads: usize,
}

#[derive(Debug, Clone, Copy)]
enum Progress {
    /// Waits for the command, or it runs.
    Begun,
    /// The command ended.
    Ended { at: Instant, is_failed: bool },
}

impl Progress {
    /// Returns the answer to requests for the file; `None` if it is to be recalled again.
    fn answer(self, now: Instant) -> Option<Error> {
        match self {
            Self::Begun => Some(Error::Later),
            Self::Ended { at, is_failed: true } => {
                (now.saturating_duration_since(at) < FAILED_FOR).then_some(Error::Io)
            }
            Self::Ended { at, is_failed: false } => {
                (now.saturating_duration_since(at) < ASKED_FOR).then_some(Error::Later)
            }
        }
    }
}

impl Recaller {
    /// Creates a recaller, without threads.
    pub fn new(directory: LocalFs, rule: RecallRule) -> Self {
        Self { directory, rule, state: Mutex::default() }
    }

    /// Returns whether it recalls files of this directory by this rule.
    pub fn is_for(&self, directory: &LocalFs, rule: &RecallRule) -> bool {
        self.directory.is_same(directory) && self.rule == *rule
    }

    /// Has a file recalled, unless that is under way. Returns the error for the request that needs it.
    pub fn request(self: &Arc<Self>, file: Handle) -> Error {
        let (mut state, now) = (self.state.lock(), Instant::now());
        if let Some(answer) = state.files.get(&file).and_then(|progress| progress.answer(now)) {
            return answer;
        }
        if state.queue.len() >= QUEUE_MAX {
            return Error::Later;
        }
        if state.files.len() >= REMEMBERED_MAX {
            state.files.retain(|_, progress| matches!(progress, Progress::Begun));
        }
        state.files.insert(file, Progress::Begun);
        state.queue.push_back(file);
        if state.threads < self.rule.at_once {
            let own = Arc::clone(self);
            let started = std::thread::Builder::new().name("recall".into()).spawn(move || own.run());
            match started {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    warn!("recall: cannot start a thread: {}", error_text(&error));
                    state.queue.pop_back();
                    state.files.remove(&file);
                }
                // Another thread gets to it.
                Err(_) => {}
            }
        }
        Error::Later
    }

    /// Recalls files until none waits.
    fn run(&self) {
        loop {
            let file = {
                let mut state = self.state.lock();
                match state.queue.pop_front() {
                    Some(file) => file,
                    None => {
                        state.threads -= 1;
                        return;
                    }
                }
            };
            let is_failed = self.recall(&file).is_err();
            self.state.lock().files.insert(file, Progress::Ended { at: Instant::now(), is_failed });
        }
    }

    /// Runs the command for a file. A failure is logged.
    fn recall(&self, file: &Handle) -> Result<(), ()> {
        let (descriptor, path) = match self.directory.named(file) {
            Ok(named) => named,
            Err(error) => {
                warn!(%error, "recall: the file cannot be opened");
                return Err(());
            }
        };
        let done = self.start(&path, descriptor.into()).and_then(|child| wait(child, self.rule.limit));
        let path = path.display();
        match done {
            Ok(status) if status.success() => {
                info!(%path, "recalled");
                Ok(())
            }
            Ok(status) => {
                warn!(%path, command = self.rule.command[0], "recall failed: {status}");
                Err(())
            }
            Err(why) => {
                warn!(%path, command = self.rule.command[0], "recall failed: {why}");
                Err(())
            }
        }
    }

    fn start(&self, path: &Path, file: Stdio) -> Result<Child, String> {
        use std::os::unix::process::CommandExt;
        let (program, arguments) = self.rule.command.split_first().ok_or("no command")?;
        Command::new(program)
            .args(arguments)
            .arg(path)
            .stdin(file)
            .stdout(Stdio::null())
            .env_clear()
            .env("PATH", PATH)
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map_err(|error| error_text(&error))
    }
}

/// Waits for a command. One that exceeds its time is killed, with all processes of its group.
fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus, String> {
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(2));
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error_text(&error))? {
            return Ok(status);
        }
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                // It may have ended just then.
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait().map_err(|error| error_text(&error))?;
            return Err(format!("not done after {} s, and killed", limit.as_secs()));
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_asked_for_again_only_after_a_while() {
        let at = Instant::now();
        let after = |progress: Progress, seconds| progress.answer(at + Duration::from_secs(seconds));
        assert_eq!(after(Progress::Begun, 10_000), Some(Error::Later));
        let failed = Progress::Ended { at, is_failed: true };
        assert_eq!((after(failed, 9), after(failed, 10)), (Some(Error::Io), None));
        let asked = Progress::Ended { at, is_failed: false };
        assert_eq!((after(asked, 29), after(asked, 30)), (Some(Error::Later), None));
    }
}
