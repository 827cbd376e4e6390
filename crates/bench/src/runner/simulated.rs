//! A run in a simulation: its clients are given from outside, and the time is the simulation's.

use std::cell::RefCell;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use client::Client;
use client::fs::FileSystem;
use futures_util::future::{join, join_all};

use super::assemble::{Share, assemble};
use super::execute::{Access, BASE, ClientWork as _, Counters, Place, Preparation, directory, workload};
use super::recorder::{Meter, Sleeper};
use super::task::{Task, Who};
use super::window::{VirtualClock, Window};
use crate::plan::Run;
use crate::result::RunResult;
use crate::server_counters::Exchanged;
use crate::targets::Files as _;
use crate::targets::nfs::NfsFiles;
use crate::trace::Recorded;
use crate::workloads::Any;

/// A future whose type stays in this crate, so that workloads are compiled here alone.
type Boxed<'s, T> = Pin<Box<dyn Future<Output = T> + 's>>;

/// A run whose clients live in a simulation.
pub struct Simulated {
    run: Run,
    workload: Any,
    window: Arc<Window>,
    path: String,
    shares: RefCell<Vec<Share>>,
}

impl Simulated {
    /// Takes a run without warm-up, and the simulation's clock.
    ///
    /// # Errors
    /// If there is no such workload.
    pub fn new(run: &Run, clock: VirtualClock) -> Result<Self, String> {
        let workload = workload(run)?;
        let meeting = run.case.clients as usize * (run.case.threads as usize + 1);
        let window = Window::new(workload.ends(), (run.warm_up, run.duration), meeting, Arc::default());
        Ok(Self {
            path: format!("{BASE}/{}", directory(run, &workload)),
            run: run.clone(),
            workload,
            window: Arc::new(window.with_clock(clock)),
            shares: RefCell::default(),
        })
    }

    /// Makes the files of the run by a client that is not measured.
    ///
    /// # Errors
    /// Why it failed.
    pub fn prepare(&self, client: Client, files: FileSystem) -> Boxed<'_, Result<(), String>> {
        Box::pin(self.prepare_files(client, files))
    }

    async fn prepare_files(&self, client: Client, files: FileSystem) -> Result<(), String> {
        let workload = workload(&self.run)?;
        let directory = directory(&self.run, &workload);
        let (clients, threads) = (self.run.case.clients, self.run.case.threads);
        let files = Recorded::new(NfsFiles::of(client, files), None);
        let preparation = Preparation { workload, directory, clients, threads };
        preparation.run(&files).await.map_err(|fault| format!("preparation: {fault}"))
    }

    /// Does the work of one client, which waits by `sleeper`. A failure ends the run.
    pub fn work(&self, number: u32, client: Client, files: FileSystem, sleeper: Sleeper) -> Boxed<'_, ()> {
        Box::pin(self.work_of(number, client, files, sleeper))
    }

    async fn work_of(&self, number: u32, client: Client, files: FileSystem, sleeper: Sleeper) {
        let files = Recorded::new(NfsFiles::of(client, files), None);
        let window = &self.window;
        let threads = self.run.case.threads;
        let inner = match files.enter(&self.path).await {
            Ok(inner) => inner,
            Err(fault) => {
                self.cannot_start(fault.to_string()).await;
                return;
            }
        };
        let meter = Meter::new(Arc::clone(window)).with_sleeper(sleeper);
        let work = (0..threads).map(|thread| {
            let who = Who { client: number, thread, threads, clients: self.run.case.clients };
            let task = Task::new(inner.for_thread(number, thread), who, self.run.seed, meter.clone());
            async move {
                if let Err(fault) = task.run(self.workload.work(&task)).await {
                    window.fail(fault.to_string());
                }
                window.now()
            }
        });
        let watch = async {
            let mut before = None;
            window.meet(|| before = Some(Counters::read(&files))).await;
            before
        };
        let (before, ended) = join(watch, join_all(work)).await;
        let (Some(before), after) = (before, Counters::read(&files)) else { return };
        self.shares.borrow_mut().push(Share {
            client: number,
            record: meter.take(),
            requests: after.requests_since(&before),
            client_counters: after.client_since(&before),
            exchanged: Exchanged::default(),
            ended: ended.into_iter().max().unwrap_or_else(|| window.now()),
        });
    }

    /// Ends the run because a client could not start. The others wait for its threads, and for itself.
    pub async fn cannot_start(&self, why: String) {
        self.window.fail(why);
        join_all((0..=self.run.case.threads).map(|_| self.window.meet(|| {}))).await;
    }

    /// Returns the result. It has nothing that depends on this machine's speed or time.
    #[must_use]
    pub fn result(self) -> RunResult {
        let place = Place::new(Access::Directory(PathBuf::from("/")), "simulation", Arc::default());
        let mut shares = self.shares.into_inner();
        shares.sort_by_key(|share| share.client);
        let ends = self.workload.ends();
        let mut result =
            assemble(&self.run, &place, &self.window, ends, SystemTime::UNIX_EPOCH, shares).result;
        result.client_resident_bytes = None;
        result
    }
}
