//! A client of version 4.0, 4.1 or 4.2 with several processes.

use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op};
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::types::Outcome;
use server::Server;

use super::LOCKS;
use super::lock_model::{LockModel, ProcessId};
use super::process::Process;
use crate::cluster::{Actor, Progress, ServerAction};
use crate::peer::{Incoming, MORE, PROGRAM, Peer, RETURNS};
use crate::rng::Rng;
use crate::v40_peer::V40Peer;

/// Slots of the processes.
const PLACES: [usize; 3] = [PROGRAM, RETURNS, MORE];

/// A client's protocol state. The purpose of a call is the number of its process.
#[derive(Debug)]
enum Connection {
    Newer(Box<Peer<usize>>),
    V40(V40Peer<usize>),
}

/// When a client is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    Never,
    /// During this time.
    Between(Duration, Duration),
    /// From this time on, until all others have ended.
    Since(Duration),
}

/// A client of the scenario.
#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    connection: Connection,
    processes: Vec<Process>,
    silence: Silence,
    /// When it ignores callbacks.
    ignores_callbacks: (Duration, Duration),
    /// Kills of the server that it knows of.
    kills: u32,
}

impl Client {
    pub(super) fn new(
        index: usize,
        minor: u32,
        silence: Silence,
        ignores_callbacks: (Duration, Duration),
        rng: &mut Rng,
    ) -> Self {
        let connection = if minor == 0 {
            Connection::V40(V40Peer::new(index, rng))
        } else {
            let mut peer = Peer::new(index, rng);
            peer.minor = minor;
            peer.expected_flags = SequenceStatus::RESTART_RECLAIM_NEEDED;
            if silence != Silence::Never {
                peer.expected_flags |= SequenceStatus::EXPIRED_SOME_STATE_REVOKED;
            }
            Connection::Newer(Box::new(peer))
        };
        let who = |process| ProcessId { client: index, process };
        let processes = (0..PLACES.len()).map(|process| Process::new(who(process), minor, LOCKS)).collect();
        Self { index, connection, processes, silence, ignores_callbacks, kills: 0 }
    }

    /// Returns whether its processes have ended.
    pub(super) fn is_done(&self, model: &LockModel) -> bool {
        self.processes.iter().all(|process| process.is_done(model))
    }

    /// Returns whether it is silent until the others have ended.
    pub(super) fn is_mute(&self) -> bool {
        matches!(self.silence, Silence::Since(_))
    }

    pub(super) fn is_gone(&self) -> bool {
        match &self.connection {
            Connection::Newer(peer) => peer.is_gone(),
            Connection::V40(older) => older.is_gone(),
        }
    }

    fn is_silent(&self, now: Duration, model: &LockModel) -> bool {
        match self.silence {
            Silence::Never => false,
            Silence::Between(from, until) => (from..until).contains(&now),
            Silence::Since(from) => now >= from && !model.is_over,
        }
    }

    fn proceed(&mut self, now: Duration, model: &mut LockModel, rng: &mut Rng) -> Vec<Bytes> {
        let is_reclaiming = self.processes.iter().any(Process::is_reclaiming);
        let (mut out, is_ready, client_id) = match &mut self.connection {
            Connection::Newer(peer) => {
                peer.is_reclaiming = is_reclaiming;
                let out = peer.proceed(now);
                (out, peer.is_ready() || is_reclaiming && peer.may_reclaim(), peer.client_id)
            }
            Connection::V40(older) => {
                // Any other request ends the reclaims.
                let out = if is_reclaiming && older.is_ready() { Vec::new() } else { older.proceed(now) };
                (out, older.is_ready(), older.client_id)
            }
        };
        if !is_ready || self.is_gone() {
            return out;
        }
        let is_next = |process: &&mut Process| !is_reclaiming || process.is_reclaiming();
        for process in self.processes.iter_mut().filter(is_next) {
            let number = process.who.process;
            let is_free = match &self.connection {
                Connection::Newer(peer) => peer.is_free(PLACES[number]),
                Connection::V40(older) => older.is_free(number),
            };
            if !is_free {
                continue;
            }
            let Some(op) = process.next(now, model, rng) else { continue };
            let (ops, ask) = process.operations(op, client_id);
            let call = say(&mut self.connection, number, ops, now);
            if let Some(ask) = ask {
                model.asks(call.clone(), ask);
            }
            out.push(call);
        }
        if self.is_done(model) {
            match &mut self.connection {
                Connection::Newer(peer) => peer.leave(),
                Connection::V40(older) => older.leave(),
            }
        }
        out
    }

    fn answered(
        &mut self,
        number: usize,
        result: &CompoundResult,
        now: Duration,
        model: &mut LockModel,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let may_have_lost = self.silence != Silence::Never;
        let process = &mut self.processes[number];
        let learned = process.learn(result, now, may_have_lost, model, rng);
        learned.map_err(|why| format!("client {}, process {number}: {why}", self.index))
    }

    /// Handles the loss of its client ID, after a restart or a long silence.
    fn loses_server(&mut self, model: &LockModel) -> Result<(), String> {
        if self.kills == model.kills && self.silence == Silence::Never {
            return Err(format!(
                "the record of client {} was removed although it was not silent",
                self.index
            ));
        }
        self.kills = model.kills;
        self.processes.iter_mut().for_each(Process::loses_server);
        Ok(())
    }

    /// Handles a callback: the waiting process retries at once.
    fn called(&mut self, call: Bytes, now: Duration, rng: &mut Rng) -> Result<Option<Bytes>, String> {
        let Self { connection: Connection::Newer(peer), processes, index, .. } = self else {
            return Err("a callback to version 4.0".into());
        };
        let client_id = peer.client_id;
        peer.back.called(call, |op| {
            let CbOp::NotifyLock(args) = op else { return Err(format!("unexpected callback {op:?}")) };
            let who = ProcessId::named(&args.lock_owner.owner).filter(|who| who.client == *index);
            let who = who.filter(|_| args.lock_owner.client_id == client_id);
            let process = who.and_then(|who| processes.get_mut(who.process));
            process.ok_or_else(|| format!("client {index} has no waiter for {args:?}"))?.notified(
                args.handle,
                now,
                rng,
            );
            Ok(Some(CbOpResult::NotifyLock(Outcome::Ok(()))))
        })
    }
}

fn say(connection: &mut Connection, number: usize, ops: Vec<Op>, now: Duration) -> Bytes {
    match connection {
        Connection::Newer(peer) => peer.send(PLACES[number], ops, number, now),
        Connection::V40(older) => older.send(number, ops, number, now),
    }
}

impl Actor for Client {
    type Shared = LockModel;

    fn tick(&mut self, now: Duration, model: &mut LockModel, rng: &mut Rng) -> Vec<Bytes> {
        if self.is_silent(now, model) {
            return Vec::new();
        }
        let mut out = match &mut self.connection {
            Connection::Newer(peer) => peer.retransmit(now),
            Connection::V40(older) => older.retransmit(now),
        };
        out.extend(self.proceed(now, model, rng));
        out
    }

    fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        model: &mut LockModel,
        rng: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        if self.is_silent(now, model) {
            return Ok(Vec::new());
        }
        let received = match &mut self.connection {
            Connection::Newer(peer) => peer.receive(bytes)?,
            Connection::V40(older) => older.receive(bytes)?,
        };
        let mut out = Vec::new();
        match received {
            Incoming::Nothing => {}
            Incoming::Call(_) if (self.ignores_callbacks.0..self.ignores_callbacks.1).contains(&now) => {}
            Incoming::Call(call) => out.extend(self.called(call, now, rng)?),
            Incoming::Answer(number, result) => {
                self.answered(number, &result, now, model, rng)?;
            }
            Incoming::Lost => self.loses_server(model)?,
        }
        out.extend(self.proceed(now, model, rng));
        Ok(out)
    }

    fn reconnected(&mut self) {
        if let Connection::Newer(peer) = &mut self.connection {
            peer.reconnected();
        }
    }

    fn server_killed(model: &mut LockModel, now: Duration) {
        model.server_killed(now);
    }

    fn on_server_action(
        model: &mut LockModel,
        server: &Server,
        now: Duration,
        action: ServerAction<'_>,
    ) -> Result<(), String> {
        model.on_server_action(server, now, action)
    }

    fn watch(_: &[Self], _: &mut LockModel, _: Option<Progress>) -> Result<(), String> {
        Ok(())
    }
}
