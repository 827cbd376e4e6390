//! The cost of recalls: several clients hold delegations of files, and another client opens the files for writing (the paper of 2015
//! on version 4.1, §5.3, where a thousand such opens took 500 times as long as without delegations).
//!
//! The clients are scripted, over real connections. A holder answers a recall as Linux's client does, by OPEN with
//! CLAIM_DELEG_CUR_FH and DELEGRETURN, here in one compound. The delay simulates a network's round trip: the opener waits before
//! each call, a holder before its reply. After DELAY the opener retries after 100 ms, twice as long each time
//! (`NFS4_POLL_RETRY_MIN` in Linux).

mod client;
mod holders;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{DelegationWant, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::types::{Component, Handle, Outcome, StateOwner, Stateid, Status};
use tokio::runtime::{Builder, Runtime};
use xdr::Opaque;

use self::client::Client;
use self::holders::Holders;
use crate::layout::{self, SMALL_FILES};
use crate::peers::{Peer, PeerConfig, RunningPeer};
use crate::process;
use crate::statistics::median;
use crate::targets::local::EXPORT;

/// Linux's first pause after DELAY.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// The parameters of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Clients that hold a delegation of every file.
    pub holders: u32,
    /// Files, at most [`SMALL_FILES`].
    pub files: u32,
    /// The simulated round-trip time.
    pub delay: Duration,
}

/// The cost of opening all files for writing.
#[derive(Debug, Clone, Copy)]
struct OpenCost {
    time: Duration,
    /// CPU time of the server's processes.
    cpu: Duration,
    /// DELAY replies.
    put_off: u32,
}

/// The cost while the holders have the files open without delegations, and with delegations.
#[derive(Debug, Clone, Copy)]
struct Round {
    plain: OpenCost,
    delegated: OpenCost,
}

impl Round {
    /// Returns the ratio of the times with and without delegations.
    fn ratio(&self) -> f64 {
        self.delegated.time.as_secs_f64() / self.plain.time.as_secs_f64()
    }
}

/// Several rounds of one case.
#[derive(Debug)]
pub struct Cost {
    files: u32,
    rounds: Vec<Round>,
}

impl Cost {
    /// The columns of [`Self`]'s row.
    pub const COLUMNS: [&str; 6] = [
        "without",
        "with delegations",
        "times",
        "least to most",
        "server CPU of an open, without and with",
        "DELAYs in total",
    ];

    fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(figure).collect()).unwrap_or(f64::NAN)
    }
}

/// Returns medians over the rounds; for times, the median of each round's ratio.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |took: fn(&Round) -> OpenCost| self.median(|round| took(round).time.as_secs_f64());
        let cpu_us = |took: fn(&Round) -> OpenCost| {
            self.median(|round| took(round).cpu.as_secs_f64() * 1e6 / f64::from(self.files))
        };
        let (plain, delegated) = (|round: &Round| round.plain, |round: &Round| round.delegated);
        let ratios = || self.rounds.iter().map(Round::ratio);
        let (least, most) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
        let put_off: u32 = self.rounds.iter().map(|round| round.delegated.put_off).sum();
        write!(
            f,
            "{:.3} s | {:.3} s | {:.1}",
            seconds(plain),
            seconds(delegated),
            self.median(Round::ratio)
        )?;
        write!(f, " | {least:.1} to {most:.1} | {:.0} and {:.0} µs", cpu_us(plain), cpu_us(delegated))?;
        write!(f, " | {put_off}")
    }
}

/// Measures one case in several rounds. Each run has its own server, which has no record of contended files.
///
/// # Errors
/// Why the server does not start, grants no delegation, or sends a wrong reply.
pub fn measure(peer: Peer, place: &PeerConfig, case: Case, rounds: u32) -> Result<Cost, String> {
    let (without, with) = (DelegationWant::NO_DELEG, DelegationWant::READ_DELEG);
    // The order alternates, so that neither run always finds the machine as the other left it.
    let round = |number: u32| {
        let is_in_order = number.is_multiple_of(2);
        let first = run(peer, place, case, if is_in_order { without } else { with })?;
        let second = run(peer, place, case, if is_in_order { with } else { without })?;
        let (plain, delegated) = if is_in_order { (first, second) } else { (second, first) };
        Ok(Round { plain, delegated })
    };
    Ok(Cost { files: case.files, rounds: (0..rounds).map(round).collect::<Result<_, String>>()? })
}

fn run(peer: Peer, place: &PeerConfig, case: Case, want: DelegationWant) -> Result<OpenCost, String> {
    // A server with clients of a previous run would wait for them.
    let scratch = tempfile::tempdir_in(&place.scratch).map_err(|error| error.to_string())?;
    let running = RunningPeer::start(peer, &PeerConfig { scratch: scratch.path().into(), ..place.clone() })?;
    let holders = Holders::start(running.server, case, want)?;
    let opened = runtime()?.block_on(async {
        let (opener, mut carrier) =
            Client::connect(running.server, "opener", CreateSessionFlags::empty()).await?;
        opener.run(&mut carrier, open_all(&opener, case, running.pid())).await
    });
    // If a holder failed, its error is the cause; the opener only waits for it.
    let returned = holders.end()?;
    let took = opened?;
    let expected = if want == DelegationWant::READ_DELEG { case.files } else { 0 };
    match returned.into_iter().find(|returned| *returned != expected) {
        Some(returned) => Err(format!("a holder returned {returned} delegations instead of {expected}")),
        None => Ok(took),
    }
}

/// A runtime for clients that share the calling thread.
fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

/// Opens all files in turn.
async fn open_all(opener: &Client, case: Case, server: u32) -> Result<OpenCost, String> {
    let directory = directory(opener).await?;
    let cpu = || process::cpu_time(server).map_err(|error| format!("its CPU time: {error}"));
    let (began, cpu_before) = (Instant::now(), cpu()?);
    let mut put_off = 0;
    for file in 0..case.files {
        put_off += open_to_write(opener, directory, file, case.delay).await?;
    }
    Ok(OpenCost { time: began.elapsed(), cpu: cpu()? - cpu_before, put_off })
}

/// Opens a file for writing and closes it; returns the number of DELAY replies.
async fn open_to_write(
    client: &Client,
    directory: Handle,
    file: u32,
    delay: Duration,
) -> Result<u32, String> {
    let (mut put_off, mut pause) = (0, RETRY_MIN);
    loop {
        // More precise than the runtime's timers; this thread has no other work.
        thread::sleep(delay);
        let open = open(OpenClaim::Null(name(file)), ShareAccess::BOTH.with_want(DelegationWant::NO_DELEG));
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
        match client.call(&[Op::PutFh(PutFhArgs { handle: directory }), open, close]).await? {
            (Status::OK, _) => return Ok(put_off),
            (Status::DELAY, _) => {
                put_off += 1;
                thread::sleep(pause);
                pause *= 2;
            }
            (status, results) => return Err(format!("OPEN of file {file}: {status:?}, {results:?}")),
        }
    }
}

fn open(claim: OpenClaim, share_access: ShareAccess) -> Op {
    Op::Open(OpenArgs {
        seqid: 0,
        share_access,
        share_deny: ShareDeny::empty(),
        owner: StateOwner { client_id: 0, owner: Opaque::from_static(b"owner") },
        how: OpenHow::NoCreate,
        claim,
    })
}

/// Returns the directory of the small files.
async fn directory(client: &Client) -> Result<Handle, String> {
    let path = EXPORT.split('/').filter(|part| !part.is_empty());
    let lookups = path.chain([layout::DIRECTORY, layout::SMALL_DIRECTORY]).map(|part| {
        let name = Opaque::new(part.to_owned().into_bytes()).expect("the names are short");
        Op::Lookup(LookupArgs { name })
    });
    let operations: Vec<Op> = std::iter::once(Op::PutRootFh).chain(lookups).chain([Op::GetFh]).collect();
    match client.call(&operations).await? {
        (Status::OK, results) => match results.last() {
            Some(OpResult::GetFh(Outcome::Ok(handle))) => Ok(*handle),
            other => Err(format!("GETFH: {other:?}")),
        },
        (status, _) => Err(format!("LOOKUP: {status:?}")),
    }
}

fn name(file: u32) -> Component {
    assert!(file < SMALL_FILES, "there are only {SMALL_FILES} files");
    Opaque::new(layout::small_name(file).into_bytes()).expect("the names are short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_and_the_extremes_of_the_rounds_own_ratios() {
        let took = |ms, cpu_us, put_off| OpenCost {
            time: Duration::from_millis(ms),
            cpu: Duration::from_micros(cpu_us),
            put_off,
        };
        let round =
            |plain, delegated| Round { plain: took(plain, 500, 7), delegated: took(delegated, 1500, 1) };
        let cost = Cost { files: 10, rounds: vec![round(100, 400), round(50, 250), round(200, 300)] };
        let row = cost.to_string();
        assert_eq!(row, "0.100 s | 0.300 s | 4.0 | 1.5 to 5.0 | 50 and 150 µs | 3");
        assert_eq!(row.split(" | ").count(), Cost::COLUMNS.len());
    }
}
