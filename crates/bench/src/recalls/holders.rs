//! Clients that hold delegations until they are recalled. They share one thread, so that the measurement does not include
//! thread switches.

use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::open::{DelegationWant, OpenClaim, OpenDelegation, ShareAccess};
use protocol::nfs4::types::{Outcome, Status};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::client::{Client, is_call};
use super::{Case, directory, name, open};

/// All holders; each has all files open.
pub(super) struct Holders {
    streams: Vec<TcpStream>,
    thread: JoinHandle<Result<Vec<u32>, String>>,
}

impl Holders {
    /// Opens the files, and from then on returns recalled delegations.
    pub(super) fn start(server: SocketAddr, case: Case, want: DelegationWant) -> Result<Self, String> {
        let make = |number| Holder::new(server, number, case, want);
        let mut holders = (0..case.holders).map(make).collect::<Result<Vec<_>, _>>()?;
        let streams = holders.iter().map(|holder| holder.client.stream()).collect::<Result<_, _>>()?;
        let thread = thread::spawn(move || {
            while take_turns(&mut holders)? {}
            Ok(holders.into_iter().map(|holder| holder.returned).collect())
        });
        Ok(Self { streams, thread })
    }

    /// Ends the connections; returns how many delegations each holder has returned.
    pub(super) fn end(self) -> Result<Vec<u32>, String> {
        for stream in self.streams {
            // If the thread has already ended, it knows why.
            let _ = stream.shutdown(Shutdown::Write);
        }
        self.thread.join().map_err(|_| "a holder panicked")?
    }
}

struct Holder {
    client: Client,
    /// Delay before the answer to a callback.
    delay: Duration,
    /// Callbacks, with the times at which to answer them.
    calls: VecDeque<(Instant, Bytes)>,
    /// A DELEGRETURN is in progress.
    is_returning: bool,
    returned: u32,
    has_ended: bool,
}

impl Holder {
    fn new(server: SocketAddr, number: u32, case: Case, want: DelegationWant) -> Result<Self, String> {
        let mut client = Client::connect(server, &format!("holder-{number}"))?;
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
                let what = if is_delegated { "delegates, unasked," } else { "does not delegate" };
                return Err(format!("the server {what} file {file}: {:?}", opened.delegation));
            }
        }
        Ok(Self {
            client,
            delay: case.delay,
            calls: VecDeque::new(),
            is_returning: false,
            returned: 0,
            has_ended: false,
        })
    }

    /// Handles received bytes.
    fn receive(&mut self) -> Result<(), String> {
        // A broken connection counts as ended: missing returns are noticed when they are counted.
        self.has_ended = !self.client.receive().unwrap_or(false);
        while let Some(record) = self.client.next_record().map_err(|error| error.to_string())? {
            if is_call(&record)? {
                self.calls.push_back((Instant::now() + self.delay, record));
            } else {
                self.take_reply(record)?;
            }
        }
        Ok(())
    }

    /// Answers callbacks that are due, and returns the recalled delegations.
    fn answer(&mut self) -> Result<(), String> {
        while let Some((_, call)) = self.calls.pop_front_if(|(due, _)| *due <= Instant::now()) {
            self.client.answer_callback(call)?;
        }
        if self.is_returning {
            return Ok(());
        }
        let Some((handle, stateid)) = self.client.recalled.pop_front() else { return Ok(()) };
        let again = open(OpenClaim::DelegateCurFh(stateid), ShareAccess::READ);
        let back = Op::DelegReturn(DelegReturnArgs { stateid });
        self.is_returning = true;
        self.client.send(vec![Op::PutFh(PutFhArgs { handle }), again, back])
    }

    fn take_reply(&mut self, record: Bytes) -> Result<(), String> {
        self.is_returning = false;
        self.returned += 1;
        match self.client.reply(record)? {
            (Status::OK, _) => Ok(()),
            (status, results) => Err(format!("DELEGRETURN: {status:?}, {results:?}")),
        }
    }
}

/// Waits for bytes or due answers, and handles them. Returns false when all connections have ended.
fn take_turns(holders: &mut [Holder]) -> Result<bool, String> {
    let waiting = holders.iter().filter(|holder| !holder.has_ended);
    let next = waiting.filter_map(|holder| holder.calls.front()).map(|(due, _)| *due).min();
    let wait = next.map(|due| due.saturating_duration_since(Instant::now()));
    let wait =
        wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
    let mut left: Vec<_> = holders.iter_mut().filter(|holder| !holder.has_ended).collect();
    if left.is_empty() {
        return Ok(false);
    }
    let mut descriptors: Vec<_> =
        left.iter().map(|holder| PollFd::new(&holder.client, PollFlags::IN)).collect();
    rustix::event::poll(&mut descriptors, wait.as_ref()).map_err(|errno| format!("poll: {errno}"))?;
    let has_come: Vec<_> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
    for (holder, has_come) in left.iter_mut().zip(has_come) {
        if has_come {
            holder.receive()?;
        }
        holder.answer()?;
    }
    Ok(true)
}
