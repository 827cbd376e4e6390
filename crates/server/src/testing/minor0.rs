//! A client of NFSv4.0 for tests.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::lock::{ExistingLockOwner, LockArgs, LockType, LockUArgs, Locker, OpenToLockOwner};
use protocol::nfs4::ops::open::{OpenHow, OpenOk, OpenResultFlags, ShareAccess};
use protocol::nfs4::ops::open_state::OpenConfirmArgs;
use protocol::nfs4::ops::setclientid::{
    CallbackClient, SetClientIdArgs, SetClientIdConfirmArgs, SetClientIdOk, SetClientIdResult,
};
use protocol::nfs4::types::{ClientOwner, Handle, HasStatus, NetAddress, StateOwner, Stateid, Status, Utf8};
use xdr::{List, Opaque};

use crate::testing::{Lab, at, export, lab_of, open_args, open_result};
use crate::{Export, Server};

/// A client of version 4.0 on its own connection.
pub(crate) struct V40Lab {
    pub(crate) lab: Lab,
    pub(crate) client_id: u64,
    /// The last seqid of each open-owner.
    seqids: HashMap<&'static [u8], u32>,
}

/// Returns a client of the superuser, at a server with one export, `/export`, which contains an empty file `file`.
pub(crate) fn v40_lab() -> V40Lab {
    v40_lab_of(vec![export(1, "/export")])
}

pub(crate) fn v40_lab_of(exports: Vec<Export>) -> V40Lab {
    let mut maker = lab_of(exports);
    maker.file(&["export", "file"], b"");
    V40Lab::of(&maker.server, 2, b"client")
}

impl V40Lab {
    /// Returns a confirmed client.
    pub(crate) fn of(server: &Arc<Server>, connection: u64, name: &'static [u8]) -> Self {
        let lab = Lab::without_session(Arc::clone(server), connection);
        let mut lab = Self { lab, client_id: 0, seqids: HashMap::new() };
        lab.reboot(name, 1);
        lab
    }

    /// Returns another client of the same server.
    pub(crate) fn other(&self, name: &'static [u8]) -> Self {
        let mut other = Self::of(&self.lab.server, self.lab.connection.id.0 + 1, name);
        other.lab.seconds = self.lab.seconds;
        other
    }

    /// Registers the client with boot verifier `verifier`.
    pub(crate) fn reboot(&mut self, name: &'static [u8], verifier: u8) {
        let SetClientIdResult::Ok(ok) = self.set_client_id(name, verifier, 0) else { panic!() };
        assert_eq!(self.confirm(&ok), Status::OK);
        self.client_id = ok.client_id;
    }

    /// SETCLIENTID with callbacks to the given port of 192.0.2.1.
    pub(crate) fn set_client_id(&mut self, name: &'static [u8], verifier: u8, port: u8) -> SetClientIdResult {
        self.set_callback(name, verifier, &format!("192.0.2.1.0.{port}"))
    }

    /// SETCLIENTID with callbacks to this universal address.
    pub(crate) fn set_callback(
        &mut self,
        name: &'static [u8],
        verifier: u8,
        address: &str,
    ) -> SetClientIdResult {
        let address = Utf8::new(address.to_owned().into_bytes()).unwrap();
        let op = Op::SetClientId(SetClientIdArgs {
            client: ClientOwner { verifier: [verifier; 8], owner_id: Opaque::from_static(name) },
            callback: CallbackClient {
                program: 0x4000_0000,
                location: NetAddress { netid: Utf8::from_static(b"tcp"), address },
            },
            callback_ident: 7,
        });
        match self.send(vec![op]).results.into_vec().pop() {
            Some(OpResult::SetClientId(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn confirm(&mut self, ok: &SetClientIdOk) -> Status {
        let (client_id, confirm) = (ok.client_id, ok.confirm);
        self.send(vec![Op::SetClientIdConfirm(SetClientIdConfirmArgs { client_id, confirm })]).status
    }

    /// Sends operations as one compound.
    pub(crate) fn send(&mut self, ops: Vec<Op>) -> CompoundResult {
        let args = compound0(ops);
        let result = self.lab.send(&args);
        assert_eq!(result.results.last().map(HasStatus::status), Some(result.status), "{result:?}");
        result
    }

    /// Returns the result of the last operation of a compound that succeeds.
    #[track_caller]
    pub(crate) fn last(&mut self, ops: Vec<Op>) -> OpResult {
        let result = self.send(ops);
        assert_eq!(result.status, Status::OK, "{result:?}");
        result.results.into_vec().pop().unwrap()
    }

    pub(crate) fn status(&mut self, ops: Vec<Op>) -> Status {
        self.send(ops).status
    }

    pub(crate) fn owner(&self, owner: &'static [u8]) -> StateOwner {
        StateOwner { client_id: self.client_id, owner: Opaque::from_static(owner) }
    }

    /// Returns the next seqid of an open-owner.
    pub(crate) fn next(&mut self, owner: &'static [u8]) -> u32 {
        let seqid = self.seqids.entry(owner).or_default();
        *seqid += 1;
        *seqid
    }

    /// OPEN by name for reading and writing, with the owner's next seqid.
    pub(crate) fn open_op(&mut self, name: &'static str, owner: &'static [u8]) -> Op {
        let mut args = open_args(name, owner, ShareAccess::BOTH, OpenHow::NoCreate);
        args.seqid = self.next(owner);
        args.owner = self.owner(owner);
        Op::Open(args)
    }

    /// Opens a file of the export, and confirms the open if needed.
    #[track_caller]
    pub(crate) fn open(&mut self, name: &'static str, owner: &'static [u8]) -> (Handle, Stateid) {
        let op = self.open_op(name, owner);
        let (handle, ok) = self.opened(op);
        if !ok.flags.contains(OpenResultFlags::CONFIRM) {
            return (handle, ok.stateid);
        }
        let op = self.confirm_op(ok.stateid, owner);
        match self.last(vec![crate::testing::putfh(handle), op]) {
            OpResult::OpenConfirm(result) => (handle, result.into_result().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn opened(&mut self, open: Op) -> (Handle, OpenOk) {
        let result = self.send(at(&["export"], vec![open, Op::GetFh]));
        assert_eq!(result.status, Status::OK, "{result:?}");
        match &result.results[2..] {
            [open, OpResult::GetFh(handle)] => (*handle.as_result().unwrap(), open_result(open).clone()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn confirm_op(&mut self, open_stateid: Stateid, owner: &'static [u8]) -> Op {
        Op::OpenConfirm(OpenConfirmArgs { open_stateid, seqid: self.next(owner) })
    }

    pub(crate) fn close_op(&mut self, open_stateid: Stateid, owner: &'static [u8]) -> Op {
        Op::Close(CloseArgs { seqid: self.next(owner), open_stateid })
    }

    /// Returns a first LOCK of ten bytes at `offset` by a new lock-owner, whose seqid is 1.
    pub(crate) fn lock_op(
        &mut self,
        open_stateid: Stateid,
        owner: &'static [u8],
        locker: &'static [u8],
        offset: u64,
    ) -> Op {
        let lock_owner = self.owner(locker);
        let new = OpenToLockOwner { open_seqid: self.next(owner), open_stateid, lock_seqid: 1, lock_owner };
        lock(offset, Locker::New(new))
    }
}

/// Returns a LOCK of ten more bytes by a lock-owner.
pub(crate) fn lock_more(lock_stateid: Stateid, lock_seqid: u32, offset: u64) -> Op {
    lock(offset, Locker::Existing(ExistingLockOwner { lock_stateid, lock_seqid }))
}

fn lock(offset: u64, locker: Locker) -> Op {
    Op::Lock(LockArgs { lock_type: LockType::Write, reclaim: false, offset, length: 10, locker })
}

/// Returns a LOCKU of the whole file.
pub(crate) fn unlock(lock_stateid: Stateid, seqid: u32) -> Op {
    let (lock_type, offset, length) = (LockType::Write, 0, u64::MAX);
    Op::LockU(LockUArgs { lock_type, seqid, lock_stateid, offset, length })
}

pub(crate) fn compound0(ops: Vec<Op>) -> CompoundArgs {
    CompoundArgs { tag: Utf8::from_static(b"tag"), minor_version: 0, ops: List::new(ops).unwrap() }
}
