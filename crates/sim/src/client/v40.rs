use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::lock::{
    LockArgs, LockOutcome, LockType, LockUArgs, Locker, OpenToLockOwner, ReleaseLockOwnerArgs,
};
use protocol::nfs4::ops::open::{
    CreateHow, OpenArgs, OpenClaim, OpenHow, OpenResultFlags, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::open_state::OpenConfirmArgs;
use protocol::nfs4::ops::setclientid::{
    CallbackClient, SetClientIdArgs, SetClientIdConfirmArgs, SetClientIdOk, SetClientIdResult,
};
use protocol::nfs4::types::{
    ClientId, ClientOwner, HasStatus, NetAddress, StateOwner, Stateid, Status, Utf8,
};
use rpc::message::{parse_reply, peek};
use xdr::Opaque;

use super::v41::{at_export, change, component, compound, export, renumbered};
use super::{Client, Step};
use crate::rng::Rng;
use crate::world::Received;

/// What the client says next.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// SETCLIENTID.
    Introduce,
    /// SETCLIENTID_CONFIRM.
    Confirm(SetClientIdOk),
    /// The next step: a change, or OPEN for a file that is made.
    Step,
    /// OPEN_CONFIRM.
    ConfirmOpen(Stateid),
    /// LOCK.
    Lock(Stateid),
    /// LOCKU.
    Unlock { open: Stateid, lock: Stateid },
    /// CLOSE.
    Close(Stateid),
    /// RELEASE_LOCKOWNER.
    Release,
}

/// SETCLIENTID of the client that is called `name`, which cannot be called back.
pub(crate) fn set_client_id(name: &str) -> Op {
    let owner_id = Opaque::new(name.to_owned().into_bytes()).expect("a short name");
    let location =
        NetAddress { netid: Utf8::from_static(b"tcp"), address: Utf8::from_static(b"0.0.0.0.0.0") };
    Op::SetClientId(SetClientIdArgs {
        client: ClientOwner { verifier: [1; 8], owner_id },
        callback: CallbackClient { program: 0x4000_0000, location },
        callback_ident: 1,
    })
}

/// A client of NFS version 4.0 with one open-owner and one lock-owner.
#[derive(Debug)]
pub struct ClientV40 {
    name: String,
    script: VecDeque<Step>,
    phase: Phase,
    client_id: ClientId,
    xid: u32,
    /// Last seqid of the open-owner, and of the lock-owner.
    seqids: (u32, u32),
    /// The file made last.
    file: String,
    /// The present call has a seqid.
    is_sequenced: bool,
}

impl ClientV40 {
    /// A client that will go through `script`; each file that it makes it locks, unlocks and closes.
    #[must_use]
    pub fn new(name: &str, script: Vec<Step>, first_xid: u32) -> Self {
        Self {
            name: name.to_owned(),
            script: script.into(),
            phase: Phase::Introduce,
            client_id: 0,
            xid: first_xid,
            seqids: (0, 0),
            file: String::new(),
            is_sequenced: false,
        }
    }

    fn owner(&self) -> StateOwner {
        let owner = Opaque::new(self.name.clone().into_bytes()).expect("a short name");
        StateOwner { client_id: self.client_id, owner }
    }

    fn open(&mut self, name: &str) -> Op {
        self.seqids.0 += 1;
        Op::Open(OpenArgs {
            seqid: self.seqids.0,
            share_access: ShareAccess::BOTH,
            share_deny: ShareDeny::empty(),
            owner: self.owner(),
            how: OpenHow::Create(CreateHow::Guarded(FileAttributes::default())),
            claim: OpenClaim::Null(component(name)),
        })
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

    /// The operations of the next call.
    fn next_ops(&mut self) -> Option<Vec<Op>> {
        let at_file = |client: &Self, op| at_export(&client.file).into_iter().chain([op]).collect();
        Some(match self.phase {
            Phase::Introduce => vec![set_client_id(&self.name)],
            Phase::Confirm(SetClientIdOk { client_id, confirm }) => {
                vec![Op::SetClientIdConfirm(SetClientIdConfirmArgs { client_id, confirm })]
            }
            Phase::Step => match self.script.front()?.clone() {
                Step::Create(name) => {
                    self.file.clone_from(&name);
                    export().into_iter().chain([self.open(&name)]).collect()
                }
                step => change(&step, &self.file),
            },
            Phase::ConfirmOpen(open_stateid) => {
                self.seqids.0 += 1;
                let args = OpenConfirmArgs { open_stateid, seqid: self.seqids.0 };
                at_file(self, Op::OpenConfirm(args))
            }
            Phase::Lock(open) => {
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

    /// What comes after the present call, which succeeded with `last` as its last result.
    fn go_on(&mut self, last: &OpResult) -> Result<(), String> {
        let wrong = || Err(format!("{last:?} is no answer to {:?}", self.phase));
        self.phase = match (self.phase, last) {
            (Phase::Introduce, OpResult::SetClientId(SetClientIdResult::Ok(ok))) => {
                self.client_id = ok.client_id;
                Phase::Confirm(*ok)
            }
            (Phase::Step, OpResult::Open(open)) => {
                let ok = open.clone().into_result().map_err(|status| format!("OPEN: {status:?}"))?;
                let must_confirm = ok.flags.contains(OpenResultFlags::CONFIRM);
                if must_confirm { Phase::ConfirmOpen(ok.stateid) } else { Phase::Lock(ok.stateid) }
            }
            (Phase::ConfirmOpen(_), OpResult::OpenConfirm(result)) => {
                Phase::Lock(result.clone().into_result().map_err(|status| format!("{status:?}"))?)
            }
            (Phase::Lock(open), OpResult::Lock(LockOutcome::Ok(lock))) => Phase::Unlock { open, lock: *lock },
            (Phase::Unlock { open, .. }, OpResult::LockU(_)) => Phase::Close(open),
            (Phase::Close(_), OpResult::Close(_)) => Phase::Release,
            (Phase::Confirm(_), _) => Phase::Step,
            (Phase::Step | Phase::Release, _) => {
                self.script.pop_front();
                Phase::Step
            }
            _ => return wrong(),
        };
        Ok(())
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
            // The same request is still being executed under another transaction number; no seqid is taken by this answer
            // (RFC 7530 §9.1.7).
            Status::RESOURCE if self.is_sequenced => return Ok(Received::Later),
            status => {
                let failed = result.results.last().map(HasStatus::status);
                let phase = self.phase;
                return Err(format!("{phase:?}: {status:?} ({failed:?}), as if it were executed twice"));
            }
        }
        self.go_on(result.results.last().ok_or("no results")?)?;
        Ok(Received::Answered)
    }

    /// What has a seqid is told by that, whatever its transaction number; everything else by the number, which therefore
    /// stays over connections.
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
