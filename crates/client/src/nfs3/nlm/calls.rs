//! Calls of the lock manager: its connection, cookies, statuses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::types::Status;
use protocol::nlm::{self, Lock, NetObj, Proc, Stats, TestArgs, TestRes};
use rpc::message::parse_reply;
use xdr::{Decode, Encode};

use super::super::side::{Place, is_absent};
use super::Nlm;
use super::short::{Ranged, widened};
use super::table::Locker;
use crate::calls::{HeldPermit, Procedure, open_connection, start_record};
use crate::config::Caller;
use crate::engine::{CallError, ConnectionId, PendingCall, RetryPolicy};
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::LockRange;
use crate::url::Transport;

/// Number of refused or silent connections after which the lock manager's port is asked for again.
const RETRIES: u32 = 2;
/// Number of repetitions of a datagram after which the port is asked for again: with the usual timeout after 16.5 s.
const RETRIES_UDP: u32 = 3;
/// Number of searches for a lock manager that was never reached, at a server that refuses connections: half a minute.
const SEARCHES_MAX: u32 = 30;
/// The pause before the search for a lock manager that cannot be reached.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// The connection to the lock manager.
#[derive(Debug, Default)]
pub(super) struct Link {
    found: Option<Found>,
    /// Number of searches that succeeded.
    searches: u64,
}

/// A lock manager that was found.
#[derive(Debug, Clone, Copy)]
struct Found {
    connection: ConnectionId,
    port: u16,
    search: u64,
}

/// Identifies a connection: the search that found its port, and the number of times that it was made.
pub(super) type ConnectionIdentity = (u64, u64);

/// A call without a reply yet.
struct Sent {
    call: PendingCall,
    found: Found,
    identity: ConnectionIdentity,
    /// The epoch in which it was sent.
    epoch: u32,
}

/// A reply, and the epoch of the server that sent it; `None` if the connection changed meanwhile, or over datagrams the epoch, so that
/// it is not known which server executed the call.
pub(super) struct Replied<T> {
    pub(super) reply: T,
    pub(super) epoch: Option<u32>,
}

impl Nlm {
    pub(super) fn procedure(&self, procedure: Proc) -> Procedure {
        Procedure { program: nlm::PROGRAM, version: self.version, number: procedure.0 }
    }

    /// As [`Self::call`], for arguments with a range.
    ///
    /// # Errors
    /// As [`Self::call`]. EOVERFLOW if the range is one that the version of NLM does not have.
    pub(super) async fn call_ranged<T: Decode>(
        &self,
        caller: &Caller,
        number: Proc,
        arguments: &impl Ranged,
    ) -> Result<Replied<T>, OpError> {
        match self.version {
            nlm::VERSION => self.call(caller, number, arguments).await,
            _ => self.call(caller, number, &arguments.shortened()?).await,
        }
    }

    /// Calls TEST.
    pub(super) async fn call_test(&self, caller: &Caller, arguments: &TestArgs) -> Result<TestRes, OpError> {
        match self.version {
            nlm::VERSION => Ok(self.call(caller, Proc::TEST, arguments).await?.reply),
            _ => Ok(widened(self.call_ranged(caller, Proc::TEST, arguments).await?.reply)),
        }
    }

    /// Calls a procedure. A `hard` client repeats the call until the lock manager answers, and searches it again where it does not
    /// answer: it may have another port after a restart.
    ///
    /// # Errors
    /// ENOLCK if the server has no lock manager.
    pub(super) async fn call<T: Decode>(
        &self,
        caller: &Caller,
        number: Proc,
        arguments: &impl Encode,
    ) -> Result<Replied<T>, OpError> {
        let mut searches = 0;
        loop {
            let Sent { call, found, identity, epoch } = match self.send(caller, number, arguments).await {
                Ok(sent) => sent,
                Err(error) => {
                    searches += 1;
                    self.may_repeat(&error, searches).await?;
                    continue;
                }
            };
            let outcome = call.await;
            let now = (found.search, self.engine.connection_count(found.connection));
            match outcome {
                Ok(record) => {
                    self.note_connection(now);
                    let current = self.epochs.current();
                    let is_same = now == identity && (current == epoch || !self.uses_datagrams());
                    let reply = parse_reply(record)?;
                    return Ok(Replied { reply, epoch: is_same.then_some(current) });
                }
                Err(error) => {
                    self.forget_link(found.search).await;
                    self.may_repeat(&OpError::Call(error), searches).await?;
                }
            }
        }
    }

    /// Returns the error, unless the call may be repeated after a pause. A server that refuses connections may be starting: `searches`
    /// so far for a lock manager that was never reached are repeated for a while.
    async fn may_repeat(&self, error: &OpError, searches: u32) -> Result<(), OpError> {
        let is_hard = self.config.retry.retries.is_none();
        // The connection may have been closed by another call that failed.
        let is_closed = matches!(error, OpError::Call(CallError::Closed));
        let is_unreachable = matches!(error, OpError::Call(CallError::Unreachable(_) | CallError::TimedOut));
        let was_known = self.epochs.has_server();
        let is_refused = matches!(error, OpError::Call(CallError::Unreachable(_)));
        let may_come = is_unreachable && was_known || is_refused && searches < SEARCHES_MAX;
        if self.engine.is_shut_down() || !(is_closed || is_hard && may_come) {
            let is_missing = is_unreachable && !was_known;
            return Err(if is_missing { no_lock_manager() } else { error.clone() });
        }
        self.engine.sleep(SEARCH_PAUSE).await;
        Ok(())
    }

    /// Sends a call, after a search for the lock manager if its port is not known.
    async fn send(&self, caller: &Caller, number: Proc, arguments: &impl Encode) -> Result<Sent, OpError> {
        let permit = self.permits.take().await;
        // Locked until the call is queued: nothing closes its connection before.
        let mut link = self.link.lock().await;
        let found = match link.found {
            Some(found) => found,
            None => {
                let (connection, port) = self.search().await?;
                link.searches += 1;
                let found = Found { connection, port, search: link.searches };
                link.found = Some(found);
                found
            }
        };
        let identity = (found.search, self.engine.connection_count(found.connection));
        let epoch = self.epochs.current();
        let procedure = self.procedure(number);
        let held = Box::new(HeldPermit(permit));
        let call = self.engine.call_labelled(found.connection, procedure.label(), held, |xid| {
            let mut record = start_record(xid, caller, procedure);
            arguments.encode(record.writer());
            record.finish()
        });
        Ok(Sent { call, found, identity, epoch })
    }

    /// Finds the lock manager. Returns a connection to it, and its port.
    async fn search(&self) -> Result<(ConnectionId, u16), OpError> {
        let mut outcome = Err(no_lock_manager());
        let (mut is_silent, mut is_up) = (false, false);
        for place in Place::all(self.config.nlm_port, self.nfs_port) {
            outcome = self.connect(place).await;
            match &outcome {
                Err(error) if is_absent(error) => {}
                _ => return outcome,
            }
            is_silent =
                matches!(outcome, Err(OpError::Call(CallError::Unreachable(_) | CallError::TimedOut)));
            is_up |= !is_silent;
        }
        // Not there now, or not there at all: see `may_repeat`.
        let may_come = is_silent && (self.epochs.has_server() || !is_up);
        if may_come { outcome } else { Err(no_lock_manager()) }
    }

    async fn connect(&self, place: Place) -> Result<(ConnectionId, u16), OpError> {
        let (transport, program) = (self.config.transport, (nlm::PROGRAM, self.version));
        let port = place.port(&self.engine, transport, program, "this version of NLM").await?;
        let usual = match transport {
            Transport::Tcp => RETRIES,
            Transport::Udp => RETRIES_UDP,
        };
        let policy = RetryPolicy {
            retries: Some(self.config.retry.retries.unwrap_or(usual)),
            fails_fast: true,
            ..self.config.retry
        };
        let connection = open_connection(&self.engine, transport, port, policy)?;
        let null = self.procedure(Proc::NULL);
        let call = self.engine.call(connection, |xid| start_record(xid, &Caller::anonymous(), null).finish());
        let answered = call.await.map_err(OpError::from).and_then(|record| Ok(parse_reply::<()>(record)?));
        if let Err(error) = answered {
            self.engine.close_connection(connection);
            return Err(error);
        }
        Ok((connection, port))
    }

    /// Closes the connection that a search found, if it is still in use.
    async fn forget_link(&self, search: u64) {
        let mut link = self.link.lock().await;
        if let Some(found) = link.found.filter(|found| found.search == search) {
            link.found = None;
            self.engine.close_connection(found.connection);
        }
    }

    /// Returns whether calls are datagrams, so that no connection shows that the server has restarted.
    pub(super) fn uses_datagrams(&self) -> bool {
        self.config.transport == Transport::Udp
    }

    /// Calls NULL. The connection shows whether the server is the same as before.
    pub(super) async fn ping(&self) -> Result<(), OpError> {
        self.call::<()>(&Caller::anonymous(), Proc::NULL, &()).await.map(drop)
    }

    /// Returns the port of the lock manager, and notes its connection, after a search if it is not known.
    pub(super) async fn reach(&self) -> Result<u16, OpError> {
        let known = self.link.lock().await.found;
        if known.is_none() {
            self.ping().await?;
        }
        self.link.lock().await.found.map(|found| found.port).ok_or_else(no_lock_manager)
    }

    /// Returns a cookie that no other call has.
    pub(super) fn cookie(&self) -> NetObj {
        let number = self.last_cookie.fetch_add(1, Ordering::Relaxed) + 1;
        NetObj::new(Bytes::copy_from_slice(&number.to_be_bytes())).unwrap_or_default()
    }

    /// Returns a lock for the wire.
    pub(super) fn wire_lock(&self, locker: &Locker, range: LockRange) -> Lock {
        Lock {
            caller_name: self.name.clone(),
            // Handles of version 3 have at most 64 bytes.
            fh: NetObj::new(Bytes::copy_from_slice(&locker.file)).unwrap_or_default(),
            oh: self.owner_handle(locker.svid),
            svid: locker.svid,
            l_offset: range.offset(),
            // XNFS: a length of zero "means to the end of the file".
            l_len: range.length().unwrap_or(0),
        }
    }

    /// Returns the handle of an owner, as readable as that of Linux's client.
    pub(super) fn owner_handle(&self, svid: i32) -> NetObj {
        let handle = [format!("{svid}@").as_bytes(), &self.name].concat();
        NetObj::new(handle).unwrap_or_default()
    }
}

/// Checks that a reply is that of the call.
///
/// # Errors
/// [`OpError::BadReply`].
pub(super) fn check_cookie(sent: &NetObj, received: &NetObj) -> Result<(), OpError> {
    if sent == received { Ok(()) } else { Err(OpError::BadReply("the cookie of another call")) }
}

/// Returns the error for a status that says neither yes, nor no, nor later.
pub(super) fn refused(status: Stats) -> OpError {
    match status {
        Stats::DENIED => OpError::Status(Status::DENIED),
        Stats::DENIED_NOLOCKS => OpError::Invalid(Errno::ENOLCK, "the server has no room for another lock"),
        Stats::DEADLCK => OpError::Status(Status::DEADLOCK),
        Stats::ROFS => OpError::Status(Status::ROFS),
        Stats::STALE_FH => OpError::Status(Status::STALE),
        Stats::FBIG => OpError::Status(Status::FBIG),
        Stats::FAILED => OpError::Invalid(Errno::ENOLCK, "the server's lock manager refuses the lock"),
        _ => OpError::BadReply("an unknown status of a lock"),
    }
}

fn no_lock_manager() -> OpError {
    let why = "the server has no lock manager (NLM), or its port is not known: use version 4, `nlmport=` or `local_lock=`";
    OpError::Invalid(Errno::ENOLCK, why)
}
