//! Scenarios of clients: a [`World`] has the state and the time, a [`Peer`] is a client with a session.

mod administer;
mod audit;
mod callbacks;
mod clients;
mod expiry;
mod hosts;
mod limits;
mod local_changes;
mod local_locks;
mod locks;
mod lost_locks;
mod many;
mod notices;
mod opens;
mod owners;
mod properties;
mod protect;
mod reclaims;
mod restarts;
mod sessions;
mod stops;
mod threads;
mod waiters;

use core::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::types::Handle;
use vfs::{LocalLocks, Pin};

use super::{
    Client, CreateSession, Credential, ExchangeId, ExchangedId, FileKey, LockError, LockNotice, LockRange,
    LockRequest, LockTest, Locker, OpenGrant, OpenRequest, Principal, Records, Sequenced, SlotRequest, State,
    StateProtect,
};
use crate::state::tables::wire::{
    ChannelAttributes, CreateSessionFlags, CreateSessionOk, LockType, SecParmsList, SequenceArgs,
    SequenceStatus, SessionId, ShareAccess, ShareDeny, Stateid, Status,
};
use crate::testing::local_locks::LockedFilePin;
use crate::{ConnectionId, HandleKey, Outbox, Settings};

const LEASE: Duration = Duration::from_secs(90);
const SECOND: Duration = Duration::from_secs(1);
const ROOT: Principal = Principal::System(0);
const READ: ShareAccess = ShareAccess::READ;
const WRITE: ShareAccess = ShareAccess::WRITE;
const BOTH: ShareAccess = ShareAccess::BOTH;
const NONE: ShareDeny = ShareDeny::empty();

fn settings() -> Settings {
    Settings::new(HandleKey([0; 16]), 77, [5; 16], b"server".to_vec())
}

fn file(fileid: u64) -> FileKey {
    FileKey { fsid: (1, 2), fileid }
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).unwrap()
}

/// Its reference count is the number of opens.
#[derive(Debug, Default)]
struct TestPin {
    /// Every file is this one to local processes.
    local: Option<LockedFilePin>,
}

impl Pin for TestPin {
    fn local_locks(&self) -> Option<Arc<dyn LocalLocks>> {
        self.local.as_ref()?.local_locks()
    }
}

struct World {
    state: Arc<State>,
    now: Duration,
    pin: Arc<TestPin>,
    outbox: Arc<Outbox>,
}

impl World {
    fn new() -> Self {
        Self::with(&settings(), &[])
    }

    fn with(settings: &Settings, previous: &[&'static str]) -> Self {
        let previous: Vec<_> = previous.iter().map(|owner| (*owner, 1)).collect();
        Self::after(settings, State::records_of(&previous))
    }

    /// Returns a server that starts with these records.
    fn after(settings: &Settings, records: Records) -> Self {
        let now = Duration::from_secs(1000);
        Self {
            state: Arc::new(State::new(settings, records, now)),
            now,
            pin: Arc::default(),
            outbox: Arc::default(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn exchange(&self, owner: &str, verifier: u8, principal: &Principal) -> Result<ExchangedId, Status> {
        self.exchange_at(None, owner, verifier, principal)
    }

    /// As [`Self::exchange`], from an address.
    fn exchange_at(
        &self,
        from: Option<IpAddr>,
        owner: &str,
        verifier: u8,
        principal: &Principal,
    ) -> Result<ExchangedId, Status> {
        let (owner, verifier) = (owner.as_bytes(), [verifier; 8]);
        let by = &Credential { principal: principal.clone(), is_protected: false };
        let protect = StateProtect::None;
        self.state.exchange_id(self.now, &ExchangeId { owner, verifier, by, update: false, protect, from })
    }

    fn create(&self, client_id: u64, sequence: u32, connection: u64) -> Result<CreateSessionOk, Status> {
        self.create_as(&ROOT, client_id, sequence, connection)
    }

    fn create_as(
        &self,
        principal: &Principal,
        client_id: u64,
        sequence: u32,
        connection: u64,
    ) -> Result<CreateSessionOk, Status> {
        self.state.create_session(
            self.now,
            &CreateSession {
                client_id,
                sequence,
                flags: CreateSessionFlags::CONN_BACK_CHAN,
                fore_channel: &channel(64),
                back_channel: &channel(16),
                callback_program: 0x4000_0000,
                security: &SecParmsList::default(),
                lacks_context: false,
                minor: 1,
                outbox: Some(&self.outbox),
                principal,
                connection: ConnectionId(connection),
            },
        )
    }

    /// Returns a client with a session that has completed its reclaims.
    fn peer(&self, owner: &str) -> Peer {
        let peer = self.fresh_peer(owner, 1);
        self.state.reclaim_complete(&peer.client).unwrap();
        peer
    }

    /// Returns a client with a session, of the incarnation `verifier`.
    fn fresh_peer(&self, owner: &str, verifier: u8) -> Peer {
        self.peer_of(&self.exchange(owner, verifier, &ROOT).unwrap())
    }

    /// Returns a client at an address, unless it is refused.
    fn peer_at(&self, from: &str, owner: &str) -> Result<Peer, Status> {
        let from = Some(from.parse().unwrap());
        let peer = self.peer_of(&self.exchange_at(from, &format!("{owner} of {from:?}"), 1, &ROOT)?);
        self.state.reclaim_complete(&peer.client).unwrap();
        Ok(peer)
    }

    /// Returns the client with this client ID, with a session.
    fn peer_of(&self, id: &ExchangedId) -> Peer {
        let connection = id.client_id & 0xffff;
        let created = self.create(id.client_id, id.sequence_id, connection).unwrap();
        let session = self.state.sessions.get(&created.session_id).unwrap();
        let client = Arc::clone(&session.client);
        Peer {
            client,
            session: created.session_id,
            connection: ConnectionId(connection),
            sequence: vec![0; 64],
        }
    }

    fn open(&self, peer: &Peer, fileid: u64, owner: &str, access: ShareAccess) -> Stateid {
        self.try_open(peer, fileid, owner, access, NONE).unwrap().stateid
    }

    fn try_open(
        &self,
        peer: &Peer,
        fileid: u64,
        owner: &str,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<OpenGrant, Status> {
        let (file, owner, pin) = (file(fileid), Arc::from(owner.as_bytes()), self.pin.clone());
        let request =
            OpenRequest { file, owner, opener: 0, access, deny, truncates: false, reclaim: false, pin };
        self.state.open(self.now, &peer.client, request)
    }

    fn close(&self, peer: &Peer, fileid: u64, stateid: &Stateid) -> Result<(), Status> {
        self.state.close(&peer.client, file(fileid), stateid).map(drop)
    }

    /// Takes a first lock under an open.
    fn lock(
        &self,
        peer: &Peer,
        open: &(u64, Stateid),
        owner: &str,
        lock_type: LockType,
        range: LockRange,
    ) -> Result<Stateid, LockError> {
        let owner = Arc::from(owner.as_bytes());
        let locker = Locker::New { open_stateid: open.1, owner: &owner };
        let handle = Handle::new(&open.0.to_be_bytes()).unwrap();
        let notice = Some(LockNotice { handle, asked_by: None });
        let request = LockRequest { file: file(open.0), lock_type, range, reclaim: false, locker, notice };
        self.state.lock(self.now, &peer.client, &request)
    }

    /// Tests a lock; returns the conflicting owner, and where its lock starts.
    fn in_the_way(
        &self,
        peer: &Peer,
        fileid: u64,
        owner: &str,
        lock_type: LockType,
        range: LockRange,
    ) -> Option<(Bytes, u64, u64)> {
        let test = LockTest { file: file(fileid), lock_type, range, owner: owner.as_bytes() };
        match self.state.lock_test(self.now, &peer.client, &test) {
            Ok(()) => None,
            Err(LockError::Denied(denied)) => {
                Some((denied.owner.owner.bytes().clone(), denied.offset, denied.length))
            }
            Err(LockError::Status(status)) => panic!("LOCKT: {status:?}"),
        }
    }

    /// Returns the number of opens that hold the file.
    fn pinned(&self) -> usize {
        Arc::strong_count(&self.pin) - 1
    }
}

struct Peer {
    client: Arc<Client>,
    session: SessionId,
    connection: ConnectionId,
    /// The sequence ID of each slot's last request.
    sequence: Vec<u32>,
}

impl Peer {
    fn arguments(&self, slot_id: u32) -> SequenceArgs {
        SequenceArgs {
            session_id: self.session,
            sequence_id: self.sequence[slot_id as usize],
            slot_id,
            highest_slot_id: slot_id,
            cache_this: true,
        }
    }

    /// Sends the next request on a slot; its digest is its sequence ID.
    fn send(&mut self, world: &World, slot: u32) -> Result<Sequenced, Status> {
        self.sequence[slot as usize] = self.sequence[slot as usize].wrapping_add(1);
        self.send_again(world, slot)
    }

    /// Retransmits the last request on a slot.
    fn send_again(&self, world: &World, slot: u32) -> Result<Sequenced, Status> {
        let arguments = self.arguments(slot);
        world.state.sequence(world.now, self.connection, &arguments, u64::from(arguments.sequence_id))
    }

    /// Returns a request in progress.
    fn start(&mut self, world: &World, slot: u32) -> SlotRequest {
        match self.send(world, slot).unwrap() {
            Sequenced::New(running) => running,
            Sequenced::Replay(_) => panic!("a new request is executed"),
        }
    }

    /// Sends a request and finishes it; returns the status flags.
    fn ping(&mut self, world: &World) -> SequenceStatus {
        let running = self.start(world, 0);
        let flags = running.sequence().status_flags;
        running.finish(world.now, Some(b"pong"));
        flags
    }
}

/// Returns the reply to a retransmission.
fn replay(sequenced: Result<Sequenced, Status>) -> Option<Bytes> {
    match sequenced.unwrap() {
        Sequenced::Replay(replay) => replay.reply,
        Sequenced::New(_) => panic!("a retransmission is not executed"),
    }
}

fn channel(max_requests: u32) -> ChannelAttributes {
    ChannelAttributes {
        header_pad_size: 0,
        max_request_size: 1 << 20,
        max_response_size: 1 << 20,
        max_response_size_cached: 4096,
        max_operations: 16,
        max_requests,
        rdma_ird: Default::default(),
    }
}
