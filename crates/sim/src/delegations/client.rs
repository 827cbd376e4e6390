//! A client of version 4.1 with a cache under delegations.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DirDelegation};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::open::{
    CreateHow, OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Bitmap, Handle, Outcome, StableHow, StateOwner, Stateid, Status};
use xdr::Opaque;

use super::directories;
use super::history::History;
use super::listed_changes::{self, ListedChanges, RequestContext};
use super::times::{self, Kept};
use super::{FILES, Subject};
use crate::client::{at_export, export};
use crate::cluster::{Actor, Progress, moment};
use crate::peer::{Incoming, PROGRAM, Peer, RETURNS};
use crate::rng::Rng;

/// The purpose of a call.
#[derive(Debug, Clone, PartialEq)]
enum Purpose {
    Read { file: u64, began: u64 },
    Stat { file: u64, began: u64 },
    List(RequestContext),
    Write { file: u64, value: u64 },
    Return { file: u64, stateid: Stateid },
}

/// A delegation, and the data cached under it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) stateid: Stateid,
    handle: Handle,
    is_write: bool,
    value: u64,
    pub(super) is_dirty: bool,
    is_returning: bool,
    /// Whether the program has written more during DELEGRETURN.
    is_overtaken: bool,
    pub(super) kept: Kept,
}

/// A client of the scenario.
#[derive(Debug)]
pub(super) struct Client {
    peer: Peer<Purpose>,
    subject: Subject,
    /// Whether it falls silent after its program.
    is_mute: bool,
    /// Whether it requests write delegations with delegated timestamps.
    keeps_times: bool,
    left: u32,
    /// To be repeated after DELAY.
    again: Option<Purpose>,
    held: HashMap<u64, Held>,
    /// Cached values of returned files, with the last change attribute before the return.
    cached: HashMap<u64, (u64, u64)>,
    listed: ListedChanges,
    to_return: VecDeque<u64>,
    /// A stale read of its program.
    pub(super) wrong: Option<String>,
}

impl Client {
    pub(super) fn new(index: usize, subject: Subject, left: u32, is_mute: bool, rng: &mut Rng) -> Self {
        let mut peer = Peer::new(index, rng);
        if is_mute {
            peer.expected_flags = SequenceStatus::all();
        }
        let keeps_times = !is_mute && subject == Subject::Files && rng.chance(50);
        if keeps_times {
            peer.minor = 2;
        }
        Self {
            peer,
            subject,
            is_mute,
            keeps_times,
            left,
            again: None,
            held: HashMap::new(),
            cached: HashMap::new(),
            listed: ListedChanges::default(),
            to_return: VecDeque::new(),
            wrong: None,
        }
    }

    /// Returns whether its program has ended and it has returned everything, or is silent.
    pub(super) fn is_done(&self) -> bool {
        let idle = self.left == 0 && self.peer.is_free(PROGRAM) && self.again.is_none();
        idle && (self.is_mute || self.held.is_empty())
    }

    fn is_silent(&self) -> bool {
        self.is_mute && self.is_done()
    }

    /// Returns whether its delegation of a file is for writing, if it has one.
    pub(super) fn holds(&self, file: u64) -> Option<bool> {
        let held = self.held.get(&file).filter(|held| !held.is_returning && !self.is_silent())?;
        Some(held.is_write)
    }

    /// Starts calls.
    fn proceed(&mut self, now: Duration, history: &mut History, rng: &mut Rng) -> Vec<Bytes> {
        let mut out = self.peer.proceed(now);
        if !self.peer.is_ready() {
            return out;
        }
        if self.peer.is_free(RETURNS)
            && let Some(file) = self.to_return.pop_front()
        {
            out.extend(self.return_delegation(file, now));
        }
        if self.peer.is_free(PROGRAM) {
            out.extend(self.next_operation(now, history, rng));
        }
        out
    }

    /// Runs the program's next read or write; from the cache under a delegation.
    fn next_operation(&mut self, now: Duration, history: &mut History, rng: &mut Rng) -> Option<Bytes> {
        if let Some(purpose) = self.again.take() {
            return Some(self.ask(purpose, rng, now));
        }
        if self.left == 0 {
            // The program has ended: return everything.
            self.to_return =
                self.held.iter().filter(|(_, held)| !held.is_returning).map(|(file, _)| *file).collect();
            self.to_return.make_contiguous().sort_unstable();
            return None;
        }
        self.left -= 1;
        let file = if self.is_mute { u64::from(self.left) } else { rng.below(FILES) };
        let writes = !self.is_mute && rng.chance(40);
        if self.held.get(&file).is_some_and(|held| held.is_returning) {
            // The file is being returned: wait for that.
            self.left += 1;
            return None;
        }
        let held = self.held.get_mut(&file).filter(|held| !held.is_returning);
        match held {
            Some(held) if writes && held.is_write => {
                held.value = history.begin_write(file);
                held.is_dirty = true;
                held.kept.modified = moment(now).wall;
                let value = held.value;
                history.end_write(file, value);
                None
            }
            Some(held) if !writes => {
                let began = history.now();
                let value = held.value;
                if let Err(why) = history.read(file, value, began) {
                    self.wrong = Some(format!("{}, under a delegation: {why}", self.peer.name));
                }
                None
            }
            _ if writes => {
                let value = history.begin_write(file);
                Some(self.ask(Purpose::Write { file, value }, rng, now))
            }
            _ if self.subject == Subject::Files && !self.is_mute && rng.chance(30) => {
                // In addition to the program's operation.
                self.left += 1;
                let began = history.now();
                Some(self.ask(Purpose::Stat { file, began }, rng, now))
            }
            _ if self.subject == Subject::Files && !self.is_mute && rng.chance(75) => {
                self.left += 1;
                Some(self.ask(self.listing(), rng, now))
            }
            _ => {
                let began = history.now();
                Some(self.ask(Purpose::Read { file, began }, rng, now))
            }
        }
    }

    /// Requests a listing.
    fn listing(&self) -> Purpose {
        let is_read = |file: &u64| self.held.get(file).filter(|held| !held.is_write && !held.is_returning);
        Purpose::List(RequestContext {
            held: (0..FILES).filter_map(|file| Some((file, is_read(&file)?.stateid))).collect(),
            others: (0..FILES).filter(|file| !self.held.contains_key(file)).collect(),
        })
    }

    /// Sends a read or a write to the server.
    fn ask(&mut self, purpose: Purpose, rng: &mut Rng, now: Duration) -> Bytes {
        let ops = match purpose {
            Purpose::Read { file, .. } if self.subject == Subject::Directories => {
                directories::read(&name(file), Bitmap::EMPTY)
            }
            Purpose::Write { file, value } if self.subject == Subject::Directories => {
                directories::write(&name(file), value)
            }
            Purpose::Stat { file, .. } => times::stat(&name(file)),
            Purpose::List(_) => listed_changes::list(),
            Purpose::Read { file, .. } => {
                let read = Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: 8 });
                self.open(file, ShareAccess::READ, read)
            }
            Purpose::Write { file, value } if rng.chance(30) => {
                // A file that does not exist yet is NOENT, and the write is repeated.
                let mut ops = at_export(&name(file));
                ops.push(write(Stateid::ANONYMOUS, value));
                ops
            }
            Purpose::Write { file, value } => {
                self.open(file, ShareAccess::BOTH, write(Stateid::CURRENT, value))
            }
            _ => unreachable!("only reads and writes are requested"),
        };
        self.peer.send(PROGRAM, ops, purpose, now)
    }

    fn open(&self, file: u64, share_access: ShareAccess, io: Op) -> Vec<Op> {
        let owner = Opaque::new(self.peer.name.clone().into_bytes()).expect("a short name");
        let open = Op::Open(OpenArgs {
            seqid: 0,
            share_access: if self.keeps_times { share_access | times::WANTED } else { share_access },
            share_deny: ShareDeny::empty(),
            owner: StateOwner { client_id: self.peer.client_id, owner },
            how: OpenHow::Create(CreateHow::Unchecked(FileAttributes::default())),
            claim: OpenClaim::Null(Opaque::new(name(file).into_bytes()).expect("a short name")),
        });
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
        let mut ops = export();
        ops.extend([open, Op::GetFh, times::before(), io, times::after(), close]);
        ops
    }

    /// Writes dirty data back, and returns the delegation.
    fn return_delegation(&mut self, file: u64, now: Duration) -> Option<Bytes> {
        let held = self.held.get_mut(&file).filter(|held| !held.is_returning)?;
        held.is_returning = true;
        let Held { stateid, handle, value, is_dirty, kept, .. } = held.clone();
        let mut ops = vec![Op::PutFh(PutFhArgs { handle })];
        ops.extend(is_dirty.then(|| write(stateid, value)));
        ops.extend(kept.hand_in(stateid));
        // Like Linux's client, it attributes the change attribute seen here to its own writes.
        ops.push(times::before());
        ops.push(Op::DelegReturn(DelegReturnArgs { stateid }));
        Some(self.peer.send(RETURNS, ops, Purpose::Return { file, stateid }, now))
    }

    fn answered(
        &mut self,
        purpose: Purpose,
        result: &CompoundResult,
        history: &mut History,
    ) -> Result<(), String> {
        let done = result.results.iter();
        match (&purpose, result.status) {
            (Purpose::Read { file, began }, Status::OK) => {
                let read = done.clone().find_map(|result| match result {
                    OpResult::Read(Outcome::Ok(read)) => Some(value(&read.data)),
                    OpResult::ReadDir(Outcome::Ok(listing)) => directories::value(listing),
                    _ => None,
                });
                let value = read.ok_or("no READ")?;
                let change = times::change(done.clone());
                // The cache remains valid if the change attribute is the same.
                let cached = self.cached.remove(file).filter(|(known, _)| change == Some(*known));
                let value = cached.map_or(value, |(_, cached)| cached);
                history.read(*file, value, *began).map_err(|why| format!("{}: {why}", self.peer.name))?;
                self.take(*file, value, done);
            }
            (Purpose::Stat { file, began }, Status::OK) => {
                let seen = times::modified(done).ok_or("no time")?;
                history.stat(*file, seen, *began).map_err(|why| format!("{}: {why}", self.peer.name))?;
            }
            (Purpose::Write { file, value }, Status::OK) => {
                history.end_write(*file, *value);
                self.cached.remove(file);
                if let Some(held) = self.held.get_mut(file) {
                    held.is_overtaken |= held.is_returning;
                }
                if let Some(held) = self.held.get_mut(file).filter(|held| !held.is_returning) {
                    // A directory's value is its last name, and others may have created later ones.
                    held.value = held.value.max(*value);
                }
                self.take(*file, *value, done);
            }
            (Purpose::Return { file, stateid }, Status::OK) => {
                // Unless the next delegation has arrived meanwhile.
                if self.held.get(file).is_some_and(|held| held.stateid == *stateid) {
                    let held = self.held.remove(file).expect("it was found");
                    let change = times::change(done.clone());
                    let change = change.filter(|_| !held.is_overtaken);
                    self.cached.extend(change.map(|change| (*file, (change, held.value))));
                    held.kept.check(done).map_err(|why| format!("{}, file {file}: {why}", self.peer.name))?;
                }
            }
            (Purpose::List(RequestContext { held, others }), Status::OK) => {
                let changes = listed_changes::changes_in(done).ok_or("no listing")?;
                let is_held = |(file, stateid): &&(u64, Stateid)| {
                    self.held.get(file).is_some_and(|held| held.stateid == *stateid && !held.is_returning)
                };
                let held = held.iter().filter(is_held).map(|(file, _)| (*file, self.held[file].kept.change));
                self.listed
                    .check(&changes, held, others)
                    .map_err(|why| format!("{}: {why}", self.peer.name))?;
            }
            (Purpose::Stat { .. }, Status::NOENT) => {}
            (
                Purpose::Read { .. } | Purpose::Stat { .. } | Purpose::List(_) | Purpose::Write { .. },
                Status::DELAY | Status::NOENT,
            ) => self.again = Some(purpose),
            (purpose, status) => return Err(format!("{}: {purpose:?}: {status:?}", self.peer.name)),
        }
        Ok(())
    }

    /// Handles a granted delegation.
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
                        is_overtaken: false,
                        kept,
                    };
                    self.held.insert(file, held);
                }
                (OpResult::GetAttr(Outcome::Ok(seen)), Some((stateid, _))) => {
                    // No earlier delegation.
                    if let Some(held) = self.held.get_mut(&file).filter(|held| held.stateid == *stateid) {
                        held.kept.see(seen);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the client's reply to a callback.
fn execute(
    held: &HashMap<u64, Held>,
    to_return: &mut VecDeque<u64>,
    op: &CbOp,
) -> Result<Option<CbOpResult>, String> {
    let recall = match op {
        CbOp::Recall(recall) => recall,
        CbOp::GetAttr(asked) => {
            let held = held.values().find(|held| held.is_write && held.handle == asked.handle);
            return Ok(Some(CbOpResult::GetAttr(times::answer(held, asked))));
        }
        _ => return Err(format!("{op:?}")),
    };
    let recalled = held.iter().find(|(_, held)| held.stateid.other == recall.stateid.other);
    let outcome = match recalled {
        Some((file, _)) => {
            to_return.push_back(*file);
            Outcome::Ok(())
        }
        // Returned already, or the reply with the grant has not arrived yet.
        None => Outcome::Error(Status::BAD_STATEID),
    };
    Ok(Some(CbOpResult::Recall(outcome)))
}

impl Actor for Client {
    type Shared = History;

    fn tick(&mut self, now: Duration, history: &mut History, rng: &mut Rng) -> Vec<Bytes> {
        if self.is_silent() {
            return Vec::new();
        }
        let mut out = self.peer.retransmit(now);
        out.extend(self.proceed(now, history, rng));
        out
    }

    fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        history: &mut History,
        rng: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        if self.is_silent() {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        match self.peer.receive(bytes)? {
            Incoming::Nothing => {}
            Incoming::Call(call) => {
                let Self { peer, held, to_return, .. } = self;
                out.extend(peer.back.called(call, |op| execute(held, to_return, op))?);
            }
            Incoming::Answer(purpose, result) => self.answered(purpose, &result, history)?,
            Incoming::Lost => return Err(format!("{}: the session is lost", self.peer.name)),
        }
        out.extend(self.proceed(now, history, rng));
        Ok(out)
    }

    fn reconnected(&mut self) {
        self.peer.reconnected();
    }

    /// Checks that a write delegation is the only delegation of its file.
    fn watch(clients: &[Self], _: &mut History, _: Option<Progress>) -> Result<(), String> {
        if let Some(wrong) = clients.iter().find_map(|client| client.wrong.clone()) {
            return Err(wrong);
        }
        for file in 0..FILES {
            let held: Vec<bool> = clients.iter().filter_map(|client| client.holds(file)).collect();
            if held.len() > 1 && held.contains(&true) {
                return Err(format!("file {file} is delegated for writing and to {} clients", held.len()));
            }
        }
        Ok(())
    }
}

pub(super) fn name(file: u64) -> String {
    format!("file-{file}")
}

fn write(stateid: Stateid, value: u64) -> Op {
    let data = Opaque::new(Bytes::copy_from_slice(&value.to_be_bytes())).expect("eight bytes");
    Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::FileSync, data })
}

/// Returns the value in a file's data; a file without writes has 0.
fn value(data: &[u8]) -> u64 {
    data.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
