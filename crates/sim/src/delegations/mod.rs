//! Clients that are given delegations, keep what they read and write to themselves, and are called back over a bad network.
//!
//! Every file, or directory, is a register of one number. Whatever a program on a client reads must be a value that could be there: no
//! read may return what was overwritten, and acknowledged, before the read began. A delegation that is granted beside a
//! conflicting open, a change that does not wait for a recall, a write that is lost with a delegation: each breaks that.
//!
//! A process beside the server changes files too, without asking. Whoever had one delegated then may go on with what it has until it has given
//! that back, and nobody any longer ([`local_process`]): neither under a delegation, nor because the change attribute says that what is cached is good.
//!
//! A listing tells those who have a file delegated for reading the change attribute that they have, told again or not (`server/listings.rs`), and
//! others one that never goes back.
//!
//! Some clients keep the times of what they may write. What others are told about when a file was changed never goes back, and
//! the time that is handed in is the file's.

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

/// Clients that behave.
const CLIENTS: usize = 3;
/// Files that they share.
const FILES: u64 = 3;
/// What each client's program does, in reads and writes.
const OPERATIONS: u32 = 40;

/// What clients share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Files,
    /// Directories, each of a name that a file would have.
    Directories,
}

/// Some clients share files; one of them, where `with_mute`, takes delegations and is never heard of again.
///
/// # Errors
/// What went wrong.
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
    let checks = judge(&cluster, with_mute)?;
    Ok(Report { time: cluster.now(), messages: cluster.messages, checks })
}

/// Everybody is done, and whoever was silent has been silent for long enough to lose what it had.
fn is_over(cluster: &Cluster<Client>) -> bool {
    let counts = cluster.server.counts();
    cluster.actors.iter().all(Client::is_done) && counts.delegations == 0 && counts.opens == 0
}

/// What must hold at the end, beside what was checked on the way; how much was delegated.
fn judge(cluster: &Cluster<Client>, with_mute: bool) -> Result<usize, String> {
    let counts = cluster.server.delegation_counts();
    let revoked = counts.revoked.load(Relaxed);
    if !with_mute && revoked > 0 {
        return Err(format!("{revoked} delegations were revoked though every client returns them"));
    }
    let granted = [&counts.granted_read, &counts.granted_write, &counts.granted_directory];
    Ok(granted.iter().map(|counter| counter.load(Relaxed) as usize).sum())
}

/// So many directories.
pub(crate) fn make_directories(backend: &impl Backend, count: u64, name: impl Fn(u64) -> String) {
    let now = moment(Duration::ZERO).wall;
    let caller = Caller::new(Arc::new(Credentials::root()), now);
    for number in 0..count {
        let (name, root) = (name(number), backend.root());
        let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        let made = at_once(backend.create(&caller, &root, name.as_bytes(), &Create::Directory, &set));
        made.expect("nothing is there yet");
    }
}
