//! The state that the operations of a compound share (RFC 8881 §16.2.3): the current and saved file handles with their stateids,
//! the client and caller, and the remaining space of the reply. Attributes that one operation fetched are kept for the next, so that GETATTR
//! after LOOKUP needs no backend call. Operations take the compound as their argument; [`super::serve`] runs them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::{Stateid, Status};
use rpc::gss::Service;
use vfs::{Attributes, Context, GroupCommit};
use xdr::{Mark, Writer};

use super::status::{Failure, Result};
use crate::Export;
use crate::files::object::File;
use crate::identity::Identity;
use crate::replay::crash_replay::CallId;
use crate::request::Request;
use crate::shared::Shared;
use crate::state;
use crate::state::{Conflict, IoKind, IoPermit, MAX_OPERATIONS, Sequenced, SlotRequest};

mod group;
mod handles;
pub(crate) mod header;
mod logged;
mod security;

pub(in crate::programs::nfs4) use handles::FileHandle;
pub(crate) use header::Header;

/// Bytes of an accepted RPC reply's header without verifier, which the limits of a channel count in (RFC 5531 §9).
const RPC_REPLY_HEADER: usize = rpc::message::SUCCESS_HEADER_LENGTH;

/// The state that the operations of a compound share.
#[derive(Debug)]
pub(crate) struct Compound<'r> {
    pub(crate) request: &'r Request<'r>,
    pub(crate) minor: u32,
    /// Number of operations.
    pub(crate) count: u32,
    /// Offset of the arguments after the tag.
    body: usize,
    /// Index of the running operation.
    pub(crate) index: u32,
    pub(crate) current: Option<FileHandle<'r>>,
    pub(crate) saved: Option<(FileHandle<'r>, Stateid)>,
    /// The current stateid (RFC 8881 §16.2.3.1.2); anonymous until an operation sets it.
    stateid: Stateid,
    /// Attributes of the current object, if the previous operation fetched them.
    pub(crate) fresh: Option<Attributes>,
    /// The slot that SEQUENCE took.
    pub(crate) session: Option<SlotRequest>,
    limits: Limits,
    /// The status of every operation after SEQUENCE, if none may run.
    pub(crate) refusal: Option<Status>,
    /// Digest of the request, to detect a false retry.
    digest: u64,
    /// The ID of this compound in the crash-replay log, once an operation was logged.
    logged: Option<CallId>,
    /// The slot keeps its reply on stable storage.
    is_kept: bool,
    /// The ID of a 4.0 compound in the crash-replay log, known from its start.
    pub(crate) call: Option<CallId>,
    /// An operation ran that must not run twice.
    pub(crate) changed: bool,
    /// The client that sent a 4.0 compound, if known.
    sender: Option<std::sync::Arc<state::Client>>,
    /// The changes that become durable before the reply, once an operation may have made one.
    group: OnceLock<Arc<GroupCommit>>,
    /// Opens that were granted after a change that is not durable yet.
    granted: Vec<group::GrantedOpen>,
}

/// Limits of the reply in bytes, counted from the compound's status.
#[derive(Debug, Clone, Copy)]
struct Limits {
    start: Mark,
    reply: usize,
    cached: Option<usize>,
}

impl<'r> Compound<'r> {
    #[inline]
    pub(crate) fn new(request: &'r Request<'r>, header: &Header, start: Mark) -> Self {
        let settings = request.server.settings();
        let bytes = &request.arguments;
        let state = &request.server.state;
        let digest = state.digest(request.caller_number(), &bytes[header.tag..], bytes.len());
        // RFC 7530 §13.1.3.4: the server decides how many operations a compound may have.
        let is_long = header.minor == 0 && header.count > MAX_OPERATIONS;
        Self {
            request,
            minor: header.minor,
            count: header.count,
            body: header.tag,
            index: 0,
            current: None,
            saved: None,
            stateid: Stateid::ANONYMOUS,
            fresh: None,
            session: None,
            limits: Limits { start, reply: settings.max_record as usize, cached: None },
            refusal: is_long.then_some(Status::RESOURCE),
            digest,
            logged: None,
            is_kept: false,
            call: None,
            changed: false,
            sender: None,
            group: OnceLock::new(),
            granted: Vec::new(),
        }
    }

    /// Checks that the reply has room for `more` bytes.
    ///
    /// # Errors
    /// RFC 8881 §2.10.6.4: REP_TOO_BIG past the channel's limit; REP_TOO_BIG_TO_CACHE past the limit of a reply that the client
    /// wants cached.
    pub(crate) fn check_room(&self, reply: &Writer, more: usize) -> std::result::Result<(), Status> {
        let length = reply.length_since(self.limits.start) + more;
        if length > self.limits.reply {
            return Err(Status::REP_TOO_BIG);
        }
        match self.limits.cached {
            Some(cached) if length > cached => Err(Status::REP_TOO_BIG_TO_CACHE),
            _ => Ok(()),
        }
    }

    /// Returns the status for a reply without room for the smallest result.
    pub(crate) fn no_room(&self) -> Status {
        match self.limits.cached {
            Some(cached) if cached < self.limits.reply => Status::REP_TOO_BIG_TO_CACHE,
            _ => Status::REP_TOO_BIG,
        }
    }

    /// Returns the number of bytes of results that still fit, which READ and READDIR may fill.
    pub(crate) fn room(&self, reply: &Writer) -> usize {
        let limit = self.limits.cached.map_or(self.limits.reply, |cached| cached.min(self.limits.reply));
        limit.saturating_sub(reply.length_since(self.limits.start))
    }
}

/// The client, the caller and their state.
impl<'r> Compound<'r> {
    pub(crate) fn server(&self) -> &'r Shared {
        self.request.server
    }

    pub(crate) fn state(&self) -> &'r state::State {
        &self.request.server.state
    }

    /// Returns the mapping of user and group names, if configured.
    pub(crate) fn id_names(&self) -> Option<&'r crate::IdNames> {
        self.request.server.settings().id_names.as_deref()
    }

    pub(crate) fn exports(&self) -> &'r crate::ExportTable {
        &self.request.exports
    }

    /// Returns the monotonic time of the request.
    pub(crate) fn now(&self) -> Duration {
        self.request.now.monotonic
    }

    /// Returns the caller's credentials on `export`.
    pub(crate) fn context(&self, export: &Export) -> Context {
        self.request.context(export)
    }

    /// Returns the export as configured for this client; `None` if it does not exist or, which is counted, the client may not use it.
    pub(crate) fn export(&self, id: crate::ExportId) -> Option<&'r Export> {
        let (exports, client) = (self.exports(), self.request.connection.peer.ip());
        let export = exports.for_client(id, client);
        if export.is_none() && exports.by_id(id).is_some() {
            self.server().metrics().refused.fetch_add(1, Relaxed);
        }
        export.map(|export| &**export)
    }

    /// Returns the principal of the request, and whether its integrity is protected.
    pub(crate) fn credential(&self) -> state::Credential {
        let is_protected =
            matches!(self.request.identity, Identity::Gss(_, Service::Integrity | Service::Privacy));
        state::Credential { principal: self.principal(), is_protected }
    }

    /// Returns the principal of the request, for client records.
    pub(crate) fn principal(&self) -> state::Principal {
        match &self.request.identity {
            Identity::Anonymous => state::Principal::Anonymous,
            Identity::System(credentials) => state::Principal::System(credentials.uid),
            Identity::Gss(authenticated, _) => state::Principal::Gss(authenticated.exported.clone()),
        }
    }

    /// Returns a number that identifies the caller.
    pub(crate) fn caller(&self) -> u64 {
        self.request.caller_number()
    }

    /// Returns the sender of a 4.0 compound; `principal` is [`Self::principal`].
    pub(crate) fn sender<'p>(&self, principal: &'p state::Principal) -> state::V40Caller<'p> {
        state::V40Caller { caller: self.caller(), principal }
    }

    /// Returns the slot of this compound.
    pub(crate) fn session(&self) -> Option<&SlotRequest> {
        self.session.as_ref()
    }

    /// Returns the client of the session.
    pub(crate) fn client(&self) -> Result<&std::sync::Arc<state::Client>> {
        let running = self.session.as_ref().ok_or(Failure::Status(Status::OP_NOT_IN_SESSION))?;
        Ok(running.client())
    }

    /// Checks that the stateid `given` permits I/O on `file`.
    pub(crate) fn check_io(&self, file: &File<'_>, given: Stateid, kind: IoKind) -> Result<IoPermit> {
        let stateid = self.stateid(given)?;
        let key = file.key(self.server());
        let (state, now) = (self.state(), self.now());
        let permit = if self.minor == 0 {
            let holder = state.holder(now, &stateid)?;
            if !stateid.is_special() {
                self.request.connection.v40_owner.note(&holder);
            }
            state.check_io(now, &holder, key, &stateid, kind)?
        } else {
            match state.check_io(now, self.client()?, key, &stateid, kind) {
                // RFC 7862 §4.3.1: a COPY_NOTIFY stateid, which another client obtained.
                Err(Status::BAD_STATEID) if kind == IoKind::Read => {
                    let reader = self.request.connection.peer.ip();
                    return Ok(state.check_copy_notify(now, key, &stateid, reader)?);
                }
                permit => permit?,
            }
        };
        Ok(permit.for_caller(self.caller()))
    }

    /// Returns whether a stateid belongs to another client, for this file.
    pub(crate) fn is_other_clients_stateid(&self, file: &File<'_>, given: Stateid) -> Result<bool> {
        let stateid = self.stateid(given)?;
        Ok(self.state().is_other_clients_stateid(self.client()?, file.key(self.server()), &stateid))
    }

    /// Returns the client that sent the compound, if known.
    pub(crate) fn who(&self) -> Option<&state::Client> {
        self.client().ok().or(self.sender.as_ref()).map(|client| &**client)
    }

    /// Finds the client of a 4.0 connection, if it is not known yet and delegations need it.
    pub(crate) fn find_sender(&mut self) {
        if self.minor == 0 && self.sender.is_none() && self.state().has_delegations(Conflict::Any) {
            self.sender = self.request.connection.v40_owner.get();
        }
    }

    /// Records the client that a 4.0 operation names.
    pub(crate) fn set_sender(&mut self, client: std::sync::Arc<state::Client>) {
        self.request.connection.v40_owner.note(&client);
        self.sender = Some(client);
    }

    /// Takes the slot that SEQUENCE names.
    pub(crate) fn begin(&mut self, arguments: &SequenceArgs) -> Result<Sequenced> {
        let connection = self.request.connection.id;
        match self.state().sequence(self.now(), connection, arguments, self.digest) {
            Err(Status::BADSESSION) => self.recall_unknown(arguments),
            sequenced => Ok(sequenced?),
        }
    }

    /// Continues in a slot, within the limits of its channel.
    pub(crate) fn enter(&mut self, running: SlotRequest) {
        let channel = running.channel();
        let header = RPC_REPLY_HEADER + self.request.reply_overhead;
        let payload = |limit: u32| (limit as usize).saturating_sub(header);
        self.limits.reply = self.limits.reply.min(payload(channel.max_response_size));
        self.limits.cached = running.cache_this().then(|| payload(channel.max_response_size_cached));
        // RFC 8881 §2.10.6.4: SEQUENCE may return these errors, and must then leave its slot unchanged; or the operations after it.
        if self.count > channel.max_operations {
            self.refusal = Some(Status::TOO_MANY_OPS);
        } else if self.request.arguments.len() > channel.max_request_size as usize {
            self.refusal = Some(Status::REQ_TOO_BIG);
        }
        self.session = Some(running);
    }

    /// Fails all operations after SEQUENCE with `status`.
    pub(crate) fn refuse_rest(&mut self, status: Status) {
        self.refusal = Some(status);
    }
}

/// Writes a directory's `change_info4`.
pub(crate) fn put_change(change: &vfs::Change, reply: &mut Writer) {
    reply.bool(change.atomic);
    reply.u64(change.before.change);
    reply.u64(change.after.change);
}
