//! Clients of versions 4.0, 4.1 and 4.2 whose processes wait for byte-range locks of the same files (RFC 8881 §9.6, §20.11).
//!
//! They lock, upgrade, downgrade, unlock parts and close, over a faulty network. A process that is denied retries as Linux's client does,
//! and at once after CB_NOTIFY_LOCK. Clients ignore callbacks for a while, one falls silent for longer than its lease or until all
//! others have ended, and the server is killed: clients reclaim their locks.
//!
//! A [`LockModel`] predicts the server's replies and notifications in each step. Once all locks are released and the network has no
//! faults, every waiter gets its lock within a time limit. In the end no state is left.

mod cells;
mod client;
mod lock_model;
mod process;

use std::sync::Arc;
use std::time::Duration;

use vfs::{MemFs, MemOptions};

use crate::backend::Clock;
use crate::cluster::{Cluster, SECOND};
use crate::logs::Logs;
use crate::rng::Rng;
use crate::scenario::Report;
use client::{Client, Silence};
use lock_model::LockModel;

/// Shared files.
const FILES: usize = 2;
/// Locks that each process takes or abandons.
const LOCKS: u32 = 25;
/// Minor versions of the clients.
const MINORS: [u32; 5] = [0, 1, 2, 1, 0];
/// The server's lease.
const LEASE: Duration = Duration::from_secs(90);
/// Upper bound on kills of the server, and the time within which they happen.
const KILLS: u64 = 3;
const KILLED_WITHIN: Duration = Duration::from_secs(150);
/// Time limit for all waiters to get their locks: a grace period of two leases at most, the retry interval of a process that is not
/// notified, and a turn for each process.
const SERVICE_TIME_MAX: Duration = Duration::from_secs(2 * 90 + 30 + 15 * 5);

fn name(file: usize) -> String {
    format!("file-{file}")
}

/// Runs the scenario.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let clock = Arc::new(Clock::default());
    let clients = clients(&mut rng);
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let quiet = KILLED_WITHIN + SECOND * rng.below(200) as u32;
    let kills = rng.below(KILLS);
    let log = Arc::new(Logs::prompt(Arc::clone(&clock)));
    let model = LockModel::new(clients.len());
    let mut cluster = Cluster::new((backend, clock), clients, model, rng).with_log(log);
    if cluster.server.settings().lease != LEASE {
        return Err("unexpected lease time".into());
    }
    cluster.plan_kills(kills, KILLED_WITHIN);
    cluster.run_until(|cluster| cluster.now() >= quiet)?;
    check_all_served(&mut cluster)?;
    check_nothing_left(&mut cluster)?;
    let counts = cluster.shared.counts;
    Ok(Report { time: cluster.now(), messages: cluster.messages, checks: counts.spared.min(counts.denied) })
}

/// Creates the clients, one of which falls silent in most runs.
fn clients(rng: &mut Rng) -> Vec<Client> {
    let silent = rng.below(MINORS.len() as u64 + 1) as usize;
    let seconds = |rng: &mut Rng, least: u64, most| SECOND * (least + rng.below(most - least)) as u32;
    let mut clients = Vec::new();
    for (index, minor) in MINORS.into_iter().enumerate() {
        let from = seconds(rng, 10, 120);
        let silence = match index == silent {
            true if rng.chance(50) => Silence::Since(from),
            true => Silence::Between(from, from + seconds(rng, 20, 250)),
            false => Silence::Never,
        };
        let ignores_callbacks = seconds(rng, 10, 200);
        clients.push(Client::new(
            index,
            minor,
            silence,
            (ignores_callbacks, ignores_callbacks + seconds(rng, 1, 60)),
            rng,
        ));
    }
    clients
}

/// Makes the clients release all locks without network faults, and checks that every waiter gets its lock.
fn check_all_served(cluster: &mut Cluster<Client>) -> Result<(), String> {
    cluster.stop_faults();
    cluster.shared.is_quiet = true;
    let end = cluster.now() + SERVICE_TIME_MAX;
    let waits = |cluster: &Cluster<Client>| {
        let mut present = cluster.actors.iter().filter(|client| !client.is_mute());
        present.find(|client| !client.is_done(&cluster.shared)).map(|client| format!("{client:?}"))
    };
    cluster.run_until(|cluster| cluster.now() > end || waits(cluster).is_none())?;
    match waits(cluster) {
        None => Ok(()),
        Some(client) => Err(format!("a client waits without end: {client}")),
    }
}

/// Makes silent clients return and all clients leave, and checks that no state is left after the leases.
fn check_nothing_left(cluster: &mut Cluster<Client>) -> Result<(), String> {
    cluster.shared.is_over = true;
    cluster.run_until(|cluster| cluster.actors.iter().all(Client::is_gone))?;
    let end = cluster.now() + LEASE + 10 * SECOND;
    cluster.run_until(|cluster| cluster.now() > end)?;
    let counts = cluster.server.counts();
    let left = [counts.clients, counts.sessions, counts.opens, counts.locks, counts.locks_waiting];
    if left == [0; 5] && counts.revoked == 0 { Ok(()) } else { Err(format!("left: {counts:?}")) }
}
