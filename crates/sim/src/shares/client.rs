//! A client of version 4.0, 4.1 or 4.2 that opens, upgrades, downgrades and closes files, one call at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::exchange_id::DestroyClientIdArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::open::{
    CreateHow, OpenArgs, OpenClaim, OpenHow, OpenResultFlags, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::open_state::{OpenConfirmArgs, OpenDowngradeArgs};
use protocol::nfs4::ops::session::{
    CreateSessionFlags, DestroySessionArgs, ReclaimCompleteArgs, SequenceArgs,
};
use protocol::nfs4::ops::setclientid::{RenewArgs, SetClientIdConfirmArgs, SetClientIdResult};
use protocol::nfs4::types::{Handle, Outcome, SessionId, StateOwner, Stateid, Status};
use rpc::message::parse_reply;
use xdr::Opaque;

use super::share_model::{Bits, ShareModel};
use super::{FILES, name};
use crate::call_slot::CallSlot;
use crate::client::{component, compound, create_session, exchange_id, export, set_client_id};
use crate::rng::Rng;

/// All access, and deny all.
const ALONE: Bits = (3, 3);

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Introduce,
    Confirm([u8; 8]),
    Complete,
    Renew,
    Open(u64, Bits),
    ConfirmOpen(u64, Bits, Stateid, Handle),
    Downgrade(u64, Bits),
    Close(u64),
    DestroySession,
    DestroyClient,
}

/// The behavior of a client after its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Closes its files and leaves.
    Leaves,
    /// Falls silent, and loses its opens to conflicts after its lease.
    FallsSilent,
    /// Opens each file exclusively after all others have ended, and leaves.
    Sweeps,
}

/// An open file.
#[derive(Debug)]
struct Held {
    stateid: Stateid,
    handle: Handle,
    /// The share modes of the opens in effect.
    opens: Vec<Bits>,
}

/// A client of the scenario.
#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    minor: u32,
    end: End,
    left: u32,
    slot: CallSlot<Purpose>,
    client_id: u64,
    create_sequence: u32,
    session: Option<SessionId>,
    sequence: u32,
    /// Seqid of the open-owner (version 4.0).
    seqid: u32,
    is_confirmed: bool,
    is_complete: bool,
    is_gone: bool,
    held: BTreeMap<u64, Held>,
    /// The next call that a reply requires.
    next: Option<Purpose>,
    /// Files that it has opened exclusively at the end.
    swept: u64,
    /// Whether its program has ended.
    has_ended: bool,
    /// When the last answered call was sent: the lease was renewed then or later.
    last_answered: Duration,
}

impl Client {
    pub(super) fn new(index: usize, minor: u32, end: End, left: u32, rng: &mut Rng) -> Self {
        Self {
            index,
            minor,
            end,
            left,
            slot: CallSlot::new(rng.next_u64() as u32),
            client_id: 0,
            create_sequence: 0,
            session: None,
            sequence: 0,
            seqid: 0,
            is_confirmed: false,
            is_complete: false,
            is_gone: false,
            held: BTreeMap::new(),
            next: None,
            swept: 0,
            has_ended: false,
            last_answered: Duration::ZERO,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_gone
    }

    pub(super) fn retransmit(&mut self, now: Duration) -> Option<Bytes> {
        if self.is_gone { None } else { self.slot.retransmit(now) }
    }

    /// Returns the next call, if none is pending.
    pub(super) fn next_call(
        &mut self,
        now: Duration,
        model: &mut ShareModel,
        rng: &mut Rng,
    ) -> Option<Bytes> {
        if self.is_gone || !self.slot.is_free() {
            return None;
        }
        let purpose = self.next.take().or_else(|| self.choose(model, rng))?;
        let ops = self.operations(purpose, model);
        let minor = self.minor;
        Some(self.slot.send(purpose, now, |xid| compound(xid, minor, ops)))
    }

    /// Handles time: a silent client loses its opens after its lease.
    pub(super) fn tick(&self, now: Duration, lease: Duration, model: &mut ShareModel) {
        if self.is_gone && self.end == End::FallsSilent && self.last_answered + lease <= now {
            model.forget(self.index);
        }
    }

    fn choose(&mut self, model: &mut ShareModel, rng: &mut Rng) -> Option<Purpose> {
        if !self.is_confirmed {
            return Some(Purpose::Introduce);
        }
        if !self.is_complete && self.minor > 0 {
            return Some(Purpose::Complete);
        }
        if self.left == 0 {
            // Its last OPEN must be answered before others remove its opens.
            if !std::mem::replace(&mut self.has_ended, true) {
                model.running -= 1;
            }
            return self.conclude(model);
        }
        self.left -= 1;
        let (file, asked) = (rng.below(FILES), (1 + rng.below(3) as u8, rng.below(4) as u8));
        // Deny rarely, so that others get opens.
        let asked = if rng.chance(50) { (asked.0, 0) } else { asked };
        Some(match self.held.get(&file) {
            Some(held) if rng.chance(40) => Purpose::Downgrade(file, some_of(&held.opens, rng)),
            Some(_) if rng.chance(60) => Purpose::Close(file),
            _ => Purpose::Open(file, asked),
        })
    }

    /// Returns its next call after its program.
    fn conclude(&mut self, model: &ShareModel) -> Option<Purpose> {
        if self.end == End::FallsSilent {
            self.is_gone = true;
            return None;
        }
        if let Some(file) = self.held.keys().next() {
            return Some(Purpose::Close(*file));
        }
        if self.end == End::Sweeps && self.swept < FILES {
            let may_sweep = model.running == 0;
            return Some(if may_sweep { Purpose::Open(self.swept, ALONE) } else { Purpose::Renew });
        }
        if self.minor == 0 {
            // In version 4.0 only the end of the lease removes the client.
            self.is_gone = true;
            return None;
        }
        Some(if self.session.is_some() { Purpose::DestroySession } else { Purpose::DestroyClient })
    }

    fn operations(&mut self, purpose: Purpose, model: &mut ShareModel) -> Vec<Op> {
        let client_id = self.client_id;
        let at = |handle, op| vec![Op::PutFh(PutFhArgs { handle }), op];
        let mut ops = match purpose {
            Purpose::Introduce if self.minor == 0 => return vec![set_client_id(&self.owner_name())],
            Purpose::Introduce => return vec![exchange_id(&self.owner_name())],
            Purpose::Confirm(confirm) if self.minor == 0 => {
                return vec![Op::SetClientIdConfirm(SetClientIdConfirmArgs { client_id, confirm })];
            }
            Purpose::Confirm(_) => {
                return vec![create_session(client_id, self.create_sequence, CreateSessionFlags::empty())];
            }
            Purpose::DestroySession => {
                let session_id = self.session.expect("it has one");
                return vec![Op::DestroySession(DestroySessionArgs { session_id })];
            }
            Purpose::DestroyClient => return vec![Op::DestroyClientId(DestroyClientIdArgs { client_id })],
            Purpose::Complete => vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })],
            Purpose::Renew if self.minor == 0 => vec![Op::Renew(RenewArgs { client_id })],
            Purpose::Renew => Vec::new(),
            Purpose::Open(file, bits) => self.open(file, bits),
            Purpose::ConfirmOpen(_, _, open_stateid, handle) => {
                let args = OpenConfirmArgs { open_stateid, seqid: self.next_seqid() };
                at(handle, Op::OpenConfirm(args))
            }
            Purpose::Downgrade(file, bits) => {
                model.give_up(file, self.index, bits);
                let (seqid, held) = (self.next_seqid(), &self.held[&file]);
                let (share_access, share_deny) = flags(bits);
                let open_stateid = held.stateid;
                let args = OpenDowngradeArgs { open_stateid, seqid, share_access, share_deny };
                at(held.handle, Op::OpenDowngrade(args))
            }
            Purpose::Close(file) => {
                model.close(file, self.index);
                let (seqid, held) = (self.next_seqid(), &self.held[&file]);
                at(held.handle, Op::Close(CloseArgs { seqid, open_stateid: held.stateid }))
            }
        };
        if self.minor > 0 {
            self.sequence += 1;
            let plain = SequenceArgs::in_first_slot(self.session.expect("a session"), self.sequence);
            ops.insert(0, Op::Sequence(SequenceArgs { cache_this: true, ..plain }));
        }
        ops
    }

    fn owner_name(&self) -> String {
        format!("client-{}", self.index)
    }

    fn next_seqid(&mut self) -> u32 {
        self.seqid += 1;
        self.seqid
    }

    fn open(&mut self, file: u64, bits: Bits) -> Vec<Op> {
        let (share_access, share_deny) = flags(bits);
        let owner = Opaque::new(self.owner_name().into_bytes()).expect("a short name");
        let open = Op::Open(OpenArgs {
            seqid: self.next_seqid(),
            share_access,
            share_deny,
            owner: StateOwner { client_id: self.client_id, owner },
            how: OpenHow::Create(CreateHow::Unchecked(FileAttributes::default())),
            claim: OpenClaim::Null(component(&name(file))),
        });
        export().into_iter().chain([open, Op::GetFh]).collect()
    }

    /// Handles a message.
    ///
    /// # Errors
    /// Returns the error in it.
    pub(super) fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        model: &mut ShareModel,
    ) -> Result<(), String> {
        let Some((purpose, asked)) = self.slot.match_reply(&bytes).filter(|_| !self.is_gone) else {
            return Ok(());
        };
        let result: CompoundResult = parse_reply(bytes).map_err(|error| error.to_string())?;
        let is_begun = match (self.minor, result.results.first()) {
            // RFC 8881 §2.10.6.2, RFC 7530 §9.1.7: the request still runs.
            (1.., Some(OpResult::Sequence(Outcome::Error(status)))) => *status == Status::DELAY,
            (0, _) => result.status == Status::RESOURCE,
            _ => false,
        };
        if is_begun {
            return Ok(());
        }
        self.slot.free();
        self.last_answered = asked;
        let reply = self.learn(purpose, &result, now, model);
        reply.map_err(|why| format!("client {} of version 4.{}: {purpose:?}: {why}", self.index, self.minor))
    }

    fn learn(
        &mut self,
        purpose: Purpose,
        result: &CompoundResult,
        now: Duration,
        model: &mut ShareModel,
    ) -> Result<(), String> {
        match (purpose, result.status, &result.results[..]) {
            (Purpose::Introduce, Status::OK, [OpResult::ExchangeId(Outcome::Ok(ok))]) => {
                (self.client_id, self.create_sequence) = (ok.client_id, ok.sequence_id);
                self.next = Some(Purpose::Confirm([0; 8]));
            }
            (Purpose::Introduce, Status::OK, [OpResult::SetClientId(SetClientIdResult::Ok(ok))]) => {
                self.client_id = ok.client_id;
                self.next = Some(Purpose::Confirm(ok.confirm));
            }
            (Purpose::Confirm(_), Status::OK, [OpResult::CreateSession(Outcome::Ok(ok))]) => {
                (self.session, self.is_confirmed) = (Some(ok.session_id), true);
            }
            (Purpose::Confirm(_), Status::OK, _) => self.is_confirmed = true,
            // RFC 8881 §18.35.4: a late copy of EXCHANGE_ID has created another record.
            (Purpose::Confirm(_), Status::STALE_CLIENTID, _) => {}
            (Purpose::Complete, Status::OK, _) => self.is_complete = true,
            (Purpose::Renew, Status::OK, _) => {}
            (
                Purpose::Open(..) | Purpose::ConfirmOpen(..) | Purpose::Downgrade(..) | Purpose::Close(_),
                ..,
            ) => {
                return self.learn_open(purpose, result, now, model);
            }
            (Purpose::DestroySession, Status::OK | Status::BADSESSION, _) => self.session = None,
            // RFC 8881 §18.37.3: the connection is not associated with the session.
            (Purpose::DestroySession, Status::CONN_NOT_BOUND_TO_SESSION, _) => {
                self.next = Some(Purpose::Renew)
            }
            (Purpose::DestroyClient, Status::OK | Status::STALE_CLIENTID, _) => self.is_gone = true,
            // A late copy of DESTROY_SESSION has succeeded after the first was refused.
            (Purpose::Renew, Status::BADSESSION, _) if self.left == 0 && self.held.is_empty() => {
                self.session = None;
            }
            (_, status, results) => return Err(format!("{status:?}: {:?}", results.last())),
        }
        Ok(())
    }

    fn learn_open(
        &mut self,
        purpose: Purpose,
        result: &CompoundResult,
        now: Duration,
        model: &mut ShareModel,
    ) -> Result<(), String> {
        match (purpose, result.status, &result.results[..]) {
            (
                Purpose::Open(file, bits),
                Status::OK,
                [.., OpResult::Open(Outcome::Ok(open)), OpResult::GetFh(Outcome::Ok(handle))],
            ) => {
                if open.flags.contains(OpenResultFlags::CONFIRM) {
                    self.next = Some(Purpose::ConfirmOpen(file, bits, open.stateid, *handle));
                    return Ok(());
                }
                self.opened((file, bits), open.stateid, *handle, now, model)
            }
            (
                Purpose::ConfirmOpen(file, bits, _, handle),
                Status::OK,
                [.., OpResult::OpenConfirm(Outcome::Ok(stateid))],
            ) => self.opened((file, bits), *stateid, handle, now, model),
            (Purpose::Open(..), Status::SHARE_DENIED, _) => {
                model.refused += 1;
                Ok(())
            }
            (Purpose::Open(..), Status::DELAY | Status::GRACE, _) => Ok(()),
            (
                Purpose::Downgrade(file, bits),
                Status::OK,
                [.., OpResult::OpenDowngrade(Outcome::Ok(stateid))],
            ) => {
                let held = self.held.get_mut(&file).ok_or("it no longer has the file open")?;
                held.stateid = *stateid;
                held.opens.retain(|open| open.0 & !bits.0 == 0 && open.1 & !bits.1 == 0);
                model.granted += 1;
                Ok(())
            }
            (Purpose::Close(file), Status::OK, _) => {
                self.held.remove(&file);
                Ok(())
            }
            (_, status, results) => Err(format!("{status:?}: {:?}", results.last())),
        }
    }

    /// Notes a granted open, besides earlier ones.
    fn opened(
        &mut self,
        (file, bits): (u64, Bits),
        stateid: Stateid,
        handle: Handle,
        now: Duration,
        model: &mut ShareModel,
    ) -> Result<(), String> {
        let held = self.held.entry(file).or_insert_with(|| Held { stateid, handle, opens: Vec::new() });
        held.stateid = stateid;
        held.opens.push(bits);
        let all = union(&held.opens);
        // The last OPEN of its program may request the same, before the others have ended.
        if self.has_ended && bits == ALONE {
            self.swept = file + 1;
        }
        model.take(file, self.index, all, now)
    }
}

fn union(opens: &[Bits]) -> Bits {
    opens.iter().fold((0, 0), |all, open| (all.0 | open.0, all.1 | open.1))
}

/// Returns the union of a random subset of the opens. RFC 8881 §18.18.3: "the union of … some subset of the OPENs in effect".
fn some_of(opens: &[Bits], rng: &mut Rng) -> Bits {
    let first = rng.below(opens.len() as u64) as usize;
    let some: Vec<Bits> = opens
        .iter()
        .enumerate()
        .filter(|(at, _)| *at == first || rng.chance(30))
        .map(|(_, open)| *open)
        .collect();
    union(&some)
}

fn flags((access, deny): Bits) -> (ShareAccess, ShareDeny) {
    (ShareAccess::from_bits_retain(u32::from(access)), ShareDeny::from_bits_retain(u32::from(deny)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_open_of_a_program_removes_no_other_opens() {
        let (mut rng, mut model) = (Rng::new(1), ShareModel::new(2));
        let mut client = Client::new(0, 1, End::Sweeps, 0, &mut rng);
        let mut open = |client: &mut Client, file| {
            let (stateid, handle) = (Stateid::ANONYMOUS, Handle::default());
            client.opened((file, ALONE), stateid, handle, Duration::ZERO, &mut model).unwrap();
            client.swept
        };
        assert_eq!(open(&mut client, FILES - 1), 0, "others have not finished");
        client.has_ended = true;
        assert_eq!(open(&mut client, 0), 1);
    }
}
