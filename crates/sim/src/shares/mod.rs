//! Clients of all versions that contend for share reservations: they open files for more and for less, deny others the same, and
//! close them, over a network that loses, doubles and delays what they say and breaks their connections.
//!
//! Nobody is told that it has a file open in a way that another, who relies on it, denies, and version 3 does not read or write what is
//! denied; the server's tables are looked through after each message. One client may fall silent: the others get what it had open, after
//! its lease. When all have gone, nothing is left.

mod client;
mod ledger;
mod reader;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vfs::{Backend, MemFs, MemOptions};

use crate::backend::{Clock, SlowFs, Slowness};
use crate::rng::Rng;
use crate::scenario::Report;
use crate::stage::{Actor, Progress, SECOND, Stage};
use client::{Client, End};
use ledger::Ledger;
use reader::Reader;

/// Files that they share.
const FILES: u64 = 2;
/// What each client's program does.
const OPERATIONS: u32 = 40;
/// Minor versions of the clients of version 4; the last one clears up.
const MINORS: [u32; 5] = [0, 1, 2, 0, 2];
/// The server's.
const LEASE: Duration = Duration::from_secs(90);

fn name(file: u64) -> String {
    format!("file-{file}")
}

/// Somebody who uses the files.
#[derive(Debug)]
enum Party {
    Client(Box<Client>),
    Reader(Reader),
}

/// Runs it.
///
/// # Errors
/// What went wrong.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let clock = Arc::new(Clock::default());
    let slowness = Slowness::new(Arc::clone(&clock), rng.next_u64());
    let backend = Arc::new(SlowFs::of(MemFs::new(&MemOptions::default()), slowness));
    let last = MINORS.len() - 1;
    // Of some runs nobody.
    let silent = rng.below(MINORS.len() as u64) as usize;
    let mut parties: Vec<Party> = Vec::new();
    for (index, minor) in MINORS.into_iter().enumerate() {
        let end = match index {
            _ if index == last => End::Sweeps,
            _ if index == silent => End::FallsSilent,
            _ => End::Leaves,
        };
        parties.push(Party::Client(Box::new(Client::new(index, minor, end, OPERATIONS, &mut rng))));
    }
    parties.push(Party::Reader(Reader::new(OPERATIONS, &mut rng)));
    let ledger = Ledger::new(parties.len());
    let mut stage = Stage::new((backend as Arc<dyn Backend>, clock), parties, ledger, rng);
    if stage.server.settings().lease != LEASE {
        return Err("the lease is another one".into());
    }
    stage.play_until(|stage| stage.actors.iter().all(Party::is_done))?;
    nothing_is_left(&mut stage)?;
    let Ledger { granted, refused, .. } = stage.shared;
    Ok(Report { time: stage.now(), messages: stage.messages, deeds: granted.min(refused) })
}

/// What clients of version 4.0 and a silent one leave goes with their leases.
fn nothing_is_left(stage: &mut Stage<Party>) -> Result<(), String> {
    let end = stage.now() + LEASE + 10 * SECOND;
    stage.play_until(|stage| stage.now() > end)?;
    let counts = stage.server.counts();
    let left = [counts.clients, counts.sessions, counts.opens, counts.locks, counts.delegations];
    if left == [0; 5] && counts.revoked == 0 { Ok(()) } else { Err(format!("left: {counts:?}")) }
}

impl Party {
    fn is_done(&self) -> bool {
        match self {
            Self::Client(client) => client.is_done(),
            Self::Reader(reader) => reader.is_done(),
        }
    }

    fn speak(&mut self, now: Duration, ledger: &mut Ledger, rng: &mut Rng) -> Option<Bytes> {
        match self {
            Self::Client(client) => client.speak(now, ledger, rng),
            Self::Reader(reader) => reader.speak(now, ledger, rng),
        }
    }
}

impl Actor for Party {
    type Shared = Ledger;

    fn tick(&mut self, now: Duration, ledger: &mut Ledger, rng: &mut Rng) -> Vec<Bytes> {
        let again = match self {
            Self::Client(client) => {
                client.tick(now, LEASE, ledger);
                client.again(now)
            }
            Self::Reader(reader) => reader.again(now),
        };
        again.into_iter().chain(self.speak(now, ledger, rng)).collect()
    }

    /// Everybody thinks for a while before the next call: see [`Self::tick`].
    fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        ledger: &mut Ledger,
        _: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        match self {
            Self::Client(client) => client.hear(bytes, now, ledger)?,
            Self::Reader(reader) => reader.hear(bytes, ledger)?,
        }
        Ok(Vec::new())
    }

    /// The next call tells the server by which connection it comes.
    fn reconnected(&mut self) {}

    fn watch(_: &[Self], _: &mut Ledger, _: Option<Progress>) -> Result<(), String> {
        Ok(())
    }
}
