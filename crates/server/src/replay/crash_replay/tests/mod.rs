//! A server that is killed at each point of a call, and its successor.

mod persistent;
mod v3;
mod v41;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use vfs::fault::{Fault, Faulty, Method, Rule};
use vfs::{Error, MemFs, MemOptions, Timestamp};

use super::{ReplyLog, distinct_after};
use crate::testing::KEY;
use crate::{Export, ExportTable, Now, Server, Settings};

/// A log in memory, and the test's view of it.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<Bytes>>);

impl ReplyLog for Notes {
    fn append(&self, parts: &[&[u8]]) {
        let record = parts.concat();
        assert!(record.len() <= super::RECORD_BYTES_MAX);
        self.0.lock().push(record.into());
    }
}

/// The point at which a process is killed within a call that changes one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    /// Logged, and not executed.
    BeforeExecution,
    /// Executed, without a logged outcome (during a sync, perhaps).
    AfterExecution,
    /// The outcome is logged.
    BeforeReply,
    /// The reply is logged, and not sent.
    AfterReply,
}

impl Killed {
    const ALL: [Self; 4] = [Self::BeforeExecution, Self::AfterExecution, Self::BeforeReply, Self::AfterReply];

    /// Returns the number of the call's log records at that point.
    fn records(self) -> usize {
        match self {
            Self::BeforeExecution | Self::AfterExecution => 1,
            Self::BeforeReply => 2,
            Self::AfterReply => 3,
        }
    }
}

/// State that survives a process: files and the log.
struct Machine {
    files: Arc<Faulty<MemFs>>,
    notes: Arc<Notes>,
    processes: u64,
}

impl Machine {
    fn new() -> Self {
        let files = Arc::new(Faulty::new(MemFs::new(&MemOptions::default())));
        Self { files, notes: Arc::default(), processes: 0 }
    }

    /// As [`Self::new`], over files without a promise of durability: changes there do not wait for the log.
    fn unstable() -> Self {
        let machine = Self::new();
        machine.files.be_unstable();
        machine
    }

    /// As [`Self::new`], over files that defer no change to a group commit.
    fn undeferred() -> Self {
        let machine = Self::new();
        machine.files.commits().defer_nothing();
        machine
    }

    /// Starts the next process after this many seconds.
    fn start(&mut self, seconds: u64) -> Arc<Server> {
        self.processes += 1;
        let instance = self.processes;
        let settings = Settings::new(KEY, instance, [instance as u8; 16], b"test".to_vec());
        let export = Export { backend: self.files.clone(), ..crate::testing::export(1, "/export") };
        let server = Server::new(settings, ExportTable::new(vec![export]).unwrap());
        let records = self.notes.0.lock().clone();
        Arc::new(server.with_reply_log(self.notes.clone(), records, at(seconds)))
    }

    /// If the process is killed before the operation, makes the next operation of this kind fail without effect.
    fn arm(&self, killed: Killed, method: Method) {
        if killed == Killed::BeforeExecution {
            self.files.add(Rule::on(method, Fault::Fail(Error::Io)).times(1));
        }
    }

    /// Keeps only those of the records since `before` that were written when the process was killed.
    fn kill(&self, killed: Killed, before: usize) {
        let mut notes = self.notes.0.lock();
        assert_eq!(notes.len() - before, 3, "begun, ended, finished");
        notes.truncate(before + killed.records());
    }

    fn records(&self) -> usize {
        self.notes.0.lock().len()
    }
}

/// Returns the time, as in [`Lab::now`](crate::testing::Lab::now).
fn at(seconds: u64) -> Now {
    let wall = Timestamp { seconds: 1_000_000 + seconds as i64, nanoseconds: 5 };
    Now { monotonic: Duration::from_secs(seconds), wall }
}

#[test]
fn operations_of_calls_that_arrive_together_have_distinct_times() {
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    let first = distinct_after(time(0, 0), time(100, 999_999_999));
    assert_eq!(first, time(100, 999_999_999));
    let second = distinct_after(first, time(100, 999_999_999));
    assert_eq!(second, time(101, 0));
    assert_eq!(distinct_after(second, time(100, 999_999_999)), time(101, 1));
    assert_eq!(distinct_after(second, time(102, 0)), time(102, 0));
    // The clock was set back.
    assert_eq!(distinct_after(second, time(50, 7)), time(50, 7));
}
