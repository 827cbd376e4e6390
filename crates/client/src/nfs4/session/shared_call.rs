//! A call that shares the compound of another one if it has to wait for a slot.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::compound::{CompoundResult, Op};
use protocol::nfs4::types::Status;
use rpc::auth::OpaqueAuth;
use rpc::message::parse_reply;

use super::sharing::{CallState, Member};
use super::{Place, Session, SlotUse, Table, Unexecuted, Verdict, judge};
use crate::nfs4::wire::Results;
use crate::permits::Ticket;

impl Session {
    /// As [`Session::compound`], for operations that [`super::may_share`].
    pub(crate) async fn shared_compound(
        self: &Arc<Self>,
        credential: &OpaqueAuth,
        ops: &[Op],
    ) -> Result<Results, Unexecuted> {
        let mut waiting = WaitingCall { session: self, credential, ops, number: None };
        loop {
            match poll_fn(|context| waiting.poll(context)).await {
                Turn::Ended(outcome) => return outcome,
                Turn::Slot(slot) => match &slot.members {
                    None => return self.execute_in(&slot, credential, ops, &[]).await,
                    Some(members) => {
                        let sent = SentMembers { session: self, members };
                        let ops = self.table.lock().sharing.ops(&members.0.lock());
                        sent.end(self.execute_in(&slot, credential, &ops, &[]).await);
                    }
                },
            }
        }
    }

    /// Hands out the results of a shared compound, unless its reply says that it was not executed now.
    pub(super) fn end_shared(
        &self,
        table: &mut Table,
        sent: &Place,
        members: &SharedMembers,
        record: &Bytes,
    ) {
        let Ok(result) = parse_reply::<CompoundResult>(record.clone()) else { return };
        let mut results = result.results.into_vec();
        let is_lost = results.len() == 2 && result.status == Status::RETRY_UNCACHED_REP;
        if let Verdict::Executed(sequence) = judge(sent, result.status, results.first())
            && !is_lost
        {
            if sequence.is_some() {
                results.remove(0);
            }
            let results = Results::new(result.status, results, false);
            table.sharing.end(&members.take(), Ok(results), &mut table.queue);
        }
    }
}

/// The calls of a compound that was sent. They are taken once: when the reply has arrived, by the task that sent it if there is none, or
/// when that task is dropped.
#[derive(Debug)]
pub(super) struct SharedMembers(Mutex<Vec<Member>>);

impl SharedMembers {
    fn take(&self) -> Vec<Member> {
        std::mem::take(&mut self.0.lock())
    }
}

/// What a waiting call goes on with.
enum Turn {
    /// It has a slot, for a compound of several calls or for its own operations only.
    Slot(SlotUse),
    /// It has an outcome.
    Ended(Result<Results, Unexecuted>),
}

/// A call that waits for a slot, or for the compound that it is part of.
struct WaitingCall<'a> {
    session: &'a Arc<Session>,
    credential: &'a OpaqueAuth,
    ops: &'a [Op],
    /// Its number, once it has to wait.
    number: Option<u64>,
}

impl WaitingCall<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        let session = self.session;
        let mut table = session.table.lock();
        let Table { sequencer, queue, lost, sharing, .. } = &mut *table;
        let is_lost = lost.is_some();
        let ended = || Poll::Ready(Turn::Ended(Err(Unexecuted::SessionLost { was_sent: false })));
        let Some(number) = self.number else {
            if is_lost {
                return ended();
            }
            let mut ticket = Ticket::default();
            let polled = queue.poll(&mut ticket, context, || sequencer.take(false));
            if polled.is_pending() {
                let waker = context.waker().clone();
                let now = session.engine.now();
                self.number =
                    Some(sharing.add(self.credential.clone(), self.ops.to_vec(), ticket, waker, now));
                session.slot_waits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            return polled.map(|place| Turn::Slot(SlotUse::new(session, place, None)));
        };
        let Some(call) = sharing.get_mut(number) else { return ended() };
        call.waker.clone_from(context.waker());
        match &mut call.state {
            CallState::Ended(outcome) => {
                let outcome = std::mem::replace(outcome, Err(Unexecuted::SessionLost { was_sent: false }));
                Poll::Ready(Turn::Ended(outcome))
            }
            CallState::Sent => Poll::Pending,
            CallState::Waiting | CallState::Alone if is_lost => ended(),
            CallState::Waiting | CallState::Alone => {
                let polled = queue.poll(&mut call.ticket, context, || sequencer.take(false));
                polled.map(|place| {
                    let members = sharing.start(number, sequencer.max(), &session.limits, queue);
                    sharing.ended_waits(&members).for_each(|began| session.engine.note_wait(began));
                    let members = Some(Arc::new(SharedMembers(Mutex::new(members))));
                    Turn::Slot(SlotUse::new(session, place, members))
                })
            }
        }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut table = self.session.table.lock();
        let Table { queue, sharing, .. } = &mut *table;
        if let Some(mut call) = sharing.remove(number) {
            queue.leave(&mut call.ticket);
        }
    }
}

/// The calls of a compound in the task that sends it. If it is dropped before the request was sent, the others wait for a slot again.
struct SentMembers<'a> {
    session: &'a Session,
    members: &'a SharedMembers,
}

impl SentMembers<'_> {
    fn end(&self, outcome: Result<Results, Unexecuted>) {
        let mut table = self.session.table.lock();
        let Table { queue, sharing, .. } = &mut *table;
        sharing.end(&self.members.take(), outcome, queue);
    }
}

impl Drop for SentMembers<'_> {
    fn drop(&mut self) {
        let mut table = self.session.table.lock();
        let Table { queue, sharing, .. } = &mut *table;
        sharing.abandon(&self.members.take(), queue);
    }
}
