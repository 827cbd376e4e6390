//! A server that is killed at each point of a call, and the one that comes after it.

mod persistent;
mod v3;
mod v41;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use vfs::fault::{Fault, Faulty, Method, Rule};
use vfs::{Error, MemFs, MemOptions, Timestamp};

use super::ReplyLog;
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

/// When a process was killed within a call that changes one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    /// Written down, and not executed.
    BeforeIt,
    /// Executed, without a logged outcome (during a sync, perhaps).
    BehindIt,
    /// The outcome written down.
    BeforeReply,
    /// The reply written down, and not sent.
    BehindReply,
}

impl Killed {
    const ALL: [Self; 4] = [Self::BeforeIt, Self::BehindIt, Self::BeforeReply, Self::BehindReply];

    /// Returns the number of the call's log records at that point.
    fn records(self) -> usize {
        match self {
            Self::BeforeIt | Self::BehindIt => 1,
            Self::BeforeReply => 2,
            Self::BehindReply => 3,
        }
    }
}

/// What outlives a process: files and the log.
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

    /// The same, whose files promise nothing of stable storage: changes there wait for no log.
    fn unstable() -> Self {
        let machine = Self::new();
        machine.files.be_unstable();
        machine
    }

    /// The next process, started after so many seconds.
    fn start(&mut self, seconds: u64) -> Arc<Server> {
        self.processes += 1;
        let instance = self.processes;
        let settings = Settings::new(KEY, instance, [instance as u8; 16], b"test".to_vec());
        let export = Export { backend: self.files.clone(), ..crate::testing::export(1, "/export") };
        let server = Server::new(settings, ExportTable::new(vec![export]).unwrap());
        let records = self.notes.0.lock().clone();
        Arc::new(server.with_reply_log(self.notes.clone(), records, at(seconds)))
    }

    /// Has the next operation of this kind fail before it does anything, where the process is killed before it.
    fn arm(&self, killed: Killed, method: Method) {
        if killed == Killed::BeforeIt {
            self.files.add(Rule::on(method, Fault::Fail(Error::Io)).times(1));
        }
    }

    /// Leaves of the records since `before` what was written when the process was killed.
    fn kill(&self, killed: Killed, before: usize) {
        let mut notes = self.notes.0.lock();
        assert_eq!(notes.len() - before, 3, "begun, ended, finished");
        notes.truncate(before + killed.records());
    }

    fn records(&self) -> usize {
        self.notes.0.lock().len()
    }
}

/// As [`Lab::now`](crate::testing::Lab::now) tells the time.
fn at(seconds: u64) -> Now {
    let wall = Timestamp { seconds: 1_000_000 + seconds as i64, nanoseconds: 5 };
    Now { monotonic: Duration::from_secs(seconds), wall }
}
