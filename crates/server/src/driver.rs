//! The contract with the driver: the work that the server requests, and the answers that it takes. [`Server`] documents the order
//! of calls.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use crate::copy::offload::Advanced;
use crate::programs::nlm::callback;
use crate::state;
use crate::state::{ExternalChange, Offload};
use crate::work::{Connect, CopyStep, HostAnswer, HostCall, KINDS, Work};
use crate::{Connection, Fetch, FetchError, Fetched, Now, Server};

impl Server {
    /// Returns the next work for the driver, each once. Kinds of work alternate. Wakes the task that polled last when there is
    /// more. The server bounds the work of each kind in progress.
    pub fn poll_work(&self, context: &Context<'_>) -> Poll<Work> {
        // Register first: work that is queued from now on wakes the task.
        for signal in
            [&self.driver.signal, self.shared.state.work_signal(), self.shared.fetches.work_signal()]
        {
            signal.register(context.waker());
        }
        let first = self.driver.polls.fetch_add(1, Relaxed);
        let work = (0..KINDS).find_map(|kind| self.next_work((first + kind) % KINDS));
        work.map_or(Poll::Pending, Poll::Ready)
    }

    fn next_work(&self, kind: usize) -> Option<Work> {
        match kind {
            // A permit that is dropped notifies the signal: take it only with the work.
            0 if !self.driver.connects.has_room() => None,
            0 => {
                let request = self.shared.state.next_connect()?;
                Some(Work::Connect(Connect { request, _permit: self.driver.connects.take() }))
            }
            1 => self.shared.fetches.next().map(Work::Read),
            2 => {
                let copy = self.shared.state.next_offload(self.driver.copy_steps.has_room())?;
                let permit = (!copy.is_from_elsewhere()).then(|| self.driver.copy_steps.take());
                Some(Work::StepCopy(CopyStep { copy, _permit: permit }))
            }
            3 if !self.driver.host_calls.has_room() => None,
            3 => {
                let call = self.shared.state.next_host_call()?;
                let record = callback::record(&self.shared, &call);
                Some(Work::CallHost(HostCall { call, record, _permit: self.driver.host_calls.take() }))
            }
            _ => self.shared.state.next_external_change().map(Work::ExternalChange),
        }
    }

    /// Takes the connection that the driver made for a [`Work::Connect`]. The driver serves it like one that a client made. If the
    /// client no longer wants it, its outbox is closed.
    pub fn handle_connected(&self, connect: Connect, connection: &Connection) {
        self.shared.state.connect_done(&connect.request, Some((connection.id, &connection.outbox)));
    }

    /// Notes that a [`Work::Connect`] failed. The server requests another later if the client still needs callbacks.
    pub fn handle_connect_failed(&self, connect: Connect) {
        self.shared.state.connect_done(&connect.request, None);
    }

    /// Takes the outcome of a [`Work::Read`]. A read that the driver drops counts as [`FetchError::Unreachable`].
    pub fn handle_read(&self, read: Fetch, outcome: Result<Fetched, FetchError>) {
        read.answer(outcome);
    }

    /// Takes the outcome of a [`Work::CallHost`].
    pub fn handle_host_answer(&self, call: &HostCall, answer: HostAnswer, now: Now) {
        let answer = match answer {
            HostAnswer::Reply(reply) => callback::answer(&call.call, reply),
            HostAnswer::Unanswered => state::HostAnswer::None { was_sent: true },
            HostAnswer::Unreachable => state::HostAnswer::None { was_sent: false },
        };
        self.shared.state.host_called(now.monotonic, &call.call, answer);
    }

    /// Recalls the delegation that a [`Work::ExternalChange`] conflicts with.
    pub fn handle_external_change(&self, change: &ExternalChange, now: Now) {
        self.shared.state.recall_for(now.monotonic, change);
    }

    /// Runs one step of a background copy. The step may wait for the backend, for delegations, or for another server. Afterwards the
    /// copy is queued for its next step, or [`Self::maintain`] queues it shortly after. If the future is dropped, the copy stops
    /// without a callback to the client, as at a restart; if it panics, the copy fails.
    pub async fn step_copy(&self, step: CopyStep, now: Now) {
        let on_panic = FailOnPanic { server: self, copy: &step.copy };
        let advanced = self.shared.advance(&step.copy, now).await;
        drop(on_panic);
        match advanced {
            Advanced::More => self.shared.state.resume_offload(step.copy),
            Advanced::Later => self.shared.state.retry_offload(step.copy, now.monotonic),
            Advanced::Done => {}
        }
    }
}

/// Fails a copy whose step panics.
struct FailOnPanic<'c> {
    server: &'c Server,
    copy: &'c Arc<Offload>,
}

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.server.shared.fail_offload(self.copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, SocketAddr};

    use protocol::nfs4::ops::setclientid::SetClientIdResult;
    use protocol::nfs4::types::{Handle, Stateid, Status};
    use vfs::Credentials;

    use super::*;
    use crate::SourceFile;
    use crate::remote_read::Need;
    use crate::testing::minor0::v40_lab;

    #[test]
    fn kinds_of_work_alternate() {
        let mut lab = v40_lab();
        let server = Arc::clone(&lab.lab.server);
        let source = Arc::new(SourceFile {
            addresses: vec![SocketAddr::from(([192, 0, 2, 1], 2049))],
            local: IpAddr::from([127, 0, 0, 1]),
            client: IpAddr::from([198, 51, 100, 1]),
            handle: Handle::new(b"file").unwrap(),
            stateid: Stateid::ANONYMOUS,
            credentials: Arc::new(Credentials::root()),
        });
        let reads: Vec<_> =
            (0..8).map(|at| server.shared.fetches.ask(&source, (at, 1), false, Need::Now)).collect();
        let SetClientIdResult::Ok(ok) = lab.set_callback(b"client", 1, "127.0.0.1.0.9") else { panic!() };
        assert_eq!(lab.confirm(&ok), Status::OK);
        let work: Vec<_> = std::iter::from_fn(|| lab.lab.work()).collect();
        assert_eq!(work.len(), reads.len() + 1);
        let connect = work.iter().position(|work| matches!(work, Work::Connect(_)));
        assert!(connect.is_some_and(|place| place < KINDS), "{work:?}");
    }
}
