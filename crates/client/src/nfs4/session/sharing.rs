//! Calls that wait for a slot and can share a compound.
//!
//! A call that finds a free slot is sent at once, alone. The call that gets a slot later takes others of its user along, in the order in
//! which they wait, but leaves those in the queue that will have slots of their own within the same round trip: as many as there are other
//! slots. A compound ends at its first failure. Calls after that were not executed and return to their places in the queue, and the call that
//! has got the slot is the first of the compound. So in each round trip at least those calls are answered that would be answered without
//! sharing, whichever of them fail.
//!
//! The server executes the operations of a compound one after the other, and its reply leaves after the last one. So only LOOKUP, ACCESS
//! and GETATTR share. Where a server holds one of these up, for instance until another client has returned a delegation, the calls of its
//! compound wait with it.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use protocol::nfs4::compound::Op;
use protocol::nfs4::types::{HasStatus, Status};
use rpc::auth::OpaqueAuth;

use super::{Limits, Unexecuted};
use crate::nfs4::getattr::get_attributes;
use crate::nfs4::statuses::is_too_large;
use crate::nfs4::wire::{OVERHEAD, Results};
use crate::permits::{Ticket, WaitQueue};

/// Maximum number of calls in a compound.
const CALLS_MAX: usize = 16;
/// Approximate bytes of a call's operations: a handle and a name of the usual maximum.
const REQUEST: usize = 512;
/// Bytes of a call's results: a handle and attributes.
const REPLY: usize = 768;

/// Maximum number of operations of such a call: PUTFH, LOOKUP, GETFH, GETATTR.
const OPERATIONS_MAX: usize = 4;

/// Returns whether a compound of these operations can share another one: it starts at a handle, and only looks at one object.
pub(in crate::nfs4) fn may_share(ops: &[Op]) -> bool {
    let is_quick = |op: &Op| match op {
        Op::PutFh(_) | Op::Lookup(_) | Op::GetFh | Op::Access(_) => true,
        // GETATTR of other attributes, for instance an ACL, has results of any length.
        op => *op == get_attributes(),
    };
    matches!(ops.first(), Some(Op::PutFh(_))) && ops.len() <= OPERATIONS_MAX && ops.iter().all(is_quick)
}

/// Waiting calls, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    calls: BTreeMap<u64, Call>,
    next: u64,
}

/// A waiting call.
#[derive(Debug)]
pub(super) struct Call {
    credential: OpaqueAuth,
    ops: Vec<Op>,
    pub(super) state: CallState,
    /// The place in the queue for slots that it has had since it waits.
    place: u64,
    /// Its place now; none while it is sent.
    pub(super) ticket: Ticket,
    pub(super) waker: Waker,
    /// When it began to wait; none once it was sent.
    waits_since: Option<Duration>,
}

/// What becomes of a waiting call.
#[derive(Debug)]
pub(super) enum CallState {
    /// It waits for a slot.
    Waiting,
    /// It waits for a slot of its own, because a compound that it shared was too large.
    Alone,
    /// It is part of a compound.
    Sent,
    /// It has an outcome.
    Ended(Result<Results, Unexecuted>),
}

/// A call in a compound, with the number of its operations.
pub(super) type Member = (u64, usize);

impl Sharing {
    /// Adds a call that waits in the queue for slots with this ticket from now on; returns its number.
    pub(super) fn add(
        &mut self,
        credential: OpaqueAuth,
        ops: Vec<Op>,
        ticket: Ticket,
        waker: Waker,
        now: Duration,
    ) -> u64 {
        self.next += 1;
        let (place, waits_since) = (ticket.place().unwrap_or_default(), Some(now));
        let state = CallState::Waiting;
        self.calls.insert(self.next, Call { credential, ops, state, place, ticket, waker, waits_since });
        self.next
    }

    /// Returns when those members of a compound began to wait that are sent for the first time.
    pub(super) fn ended_waits(&mut self, members: &[Member]) -> impl Iterator<Item = Duration> {
        let taken =
            |(number, _): &Member| self.calls.get_mut(number).and_then(|call| call.waits_since.take());
        members.iter().filter_map(taken)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Call> {
        self.calls.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Call> {
        self.calls.remove(&number)
    }

    /// Takes the call that has got one of `slots` slots, and those that share its compound, out of the queue. Returns the members in the
    /// order of their operations.
    pub(super) fn start(
        &mut self,
        first: u64,
        slots: u32,
        limits: &Limits,
        queue: &mut WaitQueue,
    ) -> Vec<Member> {
        let Some(own) = self.calls.get_mut(&first) else { return Vec::new() };
        let shares = matches!(own.state, CallState::Waiting);
        own.state = CallState::Sent;
        let (credential, mut operations) = (own.credential.clone(), own.ops.len());
        let mut members = vec![(first, own.ops.len())];
        let room = members_max(limits);
        let is_waiting = |call: &Call| matches!(call.state, CallState::Waiting | CallState::Alone);
        let waiting = self.calls.iter_mut().filter(|(_, call)| shares && is_waiting(call));
        for (number, call) in waiting.skip(slots.saturating_sub(1) as usize) {
            if members.len() >= room || operations + OPERATIONS_MAX >= limits.operations as usize {
                break;
            }
            if matches!(call.state, CallState::Waiting) && call.credential == credential {
                operations += call.ops.len();
                members.push((*number, call.ops.len()));
                call.state = CallState::Sent;
                queue.leave(&mut call.ticket);
            }
        }
        members
    }

    /// Returns the operations of the members.
    pub(super) fn ops(&self, members: &[Member]) -> Vec<Op> {
        let calls = members.iter().filter_map(|(number, _)| self.calls.get(number));
        calls.flat_map(|call| call.ops.iter().cloned()).collect()
    }

    /// Handles the outcome of a compound.
    pub(super) fn end(
        &mut self,
        members: &[Member],
        outcome: Result<Results, Unexecuted>,
        queue: &mut WaitQueue,
    ) {
        let is_too_large = |status| members.len() > 1 && is_too_large(status);
        let mut results = match outcome {
            Ok(results) => results,
            Err(Unexecuted::Refused(status)) if is_too_large(status) => {
                return self.wait_again(members, || CallState::Alone, queue);
            }
            Err(error) => {
                members.iter().for_each(|(number, _)| self.answer(*number, Err(error.clone())));
                return;
            }
        };
        let is_repeated = results.is_repeated;
        for (at, (number, operations)) in members.iter().enumerate() {
            let own = results.take_results(*operations);
            let is_whole =
                own.len() == *operations && own.last().is_none_or(|last| last.status() == Status::OK);
            let status = if is_whole { Status::OK } else { results.status() };
            if is_too_large(status) {
                return self.wait_again(&members[at..], || CallState::Alone, queue);
            }
            self.answer(*number, Ok(Results::new(status, own, is_repeated)));
            if status != Status::OK {
                // The following ones were not executed.
                return self.wait_again(&members[at + 1..], || CallState::Waiting, queue);
            }
        }
    }

    /// Returns the members of a compound whose task was dropped to the queue. The server may have executed them, which changes nothing.
    pub(super) fn abandon(&mut self, members: &[Member], queue: &mut WaitQueue) {
        self.wait_again(members, || CallState::Waiting, queue);
    }

    /// Returns calls to their places in the queue.
    fn wait_again(&mut self, members: &[Member], state: impl Fn() -> CallState, queue: &mut WaitQueue) {
        for (number, _) in members.iter().rev() {
            if let Some(call) = self.calls.get_mut(number)
                && matches!(call.state, CallState::Sent)
            {
                call.state = state();
                queue.enter_again(&mut call.ticket, call.place, call.waker.clone());
            }
        }
        queue.wake_first();
    }

    fn answer(&mut self, number: u64, outcome: Result<Results, Unexecuted>) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.state = CallState::Ended(outcome);
            call.waker.wake_by_ref();
        }
    }
}

/// Returns how many calls fit into a request and a reply.
fn members_max(limits: &Limits) -> usize {
    let room = |bytes: u32, of_each: usize| (bytes as usize).saturating_sub(OVERHEAD) / of_each;
    CALLS_MAX.min(room(limits.request, REQUEST)).min(room(limits.response, REPLY)).max(1)
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use protocol::nfs4::compound::OpResult;
    use protocol::nfs4::ops::access::{AccessArgs, AccessMask};
    use protocol::nfs4::ops::lookup::LookupArgs;
    use protocol::nfs4::types::{Component, Handle};

    use super::*;
    use crate::nfs4::wire::put;

    const LIMITS: Limits = Limits { request: 100_000, response: 100_000, operations: 50, in_flight: 1 };

    fn getattr() -> Vec<Op> {
        vec![put(Handle::default()), get_attributes()]
    }

    fn lookup() -> Vec<Op> {
        let name = Component::new(&b"name"[..]).unwrap();
        vec![put(Handle::default()), Op::Lookup(LookupArgs { name }), Op::GetFh, get_attributes()]
    }

    /// Calls of one user in a queue.
    fn waiting(calls: &[Vec<Op>]) -> (Sharing, WaitQueue) {
        let (mut sharing, mut queue) = (Sharing::default(), WaitQueue::default());
        let mut context = Context::from_waker(Waker::noop());
        for ops in calls {
            let mut ticket = Ticket::default();
            assert!(queue.poll(&mut ticket, &mut context, || None::<()>).is_pending());
            sharing.add(OpaqueAuth::NONE, ops.clone(), ticket, Waker::noop().clone(), Duration::ZERO);
        }
        (sharing, queue)
    }

    /// Gives a slot to a waiting call.
    fn start(
        (sharing, queue): (&mut Sharing, &mut WaitQueue),
        number: u64,
        slots: u32,
        limits: &Limits,
    ) -> Vec<Member> {
        let mut context = Context::from_waker(Waker::noop());
        let ticket = &mut sharing.get_mut(number).unwrap().ticket;
        assert!(queue.poll(ticket, &mut context, || Some(())).is_ready(), "{number} is the first");
        sharing.start(number, slots, limits, queue)
    }

    fn numbers(members: &[Member]) -> Vec<u64> {
        members.iter().map(|(number, _)| *number).collect()
    }

    /// Results of PUTFH: `ok` good ones, and a last one with this status.
    fn results(ok: usize, status: Status) -> Result<Results, Unexecuted> {
        let mut list: Vec<OpResult> = (0..ok).map(|_| OpResult::PutFh(Ok(()).into())).collect();
        if status != Status::OK {
            list.push(OpResult::PutFh(Err(status).into()));
        }
        Ok(Results::new(status, list, false))
    }

    /// Returns the status of each ended call, by number, and what the others wait for.
    fn states(sharing: &Sharing) -> Vec<String> {
        let state = |call: &Call| match &call.state {
            CallState::Ended(Ok(results)) => format!("{:?} {}", results.status(), results.len()),
            CallState::Ended(Err(error)) => format!("{error:?}"),
            other => format!("{other:?}"),
        };
        sharing.calls.values().map(state).collect()
    }

    #[test]
    fn only_operations_that_look_at_an_object_share() {
        assert!(may_share(&getattr()) && may_share(&lookup()));
        let access = Op::Access(AccessArgs { access: AccessMask::from_bits_retain(1) });
        assert!(may_share(&[put(Handle::default()), access.clone(), get_attributes()]));
        assert!(!may_share(&[access]), "it needs the handle of an operation before it");
        for other in [Op::ReadLink, Op::SaveFh, Op::PutRootFh, crate::nfs4::getattr::get_change()] {
            assert!(!may_share(&[put(Handle::default()), other]));
        }
    }

    #[test]
    fn calls_that_will_have_slots_of_their_own_are_not_taken_along() {
        let (mut sharing, mut queue) = waiting(&[lookup(), getattr(), getattr(), lookup(), getattr()]);
        let members = start((&mut sharing, &mut queue), 1, 3, &LIMITS);
        assert_eq!(numbers(&members), [1, 4, 5]);
        assert_eq!(sharing.ended_waits(&members).count(), 3);
        assert_eq!(sharing.ended_waits(&members).count(), 0, "once, even if they wait again");
        assert_eq!(sharing.ops(&members), [lookup(), lookup(), getattr()].concat());
        assert_eq!(numbers(&start((&mut sharing, &mut queue), 2, 3, &LIMITS)), [2]);
        assert_eq!(numbers(&start((&mut sharing, &mut queue), 3, 3, &LIMITS)), [3]);
    }

    #[test]
    fn compounds_keep_within_the_limits_and_belong_to_one_user() {
        let (mut sharing, mut queue) = waiting(&vec![getattr(); 40]);
        assert_eq!(start((&mut sharing, &mut queue), 1, 1, &LIMITS).len(), CALLS_MAX);
        let few = Limits { operations: 9, ..LIMITS };
        assert_eq!(start((&mut sharing, &mut queue), 17, 1, &few).len(), 3, "SEQUENCE and six");
        let short = Limits { response: (OVERHEAD + 2 * REPLY) as u32, ..LIMITS };
        assert_eq!(start((&mut sharing, &mut queue), 20, 1, &short).len(), 2);
        let none = Limits { request: 0, response: 0, operations: 0, in_flight: 1 };
        assert_eq!(start((&mut sharing, &mut queue), 22, 1, &none).len(), 1, "one is tried");
        let other = OpaqueAuth { body: xdr::Opaque::from_static(b"other"), ..OpaqueAuth::NONE };
        sharing.get_mut(24).unwrap().credential = other;
        assert_eq!(numbers(&start((&mut sharing, &mut queue), 23, 1, &LIMITS))[..3], [23, 25, 26]);
    }

    #[test]
    fn calls_after_a_failure_return_to_their_places() {
        let (mut sharing, mut queue) = waiting(&vec![getattr(); 6]);
        let one = start((&mut sharing, &mut queue), 1, 2, &LIMITS);
        assert_eq!(numbers(&one), [1, 3, 4, 5, 6]);
        sharing.end(&one, results(2, Status::STALE), &mut queue);
        assert_eq!(states(&sharing), ["OK 2", "Waiting", "STALE 1", "Waiting", "Waiting", "Waiting"]);
        for number in [2, 4, 5, 6] {
            assert_eq!(numbers(&start((&mut sharing, &mut queue), number, 9, &LIMITS)), [number]);
        }
    }

    #[test]
    fn calls_of_a_compound_too_large_are_sent_alone() {
        for status in [Status::RESOURCE, Status::TOO_MANY_OPS, Status::REP_TOO_BIG] {
            let (mut sharing, mut queue) = waiting(&vec![getattr(); 3]);
            let members = start((&mut sharing, &mut queue), 1, 1, &LIMITS);
            sharing.end(&members, results(2, status), &mut queue);
            assert_eq!(states(&sharing), ["OK 2", "Alone", "Alone"]);
            assert_eq!(numbers(&start((&mut sharing, &mut queue), 2, 1, &LIMITS)), [2]);
            sharing.end(&[(2, 2)], results(1, status), &mut queue);
            assert_eq!(states(&sharing)[1], format!("{status:?} 2"), "it is too large by itself");
        }
        let (mut sharing, mut queue) = waiting(&vec![getattr(); 2]);
        let members = start((&mut sharing, &mut queue), 1, 1, &LIMITS);
        sharing.end(&members, Err(Unexecuted::Refused(Status::REQ_TOO_BIG)), &mut queue);
        assert_eq!(states(&sharing), ["Alone", "Alone"]);
    }

    #[test]
    fn missing_results_and_a_lost_session_reach_every_call() {
        let (mut sharing, mut queue) = waiting(&vec![getattr(); 2]);
        let members = start((&mut sharing, &mut queue), 1, 1, &LIMITS);
        sharing.end(&members, results(1, Status::OK), &mut queue);
        assert_eq!(states(&sharing), ["OK 1", "OK 0"]);
        let (mut sharing, mut queue) = waiting(&vec![getattr(); 2]);
        let members = start((&mut sharing, &mut queue), 1, 1, &LIMITS);
        sharing.end(&members, Err(Unexecuted::SessionLost { was_sent: true }), &mut queue);
        assert_eq!(states(&sharing), vec!["SessionLost { was_sent: true }"; 2]);
    }

    #[test]
    fn calls_outlive_the_task_that_sent_them() {
        let (mut sharing, mut queue) = waiting(&vec![getattr(); 2]);
        let members = start((&mut sharing, &mut queue), 1, 1, &LIMITS);
        sharing.remove(1);
        sharing.abandon(&members, &mut queue);
        assert_eq!(states(&sharing), ["Waiting"]);
    }
}
