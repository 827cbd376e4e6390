//! Clients that hold delegations until they are recalled. They share one thread, so that the measurement does not include
//! thread switches.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use net::transport::Carrier;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::open::{DelegationWant, OpenClaim, OpenDelegation, ShareAccess};
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::types::{Outcome, Status};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::client::Client;
use super::{Case, directory, name, open, runtime};

/// The precision of the runtime's timers.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// All holders; each has all files open.
pub(super) struct Holders {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<Vec<u32>, String>>,
}

impl Holders {
    /// Opens the files, and then returns recalled delegations.
    pub(super) fn start(server: SocketAddr, case: Case, want: DelegationWant) -> Result<Self, String> {
        let ((stop, stopped), (ready, is_ready)) = (watch::channel(false), mpsc::sync_channel(1));
        let thread = thread::spawn(move || {
            runtime()?.block_on(async {
                let mut holders = Vec::new();
                for number in 0..case.holders {
                    holders.push(Holder::new(server, number, case, want).await?);
                }
                // The receiver exists until it has received.
                let _ = ready.send(());
                try_join_all(holders.into_iter().map(|holder| holder.run(stopped.clone()))).await
            })
        });
        match is_ready.recv() {
            Ok(()) => Ok(Self { stop, thread }),
            Err(_) => Err(join(thread).err().unwrap_or_else(|| "no holder".into())),
        }
    }

    /// Ends the connections; returns the number of delegations that each holder has returned.
    pub(super) fn end(self) -> Result<Vec<u32>, String> {
        // If the thread has already ended, it returns the reason.
        let _ = self.stop.send(true);
        join(self.thread)
    }
}

fn join(thread: JoinHandle<Result<Vec<u32>, String>>) -> Result<Vec<u32>, String> {
    thread.join().map_err(|_| "a holder panicked")?
}

struct Holder {
    client: Client,
    carrier: Carrier,
    /// Delay before the answer to a callback.
    delay: Duration,
}

impl Holder {
    async fn new(server: SocketAddr, number: u32, case: Case, want: DelegationWant) -> Result<Self, String> {
        let (name, flags) = (format!("holder-{number}"), CreateSessionFlags::CONN_BACK_CHAN);
        let (client, mut carrier) = Client::connect(server, &name, flags).await?;
        client.run(&mut carrier, open_all(&client, case, want)).await?;
        Ok(Self { client, carrier, delay: case.delay })
    }

    /// Answers callbacks until it is stopped; returns the number of returned delegations.
    async fn run(self, stopped: watch::Receiver<bool>) -> Result<u32, String> {
        let Self { client, mut carrier, delay } = self;
        client.run(&mut carrier, hold(&client, delay, stopped)).await
    }
}

/// Opens all files, with the requested delegations.
async fn open_all(client: &Client, case: Case, want: DelegationWant) -> Result<(), String> {
    client.await_trial().await?;
    let handle = directory(client).await?;
    for file in 0..case.files {
        let open = open(OpenClaim::Null(name(file)), ShareAccess::READ.with_want(want));
        let (status, results) = client.call(&[Op::PutFh(PutFhArgs { handle }), open]).await?;
        let Some(OpResult::Open(Outcome::Ok(opened))) = results.last() else {
            return Err(format!("OPEN of file {file}: {status:?}"));
        };
        let is_delegated = matches!(opened.delegation, OpenDelegation::Read(_));
        if is_delegated != (want == DelegationWant::READ_DELEG) {
            let what = if is_delegated { "delegates, unasked," } else { "does not delegate" };
            return Err(format!("the server {what} file {file}: {:?}", opened.delegation));
        }
    }
    Ok(())
}

async fn hold(client: &Client, delay: Duration, mut stopped: watch::Receiver<bool>) -> Result<u32, String> {
    let (mut returning, mut returned, mut is_stopped) = (FuturesUnordered::new(), 0, false);
    while !is_stopped || !returning.is_empty() {
        tokio::select! {
            record = client.next_callback() => returning.push(answer(client, record?, Instant::now() + delay)),
            Some(count) = returning.next() => returned += count?,
            _ = stopped.changed(), if !is_stopped => is_stopped = true,
        }
    }
    Ok(returned)
}

/// Answers a callback when that is due, and returns the recalled delegations.
async fn answer(client: &Client, record: Bytes, due: Instant) -> Result<u32, String> {
    if let Some(most) = due.saturating_duration_since(Instant::now()).checked_sub(TIMER_STEP) {
        sleep(most).await;
    }
    while Instant::now() < due {
        yield_now().await;
    }
    let mut returned = 0;
    for (handle, stateid) in client.answer_callback(record)? {
        let again = open(OpenClaim::DelegateCurFh(stateid), ShareAccess::READ);
        let back = Op::DelegReturn(DelegReturnArgs { stateid });
        match client.call(&[Op::PutFh(PutFhArgs { handle }), again, back]).await? {
            (Status::OK, _) => returned += 1,
            (status, results) => return Err(format!("DELEGRETURN: {status:?}, {results:?}")),
        }
    }
    Ok(returned)
}
