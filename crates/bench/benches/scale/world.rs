//! A server's NFSv4 state alone, and its clients.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use protocol::nfs4::ops::backchannel::SecParmsList;
use protocol::nfs4::ops::lock::LockType;
use protocol::nfs4::ops::open::{ShareAccess, ShareDeny};
use protocol::nfs4::ops::session::{ChannelAttributes, CreateSessionFlags, SequenceArgs};
use protocol::nfs4::types::{SessionId, Stateid, Status};
use rpc::message;
use server::state::{
    Client, CreateSession, Credential, DelegationKind, ExchangeId, FileKey, GrantRequest, IoKind, LockError,
    LockRange, LockRequest, LockTest, Locker, OpenRequest, Records, Sequenced, SlotRequest, State,
    StateProtect,
};
use server::{ConnectionId, HandleKey, Outbox, Principal, Settings};
use vfs::Pin;
use xdr::Writer;

/// Far above the measured populations, so that no bound is reached.
const BOUND: usize = 1 << 24;
/// Slots of each session: as many as Linux's client requests.
pub(crate) const SLOTS: u32 = 64;
/// Bytes of each locked range; the next one begins at a distance, so that the two cannot merge.
const RANGE_BYTES: u64 = 10;
/// The caller of every open.
const CALLER: u64 = 1000;

/// Holds nothing: a backend's data of open files do not count as state.
#[derive(Debug)]
struct NoPin;

impl Pin for NoPin {}

/// The state and the time.
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) now: Duration,
    pin: Arc<NoPin>,
    clients: u64,
}

/// A client with a session.
pub(crate) struct Peer {
    pub(crate) client: Arc<Client>,
    session: SessionId,
    connection: ConnectionId,
    sequence: u32,
}

pub(crate) fn file(fileid: u64) -> FileKey {
    FileKey { fsid: (1, 1), fileid }
}

/// Returns an owner's name of about 24 bytes, as Linux's.
pub(crate) fn owner(number: u64) -> Arc<[u8]> {
    Arc::from(format!("lock id:{number:016}").into_bytes())
}

/// Returns the `number`th of several separate ranges.
pub(crate) fn range(number: u64) -> LockRange {
    LockRange::new(number * 2 * RANGE_BYTES, RANGE_BYTES).expect("a range in the middle of the file")
}

/// Returns all bytes of a file.
pub(crate) fn whole() -> LockRange {
    LockRange::new(0, u64::MAX).expect("the whole file")
}

/// Returns a stateid with the seqid that means the current one (RFC 8881 §8.2.2).
pub(crate) fn latest(stateid: Stateid) -> Stateid {
    Stateid { seqid: 0, ..stateid }
}

impl World {
    pub(crate) fn new() -> Self {
        let settings = Settings {
            max_clients: BOUND,
            max_state: BOUND,
            max_delegations: BOUND,
            slot_cache_bytes: 64 * BOUND,
            ..Settings::new(HandleKey([1; 16]), 1, [2; 16], b"scale".to_vec())
        };
        let now = Duration::from_secs(1000);
        Self { state: State::new(&settings, Records::default(), now), now, pin: Arc::new(NoPin), clients: 0 }
    }

    /// Creates a client with a session that has completed its reclaims.
    pub(crate) fn peer(&mut self) -> Peer {
        self.connect(None)
    }

    /// As [`Self::peer`], for a client that answers callbacks.
    pub(crate) fn reachable_peer(&mut self) -> Peer {
        let outbox = Arc::new(Outbox::default());
        let peer = self.connect(Some(&outbox));
        let context = Context::from_waker(Waker::noop());
        let Poll::Ready(probe) = outbox.poll_record(&context) else { unreachable!("the path is tried") };
        let (xid, _) = message::peek(&probe).expect("a call");
        let mut reply = Writer::new();
        message::encode_success(&mut reply, xid);
        assert!(
            self.state.callback_replied(peer.connection, &outbox, reply.into_bytes()),
            "the probe's reply"
        );
        peer
    }

    fn connect(&mut self, outbox: Option<&Arc<Outbox>>) -> Peer {
        self.clients += 1;
        let owner = format!("Linux NFSv4.1 client{:06}", self.clients);
        let by = Credential { principal: Principal::System(0), is_protected: false };
        let protect = StateProtect::None;
        let exchange = ExchangeId {
            owner: owner.as_bytes(),
            verifier: [1; 8],
            by: &by,
            update: false,
            protect,
            from: None,
        };
        let id = self.state.exchange_id(self.now, &exchange).expect("EXCHANGE_ID");
        let connection = ConnectionId(self.clients);
        let channel = ChannelAttributes {
            header_pad_size: 0,
            max_request_size: 1 << 20,
            max_response_size: 1 << 20,
            max_response_size_cached: 4096,
            max_operations: 16,
            max_requests: SLOTS,
            rdma_ird: Default::default(),
        };
        let flags =
            if outbox.is_some() { CreateSessionFlags::CONN_BACK_CHAN } else { CreateSessionFlags::empty() };
        let create = CreateSession {
            client_id: id.client_id,
            sequence: id.sequence_id,
            flags,
            fore_channel: &channel,
            back_channel: &channel,
            callback_program: 0x4000_0000,
            security: &SecParmsList::default(),
            lacks_context: false,
            minor: 1,
            outbox,
            principal: &by.principal,
            connection,
        };
        let session = self.state.create_session(self.now, &create).expect("CREATE_SESSION").session_id;
        let running = begin(&self.state, self.now, connection, session, (0, 1));
        let client = Arc::clone(running.client());
        running.finish(self.now, None);
        self.state.reclaim_complete(&client).expect("RECLAIM_COMPLETE");
        Peer { client, session, connection, sequence: 1 }
    }

    /// Runs an empty compound on slot 0, which renews the lease.
    pub(crate) fn renew(&self, peer: &mut Peer) {
        peer.sequence += 1;
        begin(&self.state, self.now, peer.connection, peer.session, (0, peer.sequence))
            .finish(self.now, None);
    }

    /// Runs the first compound on a slot, whose reply of `bytes` bytes is kept.
    pub(crate) fn use_slot(&self, peer: &Peer, slot: u32, bytes: usize) {
        let reply = vec![0; bytes];
        begin(&self.state, self.now, peer.connection, peer.session, (slot, 1)).finish(self.now, Some(&reply));
    }

    pub(crate) fn leave(&self, peer: &Peer) {
        self.state.destroy_session(peer.connection, &peer.session).expect("DESTROY_SESSION");
        self.state.destroy_client(self.now, peer.client.id(), None).expect("DESTROY_CLIENTID");
    }

    pub(crate) fn open(&self, peer: &Peer, fileid: u64, owner: &Arc<[u8]>) -> Stateid {
        self.try_open(peer, fileid, owner, (ShareAccess::BOTH, ShareDeny::empty())).expect("OPEN")
    }

    pub(crate) fn try_open(
        &self,
        peer: &Peer,
        fileid: u64,
        owner: &Arc<[u8]>,
        (access, deny): (ShareAccess, ShareDeny),
    ) -> Result<Stateid, Status> {
        let request = OpenRequest {
            file: file(fileid),
            owner: Arc::clone(owner),
            opener: CALLER,
            access,
            deny,
            truncates: false,
            reclaim: false,
            pin: Arc::<NoPin>::clone(&self.pin),
        };
        Ok(self.state.open(self.now, &peer.client, request)?.stateid)
    }

    pub(crate) fn close(&self, peer: &Peer, fileid: u64, open: Stateid) {
        self.state.close(&peer.client, file(fileid), &open).expect("CLOSE");
    }

    pub(crate) fn may_read(&self, peer: &Peer, fileid: u64, stateid: &Stateid) {
        self.state.check_io(self.now, &peer.client, file(fileid), stateid, IoKind::Read).expect("READ");
    }

    /// Locks for writing; the owner's first lock under an open creates its lock stateid.
    pub(crate) fn lock(
        &self,
        peer: &Peer,
        fileid: u64,
        locker: Locker<'_>,
        range: LockRange,
    ) -> Result<Stateid, LockError> {
        let request = LockRequest {
            file: file(fileid),
            lock_type: LockType::Write,
            range,
            reclaim: false,
            locker,
            notice: None,
        };
        self.state.lock(self.now, &peer.client, &request)
    }

    /// Returns whether a lock for writing by a certain owner would be refused.
    pub(crate) fn is_locked(&self, peer: &Peer, fileid: u64, owner: &[u8], range: LockRange) -> bool {
        let test = LockTest { file: file(fileid), lock_type: LockType::Write, range, owner };
        self.state.lock_test(self.now, &peer.client, &test).is_err()
    }

    pub(crate) fn unlock(&self, peer: &Peer, fileid: u64, lock: &Stateid, range: LockRange) {
        self.state.unlock(self.now, &peer.client, file(fileid), lock, range).expect("LOCKU");
    }

    /// Grants a read delegation to a reachable client.
    pub(crate) fn delegate(&self, peer: &Peer, fileid: u64) -> Stateid {
        let inner = vfs::Handle::new(&fileid.to_be_bytes()).expect("eight bytes");
        let request = GrantRequest {
            kind: DelegationKind::Read,
            checked_access: 1,
            opener: CALLER,
            change: 1,
            times: None,
            handle: Default::default(),
            inner,
            epoch: self.state.change_epoch(&inner),
            reclaim: false,
        };
        self.state
            .grant_delegation(self.now, &peer.client, file(fileid), &request, None, None)
            .expect("a delegation")
    }

    pub(crate) fn return_delegation(&self, peer: &Peer, fileid: u64, delegation: &Stateid) {
        let returned = self.state.return_delegation(self.now, &peer.client, file(fileid), delegation);
        returned.expect("DELEGRETURN");
    }
}

/// Runs SEQUENCE of a new request. Returns its slot and its sequence ID.
fn begin(
    state: &State,
    now: Duration,
    connection: ConnectionId,
    session_id: SessionId,
    (slot_id, sequence_id): (u32, u32),
) -> SlotRequest {
    let arguments =
        SequenceArgs { session_id, sequence_id, slot_id, highest_slot_id: SLOTS - 1, cache_this: true };
    match state.sequence(now, connection, &arguments, u64::from(sequence_id)).expect("SEQUENCE") {
        Sequenced::New(running) => running,
        Sequenced::Replay(_) => unreachable!("every request here is a new one"),
    }
}
