//! Clients with delegations that cache reads and writes, and recalls over a faulty network.
//!
//! Every file, or directory, is a register of one number. A read must return a value that may be current: no value whose replacement was
//! acknowledged before the read began. A delegation granted despite a conflicting open, a change that does not wait for a recall, or a
//! write lost with a delegation breaks that.
//!
//! A local process changes files too ([`local_process`]). A client that holds a delegation then may use its cache until it has returned
//! the delegation, and no longer: neither under another delegation, nor because of an unchanged change attribute.
//!
//! A listing, cached or not, shows the holder of a read delegation the change attribute of the grant, and others one that never goes backwards.
//!
//! Some clients keep the times of files under write delegations. The modification time that others see never goes backwards, and the time
//! that the holder returns becomes the file's.

mod client;
pub(crate) mod directories;
mod history;
mod listed_changes;
mod local_process;
mod times;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use vfs::{Backend, Context as Caller, Create, Credentials, SetAttributes};

use crate::backend::Clock;
use crate::cluster::{Cluster, moment};
use crate::copies::at_once;
use crate::rng::Rng;
use crate::scenario::Report;
use client::Client;
use history::History;
use local_process::Process;

/// Well-behaved clients.
const CLIENTS: usize = 3;
/// Shared files.
const FILES: u64 = 3;
/// Reads and writes of each client's program.
const OPERATIONS: u32 = 40;

/// The kind of shared objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Files,
    /// Directories, with the names of files.
    Directories,
}

/// Runs the scenario; with `with_mute` one client takes delegations and falls silent.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64, subject: Subject, with_mute: bool) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let clock = Arc::new(Clock::default());
    let mut process = Process::new(&clock, subject, &mut rng);
    if subject == Subject::Directories {
        make_directories(process.files().inner(), FILES, client::name);
    }
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|index| Client::new(index, subject, OPERATIONS, false, &mut rng)).collect();
    if with_mute {
        clients.push(Client::new(CLIENTS, subject, FILES as u32, true, &mut rng));
    }
    let world = (Arc::clone(process.files()) as Arc<dyn Backend>, clock);
    let mut cluster = Cluster::new(world, clients, History::new(FILES as usize), rng);
    cluster.run_beside(is_over, |now, history| process.act(now, history))?;
    let checks = check(&cluster, with_mute)?;
    Ok(Report { time: cluster.now(), messages: cluster.messages, checks })
}

/// Returns whether all clients are done, and a silent one has lost its delegations.
fn is_over(cluster: &Cluster<Client>) -> bool {
    let counts = cluster.server.counts();
    cluster.actors.iter().all(Client::is_done) && counts.delegations == 0 && counts.opens == 0
}

/// Checks the invariants at the end; returns the number of granted delegations.
fn check(cluster: &Cluster<Client>, with_mute: bool) -> Result<usize, String> {
    let counts = cluster.server.delegation_counts();
    let revoked = counts.revoked.load(Relaxed);
    if !with_mute && revoked > 0 {
        return Err(format!("{revoked} delegations were revoked though every client returns them"));
    }
    let granted = [&counts.granted_read, &counts.granted_write, &counts.granted_directory];
    Ok(granted.iter().map(|counter| counter.load(Relaxed) as usize).sum())
}

/// Creates directories.
pub(crate) fn make_directories(backend: &impl Backend, count: u64, name: impl Fn(u64) -> String) {
    let now = moment(Duration::ZERO).wall;
    let caller = Caller::new(Arc::new(Credentials::root()), now);
    for number in 0..count {
        let (name, root) = (name(number), backend.root());
        let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        let made = at_once(backend.create(&caller, &root, name.as_bytes(), &Create::Directory, &set));
        made.expect("the directory is empty");
    }
}
