use core::net::IpAddr;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::{PROC_COMPOUND, PROC_NULL};
use rpc::auth::{AuthFlavor, AuthStatus};
use rpc::message::{
    AcceptStatus, CallError, CallHeader, MessageType, ReplyHeader, VersionRange, encode_success, peek,
};
use tracing::{debug, info, warn};
use xdr::{Encode, Mark, Reader, Writer};

use crate::caller::CredentialError;
use crate::copy::fetch::Fetches;
use crate::driver::Driver;
use crate::exports::HostNames;
use crate::files::listings::Listings;
use crate::gss::{Creation, Entry, Gss, Sealing};
use crate::identity::Identity;
use crate::programs::mount::MountTable;
use crate::replay::crash_replay;
use crate::replay::crash_replay::{Journal, ReplyLog, Stable, StableLog};
use crate::replay::reply_cache::ReplyCache;
use crate::replay::reply_cache::short::Short;
use crate::request::{Request, Served};
use crate::state::{Counts, DelegationCounts, OffloadCounts, Records, State};
use crate::{
    Connection, ConnectionId, ExportTable, LOG_LINES_A_SECOND, Metrics, Now, Observer, Operation, Settings,
    StateLog, Throttle, Transport, Versions,
};

mod version3;

/// The protocol servers over one set of exports, shared by all cores.
///
/// # Driving a server
/// A server does no I/O and reads no clock. A driver carries its records, tells it the time, and does the work that it asks for. Its
/// methods are of four kinds, and all may be called from any thread:
///
/// - Getters return state and change nothing: [`settings`](Self::settings), [`metrics`](Self::metrics), [`counts`](Self::counts),
///   [`exports`](Self::exports), …
/// - Commands do what an operator wants: [`replace_exports`](Self::replace_exports), [`evict`](Self::evict),
///   [`prepare_restart`](Self::prepare_restart), [`stop_fetching`](Self::stop_fetching), …
/// - `handle` and the `handle_*` methods take what has happened outside: a record, the outcome of work, a local change. So do
///   [`connection_closed`](Self::connection_closed), [`learn_host`](Self::learn_host) and [`maintain`](Self::maintain).
/// - `poll_*` methods return what the driver is to do: [`poll_work`](Self::poll_work), and for each connection
///   [`Outbox::poll_record`](crate::Outbox::poll_record). They wake the task that polled last when there is more.
///
/// Order of calls:
///
/// 1. Make the server with [`new`](Self::new), then [`with_state_log`](Self::with_state_log), then
///    [`with_reply_log`](Self::with_reply_log) or [`with_stable_log`](Self::with_stable_log), before anything is served.
/// 2. For each connection make a [`Connection`]. Call [`learn_host`](Self::learn_host) before its first record if the exports
///    [need names](ExportTable::needs_names).
/// 3. Give each record to [`handle`](Self::handle), poll its future until it ends, and send the reply. Futures of one connection may
///    run at the same time and end in any order. Send the records of its outbox too.
/// 4. Call [`connection_closed`](Self::connection_closed) once when the connection is gone. Run calls that still wait to their end.
/// 5. Poll [`poll_work`](Self::poll_work) from one task for as long as the server runs. Do each [`Work`](crate::Work) and report its
///    outcome; work may end in any order. Work that is dropped counts as failed, or is forgotten at shutdown.
/// 6. To stop, call [`stop_fetching`](Self::stop_fetching), so that no copy waits for reads that nobody makes.
///
/// Time: each method that needs the time takes a [`Now`]. Its monotonic part must not go backwards. Deadlines (leases, recalls,
/// retries of connections and copies) pass only in [`maintain`](Self::maintain): call it about once a second, and again at once while it
/// returns true.
#[derive(Debug)]
pub struct Server {
    pub(crate) settings: Settings,
    pub(crate) exports: ArcSwap<ExportTable>,
    host_names: Arc<HostNames>,
    pub(crate) metrics: Metrics,
    pub(crate) reply_cache: ReplyCache,
    /// Replies to WRITEs of version 4.0 apart: one client's stream of them must not push out others' REMOVEs and RENAMEs.
    pub(crate) write_reply_cache: ReplyCache,
    /// Those to version 3's.
    write3_reply_cache: ReplyCache<Short>,
    pub(crate) nfs4: State,
    /// Replies to READDIR that may be told again.
    pub(crate) listings: Listings,
    /// What copies read from other servers.
    pub(crate) fetches: Fetches,
    pub(crate) driver: Driver,
    /// Keys what tells calls apart; see [`crash_replay::secret`].
    pub(crate) call_secret: [u8; 16],
    /// What outlives the process of calls that are not idempotent.
    pub(crate) journal: Option<Journal>,
    pub(crate) mounts: MountTable,
    /// Exports that were replaced, while calls under way still use them.
    retired: Mutex<Vec<Weak<ExportTable>>>,
    observer: Option<Arc<dyn Observer>>,
    /// For log lines that clients cause.
    pub(crate) throttle: Throttle,
    /// Callers that prove who they are; none where there is nothing to prove it by.
    pub(crate) gss: Option<Gss>,
}

/// What the transport does after [`Server::handle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Sends what was written.
    Reply,
    /// Sends nothing.
    Drop,
    /// Closes the connection: what comes over it is not RPC, or a call that is not answered now has to come again over another
    /// one.
    Close,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// What to do now.
    pub disposition: Disposition,
    /// What it was.
    pub operation: Operation,
    /// Whether the answer, if any, says failure.
    pub is_error: bool,
}

/// RPC program numbers (RFC 1813 §2.1, §5; RFC 1833 §2).
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const PORTMAP: u32 = 100_000;
/// The side protocol for ACLs beside version 3.
const NFSACL: u32 = protocol::nfsacl::PROGRAM;

/// The port mapper's port (RFC 1833 §2.1).
const PORTMAP_PORT: u16 = protocol::portmap::PORT;

/// One part in so many of the reply cache is for version 4.0's WRITEs.
const WRITE_REPLY_SHARE: usize = 8;

/// One part in so many of the reply cache is for version 3's, whose replies are short there: 16,384 of them in 8 MiB.
const WRITE3_REPLY_SHARE: usize = 16;

impl Server {
    /// A server of `exports`.
    #[must_use]
    pub fn new(settings: Settings, exports: ExportTable) -> Self {
        let bytes = settings.reply_cache_bytes;
        let (write_share, write3_share) = (bytes / WRITE_REPLY_SHARE, bytes / WRITE3_REPLY_SHARE);
        let (call_secret, host_names) =
            (crash_replay::secret(&settings.handle_key), Arc::<HostNames>::default());
        let gss = settings.gss.clone().map(|mechanism| Gss::new(mechanism, settings.secret, call_secret));
        Self {
            reply_cache: ReplyCache::new(bytes - write_share - write3_share),
            write_reply_cache: ReplyCache::new(write_share),
            write3_reply_cache: ReplyCache::new(write3_share),
            nfs4: State::new(&settings, Records::default(), Duration::ZERO),
            listings: Listings::new(settings.kept_listings_bytes),
            fetches: Fetches::default(),
            driver: Driver::default(),
            call_secret,
            journal: None,
            settings,
            exports: ArcSwap::from_pointee(exports.with_names(Arc::clone(&host_names))),
            host_names,
            metrics: Metrics::default(),
            mounts: MountTable::default(),
            retired: Mutex::default(),
            observer: None,
            throttle: Throttle::new(LOG_LINES_A_SECOND),
            gss,
        }
    }

    /// Tells `observer` of operations.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
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
        let answered = self.nfs4.answered_before();
        let journal = Journal::new(log, records, answered, self.call_secret, now);
        Self { journal: Some(journal), ..self }
    }

    /// As [`Self::with_reply_log`], with a log that outlives the machine: with a state log, sessions are persistent then where
    /// clients ask for that (RFC 8881 §18.36.3), and calls of all versions are remembered as long as what they changed.
    #[must_use]
    pub fn with_stable_log(
        self,
        log: Arc<impl StableLog + 'static>,
        records: impl IntoIterator<Item = Bytes>,
        now: Now,
    ) -> Self {
        let stable = Arc::new(Stable::new(log.clone()));
        let mut server = self.with_reply_log(log, records, now);
        server.nfs4.keep_sessions(Arc::clone(&stable));
        Self { journal: server.journal.map(|journal| journal.with_stable(stable)), ..server }
    }

    /// Keeps what the next server must know of clients in `log`. `entries` are all keys with their values that are there; all
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
        let nfs4 = State::new(&self.settings, records, now.monotonic);
        nfs4.log_grace(now.monotonic);
        Self { nfs4, ..self }
    }

    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    /// What it was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it counted.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// How many NFSv4 clients, sessions, opens and so on there are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.nfs4.counts()
    }

    /// Whether the tables of NFSv4's state agree with each other and with the protocol's rules: for simulations and tests, between whose
    /// steps nothing is under way in them. It looks at everything, under every lock.
    ///
    /// # Errors
    /// The first that is not so.
    pub fn audit(&self) -> Result<(), String> {
        self.nfs4.audit()
    }

    #[cfg(test)]
    pub(crate) fn gss(&self) -> Option<&Gss> {
        self.gss.as_ref()
    }

    /// How many security contexts of RPCSEC_GSS there are.
    #[must_use]
    pub fn gss_contexts(&self) -> usize {
        self.gss.as_ref().map_or(0, |gss| gss.contexts.len())
    }

    /// Bytes that listings take which may be told again, and directories that are watched for that.
    #[must_use]
    pub fn kept_listings(&self) -> (usize, usize) {
        self.listings.usage()
    }

    /// What has happened to NFSv4 delegations.
    #[must_use]
    pub fn delegation_counts(&self) -> &DelegationCounts {
        self.nfs4.delegation_counts()
    }

    /// What has happened to copies in the background.
    #[must_use]
    pub fn offload_counts(&self) -> &OffloadCounts {
        self.nfs4.offload_counts()
    }

    /// The exports now.
    #[must_use]
    pub fn exports(&self) -> Arc<ExportTable> {
        self.exports.load_full()
    }

    /// Replaces all exports; calls under way finish with those they began with. Opens and locks in exports that are gone
    /// are revoked, so that their files are let go; what calls under way open there is, by [`Self::maintain`].
    pub fn replace_exports(&self, exports: ExportTable) {
        let exports = exports.with_names(Arc::clone(&self.host_names));
        let old = self.exports.swap(Arc::new(exports));
        self.retired.lock().push(Arc::downgrade(&old));
        drop(old);
        self.listings.clear();
        self.revoke_unserved();
    }

    /// Whether [`Self::learn_host`] has told the names of an address, and they are not forgotten.
    #[must_use]
    pub fn knows_host(&self, address: IpAddr) -> bool {
        self.host_names.knows(address)
    }

    /// Takes the names that the address of a client has, the canonical one and aliases, checked forwards and backwards by the
    /// driver. To be called before the first call of a connection, where [`ExportTable::needs_names`].
    pub fn learn_host(&self, address: IpAddr, names: Vec<String>) {
        self.host_names.learn(address, names);
    }

    /// Whether any call under way began with exports that were replaced since.
    #[must_use]
    pub fn has_retired_exports(&self) -> bool {
        self.retired.lock().iter().any(|table| table.strong_count() > 0)
    }

    fn revoke_unserved(&self) {
        let exports = self.exports.load();
        let served: HashSet<_> = exports.iter().chain(exports.nested()).map(|export| export.fsid).collect();
        self.nfs4.revoke_unserved(|fsid| served.contains(&fsid));
    }

    /// Revokes what calls have opened in exports that were replaced under them, until the last of these calls is over.
    fn revoke_retired(&self) {
        let mut retired = self.retired.lock();
        if retired.is_empty() {
            return;
        }
        // Looked at before: what nobody uses now cannot be opened in any more.
        retired.retain(|table| table.strong_count() > 0);
        self.revoke_unserved();
    }

    /// Looks after what clients hold: forgets those that went without a word. To be called about once a second; returns
    /// whether it should be called again at once, because it looks at a bounded number of clients at a time.
    pub fn maintain(&self, now: Now) -> bool {
        self.revoke_retired();
        if let Some(journal) = &self.journal {
            journal.maintain(now);
        }
        if let Some(gss) = &self.gss {
            gss.contexts.maintain(now.monotonic);
        }
        self.listings.maintain(now.monotonic);
        self.nfs4.expire(now.monotonic).more
    }

    /// To be called when a connection is gone: its sessions have one less.
    pub fn connection_closed(&self, connection: ConnectionId) {
        self.nfs4.connection_closed(connection);
    }

    /// Serves one RPC record: appends the reply, without record mark, to `reply`, or leaves it as it was.
    ///
    /// The future may be dropped at any time; a call that is cut off is then as if its reply were lost. Where it is run to
    /// its end although the connection is gone, an NFSv4.1 client that repeats the call over another finds its reply.
    pub async fn handle(
        &self,
        connection: &Arc<Connection>,
        now: Now,
        record: Bytes,
        reply: &mut Writer,
    ) -> Outcome {
        let start = reply.mark();
        if connection.outbox.is_used() && matches!(peek(&record), Ok((_, MessageType::REPLY))) {
            return self.replied(connection, record);
        }
        let mut reader = Reader::new(record);
        let mut header = match CallHeader::parse(&mut reader) {
            Ok(header) => header,
            Err(error) => return self.unreadable(connection, error, reply),
        };
        let (xid, procedure) = (header.xid, header.procedure);
        // What a call of RPCSEC_GSS has beside the others.
        let mut sealing = None;
        let identity = if header.credential.flavor == AuthFlavor::RPCSEC_GSS
            && let Some(gss) = &self.gss
        {
            match gss.enter(now, &mut header, &mut reader) {
                Entry::Call(identity, protection) => {
                    sealing = Some(protection);
                    identity
                }
                Entry::Creation(creation) => {
                    return Box::pin(
                        self.create_context(gss, connection, now, &header, creation, reader, reply),
                    )
                    .await;
                }
                entry => return self.turn_away(entry, xid, reply),
            }
        } else {
            let identified = connection.callers.lock().identify(&header.credential, &connection.owner);
            match identified {
                Ok(identity) => identity,
                // NULL does nothing, for anybody.
                Err(CredentialError::Claim(_)) if procedure == PROC_NULL => Identity::Anonymous,
                Err(error) => return self.refuse_credential(connection, now, xid, error, reply),
            }
        };
        let operation = match self.select(&header, connection) {
            Ok(operation) => operation,
            Err(status) => {
                self.metrics.unserved.fetch_add(1, Relaxed);
                let (operation, sealing) = (Operation::None, sealing.as_deref());
                return Call { xid, operation, sealing, start }.reject(status, reply);
            }
        };
        let is_compound = operation == Operation::Nfs4(PROC_COMPOUND);
        let mut request = Request {
            server: self,
            connection,
            now,
            identity,
            exports: self.exports.load(),
            arguments: if is_compound { reader.unread() } else { Bytes::new() },
            call: None,
            is_logged: AtomicBool::new(false),
            is_stable: AtomicBool::new(false),
            is_too_weak: AtomicBool::new(false),
            may_splice: connection.can_splice && sealing.as_ref().is_none_or(|it| it.leaves_plain()),
            reply_overhead: sealing.as_ref().map_or(0, |it| it.overhead()),
        };
        match &mut sealing {
            None => encode_success(reply, xid),
            Some(sealing) => sealing.begin(xid, reply),
        }
        let served = match operation {
            Operation::Nfs3(_) => self.nfs3(&mut request, &header, reader, reply).await,
            Operation::Nfs4(PROC_NULL) => Served::Done { is_error: false },
            Operation::Nfs4(PROC_COMPOUND) => {
                match crate::programs::nfs4::begin(&request, &header, reader, reply) {
                    crate::programs::nfs4::Begun::Done(served) => served,
                    crate::programs::nfs4::Begun::Waits(rest) => rest.await,
                }
            }
            Operation::Nfs4(_) => Served::NoProcedure,
            Operation::Mount(_) => {
                Box::pin(crate::programs::mount::procedure(&request, procedure, reader, reply)).await
            }
            Operation::NfsAcl(_) => Box::pin(self.nfs_acl(&request, &header, reader, reply)).await,
            Operation::Portmap(_) => {
                crate::programs::portmap::procedure(&request, header.version, procedure, reader, reply)
            }
            Operation::None => unreachable!("select names an operation"),
        };
        // Something was taken from a client, and this call may be the first to see that.
        crate::files::settle::settle_taken(&request).await;
        let sealing = sealing.as_deref();
        self.conclude(Call { xid, operation, sealing, start }, served, reply)
    }

    /// Ends a reply, as what became of the call has it.
    fn conclude(&self, call: Call<'_>, served: Served, reply: &mut Writer) -> Outcome {
        let Call { xid, operation, sealing, start } = call;
        match served {
            Served::Done { .. } | Served::Later if sealing.is_some_and(|it| !it.finish(reply)) => {
                // RFC 2203 §5.3.3.4.2, §5.3.3.4.4: no answer; the client finds a connection that does not work.
                reply.rewind(start);
                Outcome { disposition: Disposition::Close, operation, is_error: true }
            }
            Served::Done { is_error } => Outcome { disposition: Disposition::Reply, operation, is_error },
            Served::Later => Outcome { disposition: Disposition::Reply, operation, is_error: true },
            Served::GarbageArguments => {
                self.metrics.malformed.fetch_add(1, Relaxed);
                if let Some(counts) = self.metrics.call(operation) {
                    counts.count(true);
                }
                call.reject(AcceptStatus::GarbageArguments, reply)
            }
            Served::TooWeak => {
                reply.rewind(start);
                // RFC 5531 §9: AUTH_TOOWEAK, "rejected for security reasons".
                self.refuse(&ReplyHeader::auth_error(xid, AuthStatus::TOOWEAK), reply)
            }
            Served::NoProcedure => {
                self.metrics.unserved.fetch_add(1, Relaxed);
                call.reject(AcceptStatus::ProcedureUnavailable, reply)
            }
            Served::Drop => {
                reply.rewind(start);
                Outcome { disposition: Disposition::Drop, operation, is_error: false }
            }
            Served::Close => {
                reply.rewind(start);
                Outcome { disposition: Disposition::Close, operation, is_error: false }
            }
        }
    }

    /// A record that is no call, or none of a version of RPC that is spoken here.
    #[cold]
    fn unreadable(&self, connection: &Connection, error: CallError, reply: &mut Writer) -> Outcome {
        match error {
            CallError::Unanswerable(why) => {
                debug!(peer = %connection.peer, "record dropped: {why}");
                self.metrics.malformed.fetch_add(1, Relaxed);
                let (disposition, operation) = (Disposition::Close, Operation::None);
                Outcome { disposition, operation, is_error: true }
            }
            CallError::Refused(header) => self.refuse(&header, reply),
        }
    }

    /// An answer to a call of ours. What answers nothing (late, doubled, or made up) is let pass: it costs no memory.
    fn replied(&self, connection: &Connection, record: Bytes) -> Outcome {
        let is_expected = self.nfs4.replied(connection.id, &connection.outbox, record);
        if !is_expected {
            self.metrics.malformed.fetch_add(1, Relaxed);
        }
        let (disposition, operation) = (Disposition::Drop, Operation::None);
        Outcome { disposition, operation, is_error: !is_expected }
    }

    /// Finds what a call is for, or why nothing here serves it.
    fn select(&self, header: &CallHeader, connection: &Connection) -> Result<Operation, AcceptStatus> {
        let mismatch = |low, high| Err(AcceptStatus::ProgramMismatch(VersionRange { low, high }));
        // The port mapper's port is for the port mapper. Datagrams above all: their source can be forged, so that `clients`
        // would mean nothing and long answers would go to somebody who never asked; and RFC 8881 §2.9.1 forbids NFSv4.1
        // over UDP.
        let is_port_mapper =
            connection.transport == Transport::Udp || connection.local.port() == PORTMAP_PORT;
        if is_port_mapper && self.settings.portmap.is_some() && header.program != PORTMAP {
            return Err(AcceptStatus::ProgramUnavailable);
        }
        match (header.program, header.version) {
            (NFS, version) => match (version, self.settings.versions.program_versions()) {
                (_, None) => Err(AcceptStatus::ProgramUnavailable),
                (3, Some((3, _))) => Ok(Operation::Nfs3(header.procedure)),
                (4, Some((_, 4))) => Ok(Operation::Nfs4(header.procedure)),
                (_, Some((low, high))) => mismatch(low, high),
            },
            (MOUNT, 3) => Ok(Operation::Mount(header.procedure)),
            (MOUNT, _) => mismatch(3, 3),
            (NFSACL, version) if self.settings.versions.contains(Versions::V3) => match version {
                protocol::nfsacl::VERSION => Ok(Operation::NfsAcl(header.procedure)),
                _ => mismatch(protocol::nfsacl::VERSION, protocol::nfsacl::VERSION),
            },
            (PORTMAP, _) if self.settings.portmap.is_none() => Err(AcceptStatus::ProgramUnavailable),
            (PORTMAP, 2..=4) => Ok(Operation::Portmap(header.procedure)),
            (PORTMAP, _) => mismatch(2, 4),
            _ => Err(AcceptStatus::ProgramUnavailable),
        }
    }

    /// A call of RPCSEC_GSS that is not served.
    #[cold]
    fn turn_away(&self, entry: Entry, xid: u32, reply: &mut Writer) -> Outcome {
        let (operation, start) = (Operation::None, reply.mark());
        match entry {
            Entry::Denied(status) => self.refuse(&ReplyHeader::auth_error(xid, status), reply),
            Entry::Garbage(sealing) => {
                self.metrics.malformed.fetch_add(1, Relaxed);
                let call = Call { xid, operation, sealing: Some(&sealing), start };
                call.reject(AcceptStatus::GarbageArguments, reply)
            }
            _ => Outcome { disposition: Disposition::Drop, operation, is_error: true },
        }
    }

    /// A call that makes a security context (RFC 2203 §5.2): to a program that is served here.
    #[expect(clippy::too_many_arguments, reason = "all that a call is")]
    async fn create_context(
        &self,
        gss: &Gss,
        connection: &Connection,
        now: Now,
        header: &CallHeader,
        creation: Creation,
        arguments: Reader,
        reply: &mut Writer,
    ) -> Outcome {
        let (xid, start) = (header.xid, reply.mark());
        let call = |operation| Call { xid, operation, sealing: None, start };
        let operation = match self.select(header, connection) {
            Ok(operation) => operation,
            Err(status) => {
                self.metrics.unserved.fetch_add(1, Relaxed);
                return call(Operation::None).reject(status, reply);
            }
        };
        let Some(said) = gss.create(now, xid, creation, arguments, reply).await else {
            self.metrics.malformed.fetch_add(1, Relaxed);
            return call(operation).reject(AcceptStatus::GarbageArguments, reply);
        };
        let is_error = said.is_failure();
        if is_error && let Some(suppressed) = self.throttle.admit(now) {
            let (peer, major, minor) = (connection.peer, said.major, said.minor);
            info!(%peer, major = format_args!("{major:#x}"), minor, suppressed, "RPCSEC_GSS: no security context");
        }
        Outcome { disposition: Disposition::Reply, operation, is_error }
    }

    /// Answers a call whose credential is nobody's.
    #[cold]
    fn refuse_credential(
        &self,
        connection: &Connection,
        now: Now,
        xid: u32,
        error: CredentialError,
        reply: &mut Writer,
    ) -> Outcome {
        if let CredentialError::Claim(why) = error
            && connection.is_first_refusal()
            && let Some(suppressed) = self.throttle.admit(now)
        {
            warn!(peer = %connection.peer, suppressed, "calls refused: {why}");
        }
        self.refuse(&ReplyHeader::auth_error(xid, error.status()), reply)
    }

    /// Answers a call whose header is refused.
    fn refuse(&self, header: &ReplyHeader, reply: &mut Writer) -> Outcome {
        self.metrics.refused.fetch_add(1, Relaxed);
        header.encode(reply);
        Outcome { disposition: Disposition::Reply, operation: Operation::None, is_error: true }
    }
}

/// A call whose reply is being written.
#[derive(Clone, Copy)]
struct Call<'c> {
    xid: u32,
    operation: Operation,
    sealing: Option<&'c Sealing>,
    /// Where the reply begins.
    start: Mark,
}

impl Call<'_> {
    /// Replaces what was written by an answer without results.
    fn reject(self, status: AcceptStatus, reply: &mut Writer) -> Outcome {
        reply.rewind(self.start);
        match self.sealing {
            None => ReplyHeader::accepted(self.xid, status).encode(reply),
            Some(sealing) => sealing.reject(self.xid, status, reply),
        }
        Outcome { disposition: Disposition::Reply, operation: self.operation, is_error: true }
    }
}
