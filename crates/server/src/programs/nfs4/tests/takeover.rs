//! Attempts to use the state of another NFSv4.0 client or user.

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::lock::{LockOutcome, LockTArgs, LockType};
use protocol::nfs4::ops::open::{ShareAccess, ShareDeny};
use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::setclientid::RenewArgs;
use protocol::nfs4::types::{Handle, Stateid, Status};

use crate::testing::minor0::{V40Lab, unlock, v40_lab};
use crate::testing::{at, mode, putfh};

/// The user of SETCLIENTID, the user who opens and locks files, and a third one.
const MACHINE: u32 = 0;
const USER: u32 = 1000;
const STRANGER: u32 = 1001;

/// A client whose user has a file open and locked.
struct Scene {
    lab: V40Lab,
    file: Handle,
    open: Stateid,
    lock: Stateid,
}

impl Scene {
    fn new() -> Self {
        let mut lab = v40_lab();
        let set = Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o666) });
        lab.last(at(&["export", "file"], vec![set]));
        lab.lab.uid = USER;
        let (file, open) = lab.open("file", b"owner");
        let op = lab.lock_op(open, b"owner", b"locker", 0);
        let OpResult::Lock(LockOutcome::Ok(lock)) = lab.last(vec![putfh(file), op]) else { panic!() };
        Self { lab, file, open, lock }
    }

    fn status_by(&mut self, uid: u32, op: Op) -> Status {
        self.lab.lab.uid = uid;
        self.lab.status(vec![putfh(self.file), op])
    }

    fn counts(&self) -> (u64, u64) {
        let counts = self.lab.lab.server.counts();
        (counts.opens, counts.locks)
    }
}

/// Returns `other` fields near a known one: with its index and neighboring ones (`index_at` is the position of the index), each with all of
/// the `rests`.
fn guesses(own: [u8; 12], index_at: usize, rests: &[Vec<u8>]) -> Vec<[u8; 12]> {
    let index = u32::from_be_bytes(*own[index_at..].first_chunk().unwrap());
    let indices = (0..1024).chain(index.saturating_sub(1024)..index + 1024);
    let guess = |index: u32, rest: &Vec<u8>| {
        let mut other = own;
        other[index_at..index_at + 4].copy_from_slice(&index.to_be_bytes());
        other[index_at + 4..].copy_from_slice(rest);
        other
    };
    indices.flat_map(|index| rests.iter().map(move |rest| guess(index, rest))).collect()
}

/// Stateids made of an index and a counter were found in 4,153 guesses.
#[test]
fn stateids_cannot_be_guessed() {
    let mut scene = Scene::new();
    let mut attacker = scene.lab.other(b"attacker");
    let (_, own) = attacker.open("file", b"owner");
    // The former layout: 32 bits each of instance, index and generation, which counted from one.
    let counted: Vec<_> = (1..=4u32).map(|count| count.to_be_bytes().to_vec()).collect();
    let mut others = guesses(own.other, 4, &counted);
    // The present layout: counters, and values near the known generation.
    let own_rest = u64::from_be_bytes([
        0,
        0,
        own.other[6],
        own.other[7],
        own.other[8],
        own.other[9],
        own.other[10],
        own.other[11],
    ]);
    let near = (0..4).chain(own_rest.saturating_sub(2)..own_rest + 3);
    let near: Vec<_> = near.map(|rest: u64| rest.to_be_bytes()[2..].to_vec()).collect();
    others.extend(guesses(own.other, 2, &near));
    assert!(others.len() > 30_000);
    for other in others.into_iter().filter(|other| *other != own.other) {
        let status = attacker.status(vec![putfh(scene.file), unlock(Stateid { seqid: 1, other }, 2)]);
        assert!(matches!(status, Status::BAD_STATEID | Status::STALE_STATEID), "{status:?} {other:?}");
    }
    assert_eq!(scene.counts(), (2, 1));
    assert_eq!(scene.status_by(USER, unlock(scene.lock, 2)), Status::OK);
}

#[test]
fn only_lock_owner_or_client_principal_unlocks() {
    for (uid, freed) in [(USER, Status::OK), (MACHINE, Status::OK), (STRANGER, Status::ACCESS)] {
        let mut scene = Scene::new();
        assert_eq!(scene.status_by(uid, unlock(scene.lock, 2)), freed);
        assert_eq!(scene.counts(), (1, u64::from(freed != Status::OK)));
        if freed != Status::OK {
            // RFC 7530 §9.1.7: ACCESS takes a seqid.
            assert_eq!(scene.status_by(USER, unlock(scene.lock, 3)), Status::OK);
        }
    }
}

#[test]
fn only_opener_or_client_principal_closes() {
    for (uid, closed) in [(USER, Status::OK), (MACHINE, Status::OK), (STRANGER, Status::BAD_STATEID)] {
        let mut scene = Scene::new();
        let close = scene.lab.close_op(scene.open, b"owner");
        assert_eq!(scene.status_by(uid, close.clone()), closed);
        let left = u64::from(closed != Status::OK);
        assert_eq!(scene.counts(), (left, left));
        if closed != Status::OK {
            assert_eq!(scene.status_by(USER, close), Status::OK, "no seqid was used");
        }
    }
}

#[test]
fn only_opener_or_client_principal_downgrades() {
    for (uid, done) in [(USER, Status::OK), (MACHINE, Status::OK), (STRANGER, Status::BAD_STATEID)] {
        let mut scene = Scene::new();
        let (share_access, share_deny) = (ShareAccess::BOTH, ShareDeny::empty());
        let (open_stateid, seqid) = (scene.open, scene.lab.next(b"owner"));
        let downgrade =
            Op::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid, share_access, share_deny });
        assert_eq!(scene.status_by(uid, downgrade), done);
    }
}

/// Users of one client may share an open-owner: each of them holds its opens.
#[test]
fn any_user_of_shared_owner_may_close() {
    let mut scene = Scene::new();
    scene.lab.lab.uid = STRANGER;
    let (_, open) = scene.lab.open("file", b"owner");
    let close = scene.lab.close_op(open, b"owner");
    assert_eq!(scene.status_by(STRANGER, close), Status::OK);
}

/// RFC 7530 §16.28.5.
#[test]
fn only_client_or_user_with_open_renews_lease() {
    let mut scene = Scene::new();
    let renew = Op::Renew(RenewArgs { client_id: scene.lab.client_id });
    for (uid, renewed) in [(MACHINE, Status::OK), (USER, Status::OK), (STRANGER, Status::ACCESS)] {
        scene.lab.lab.uid = uid;
        assert_eq!(scene.lab.status(vec![renew.clone()]), renewed, "{uid}");
    }
    let close = scene.lab.close_op(scene.open, b"owner");
    assert_eq!(scene.status_by(USER, close), Status::OK);
    assert_eq!(scene.lab.status(vec![renew.clone()]), Status::ACCESS, "the user has no open file left");
    // A refused RENEW does not renew the lease.
    scene.lab.lab.seconds += 60;
    assert_eq!(scene.lab.status(vec![renew.clone()]), Status::ACCESS);
    scene.lab.lab.pass(40);
    scene.lab.lab.uid = MACHINE;
    assert_eq!(scene.lab.status(vec![renew]), Status::EXPIRED);
}

#[test]
fn client_ids_cannot_be_guessed() {
    let mut scene = Scene::new();
    let mut attacker = scene.lab.other(b"attacker");
    let own = attacker.client_id;
    let near = (0..5000u64).flat_map(|by| [own.wrapping_add(by), own.wrapping_sub(by)]);
    let counted = (0..5000u64).map(|count| own >> 32 << 32 | count);
    for client_id in near.chain(counted).filter(|id| *id != own) {
        // The status that the victim's own principal would get.
        let status = attacker.status(vec![Op::Renew(RenewArgs { client_id })]);
        assert!(matches!(status, Status::EXPIRED | Status::STALE_CLIENTID), "{status:?} {client_id:#x}");
    }
    assert_eq!(scene.status_by(USER, unlock(scene.lock, 2)), Status::OK);
}

/// RENEW, OPEN and RELEASE_LOCKOWNER identify a client only by its client ID.
#[test]
fn denied_lock_hides_client_id_of_holder() {
    let mut scene = Scene::new();
    let test = |lab: &mut V40Lab, owner: &'static [u8]| {
        let (lock_type, owner) = (LockType::Write, lab.owner(owner));
        let op = Op::LockT(LockTArgs { lock_type, offset: 0, length: 1, owner });
        let result = lab.send(vec![putfh(scene.file), op]).results.into_vec().pop();
        let Some(OpResult::LockT(LockOutcome::Denied(denied))) = result else { panic!("{result:?}") };
        (denied.owner.client_id, denied.owner.owner.to_vec())
    };
    let mut other = scene.lab.other(b"other");
    let (reported, owner) = test(&mut other, b"locker");
    assert_eq!(owner, b"locker");
    assert_ne!(reported, scene.lab.client_id);
    let renew = |client_id| vec![Op::Renew(RenewArgs { client_id })];
    assert_eq!(other.status(renew(reported)), Status::STALE_CLIENTID);
    assert_eq!(test(&mut other, b"locker").0, reported, "always the same");
    assert_eq!(test(&mut scene.lab, b"another locker").0, scene.lab.client_id, "it knows its own ID");
}
