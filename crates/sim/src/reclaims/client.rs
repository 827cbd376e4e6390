//! A client that takes and drops locks, writes under them, and reclaims the locks that it knows to hold, one call at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lock::{LockArgs, LockOutcome, LockType, LockUArgs, Locker, OpenToLockOwner};
use protocol::nfs4::ops::open::{
    CreateHow, DelegationType, OpenArgs, OpenClaim, OpenHow, OpenResultFlags, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::open_state::OpenConfirmArgs;
use protocol::nfs4::ops::session::{CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs, SequenceStatus};
use protocol::nfs4::ops::setclientid::{RenewArgs, SetClientIdConfirmArgs, SetClientIdResult};
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Handle, Outcome, SessionId, StableHow, StateOwner, Stateid, Status};
use xdr::{List, Opaque};

use super::history::{History, Mark};
use crate::client::{component, compound, create_session, exchange_id, export, set_client_id};
use crate::rng::Rng;

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    Introduce,
    Confirm([u8; 8]),
    Complete,
    Renew,
    /// OPEN for a new or reclaimed lock.
    Open {
        file: u64,
        reclaims: bool,
    },
    ConfirmOpen {
        file: u64,
        open: Stateid,
        handle: Handle,
    },
    Lock {
        file: u64,
        open: Stateid,
        handle: Handle,
        reclaims: bool,
    },
    /// Version 4.0 only: later versions write in the compound of the lock.
    Write {
        file: u64,
        open: Stateid,
        lock: Stateid,
        handle: Handle,
    },
    Unlock {
        file: u64,
        open: Stateid,
        lock: Stateid,
        handle: Handle,
    },
    Close {
        open: Stateid,
        handle: Handle,
    },
    /// TEST_STATEID of its locks.
    Test,
    Free(Stateid),
}

/// A lock that a client knows to hold.
#[derive(Debug, Clone, Copy)]
struct Held {
    open: Stateid,
    lock: Stateid,
    handle: Handle,
    /// Its number among the file's locks, in the order of grants.
    generation: u64,
    /// The last confirmed write under the lock.
    mark: Option<Mark>,
}

/// A silence after which the lease of 90 seconds may have expired.
const SILENCE: Duration = Duration::from_secs(80);

/// A client of the scenario.
#[derive(Debug)]
pub(super) struct Client {
    name: String,
    minor: u32,
    xid: u32,
    client_id: u64,
    create_sequence: u32,
    session: Option<SessionId>,
    sequence: u32,
    seqid: u32,
    is_confirmed: bool,
    is_complete: bool,
    /// Whether it was silent for long and does not know yet whether it has lost state.
    is_unsure: bool,
    /// Whether it has lost state and has not acknowledged all of it.
    has_lost: bool,
    held: BTreeMap<u64, Held>,
    to_reclaim: BTreeSet<u64>,
    next: Option<Purpose>,
    doing: Option<(Purpose, Duration)>,
    /// When the last answered request was sent.
    last_answered: Duration,
    /// It is unreachable until then.
    away_until: Duration,
    /// Locks that it must be able to reclaim, since it was present all the time.
    due: BTreeSet<u64>,
    /// When it last completed its reclaims, or got a lock.
    busy: Duration,
    /// Whether the server must wait for it: it may have held state, and has not completed its reclaims.
    is_awaited: bool,
}

impl Client {
    pub(super) fn new(index: usize, minor: u32) -> Self {
        Self {
            name: format!("client-{index}"),
            minor,
            xid: 1_000_000 * index as u32,
            client_id: 0,
            create_sequence: 0,
            session: None,
            sequence: 0,
            seqid: 0,
            is_confirmed: false,
            is_complete: false,
            is_unsure: false,
            has_lost: false,
            held: BTreeMap::new(),
            to_reclaim: BTreeSet::new(),
            next: None,
            doing: None,
            last_answered: Duration::ZERO,
            away_until: Duration::ZERO,
            due: BTreeSet::new(),
            busy: Duration::ZERO,
            is_awaited: false,
        }
    }

    pub(super) fn leave(&mut self, until: Duration) {
        self.away_until = until;
        self.is_late();
    }

    /// Returns whether new locks must wait for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Handles the end of a server, which loses the pending call. After an orderly stop the next server does not wait for a client
    /// without state.
    pub(super) fn lose_server(&mut self, now: Duration, lease: Duration, in_order: bool) {
        let was_there = self.away_until <= now && self.last_answered + lease / 2 > now;
        if was_there && self.is_complete && !self.is_unsure && !self.has_lost {
            self.due.extend(self.held.keys());
            // Version 4.0 has no RECLAIM_COMPLETE.
            let may_hold = !in_order || !self.held.is_empty();
            self.is_awaited |= self.minor > 0 && self.busy + lease / 2 > now && may_hold;
        }
        (self.doing, self.next) = (None, None);
    }

    /// Drops its guarantees after a long silence.
    pub(super) fn is_late(&mut self) {
        self.due.clear();
        self.is_awaited = false;
    }

    /// Returns its next call, if any.
    pub(super) fn next_call(&mut self, now: Duration, files: u64, rng: &mut Rng) -> Option<Bytes> {
        if self.doing.is_some() || now < self.away_until {
            return None;
        }
        let purpose = self.next.take().unwrap_or_else(|| self.choose(files, rng));
        self.doing = Some((purpose, now));
        self.xid += 1;
        let ops = self.operations(purpose);
        Some(compound(self.xid, self.minor, ops))
    }

    fn choose(&self, files: u64, rng: &mut Rng) -> Purpose {
        if !self.is_confirmed {
            return Purpose::Introduce;
        }
        if let Some(file) = self.to_reclaim.first() {
            return Purpose::Open { file: *file, reclaims: true };
        }
        if !self.is_complete && self.minor > 0 {
            return Purpose::Complete;
        }
        let file = rng.below(files);
        match self.held.get(&file) {
            Some(held) if rng.chance(30) => {
                Purpose::Unlock { file, open: held.open, lock: held.lock, handle: held.handle }
            }
            None if rng.chance(60) => Purpose::Open { file, reclaims: false },
            _ => Purpose::Renew,
        }
    }

    fn owner(&self) -> StateOwner {
        let owner = Opaque::new(self.name.clone().into_bytes()).expect("a short name");
        StateOwner { client_id: self.client_id, owner }
    }

    fn operations(&mut self, purpose: Purpose) -> Vec<Op> {
        let at = |handle, op| vec![Op::PutFh(PutFhArgs { handle }), op];
        let mut ops = match purpose {
            Purpose::Introduce if self.minor == 0 => return vec![set_client_id(&self.name)],
            Purpose::Introduce => return vec![exchange_id(&self.name)],
            Purpose::Confirm(confirm) if self.minor == 0 => {
                let client_id = self.client_id;
                return vec![Op::SetClientIdConfirm(SetClientIdConfirmArgs { client_id, confirm })];
            }
            Purpose::Confirm(_) => {
                let flags = CreateSessionFlags::empty();
                return vec![create_session(self.client_id, self.create_sequence, flags)];
            }
            Purpose::Complete => {
                self.is_awaited = false;
                vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })]
            }
            Purpose::Renew if self.minor == 0 => {
                return vec![Op::Renew(RenewArgs { client_id: self.client_id })];
            }
            Purpose::Renew => Vec::new(),
            Purpose::Open { file, reclaims } => self.open(file, reclaims),
            Purpose::ConfirmOpen { open, handle, .. } => {
                let args = OpenConfirmArgs { open_stateid: open, seqid: self.next_seqid() };
                at(handle, Op::OpenConfirm(args))
            }
            Purpose::Lock { open, handle, reclaims, .. } => {
                let mut ops = at(handle, self.lock(open, reclaims));
                if self.minor > 0 && !reclaims {
                    ops.push(self.write(Stateid::CURRENT));
                }
                ops
            }
            Purpose::Write { lock, handle, .. } => at(handle, self.write(lock)),
            Purpose::Unlock { file, lock, handle, .. } => {
                // The lock counts as released when the request is sent.
                self.held.remove(&file);
                self.reclaimed(file);
                // The lock-owner's second request.
                let (lock_type, seqid, offset, length) = (LockType::Write, 1, 0, u64::MAX);
                at(handle, Op::LockU(LockUArgs { lock_type, seqid, lock_stateid: lock, offset, length }))
            }
            Purpose::Close { open, handle } => {
                at(handle, Op::Close(CloseArgs { seqid: self.next_seqid(), open_stateid: open }))
            }
            Purpose::Test => {
                let stateids = self.held.values().map(|held| held.lock).collect();
                let stateids = List::new(stateids).expect("a few");
                vec![Op::TestStateid(TestStateidArgs { stateids })]
            }
            Purpose::Free(stateid) => vec![Op::FreeStateid(FreeStateidArgs { stateid })],
        };
        if self.minor > 0 {
            self.sequence += 1;
            let plain = SequenceArgs::in_first_slot(self.session.expect("a session"), self.sequence);
            ops.insert(0, Op::Sequence(SequenceArgs { cache_this: true, ..plain }));
        }
        ops
    }

    fn next_seqid(&mut self) -> u32 {
        self.seqid += 1;
        self.seqid
    }

    fn open(&mut self, file: u64, reclaims: bool) -> Vec<Op> {
        let name = super::file_name(file);
        let (mut ops, claim, how) = if reclaims {
            let handle = self.held[&file].handle;
            (
                vec![Op::PutFh(PutFhArgs { handle })],
                OpenClaim::Previous(DelegationType::NONE),
                OpenHow::NoCreate,
            )
        } else {
            let how = OpenHow::Create(CreateHow::Unchecked(FileAttributes::default()));
            (export(), OpenClaim::Null(component(&name)), how)
        };
        let (share_access, share_deny) = (ShareAccess::BOTH, ShareDeny::empty());
        let (seqid, owner) = (self.next_seqid(), self.owner());
        ops.push(Op::Open(OpenArgs { seqid, share_access, share_deny, owner, how, claim }));
        ops.push(Op::GetFh);
        ops
    }

    fn lock(&mut self, open_stateid: Stateid, reclaim: bool) -> Op {
        let open_seqid = self.next_seqid();
        // A new lock-owner for each lock, so that its seqid is the first.
        let owner = Opaque::new(format!("{}-{}", self.name, self.seqid).into_bytes()).expect("a short name");
        let lock_owner = StateOwner { client_id: self.client_id, owner };
        let locker = Locker::New(OpenToLockOwner { open_seqid, open_stateid, lock_seqid: 0, lock_owner });
        Op::Lock(LockArgs { lock_type: LockType::Write, reclaim, offset: 0, length: 10, locker })
    }

    /// Returns WRITE of a mark.
    fn write(&self, stateid: Stateid) -> Op {
        let data = Opaque::new(self.mark().to_vec()).expect("a few bytes");
        Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::Unstable, data })
    }

    /// Returns the data of the pending WRITE; each is unique.
    fn mark(&self) -> Mark {
        u64::from(self.xid).to_be_bytes()
    }

    /// Handles a reply.
    ///
    /// # Errors
    /// Returns the error in it.
    pub(super) fn receive(
        &mut self,
        result: &CompoundResult,
        now: Duration,
        history: &mut History,
    ) -> Result<(), String> {
        let Some((purpose, sent)) = self.doing.take() else { return Err("a reply without a call".into()) };
        self.is_unsure |= sent > self.last_answered + SILENCE;
        self.last_answered = sent;
        if let Some(OpResult::Sequence(Outcome::Ok(ok))) = result.results.first() {
            let lost = SequenceStatus::EXPIRED_SOME_STATE_REVOKED | SequenceStatus::ADMIN_STATE_REVOKED;
            self.has_lost = ok.status_flags.intersects(lost);
        }
        match result.status {
            Status::OK
                if now > sent + SILENCE
                    && let Some(unlock) = too_late(purpose, result) =>
            {
                self.next = Some(unlock);
            }
            Status::OK => self.succeed(purpose, result, history)?,
            // The server was restarted, or has forgotten the client.
            Status::BADSESSION | Status::STALE_CLIENTID | Status::STALE_STATEID | Status::DEADSESSION => {
                self.start_over();
            }
            // Version 4.0: all state is lost.
            Status::EXPIRED if self.minor == 0 => {
                self.held.clear();
                self.start_over();
            }
            status => self.fail(purpose, status)?,
        }
        // Version 4.0 has no RECLAIM_COMPLETE: the first other request ends the reclaims.
        let is_no_reclaim = matches!(purpose, Purpose::Renew | Purpose::Open { reclaims: false, .. });
        self.is_complete |= self.minor == 0 && self.is_confirmed && is_no_reclaim;
        // EXPIRED in version 4.0; the flags of SEQUENCE in later ones.
        self.is_unsure &= self.minor == 0 && !is_no_reclaim;
        if self.has_lost && self.next.is_none() && self.is_complete && !self.held.is_empty() {
            self.next = Some(Purpose::Test);
        }
        Ok(())
    }

    fn start_over(&mut self) {
        (self.is_confirmed, self.is_complete, self.next) = (false, false, None);
        (self.session, self.sequence, self.seqid) = (None, 0, 0);
        self.has_lost = false;
        self.to_reclaim = self.held.keys().copied().collect();
    }

    fn succeed(
        &mut self,
        purpose: Purpose,
        result: &CompoundResult,
        history: &mut History,
    ) -> Result<(), String> {
        let results = &result.results;
        match (purpose, results.last()) {
            (Purpose::Introduce, Some(OpResult::ExchangeId(Outcome::Ok(ok)))) => {
                (self.client_id, self.create_sequence) = (ok.client_id, ok.sequence_id);
                self.next = Some(Purpose::Confirm([0; 8]));
            }
            (Purpose::Introduce, Some(OpResult::SetClientId(SetClientIdResult::Ok(ok)))) => {
                self.client_id = ok.client_id;
                self.next = Some(Purpose::Confirm(ok.confirm));
            }
            (Purpose::Confirm(_), Some(OpResult::CreateSession(Outcome::Ok(ok)))) => {
                (self.session, self.sequence, self.is_confirmed) = (Some(ok.session_id), 0, true);
            }
            (Purpose::Confirm(_), _) => (self.is_confirmed, self.seqid) = (true, 0),
            (Purpose::Complete, _) => (self.is_complete, self.busy) = (true, self.last_answered),
            (Purpose::Open { file, reclaims }, Some(OpResult::GetFh(Outcome::Ok(handle)))) => {
                let open = results.iter().find_map(|result| match result {
                    OpResult::Open(Outcome::Ok(open)) => Some(open),
                    _ => None,
                });
                let open = open.ok_or("no OPEN")?;
                let (handle, must_confirm) = (*handle, open.flags.contains(OpenResultFlags::CONFIRM));
                let open = open.stateid;
                self.next = Some(match must_confirm {
                    true => Purpose::ConfirmOpen { file, open, handle },
                    false => Purpose::Lock { file, open, handle, reclaims },
                });
            }
            (Purpose::ConfirmOpen { file, handle, .. }, Some(OpResult::OpenConfirm(Outcome::Ok(open)))) => {
                self.next = Some(Purpose::Lock { file, open: *open, handle, reclaims: false });
            }
            (Purpose::Lock { file, open, handle, reclaims }, Some(last)) => {
                let lock = results.iter().find_map(lock_result).ok_or("no LOCK")?;
                let (generation, mark) = match self.held.get(&file).filter(|_| reclaims) {
                    Some(held) => (history.reclaim(file, held.generation, held.mark, &self.name)?, held.mark),
                    None => {
                        let has_written = matches!(last, OpResult::Write(Outcome::Ok(_)));
                        (history.take(file, &self.name)?, has_written.then(|| self.mark()))
                    }
                };
                self.busy = self.last_answered;
                self.held.insert(file, Held { open, lock, handle, generation, mark });
                self.reclaimed(file);
                if mark.is_none() && !reclaims {
                    self.next = Some(Purpose::Write { file, open, lock, handle });
                }
            }
            (Purpose::Write { file, .. }, Some(OpResult::Write(Outcome::Ok(_)))) => {
                let mark = self.mark();
                if let Some(held) = self.held.get_mut(&file) {
                    held.mark = Some(mark);
                }
            }
            (Purpose::Unlock { open, handle, .. }, _) => self.next = Some(Purpose::Close { open, handle }),
            (Purpose::Test, Some(OpResult::TestStateid(Outcome::Ok(statuses)))) => {
                let lost = self.held.iter().zip(statuses.iter()).find(|(_, status)| **status != Status::OK);
                if let Some((file, stateid)) = lost.map(|((file, held), _)| (*file, held.lock)) {
                    self.held.remove(&file);
                    self.next = Some(Purpose::Free(stateid));
                }
            }
            (Purpose::Renew | Purpose::Close { .. } | Purpose::Free(_), _) => {}
            (purpose, last) => return Err(format!("{last:?} is not an answer to {purpose:?}")),
        }
        Ok(())
    }

    /// Completes the reclaims of a file.
    fn reclaimed(&mut self, file: u64) {
        self.to_reclaim.remove(&file);
        self.due.remove(&file);
    }

    fn fail(&mut self, purpose: Purpose, status: Status) -> Result<(), String> {
        // RFC 7530 §9.1.7: this error leaves the seqid unused.
        let is_sequenced = !matches!(
            purpose,
            Purpose::Unlock { .. } | Purpose::Write { .. } | Purpose::Renew | Purpose::Confirm(_)
        );
        if is_sequenced && status == Status::BAD_STATEID {
            self.seqid = self.seqid.saturating_sub(1);
        }
        let reclaims = match purpose {
            Purpose::Open { file, reclaims: true } | Purpose::Lock { file, reclaims: true, .. } => Some(file),
            _ => None,
        };
        match (purpose, status) {
            (_, Status::NO_GRACE) if reclaims.is_some() => {
                let file = reclaims.unwrap_or_default();
                if self.due.contains(&file) {
                    return Err(format!(
                        "{} cannot reclaim file {file}, which it held all the time",
                        self.name
                    ));
                }
                self.held.remove(&file);
                self.reclaimed(file);
            }
            (Purpose::Lock { open, handle, reclaims: false, .. }, Status::DENIED | Status::GRACE) => {
                self.next = Some(Purpose::Close { open, handle });
            }
            (Purpose::Open { reclaims: false, .. }, Status::GRACE | Status::DELAY) => {}
            // Its state was revoked, which it has not checked yet.
            (
                Purpose::Unlock { .. }
                | Purpose::Write { .. }
                | Purpose::Close { .. }
                | Purpose::Free(_)
                | Purpose::ConfirmOpen { .. }
                | Purpose::Lock { reclaims: false, .. },
                Status::EXPIRED | Status::BAD_STATEID | Status::ADMIN_REVOKED,
            ) => {}
            // Another record of it was created meanwhile.
            (Purpose::Confirm(_), Status::STALE_CLIENTID) => self.start_over(),
            (purpose, status) => return Err(format!("{}: {purpose:?}: {status:?}", self.name)),
        }
        Ok(())
    }
}

/// Returns the next phase after a late grant: the lock may be lost again, since the lease counts from the request.
fn too_late(purpose: Purpose, result: &CompoundResult) -> Option<Purpose> {
    let Purpose::Lock { file, open, handle, .. } = purpose else { return None };
    let lock = result.results.iter().find_map(lock_result)?;
    Some(Purpose::Unlock { file, open, lock, handle })
}

fn lock_result(result: &OpResult) -> Option<Stateid> {
    match result {
        OpResult::Lock(LockOutcome::Ok(lock)) => Some(*lock),
        _ => None,
    }
}
