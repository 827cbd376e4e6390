//! A local process that changes files without the server, and a backend that reports it.
//!
//! It only opens a file under a write delegation, and changes it after the return. Other files it changes at once, and the server learns
//! of that a little later. Its writes must be visible once all clients that held the file's delegations then have returned or lost them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use vfs::around::{Around, Call, Method, Wrapped};
use vfs::{
    Backend, ChangeListener, Context as Caller, Credentials, Handle, Interest, MemFs, MemOptions, Op,
    Stability, Watch,
};

use super::client::name;
use super::history::History;
use super::{FILES, Subject};
use crate::backend::{Clock, Slow};
use crate::cluster::moment;
use crate::copies::at_once;
use crate::rng::Rng;

/// Changes in a run.
const CHANGES: u32 = 20;
/// Percent of events after which it acts.
const CHANGE_PERCENT: u64 = 3;
/// Maximum time until the server learns of a change.
const REPORT_DELAY_MAX: Duration = Duration::from_secs(3);
/// Time limit of a return before the revocation: a lease and an interval of `maintain`.
const RETURN_TIME_MAX: Duration = Duration::from_secs(90 + 12);
/// Delays of watches and of GETATTR.
const SLOW: Slow = Slow { percent: 30, slowest: Duration::from_secs(3) };

/// [`MemFs`] that reports the process's changes, with slow watches and attributes.
pub(super) type Shown = Wrapped<MemFs, Watches>;

/// A watch.
#[derive(Debug)]
pub(super) struct Watches {
    clock: Arc<Clock>,
    rng: Mutex<Rng>,
    watchers: Arc<Mutex<BTreeMap<u64, Watcher>>>,
    last: Mutex<u64>,
}

#[derive(Debug)]
struct Watcher {
    object: Handle,
    interest: Interest,
    listener: Arc<dyn ChangeListener>,
}

#[derive(Debug)]
struct Watching(u64, Arc<Mutex<BTreeMap<u64, Watcher>>>);

impl Watch for Watching {}

impl Drop for Watching {
    fn drop(&mut self) {
        self.1.lock().remove(&self.0);
    }
}

impl Around for Watches {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        match call.method {
            Method::Watch | Method::Getattr => SLOW.take(&self.clock, &self.rng, move || run(None)),
            _ => run(None),
        }
    }

    fn watch(
        &self,
        object: &Handle,
        interest: Interest,
        listener: &Arc<dyn ChangeListener>,
    ) -> Option<Box<dyn Watch>> {
        let mut last = self.last.lock();
        *last += 1;
        let watcher = Watcher { object: *object, interest, listener: Arc::clone(listener) };
        self.watchers.lock().insert(*last, watcher);
        Some(Box::new(Watching(*last, Arc::clone(&self.watchers))))
    }

    fn is_stable(&self, _: bool) -> bool {
        true
    }
}

impl Watches {
    /// Watches of each object.
    fn of(&self, object: &Handle) -> Vec<u64> {
        let watchers = self.watchers.lock();
        watchers.iter().filter(|(_, watcher)| watcher.object == *object).map(|(number, _)| *number).collect()
    }

    /// Returns whether any of them reports an open.
    fn reports_uses(&self, numbers: &[u64]) -> bool {
        let watchers = self.watchers.lock();
        numbers.iter().any(|number| watchers[number].interest == Interest::Uses)
    }

    /// Notifies the remaining watches.
    fn notify(&self, numbers: &[u64]) {
        let listeners: Vec<_> = {
            let watchers = self.watchers.lock();
            numbers.iter().filter_map(|number| Some(Arc::clone(&watchers.get(number)?.listener))).collect()
        };
        listeners.iter().for_each(|listener| listener.notify());
    }

    fn is_watching(&self, numbers: &[u64]) -> bool {
        let watchers = self.watchers.lock();
        numbers.iter().any(|number| watchers.contains_key(number))
    }
}

/// An action of the process that is not fully recalled.
#[derive(Debug)]
struct LocalOp {
    file: u64,
    /// The written value; none if it only opened the file.
    value: Option<u64>,
    watches: Vec<u64>,
    /// Times of the actions.
    at: Duration,
    is_reported: bool,
}

/// The local process.
#[derive(Debug)]
pub(super) struct Process {
    files: Arc<Shown>,
    rng: Rng,
    left: u32,
    actions: Vec<LocalOp>,
}

impl Process {
    /// Creates the process and its backend; it acts only if clients share files.
    pub(super) fn new(clock: &Arc<Clock>, subject: Subject, rng: &mut Rng) -> Self {
        let watches = Watches {
            clock: Arc::clone(clock),
            rng: Mutex::new(Rng::new(rng.next_u64())),
            watchers: Arc::default(),
            last: Mutex::new(0),
        };
        let files = Arc::new(Shown::of(MemFs::new(&MemOptions::default()), watches));
        let left = if subject == Subject::Files { CHANGES } else { 0 };
        Self { files, rng: Rng::new(rng.next_u64()), left, actions: Vec::new() }
    }

    pub(super) fn files(&self) -> &Arc<Shown> {
        &self.files
    }

    /// Lets it act sometimes, and reports its actions to the server.
    ///
    /// # Errors
    /// Returns an action without a recall in time.
    pub(super) fn act(&mut self, now: Duration, history: &mut History) -> Result<(), String> {
        let watches = self.files.around();
        for op in &mut self.actions {
            if !op.is_reported && op.at <= now {
                op.is_reported = true;
                watches.notify(&op.watches);
            }
        }
        self.actions.retain(|op| {
            let stays = watches.is_watching(&op.watches);
            if let Some(value) = op.value.filter(|_| !stays) {
                history.end_write(op.file, value);
            }
            stays
        });
        if let Some(op) = self.actions.iter().find(|op| op.at + RETURN_TIME_MAX < now) {
            return Err(format!("file {}: the change at {:?} is not recalled", op.file, op.at));
        }
        if self.left > 0 && self.rng.chance(CHANGE_PERCENT) {
            self.left -= 1;
            let file = self.rng.below(FILES);
            self.act_on(file, now, history);
        }
        Ok(())
    }

    fn act_on(&mut self, file: u64, now: Duration, history: &mut History) {
        let caller = Caller::new(Arc::new(Credentials::root()), moment(now).wall);
        let (disk, watches) = (self.files.inner(), self.files.around());
        let Ok(found) = at_once(disk.lookup(&caller, &disk.root(), name(file).as_bytes())) else { return };
        let watching = watches.of(&found.handle);
        let value = (!watches.reports_uses(&watching)).then(|| history.begin_write(file));
        if let Some(value) = value {
            let data = Bytes::copy_from_slice(&value.to_be_bytes());
            let authority = vfs::Authority::Opened;
            let written =
                at_once(disk.write(&caller, &found.handle, 0, &data, Stability::FileSync, authority));
            written.expect("there is room");
        }
        let at = now + Duration::from_micros(self.rng.below(REPORT_DELAY_MAX.as_micros() as u64));
        self.actions.push(LocalOp { file, value, watches: watching, at, is_reported: false });
    }
}
