//! A client of version 4.0, 4.1 or 4.2 with several processes.

use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op};
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::types::Outcome;
use server::Server;

use super::LOCKS;
use super::judge::{Judge, Who};
use super::process::Process;
use crate::older::Older;
use crate::peer::{Heard, MORE, PROGRAM, Peer, RETURNS};
use crate::rng::Rng;
use crate::stage::{Actor, Did, Progress};

/// Slots, or lines, of the processes.
const PLACES: [usize; 3] = [PROGRAM, RETURNS, MORE];

/// How a client speaks. A call is for the process of this number.
#[derive(Debug)]
enum Voice {
    Newer(Box<Peer<usize>>),
    Older(Older<usize>),
}

/// When a client is not heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    Never,
    /// For this time.
    Between(Duration, Duration),
    /// From then on, until all others have ended.
    Since(Duration),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    voice: Voice,
    processes: Vec<Process>,
    silence: Silence,
    /// It does not answer callbacks in this time.
    deaf: (Duration, Duration),
    /// Servers that it has seen killed.
    kills: u32,
}

impl Client {
    pub(super) fn new(
        index: usize,
        minor: u32,
        silence: Silence,
        deaf: (Duration, Duration),
        rng: &mut Rng,
    ) -> Self {
        let voice = if minor == 0 {
            Voice::Older(Older::new(index, rng))
        } else {
            let mut peer = Peer::new(index, rng);
            peer.minor = minor;
            peer.expected_flags = SequenceStatus::RESTART_RECLAIM_NEEDED;
            if silence != Silence::Never {
                peer.expected_flags |= SequenceStatus::EXPIRED_SOME_STATE_REVOKED;
            }
            Voice::Newer(Box::new(peer))
        };
        let who = |process| Who { client: index, process };
        let processes = (0..PLACES.len()).map(|process| Process::new(who(process), minor, LOCKS)).collect();
        Self { index, voice, processes, silence, deaf, kills: 0 }
    }

    /// Whether its processes have ended.
    pub(super) fn is_done(&self, judge: &Judge) -> bool {
        self.processes.iter().all(|process| process.is_done(judge))
    }

    /// Whether nothing is to be expected of it before the others have ended.
    pub(super) fn is_mute(&self) -> bool {
        matches!(self.silence, Silence::Since(_))
    }

    pub(super) fn is_gone(&self) -> bool {
        match &self.voice {
            Voice::Newer(peer) => peer.is_gone(),
            Voice::Older(older) => older.is_gone(),
        }
    }

    fn is_silent(&self, now: Duration, judge: &Judge) -> bool {
        match self.silence {
            Silence::Never => false,
            Silence::Between(from, until) => (from..until).contains(&now),
            Silence::Since(from) => now >= from && !judge.is_over,
        }
    }

    fn proceed(&mut self, now: Duration, judge: &mut Judge, rng: &mut Rng) -> Vec<Bytes> {
        let is_reclaiming = self.processes.iter().any(Process::is_reclaiming);
        let (mut out, is_ready, client_id) = match &mut self.voice {
            Voice::Newer(peer) => {
                peer.is_reclaiming = is_reclaiming;
                let out = peer.proceed(now);
                (out, peer.is_ready() || is_reclaiming && peer.may_reclaim(), peer.client_id)
            }
            Voice::Older(older) => {
                // Whatever is no reclaim ends them.
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
            let is_free = match &self.voice {
                Voice::Newer(peer) => peer.is_free(PLACES[number]),
                Voice::Older(older) => older.is_free(number),
            };
            if !is_free {
                continue;
            }
            let Some(deed) = process.next(now, judge, rng) else { continue };
            let (ops, ask) = process.words(deed, client_id);
            let call = say(&mut self.voice, number, ops, now);
            if let Some(ask) = ask {
                judge.asks(call.clone(), ask);
            }
            out.push(call);
        }
        if self.is_done(judge) {
            match &mut self.voice {
                Voice::Newer(peer) => peer.leave(),
                Voice::Older(older) => older.leave(),
            }
        }
        out
    }

    fn answered(
        &mut self,
        number: usize,
        result: &CompoundResult,
        now: Duration,
        judge: &mut Judge,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let may_have_lost = self.silence != Silence::Never;
        let process = &mut self.processes[number];
        let learned = process.learn(result, now, may_have_lost, judge, rng);
        learned.map_err(|why| format!("client {}, process {number}: {why}", self.index))
    }

    /// The server does not know it any more: another one, or it was silent for long.
    fn loses_server(&mut self, judge: &Judge) -> Result<(), String> {
        if self.kills == judge.kills && self.silence == Silence::Never {
            return Err(format!("client {} was forgotten, and was never silent", self.index));
        }
        self.kills = judge.kills;
        self.processes.iter_mut().for_each(Process::loses_server);
        Ok(())
    }

    /// A call of the server's: the process that waits asks at once.
    fn called(&mut self, call: Bytes, now: Duration, rng: &mut Rng) -> Result<Option<Bytes>, String> {
        let Self { voice: Voice::Newer(peer), processes, index, .. } = self else {
            return Err("version 4.0 is not called".into());
        };
        let client_id = peer.client_id;
        peer.back.called(call, |op| {
            let CbOp::NotifyLock(told) = op else { return Err(format!("nothing here leads to {op:?}")) };
            let who = Who::named(&told.lock_owner.owner).filter(|who| who.client == *index);
            let who = who.filter(|_| told.lock_owner.client_id == client_id);
            let process = who.and_then(|who| processes.get_mut(who.process));
            process.ok_or_else(|| format!("client {index} is told of {told:?}"))?.is_told(
                told.handle,
                now,
                rng,
            );
            Ok(Some(CbOpResult::NotifyLock(Outcome::Ok(()))))
        })
    }
}

fn say(voice: &mut Voice, number: usize, ops: Vec<Op>, now: Duration) -> Bytes {
    match voice {
        Voice::Newer(peer) => peer.send(PLACES[number], ops, number, now),
        Voice::Older(older) => older.send(number, ops, number, now),
    }
}

impl Actor for Client {
    type Shared = Judge;

    fn tick(&mut self, now: Duration, judge: &mut Judge, rng: &mut Rng) -> Vec<Bytes> {
        if self.is_silent(now, judge) {
            return Vec::new();
        }
        let mut out = match &mut self.voice {
            Voice::Newer(peer) => peer.again(now),
            Voice::Older(older) => older.again(now),
        };
        out.extend(self.proceed(now, judge, rng));
        out
    }

    fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        judge: &mut Judge,
        rng: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        if self.is_silent(now, judge) {
            return Ok(Vec::new());
        }
        let heard = match &mut self.voice {
            Voice::Newer(peer) => peer.hear(bytes)?,
            Voice::Older(older) => older.hear(bytes)?,
        };
        let mut out = Vec::new();
        match heard {
            Heard::Nothing => {}
            Heard::Call(_) if (self.deaf.0..self.deaf.1).contains(&now) => {}
            Heard::Call(call) => out.extend(self.called(call, now, rng)?),
            Heard::Answer(number, result) => {
                self.answered(number, &result, now, judge, rng)?;
            }
            Heard::Lost => self.loses_server(judge)?,
        }
        out.extend(self.proceed(now, judge, rng));
        Ok(out)
    }

    fn reconnected(&mut self) {
        if let Voice::Newer(peer) = &mut self.voice {
            peer.reconnected();
        }
    }

    fn server_killed(judge: &mut Judge, now: Duration) {
        judge.server_killed(now);
    }

    fn server_did(judge: &mut Judge, server: &Server, now: Duration, did: Did<'_>) -> Result<(), String> {
        judge.server_did(server, now, did)
    }

    fn watch(_: &[Self], _: &mut Judge, _: Option<Progress>) -> Result<(), String> {
        Ok(())
    }
}
