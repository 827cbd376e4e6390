//! A client of version 4.1 or 4.2 with its own program in each slot.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::compound::CompoundResult;
use protocol::nfs4::types::Status;

use super::ROUNDS;
use super::slot_ops::{SlotOp, SlotState, round};
use crate::cluster::{Actor, Progress};
use crate::peer::{Incoming, MORE, OpTallies, PROGRAM, Peer, RETURNS};
use crate::rng::Rng;

/// The slots with programs.
const SLOTS: [usize; 3] = [PROGRAM, RETURNS, MORE];

/// The program of a slot.
#[derive(Debug)]
struct SlotProgram {
    slot: usize,
    /// Remaining rounds, each with the name of its file.
    rounds: VecDeque<(String, VecDeque<SlotOp>)>,
    state: SlotState,
    /// Whether it waits for the next second to retry.
    rests: bool,
}

/// A client of the scenario.
#[derive(Debug)]
pub(super) struct Client {
    /// The purpose of a call is its slot.
    peer: Peer<usize>,
    programs: Vec<SlotProgram>,
}

impl Client {
    pub(super) fn new(index: usize, minor: u32, rng: &mut Rng) -> Self {
        let mut peer = Peer::new(index, rng);
        peer.minor = minor;
        let program = |slot| {
            let name = |number| format!("{}-s{slot}-r{number}", peer.name);
            let rounds = (0..ROUNDS).map(name).map(|name| {
                let ops = round(&name, minor).into();
                (name, ops)
            });
            let rounds: VecDeque<_> = rounds.collect();
            SlotProgram { slot, state: SlotState::new(rounds[0].0.clone()), rounds, rests: false }
        };
        let programs = SLOTS.map(program).into();
        Self { peer, programs }
    }

    pub(super) fn minor(&self) -> u32 {
        self.peer.minor
    }

    pub(super) fn tallies(&self) -> &OpTallies {
        &self.peer.tallies
    }

    /// Returns whether it has finished and left.
    pub(super) fn is_gone(&self) -> bool {
        self.peer.is_gone()
    }

    fn proceed(&mut self, now: Duration) -> Vec<Bytes> {
        let mut out = self.peer.proceed(now);
        if !self.peer.is_ready() || self.peer.is_gone() {
            return out;
        }
        for program in &mut self.programs {
            if !program.rests && self.peer.is_free(program.slot) {
                out.extend(program.next(&mut self.peer, now));
            }
        }
        if self.programs.iter().all(|program| program.rounds.is_empty()) {
            self.peer.leave();
        }
        out
    }

    fn answered(&mut self, slot: usize, result: &CompoundResult) -> Result<(), String> {
        let program =
            self.programs.iter_mut().find(|program| program.slot == slot).expect("a slot with an operation");
        program.answered(result).map_err(|why| format!("{}, slot {slot}: {why}", self.peer.name))
    }
}

impl SlotProgram {
    fn next(&mut self, peer: &mut Peer<usize>, now: Duration) -> Option<Bytes> {
        let op = self.rounds.front()?.1.front()?.clone();
        self.state.client_id = peer.client_id;
        let ops = self.state.ops(&op);
        Some(match op {
            SlotOp::Associate => peer.send_bare(self.slot, ops, self.slot, now),
            _ => peer.send(self.slot, ops, self.slot, now),
        })
    }

    fn answered(&mut self, result: &CompoundResult) -> Result<(), String> {
        let (_, ops) = self.rounds.front_mut().ok_or("an answer to nothing")?;
        let op = ops.front().cloned().ok_or("an answer to nothing")?;
        match (&op, result.status) {
            (_, Status::OK) => {
                if !self.state.learn(&op, &result.results)? {
                    self.rests = true;
                    return Ok(());
                }
                ops.pop_front();
            }
            (_, Status::DELAY) => self.rests = true,
            // The connection was lost after CREATE_SESSION.
            (SlotOp::DestroySession, Status::CONN_NOT_BOUND_TO_SESSION) => ops.push_front(SlotOp::Associate),
            (op, status) => {
                return Err(format!("{op:?}: {status:?}, as if it were executed twice"));
            }
        }
        if ops.is_empty() {
            self.rounds.pop_front();
            self.rounds.front().inspect(|(name, _)| self.state = SlotState::new(name.clone()));
        }
        Ok(())
    }
}

impl Actor for Client {
    type Shared = ();

    fn tick(&mut self, now: Duration, (): &mut (), _: &mut Rng) -> Vec<Bytes> {
        self.programs.iter_mut().for_each(|program| program.rests = false);
        let mut out = self.peer.retransmit(now);
        out.extend(self.proceed(now));
        out
    }

    fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        (): &mut (),
        _: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        let mut out = Vec::new();
        match self.peer.receive(bytes)? {
            Incoming::Nothing => {}
            Incoming::Call(call) => {
                let unexpected = |op: &_| Err(format!("unexpected callback: {op:?}"));
                out.extend(self.peer.back.called(call, unexpected)?);
            }
            Incoming::Answer(slot, result) => self.answered(slot, &result)?,
            Incoming::Lost => return Err(format!("{} has lost its session", self.peer.name)),
        }
        out.extend(self.proceed(now));
        Ok(out)
    }

    fn reconnected(&mut self) {
        self.peer.reconnected();
    }

    fn watch(_: &[Self], (): &mut (), _: Option<Progress>) -> Result<(), String> {
        Ok(())
    }
}
