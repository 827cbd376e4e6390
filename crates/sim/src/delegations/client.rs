//! A client of version 4.1 with a cache that delegations vouch for.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::callback::sequence::CbSequenceOk;
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, DirFromClient};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DirDelegation};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::open::{
    CreateHow, OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::{CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs, SequenceStatus};
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{
    Handle, HasStatus, Outcome, SessionId, StableHow, StateOwner, Stateid, Status, Utf8,
};
use rpc::message::{CallHeader, MessageType, encode_success, parse_reply, peek};
use xdr::{Decode, Encode, List, Opaque, Reader, Writer};

use super::directories;
use super::history::History;
use super::times::{self, Kept};
use super::{FILES, Subject, wall};
use crate::client::{at_export, compound, create_session, exchange_id, export};
use crate::rng::Rng;

/// A call is sent again when it is not answered within a second.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a client that has nothing to do renews its lease, and hears how its back channel does.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Slots: for the program, for what goes back, for the lease.
const SLOTS: usize = 3;
const PROGRAM: usize = 0;
const RETURNS: usize = 1;
const LEASE: usize = 2;

/// What a call is for.
#[derive(Debug, Clone, PartialEq)]
enum Purpose {
    Exchange,
    Session,
    Complete,
    Bind,
    Renew,
    Read { file: u64, began: u64 },
    Stat { file: u64, began: u64 },
    Write { file: u64, value: u64 },
    Return { file: u64, stateid: Stateid },
}

#[derive(Debug, Clone)]
struct Pending {
    xid: u32,
    bytes: Bytes,
    purpose: Purpose,
    sent: Duration,
}

/// A delegation, and what it vouches for.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) stateid: Stateid,
    handle: Handle,
    is_write: bool,
    value: u64,
    pub(super) is_dirty: bool,
    is_returning: bool,
    pub(super) kept: Kept,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    name: String,
    subject: Subject,
    /// Falls silent once it has done what it has to do.
    is_mute: bool,
    /// Asks for write delegations whose times it keeps.
    keeps_times: bool,
    left: u32,
    xid: u32,
    client_id: u64,
    create_sequence: u32,
    session: Option<SessionId>,
    is_ready: bool,
    sequences: [u32; SLOTS],
    /// Of the slots, and at the end of what needs none.
    pending: [Option<Pending>; SLOTS + 1],
    /// To be done again, after DELAY.
    again: Option<Purpose>,
    needs_bind: bool,
    renewed: Duration,
    held: HashMap<u64, Held>,
    to_return: VecDeque<u64>,
    /// Of each slot of the back channel, the last sequence ID and the reply to it.
    answered: HashMap<u32, (u32, Bytes)>,
    /// What its program has read that it must not.
    pub(super) wrong: Option<String>,
}

impl Client {
    pub(super) fn new(index: usize, subject: Subject, left: u32, is_mute: bool, rng: &mut Rng) -> Self {
        Self {
            name: format!("client-{index}"),
            subject,
            is_mute,
            keeps_times: !is_mute && subject == Subject::Files && rng.chance(50),
            left,
            xid: rng.next_u64() as u32,
            client_id: 0,
            create_sequence: 0,
            session: None,
            is_ready: false,
            sequences: [0; SLOTS],
            pending: Default::default(),
            again: None,
            needs_bind: false,
            renewed: Duration::ZERO,
            held: HashMap::new(),
            to_return: VecDeque::new(),
            answered: HashMap::new(),
            wrong: None,
        }
    }

    /// Whether its program has ended, and it has given everything back, or does nothing ever again.
    pub(super) fn is_done(&self) -> bool {
        let idle = self.left == 0 && self.pending[PROGRAM].is_none() && self.again.is_none();
        idle && (self.is_mute || self.held.is_empty())
    }

    fn is_silent(&self) -> bool {
        self.is_mute && self.is_done()
    }

    /// Whether it uses a delegation of a file, and whether that is for writing.
    pub(super) fn holds(&self, file: u64) -> Option<bool> {
        let held = self.held.get(&file).filter(|held| !held.is_returning && !self.is_silent())?;
        Some(held.is_write)
    }

    pub(super) fn reconnected(&mut self) {
        self.needs_bind = self.session.is_some();
    }

    /// A second is over; what it says.
    pub(super) fn tick(&mut self, now: Duration, history: &mut History, rng: &mut Rng) -> Vec<Bytes> {
        if self.is_silent() {
            return Vec::new();
        }
        let mut out = Vec::new();
        for pending in self.pending.iter_mut().flatten() {
            if pending.sent + PATIENCE <= now {
                pending.sent = now;
                out.push(pending.bytes.clone());
            }
        }
        out.extend(self.proceed(now, history, rng));
        out
    }

    /// Begins what can begin.
    fn proceed(&mut self, now: Duration, history: &mut History, rng: &mut Rng) -> Vec<Bytes> {
        let mut out = Vec::new();
        if self.pending[SLOTS].is_none() {
            out.extend(self.next_alone(now));
        }
        if !self.is_ready {
            if self.session.is_some() && self.pending[PROGRAM].is_none() {
                let complete = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
                out.push(self.send(PROGRAM, vec![complete], Purpose::Complete, now));
            }
            return out;
        }
        if self.pending[RETURNS].is_none()
            && let Some(file) = self.to_return.pop_front()
        {
            out.extend(self.give_back(file, now));
        }
        if self.pending[LEASE].is_none() && self.renewed + KEEPALIVE <= now {
            self.renewed = now;
            out.push(self.send(LEASE, Vec::new(), Purpose::Renew, now));
        }
        if self.pending[PROGRAM].is_none() {
            out.extend(self.next_operation(now, history, rng));
        }
        out
    }

    /// What comes without a session, one after the other.
    fn next_alone(&mut self, now: Duration) -> Option<Bytes> {
        let (op, purpose) = if self.client_id == 0 {
            (exchange_id(&self.name), Purpose::Exchange)
        } else if let Some(session_id) = self.session {
            if !self.needs_bind {
                return None;
            }
            self.needs_bind = false;
            let direction = DirFromClient::FORE_OR_BOTH;
            let args = BindConnToSessionArgs { session_id, direction, use_rdma: false };
            (Op::BindConnToSession(args), Purpose::Bind)
        } else {
            let flags = CreateSessionFlags::CONN_BACK_CHAN;
            (create_session(self.client_id, self.create_sequence, flags), Purpose::Session)
        };
        self.xid = self.xid.wrapping_add(1);
        let bytes = compound(self.xid, 1, vec![op]);
        self.pending[SLOTS] = Some(Pending { xid: self.xid, bytes: bytes.clone(), purpose, sent: now });
        Some(bytes)
    }

    fn send(&mut self, slot: usize, ops: Vec<Op>, purpose: Purpose, now: Duration) -> Bytes {
        self.sequences[slot] += 1;
        self.xid = self.xid.wrapping_add(1);
        let sequence = Op::Sequence(SequenceArgs {
            session_id: self.session.expect("a session"),
            sequence_id: self.sequences[slot],
            slot_id: slot as u32,
            highest_slot_id: SLOTS as u32 - 1,
            cache_this: true,
        });
        let minor = if self.keeps_times { 2 } else { 1 };
        let bytes = compound(self.xid, minor, std::iter::once(sequence).chain(ops).collect());
        self.pending[slot] = Some(Pending { xid: self.xid, bytes: bytes.clone(), purpose, sent: now });
        bytes
    }

    /// The program's next read or write: at once where a delegation vouches for it.
    fn next_operation(&mut self, now: Duration, history: &mut History, rng: &mut Rng) -> Option<Bytes> {
        if let Some(purpose) = self.again.take() {
            return Some(self.ask(purpose, rng, now));
        }
        if self.left == 0 {
            // Nothing more to do: everything goes back.
            self.to_return =
                self.held.iter().filter(|(_, held)| !held.is_returning).map(|(file, _)| *file).collect();
            self.to_return.make_contiguous().sort_unstable();
            return None;
        }
        self.left -= 1;
        let file = if self.is_mute { u64::from(self.left) } else { rng.below(FILES) };
        let writes = !self.is_mute && rng.chance(40);
        if self.held.get(&file).is_some_and(|held| held.is_returning) {
            // What it holds of the file is on its way to the server: it must not be overtaken.
            self.left += 1;
            return None;
        }
        let held = self.held.get_mut(&file).filter(|held| !held.is_returning);
        match held {
            Some(held) if writes && held.is_write => {
                held.value = history.begin_write(file);
                held.is_dirty = true;
                held.kept.modified = wall(now);
                let value = held.value;
                history.end_write(file, value);
                None
            }
            Some(held) if !writes => {
                let began = history.now();
                let value = held.value;
                if let Err(why) = history.read(file, value, began) {
                    self.wrong = Some(format!("{}, under a delegation: {why}", self.name));
                }
                None
            }
            _ if writes => {
                let value = history.begin_write(file);
                Some(self.ask(Purpose::Write { file, value }, rng, now))
            }
            _ if self.subject == Subject::Files && !self.is_mute && rng.chance(30) => {
                // Beside what it has to do.
                self.left += 1;
                let began = history.now();
                Some(self.ask(Purpose::Stat { file, began }, rng, now))
            }
            _ => {
                let began = history.now();
                Some(self.ask(Purpose::Read { file, began }, rng, now))
            }
        }
    }

    /// Asks the server for a read or a write.
    fn ask(&mut self, purpose: Purpose, rng: &mut Rng, now: Duration) -> Bytes {
        let ops = match purpose {
            Purpose::Read { file, .. } if self.subject == Subject::Directories => {
                directories::read(&name(file))
            }
            Purpose::Write { file, value } if self.subject == Subject::Directories => {
                directories::write(&name(file), value)
            }
            Purpose::Stat { file, .. } => times::stat(&name(file)),
            Purpose::Read { file, .. } => {
                let read = Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: 8 });
                self.open(file, ShareAccess::READ, read)
            }
            Purpose::Write { file, value } if rng.chance(30) => {
                // A file that nobody has opened yet is NOENT, and the write is asked for again.
                let mut ops = at_export(&name(file));
                ops.push(write(Stateid::ANONYMOUS, value));
                ops
            }
            Purpose::Write { file, value } => {
                self.open(file, ShareAccess::BOTH, write(Stateid::CURRENT, value))
            }
            _ => unreachable!("only reads and writes are asked for"),
        };
        self.send(PROGRAM, ops, purpose, now)
    }

    fn open(&self, file: u64, share_access: ShareAccess, io: Op) -> Vec<Op> {
        let owner = Opaque::new(self.name.clone().into_bytes()).expect("a short name");
        let open = Op::Open(OpenArgs {
            seqid: 0,
            share_access: if self.keeps_times { share_access | times::WANTED } else { share_access },
            share_deny: ShareDeny::empty(),
            owner: StateOwner { client_id: self.client_id, owner },
            how: OpenHow::Create(CreateHow::Unchecked(FileAttributes::default())),
            claim: OpenClaim::Null(Opaque::new(name(file).into_bytes()).expect("a short name")),
        });
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
        let mut ops = export();
        ops.extend([open, Op::GetFh, times::before(), io, times::after(), close]);
        ops
    }

    /// Writes back what is dirty, and returns the delegation.
    fn give_back(&mut self, file: u64, now: Duration) -> Option<Bytes> {
        let held = self.held.get_mut(&file).filter(|held| !held.is_returning)?;
        held.is_returning = true;
        let Held { stateid, handle, value, is_dirty, kept, .. } = held.clone();
        let mut ops = vec![Op::PutFh(PutFhArgs { handle })];
        ops.extend(is_dirty.then(|| write(stateid, value)));
        ops.extend(kept.hand_in(stateid));
        ops.push(Op::DelegReturn(DelegReturnArgs { stateid }));
        Some(self.send(RETURNS, ops, Purpose::Return { file, stateid }, now))
    }

    /// Takes a message; what it says to that.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        history: &mut History,
        rng: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        if self.is_silent() {
            return Ok(Vec::new());
        }
        let (xid, message) = peek(&bytes).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        if message == MessageType::CALL {
            out.extend(self.called(bytes)?);
        } else {
            let at = self.pending.iter().position(|pending| pending.as_ref().is_some_and(|p| p.xid == xid));
            // Otherwise: answered before.
            if let Some(at) = at {
                let result: CompoundResult = parse_reply(bytes).map_err(|error| error.to_string())?;
                self.answered(at, &result, history)?;
            }
        }
        out.extend(self.proceed(now, history, rng));
        Ok(out)
    }

    fn answered(&mut self, at: usize, result: &CompoundResult, history: &mut History) -> Result<(), String> {
        if let Some(OpResult::Sequence(sequence)) = result.results.first() {
            match sequence.as_result() {
                // A repetition while the request still waits in the server.
                Err(Status::DELAY) => return Ok(()),
                Err(status) => return Err(format!("{}: SEQUENCE: {status:?}", self.name)),
                Ok(ok) => self.look_at(ok.status_flags)?,
            }
        }
        let pending = self.pending[at].take().expect("it was found there");
        let done = result.results.iter();
        match (&pending.purpose, result.status) {
            (Purpose::Exchange, Status::OK) => {
                let Some(OpResult::ExchangeId(Outcome::Ok(ok))) = result.results.first() else {
                    return Err("EXCHANGE_ID".into());
                };
                (self.client_id, self.create_sequence) = (ok.client_id, ok.sequence_id);
            }
            (Purpose::Session, Status::OK) => {
                let Some(OpResult::CreateSession(Outcome::Ok(ok))) = result.results.first() else {
                    return Err("CREATE_SESSION".into());
                };
                self.session = Some(ok.session_id);
                // The connection may have been lost since.
                self.needs_bind = true;
            }
            // A late copy of EXCHANGE_ID has made another record.
            (Purpose::Session, Status::STALE_CLIENTID) => self.client_id = 0,
            (Purpose::Complete, Status::OK) => self.is_ready = true,
            (Purpose::Bind | Purpose::Renew, Status::OK) => {}
            (Purpose::Read { file, began }, Status::OK) => {
                let read = done.clone().find_map(|result| match result {
                    OpResult::Read(Outcome::Ok(read)) => Some(value(&read.data)),
                    OpResult::ReadDir(Outcome::Ok(listing)) => directories::value(listing),
                    _ => None,
                });
                let value = read.ok_or("no READ")?;
                history.read(*file, value, *began).map_err(|why| format!("{}: {why}", self.name))?;
                self.take(*file, value, done);
            }
            (Purpose::Stat { file, began }, Status::OK) => {
                let seen = times::modified(done).ok_or("no time")?;
                history.stat(*file, seen, *began).map_err(|why| format!("{}: {why}", self.name))?;
            }
            (Purpose::Write { file, value }, Status::OK) => {
                history.end_write(*file, *value);
                if let Some(held) = self.held.get_mut(file).filter(|held| !held.is_returning) {
                    // Of a directory the last name counts, and others may have made later ones.
                    held.value = held.value.max(*value);
                }
                self.take(*file, *value, done);
            }
            (Purpose::Return { file, stateid }, Status::OK) => {
                // Unless the next one has come meanwhile.
                if self.held.get(file).is_some_and(|held| held.stateid == *stateid) {
                    let held = self.held.remove(file).expect("it was found");
                    held.kept.judge(done).map_err(|why| format!("{}, file {file}: {why}", self.name))?;
                }
            }
            (Purpose::Stat { .. }, Status::NOENT) => {}
            (
                Purpose::Read { .. } | Purpose::Stat { .. } | Purpose::Write { .. },
                Status::DELAY | Status::NOENT,
            ) => self.again = Some(pending.purpose),
            (purpose, status) => return Err(format!("{}: {purpose:?}: {status:?}", self.name)),
        }
        Ok(())
    }

    /// SEQ4_STATUS flags: the back channel is repaired; nothing else may be wrong.
    fn look_at(&mut self, flags: SequenceStatus) -> Result<(), String> {
        let down = SequenceStatus::CB_PATH_DOWN | SequenceStatus::CB_PATH_DOWN_SESSION;
        self.needs_bind |= flags.intersects(down);
        let other = flags.difference(down);
        if other.is_empty() || self.is_mute { Ok(()) } else { Err(format!("{}: {other:?}", self.name)) }
    }

    /// Keeps what was delegated.
    fn take<'a>(&mut self, file: u64, value: u64, results: impl Iterator<Item = &'a OpResult>) {
        let (mut delegation, mut kept) = (None, Kept::default());
        for result in results {
            match (result, &delegation) {
                (OpResult::Open(Outcome::Ok(open)), _) => {
                    delegation = match &open.delegation {
                        OpenDelegation::Read(read) => Some((read.stateid, false)),
                        OpenDelegation::Write(write) => Some((write.stateid, true)),
                        OpenDelegation::WriteAttributes(write) => {
                            kept.is_ours = true;
                            Some((write.stateid, true))
                        }
                        _ => None,
                    };
                }
                (OpResult::GetDirDelegation(Outcome::Ok(DirDelegation::Granted(granted))), _) => {
                    delegation = Some((granted.stateid, false));
                }
                (OpResult::GetFh(Outcome::Ok(handle)), Some((stateid, is_write))) => {
                    let held = Held {
                        stateid: *stateid,
                        handle: *handle,
                        is_write: *is_write,
                        value,
                        is_dirty: false,
                        is_returning: false,
                        kept,
                    };
                    self.held.insert(file, held);
                }
                (OpResult::GetAttr(Outcome::Ok(seen)), Some((stateid, _))) => {
                    // Nothing that it held before.
                    if let Some(held) = self.held.get_mut(&file).filter(|held| held.stateid == *stateid) {
                        held.kept.see(seen);
                    }
                }
                _ => {}
            }
        }
    }

    /// Answers a call of the server's: once, however often it comes.
    fn called(&mut self, bytes: Bytes) -> Result<Option<Bytes>, String> {
        let mut reader = Reader::new(bytes);
        let header = CallHeader::parse(&mut reader).map_err(|error| format!("{error:?}"))?;
        let mut reply = Writer::new();
        encode_success(&mut reply, header.xid);
        if header.procedure == callback::PROC_NULL {
            return Ok(Some(reply.into_bytes()));
        }
        let args = CbCompoundArgs::decode(&mut reader).map_err(|error| error.to_string())?;
        let [CbOp::Sequence(sequence), op] = &args.ops[..] else { return Err(format!("{args:?}")) };
        let (last, results) = self.answered.get(&sequence.slot_id).cloned().unwrap_or_default();
        if sequence.sequence_id < last {
            // A copy of something long answered; on a real connection none would come.
            return Ok(None);
        }
        let results = if sequence.sequence_id == last {
            results
        } else {
            let result = self.execute(op)?;
            let ok = CbSequenceOk {
                session_id: sequence.session_id,
                sequence_id: sequence.sequence_id,
                slot_id: sequence.slot_id,
                highest_slot_id: sequence.highest_slot_id,
                target_highest_slot_id: sequence.highest_slot_id,
            };
            let status = result.0;
            let results =
                List::new(vec![CbOpResult::Sequence(Outcome::Ok(ok)), result.1]).expect("two results");
            let mut encoded = Writer::new();
            CbCompoundResult { status, tag: Utf8::default(), results }.encode(&mut encoded);
            let encoded = encoded.into_bytes();
            self.answered.insert(sequence.slot_id, (sequence.sequence_id, encoded.clone()));
            encoded
        };
        reply.raw(&results);
        Ok(Some(reply.into_bytes()))
    }

    fn execute(&mut self, op: &CbOp) -> Result<(Status, CbOpResult), String> {
        let recall = match op {
            CbOp::Recall(recall) => recall,
            CbOp::GetAttr(asked) => {
                let held = self.held.values().find(|held| held.is_write && held.handle == asked.handle);
                let result = CbOpResult::GetAttr(times::answer(held, asked));
                return Ok((result.status(), result));
            }
            _ => return Err(format!("{op:?}")),
        };
        let held = self.held.iter().find(|(_, held)| held.stateid.other == recall.stateid.other);
        let outcome = match held {
            Some((file, _)) => {
                self.to_return.push_back(*file);
                Outcome::Ok(())
            }
            // Returned already, or the reply that brings it has not come yet.
            None => Outcome::Error(Status::BAD_STATEID),
        };
        let result = CbOpResult::Recall(outcome);
        Ok((result.status(), result))
    }
}

pub(super) fn name(file: u64) -> String {
    format!("file-{file}")
}

fn write(stateid: Stateid, value: u64) -> Op {
    let data = Opaque::new(Bytes::copy_from_slice(&value.to_be_bytes())).expect("eight bytes");
    Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::FileSync, data })
}

/// A file that nobody has written holds 0.
fn value(data: &[u8]) -> u64 {
    data.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
