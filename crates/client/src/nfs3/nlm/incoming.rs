//! Calls of the server to this client: GRANTED and GRANTED_MSG of the lock manager (RFC 1813 §6.3.5, XNFS), and SM_NOTIFY of the
//! status monitor.
//!
//! The transport passes on only calls from the server's address. Such calls are hints: GRANTED wakes a waiter, which then sends LOCK
//! again, and SM_NOTIFY makes locks doubtful.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select;
use protocol::nfs4::types::Handle;
use protocol::nlm::{self, Proc, Res, Stats, TestArgs};
use protocol::nsm::{self, StateChange};
use rpc::message::{AcceptStatus, CallError, CallHeader, ReplyHeader, VersionRange, encode_success};
use xdr::{Decode, Encode, Reader, Writer};

use super::super::side::SideConnection;
use super::Nlm;
use crate::config::Caller;
use crate::locks::LockRange;

/// How long the reply to a result is waited for.
const RESULT_WAIT: Duration = Duration::from_secs(2);
/// Number of results that are sent at the same time, each over a connection: the server repeats messages beyond.
const RESULTS_MAX: usize = 8;

/// The outcome of a call.
enum Answer {
    /// Encoded results.
    Results(Bytes),
    Refused(AcceptStatus),
}

/// The result of a GRANTED_MSG that is being sent.
struct Sending(Arc<Nlm>);

impl Sending {
    /// Returns `None` if too many are being sent.
    fn begin(nlm: &Arc<Nlm>) -> Option<Self> {
        let sending = Self(Arc::clone(nlm));
        let before = nlm.results.fetch_add(1, Ordering::Relaxed);
        (before < RESULTS_MAX).then_some(sending)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.results.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Nlm {
    /// Answers a call of the server; `None` if it has no answer.
    pub(crate) fn answer(self: &Arc<Self>, record: Bytes) -> Option<Bytes> {
        let mut reader = Reader::new(record);
        let header = match CallHeader::parse(&mut reader) {
            Ok(header) => header,
            Err(CallError::Refused(refusal)) => return Some(xdr::to_bytes(&refusal)),
            Err(CallError::Unanswerable(_)) => return None,
        };
        let answer = match (header.program, header.version) {
            (nlm::PROGRAM, version) if version == self.version => {
                self.answer_lock_manager(Proc(header.procedure), reader)
            }
            (nsm::PROGRAM, nsm::VERSION) => self.answer_monitor(nsm::Proc(header.procedure), reader),
            (nlm::PROGRAM, _) => mismatch(self.version),
            (nsm::PROGRAM, _) => mismatch(nsm::VERSION),
            _ => Answer::Refused(AcceptStatus::ProgramUnavailable),
        };
        let mut reply = Writer::new();
        match answer {
            Answer::Results(results) => {
                encode_success(&mut reply, header.xid);
                reply.raw(&results);
            }
            Answer::Refused(status) => ReplyHeader::accepted(header.xid, status).encode(&mut reply),
        }
        Some(reply.into_bytes())
    }

    fn answer_lock_manager(self: &Arc<Self>, procedure: Proc, mut reader: Reader) -> Answer {
        let is_message = procedure == Proc::GRANTED_MSG;
        match procedure {
            Proc::NULL => Answer::Results(Bytes::new()),
            Proc::GRANTED | Proc::GRANTED_MSG => {
                let granted = match self.version {
                    nlm::VERSION => TestArgs::decode(&mut reader),
                    _ => TestArgs::<u32>::decode(&mut reader).map(TestArgs::from),
                };
                let Ok(granted) = granted else {
                    return Answer::Refused(AcceptStatus::GarbageArguments);
                };
                // RFC 1813 §6.3.5: DENIED if the client does not wait for the lock (any longer).
                let stat = if self.is_granted(&granted) { Stats::GRANTED } else { Stats::DENIED };
                let result = Res { cookie: granted.cookie, stat };
                if !is_message {
                    return Answer::Results(xdr::to_bytes(&result));
                }
                if let Some(sending) = Sending::begin(self) {
                    self.abandoned.add(Box::pin(async move {
                        let Sending(nlm) = &sending;
                        select(pin!(nlm.send_result(&result)), pin!(nlm.engine.sleep(RESULT_WAIT))).await;
                    }));
                }
                Answer::Results(Bytes::new())
            }
            _ => Answer::Refused(AcceptStatus::ProcedureUnavailable),
        }
    }

    /// Sends the result of a GRANTED_MSG. The server repeats a message whose result is lost.
    ///
    /// Not every lock manager replies to a result (XNFS: such procedures have no reply). On the connection of other calls the silence
    /// would count as a broken connection, which makes locks doubtful.
    async fn send_result(&self, result: &Res) {
        let Ok(port) = self.reach().await else { return };
        let Ok(side) = SideConnection::open(&self.engine, self.config.transport, port) else { return };
        let caller = Caller::anonymous();
        let _ = side.call::<()>(&caller, self.procedure(Proc::GRANTED_RES), result).await;
    }

    fn is_granted(&self, granted: &TestArgs) -> bool {
        let lock = &granted.alock;
        let Ok(file) = Handle::new(&lock.fh) else { return false };
        lock.oh == self.owner_handle(lock.svid)
            && self.table.granted(
                &file,
                lock.svid,
                LockRange::of_nlm(lock.l_offset, lock.l_len),
                granted.exclusive,
            )
    }

    fn answer_monitor(&self, procedure: nsm::Proc, mut reader: Reader) -> Answer {
        match procedure {
            nsm::Proc::NULL => Answer::Results(Bytes::new()),
            nsm::Proc::NOTIFY => {
                let Ok(change) = StateChange::decode(&mut reader) else {
                    return Answer::Refused(AcceptStatus::GarbageArguments);
                };
                if self.epochs.note_restart(change.state) {
                    self.attention.raise();
                }
                Answer::Results(Bytes::new())
            }
            // It monitors this client's server only.
            _ => Answer::Refused(AcceptStatus::ProcedureUnavailable),
        }
    }

    /// Waits until calls of the server are useful.
    pub(crate) async fn calls_wanted(&self) {
        poll_fn(|context| {
            let mut listeners = self.listeners.lock();
            if self.wants_calls.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            if !listeners.iter().any(|waker| waker.will_wake(context.waker())) {
                listeners.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Notes that the server's calls are useful from now on.
    pub(super) fn want_calls(&self) {
        if !self.wants_calls.swap(true, Ordering::Relaxed) {
            let listeners = std::mem::take(&mut *self.listeners.lock());
            listeners.into_iter().for_each(Waker::wake);
        }
    }
}

fn mismatch(version: u32) -> Answer {
    Answer::Refused(AcceptStatus::ProgramMismatch(VersionRange { low: version, high: version }))
}
