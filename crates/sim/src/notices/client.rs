//! A client that keeps its views of directories by notifications.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::notify::{CbNotifyArgs, notify_type};
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DirDelegation};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::types::{Bitmap, Handle, Outcome, StateOwner, Stateid, Status};
use server::Server;
use xdr::Opaque;

use super::changes::{self, Change};
use super::directory_history::{DirectoryHistory, MadeChange};
use super::{DIRECTORIES, directory_name, holder_view};
use crate::backchannel;
use crate::cluster::{Actor, Progress, SECOND, ServerAction};
use crate::delegations::directories;
use crate::peer::{Incoming, PROGRAM, Peer, RETURNS};
use crate::rng::Rng;

const ALL: Bitmap =
    Bitmap::of(&[notify_type::REMOVE_ENTRY, notify_type::ADD_ENTRY, notify_type::RENAME_ENTRY]);

/// The purpose of a call.
#[derive(Debug, Clone, PartialEq)]
enum Purpose {
    /// GET_DIR_DELEGATION and READDIR of a directory with this number of past states.
    Ask {
        directory: u64,
        kinds: Bitmap,
        age: usize,
    },
    Change(Change),
    Return {
        directory: u64,
        stateid: Stateid,
    },
    /// SETATTR, so that other holders return the directory.
    Touch {
        directory: u64,
    },
}

/// A delegation, and the holder's view.
#[derive(Debug)]
struct Held {
    stateid: Stateid,
    handle: Handle,
    /// Notified kinds of changes.
    kinds: Bitmap,
    names: BTreeSet<String>,
    /// Index of the view among the directory's states.
    age: usize,
    /// The number of the granting server.
    server: u32,
    /// Whether the client itself has made a change without notification, whose order among the notified ones it does not know.
    is_unsure: bool,
    /// Whether it has refused a notification.
    has_refused: bool,
    is_recalled: bool,
    is_returning: bool,
}

/// A client of the scenario.
#[derive(Debug)]
pub(super) struct Client {
    peer: Peer<Purpose>,
    /// Whether it falls silent after its program.
    is_mute: bool,
    left: u32,
    /// To be repeated after DELAY.
    again: Option<Purpose>,
    /// Its program pauses until then.
    rests_until: Duration,
    /// It neither receives nor sends until then.
    unreachable_until: Duration,
    held: BTreeMap<u64, Held>,
    to_return: VecDeque<u64>,
    to_touch: VecDeque<u64>,
    /// Delegations whose notifications it refused before it knew of the grant.
    refused: HashSet<[u8; 12]>,
}

impl Client {
    pub(super) fn new(index: usize, left: u32, is_mute: bool, rng: &mut Rng) -> Self {
        let mut peer = Peer::new(index, rng);
        if is_mute {
            peer.expected_flags = SequenceStatus::all();
        }
        Self {
            peer,
            is_mute,
            left,
            again: None,
            rests_until: Duration::ZERO,
            unreachable_until: Duration::ZERO,
            held: BTreeMap::new(),
            to_return: VecDeque::new(),
            to_touch: if index == 0 { (0..DIRECTORIES).collect() } else { VecDeque::new() },
            refused: HashSet::new(),
        }
    }

    /// Returns whether its program has ended.
    pub(super) fn is_idle(&self) -> bool {
        self.left == 0 && self.peer.is_free(PROGRAM) && self.again.is_none()
    }

    /// Returns whether it has also returned everything, or is silent.
    pub(super) fn is_done(&self) -> bool {
        self.is_idle() && (self.is_mute || self.held.is_empty() && self.to_touch.is_empty())
    }

    fn is_silent(&self) -> bool {
        self.is_mute && self.is_idle()
    }

    /// Returns whether it still holds a delegation that the server first recalled a lease ago.
    pub(super) fn has_overdue(&self, history: &DirectoryHistory, now: Duration, lease: Duration) -> bool {
        let is_overdue =
            |held: &Held| history.recalled_at(&held.stateid).is_some_and(|recalled| recalled + lease <= now);
        self.held.values().any(|held| held.server == history.server && is_overdue(held))
    }

    /// Checks that its views are current, or recalled.
    pub(super) fn knows(&self, history: &DirectoryHistory) -> Result<(), String> {
        let in_use = self.held.iter().filter(|(_, held)| !held.is_recalled && !held.is_returning);
        for (directory, held) in in_use.filter(|_| !self.is_silent()) {
            let name = &self.peer.name;
            if held.server != history.server {
                return Err(format!("{name} has not noticed the restart of the server"));
            }
            if held.has_refused {
                return Err(format!(
                    "{name} refused a notification of directory {directory}, which was not recalled"
                ));
            }
            if !held.is_unsure && held.names != *history.names(*directory) {
                return Err(format!(
                    "{name} believes that directory {directory} holds {:?}, and it holds {:?}",
                    held.names,
                    history.names(*directory)
                ));
            }
        }
        Ok(())
    }

    /// Returns whether its view is older than a change of which it is not notified. While a change becomes durable, and is not answered yet,
    /// the directory may be granted again: that view includes the change.
    fn relies_on(&self, change: MadeChange, history: &DirectoryHistory) -> bool {
        let MadeChange { directory, kind, state } = change;
        let held = self.held.get(&directory);
        let held = held.filter(|held| !held.is_returning && held.server == history.server);
        let is_older = |held: &Held| history.find(directory, state, &held.names).is_none();
        !self.is_silent() && held.is_some_and(|held| !held.kinds.has(kind) && is_older(held))
    }

    fn is_unreachable(&self, now: Duration) -> bool {
        self.is_silent() || now < self.unreachable_until
    }

    /// Starts calls.
    fn proceed(&mut self, now: Duration, history: &DirectoryHistory, rng: &mut Rng) -> Vec<Bytes> {
        let mut out = self.peer.proceed(now);
        if !self.peer.is_ready() {
            return out;
        }
        if history.is_ending && self.is_idle() {
            self.to_return = self.held.keys().copied().collect();
        }
        if self.peer.is_free(RETURNS)
            && let Some(directory) = self.to_return.pop_front()
        {
            out.extend(self.return_delegation(directory, now));
        }
        if self.peer.is_free(PROGRAM) && self.rests_until <= now {
            out.extend(self.next_operation(now, history, rng));
        }
        out
    }

    fn return_delegation(&mut self, directory: u64, now: Duration) -> Option<Bytes> {
        let held = self.held.get_mut(&directory).filter(|held| !held.is_returning)?;
        held.is_returning = true;
        let (stateid, handle) = (held.stateid, held.handle);
        let ops = vec![Op::PutFh(PutFhArgs { handle }), Op::DelegReturn(DelegReturnArgs { stateid })];
        Some(self.peer.send(RETURNS, ops, Purpose::Return { directory, stateid }, now))
    }

    fn next_operation(&mut self, now: Duration, history: &DirectoryHistory, rng: &mut Rng) -> Option<Bytes> {
        if let Some(purpose) = self.again.take() {
            return Some(self.ask(purpose, now));
        }
        if self.left == 0 {
            let directory = self.to_touch.front().copied().filter(|_| history.is_ending)?;
            return Some(self.ask(Purpose::Touch { directory }, now));
        }
        self.left -= 1;
        let directory = rng.below(DIRECTORIES);
        let wants = !self.held.contains_key(&directory);
        match rng.below(20) {
            _ if self.is_mute => Some(self.ask_for(directory, now, history, rng)),
            0..=8 if wants => Some(self.ask_for(directory, now, history, rng)),
            0 => {
                self.to_return.push_back(directory);
                None
            }
            1..=3 => {
                self.rests_until = now + SECOND * (1 + rng.below(8) as u32);
                None
            }
            4 if rng.chance(30) => {
                self.unreachable_until = now + SECOND * (1 + rng.below(40) as u32);
                None
            }
            _ => {
                let owner = Opaque::new(self.peer.name.clone().into_bytes()).expect("a short name");
                let owner = StateOwner { client_id: self.peer.client_id, owner };
                let change = changes::draw(history, owner, rng);
                Some(self.ask(Purpose::Change(change), now))
            }
        }
    }

    /// Requests a delegation, mostly with all notifications.
    fn ask_for(&mut self, directory: u64, now: Duration, history: &DirectoryHistory, rng: &mut Rng) -> Bytes {
        let mut kinds = ALL;
        if rng.chance(30) {
            ALL.iter().filter(|_| rng.chance(50)).for_each(|kind| kinds.remove(kind));
        }
        self.ask(Purpose::Ask { directory, kinds, age: history.age(directory) }, now)
    }

    /// Sends a request, or repeats it.
    fn ask(&mut self, purpose: Purpose, now: Duration) -> Bytes {
        let ops = match &purpose {
            Purpose::Ask { directory, kinds, .. } => {
                // The request includes a kind that the server does not support.
                let also = Bitmap::of(&[notify_type::CHANGE_CHILD_ATTRS]);
                directories::read(&directory_name(*directory), kinds.union(also))
            }
            Purpose::Change(change) => {
                for (directory, kind) in &change.touched {
                    if let Some(held) = self.held.get_mut(directory) {
                        held.is_unsure |= !held.kinds.has(*kind);
                    }
                }
                change.ops.clone()
            }
            Purpose::Touch { directory } => changes::touch(*directory),
            Purpose::Return { .. } => unreachable!("returns have a slot of their own"),
        };
        self.peer.send(PROGRAM, ops, purpose, now)
    }

    fn answered(
        &mut self,
        purpose: Purpose,
        result: &CompoundResult,
        history: &DirectoryHistory,
    ) -> Result<(), String> {
        match (purpose, result.status) {
            (Purpose::Return { directory, stateid }, Status::OK) => {
                // Unless the next delegation has arrived meanwhile.
                if self.held.get(&directory).is_some_and(|held| held.stateid == stateid) {
                    self.held.remove(&directory);
                }
                Ok(())
            }
            (Purpose::Ask { directory, kinds, age }, Status::OK) => {
                self.take(directory, kinds, age, result, history)
            }
            (Purpose::Touch { .. }, Status::OK) => {
                self.to_touch.pop_front();
                Ok(())
            }
            // Another client was faster (STALE: than the OPEN of a new file), or the server had executed it before a kill.
            (Purpose::Change(_), Status::OK | Status::NOENT | Status::EXIST | Status::STALE) => Ok(()),
            (purpose @ (Purpose::Ask { .. } | Purpose::Change(_) | Purpose::Touch { .. }), Status::DELAY) => {
                self.again = Some(purpose);
                Ok(())
            }
            (purpose, status) => Err(format!("{}: {purpose:?}: {status:?}", self.peer.name)),
        }
    }

    /// Handles a granted delegation and the listing.
    fn take(
        &mut self,
        directory: u64,
        asked: Bitmap,
        since: usize,
        result: &CompoundResult,
        history: &DirectoryHistory,
    ) -> Result<(), String> {
        let [.., OpResult::GetDirDelegation(Outcome::Ok(delegation)), handle, listing] = &result.results[..]
        else {
            return Err(format!("{:?}", result.results));
        };
        let DirDelegation::Granted(granted) = delegation else { return Ok(()) };
        let (OpResult::GetFh(Outcome::Ok(handle)), OpResult::ReadDir(Outcome::Ok(listing))) =
            (handle, listing)
        else {
            return Err(format!("{:?}", result.results));
        };
        let kinds = granted.notification_types;
        if !kinds.is_subset(asked) {
            return Err(format!("{} is granted {kinds:?} instead of {asked:?}", self.peer.name));
        }
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let names: BTreeSet<String> = listing.entries.iter().map(|entry| text(&entry.name)).collect();
        let age = history.find(directory, since, &names).ok_or_else(|| format!("listed {names:?}"))?;
        let held = Held {
            stateid: granted.stateid,
            handle: *handle,
            kinds,
            names,
            age,
            server: history.server,
            is_unsure: false,
            has_refused: self.refused.contains(&granted.stateid.other),
            is_recalled: false,
            is_returning: false,
        };
        self.held.insert(directory, held);
        Ok(())
    }

    /// Returns its reply to a callback, or nothing if it must be repeated.
    fn execute(
        &mut self,
        op: &CbOp,
        history: &mut DirectoryHistory,
        rng: &mut Rng,
    ) -> Result<Option<CbOpResult>, String> {
        let stateid = match op {
            CbOp::Recall(recall) => recall.stateid,
            CbOp::Notify(notify) => notify.stateid,
            other => return Err(format!("{other:?}")),
        };
        let found = self.held.iter().find(|(_, held)| held.stateid.other == stateid.other);
        let directory = found.map(|(directory, _)| *directory);
        let is_asking = matches!(self.peer.doing(PROGRAM), Some(Purpose::Ask { .. }));
        // RFC 8881 §2.10.6.3: the reply with the grant may be on its way.
        if directory.is_none() && is_asking && rng.chance(50) {
            return Ok(None);
        }
        let outcome = |status| if status == Status::OK { Outcome::Ok(()) } else { Outcome::Error(status) };
        Ok(Some(match (op, directory) {
            (CbOp::Notify(notify), Some(directory)) => {
                CbOpResult::Notify(outcome(self.notified(directory, notify, history, rng)?))
            }
            (CbOp::Notify(_), None) => {
                self.refused.insert(stateid.other);
                CbOpResult::Notify(outcome(Status::BAD_STATEID))
            }
            (_, Some(directory)) => {
                self.held.get_mut(&directory).expect("it was found").is_recalled = true;
                self.to_return.push_back(directory);
                CbOpResult::Recall(outcome(Status::OK))
            }
            (_, None) => CbOpResult::Recall(outcome(Status::BAD_STATEID)),
        }))
    }

    /// Handles a notification; returns the status of the reply.
    fn notified(
        &mut self,
        directory: u64,
        notify: &CbNotifyArgs,
        history: &mut DirectoryHistory,
        rng: &mut Rng,
    ) -> Result<Status, String> {
        let name = &self.peer.name;
        let held = self.held.get_mut(&directory).expect("it was found");
        if held.handle != notify.handle {
            return Err(format!("{name} is notified of another directory than it holds"));
        }
        if held.is_recalled || held.is_returning {
            return Ok(Status::OK);
        }
        if held.has_refused {
            return Err(format!(
                "{name} is notified of directory {directory} after it refused a notification"
            ));
        }
        if rng.chance(3) {
            held.has_refused = true;
            return Ok(Status::SERVERFAULT);
        }
        for change in notify.changes.iter() {
            if !change.mask.is_subset(held.kinds) {
                return Err(format!("{name} is notified of {:?} instead of {:?}", change.mask, held.kinds));
            }
            history.notified += 1;
            // A change that it does not know of may lie between.
            if !held.is_unsure {
                holder_view::apply(&mut held.names, change)
                    .map_err(|why| format!("{name}, directory {directory}: {why}"))?;
            }
        }
        if !held.is_unsure {
            let found = history.find(directory, held.age, &held.names);
            held.age = found.ok_or_else(|| {
                format!("{name} has a view of directory {directory} that never was: {:?}", held.names)
            })?;
        }
        Ok(Status::OK)
    }

    /// Handles a restart of the server, which has no state of the client.
    fn forget(&mut self) {
        self.held.clear();
        self.to_return.clear();
        self.refused.clear();
        self.again = None;
    }
}

impl Actor for Client {
    type Shared = DirectoryHistory;

    fn tick(&mut self, now: Duration, history: &mut DirectoryHistory, rng: &mut Rng) -> Vec<Bytes> {
        if self.is_unreachable(now) {
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
        history: &mut DirectoryHistory,
        rng: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        if self.is_unreachable(now) {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        match self.peer.receive(bytes)? {
            Incoming::Nothing => {}
            Incoming::Call(call) => {
                let mut back = std::mem::take(&mut self.peer.back);
                let answer = back.called(call, |op| self.execute(op, history, rng));
                self.peer.back = back;
                out.extend(answer?);
            }
            Incoming::Answer(purpose, result) => self.answered(purpose, &result, history)?,
            Incoming::Lost => self.forget(),
        }
        out.extend(self.proceed(now, history, rng));
        Ok(out)
    }

    fn reconnected(&mut self) {
        self.peer.reconnected();
    }

    fn server_killed(history: &mut DirectoryHistory, _: Duration) {
        history.server_killed();
    }

    fn on_server_action(
        history: &mut DirectoryHistory,
        _: &Server,
        now: Duration,
        action: ServerAction<'_>,
    ) -> Result<(), String> {
        if let ServerAction::Call { call, .. } = action
            && let Some(CbOp::Recall(recall)) = backchannel::operation(call)?
        {
            history.recall_sent(&recall.stateid, now);
        }
        Ok(())
    }

    /// Checks that a change without notification is not answered before the holder has returned the directory.
    fn watch(
        clients: &[Self],
        history: &mut DirectoryHistory,
        progress: Option<Progress>,
    ) -> Result<(), String> {
        let Some(Progress { author, call, is_over }) = progress else { return Ok(()) };
        for change in history.made_by(call, is_over) {
            let relies = |client: &Self| client.relies_on(change, history);
            let mut others = clients.iter().enumerate().filter(|(index, _)| *index != author);
            if let Some((index, _)) = others.find(|(_, client)| relies(client)) {
                return Err(format!(
                    "client {author} got the reply to {change:?} before client {index} returned the directory"
                ));
            }
        }
        Ok(())
    }
}
