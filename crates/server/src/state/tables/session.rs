//! Sessions, and their negotiation by CREATE_SESSION (RFC 8881 §18.36).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use super::backchannel::BackChannel;
use super::callback::{Outbox, Sent};
use super::client::Client;
use super::connections::{Binding, BoundConnections, Channels, Connections};
use super::persist::LoggedSlots;
use super::principal::Principal;
use super::slot::{CACHED_REPLY_MAX, SlotTable};
use super::window::Window;
use super::wire::{
    ChannelAttributes, ClientId, CreateSessionFlags, SecParmsList, SequenceStatus, SessionId, Status,
};
use crate::{ConnectionId, Settings};

/// Maximum number of operations in a compound. The Linux client requests 8 to 64; other clients build longer compounds.
pub const MAX_OPERATIONS: u32 = 256;
/// Maximum number of sessions of one client. Linux's client has one.
pub(crate) const MAX_SESSIONS_A_CLIENT: usize = 64;
/// Bytes of the shortest call: RPC header with AUTH_NONE (40), tag, minor version and count (12), SEQUENCE (36).
const MIN_REQUEST: u32 = 88;
/// Bytes of the shortest reply: RPC header with AUTH_NONE (24), status, tag and count (12), SEQUENCE (44).
pub(crate) const MIN_RESPONSE: u32 = 80;
/// Bytes of the shortest callback: RPC header (40), tag, minor version, ident and count (16), CB_SEQUENCE (40).
const MIN_CALLBACK: u32 = 96;
/// Bytes of its reply: RPC header (24), status, tag and count (12), CB_SEQUENCE (40).
const MIN_CALLBACK_RESPONSE: u32 = 76;

/// Arguments of CREATE_SESSION.
#[derive(Debug, Clone, Copy)]
pub struct CreateSession<'a> {
    /// `csa_clientid`.
    pub client_id: ClientId,
    /// `csa_sequence`.
    pub sequence: u32,
    /// `csa_flags`.
    pub flags: CreateSessionFlags,
    /// `csa_fore_chan_attrs`.
    pub fore_channel: &'a ChannelAttributes,
    /// `csa_back_chan_attrs`.
    pub back_channel: &'a ChannelAttributes,
    /// `csa_cb_program`.
    pub callback_program: u32,
    /// `csa_sec_parms`.
    pub security: &'a SecParmsList,
    /// Whether only RPCSEC_GSS contexts are offered for callbacks, and one of them does not exist.
    pub lacks_context: bool,
    /// The minor version of the compound; callbacks of the session use it too.
    pub minor: u32,
    /// The caller.
    pub principal: &'a Principal,
    /// The connection of the request.
    pub connection: ConnectionId,
    /// The queue for callbacks over that connection; `None` if it cannot carry any.
    pub outbox: Option<&'a Arc<Outbox>>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) client: Arc<Client>,
    pub(crate) fore: ChannelAttributes,
    pub(crate) slots: SlotTable,
    /// Whether it outlives the server: `CREATE_SESSION4_FLAG_PERSIST`.
    pub(crate) is_persistent: bool,
    pub(crate) logged_slots: LoggedSlots,
    /// The connection seen last, plus one, so that most requests need no access to `bound`; 0 for none.
    pub(crate) last_connection: AtomicU64,
    pub(crate) bound: RwLock<BoundConnections>,
    pub(crate) back: Mutex<BackChannel>,
    /// Server and client disagree about the slots of the back channel.
    pub(crate) has_fault: AtomicBool,
    /// The slots that the client may use since the last CB_RECALL_SLOT; 0 if none was sent, or memory is no longer scarce.
    pub(crate) recalled_slots: AtomicU32,
    /// A callback may be lost, and no connection can carry it again.
    pub(crate) has_lost_callback: AtomicBool,
}

impl Session {
    /// Creates a session with negotiated `fore` and `back` that grows to at most `max_slots`; `None` if there is no memory for it.
    pub(crate) fn new(
        id: SessionId,
        client: Arc<Client>,
        fore: ChannelAttributes,
        back: BackChannel,
        is_persistent: bool,
        max_slots: u32,
    ) -> Option<Self> {
        // The log entry of a persistent session has its number of slots at creation.
        let most = if is_persistent { fore.max_requests } else { max_slots };
        let window = Window::new(fore.max_requests, most);
        let slots = SlotTable::new(window, fore.max_response_size_cached, &client.slot_memory)?;
        let last_connection = AtomicU64::new(0);
        let bound = RwLock::new(BoundConnections::default());
        let back = Mutex::new(back);
        let (has_fault, has_lost_callback) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(Self {
            id,
            client,
            fore,
            slots,
            is_persistent,
            logged_slots: LoggedSlots::new(is_persistent),
            last_connection,
            bound,
            back,
            has_fault,
            recalled_slots: AtomicU32::new(0),
            has_lost_callback,
        })
    }
}

impl Session {
    /// Binds a connection to the fore channel, as every SEQUENCE does. §18.34.3: "When SP4_NONE protection is used, simply
    /// sending a COMPOUND request with a SEQUENCE operation is sufficient to associate the connection".
    pub(crate) fn touch(&self, connection: ConnectionId, connections: &Connections) {
        let mark = connection.0.wrapping_add(1);
        if self.last_connection.load(Relaxed) != mark {
            if self.bound.read().channels(connection).is_none() {
                self.bind(connection, Channels::FORE, None, connections);
            }
            self.last_connection.store(mark, Relaxed);
        }
    }

    /// Adds channels to a connection; false if the session or the connection has no room for it.
    pub(crate) fn bind(
        &self,
        connection: ConnectionId,
        channels: Channels,
        outbox: Option<&Arc<Outbox>>,
        connections: &Connections,
    ) -> bool {
        let mut bound = self.bound.write();
        let binding = bound.bind(self.id, connection, channels, outbox, connections);
        if binding == Binding::BoundBack {
            self.client.set_wants_callbacks();
            self.client.holdings.back_connections.fetch_add(1, Relaxed);
        }
        binding != Binding::Refused
    }

    /// Removes a connection.
    pub(crate) fn unbind(&self, connection: ConnectionId) {
        if self.bound.write().unbind(connection) {
            self.client.holdings.back_connections.fetch_sub(1, Relaxed);
        }
        self.last_connection.store(0, Relaxed);
    }

    /// Removes all connections: the session is destroyed.
    pub(crate) fn close(&self, connections: &Connections) {
        let backs = self.bound.write().close(&self.id, connections);
        self.client.holdings.back_connections.fetch_sub(backs as u32, Relaxed);
    }

    /// Restricts a connection to the fore channel; forgets the calls on it that `is_ours` accepts.
    pub(crate) fn unbind_back(&self, connection: ConnectionId, is_ours: impl Fn(&Sent) -> bool) {
        if self.bound.write().unbind_back(connection, is_ours) {
            self.client.holdings.back_connections.fetch_sub(1, Relaxed);
        }
    }

    /// Returns whether a connection is bound to the session.
    pub(crate) fn is_bound(&self, connection: ConnectionId) -> bool {
        self.bound.read().channels(connection).is_some()
    }

    /// `sr_status_flags`, of the client and of this session.
    pub(crate) fn status_flags(&self) -> SequenceStatus {
        let mut flags = self.client.status_flags();
        // §18.46.3: if all paths to the client are down, this session's is down too. A session without a path, next to others
        // with one, matters only if a callback waits for it (§2.10.6.2: it must be repeated over the same session).
        if flags.contains(SequenceStatus::CB_PATH_DOWN) || self.has_lost_callback.load(Relaxed) {
            flags.set(SequenceStatus::CB_PATH_DOWN_SESSION, self.bound.read().has_lost_back());
        }
        flags.set(SequenceStatus::BACKCHANNEL_FAULT, self.has_fault.load(Relaxed));
        flags
    }
}

/// Returns the attributes of the fore channel (§18.36.3). The server "MAY decrease this value but MUST NOT increase it"; for
/// operations and requests it "MAY change the requested value".
///
/// # Errors
/// TOOSMALL if no reply, or no request, could ever fit.
pub(crate) fn negotiate_fore(
    asked: &ChannelAttributes,
    settings: &Settings,
) -> Result<ChannelAttributes, Status> {
    if asked.max_request_size < MIN_REQUEST || asked.max_response_size < MIN_RESPONSE {
        return Err(Status::TOOSMALL);
    }
    let max_response_size = asked.max_response_size.min(settings.max_record);
    Ok(ChannelAttributes {
        // "or zero if padding is not in use".
        header_pad_size: 0,
        max_request_size: asked.max_request_size.min(settings.max_record),
        max_response_size,
        max_response_size_cached: asked.max_response_size_cached.min(max_response_size).min(CACHED_REPLY_MAX),
        max_operations: asked.max_operations.clamp(1, MAX_OPERATIONS),
        max_requests: asked.max_requests.clamp(1, settings.max_slots.max(1)),
        rdma_ird: Default::default(),
    })
}

/// Returns the attributes of the back channel: "For the backchannel, the server MUST NOT change the value the client offers" for
/// operations and requests.
///
/// # Errors
/// TOOSMALL if the client requests or describes a back channel (which BIND_CONN_TO_SESSION may create later) that is too narrow
/// for CB_SEQUENCE.
pub(crate) fn negotiate_back(asked: &ChannelAttributes, wanted: bool) -> Result<ChannelAttributes, Status> {
    let small = asked.max_request_size < MIN_CALLBACK || asked.max_response_size < MIN_CALLBACK_RESPONSE;
    if small && (wanted || asked.max_request_size > 0) {
        return Err(Status::TOOSMALL);
    }
    Ok(ChannelAttributes { header_pad_size: 0, rdma_ird: Default::default(), ..asked.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandleKey;

    fn asked() -> ChannelAttributes {
        ChannelAttributes {
            header_pad_size: 64,
            max_request_size: 1_049_620,
            max_response_size: 1_049_480,
            max_response_size_cached: 7_584,
            max_operations: 8,
            max_requests: 64,
            rdma_ird: Default::default(),
        }
    }

    fn settings() -> Settings {
        Settings::new(HandleKey([0; 16]), 1, [0; 16], vec![])
    }

    #[test]
    fn clamps_channel_attributes_to_limits() {
        let granted = negotiate_fore(&asked(), &settings()).unwrap();
        assert_eq!(
            granted,
            ChannelAttributes { header_pad_size: 0, max_response_size_cached: CACHED_REPLY_MAX, ..asked() }
        );
        let greedy = ChannelAttributes {
            max_request_size: u32::MAX,
            max_response_size: u32::MAX,
            max_response_size_cached: u32::MAX,
            max_operations: u32::MAX,
            max_requests: u32::MAX,
            ..asked()
        };
        let granted = negotiate_fore(&greedy, &settings()).unwrap();
        assert_eq!((granted.max_requests, granted.max_operations), (1024, MAX_OPERATIONS));
        assert_eq!((granted.max_request_size, granted.max_response_size), (1_114_112, 1_114_112));
        let none = ChannelAttributes { max_requests: 0, max_operations: 0, ..asked() };
        assert_eq!(negotiate_fore(&none, &settings()).unwrap().max_requests, 1);
    }

    #[test]
    fn refuses_channels_that_are_too_narrow() {
        for small in [
            ChannelAttributes { max_request_size: MIN_REQUEST - 1, ..asked() },
            ChannelAttributes { max_response_size: MIN_RESPONSE - 1, ..asked() },
        ] {
            assert_eq!(negotiate_fore(&small, &settings()), Err(Status::TOOSMALL));
        }
        let small = ChannelAttributes { max_request_size: 10, ..asked() };
        assert_eq!(negotiate_back(&small, true), Err(Status::TOOSMALL));
        assert_eq!(negotiate_back(&small, false), Err(Status::TOOSMALL));
        let none = ChannelAttributes { max_request_size: 0, ..asked() };
        assert_eq!(negotiate_back(&none, true), Err(Status::TOOSMALL));
        assert!(negotiate_back(&none, false).is_ok(), "it was not requested");
    }
}
