//! Clients with directory delegations and notifications of some or all kinds of changes (RFC 8881 §10.9, §20.4).
//!
//! Each holder lists the directory with the grant, and updates its view by CB_NOTIFY. Changes are slow; messages are lost, late, duplicated
//! and reordered; clients ignore callbacks for a while, refuse a notification, or fall silent; the server is killed. A holder's views
//! must be past states of the directory, in order. A change that a holder is not notified of is not answered before the holder has
//! returned the directory. Without further changes, each notified holder whose delegation is not recalled knows the directory.

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

/// Clients without the silent one.
const CLIENTS: usize = 4;
/// Shared directories.
const DIRECTORIES: u64 = 2;
/// Operations of each client's program.
const OPERATIONS: u32 = 60;
/// Upper bound on kills of the server, and the time within which they happen.
const KILLS: u64 = 3;
const KILLED_WITHIN: Duration = Duration::from_secs(200);
/// Time without changes after which all holders have current views: longer than the server's callback timeout (15 s), and than the
/// time until a recall ends.
const HEARD_WITHIN: Duration = Duration::from_secs(300);

fn directory_name(directory: u64) -> String {
    format!("directory-{directory}")
}

/// Runs the scenario; with every fourth seed a further client falls silent.
///
/// # Errors
/// Returns the failure.
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
        // The holder's view is meaningless from now on: the run ends.
    }
    Ok(Report { time: cluster.now(), messages: cluster.messages, checks: cluster.shared.notified })
}

fn play(cluster: &mut Cluster<Client>, with_mute: bool) -> Result<(), String> {
    cluster.run_until(|cluster| cluster.actors.iter().all(Client::is_idle))?;
    check_views(cluster)?;
    end(cluster, with_mute)
}

/// Returns whether a client that is not silent has not returned a delegation a lease after its first recall, because the network
/// has lost too many messages. RFC 8881 §10.4.5: "servers SHOULD revoke delegations that are not returned in a period of time
/// equal to the lease period."
fn has_overdue(cluster: &Cluster<Client>) -> bool {
    let (now, lease) = (cluster.now(), cluster.server.settings().lease);
    cluster.actors[..CLIENTS].iter().any(|client| client.has_overdue(&cluster.shared, now, lease))
}

fn revoked(cluster: &Cluster<Client>) -> u64 {
    cluster.server.delegation_counts().revoked.load(Relaxed)
}

/// Advances the time without changes, and checks the holders' views.
fn check_views(cluster: &mut Cluster<Client>) -> Result<(), String> {
    let deadline = cluster.now() + HEARD_WITHIN;
    let knows = |cluster: &Cluster<Client>| {
        cluster.actors.iter().try_for_each(|client| client.knows(&cluster.shared))
    };
    cluster.run_until(|cluster| knows(cluster).is_ok() || cluster.now() > deadline)?;
    knows(cluster)
}

/// Makes the holders return all delegations, and checks that nothing is left.
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
