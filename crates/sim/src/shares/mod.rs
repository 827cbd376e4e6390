//! Clients of all versions that contend for share reservations: they open, upgrade, downgrade and close files over a faulty network.
//!
//! No client gets an open that another client's valid open denies, and version 3 does no denied I/O. The server is audited after each
//! event. One client may fall silent: the others get its files after its lease. In the end no state is left.

mod client;
mod share_model;
mod v3_client;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vfs::{Backend, MemFs, MemOptions};

use crate::backend::{Clock, SlowFs, Slowness};
use crate::cluster::{Actor, Cluster, Progress, SECOND};
use crate::rng::Rng;
use crate::scenario::Report;
use client::{Client, End};
use share_model::ShareModel;
use v3_client::V3Client;

/// Shared files.
const FILES: u64 = 2;
/// Operations of each client.
const OPERATIONS: u32 = 40;
/// Minor versions of the clients of version 4; the last one removes expired opens at the end.
const MINORS: [u32; 5] = [0, 1, 2, 0, 2];
/// The server's lease.
const LEASE: Duration = Duration::from_secs(90);

fn name(file: u64) -> String {
    format!("file-{file}")
}

/// A user of the files.
#[derive(Debug)]
enum Participant {
    Client(Box<Client>),
    V3Client(V3Client),
}

/// Runs the scenario.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let clock = Arc::new(Clock::default());
    let slowness = Slowness::new(Arc::clone(&clock), rng.next_u64());
    let backend = Arc::new(SlowFs::of(MemFs::new(&MemOptions::default()), slowness));
    let last = MINORS.len() - 1;
    // In some runs no client is silent.
    let silent = rng.below(MINORS.len() as u64) as usize;
    let mut participants: Vec<Participant> = Vec::new();
    for (index, minor) in MINORS.into_iter().enumerate() {
        let end = match index {
            _ if index == last => End::Sweeps,
            _ if index == silent => End::FallsSilent,
            _ => End::Leaves,
        };
        participants
            .push(Participant::Client(Box::new(Client::new(index, minor, end, OPERATIONS, &mut rng))));
    }
    participants.push(Participant::V3Client(V3Client::new(OPERATIONS, &mut rng)));
    let model = ShareModel::new(participants.len());
    let mut cluster = Cluster::new((backend as Arc<dyn Backend>, clock), participants, model, rng);
    if cluster.server.settings().lease != LEASE {
        return Err("unexpected lease time".into());
    }
    cluster.run_until(|cluster| cluster.actors.iter().all(Participant::is_done))?;
    check_nothing_left(&mut cluster)?;
    let ShareModel { granted, refused, .. } = cluster.shared;
    Ok(Report { time: cluster.now(), messages: cluster.messages, checks: granted.min(refused) })
}

/// Checks that no state is left after the leases.
fn check_nothing_left(cluster: &mut Cluster<Participant>) -> Result<(), String> {
    let end = cluster.now() + LEASE + 10 * SECOND;
    cluster.run_until(|cluster| cluster.now() > end)?;
    let counts = cluster.server.counts();
    let left = [counts.clients, counts.sessions, counts.opens, counts.locks, counts.delegations];
    if left == [0; 5] && counts.revoked == 0 { Ok(()) } else { Err(format!("left: {counts:?}")) }
}

impl Participant {
    fn is_done(&self) -> bool {
        match self {
            Self::Client(client) => client.is_done(),
            Self::V3Client(client) => client.is_done(),
        }
    }

    fn next_call(&mut self, now: Duration, model: &mut ShareModel, rng: &mut Rng) -> Option<Bytes> {
        match self {
            Self::Client(client) => client.next_call(now, model, rng),
            Self::V3Client(client) => client.next_call(now, model, rng),
        }
    }
}

impl Actor for Participant {
    type Shared = ShareModel;

    fn tick(&mut self, now: Duration, model: &mut ShareModel, rng: &mut Rng) -> Vec<Bytes> {
        let again = match self {
            Self::Client(client) => {
                client.tick(now, LEASE, model);
                client.retransmit(now)
            }
            Self::V3Client(client) => client.retransmit(now),
        };
        again.into_iter().chain(self.next_call(now, model, rng)).collect()
    }

    /// Handles a message; the next call follows in [`Self::tick`].
    fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        model: &mut ShareModel,
        _: &mut Rng,
    ) -> Result<Vec<Bytes>, String> {
        match self {
            Self::Client(client) => client.receive(bytes, now, model)?,
            Self::V3Client(client) => client.receive(bytes, model)?,
        }
        Ok(Vec::new())
    }

    /// Does nothing: the next call uses the new connection.
    fn reconnected(&mut self) {}

    fn watch(_: &[Self], _: &mut ShareModel, _: Option<Progress>) -> Result<(), String> {
        Ok(())
    }
}
