//! Filebench's web server: ten files are read whole, then a log is appended to (2015, Figures 16 and 17).

use std::sync::Mutex;

use super::file_set::make_log;
use super::flow::{Flow, FlowSettings};
use super::{Parameters, Workload};
use crate::runner::{Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

/// Files that are read before each entry of the log.
const READS: u32 = 10;
const LOG: &str = "log";

/// `webserver`.
pub struct Webserver {
    settings: FlowSettings,
    /// How files are opened for reading: servers delegate only files that are not open for writing.
    how: How,
    /// Bytes of each client's log, from which the next entry starts.
    logged: Mutex<std::collections::BTreeMap<u32, u64>>,
}

impl Workload for Webserver {
    fn new(parameters: &Parameters<'_>) -> Self {
        Self {
            settings: FlowSettings::new(parameters, 1.0),
            how: if parameters.flag("delegations") { How::READ } else { How::BOTH },
            logged: Mutex::default(),
        }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        self.settings.set.prepare(files, who).await?;
        make_log(files, who, LOG).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let mut flow = Flow::new(task, &self.settings).await?;
        let log = task.files.open(&format!("{}/{LOG}", super::file_set::root(task.who)), How::WRITE).await?;
        let mut rng = task.rng.clone();
        task.ready().await;
        while !task.meter.is_over() {
            for _ in 0..READS {
                let path = self.settings.set.path(rng.u64(0..self.settings.set.count()));
                let file = flow.open(&path, self.how).await?;
                flow.read_whole(&file).await?;
                flow.close(file).await?;
            }
            flow.append(&log, self.next_entry(task.who)).await?;
        }
        log.close().await
    }
}

impl Webserver {
    /// Returns where the next entry of a client's log goes.
    fn next_entry(&self, who: Who) -> u64 {
        let mut logged = self.logged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let end = logged.entry(who.client).or_default();
        std::mem::replace(end, *end + self.settings.append_bytes)
    }
}
