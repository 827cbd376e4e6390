//! Unfinished operations of earlier processes, from their log.

use std::collections::{HashMap, HashSet};

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
    /// Another call was acknowledged to have created the removed name since: the present object belongs to that call.
    remade: bool,
    /// Another call was acknowledged to have removed the name before that: this one has not removed it.
    lost: bool,
}

/// Operations in progress at the end of a process, and replies that may not have arrived. At most as large as the log.
#[derive(Debug, Default)]
pub(super) struct RecoveredOps {
    pending: HashMap<u64, PendingOp>,
    next: u64,
    by_call: HashMap<CallId, Vec<u64>>,
    by_target: HashMap<u64, Vec<u64>>,
    replies: HashMap<CallId, (Timestamp, Bytes)>,
    /// Pending operations whose calls were repeated, by claim key.
    claims: HashMap<u64, u64>,
    /// While the log is read: calls whose replies are kept elsewhere. Their operations cannot be claimed.
    answered: HashSet<CallId>,
    /// While the log is read: the last acknowledged change of each target, with its time and its number among the records.
    last: HashMap<u64, (Effect, Timestamp, u64)>,
    /// While the log is read: the numbers of the records with which operations began that have not ended.
    begun: HashMap<(CallId, Kind, [u64; CHANGES]), u64>,
    /// Records read so far.
    records: u64,
}

impl RecoveredOps {
    /// Makes an empty set. The replies of `answered` calls are kept elsewhere.
    pub(super) fn new(answered: impl IntoIterator<Item = CallId>) -> Self {
        Self { answered: answered.into_iter().collect(), ..Self::default() }
    }

    /// Returns the number of pending operations.
    pub(super) fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Frees data that only reading the log needs.
    pub(super) fn read_all(&mut self) {
        (self.last, self.begun, self.answered) = (HashMap::new(), HashMap::new(), HashSet::new());
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
        match record {
            Record::Started { call, at, kind, targets }
                if is_recent(at, now) && !self.answered.contains(&call) =>
            {
                // A call is executed again if its reply was dropped: the older execution no longer counts.
                self.replies.remove(&call);
                self.begin(call, at, kind, targets);
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
                    self.claims.insert(key, id);
                }
            }
            Record::Answered { call, .. } => self.forget_call(call),
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
        let mut op = PendingOp { call, kind, targets, began, taken, taken_at, remade: false, lost };
        // It began with the operation that it claims: an acknowledgement of that operation was its own, and not answered.
        if let Some(claimed) = self.begun_with(&op) {
            (op.taken, op.taken_at) = (claimed.taken, claimed.taken_at);
            (op.remade, op.lost) = (claimed.remade, claimed.lost);
        }
        self.pending.insert(id, op);
    }

    /// Returns the same operation of another call that began at the same time: the last of a chain of claims.
    fn begun_with(&self, op: &PendingOp) -> Option<&PendingOp> {
        let ids = self.by_target.get(&op.targets[0])?;
        ids.iter()
            .rev()
            .filter_map(|id| self.pending.get(id))
            .find(|other| (other.kind, other.targets, other.began) == (op.kind, op.targets, op.began))
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
                        op.lost |= *effect == Effect::Vanishes && !op.remade;
                        op.remade |= *effect == Effect::Appears;
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
        mut claimed: impl FnMut(Record),
    ) -> RecoveredCall {
        if let Some((at, reply)) = self.replies.get(&call) {
            return if is_recent(*at, now) {
                RecoveredCall::Replied(reply.clone())
            } else {
                RecoveredCall::Unknown
            };
        }
        let Some(ids) = self.by_call.get(&call) else { return RecoveredCall::Unknown };
        let mut recognized = RecoveredCall::Unknown;
        for id in ids {
            if let Some(op) = self.pending.get(id).filter(|op| is_recent(op.began, now)) {
                let PendingOp { kind, targets, began, .. } = *op;
                let key = key(kind, &targets);
                self.claims.insert(key, *id);
                claimed(Record::Claimed { call, at: began, kind, targets, key });
                recognized = RecoveredCall::Pending;
            }
        }
        recognized
    }

    /// Returns when the operation of a claim began, if the claim is valid.
    pub(super) fn began(&self, key: u64) -> Option<Timestamp> {
        let op = self.pending.get(self.claims.get(&key)?)?;
        (!op.taken.contains(&true)).then_some(op.began)
    }

    /// Returns when the operation of a claim began, valid or not.
    pub(super) fn repeated_since(&self, key: u64) -> Option<Timestamp> {
        Some(self.pending.get(self.claims.get(&key)?)?.began)
    }

    /// Takes a valid claim, so that no other call can claim the same operation. Returns when its operation began, and its call.
    pub(super) fn take(&mut self, key: u64) -> Option<(Timestamp, CallId)> {
        self.began(key)?;
        let id = self.claims.remove(&key)?;
        let op = self.forget(id)?;
        if op.remade {
            self.removed_earlier_object(&op);
        } else {
            self.acknowledge(op.call, op.kind, op.targets);
        }
        Some((op.began, op.call))
    }

    /// Acknowledges the operation of a claim, valid or not.
    pub(super) fn acknowledge_claimed(&mut self, key: u64) {
        let Some(op) = self.claims.get(&key).and_then(|id| self.pending.get(id)) else { return };
        let PendingOp { call, kind, targets, .. } = *op;
        self.acknowledge(call, kind, targets);
    }

    /// Returns whether another client created the name again that a claim's operation removes; and whether another client had
    /// also removed it.
    pub(super) fn remade(&self, key: u64) -> Option<bool> {
        let op = self.pending.get(self.claims.get(&key)?)?;
        op.remade.then_some(op.lost)
    }

    /// Notes that `op` removed a name that was created again since: no other operation did, unless it removed the new one.
    fn removed_earlier_object(&mut self, op: &PendingOp) {
        for id in self.by_target.get(&op.targets[0]).into_iter().flatten() {
            let Some(other) = self.pending.get_mut(id) else { continue };
            other.lost |= other.remade && other.targets[0] == op.targets[0];
        }
    }

    /// Drops a claim whose operation had not been executed. Returns when it began, and its call.
    pub(super) fn withdraw(&mut self, key: u64) -> Option<(Timestamp, CallId)> {
        let id = self.claims.remove(&key)?;
        self.forget(id).map(|op| (op.began, op.call))
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
        before.take(number).is_some()
    }

    #[test]
    fn claims_a_repeated_pending_operation_once() {
        let mut before = before([begun(1, Kind::Create, NAME)]);
        assert_eq!(before.take(1), None, "its call has not come again");
        assert_eq!(before.recognize(call(2), NOW, |_, _| 2, |_| {}), RecoveredCall::Unknown);
        assert_eq!(before.recognize(call(1), NOW, |_, _| 1, |_| {}), RecoveredCall::Pending);
        assert_eq!(before.take(1), Some((NOW, call(1))));
        assert_eq!(before.take(1), None);
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
        assert_eq!(before.take(1), Some((NOW, call(1))));
        assert!(before.is_empty());
    }

    #[test]
    fn a_logged_claim_is_used_once() {
        let claimed = Record::Claimed { call: call(1), at: NOW, kind: Kind::Create, targets: NAME, key: 7 };
        let records = || [begun(1, Kind::Create, NAME), claimed.clone()];
        assert_eq!(before(records()).take(7), Some((NOW, call(1))));
        for used in [ended(1, Kind::Create, NAME, false), ended(2, Kind::Create, NAME, true)] {
            assert_eq!(before(records().into_iter().chain([used])).take(7), None);
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
        let mut answered = RecoveredOps::new([call(1)]);
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
            before.withdraw(number);
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
