//! What a conflict costs: files are delegated to some clients, and another opens them to write (the paper of 2015 on version
//! 4.1, §5.3, where a thousand such opens took 500 times as long as without delegations).
//!
//! The clients are scripted, over real connections. A holder answers a recall as Linux's client does, OPEN by
//! CLAIM_DELEG_CUR_FH and DELEGRETURN, here in one compound. The delay stands for a network's round trip: who opens waits it
//! before each call, a holder before its answer. Where the server says DELAY, who opens comes again after 100 ms, twice as long
//! each time (`NFS4_POLL_RETRY_MIN` in Linux).

mod client;

use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{
    DelegationWant, OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::types::{Component, Handle, Outcome, StateOwner, Stateid, Status};
use xdr::Opaque;

use self::client::Client;
use crate::layout::{self, SMALL_FILES};
use crate::peers::{EXPORT, Peer, Place, Running};

/// Linux's first pause after DELAY.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Clients that have every file delegated.
    pub holders: u32,
    /// Files, at most [`SMALL_FILES`].
    pub files: u32,
    /// A round trip.
    pub delay: Duration,
}

/// What it took to open all files to write.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// While the others had them open, and nothing delegated.
    pub plain: Duration,
    /// While the others had them delegated.
    pub delegated: Duration,
    /// Answers of DELAY.
    pub put_off: u32,
}

impl Cost {
    /// How many times as long it took with delegations.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.delegated.as_secs_f64() / self.plain.as_secs_f64()
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plain, delegated, put_off } = self;
        let (plain, delegated) = (plain.as_secs_f64(), delegated.as_secs_f64());
        write!(f, "{plain:.3} s | {delegated:.3} s | {:.1} | {put_off}", self.ratio())
    }
}

/// Measures one case on a server of its own, so that no file is known to be contended.
///
/// # Errors
/// Why the server does not start, delegates nothing, or answers anything that it must not.
pub fn measure(peer: Peer, place: &Place, case: Case) -> Result<Cost, String> {
    let (plain, _) = run(peer, place, case, DelegationWant::NO_DELEG)?;
    let (delegated, put_off) = run(peer, place, case, DelegationWant::READ_DELEG)?;
    Ok(Cost { plain, delegated, put_off })
}

/// A client that holds files, on a thread of its own.
struct Holder {
    stream: TcpStream,
    thread: JoinHandle<Result<u32, String>>,
}

fn run(peer: Peer, place: &Place, case: Case, want: DelegationWant) -> Result<(Duration, u32), String> {
    // A server that knows of clients before it would wait for them.
    let scratch = tempfile::tempdir_in(&place.scratch).map_err(|error| error.to_string())?;
    let running = Running::start(peer, &Place { scratch: scratch.path().into(), ..place.clone() })?;
    let mut holders = Vec::new();
    for number in 0..case.holders {
        holders.push(hold(running.server, number, case, want)?);
    }
    let mut opener = Client::connect(running.server, "opener", Duration::ZERO)?;
    let directory = directory(&mut opener)?;
    let began = Instant::now();
    let mut put_off = 0;
    for file in 0..case.files {
        put_off += open_to_write(&mut opener, directory, file, case.delay)?;
    }
    let took = began.elapsed();
    let expected = if want == DelegationWant::READ_DELEG { case.files } else { 0 };
    for holder in holders {
        // It may have ended by itself: then its thread says why.
        let _ = holder.stream.shutdown(Shutdown::Both);
        let returned = holder.thread.join().map_err(|_| "a holder panicked")??;
        if returned != expected {
            return Err(format!("a holder gave {returned} delegations back in place of {expected}"));
        }
    }
    Ok((took, put_off))
}

/// A client opens all files, and then gives back what is recalled. Its thread tells how many that were.
fn hold(server: SocketAddr, number: u32, case: Case, want: DelegationWant) -> Result<Holder, String> {
    let mut client = Client::connect(server, &format!("holder-{number}"), case.delay)?;
    client.await_trial()?;
    let directory = directory(&mut client)?;
    for file in 0..case.files {
        let open = open(OpenClaim::Null(name(file)), ShareAccess::READ.with_want(want));
        let (status, results) = client.call(vec![Op::PutFh(PutFhArgs { handle: directory }), open])?;
        let Some(OpResult::Open(Outcome::Ok(opened))) = results.last() else {
            return Err(format!("OPEN of file {file}: {status:?}"));
        };
        let is_delegated = matches!(opened.delegation, OpenDelegation::Read(_));
        if is_delegated != (want == DelegationWant::READ_DELEG) {
            return Err(format!("file {file} is delegated: {:?}", opened.delegation));
        }
    }
    let stream = client.stream()?;
    let thread = thread::spawn(move || {
        let mut returned = 0;
        while client.take_callback()? {
            while let Some((handle, stateid)) = client.recalled.pop_front() {
                give_back(&mut client, handle, stateid)?;
                returned += 1;
            }
        }
        Ok(returned)
    });
    Ok(Holder { stream, thread })
}

fn give_back(client: &mut Client, handle: Handle, stateid: Stateid) -> Result<(), String> {
    let again = open(OpenClaim::DelegateCurFh(stateid), ShareAccess::READ);
    let back = Op::DelegReturn(DelegReturnArgs { stateid });
    match client.call(vec![Op::PutFh(PutFhArgs { handle }), again, back])? {
        (Status::OK, _) => Ok(()),
        (status, results) => Err(format!("DELEGRETURN: {status:?}, {results:?}")),
    }
}

/// Opens a file to write and closes it; how often it was told to come again.
fn open_to_write(client: &mut Client, directory: Handle, file: u32, delay: Duration) -> Result<u32, String> {
    let (mut put_off, mut pause) = (0, RETRY_MIN);
    loop {
        thread::sleep(delay);
        let open = open(OpenClaim::Null(name(file)), ShareAccess::BOTH.with_want(DelegationWant::NO_DELEG));
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
        match client.call(vec![Op::PutFh(PutFhArgs { handle: directory }), open, close])? {
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

/// The directory of the small files.
fn directory(client: &mut Client) -> Result<Handle, String> {
    let path = EXPORT.split('/').filter(|part| !part.is_empty());
    let lookups = path.chain([layout::DIRECTORY, layout::SMALL_DIRECTORY]).map(|part| {
        let name = Opaque::new(part.to_owned().into_bytes()).expect("the names are short");
        Op::Lookup(LookupArgs { name })
    });
    let operations = std::iter::once(Op::PutRootFh).chain(lookups).chain([Op::GetFh]).collect();
    match client.call(operations)? {
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
