//! Unfinished operations of earlier processes, from their log.

use std::collections::HashMap;

use bytes::Bytes;
use vfs::Timestamp;

use super::record::{CHANGES, Effect, Kind, Record};
use super::{CallId, REMEMBER_FOR};

/// Seconds before a creation, by the time of its call, within which another creation of the name counts. Before that, the name may
/// have been removed by another program than this server.
const JUST_BEFORE_S: i64 = 60;

/// Maximum number of claimable operations on one name; the oldest are forgotten. Calls whose reply is too long for the log stay
/// here, and each change of a name visits all operations on it.
const PENDING_MAX: usize = 64;

/// The log's knowledge of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecoveredCall {
    /// Nothing.
    Unknown,
    /// It began. Its operations can be claimed now.
    Pending,
    /// It ended with this reply: the bytes given to [`CallLog::finish`](super::CallLog::finish).
    Replied(Bytes),
}

/// An operation whose end or reply is not in the log.
#[derive(Debug)]
struct PendingOp {
    call: CallId,
    kind: Kind,
    targets: [u64; CHANGES],
    began: Timestamp,
    /// For each target: whether its last acknowledged change is of the same kind and by another call.
    taken: [bool; CHANGES],
    /// When `taken` was set, in records read.
    taken_at: [u64; CHANGES],
    /// Another call was acknowledged to have created the removed name since: the present object belongs to that call. The number of
    /// the first such acknowledgement.
    remade: Option<u64>,
    /// Another call was acknowledged to have removed the name before that: this one has not removed it.
    lost: bool,
}

impl PendingOp {
    fn is_taken(&self) -> bool {
        self.taken.contains(&true)
    }
}

/// The claim of an attempt to the operation that it repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    key: u64,
    operation: u64,
}

/// Operations in progress at the end of a process, and replies that may not have arrived. At most as large as the log.
#[derive(Debug, Default)]
pub(super) struct RecoveredOps {
    pending: HashMap<u64, PendingOp>,
    next: u64,
    by_call: HashMap<CallId, Vec<u64>>,
    by_target: HashMap<u64, Vec<u64>>,
    replies: HashMap<CallId, (Timestamp, Bytes)>,
    /// Pending operations whose calls were repeated, by claim key. Programs of one client that do the same have the same key.
    claims: HashMap<u64, Vec<u64>>,
    /// While the log is read: calls whose replies are kept elsewhere, and whether they succeeded. Their operations cannot be claimed.
    answered: HashMap<CallId, bool>,
    /// While the log is read: the last acknowledged change of each target, with its time and its number among the records.
    last: HashMap<u64, (Effect, Timestamp, u64)>,
    /// While the log is read: the numbers of the records with which operations began that have not ended.
    begun: HashMap<(CallId, Kind, [u64; CHANGES]), u64>,
    /// While the log is read: the operations of `answered` calls that succeeded, as long as their ends have not come.
    unended: Vec<(CallId, Timestamp, Kind, [u64; CHANGES])>,
    /// Records read so far.
    records: u64,
    /// Acknowledged changes so far.
    acknowledged: u64,
}

impl RecoveredOps {
    /// Makes an empty set. The replies of `answered` calls are kept elsewhere; each with whether the call succeeded.
    pub(super) fn new(answered: impl IntoIterator<Item = (CallId, bool)>) -> Self {
        Self { answered: answered.into_iter().collect(), ..Self::default() }
    }

    /// Returns the number of pending operations.
    pub(super) fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Ends reading the log; frees data that only this needs. A reply that is kept elsewhere may be on stable storage before the end
    /// of its operation: such ends are passed to `write`, for the next process.
    pub(super) fn read_all(&mut self, now: Timestamp, mut write: impl FnMut(&Record)) {
        for (call, at, kind, targets) in std::mem::take(&mut self.unended) {
            let ended = Record::Ended { call, at, kind, targets, changed: true };
            write(&ended);
            self.read(ended, now);
        }
        (self.last, self.begun, self.answered) = (HashMap::new(), HashMap::new(), HashMap::new());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.replies.is_empty()
    }

    /// Reads the next record of the log.
    pub(super) fn read(&mut self, record: Record, now: Timestamp) {
        self.records += 1;
        if let Record::Started { call, kind, targets, .. } = record {
            self.begun.entry((call, kind, targets)).or_insert(self.records);
        }
        if let Record::Ended { call, kind, targets, .. } = record {
            self.unended.retain(|(of, _, its, names)| (*of, *its, *names) != (call, kind, targets));
        }
        match record {
            Record::Started { call, at, kind, targets } if is_recent(at, now) => {
                match self.answered.get(&call) {
                    // A removal that was repeated after the name was created again was answered, but not executed.
                    Some(true)
                        if self.begun_with(kind, targets, at).is_some_and(|op| op.remade.is_some()) => {}
                    Some(true) => self.unended.push((call, at, kind, targets)),
                    Some(false) => {}
                    None => {
                        // A call is executed again if its reply was dropped: the older execution no longer counts.
                        self.replies.remove(&call);
                        self.begin(call, at, kind, targets);
                    }
                }
            }
            Record::Ended { call, at, kind, targets, changed: true } => {
                let began = self.begun.remove(&(call, kind, targets)).unwrap_or(self.records);
                self.acknowledge_since(began, call, kind, targets);
                for (target, effect) in targets.iter().zip(kind.effects()) {
                    let newest = (*effect, at, self.records);
                    let last = self.last.entry(*target).or_insert(newest);
                    // As in `acknowledge_since`.
                    if *effect != Effect::Vanishes || last.0 != Effect::Appears || began > last.2 {
                        *last = newest;
                    }
                }
            }
            Record::Ended { call, kind, targets, .. } => {
                self.begun.remove(&(call, kind, targets));
                if let Some(id) = self.find(call, kind, targets) {
                    self.forget(id);
                }
            }
            Record::Replied { call, at, reply } if is_recent(at, now) => {
                self.forget_call(call);
                self.replies.insert(call, (at, reply));
            }
            Record::Claimed { call, at, kind, targets, key } if is_recent(at, now) => {
                if let Some(id) = self.find(call, kind, targets) {
                    self.add_claim(key, id);
                }
            }
            Record::Answered { call, .. } => {
                // Its operation was answered without being executed, else its end would come first.
                self.unended.retain(|(of, ..)| *of != call);
                self.forget_call(call);
            }
            Record::Started { .. } | Record::Replied { .. } | Record::Claimed { .. } => {}
        }
    }

    fn begin(&mut self, call: CallId, began: Timestamp, kind: Kind, targets: [u64; CHANGES]) {
        // Begun in one process and again in the next: either may have done it.
        if self.find(call, kind, targets).is_some() {
            return;
        }
        let mut taken = [false; CHANGES];
        for (half, effect) in kind.effects().iter().enumerate().filter(|_| kind != Kind::SetAttr) {
            // A recent creation could be taken for this call's: clocks of files are coarse. The target of a rename usually existed
            // long before.
            let last = self.last.get(&targets[half]).filter(|_| (kind, half) != (Kind::Rename, 1));
            // A name that was removed earlier, however long ago, was not there for this call to remove.
            taken[half] = last.is_some_and(|(last, at, _)| {
                last == effect && (*effect == Effect::Vanishes || began.seconds - at.seconds < JUST_BEFORE_S)
            });
        }
        let id = self.next;
        self.next += 1;
        self.by_call.entry(call).or_default().push(id);
        for (target, _) in targets.iter().zip(kind.effects()) {
            let ids = self.by_target.entry(*target).or_default();
            ids.push(id);
            if ids.len() > PENDING_MAX {
                let first = ids[0];
                self.forget(first);
            }
        }
        let lost = taken[0] && kind.effects()[0] == Effect::Vanishes;
        let taken_at = [self.records; CHANGES];
        let mut op = PendingOp { call, kind, targets, began, taken, taken_at, remade: None, lost };
        // It began with the operation that it claims: an acknowledgement of that operation was its own, and not answered.
        if let Some(claimed) = self.begun_with(kind, targets, began) {
            (op.taken, op.taken_at) = (claimed.taken, claimed.taken_at);
            (op.remade, op.lost) = (claimed.remade, claimed.lost);
        }
        self.pending.insert(id, op);
    }

    /// Returns the same operation of another call that began at the same time: the last of a chain of claims.
    fn begun_with(&self, kind: Kind, targets: [u64; CHANGES], began: Timestamp) -> Option<&PendingOp> {
        let ids = self.by_target.get(&targets[0])?;
        ids.iter()
            .rev()
            .filter_map(|id| self.pending.get(id))
            .find(|op| (op.kind, op.targets, op.began) == (kind, targets, began))
    }

    fn find(&self, call: CallId, kind: Kind, targets: [u64; CHANGES]) -> Option<u64> {
        let same =
            |id: &&u64| self.pending.get(id).is_some_and(|op| op.kind == kind && op.targets == targets);
        self.by_call.get(&call)?.iter().find(same).copied()
    }

    /// Notes that `call` is acknowledged to have made this change, so that no other call has.
    pub(super) fn acknowledge(&mut self, call: CallId, kind: Kind, targets: [u64; CHANGES]) {
        self.acknowledge_since(u64::MAX, call, kind, targets);
    }

    /// As [`Self::acknowledge`], for a change that began with this record. Calls that run at once may end in another order than they
    /// were executed in: a removal that began before a creation had ended may have come first, so that the created object exists.
    fn acknowledge_since(&mut self, began: u64, call: CallId, kind: Kind, targets: [u64; CHANGES]) {
        self.acknowledged += 1;
        let number = self.acknowledged;
        for (target, effect) in targets.iter().zip(kind.effects()) {
            for id in self.by_target.get(target).into_iter().flatten() {
                let Some(op) = self.pending.get_mut(id).filter(|op| op.call != call) else { continue };
                for (half, own) in op.kind.effects().iter().enumerate() {
                    if op.targets[half] != *target {
                        continue;
                    }
                    if own == effect {
                        (op.taken[half], op.taken_at[half]) = (true, self.records);
                    } else if *own != Effect::Appears || began > op.taken_at[half] {
                        op.taken[half] = false;
                    }
                    if *own == Effect::Vanishes {
                        op.lost |= *effect == Effect::Vanishes && op.remade.is_none();
                        if *effect == Effect::Appears {
                            op.remade.get_or_insert(number);
                        }
                    }
                }
            }
        }
    }

    /// Returns whether an operation on this target is pending.
    pub(super) fn has_target(&self, target: u64) -> bool {
        self.by_target.contains_key(&target)
    }

    /// See [`CallLog::recognize`](super::CallLog::recognize).
    pub(super) fn recognize(
        &mut self,
        call: CallId,
        now: Timestamp,
        key: impl Fn(Kind, &[u64]) -> u64,
        mut write: impl FnMut(Record),
    ) -> RecoveredCall {
        if let Some((at, reply)) = self.replies.get(&call) {
            return if is_recent(*at, now) {
                RecoveredCall::Replied(reply.clone())
            } else {
                RecoveredCall::Unknown
            };
        }
        let Some(ids) = self.by_call.get(&call).cloned() else { return RecoveredCall::Unknown };
        let mut recognized = RecoveredCall::Unknown;
        for id in ids {
            if let Some(op) = self.pending.get(&id).filter(|op| is_recent(op.began, now)) {
                let PendingOp { kind, targets, began, .. } = *op;
                let key = key(kind, &targets);
                let repeated = self.add_claim(key, id);
                write(Record::Claimed { call, at: began, kind, targets, key });
                for PendingOp { call, began, .. } in repeated {
                    write(Record::Ended { call, at: began, kind, targets, changed: false });
                }
                recognized = RecoveredCall::Pending;
            }
        }
        recognized
    }

    /// Adds a claim, instead of those that its operation repeats: it began with them. Returns these.
    fn add_claim(&mut self, key: u64, id: u64) -> Vec<PendingOp> {
        let Some(began) = self.pending.get(&id).map(|op| op.began) else { return Vec::new() };
        let ids = self.claims.entry(key).or_default();
        let is_same = |other: &u64| self.pending.get(other).is_some_and(|op| op.began == began);
        let mut repeated: Vec<_> = ids.extract_if(.., |other| is_same(other)).collect();
        ids.push(id);
        repeated.retain(|other| *other != id);
        repeated.into_iter().filter_map(|other| self.forget(other)).collect()
    }

    /// Returns the claim of an attempt by `call`. Of several operations under one key its own comes first; among others nothing shows
    /// which one it repeats, and the first valid one is taken.
    pub(super) fn claim(&self, key: u64, call: CallId) -> Option<Claim> {
        let ids = self.claims.get(&key)?.iter();
        let pending = ids.filter_map(|id| Some((*id, self.pending.get(id)?)));
        let (operation, _) = pending.min_by_key(|(_, op)| (op.call != call, op.is_taken()))?;
        Some(Claim { key, operation })
    }

    fn drop_claim(&mut self, Claim { key, operation }: Claim) {
        if let Some(ids) = self.claims.get_mut(&key) {
            ids.retain(|id| *id != operation);
            if ids.is_empty() {
                self.claims.remove(&key);
            }
        }
    }

    /// Removes a claim and its operation.
    fn forget_claimed(&mut self, claim: Claim) -> Option<PendingOp> {
        self.drop_claim(claim);
        self.forget(claim.operation)
    }

    /// Returns when the operation of a claim began, if the claim is valid.
    pub(super) fn began(&self, claim: Claim) -> Option<Timestamp> {
        self.pending.get(&claim.operation).filter(|op| !op.is_taken()).map(|op| op.began)
    }

    /// Returns when the operation of a claim began, valid or not; and whether the present object may have got its name, without being
    /// created, by another operation of which nobody knows whether it was executed.
    pub(super) fn repeated_since(&self, claim: Claim) -> Option<(Timestamp, bool)> {
        let op = self.pending.get(&claim.operation)?;
        let target = op.targets[0];
        let is_given = |other: &PendingOp| match other.kind {
            Kind::Link => other.targets[0] == target,
            Kind::Rename => other.targets[1] == target,
            _ => false,
        };
        let others = self.by_target.get(&target).into_iter().flatten();
        let may_be_given = others.filter_map(|id| self.pending.get(id)).any(is_given);
        Some((op.began, may_be_given))
    }

    /// Takes a valid claim, so that no other call can claim the same operation. Returns when its operation began, and its call.
    pub(super) fn take(&mut self, claim: Claim) -> Option<(Timestamp, CallId)> {
        self.began(claim)?;
        let op = self.forget_claimed(claim)?;
        if op.remade.is_some() {
            self.removed_earlier_object(&op);
        } else {
            self.acknowledge(op.call, op.kind, op.targets);
        }
        Some((op.began, op.call))
    }

    /// Acknowledges the operation of a claim, valid or not.
    pub(super) fn acknowledge_claimed(&mut self, claim: Claim) {
        let Some(op) = self.pending.get(&claim.operation) else { return };
        let PendingOp { call, kind, targets, .. } = *op;
        self.acknowledge(call, kind, targets);
    }

    /// Returns whether another client created the name again that a claim's operation removes; and whether another client had
    /// also removed it.
    pub(super) fn remade(&self, claim: Claim) -> Option<bool> {
        let op = self.pending.get(&claim.operation)?;
        op.remade.map(|_| op.lost)
    }

    /// Notes that `op` removed a name that was created again since: no other operation did, unless it removed a newer one.
    fn removed_earlier_object(&mut self, op: &PendingOp) {
        for id in self.by_target.get(&op.targets[0]).into_iter().flatten() {
            let Some(other) = self.pending.get_mut(id) else { continue };
            other.lost |= other.remade == op.remade && other.targets[0] == op.targets[0];
        }
    }

    /// Drops a claim whose client is answered otherwise. The operation stays: it may have been executed. Returns as [`Self::withdraw`].
    pub(super) fn answered(&mut self, claim: Claim) -> Option<(Timestamp, CallId)> {
        self.drop_claim(claim);
        self.pending.get(&claim.operation).map(|op| (op.began, op.call))
    }

    /// Drops a claim whose operation had not been executed. Returns when it began, and its call.
    pub(super) fn withdraw(&mut self, claim: Claim) -> Option<(Timestamp, CallId)> {
        self.forget_claimed(claim).map(|op| (op.began, op.call))
    }

    fn forget_call(&mut self, call: CallId) {
        for id in self.by_call.get(&call).cloned().unwrap_or_default() {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u64) -> Option<PendingOp> {
        let op = self.pending.remove(&id)?;
        let mut drop_from = |ids: &mut Vec<u64>| {
            ids.retain(|other| *other != id);
            ids.is_empty()
        };
        if self.by_call.get_mut(&op.call).is_some_and(&mut drop_from) {
            self.by_call.remove(&op.call);
        }
        for target in op.targets {
            if self.by_target.get_mut(&target).is_some_and(&mut drop_from) {
                self.by_target.remove(&target);
            }
        }
        Some(op)
    }
}

/// A client may reuse its numbers after some time: see the reply cache. Nothing expires by a clock that was set back.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now.seconds.saturating_sub(at.seconds) < REMEMBER_FOR.as_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1000, nanoseconds: 0 };
    const NAME: [u64; CHANGES] = [5, 0];

    fn call(number: u64) -> CallId {
        CallId { digest: 1, number }
    }

    /// Claims an operation for another call.
    fn take(before: &mut RecoveredOps, key: u64) -> Option<(Timestamp, CallId)> {
        let claim = before.claim(key, call(1000))?;
        before.take(claim)
    }

    fn begun(number: u64, kind: Kind, targets: [u64; CHANGES]) -> Record {
        Record::Started { call: call(number), at: NOW, kind, targets }
    }

    fn ended(number: u64, kind: Kind, targets: [u64; CHANGES], changed: bool) -> Record {
        Record::Ended { call: call(number), at: NOW, kind, targets, changed }
    }

    fn before(records: impl IntoIterator<Item = Record>) -> RecoveredOps {
        let mut before = RecoveredOps::default();
        records.into_iter().for_each(|record| before.read(record, NOW));
        before
    }

    /// Returns whether a repeated `number` may claim.
    fn claims(before: &mut RecoveredOps, number: u64) -> bool {
        before.recognize(call(number), NOW, |_, _| number, |_| {});
        take(before, number).is_some()
    }

    #[test]
    fn claims_a_repeated_pending_operation_once() {
        let mut before = before([begun(1, Kind::Create, NAME)]);
        assert_eq!(take(&mut before, 1), None, "its call has not come again");
        assert_eq!(before.recognize(call(2), NOW, |_, _| 2, |_| {}), RecoveredCall::Unknown);
        assert_eq!(before.recognize(call(1), NOW, |_, _| 1, |_| {}), RecoveredCall::Pending);
        assert_eq!(take(&mut before, 1), Some((NOW, call(1))));
        assert_eq!(take(&mut before, 1), None);
        assert!(!claims(&mut before, 1) && before.is_empty());
    }

    #[test]
    fn answers_finished_calls_and_never_claims_failed_ones() {
        let reply = Bytes::from_static(b"reply");
        let mut before = before([
            begun(1, Kind::Create, NAME),
            ended(1, Kind::Create, NAME, false),
            begun(2, Kind::Remove, NAME),
            ended(2, Kind::Remove, NAME, true),
            Record::Replied { call: call(2), at: NOW, reply: reply.clone() },
        ]);
        assert!(!claims(&mut before, 1));
        for _ in 0..2 {
            assert_eq!(
                before.recognize(call(2), NOW, |_, _| 2, |_| {}),
                RecoveredCall::Replied(reply.clone())
            );
        }
        let late = Timestamp { seconds: NOW.seconds + 600, ..NOW };
        assert_eq!(before.recognize(call(2), late, |_, _| 2, |_| {}), RecoveredCall::Unknown);
    }

    #[test]
    fn a_removal_that_ends_after_a_creation_may_have_come_before_it() {
        let creations =
            [begun(2, Kind::Create, NAME), begun(3, Kind::Create, NAME), ended(3, Kind::Create, NAME, true)];
        let (remove, removed) = (begun(1, Kind::Remove, NAME), ended(1, Kind::Remove, NAME, true));
        let overlapping = || [vec![remove.clone()], creations.to_vec(), vec![removed.clone()]].concat();
        assert!(!claims(&mut before(overlapping()), 2), "3 may have created the existing object");
        let following = [creations.to_vec(), vec![remove.clone(), removed.clone()]].concat();
        assert!(claims(&mut before(following), 2), "what 3 created is gone");
        // The same for one that began after both.
        let at = Timestamp { seconds: NOW.seconds + 1, ..NOW };
        let later = Record::Started { call: call(4), at, kind: Kind::Create, targets: NAME };
        assert!(!claims(&mut before([overlapping(), vec![later]].concat()), 4));
    }

    #[test]
    fn one_of_two_creators_may_claim_the_name() {
        let both = || [begun(1, Kind::Create, NAME), begun(2, Kind::Create, NAME)];
        for (first, second) in [(1, 2), (2, 1)] {
            let mut before = before(both());
            assert!(claims(&mut before, first) && !claims(&mut before, second));
        }
        // The other one was answered, before the end of the process or after it.
        let mut answered = before(both().into_iter().chain([ended(2, Kind::Create, NAME, true)]));
        assert!(!claims(&mut answered, 1) && claims(&mut answered, 2));
        let mut answered = before(both());
        answered.acknowledge(call(3), Kind::Create, NAME);
        assert!(!claims(&mut answered, 1) && !claims(&mut answered, 2));
    }

    #[test]
    fn an_answered_call_claims_nothing_after_a_removal() {
        let mut before = before([
            ended(9, Kind::Create, NAME, true),
            begun(1, Kind::Remove, NAME),
            begun(2, Kind::Create, NAME),
            // Created and removed again: the present object belongs to a client without a reply.
            ended(8, Kind::Create, NAME, true),
            ended(7, Kind::Remove, NAME, true),
        ]);
        assert!(!claims(&mut before, 1) && claims(&mut before, 2));
    }

    #[test]
    fn does_not_claim_what_another_call_did_just_before() {
        let at = Timestamp { seconds: NOW.seconds - 1, ..NOW };
        let long_ago = Timestamp { seconds: NOW.seconds - 60, ..NOW };
        for (at, kind, targets, ours, good) in [
            (at, Kind::Create, NAME, begun(1, Kind::Create, NAME), false),
            (at, Kind::Rename, [4, 5], begun(1, Kind::Create, NAME), false),
            (at, Kind::Remove, NAME, begun(1, Kind::Create, NAME), true),
            (long_ago, Kind::Create, NAME, begun(1, Kind::Create, NAME), true),
            (at, Kind::Remove, NAME, begun(1, Kind::Remove, NAME), false),
            (long_ago, Kind::Remove, NAME, begun(1, Kind::Remove, NAME), false),
            (long_ago, Kind::Create, NAME, begun(1, Kind::Remove, NAME), true),
            (at, Kind::Remove, NAME, begun(1, Kind::Rename, [5, 6]), false),
            (long_ago, Kind::Remove, NAME, begun(1, Kind::Rename, [5, 6]), false),
            (at, Kind::Create, [6, 0], begun(1, Kind::Rename, [5, 6]), true),
            (at, Kind::SetAttr, NAME, begun(1, Kind::SetAttr, NAME), true),
        ] {
            let theirs = Record::Ended { call: call(9), at, kind, targets, changed: true };
            assert_eq!(claims(&mut before([theirs, ours.clone()]), 1), good, "{kind:?}, {ours:?}");
        }
    }

    /// Two programs of one client remove a lock, one after the other; another client has created it between, and a third since.
    #[test]
    fn equal_operations_of_one_client_are_claimed_one_by_one() {
        let later = Timestamp { seconds: NOW.seconds + 1, ..NOW };
        let mut before = before([
            begun(1, Kind::Remove, NAME),
            ended(8, Kind::Create, NAME, true),
            Record::Started { call: call(2), at: later, kind: Kind::Remove, targets: NAME },
        ]);
        for number in [1, 2, 2] {
            before.recognize(call(number), NOW, |_, _| 7, |_| {});
        }
        before.acknowledge(call(9), Kind::Create, NAME);
        // Each removed another object, so neither is executed again.
        for _ in 0..2 {
            let claim = before.claim(7, call(1000)).expect("repeated");
            assert_eq!(before.remade(claim), Some(false));
            assert!(before.take(claim).is_some());
            assert!(before.withdraw(claim).is_none(), "the other one is another call's");
        }
        assert_eq!(before.claim(7, call(1000)), None);
        assert!(before.is_empty() && before.claims.is_empty());
    }

    /// Call 2 is the claim of call 1 in the next process, which is repeated in a third one.
    #[test]
    fn a_repeated_claim_replaces_the_one_that_it_repeats() {
        let claimed = Record::Claimed { call: call(1), at: NOW, kind: Kind::Remove, targets: NAME, key: 7 };
        let mut before = before([begun(1, Kind::Remove, NAME), claimed, begun(2, Kind::Remove, NAME)]);
        let mut written = Vec::new();
        before.recognize(call(2), NOW, |_, _| 7, |record| written.push(record));
        assert_eq!(written.last(), Some(&ended(1, Kind::Remove, NAME, false)));
        assert_eq!(take(&mut before, 7), Some((NOW, call(2))));
        assert!(take(&mut before, 7).is_none() && before.is_empty(), "there was one removal");
    }

    /// Its client has the answer: a later call under the same key is another one.
    #[test]
    fn an_answered_claim_is_gone_and_its_operation_stays() {
        let mut before = before([begun(1, Kind::Link, NAME)]);
        before.recognize(call(1), NOW, |_, _| 7, |_| {});
        let claim = before.claim(7, call(1)).expect("repeated");
        assert_eq!(before.answered(claim), Some((NOW, call(1))));
        assert_eq!(before.claim(7, call(2)), None);
        assert!(before.has_target(NAME[0]), "it may have been executed");
    }

    #[test]
    fn an_attempt_claims_the_operation_of_its_own_call_first() {
        let later = Timestamp { seconds: NOW.seconds + 1, ..NOW };
        let second = Record::Started { call: call(2), at: later, kind: Kind::Remove, targets: NAME };
        let mut before = before([begun(1, Kind::Remove, NAME), second]);
        for number in [1, 2] {
            before.recognize(call(number), NOW, |_, _| 7, |_| {});
        }
        let claim = before.claim(7, call(2)).expect("repeated");
        assert_eq!(before.take(claim), Some((later, call(2))));
    }

    /// The reply was on stable storage before the end of the operation.
    #[test]
    fn an_answered_call_without_an_end_has_made_its_change() {
        for is_ok in [true, false] {
            let mut before = RecoveredOps::new([(call(2), is_ok)]);
            let records = [begun(1, Kind::Create, NAME), begun(2, Kind::Create, NAME)];
            records.into_iter().for_each(|record| before.read(record, NOW));
            let mut written = Vec::new();
            before.read_all(NOW, |record| written.push(record.clone()));
            let end = ended(2, Kind::Create, NAME, true);
            assert_eq!(written, if is_ok { vec![end] } else { vec![] });
            assert_eq!(claims(&mut before, 1), !is_ok);
        }
        let mut before = RecoveredOps::new([(call(2), true)]);
        let records = [begun(2, Kind::Create, NAME), ended(2, Kind::Create, NAME, false)];
        records.into_iter().for_each(|record| before.read(record, NOW));
        before.read_all(NOW, |record| panic!("{record:?}"));
    }

    /// Call 2 repeated a removal after another client had created the name again, so it was answered without being executed.
    #[test]
    fn an_answered_removal_of_an_earlier_object_has_changed_nothing() {
        let mut before = RecoveredOps::new([(call(2), true)]);
        [
            begun(1, Kind::Remove, NAME),
            ended(8, Kind::Create, NAME, true),
            begun(2, Kind::Remove, NAME),
            ended(1, Kind::Remove, NAME, false),
        ]
        .into_iter()
        .for_each(|record| before.read(record, NOW));
        before.read_all(NOW, |record| panic!("{record:?}"));
        assert!(before.is_empty());
    }

    /// The removal was repeated and answered while the log did not have the creation of the newer object yet.
    #[test]
    fn a_call_whose_answer_is_in_the_log_has_changed_nothing_more() {
        let mut before = RecoveredOps::new([(call(2), true)]);
        let answered = Record::Answered { call: call(2), at: NOW };
        for record in [begun(1, Kind::Remove, NAME), begun(2, Kind::Remove, NAME), answered] {
            before.read(record, NOW);
        }
        before.read_all(NOW, |record| panic!("{record:?}"));
        assert!(claims(&mut before, 1));
    }

    #[test]
    fn each_name_of_a_rename_counts() {
        let rename = begun(1, Kind::Rename, [5, 6]);
        for (other, kind, target, good) in [
            (2, Kind::Remove, 5, false),
            (2, Kind::Create, 6, false),
            (2, Kind::Create, 5, true),
            (2, Kind::Remove, 6, true),
            (2, Kind::Create, 7, true),
            (1, Kind::Create, 6, true),
        ] {
            let mut before = before([rename.clone(), ended(other, kind, [target, 0], true)]);
            assert_eq!(claims(&mut before, 1), good, "{kind:?} of {target}");
        }
    }

    #[test]
    fn begun_in_two_processes_counts_from_the_first() {
        let later = Timestamp { seconds: NOW.seconds + 5, ..NOW };
        let again = Record::Started { call: call(1), at: later, kind: Kind::Create, targets: NAME };
        let mut before = before([begun(1, Kind::Create, NAME), again]);
        before.recognize(call(1), NOW, |_, _| 1, |_| {});
        assert_eq!(take(&mut before, 1), Some((NOW, call(1))));
        assert!(before.is_empty());
    }

    #[test]
    fn a_logged_claim_is_used_once() {
        let claimed = Record::Claimed { call: call(1), at: NOW, kind: Kind::Create, targets: NAME, key: 7 };
        let records = || [begun(1, Kind::Create, NAME), claimed.clone()];
        assert_eq!(take(&mut before(records()), 7), Some((NOW, call(1))));
        for used in [ended(1, Kind::Create, NAME, false), ended(2, Kind::Create, NAME, true)] {
            assert_eq!(take(&mut before(records().into_iter().chain([used])), 7), None);
        }
    }

    #[test]
    fn a_claim_survives_a_further_crash() {
        let records = || {
            [
                begun(1, Kind::Create, NAME),
                ended(1, Kind::Create, NAME, true),
                // Claimed by the next process: it began with the first operation.
                begun(2, Kind::Create, NAME),
            ]
        };
        assert!(claims(&mut before(records()), 2));
        // The first is known to be answered: this claim comes too late.
        let mut answered = RecoveredOps::new([(call(1), true)]);
        records().into_iter().for_each(|record| answered.read(record, NOW));
        assert!(!claims(&mut answered, 2) && !claims(&mut answered, 1));
        let marked = Record::Answered { call: call(1), at: NOW };
        assert!(before([begun(1, Kind::Create, NAME), marked]).is_empty());
        // It began later, so it is not a claim.
        let [first, second, _] = records();
        let later = Timestamp { nanoseconds: 1, ..NOW };
        let third = Record::Started { call: call(2), at: later, kind: Kind::Create, targets: NAME };
        assert!(!claims(&mut before([first, second, third]), 2));
    }

    #[test]
    fn old_operations_on_one_name_are_forgotten() {
        let count = PENDING_MAX as u64 + 6;
        // Each may have made the change, and none has a logged reply.
        let records = (1..=count).flat_map(|number| {
            let kind = if number % 2 == 0 { Kind::Remove } else { Kind::Create };
            [begun(number, kind, NAME), ended(number, kind, NAME, true)]
        });
        let mut before = before(records.chain([begun(1, Kind::Create, [6, 0])]));
        assert_eq!(before.by_target[&NAME[0]].len(), PENDING_MAX);
        assert_eq!((before.pending.len(), before.under_way()), (PENDING_MAX + 1, PENDING_MAX + 1));
        for number in 2..=6 {
            assert_eq!(before.recognize(call(number), NOW, |_, _| 0, |_| {}), RecoveredCall::Unknown);
        }
        assert!(claims(&mut before, 1), "of another name");
        assert_eq!(before.recognize(call(7), NOW, |_, _| 7, |_| {}), RecoveredCall::Pending);
    }

    #[test]
    fn a_rename_to_the_same_name_is_forgotten_whole() {
        let renames = (1..=PENDING_MAX as u64).map(|number| begun(number, Kind::Rename, [5, 5]));
        let mut before = before(renames);
        assert!(before.by_target[&5].iter().all(|id| before.pending.contains_key(id)));
        assert_eq!(before.by_target[&5].len(), PENDING_MAX);
        assert_eq!(before.pending.len(), PENDING_MAX / 2);
        for number in 1..=PENDING_MAX as u64 {
            claims(&mut before, number);
            before.claim(number, call(number)).and_then(|claim| before.withdraw(claim));
        }
        assert!(before.is_empty() && before.by_target.is_empty() && before.by_call.is_empty());
    }

    #[test]
    fn old_records_are_left_out() {
        let old = Timestamp { seconds: NOW.seconds - 600, ..NOW };
        let reply = Bytes::from_static(b"reply");
        let before = before([
            Record::Started { call: call(1), at: old, kind: Kind::Create, targets: NAME },
            Record::Replied { call: call(2), at: old, reply },
        ]);
        assert!(before.is_empty());
    }
}
