//! Clients that have directories delegated and are told of changes (RFC 8881 §10.9, §20.4), of some kinds or of all.
//!
//! Each keeps a model of the directory, which it has listed with the grant and changes as it is told. Changes take their time,
//! are made at once and answered late; messages are lost, late, doubled and overtaken; clients go deaf for a while, refuse a
//! notice, or are never heard of again; the server is killed. All the while, whatever a holder believes the directory has
//! been, each state behind the one before; and nothing that a holder is not told of is answered before it has given
//! the directory back. When it is quiet, who was told everything and was not asked for its delegation knows the directory.

mod changes;
mod client;
mod directory_history;
mod holder_view;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use vfs::{Backend, MemFs, MemOptions};

use crate::backend::{Clock, SlowFs, Slowness};
use crate::cluster::Cluster;
use crate::delegations::make_directories;
use crate::rng::Rng;
use crate::scenario::Report;
use client::Client;
use directory_history::DirectoryHistory;

/// Clients that behave.
const CLIENTS: usize = 4;
/// Directories that they share.
const DIRECTORIES: u64 = 2;
/// What each client's program does.
const OPERATIONS: u32 = 60;
/// Kills of the server in a run are fewer than this, and when they come.
const KILLS: u64 = 3;
const KILLED_WITHIN: Duration = Duration::from_secs(200);
/// Within which time of silence everybody has heard everything: longer than the server waits for an answer (15 s), and than
/// it leaves a recalled delegation to a client that does not know it yet.
const HEARD_WITHIN: Duration = Duration::from_secs(300);

fn directory_name(directory: u64) -> String {
    format!("directory-{directory}")
}

/// Runs it; every fourth time beside a client that is never heard of again.
///
/// # Errors
/// What went wrong.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let with_mute = seed.is_multiple_of(4);
    let files = MemFs::new(&MemOptions::default());
    make_directories(&files, DIRECTORIES, directory_name);
    let clock = Arc::new(Clock::default());
    let slowness = Slowness::new(Arc::clone(&clock), rng.next_u64());
    let backend = Arc::new(SlowFs::of(files, slowness));
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|index| Client::new(index, OPERATIONS, false, &mut rng)).collect();
    if with_mute {
        clients.push(Client::new(CLIENTS, 4, true, &mut rng));
    }
    let kills = rng.below(KILLS);
    let history = DirectoryHistory::new(Arc::clone(&backend), DIRECTORIES);
    let mut cluster = Cluster::new((backend as Arc<dyn Backend>, clock), clients, history, rng);
    cluster.plan_kills(kills, KILLED_WITHIN);
    if let Err(why) = play(&mut cluster, with_mute) {
        let revoked = revoked(&cluster);
        if revoked == 0 || !has_overdue(&cluster) {
            return Err(format!("{why}; {revoked} delegations were revoked"));
        }
        // What the holder believes says nothing from here on: the run ends.
    }
    Ok(Report { time: cluster.now(), messages: cluster.messages, checks: cluster.shared.told })
}

fn play(cluster: &mut Cluster<Client>, with_mute: bool) -> Result<(), String> {
    cluster.run_until(|cluster| cluster.actors.iter().all(Client::is_idle))?;
    check_views(cluster)?;
    end(cluster, with_mute)
}

/// Whether a client that behaves has not returned a delegation a lease after its first recall, because the network lost so many
/// messages. RFC 8881 §10.4.5: "servers SHOULD revoke delegations that are not returned in a period of time equal to the lease
/// period."
fn has_overdue(cluster: &Cluster<Client>) -> bool {
    let (now, lease) = (cluster.now(), cluster.server.settings().lease);
    cluster.actors[..CLIENTS].iter().any(|client| client.has_overdue(&cluster.shared, now, lease))
}

fn revoked(cluster: &Cluster<Client>) -> u64 {
    cluster.server.delegation_counts().revoked.load(Relaxed)
}

/// Nothing is changed any more: after a while everybody knows what is there.
fn check_views(cluster: &mut Cluster<Client>) -> Result<(), String> {
    let deadline = cluster.now() + HEARD_WITHIN;
    let knows = |cluster: &Cluster<Client>| {
        cluster.actors.iter().try_for_each(|client| client.knows(&cluster.shared))
    };
    cluster.run_until(|cluster| knows(cluster).is_ok() || cluster.now() > deadline)?;
    knows(cluster)
}

/// Everything goes back, and nothing is left.
fn end(cluster: &mut Cluster<Client>, with_mute: bool) -> Result<(), String> {
    cluster.shared.is_ending = true;
    cluster.run_until(|cluster| {
        let counts = cluster.server.counts();
        cluster.actors.iter().all(Client::is_done) && (counts.delegations, counts.opens) == (0, 0)
    })?;
    let lost = cluster.server.counts().revoked;
    if with_mute || (revoked(cluster), lost) == (0, 0) {
        Ok(())
    } else {
        Err("delegations were revoked though every client returns them".into())
    }
}
