//! CREATE_SESSION and DESTROY_SESSION (RFC 8881 §18.36, §18.37).

use std::sync::Arc;
use std::time::Duration;

use crate::ConnectionId;
use crate::state::root::State;
use crate::state::tables::backchannel::BackChannel;
use crate::state::tables::client_table::{Record, RecordEvent, RecordPhase};
use crate::state::tables::connections::Channels;
use crate::state::tables::persist::LoggedSlots;
use crate::state::tables::session::{
    CreateSession, MAX_SESSIONS_A_CLIENT, Session, negotiate_back, negotiate_fore,
};
use crate::state::tables::wire::{CreateSessionFlags, CreateSessionOk, SessionId, Status};

impl State {
    /// CREATE_SESSION (RFC 8881 §18.36), including its replays.
    ///
    /// # Errors
    /// STALE_CLIENTID, SEQ_MISORDERED, CLID_INUSE, TOOSMALL, INVAL (unknown flags), NOSPC (too many sessions), DELAY (no
    /// memory now; nothing has changed).
    pub fn create_session(
        &self,
        now: Duration,
        request: &CreateSession<'_>,
    ) -> Result<CreateSessionOk, Status> {
        let first = self.try_create_session(now, request);
        if !matches!(first.0, Err(Status::DELAY)) {
            self.release_records(first.1);
            return first.0;
        }
        // No memory: expired clients go, then one more attempt.
        self.remove_expired(now);
        let (result, removed) = self.try_create_session(now, request);
        self.release_records(removed);
        result
    }

    fn try_create_session(
        &self,
        now: Duration,
        request: &CreateSession<'_>,
    ) -> (Result<CreateSessionOk, Status>, Option<Record>) {
        let mut table = self.clients.lock();
        // Phase 1, client record lookup. A record whose time is over is removed even if no sweep has seen it.
        let is_late = |record: &Record| {
            record.phase() == RecordPhase::Unconfirmed && record.is_over(now, self.lease, false)
        };
        if table.record(request.client_id).is_some_and(is_late) {
            return (Err(Status::STALE_CLIENTID), table.remove(request.client_id, RecordEvent::Expire));
        }
        let Some(record) = table.record_mut(request.client_id).filter(|it| it.confirmation.is_none()) else {
            return (Err(Status::STALE_CLIENTID), None);
        };
        // Phase 3's "{ *, *, old_principal_arg, clientid_arg, * } … NFS4ERR_CLID_INUSE is returned to the client. No changes are
        // made to any client records on the server". It is checked before the slot changes, because another client could
        // make its sequence ID wrong otherwise. "If this would be the first session for the client ID, the CREATE_SESSION
        // operation serves to confirm the client ID. Otherwise, the client ID confirmation phase is skipped".
        if record.phase() == RecordPhase::Unconfirmed && record.client.principal() != request.principal {
            return (Err(Status::CLID_INUSE), None);
        }
        // Phase 2, sequence ID processing.
        if let Some(answer) = record.create.check(request.sequence) {
            return (answer, None);
        }
        let result = self.make_session(now, request, record);
        // A lack of memory is not a result: the client repeats the request. No session was made, so the slot stays.
        if matches!(result, Err(Status::DELAY)) {
            return (result, None);
        }
        record.create.set(request.sequence, result.clone());
        // Phase 3: "Once the session is successfully created, the scheduled client record replacement is committed. If the
        // session is not successfully created, then no changes are made to any client records on the server."
        let old = if result.is_ok() { table.confirm(request.client_id) } else { None };
        (result, old)
    }

    /// Phase 4, session creation.
    fn make_session(
        &self,
        now: Duration,
        request: &CreateSession<'_>,
        record: &mut Record,
    ) -> Result<CreateSessionOk, Status> {
        let known =
            CreateSessionFlags::PERSIST | CreateSessionFlags::CONN_BACK_CHAN | CreateSessionFlags::CONN_RDMA;
        if request.flags.bits() & !known.bits() != 0 {
            return Err(Status::INVAL);
        }
        // RFC 8881 §18.36.3: "If the RPCSEC_GSS handle identified by gcbp_handle_from_server does not exist on the server, the
        // server will return NFS4ERR_NOENT." After phase 2: the end of a context must not change a replayed success.
        if request.lacks_context {
            return Err(Status::NOENT);
        }
        let wants_back = request.flags.contains(CreateSessionFlags::CONN_BACK_CHAN);
        let fore = negotiate_fore(request.fore_channel, &self.settings)?;
        let back = negotiate_back(request.back_channel, wants_back)?;
        if record.sessions.len() >= MAX_SESSIONS_A_CLIENT {
            return Err(Status::NOSPC);
        }
        let id = self.ids.next_session_id(&record.client);
        let calls = (request.callback_program, request.security);
        let channel = BackChannel::new(id, request.minor, calls, back.clone());
        let client = Arc::clone(&record.client);
        let wants_persistence = request.flags.contains(CreateSessionFlags::PERSIST);
        let persistence = self.persistence.as_ref().filter(|_| wants_persistence);
        let persistence = persistence.filter(|keeps| keeps.admit(&id, &record.client, fore.max_requests));
        let session =
            Session::new(id, client, fore.clone(), channel, persistence.is_some(), self.settings.max_slots);
        let Some(session) = session else {
            persistence.inspect(|keeps| {
                keeps.leave(&id, &record.client, fore.max_requests, &LoggedSlots::default())
            });
            return Err(Status::DELAY);
        };
        // "The connection CREATE_SESSION that is sent over is associated with the session's fore channel."
        let channels = if wants_back { Channels::FORE | Channels::BACK } else { Channels::FORE };
        let is_bound = session.bind(request.connection, channels, request.outbox, &self.connections);
        record.client.renew(now);
        if record.phase() == RecordPhase::Unconfirmed && self.recovery.begin_reclaim(now, &record.client) {
            record.client.set_reclaiming();
        }
        record.sessions.push(id);
        let session = self.sessions.insert(session);
        self.add_callback_session(&session);
        if wants_back && is_bound {
            self.probe_back_channel(&session);
        }
        // "If the server does not or cannot provide a persistent reply cache, the server MUST NOT set
        // CREATE_SESSION4_FLAG_PERSIST in the field csr_flags." No RDMA.
        let mut flags = CreateSessionFlags::empty();
        flags.set(CreateSessionFlags::PERSIST, persistence.is_some());
        flags.set(CreateSessionFlags::CONN_BACK_CHAN, wants_back && is_bound);
        Ok(CreateSessionOk {
            session_id: id,
            sequence: request.sequence,
            flags,
            fore_channel: fore,
            back_channel: back,
        })
    }

    /// DESTROY_SESSION (RFC 8881 §18.37). In a compound of the same session, call it before
    /// [`SlotRequest::finish`](super::sequence::SlotRequest::finish), as any operation.
    ///
    /// # Errors
    /// BADSESSION; CONN_NOT_BOUND_TO_SESSION: "DESTROY_SESSION MUST be invoked on a connection that is associated with the
    /// session being destroyed."
    pub fn destroy_session(&self, connection: ConnectionId, id: &SessionId) -> Result<(), Status> {
        let Some(session) = self.sessions.get(id) else { return self.destroy_dead_session(id) };
        if !session.is_bound(connection) {
            return Err(Status::CONN_NOT_BOUND_TO_SESSION);
        }
        let mut table = self.clients.lock();
        if let Some(record) = table.record_mut(session.client.id()) {
            record.sessions.retain(|other| other != id);
        }
        self.remove_session(id);
        Ok(())
    }

    /// Removes a session. Its callbacks move to other sessions of the client.
    pub(crate) fn remove_session(&self, id: &SessionId) {
        if let Some(session) = self.sessions.remove(id) {
            session.close(&self.connections);
            self.abandon_session(&session);
            if let Some(persistence) = self.persistence.as_ref().filter(|_| session.is_persistent) {
                let slots = session.slots.granted();
                persistence.leave(id, &session.client, slots, &session.logged_slots);
            }
        }
    }
}
