//! Version 4.0 (RFC 7530 §9.1.4.2 to §9.1.4.4): no current stateid, no seqid of zero for the current one, and a status of its own for
//! stateids of another instance.

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::lock::LockOutcome;
use protocol::nfs4::ops::open::{OpenResultFlags, ShareAccess, ShareDeny};
use protocol::nfs4::ops::open_state::{OpenConfirmArgs, OpenDowngradeArgs};
use protocol::nfs4::types::{Handle, Stateid, Status};

use super::{Basis, Sent, Sent::*};
use super::{DelegReturnArgs, ReadArgs, SetAttrArgs, StableHow, WriteArgs};
use crate::Export;
use crate::testing::minor0::{V40Lab, lock_more, unlock};
use crate::testing::{export, lab_with, putfh, size};
use xdr::Opaque;

const COLUMNS: [Sent; 12] = [
    Given, SeqidZero, Anonymous, Bypass, NoCurrent, Undefined, Old, Future, Unknown, Earlier, OtherFile,
    Ended,
];

const K: Option<Status> = Some(Status::OK);
const B: Option<Status> = Some(Status::BAD_STATEID);
const O: Option<Status> = Some(Status::OLD_STATEID);
const S: Option<Status> = Some(Status::STALE_STATEID);
const N: Option<Status> = None;

/// An operation, the state that its stateid names, and the status of each column; `None` if the case does not exist.
type Row = (&'static str, Basis, fn(&mut Scene, Stateid) -> Op, [Option<Status>; COLUMNS.len()]);

/// §9.1.4.3: the anonymous stateid "can be used in READ, WRITE, and SETATTR requests", and so can the one of all ones. §9.1.4.4: "If the seqid
/// field is earlier than the current sequence value … return NFS4ERR_OLD_STATEID", and zero is. §9.6.2: "An
/// NFS4ERR_STALE_STATEID error indicates a stateid invalidated by a reboot or restart."
const IO: [Option<Status>; COLUMNS.len()] = [K, O, K, K, B, B, O, B, B, S, B, B];
/// §9.1.4.4: "an all-zero stateid is used when an open stateid is required in a LOCK operation".
const STATE: [Option<Status>; COLUMNS.len()] = [K, O, B, B, B, B, O, B, B, S, B, B];
/// An unconfirmed open was never changed, and is its owner's only one.
const CONFIRM: [Option<Status>; COLUMNS.len()] = [K, O, B, B, B, B, N, B, B, S, B, N];
/// No open's stateid names a delegation.
const DELEGATION: [Option<Status>; COLUMNS.len()] = [B, N, B, B, B, B, N, B, B, S, B, B];

#[rustfmt::skip]
const TABLE: [Row; 10] = [
    ("READ", Basis::Open, |_, stateid| Op::Read(ReadArgs { stateid, offset: 0, count: 10 }), IO),
    ("READ by a lock", Basis::Lock, |_, stateid| Op::Read(ReadArgs { stateid, offset: 0, count: 10 }), IO),
    ("WRITE", Basis::Open, |_, stateid| write(stateid), IO),
    ("SETATTR of the size", Basis::Open, |_, stateid| Op::SetAttr(SetAttrArgs { stateid, attributes: size(3) }), IO),
    ("LOCK, first", Basis::Open, |scene, stateid| scene.client.lock_op(stateid, OWNER, b"new locker", 50), STATE),
    ("LOCK, another", Basis::Lock, |scene, stateid| lock_more(stateid, scene.lock_seqid + 1, 100), STATE),
    ("LOCKU", Basis::Lock, |scene, stateid| unlock(stateid, scene.lock_seqid + 1), STATE),
    ("CLOSE", Basis::Open, |scene, stateid| scene.client.close_op(stateid, OWNER), STATE),
    ("OPEN_DOWNGRADE", Basis::Open, Scene::downgrade, STATE),
    ("DELEGRETURN", Basis::Open, |_, stateid| Op::DelegReturn(DelegReturnArgs { stateid }), DELEGATION),
];

const OWNER: &[u8] = b"owner";

#[test]
fn every_operation_checks_every_stateid() {
    let mut wrong = Vec::new();
    for (name, basis, make, expected) in &TABLE {
        for (sent, expected) in COLUMNS.iter().zip(expected) {
            let Some(expected) = *expected else { continue };
            let mut scene = Scene::new();
            let stateid = scene.stateid(*basis, *sent);
            let op = make(&mut scene, stateid);
            let status = scene.client.status(vec![putfh(scene.file), op]);
            if status != expected {
                wrong.push(format!("{name}, {sent:?}: {status:?} in the place of {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn open_confirm_checks_every_stateid() {
    for (sent, expected) in COLUMNS.iter().zip(CONFIRM) {
        let Some(expected) = expected else { continue };
        let mut scene = Scene::new();
        let op = scene.client.open_op("file", OWNER);
        let (_, open) = scene.client.opened(op);
        assert!(open.flags.contains(OpenResultFlags::CONFIRM), "a new owner is confirmed");
        let open_stateid = match sent {
            Given => open.stateid,
            SeqidZero => Stateid { seqid: 0, ..open.stateid },
            Future => Stateid { seqid: open.stateid.seqid + 1, ..open.stateid },
            Unknown => unknown(open.stateid),
            Earlier => {
                scene.restart();
                open.stateid
            }
            OtherFile => {
                scene.file = scene.beside;
                open.stateid
            }
            other => scene.stateid(Basis::Open, *other),
        };
        let seqid = scene.client.next(OWNER);
        let confirm = Op::OpenConfirm(OpenConfirmArgs { open_stateid, seqid });
        assert_eq!(scene.client.status(vec![putfh(scene.file), confirm]), expected, "{sent:?}");
    }
}

/// Two files and a client.
struct Scene {
    exports: Vec<Export>,
    client: V40Lab,
    file: Handle,
    beside: Handle,
    /// The last seqid of the lock-owner.
    lock_seqid: u32,
}

fn unknown(mut stateid: Stateid) -> Stateid {
    stateid.other[11] ^= 0x40;
    stateid
}

fn write(stateid: Stateid) -> Op {
    let data = Opaque::from_static(b"data");
    Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::Unstable, data })
}

impl Scene {
    fn new() -> Self {
        let exports = vec![export(1, "/export")];
        let mut maker = lab_with(exports.clone(), |_| {});
        let file = maker.file(&["export", "file"], b"some content");
        let beside = maker.file(&["export", "beside"], b"some more of it");
        let client = V40Lab::of(&maker.server, 2, b"client");
        Self { exports, client, file, beside, lock_seqid: 0 }
    }

    fn restart(&mut self) {
        let next = lab_with(self.exports.clone(), |settings| settings.instance += 1);
        self.client = V40Lab::of(&next.server, 2, b"client");
        self.lock_seqid = 0;
    }

    fn give(&mut self, basis: Basis, name: &'static str) -> Stateid {
        let (file, open) = self.client.open(name, OWNER);
        if basis == Basis::Open {
            return open;
        }
        let lock = self.client.lock_op(open, OWNER, b"locker", 0);
        self.lock_seqid = 1;
        self.locked(file, lock)
    }

    fn locked(&mut self, file: Handle, lock: Op) -> Stateid {
        match self.client.last(vec![putfh(file), lock]) {
            OpResult::Lock(LockOutcome::Ok(stateid)) => stateid,
            other => panic!("{other:?}"),
        }
    }

    fn stateid(&mut self, basis: Basis, sent: Sent) -> Stateid {
        match sent {
            Given => self.give(basis, "file"),
            SeqidZero => Stateid { seqid: 0, ..self.give(basis, "file") },
            Anonymous => Stateid { seqid: 0, other: [0; 12] },
            Bypass => Stateid { seqid: u32::MAX, other: [0xff; 12] },
            NoCurrent => Stateid { seqid: 1, other: [0; 12] },
            Undefined => Stateid { seqid: 7, other: [0xff; 12] },
            Old => {
                let stateid = self.give(basis, "file");
                let next = match basis {
                    Basis::Open => self.client.open("file", OWNER).1,
                    _ => {
                        self.lock_seqid += 1;
                        self.locked(self.file, lock_more(stateid, self.lock_seqid, 200))
                    }
                };
                assert_eq!((next.other, next.seqid), (stateid.other, stateid.seqid + 1), "§9.1.4.2");
                stateid
            }
            Future => {
                let stateid = self.give(basis, "file");
                Stateid { seqid: stateid.seqid + 1, ..stateid }
            }
            Unknown => unknown(self.give(basis, "file")),
            Earlier => {
                let stateid = self.give(basis, "file");
                self.restart();
                stateid
            }
            OtherFile => self.give(basis, "beside"),
            Ended => self.ended(basis),
            Reserved | OtherClient | Taken | OtherKind => {
                unreachable!("{sent:?} is not a case of version 4.0")
            }
        }
    }

    // The lock stateids end with the open.
    fn ended(&mut self, basis: Basis) -> Stateid {
        let (_, open) = self.client.open("file", OWNER);
        let mut stateid = open;
        if basis == Basis::Lock {
            let lock = self.client.lock_op(open, OWNER, b"locker", 0);
            stateid = self.locked(self.file, lock);
            self.lock_seqid = 2;
            self.client.last(vec![putfh(self.file), unlock(stateid, 2)]);
        }
        let close = self.client.close_op(open, OWNER);
        self.client.last(vec![putfh(self.file), close]);
        stateid
    }

    // To the current share access.
    fn downgrade(&mut self, open_stateid: Stateid) -> Op {
        let (share_access, share_deny) = (ShareAccess::BOTH, ShareDeny::empty());
        let seqid = self.client.next(OWNER);
        Op::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid, share_access, share_deny })
    }
}
