//! Sessions: what CREATE_SESSION negotiates and makes (RFC 8881 §18.36).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::backchannel::BackChannel;
use super::binding::Bound;
use super::client::{Client, Principal};
use super::persist::KeptSlots;
use super::slot::{CACHED_REPLY_MAX, SlotTable, whole_seconds};
use super::window::Window;
use super::wire::{ChannelAttributes, ClientId, CreateSessionFlags, SecParmsList, SessionId, Status};
use crate::{ConnectionId, Outbox, Settings};

/// Operations of a compound at most. The Linux client asks for 8 to 64; more is for clients that make their own compounds.
pub const MAX_OPERATIONS: u32 = 256;
/// Sessions of one client at most. Linux's client has one.
pub(crate) const MAX_SESSIONS_A_CLIENT: usize = 64;
/// Bytes of the shortest call: RPC header with AUTH_NONE (40), tag, minor version and count (12), SEQUENCE (36).
const MIN_REQUEST: u32 = 88;
/// Bytes of the shortest reply: RPC header with AUTH_NONE (24), status, tag and count (12), SEQUENCE (44).
pub(crate) const MIN_RESPONSE: u32 = 80;
/// Bytes of the shortest callback: RPC header (40), tag, minor version, ident and count (16), CB_SEQUENCE (40).
const MIN_CALLBACK: u32 = 96;
/// Bytes of its reply: RPC header (24), status, tag and count (12), CB_SEQUENCE (40).
const MIN_CALLBACK_RESPONSE: u32 = 76;

/// What CREATE_SESSION asks.
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
    /// Only contexts of RPCSEC_GSS are offered there, and one of them does not exist.
    pub lacks_context: bool,
    /// Of the compound: callbacks of the session are of the same minor version.
    pub minor: u32,
    /// Of the request.
    pub principal: &'a Principal,
    /// Over which it came.
    pub connection: ConnectionId,
    /// What takes calls to the client there; `None` where nothing can.
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
    pub(crate) kept_slots: KeptSlots,
    /// The connection seen last, plus one, so that most requests need no look at `bound`; 0 for none.
    pub(crate) last_connection: AtomicU64,
    pub(crate) bound: RwLock<Bound>,
    pub(crate) back: Mutex<BackChannel>,
    /// Nobody knows any more what the slots of the back channel have seen.
    pub(crate) has_fault: AtomicBool,
    /// The slots that the client may use since CB_RECALL_SLOT was sent; 0 where none was, or memory is scarce no more.
    pub(crate) recalled_slots: AtomicU32,
    /// A callback may be lost, and there is no connection to send it again.
    pub(crate) is_cut: AtomicBool,
}

impl Session {
    /// Makes a session with negotiated `fore` and `back` that grows to `max_slots` at most; `None` where there is no memory for it.
    pub(crate) fn new(
        id: SessionId,
        client: Arc<Client>,
        fore: ChannelAttributes,
        back: BackChannel,
        is_persistent: bool,
        max_slots: u32,
    ) -> Option<Self> {
        // What the log has of a persistent session is its number of slots as it was made.
        let most = if is_persistent { fore.max_requests } else { max_slots };
        let window = Window::new(fore.max_requests, most);
        let slots = SlotTable::new(window, fore.max_response_size_cached, &client.slot_memory)?;
        let last_connection = AtomicU64::new(0);
        let bound = RwLock::new(Bound::default());
        let back = Mutex::new(back);
        let (has_fault, is_cut) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(Self {
            id,
            client,
            fore,
            slots,
            is_persistent,
            kept_slots: KeptSlots::new(is_persistent),
            last_connection,
            bound,
            back,
            has_fault,
            recalled_slots: AtomicU32::new(0),
            is_cut,
        })
    }
}

impl crate::state::State {
    /// Gives back what slots have and nobody needs, of a part of the sessions at a time.
    pub(crate) fn tend_slots(&self, now: Duration) {
        let now_s = whole_seconds(now);
        self.sessions.some(now.as_secs()).iter().for_each(|session| session.slots.tend(now_s));
    }
}

/// What the fore channel will be (§18.36.3). The server "MAY decrease this value but MUST NOT increase it", and of
/// operations and requests it "MAY change the requested value".
///
/// # Errors
/// TOOSMALL where no reply, or no request, could ever fit.
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

/// What the back channel will be: "For the backchannel, the server MUST NOT change the value the client offers" of
/// operations and requests.
///
/// # Errors
/// TOOSMALL where the client wants or describes a back channel (which BIND_CONN_TO_SESSION may make later) through which no
/// CB_SEQUENCE could ever pass.
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
    fn takes_what_the_client_offers_and_clamps_what_is_too_much() {
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
    fn refuses_channels_through_which_nothing_passes() {
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
        assert!(negotiate_back(&none, false).is_ok(), "nobody wants it");
    }
}
