//! Clients of versions 4.1 and 4.2 that use every operation that must be executed once, in several slots at once.
//!
//! The operations come from the server's own table: a run fails if a new one is not used here. The server's counts of executions must
//! equal the clients' counts of replies, so that a repeated execution is detected regardless of its reply. Stateids show it too. In the end no
//! state is left.

mod client;
mod slot_ops;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::ops::executed_once;
use protocol::nfs4::types::OpNum;
use server::Server;
use vfs::{Backend, MemFs, MemOptions};

use crate::backend::{Clock, SlowFs, Slowness};
use crate::cluster::Cluster;
use crate::peer::Tally;
use crate::rng::Rng;
use crate::scenario::Report;
use client::Client;

/// Operations that other scenarios repeat: `notices` asks for directory delegations, `transfers` copies between servers.
const ELSEWHERE: [OpNum; 2] = [OpNum::GET_DIR_DELEGATION, OpNum::COPY_NOTIFY];
/// Minor versions of the clients.
const MINORS: [u32; 2] = [1, 2];
/// Rounds of each slot.
const ROUNDS: u32 = 2;

/// Runs the scenario.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let clock = Arc::new(Clock::default());
    let slowness = Slowness::new(Arc::clone(&clock), rng.next_u64());
    let backend = Arc::new(SlowFs::of(MemFs::new(&MemOptions::default()), slowness));
    let clients = MINORS.iter().enumerate();
    let clients = clients.map(|(index, minor)| Client::new(index, *minor, &mut rng)).collect();
    let mut cluster = Cluster::new((backend as Arc<dyn Backend>, clock), clients, (), rng);
    cluster.run_until(|cluster| cluster.actors.iter().all(Client::is_gone))?;
    let checks = check(&cluster)?;
    check_nothing_left(&mut cluster)?;
    Ok(Report { time: cluster.now(), messages: cluster.messages, checks })
}

/// Checks that each operation that must be executed once was used in each version that has it, and was executed as often as it was
/// answered. Returns the number of executions.
fn check(cluster: &Cluster<Client>) -> Result<usize, String> {
    let mut total = 0;
    for minor in MINORS {
        for number in executed_once(minor).filter(|number| !ELSEWHERE.contains(number)) {
            let asked = cluster.actors.iter().filter(|client| client.minor() == minor);
            let asked = asked.filter_map(|client| client.tallies().get(&number));
            let done: u64 = asked.map(|tally| tally.calls - tally.errors).sum();
            if done == 0 {
                return Err(format!("{number:?} must be executed once, but is not used in 4.{minor}"));
            }
        }
    }
    let mut numbers: Vec<OpNum> = MINORS.into_iter().flat_map(executed_once).collect();
    numbers.sort();
    numbers.dedup();
    for number in numbers {
        let answered = answered(cluster, number);
        let executed = executed(&cluster.server, number);
        let is_once = match number {
            // SEQUENCE itself identifies repetitions.
            OpNum::SEQUENCE => continue,
            // The client ID's own slot identifies repetitions outside of sessions. A second session would have kept the client ID
            // from being destroyed.
            OpNum::CREATE_SESSION => executed.calls - executed.errors >= answered.calls - answered.errors,
            // A repetition outside of a session fails: the object is gone.
            OpNum::DESTROY_SESSION | OpNum::DESTROY_CLIENTID => {
                let own = MINORS.len() as u64;
                executed.calls - executed.errors == answered.calls - answered.errors + own
            }
            _ => executed == answered,
        };
        if !is_once {
            return Err(format!("{number:?} was answered as {answered:?}, and executed as {executed:?}"));
        }
        total += answered.calls as usize;
    }
    Ok(total)
}

fn answered(cluster: &Cluster<Client>, number: OpNum) -> Tally {
    let tallies = cluster.actors.iter().filter_map(|client| client.tallies().get(&number));
    tallies.fold(Tally::default(), |sum, one| Tally {
        calls: sum.calls + one.calls,
        errors: sum.errors + one.errors,
    })
}

fn executed(server: &Server, number: OpNum) -> Tally {
    let counts = server.metrics().nfs4_operation(number.0);
    Tally { calls: counts.calls.load(Relaxed), errors: counts.errors.load(Relaxed) }
}

/// Checks that no state is left after the lease of records that late copies of EXCHANGE_ID have created.
fn check_nothing_left(cluster: &mut Cluster<Client>) -> Result<(), String> {
    let end = cluster.now() + cluster.server.settings().lease + Duration::from_secs(10);
    cluster.run_until(|cluster| cluster.now() > end)?;
    let counts = cluster.server.counts();
    let left = [counts.clients, counts.sessions, counts.opens, counts.locks, counts.delegations];
    if left == [0; 5] && counts.revoked == 0 { Ok(()) } else { Err(format!("left: {counts:?}")) }
}
