use core::net::IpAddr;
use std::collections::HashSet;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::exports::HostNames;
#[cfg(test)]
use crate::gss::Gss;
use crate::programs::mount::MountTable;
use crate::programs::nfs2::cookies::ShortCookies;
use crate::replay::crash_replay::{CallLog, ReplyLog, Stable, StableLog};
use crate::replay::reply_cache::ReplyCache;
use crate::replay::reply_cache::short::Short;
use crate::shared::Shared;
use crate::state::{Counts, DelegationCounts, OffloadCounts, Records, State};
use crate::work::Driver;
use crate::{ConnectionId, ExportTable, Metrics, Now, Observer, Settings, StateLog};

/// The protocol servers over one set of exports, shared by all cores.
///
/// # Driving a server
/// A server does no I/O and reads no clock. A driver carries its records, passes the time, and does the work that it requests. Its
/// methods are of four kinds, and all may be called from any thread:
///
/// - Getters return state and change nothing: [`settings`](Self::settings), [`metrics`](Self::metrics), [`counts`](Self::counts),
///   [`exports`](Self::exports), …
/// - Commands of an operator: [`replace_exports`](Self::replace_exports), [`evict`](Self::evict),
///   [`prepare_restart`](Self::prepare_restart), [`stop_fetching`](Self::stop_fetching), …
/// - `handle` and the `handle_*` methods take outside events: a record, the outcome of work, a local change. So do
///   [`connection_closed`](Self::connection_closed), [`learn_host`](Self::learn_host) and [`maintain`](Self::maintain).
/// - `poll_*` methods return the driver's next action: [`poll_work`](Self::poll_work), and for each connection
///   [`Outbox::poll_record`](crate::Outbox::poll_record). They wake the task that polled last when there is more.
///
/// Order of calls:
///
/// 1. Create the server with [`new`](Self::new), then [`with_state_log`](Self::with_state_log), then
///    [`with_reply_log`](Self::with_reply_log) or [`with_stable_log`](Self::with_stable_log), before anything is served.
/// 2. For each connection create a [`Connection`]. Call [`learn_host`](Self::learn_host) before its first record if the exports
///    [need names](ExportTable::needs_names).
/// 3. Give each record to [`handle`](Self::handle), poll its future until it ends, and send the reply. Futures of one connection may
///    run at the same time and end in any order. Send the records of its outbox too.
/// 4. Call [`connection_closed`](Self::connection_closed) once when the connection is closed. Run calls that still wait to their end.
/// 5. Poll [`poll_work`](Self::poll_work) from one task for as long as the server runs. Do each [`Work`](crate::Work) and report its
///    outcome; work may end in any order. Work that is dropped counts as failed, or is forgotten at shutdown.
/// 6. To stop, call [`stop_fetching`](Self::stop_fetching), so that no copy waits for reads that no driver makes.
///
/// Time: each method that needs the time takes a [`Now`]. Its monotonic part must not go backwards. Deadlines (leases, recalls,
/// retries of connections and copies) pass only in [`maintain`](Self::maintain): call it about once a second, and again at once while it
/// returns true.
#[derive(Debug)]
pub struct Server {
    pub(crate) shared: Shared,
    host_names: Arc<HostNames>,
    /// Replies to WRITEs of versions 2 and 3.
    pub(crate) write_reply_cache: ReplyCache<Short>,
    pub(crate) driver: Driver,
    pub(crate) mounts: MountTable,
    /// Cookies of READDIR in version 2.
    pub(crate) nfs2_cookies: ShortCookies,
    /// Exports that were replaced while calls still use them.
    retired: Mutex<Vec<Weak<ExportTable>>>,
}

/// The part of the reply cache, as a divisor, for the WRITEs of versions 2 and 3, whose replies are short there: 16,384 of them in 8 MiB.
const WRITE_REPLY_SHARE: usize = 16;

impl Server {
    /// Creates a server of `exports`.
    #[must_use]
    pub fn new(settings: Settings, exports: ExportTable) -> Self {
        let bytes = settings.reply_cache_bytes;
        let write_bytes = bytes / WRITE_REPLY_SHARE;
        let host_names = Arc::<HostNames>::default();
        let shared = Shared::new(settings, exports.with_names(Arc::clone(&host_names)), bytes - write_bytes);
        Self {
            nfs2_cookies: ShortCookies::new(shared.call_secret),
            shared,
            host_names,
            write_reply_cache: ReplyCache::new(write_bytes),
            driver: Driver::default(),
            mounts: MountTable::default(),
            retired: Mutex::default(),
        }
    }

    /// Reports operations to `observer`.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { shared: Shared { observer: Some(observer), ..self.shared }, ..self }
    }

    /// Writes calls that are not idempotent to `log`. `records` are those that processes before this one appended there, the
    /// oldest first; all of these processes must have ended before `now`.
    #[must_use]
    pub fn with_reply_log(
        self,
        log: Arc<dyn ReplyLog>,
        records: impl IntoIterator<Item = Bytes>,
        now: Now,
    ) -> Self {
        let answered = self.shared.state.persisted_requests();
        let journal = CallLog::new(log, records, answered, self.shared.call_secret, now);
        Self { shared: Shared { journal: Some(journal), ..self.shared }, ..self }
    }

    /// As [`Self::with_reply_log`], with a log that outlives the machine: with a state log, sessions are persistent then if
    /// clients request that (RFC 8881 §18.36.3), and calls of all versions are remembered as long as their changes.
    #[must_use]
    pub fn with_stable_log(
        self,
        log: Arc<impl StableLog + 'static>,
        records: impl IntoIterator<Item = Bytes>,
        now: Now,
    ) -> Self {
        let stable = Arc::new(Stable::new(log.clone()));
        let mut server = self.with_reply_log(log, records, now);
        server.shared.state.set_call_log(Arc::clone(&stable));
        server.shared.journal = server.shared.journal.map(|journal| journal.with_stable(stable));
        server
    }

    /// Keeps the records of clients for the next server in `log`. `entries` are all its keys with their values; all
    /// servers that wrote there must have ended before `now`. To be called before anything is served, and before
    /// [`Self::with_reply_log`].
    #[must_use]
    pub fn with_state_log(
        self,
        log: Arc<dyn StateLog>,
        entries: impl IntoIterator<Item = (Bytes, Bytes)>,
        now: Now,
    ) -> Self {
        let (entries, read_at) = (entries.into_iter().collect(), now.wall);
        let records = Records { log: Some(log), entries, read_at };
        let state = State::new(&self.shared.settings, records, now.monotonic);
        state.log_grace(now.monotonic);
        if self.shared.settings.serves_nlm() {
            state.notify_hosts();
        }
        Self { shared: Shared { state, ..self.shared }, ..self }
    }

    /// Returns the settings that it was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns its counters.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Returns the numbers of NFSv4 clients, sessions, opens and so on.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state.counts()
    }

    /// Checks that the tables of NFSv4's state agree with each other and with the protocol's rules. For simulations and tests, while no call
    /// runs: it takes every lock.
    ///
    /// # Errors
    /// The first violation.
    pub fn audit(&self) -> Result<(), String> {
        self.shared.state.audit()
    }

    #[cfg(test)]
    pub(crate) fn gss(&self) -> Option<&Gss> {
        self.shared.gss.as_ref()
    }

    /// Returns the number of security contexts of RPCSEC_GSS.
    #[must_use]
    pub fn gss_contexts(&self) -> usize {
        self.shared.gss.as_ref().map_or(0, |gss| gss.contexts.len())
    }

    /// Returns the bytes in the listing cache, and the number of directories watched for it.
    #[must_use]
    pub fn cached_listings(&self) -> (usize, usize) {
        self.shared.listings.usage()
    }

    /// Returns the counters of NFSv4 delegations.
    #[must_use]
    pub fn delegation_counts(&self) -> &DelegationCounts {
        self.shared.state.delegation_counts()
    }

    /// Returns the number of calls to lock managers and status monitors of clients that wait or are being made.
    #[must_use]
    pub fn host_calls(&self) -> usize {
        self.shared.state.host_calls()
    }

    /// Returns the counters of background copies.
    #[must_use]
    pub fn offload_counts(&self) -> &OffloadCounts {
        self.shared.state.offload_counts()
    }

    /// Returns the current exports.
    #[must_use]
    pub fn exports(&self) -> Arc<ExportTable> {
        self.shared.exports.load_full()
    }

    /// Replaces all exports. Running calls finish with the exports that they began with. Opens and locks in exports that were removed
    /// or have moved are revoked, so that their files are closed; [`Self::maintain`] revokes those that running calls still make there.
    pub fn replace_exports(&self, exports: ExportTable) {
        let exports = exports.with_names(Arc::clone(&self.host_names));
        let old = self.shared.exports.swap(Arc::new(exports));
        self.retired.lock().push(Arc::downgrade(&old));
        drop(old);
        self.shared.listings.clear();
        self.revoke_unserved();
    }

    /// Returns whether the names of an address are known by [`Self::learn_host`].
    #[must_use]
    pub fn knows_host(&self, address: IpAddr) -> bool {
        self.host_names.knows(address)
    }

    /// Takes the host names of an address, the canonical one and aliases. The driver has checked them forwards and backwards. Called before the
    /// first call of a connection, if [`ExportTable::needs_names`].
    pub fn learn_host(&self, address: IpAddr, names: Vec<String>) {
        self.host_names.learn(address, names);
    }

    /// Returns whether any running call began with exports that were replaced since.
    #[must_use]
    pub fn has_retired_exports(&self) -> bool {
        self.retired.lock().iter().any(|table| table.strong_count() > 0)
    }

    fn revoke_unserved(&self) {
        let exports = self.shared.exports.load();
        let present = exports.iter().chain(exports.nested()).filter(|export| !export.is_absent());
        let served: HashSet<_> = present.map(|export| export.fsid).collect();
        self.shared.state.revoke_unserved(|fsid| served.contains(&fsid));
    }

    /// Revokes opens that calls make in replaced exports, until the last of these calls is over.
    fn revoke_retired(&self) {
        let mut retired = self.retired.lock();
        if retired.is_empty() {
            return;
        }
        // Before the revocation: in an unused table, nothing can be opened any more.
        retired.retain(|table| table.strong_count() > 0);
        self.revoke_unserved();
    }

    /// Expires clients and other state. Called about once a second. Returns whether to call it again at once, because it visits a bounded
    /// number of clients at a time.
    pub fn maintain(&self, now: Now) -> bool {
        self.revoke_retired();
        if let Some(journal) = &self.shared.journal {
            journal.maintain(now);
        }
        if let Some(gss) = &self.shared.gss {
            gss.contexts.maintain(now.monotonic);
        }
        self.shared.listings.maintain(now.monotonic);
        self.shared.state.expire(now.monotonic).more
    }

    /// Returns the number of READs on other servers that run, or whose answers were not taken.
    #[must_use]
    pub fn fetch_count(&self) -> usize {
        self.shared.fetches.count()
    }

    /// Stops reading from other servers permanently. Pending and later reads end with
    /// [`FetchError::Unreachable`](crate::FetchError::Unreachable) at once.
    pub fn stop_fetching(&self) {
        self.shared.fetches.close();
    }

    /// Notes that a connection closed.
    pub fn connection_closed(&self, connection: ConnectionId) {
        self.shared.state.connection_closed(connection);
    }
}
