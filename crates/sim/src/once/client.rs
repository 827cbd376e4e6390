//! A client of version 4.1 or 4.2 that does something else in each of its slots.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::compound::CompoundResult;
use protocol::nfs4::types::Status;

use super::ROUNDS;
use super::deeds::{Deed, Found, round};
use crate::peer::{Heard, MORE, PROGRAM, Peer, RETURNS, Tallies};
use crate::rng::Rng;
use crate::stage::{Actor, Progress};

/// Of the client's slots, those that do something.
const SLOTS: [usize; 3] = [PROGRAM, RETURNS, MORE];

/// What is done in a slot.
#[derive(Debug)]
struct Lane {
    slot: usize,
    /// What is left of the rounds, each with the name of its file.
    rounds: VecDeque<(String, VecDeque<Deed>)>,
    found: Found,
    /// It asks again when the second is over.
    rests: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    /// A call is for the slot that it is in.
    peer: Peer<usize>,
    lanes: Vec<Lane>,
}

impl Client {
    pub(super) fn new(index: usize, minor: u32, rng: &mut Rng) -> Self {
        let mut peer = Peer::new(index, rng);
        peer.minor = minor;
        let lane = |slot| {
            let name = |number| format!("{}-s{slot}-r{number}", peer.name);
            let rounds = (0..ROUNDS).map(name).map(|name| {
                let deeds = round(&name, minor).into();
                (name, deeds)
            });
            let rounds: VecDeque<_> = rounds.collect();
            Lane { slot, found: Found::new(rounds[0].0.clone()), rounds, rests: false }
        };
        let lanes = SLOTS.map(lane).into();
        Self { peer, lanes }
    }

    pub(super) fn minor(&self) -> u32 {
        self.peer.minor
    }

    pub(super) fn tallies(&self) -> &Tallies {
        &self.peer.tallies
    }

    /// Whether it has done everything, and is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.peer.is_gone()
    }

    fn proceed(&mut self, now: Duration) -> Vec<Bytes> {
        let mut out = self.peer.proceed(now);
        if !self.peer.is_ready() || self.peer.is_gone() {
            return out;
        }
        for lane in &mut self.lanes {
            if !lane.rests && self.peer.is_free(lane.slot) {
                out.extend(lane.next(&mut self.peer, now));
            }
        }
        if self.lanes.iter().all(|lane| lane.rounds.is_empty()) {
            self.peer.leave();
        }
        out
    }

    fn answered(&mut self, slot: usize, result: &CompoundResult) -> Result<(), String> {
        let lane = self.lanes.iter_mut().find(|lane| lane.slot == slot).expect("a slot that does something");
        lane.answered(result).map_err(|why| format!("{}, slot {slot}: {why}", self.peer.name))
    }
}

impl Lane {
    fn next(&mut self, peer: &mut Peer<usize>, now: Duration) -> Option<Bytes> {
        let deed = self.rounds.front()?.1.front()?.clone();
        self.found.client_id = peer.client_id;
        let ops = self.found.ops(&deed);
        Some(match deed {
            Deed::Associate => peer.send_bare(self.slot, ops, self.slot, now),
            _ => peer.send(self.slot, ops, self.slot, now),
        })
    }

    fn answered(&mut self, result: &CompoundResult) -> Result<(), String> {
        let (_, deeds) = self.rounds.front_mut().ok_or("an answer to nothing")?;
        let deed = deeds.front().cloned().ok_or("an answer to nothing")?;
        match (&deed, result.status) {
            (_, Status::OK) => {
                if !self.found.learn(&deed, &result.results)? {
                    self.rests = true;
                    return Ok(());
                }
                deeds.pop_front();
            }
            (_, Status::DELAY) => self.rests = true,
            // The connection has been lost since the session was made.
            (Deed::DestroySession, Status::CONN_NOT_BOUND_TO_SESSION) => deeds.push_front(Deed::Associate),
            (deed, status) => {
                return Err(format!("{deed:?}: {status:?}, as if it were executed twice"));
            }
        }
        if deeds.is_empty() {
            self.rounds.pop_front();
            self.rounds.front().inspect(|(name, _)| self.found = Found::new(name.clone()));
        }
        Ok(())
    }
}

impl Actor for Client {
    type Shared = ();

    fn tick(&mut self, now: Duration, (): &mut (), _: &mut Rng) -> Vec<Bytes> {
        self.lanes.iter_mut().for_each(|lane| lane.rests = false);
        let mut out = self.peer.again(now);
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
        match self.peer.hear(bytes)? {
            Heard::Nothing => {}
            Heard::Call(call) => {
                let unexpected = |op: &_| Err(format!("nobody conflicts, and yet: {op:?}"));
                out.extend(self.peer.back.called(call, unexpected)?);
            }
            Heard::Answer(slot, result) => self.answered(slot, &result)?,
            Heard::Lost => return Err(format!("{} has lost its session", self.peer.name)),
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
