use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::Guard;
use bytes::Bytes;
use tracing::{info, warn};
use vfs::{Context, Handle, Peer, Thread};

use crate::identity::Identity;
use crate::replay::crash_replay::{Directory, LoggedCall, LoggedOps};
use crate::shared::Shared;
use crate::{Connection, Export, ExportTable, Flavor, Now, Quoted, Transport, host_of};

/// Maximum bytes of a READ or WRITE over UDP.
const MAX_DATAGRAM_IO: u32 = 32 << 10;

/// A call in the server.
#[derive(Debug)]
pub(crate) struct Request<'s> {
    pub(crate) server: &'s Shared,
    pub(crate) connection: &'s Arc<Connection>,
    pub(crate) now: Now,
    pub(crate) identity: Identity,
    /// The exports at the time of the call's arrival.
    pub(crate) exports: Guard<Arc<ExportTable>>,
    /// A COMPOUND's arguments, for digests.
    pub(crate) arguments: Bytes,
    /// The call for the log of calls that outlives the process.
    pub(crate) logged: LoggedCall,
    /// Set when a call of version 3 names an object whose export does not take its flavor. The RPC reply then refuses the call. It is a flag
    /// because procedures return statuses, and no status means this.
    pub(crate) is_too_weak: AtomicBool,
    /// Whether READ data may stay in a file until they are sent.
    pub(crate) may_splice: bool,
    /// Maximum bytes that protection adds to the reply.
    pub(crate) reply_overhead: usize,
}

/// A file handle from the wire, resolved for one caller.
#[derive(Debug)]
pub(crate) struct Target<'r> {
    pub(crate) export: &'r Export,
    pub(crate) handle: Handle,
    pub(crate) context: Context,
}

/// The reason why a file handle is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetError {
    /// This server never issued it.
    BadHandle,
    /// Its export was removed.
    Stale,
    /// The client's address may not use the export.
    NotAdmitted,
    /// The export does not take the call's flavor; see [`Request::is_too_weak`].
    TooWeak,
    /// The export takes AUTH_SYS from ports below 1024 only.
    UnprivilegedPort,
    /// The file system is on other servers only.
    Moved,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// The results are in the reply; `is_error` if their status is an error.
    Done { is_error: bool },
    /// As [`Self::Done`], with an error that makes the client retry: the reply cache must not keep it.
    Later,
    /// The arguments cannot be decoded.
    GarbageArguments,
    /// The version has no such procedure.
    NoProcedure,
    /// The export takes other flavors: no results, and nothing for the reply cache.
    TooWeak,
    /// No reply: the client repeats the call and gets one then.
    Drop,
    /// No reply, and the connection closes: the client does not repeat the call on an open one.
    Close,
}

impl Request<'_> {
    /// Finds the file that a handle from the wire names, and the caller's identity there.
    pub(crate) fn target(&self, wire: &[u8]) -> Result<Target<'_>, TargetError> {
        self.allowed(self.target_by_any_flavor(wire)?)
    }

    /// Returns the target if its export takes the call's flavor.
    fn allowed<'r>(&self, target: Target<'r>) -> Result<Target<'r>, TargetError> {
        if !target.export.options.flavors.allow(self.identity.flavor()) {
            self.is_too_weak.store(true, Relaxed);
            return Err(TargetError::TooWeak);
        }
        Ok(target)
    }

    /// As [`Self::target`], for calls about an export's root before users have proven their identities.
    ///
    /// RFC 2623 §2.3.2: at the time of a mount, "the NFS client will use AUTH_NONE or AUTH_SYS for the initial NFS operations …
    /// While an attacker could exploit this implementation artifact, the exposure is limited to gaining the attributes of a
    /// file". Linux's server lets FSINFO and GETATTR through, of the root only, and its client relies on it.
    pub(crate) fn target_at_mount(&self, wire: &[u8]) -> Result<Target<'_>, TargetError> {
        let target = self.target_by_any_flavor(wire)?;
        if target.handle == target.export.backend.root() { Ok(target) } else { self.allowed(target) }
    }

    fn target_by_any_flavor(&self, wire: &[u8]) -> Result<Target<'_>, TargetError> {
        let metrics = &self.server.metrics;
        let Some((id, handle)) = self.server.settings.handle_key.open(wire) else {
            metrics.bad_handles.fetch_add(1, Relaxed);
            return Err(TargetError::BadHandle);
        };
        let Some(export) = self.exports.for_client(id, self.connection.peer.ip()) else {
            self.exports.by_id(id).ok_or(TargetError::Stale)?;
            metrics.refused.fetch_add(1, Relaxed);
            return Err(TargetError::NotAdmitted);
        };
        if self.is_port_refused(export) {
            return Err(TargetError::UnprivilegedPort);
        }
        if export.is_absent() {
            return Err(TargetError::Moved);
        }
        export.counts.requests.fetch_add(1, Relaxed);
        Ok(Target { export, handle, context: self.context(export) })
    }

    /// Returns whether the caller needs a port below 1024 for `export` and uses another. Counts it, and logs it once per connection.
    ///
    /// As exports(5): `secure`, the default, "requires that requests not using gss originate on an Internet port less than
    /// IPPORT_RESERVED (1024)".
    pub(crate) fn is_port_refused(&self, export: &Export) -> bool {
        let (options, flavor) = (&export.options, self.identity.flavor());
        let is_refused = self.connection.has_unprivileged_port()
            && !options.insecure
            && !matches!(flavor, Flavor::Kerberos(_))
            // If the export does not take the flavor, the port does not matter.
            && options.flavors.allow(flavor);
        if is_refused {
            self.server.metrics.refused.fetch_add(1, Relaxed);
            self.log_port_refusal(&export.path);
        }
        is_refused
    }

    #[cold]
    fn log_port_refusal(&self, export: &str) {
        if self.connection.is_first_refusal()
            && let Some(suppressed) = self.server.throttle.admit(self.now)
        {
            let peer = self.connection.peer;
            warn!(
                %peer, export, suppressed,
                "client refused: it sends from a port above 1023; have it use a privileged one (`resvport`), \
                 or allow others (`insecure = true`, --insecure)"
            );
        }
    }

    /// Returns whether the caller may register as a client of version 4. A user who sends from an unprivileged port could claim to be its
    /// machine's kernel, which would then lose its state. So such a caller needs an export for its address that takes such calls, or takes
    /// only Kerberos.
    pub(crate) fn may_be_client(&self) -> bool {
        let takes =
            |export: &Arc<Export>| export.options.insecure || !export.options.flavors.allow(Flavor::Sys);
        let is_vouched =
            !self.connection.has_unprivileged_port() || matches!(self.identity, Identity::Gss(..));
        let may = is_vouched || self.exports.of_client(self.connection.peer.ip()).any(takes);
        if !may {
            self.log_port_refusal("any");
        }
        may
    }

    /// Logs that a client of version 4 requested an export, or a directory above exports, that is for other clients. Logged once per
    /// connection, because the client only sees NOENT.
    #[cold]
    pub(crate) fn log_hidden_export(&self, name: &[u8]) {
        if self.connection.is_first_refusal()
            && let Some(suppressed) = self.server.throttle.admit(self.now)
        {
            let (peer, name) = (self.connection.peer, Quoted(name));
            info!(%peer, %name, suppressed, "export refused: its `clients` do not include this client");
        }
    }

    /// Returns the operations that this call of version 3 executes through the log.
    pub(crate) fn logged_ops(&self) -> LoggedOps<'_> {
        self.logged.set_has_operations();
        LoggedOps::new(self.server.journal.as_ref(), &self.logged, self.logged.owner, self.logged.id)
    }

    /// Waits until the log of this call is as durable as its changes. Called before the reply is sent.
    pub(crate) async fn sync_log(&self) {
        if self.logged.must_sync() {
            self.sync_log_of_earlier_call().await;
        }
    }

    /// Waits until the logs are durable, for the reply to a call that was executed before: its log may not be durable yet.
    pub(crate) async fn sync_log_of_earlier_call(&self) {
        if let Some(journal) = &self.server.journal {
            // One log is written while the other is synced.
            let kept = self.server.state.kept();
            journal.sync().await;
            // It never fails: see [`StateLog`](crate::StateLog).
            let _ = kept.await;
        }
    }

    /// Returns [`Identity::number`].
    pub(crate) fn caller_number(&self) -> u64 {
        self.logged.owner.caller
    }

    /// Returns the greatest length of a READ or WRITE in bytes. A reply over UDP must fit a datagram.
    pub(crate) fn max_io(&self) -> u32 {
        match self.connection.transport {
            Transport::Tcp => self.server.settings.max_io,
            Transport::Udp => self.server.settings.max_io.min(MAX_DATAGRAM_IO),
        }
    }

    /// Returns the caller's credentials on `export`, with the time, the peer and the use of the thread.
    pub(crate) fn context(&self, export: &Export) -> Context {
        Context {
            thread: self.thread(),
            peer: self.peer(),
            ..Context::new(self.identity.on(&export.options), self.now.wall)
        }
    }

    /// Returns the address and the connection of the request.
    pub(crate) fn peer(&self) -> Peer {
        Peer { address: Some(host_of(self.connection.peer.ip())), connection: self.connection.id.0 }
    }

    /// Returns the permitted uses of the calling thread.
    pub(crate) fn thread(&self) -> Thread {
        if self.connection.is_alone.load(Relaxed) { Thread::Exclusive } else { Thread::Shared }
    }
}

impl Target<'_> {
    /// Returns the target as a directory whose names change.
    pub(crate) fn place(&self) -> Directory<'_> {
        Directory { export: self.export, context: &self.context, directory: &self.handle }
    }
}
