use std::collections::VecDeque;
use std::time::Duration;

use ::client::raw;
use bytes::Bytes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::lock::{
    LockArgs, LockOutcome, LockType, LockUArgs, Locker, OpenToLockOwner, ReleaseLockOwnerArgs,
};
use protocol::nfs4::ops::open::{
    OpenArgs, OpenClaim, OpenDelegation, OpenHow, OpenResultFlags, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::open_state::{OpenConfirmArgs, OpenDowngradeArgs};
use protocol::nfs4::ops::setclientid::{SetClientIdConfirmArgs, SetClientIdOk, SetClientIdResult};
use protocol::nfs4::types::{ClientId, HasStatus, Outcome, StateOwner, Stateid, Status, Utf8};
use rpc::message::{parse_reply, peek};
use xdr::Opaque;

use super::v41::{at_export, change, component, compound, config, export, renumbered};
use super::{Client, Step};
use crate::rng::Rng;
use crate::world::Received;

/// An open, and its next operation.
#[derive(Debug, Clone, Copy)]
enum Opened {
    /// OPEN for writing too.
    ToUpgrade(Stateid),
    /// LOCK.
    ToLock(Stateid),
}

/// The client's next call.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// SETCLIENTID.
    Introduce,
    /// SETCLIENTID_CONFIRM.
    Confirm(SetClientIdOk),
    /// The next step: a change, or OPEN to create a file.
    Step,
    /// OPEN_CONFIRM.
    ConfirmOpen(Stateid),
    /// DELEGRETURN, if OPEN granted a delegation.
    Return { delegation: Stateid, next: Opened },
    /// OPEN for writing too, or LOCK.
    Go(Opened),
    /// LOCKU.
    Unlock { open: Stateid, lock: Stateid },
    /// OPEN_DOWNGRADE.
    Downgrade(Stateid),
    /// CLOSE.
    Close(Stateid),
    /// RELEASE_LOCKOWNER.
    Release,
}

/// Returns SETCLIENTID of a client without callbacks.
pub(crate) fn set_client_id(name: &str) -> Op {
    introduction(name, "0.0.0.0.0.0")
}

/// Returns SETCLIENTID with a callback address.
fn introduction(name: &str, address: &str) -> Op {
    let address = Utf8::new(address.to_owned().into_bytes()).expect("a short address");
    raw::set_client_id(&config(name), address, 1).expect("a short name")
}

/// A client of NFS version 4.0 with one open-owner and one lock-owner.
#[derive(Debug)]
pub struct ClientV40 {
    name: String,
    /// Its callback address, as a universal address.
    address: String,
    script: VecDeque<Step>,
    phase: Phase,
    client_id: ClientId,
    xid: u32,
    /// Last seqids of the open-owner and of the lock-owner.
    seqids: (u32, u32),
    /// The last created file.
    file: String,
    /// The delegation of the last OPEN.
    delegation: Option<Stateid>,
    /// Whether the current call has a seqid.
    is_sequenced: bool,
}

impl ClientV40 {
    /// Creates client number `index`, with a callback address. It runs `script`. It upgrades, downgrades, locks,
    /// unlocks and closes each file that it creates, and returns delegations.
    #[must_use]
    pub fn new(index: usize, script: Vec<Step>, first_xid: u32) -> Self {
        Self {
            name: format!("client-{index}"),
            address: format!("{}.3.0", crate::world::address(index)),
            script: script.into(),
            phase: Phase::Introduce,
            client_id: 0,
            xid: first_xid,
            seqids: (0, 0),
            file: String::new(),
            delegation: None,
            is_sequenced: false,
        }
    }

    fn owner(&self) -> StateOwner {
        let owner = Opaque::new(self.name.clone().into_bytes()).expect("a short name");
        StateOwner { client_id: self.client_id, owner }
    }

    fn open(&mut self, name: &str, share_access: ShareAccess, how: OpenHow) -> Vec<Op> {
        self.seqids.0 += 1;
        let open = Op::Open(OpenArgs {
            seqid: self.seqids.0,
            share_access,
            share_deny: ShareDeny::empty(),
            owner: self.owner(),
            how,
            claim: OpenClaim::Null(component(name)),
        });
        export().into_iter().chain([open]).collect()
    }

    fn downgrade(&mut self, open_stateid: Stateid) -> Op {
        self.seqids.0 += 1;
        let (seqid, share_access, share_deny) = (self.seqids.0, ShareAccess::READ, ShareDeny::empty());
        Op::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid, share_access, share_deny })
    }

    fn lock(&mut self, open_stateid: Stateid) -> Op {
        self.seqids = (self.seqids.0 + 1, self.seqids.1 + 1);
        let new = OpenToLockOwner {
            open_seqid: self.seqids.0,
            open_stateid,
            lock_seqid: self.seqids.1,
            lock_owner: self.owner(),
        };
        let (lock_type, locker) = (LockType::Write, Locker::New(new));
        Op::Lock(LockArgs { lock_type, reclaim: false, offset: 0, length: 10, locker })
    }

    fn unlock(&mut self, lock_stateid: Stateid) -> Op {
        self.seqids.1 += 1;
        let (lock_type, seqid) = (LockType::Write, self.seqids.1);
        Op::LockU(LockUArgs { lock_type, seqid, lock_stateid, offset: 0, length: u64::MAX })
    }

    /// Returns the operations of the next call.
    fn next_ops(&mut self) -> Option<Vec<Op>> {
        let at_file = |client: &Self, op| at_export(&client.file).into_iter().chain([op]).collect();
        Some(match self.phase {
            Phase::Introduce => vec![introduction(&self.name, &self.address)],
            Phase::Confirm(SetClientIdOk { client_id, confirm }) => {
                vec![Op::SetClientIdConfirm(SetClientIdConfirmArgs { client_id, confirm })]
            }
            Phase::Step => {
                let step = self.script.front()?.clone();
                match step.created() {
                    Some((name, how)) => {
                        name.clone_into(&mut self.file);
                        self.open(name, ShareAccess::READ, how)
                    }
                    None => change(&step, &self.file),
                }
            }
            Phase::Go(Opened::ToUpgrade(_)) => {
                self.open(&self.file.clone(), ShareAccess::BOTH, OpenHow::NoCreate)
            }
            Phase::Return { delegation, .. } => {
                at_file(self, Op::DelegReturn(DelegReturnArgs { stateid: delegation }))
            }
            Phase::Downgrade(open) => {
                let op = self.downgrade(open);
                at_file(self, op)
            }
            Phase::ConfirmOpen(open_stateid) => {
                self.seqids.0 += 1;
                let args = OpenConfirmArgs { open_stateid, seqid: self.seqids.0 };
                at_file(self, Op::OpenConfirm(args))
            }
            Phase::Go(Opened::ToLock(open)) => {
                let op = self.lock(open);
                at_file(self, op)
            }
            Phase::Unlock { lock, .. } => {
                let op = self.unlock(lock);
                at_file(self, op)
            }
            Phase::Close(open_stateid) => {
                self.seqids.0 += 1;
                let seqid = self.seqids.0;
                at_file(self, Op::Close(CloseArgs { seqid, open_stateid }))
            }
            Phase::Release => vec![Op::ReleaseLockOwner(ReleaseLockOwnerArgs { lock_owner: self.owner() })],
        })
    }

    /// Starts the next call after the current one, which succeeded with `last` as its last result.
    fn start_next_call(&mut self, last: &OpResult) -> Result<(), String> {
        let next = match (self.phase, last) {
            (Phase::Introduce, OpResult::SetClientId(SetClientIdResult::Ok(ok))) => {
                self.client_id = ok.client_id;
                Phase::Confirm(*ok)
            }
            (Phase::Step, OpResult::Open(Outcome::Ok(ok))) => {
                self.delegation = delegated(&ok.delegation);
                let must_confirm = ok.flags.contains(OpenResultFlags::CONFIRM);
                if must_confirm {
                    Phase::ConfirmOpen(ok.stateid)
                } else {
                    self.opened(Opened::ToUpgrade(ok.stateid))
                }
            }
            (Phase::ConfirmOpen(_), OpResult::OpenConfirm(Outcome::Ok(open))) => {
                self.opened(Opened::ToUpgrade(*open))
            }
            (Phase::Return { next, .. }, OpResult::DelegReturn(_)) => Phase::Go(next),
            (Phase::Go(Opened::ToUpgrade(before)), OpResult::Open(Outcome::Ok(ok))) => {
                self.delegation = delegated(&ok.delegation);
                is_next(before, ok.stateid)?;
                self.opened(Opened::ToLock(ok.stateid))
            }
            (Phase::Go(Opened::ToLock(open)), OpResult::Lock(LockOutcome::Ok(lock))) => {
                Phase::Unlock { open, lock: *lock }
            }
            (Phase::Unlock { open, lock }, OpResult::LockU(Outcome::Ok(unlocked))) => {
                is_next(lock, *unlocked)?;
                Phase::Downgrade(open)
            }
            (Phase::Downgrade(before), OpResult::OpenDowngrade(Outcome::Ok(open))) => {
                is_next(before, *open)?;
                Phase::Close(*open)
            }
            (Phase::Close(_), OpResult::Close(_)) => Phase::Release,
            (Phase::Confirm(_), _) => Phase::Step,
            (Phase::Step | Phase::Release, _) => {
                self.script.pop_front();
                Phase::Step
            }
            _ => return Err(format!("{last:?} is not an answer to {:?}", self.phase)),
        };
        self.phase = next;
        Ok(())
    }

    /// Moves on after OPEN: a delegation is returned first.
    fn opened(&mut self, next: Opened) -> Phase {
        self.delegation.take().map_or(Phase::Go(next), |delegation| Phase::Return { delegation, next })
    }
}

/// Returns the stateid of the delegation that an OPEN granted.
fn delegated(delegation: &OpenDelegation) -> Option<Stateid> {
    match delegation {
        OpenDelegation::Read(read) => Some(read.stateid),
        OpenDelegation::Write(write) => Some(write.stateid),
        _ => None,
    }
}

/// RFC 7530 §9.1.4.2: "the server is required to advance the seqid field by one whenever it returns a stateid" after an
/// operation that may change its locks. A second execution shows there.
fn is_next(before: Stateid, after: Stateid) -> Result<(), String> {
    if (before.other, before.seqid + 1) == (after.other, after.seqid) {
        Ok(())
    } else {
        Err(format!("{after:?} follows {before:?}, as if an operation were executed twice"))
    }
}

impl Client for ClientV40 {
    fn next_call(&mut self, _: Duration) -> Option<Bytes> {
        let before = self.seqids;
        let ops = self.next_ops()?;
        self.is_sequenced = self.seqids != before;
        self.xid += 1;
        Some(compound(self.xid, 0, ops))
    }

    fn receive(&mut self, bytes: Bytes) -> Result<Received, String> {
        let (xid, _) = peek(&bytes).map_err(|error| error.to_string())?;
        if xid != self.xid {
            return Ok(Received::NotMine);
        }
        let result: CompoundResult = parse_reply(bytes).map_err(|error| error.to_string())?;
        match result.status {
            Status::OK => {}
            // The same request still runs under another transaction number. This reply uses no seqid (RFC 7530 §9.1.7).
            Status::RESOURCE if self.is_sequenced => return Ok(Received::Later),
            status => {
                let failed = result.results.last().map(HasStatus::status);
                let phase = self.phase;
                return Err(format!("{phase:?}: {status:?} ({failed:?}), as if it were executed twice"));
            }
        }
        self.start_next_call(result.results.last().ok_or("no results")?)?;
        Ok(Received::Answered)
    }

    /// Sends a call again. The server recognizes a request with a seqid by its seqid, with any transaction number. Other requests keep the number over
    /// connections.
    fn retransmit(&mut self, bytes: Bytes, rng: &mut Rng) -> Bytes {
        if !self.is_sequenced || !rng.chance(50) {
            return bytes;
        }
        self.xid += 1;
        renumbered(&bytes, self.xid)
    }

    fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Step) && self.script.is_empty()
    }
}
