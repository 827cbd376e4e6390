//! A call that shares the compound of another one if it has to wait for a slot.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use protocol::nfs4::compound::Op;
use rpc::auth::OpaqueAuth;

use super::sharing::{CallState, Member};
use super::{Session, SlotUse, Table, Unexecuted};
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
                Turn::Slot(slot, None) => return self.execute_in(&slot, credential, ops, &[]).await,
                Turn::Slot(slot, Some(members)) => {
                    let mut members = SentMembers { session: self, members };
                    let ops = self.table.lock().sharing.ops(&members.members);
                    let outcome = self.execute_in(&slot, credential, &ops, &[]).await;
                    members.end(outcome);
                }
            }
        }
    }
}

/// What a waiting call goes on with.
enum Turn {
    /// It has a slot, and sends a compound with these calls, or its own operations only.
    Slot(SlotUse, Option<Vec<Member>>),
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
        let slot = |place| SlotUse { session: Arc::clone(session), place, state: Arc::default() };
        let Some(number) = self.number else {
            if is_lost {
                return ended();
            }
            let mut ticket = Ticket::default();
            let polled = queue.poll(&mut ticket, context, || sequencer.take(false));
            if polled.is_pending() {
                let waker = context.waker().clone();
                self.number = Some(sharing.add(self.credential.clone(), self.ops.to_vec(), ticket, waker));
                session.slot_waits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            return polled.map(|place| Turn::Slot(slot(place), None));
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
                    Turn::Slot(
                        slot(place),
                        Some(sharing.start(number, sequencer.max(), &session.limits, queue)),
                    )
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

/// The calls of a compound. If the task that sends it is dropped, the others wait for a slot again.
struct SentMembers<'a> {
    session: &'a Session,
    members: Vec<Member>,
}

impl SentMembers<'_> {
    fn end(&mut self, outcome: Result<Results, Unexecuted>) {
        let mut table = self.session.table.lock();
        let Table { queue, sharing, .. } = &mut *table;
        sharing.end(&std::mem::take(&mut self.members), outcome, queue);
    }
}

impl Drop for SentMembers<'_> {
    fn drop(&mut self) {
        let mut table = self.session.table.lock();
        let Table { queue, sharing, .. } = &mut *table;
        sharing.abandon(&self.members, queue);
    }
}
