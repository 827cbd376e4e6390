//! LOCK and LOCKU of a range, each in its own compound; the pair counts as one operation.
//!
//! All slots of all connections lock in the same file. Each slot has its own lock-owner and range, so no lock is refused, and every
//! request is checked against all locks held at the moment.

use std::rc::Rc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockOutcome, LockType, LockUArgs, Locker, OpenToLockOwner,
};
use protocol::nfs4::ops::open::{OpenArgs, OpenClaim, OpenHow, ShareAccess};
use protocol::nfs4::types::{Handle, Outcome as Answer, Stateid};

use super::session::{Setup, unexpected};
use super::slots::{Keep, Request, Slots};
use super::{component, open, owner};
use crate::error::LoadError;
use crate::layout;
use crate::load::replies::Reply;
use crate::load::workload::{DEPTH_MAX, Outcome, Workload};

/// Bytes of each range; gaps of the same length separate them.
const RANGE_BYTES: u64 = 1 << 10;

pub(super) struct LockUnlock {
    slots: Rc<Slots>,
    /// LOCK and LOCKU of each slot.
    requests: Vec<[Request; 2]>,
    /// Slots that hold their lock, so that the LOCKU comes next.
    locked: Vec<bool>,
}

impl LockUnlock {
    pub(super) async fn new(setup: &mut Setup<'_>) -> Result<Self, LoadError> {
        let slots = setup.session.slots();
        let (handle, open_stateid) = open_file(setup).await?;
        let mut requests = Vec::new();
        for slot in 0..slots.count() {
            let place = u64::from(setup.connection) * DEPTH_MAX as u64 + slot as u64;
            let range = Range { handle, offset: 2 * RANGE_BYTES * place };
            let stateid = range.introduce(setup, slot, open_stateid).await?;
            let existing = Locker::Existing(ExistingLockOwner { lock_stateid: stateid, lock_seqid: 0 });
            requests.push(
                [range.lock(existing), range.unlock(stateid)]
                    .map(|operations| slots.request(slot, Keep::Yes, &operations)),
            );
        }
        Ok(Self { locked: vec![false; slots.count()], requests, slots })
    }
}

/// Opens the file for reading and writing, for the duration of the measurement.
async fn open_file(setup: &mut Setup<'_>) -> Result<(Handle, Stateid), LoadError> {
    let handle = setup.find(layout::SMALL_WRITE_FILE).await?;
    // RFC 8881 §18.16.1: by the current handle, which the session may since version 4.1.
    let by_handle =
        OpenArgs { claim: OpenClaim::Fh, ..open(0, ShareAccess::BOTH, OpenHow::NoCreate, component("")) };
    let results = setup.call("OPEN", vec![Op::PutFh(PutFhArgs { handle }), Op::Open(by_handle)]).await?;
    match &results[..] {
        [_, OpResult::Open(Answer::Ok(opened))] => {
            // RFC 8881 §8.2.2: with a sequence number of 0, it always means the most recent one.
            let stateid = Stateid { seqid: 0, ..opened.stateid };
            setup.close_later(handle, stateid);
            Ok((handle, stateid))
        }
        _ => Err(unexpected("OPEN", &results)),
    }
}

/// The lock of a slot.
#[derive(Clone, Copy, Debug)]
struct Range {
    handle: Handle,
    offset: u64,
}

impl Range {
    fn lock(self, locker: Locker) -> [Op; 2] {
        let lock = LockArgs {
            lock_type: LockType::Write,
            reclaim: false,
            offset: self.offset,
            length: RANGE_BYTES,
            locker,
        };
        [Op::PutFh(PutFhArgs { handle: self.handle }), Op::Lock(lock)]
    }

    fn unlock(self, lock_stateid: Stateid) -> [Op; 2] {
        let unlock = LockUArgs {
            lock_type: LockType::Write,
            seqid: 0,
            lock_stateid,
            offset: self.offset,
            length: RANGE_BYTES,
        };
        [Op::PutFh(PutFhArgs { handle: self.handle }), Op::LockU(unlock)]
    }

    /// Creates the slot's lock-owner by a first pair, and returns the stateid of its locks in any state.
    async fn introduce(
        self,
        setup: &mut Setup<'_>,
        slot: usize,
        open_stateid: Stateid,
    ) -> Result<Stateid, LoadError> {
        let first = OpenToLockOwner { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner: owner(slot) };
        let results = setup.call("LOCK", self.lock(Locker::New(first)).into()).await?;
        let [_, OpResult::Lock(LockOutcome::Ok(stateid))] = &results[..] else {
            return Err(unexpected("LOCK", &results));
        };
        let stateid = Stateid { seqid: 0, ..*stateid };
        setup.call("LOCKU", self.unlock(stateid).into()).await?;
        Ok(stateid)
    }
}

impl Workload for LockUnlock {
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) {
        self.requests[slot][usize::from(self.locked[slot])].append(&self.slots, xid, out);
    }

    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String> {
        let results = self.slots.results(slot, reply)?;
        let outcome = match (&results[..], self.locked[slot]) {
            ([OpResult::PutFh(Answer::Ok(())), OpResult::Lock(LockOutcome::Ok(_))], false) => {
                Outcome::Continues
            }
            ([OpResult::PutFh(Answer::Ok(())), OpResult::LockU(Answer::Ok(_))], true) => Outcome::Finished,
            _ => return Err(format!("results {results:?}")),
        };
        self.locked[slot] = !self.locked[slot];
        Ok(outcome)
    }
}
