//! Locks of versions 2 and 3: the client of the network lock manager (NLM version 4, for NFS version 2 NLM version 1; RFC 1813
//! Appendix II, XNFS) and of the network status monitor (NSM version 1).
//!
//! The server keeps locks without a lease. It calls back when a lock is free (GRANTED) and when it has restarted (SM_NOTIFY):
//! [`incoming`] answers these calls. Nothing relies on them: a waiter repeats its LOCK at growing intervals, and a call over another
//! connection than before makes all locks doubtful, so that [`recovery`] reclaims them; over UDP the status monitor is asked instead. A
//! forged call causes a request whose reply is believed, never a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use futures_util::future::join;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use protocol::nlm::{self, Name};

use crate::abandoned::Abandoned;
use crate::background::Signal;
use crate::config::{Config, Version};
use crate::engine::Engine;
use crate::error::OpError;
use crate::hand_over::LockerState;
use crate::locks::LockOwner;
use crate::permits::Permits;
use crate::results::FileHandle;

mod calls;
mod free_all;
mod incoming;
mod lock;
mod monitor;
mod recovery;
mod restore;
mod short;
mod table;
mod test;
mod unlock;

use calls::Link;
use monitor::Epochs;
use table::Table;

/// Maximum number of calls of the lock manager in flight.
const CALLS_MAX: usize = 64;
/// Maximum length in bytes of this machine's name.
const NAME_MAX: usize = 255;

/// The locks of a client of version 2 or 3.
pub(crate) struct Nlm {
    engine: Arc<Engine>,
    config: Arc<Config>,
    /// The port of NFS.
    nfs_port: u16,
    /// The version of NLM.
    version: u32,
    /// The name of this machine (`caller_name`).
    name: Name,
    /// The number of this start of the client (`state`): odd, as XNFS demands.
    state: i32,
    table: Arc<Table>,
    link: AsyncMutex<Link>,
    permits: Arc<Permits>,
    last_cookie: AtomicU64,
    epochs: Epochs,
    /// Results of GRANTED_MSG that are being sent.
    results: AtomicUsize,
    abandoned: Arc<Abandoned>,
    /// Whether the client ends or is handed over, so that nothing waits long for the server.
    is_ending: AtomicBool,
    /// Raised with the first lock, and when locks become doubtful.
    attention: Signal,
    wants_calls: AtomicBool,
    /// Wakes the tasks that wait for the first lock.
    listeners: Mutex<Vec<Waker>>,
}

impl Nlm {
    /// Creates the client of a lock manager, which is searched when it is needed.
    pub(super) fn new(engine: Arc<Engine>, config: Arc<Config>, nfs_port: u16, of_nfs: Version) -> Arc<Self> {
        let [seed, state] = [0, 4].map(|at| {
            let mut word = [0; 4];
            word.copy_from_slice(&config.verifier[at..at + 4]);
            u32::from_be_bytes(word)
        });
        let length = config.host_name.len().min(NAME_MAX);
        Arc::new(Self {
            engine,
            nfs_port,
            version: if of_nfs == Version::V2 { nlm::VERSION_1 } else { nlm::VERSION },
            name: Name::new(config.host_name.slice(..length)).unwrap_or_default(),
            config,
            // Some monitors take the number as unsigned.
            state: (state & 0x7fff_ffff).cast_signed() | 1,
            table: Table::new(seed),
            link: AsyncMutex::default(),
            permits: Arc::new(Permits::new(CALLS_MAX)),
            last_cookie: AtomicU64::new(0),
            epochs: Epochs::default(),
            results: AtomicUsize::new(0),
            abandoned: Arc::default(),
            is_ending: AtomicBool::new(false),
            attention: Signal::default(),
            wants_calls: AtomicBool::new(false),
            listeners: Mutex::default(),
        })
    }

    /// Keeps the locks, and finishes operations whose caller has gone. Does not end.
    pub(super) async fn run(&self) {
        join(self.keep_locks(), self.abandoned.run()).await;
    }

    /// Waits until operations whose caller has gone have ended. Those that repeat failed calls do so once more.
    pub(crate) async fn settle(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.abandoned.idle().await;
        self.is_ending.store(false, Ordering::Relaxed);
    }

    /// Returns the locks, for another process that continues the client.
    ///
    /// # Errors
    /// A request for one is under way.
    pub(crate) fn save(&self) -> Result<(Vec<LockerState>, u64), OpError> {
        self.table.save()
    }

    /// Takes the locks of another process.
    ///
    /// # Errors
    /// They are not valid.
    pub(crate) fn restore_all(&self, lockers: Vec<LockerState>, last: u64) -> Result<(), OpError> {
        let has_some = !lockers.is_empty();
        self.table.restore(lockers, last, self.epochs.current())?;
        if has_some {
            self.want_calls();
            self.attention.raise();
        }
        Ok(())
    }

    /// Returns whether one of these owners has lost a lock of the file.
    pub(crate) fn has_lost(&self, file: FileHandle, owners: &[LockOwner]) -> bool {
        self.table.has_lost(file, owners)
    }
}
