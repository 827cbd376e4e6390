//! The lifetime of version 4.0 owners and of their state.

use super::*;
use crate::state::tables::wire::StateOwner;
use crate::state::{
    CallbackClient, IoKind, OwnerEffect, OwnerRequest, SavedReply, SetClientId, V40Caller, V40Sequenced,
};

/// A client of version 4.0.
pub(super) struct Peer0 {
    pub(super) id: u64,
    seqid: u32,
}

impl World {
    pub(super) fn peer0(&self, name: &str, verifier: u8) -> Peer0 {
        let callback = CallbackClient { program: 1, ..CallbackClient::default() };
        let (owner, verifier) = (name.as_bytes(), [verifier; 8]);
        let request = SetClientId { owner, verifier, principal: &ROOT, callback: &callback };
        let ok = self.state.set_client_id(self.now, &request).unwrap();
        self.state.confirm_client_id(self.now, ok.client_id, ok.confirm, &ROOT).unwrap();
        Peer0 { id: ok.client_id, seqid: 0 }
    }

    fn turn(&self, peer: &mut Peer0, owner: &str) -> Result<OwnerRequest, Status> {
        peer.seqid += 1;
        match self.state.begin_open_request(self.now, &named(peer, owner), peer.seqid, 7, false, root())? {
            V40Sequenced::New(turn) => Ok(turn),
            V40Sequenced::Replay(_, saved) => panic!("{saved:?}"),
        }
    }

    pub(super) fn open0(&self, peer: &mut Peer0, fileid: u64, owner: &str) -> Stateid {
        let turn = self.turn(peer, owner).unwrap();
        let (client, owner) = (turn.client().clone(), turn.owner().clone());
        let (file, pin) = (file(fileid), self.pin.clone());
        let request = OpenRequest {
            file,
            owner,
            opener: 0,
            access: BOTH,
            deny: NONE,
            truncates: false,
            reclaim: false,
            pin,
        };
        let (stateid, confirms) =
            (self.state.open(self.now, &client, request).unwrap().stateid, turn.needs_confirmation());
        self.state.end_owner_request(self.now, turn, &saved(), OwnerEffect::Opened(stateid));
        if !confirms {
            return stateid;
        }
        peer.seqid = peer.seqid.checked_add(1).unwrap_or(1);
        let turn = self.state.begin_stateid_request(self.now, &stateid, peer.seqid, 9, true, root()).unwrap();
        let V40Sequenced::New(turn) = turn else { panic!("{turn:?}") };
        let confirmed = self.state.confirm_open(&client, file, &stateid).unwrap();
        self.state.end_owner_request(self.now, turn, &saved(), OwnerEffect::Confirmed);
        confirmed
    }

    pub(super) fn close0(&self, peer: &mut Peer0, fileid: u64, stateid: &Stateid) {
        peer.seqid += 1;
        let turn = self.state.begin_stateid_request(self.now, stateid, peer.seqid, 8, false, root()).unwrap();
        let V40Sequenced::New(turn) = turn else { panic!("{turn:?}") };
        self.state.close(&turn.client().clone(), file(fileid), stateid).unwrap();
        self.state.end_owner_request(self.now, turn, &saved(), OwnerEffect::Closed(*stateid));
    }

    /// Passes one and a half lease times, during which the client renews its lease.
    fn idle(&mut self, peer: &Peer0) {
        for _ in 0..3 {
            self.pass(LEASE / 2);
            self.state.named_client(self.now, peer.id).unwrap();
            self.state.expire(self.now);
        }
    }
}

fn named(peer: &Peer0, owner: &str) -> StateOwner {
    let owner = xdr::Opaque::new(Bytes::copy_from_slice(owner.as_bytes())).unwrap();
    StateOwner { client_id: peer.id, owner }
}

/// Returns the caller of the requests in these tests.
pub(super) fn root() -> V40Caller<'static> {
    static PRINCIPAL: Principal = ROOT;
    V40Caller { caller: 0, principal: &PRINCIPAL }
}

fn saved() -> SavedReply {
    SavedReply { status: Status::OK, body: Bytes::new(), current: None }
}

/// Returns the total weight of all state.
fn charged(world: &World, peer: &Peer0) -> u32 {
    let client = world.state.named_client(world.now, peer.id).unwrap();
    client.holdings.charged.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn an_idle_owner_without_state_is_removed_after_a_lease() {
    let mut world = World::new();
    let mut peer = world.peer0("a", 1);
    let kept = world.open0(&mut peer, 1, "o");
    let other = world.open0(&mut peer, 2, "p");
    world.close0(&mut peer, 2, &other);
    assert_eq!(charged(&world, &peer), 3, "two owners and an open");
    world.idle(&peer);
    assert_eq!(charged(&world, &peer), 2);
    assert!(world.state.holder(world.now, &kept).is_ok());
    // A removed owner must be confirmed again; a known one does not.
    assert!(world.turn(&mut peer, "p").unwrap().needs_confirmation());
    peer.seqid = 2;
    world.close0(&mut peer, 1, &kept);
    world.idle(&peer);
    assert_eq!(charged(&world, &peer), 0, "a dropped request keeps its owner for a lease");
}

#[test]
fn owners_are_removed_with_their_client() {
    let world = World::new();
    let mut peer = world.peer0("a", 1);
    let open = world.open0(&mut peer, 1, "o");
    let closed = world.open0(&mut peer, 2, "p");
    world.close0(&mut peer, 2, &closed);
    world.peer0("a", 2);
    assert_eq!((world.state.counts().opens, world.state.counts().clients), (0, 1));
    assert_eq!(world.state.gauges.total(), 0);
    assert_eq!(world.state.holder(world.now, &open).unwrap_err(), Status::EXPIRED);
    let again = world.state.begin_stateid_request(world.now, &closed, 5, 8, false, root());
    assert_eq!(again.unwrap_err(), Status::BAD_STATEID, "the last closed stateid is forgotten too");
}

#[test]
fn another_users_confirmation_removes_no_state() {
    let world = World::new();
    let mut victim = world.peer0("a", 1);
    let (other, callback) = (Principal::System(1), CallbackClient::default());
    let request = SetClientId { owner: b"a", verifier: [2; 8], principal: &other, callback: &callback };
    // It holds no state yet, so none is lost.
    let ok = world.state.set_client_id(world.now, &request).unwrap();
    let open = world.open0(&mut victim, 1, "o");
    let confirm = || world.state.confirm_client_id(world.now, ok.client_id, ok.confirm, &other).map(drop);
    assert_eq!(confirm(), Err(Status::CLID_INUSE));
    assert!(world.state.holder(world.now, &open).is_ok());
    world.close0(&mut victim, 1, &open);
    assert_eq!(confirm(), Ok(()), "a record without state may be replaced");
}

#[test]
fn one_request_of_an_owner_runs_at_a_time() {
    let world = World::new();
    let mut peer = world.peer0("a", 1);
    let turn = world.turn(&mut peer, "o").unwrap();
    assert_eq!(world.turn(&mut peer, "o").unwrap_err(), Status::RESOURCE);
    drop(turn);
    // It has no effect.
    peer.seqid = 0;
    assert!(world.turn(&mut peer, "o").is_ok());
}

#[test]
fn a_delayed_lock_advances_the_open_owners_seqid() {
    // An owner and its open.
    let world = World::with(&Settings { max_state: 2, ..settings() }, &[]);
    let mut peer = world.peer0("a", 1);
    let open = world.open0(&mut peer, 1, "o");
    let locker = named(&peer, "l");
    // RFC 7530 §9.1.7: DELAY is not among the errors after which the client keeps its seqid.
    for _ in 0..2 {
        peer.seqid += 1;
        let turn =
            world.state.begin_lock_request(world.now, &open, &locker, (peer.seqid, 1), 9, root()).unwrap();
        let V40Sequenced::New(turn) = turn else { panic!("{turn:?}") };
        let locker = Locker::New { open_stateid: open, owner: turn.owner() };
        let (file, lock_type, range) = (file(1), LockType::Write, range(0, 1));
        let request = LockRequest { file, lock_type, range, reclaim: false, locker, notice: None };
        assert_eq!(world.state.lock(world.now, turn.client(), &request), Err(Status::DELAY.into()));
        let reply = SavedReply { status: Status::DELAY, ..saved() };
        world.state.end_owner_request(world.now, turn, &reply, OwnerEffect::None);
        assert_eq!(charged(&world, &peer), 2, "the lock-owner is still unknown");
    }
}

#[test]
fn seqids_wrap_around() {
    let world = World::new();
    for next in [0, 1] {
        let mut peer = world.peer0("a", next as u8 + 1);
        peer.seqid = u32::MAX - 2;
        let open = world.open0(&mut peer, 1, "o");
        assert_eq!(
            world.state.begin_stateid_request(world.now, &open, 2, 8, false, root()).unwrap_err(),
            Status::BAD_SEQID
        );
        assert!(world.state.begin_stateid_request(world.now, &open, next, 8, false, root()).is_ok());
    }
}

#[test]
fn invalid_stateids_report_the_reason() {
    let world = World::new();
    let mut peer = world.peer0("a", 1);
    let open = world.open0(&mut peer, 1, "o");
    let check = |stateid: Stateid| {
        let client = world.state.holder(world.now, &stateid)?;
        world.state.check_io(world.now, &client, file(1), &stateid, IoKind::Read).map(drop)
    };
    assert_eq!(check(open), Ok(()));
    assert_eq!(check(Stateid { seqid: open.seqid + 1, ..open }), Err(Status::BAD_STATEID));
    // RFC 7530 §9.1.4.4: no seqid means the present one.
    assert_eq!(check(Stateid { seqid: 0, ..open }), Err(Status::OLD_STATEID));
    let mut stale = open;
    stale.other[0] ^= 1;
    assert_eq!(check(stale), Err(Status::STALE_STATEID));
    assert_eq!(check(Stateid::ANONYMOUS), Ok(()));
    assert_eq!(check(Stateid { seqid: 1, ..Stateid::ANONYMOUS }), Err(Status::BAD_STATEID));
    let with_sessions = world.peer("b");
    let others = world.open(&with_sessions, 1, "o", READ);
    assert_eq!(check(others), Err(Status::BAD_STATEID), "a client of version 4.1 has that");
}

#[test]
fn reclaims_during_the_grace_period() {
    let world = World::after(&settings(), State::records_of_0(&[("a", 1)]));
    let (a, mut stranger) = (world.peer0("a", 1), world.peer0("b", 1));
    let admitted = |peer: &Peer0, reclaim| {
        let client = world.state.named_client(world.now, peer.id).unwrap();
        world.state.admit_open(world.now, &client, b"o", reclaim)
    };
    assert_eq!((admitted(&a, true), admitted(&a, false)), (Ok(()), Err(Status::GRACE)));
    assert_eq!(admitted(&stranger, true), Err(Status::NO_GRACE));
    drop(world.turn(&mut stranger, "o"));
    let reclaimed = world.state.begin_open_request(world.now, &named(&a, "o"), 9, 7, true, root()).unwrap();
    let V40Sequenced::New(turn) = reclaimed else { panic!() };
    assert!(!turn.needs_confirmation());
}

#[test]
fn a_client_with_lost_state_starts_over() {
    let mut world = World::new();
    let mut peer = world.peer0("a", 1);
    let (lost, kept) = (world.open0(&mut peer, 1, "o"), world.open0(&mut peer, 2, "p"));
    world.pass(LEASE);
    let other = world.peer("b");
    assert!(world.try_open(&other, 1, "o", READ, ShareDeny::WRITE).is_ok(), "its lease is over");
    let client = world.state.holder(world.now, &lost).unwrap();
    let io = world.state.check_io(world.now, &client, file(1), &lost, IoKind::Read);
    assert_eq!(io.unwrap_err(), Status::EXPIRED);
    assert_eq!(world.state.named_client(world.now, peer.id).unwrap_err(), Status::EXPIRED);
    assert_eq!(world.state.holder(world.now, &kept).unwrap_err(), Status::EXPIRED);
    assert_ne!(world.peer0("a", 1).id, peer.id);
    assert_eq!(world.state.counts().opens, 1);
}

#[test]
fn setclientid_after_a_loss_returns_a_new_client_id() {
    let mut world = World::new();
    let mut peer = world.peer0("a", 1);
    world.open0(&mut peer, 1, "o");
    world.pass(LEASE);
    let other = world.peer("b");
    world.try_open(&other, 1, "o", READ, ShareDeny::WRITE).unwrap();
    let mut again = world.peer0("a", 1);
    assert_ne!(again.id, peer.id);
    world.open0(&mut again, 2, "o");
}

#[test]
fn a_client_that_closed_the_open_of_a_lost_lock_starts_over() {
    let mut world = World::new();
    let mut peer = world.peer0("a", 1);
    let open = world.open0(&mut peer, 1, "o");
    let client = world.state.holder(world.now, &open).unwrap();
    let locker = Locker::New { open_stateid: open, owner: &Arc::from(b"l".as_slice()) };
    let (lock_type, range) = (LockType::Write, range(0, 1));
    let request = LockRequest { file: file(1), lock_type, range, reclaim: false, locker, notice: None };
    let lost = world.state.lock(world.now, &client, &request).unwrap();
    world.pass(LEASE);
    let other = world.peer("b");
    world.lock(&other, &(1, world.open(&other, 1, "o", BOTH)), "l", lock_type, range).unwrap();
    world.close0(&mut peer, 1, &open);
    assert_eq!(world.state.audit(), Ok(()));
    // This is the only sign of a partial loss for a version 4.0 client (RFC 7530 §9.6.3.1).
    assert!(world.state.holder(world.now, &lost).is_ok(), "its client is known");
    assert_eq!(world.state.named_client(world.now, peer.id).unwrap_err(), Status::EXPIRED);
    assert_eq!((world.state.counts().revoked, world.state.audit()), (0, Ok(())));
}
