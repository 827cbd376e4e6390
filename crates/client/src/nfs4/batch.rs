//! Many items in few compounds.
//!
//! An item is a sequence of operations that begins with PUTFH, so that it depends on no other. Items are packed into compounds
//! within the server's granted limits, and within the sizes that it has executed ([`super::compound_size`]). Several compounds are in
//! flight. A compound ends at its first failed operation: the item there fails, the following ones were not executed and go into
//! further compounds. These have no more items than were executed before the failure: if many items fail, they spread over
//! compounds that are in flight together, instead of one round trip for each failure. An item for which the server returned DELAY
//! is retried alone, and has pauses of its own: the other items do not wait for it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::types::{HasStatus, Status};
use xdr::to_bytes;

use super::Nfs4;
use super::owned::{has_seqid, set_seqid};
use super::session::{DELAY_FIRST, DELAY_MAX, Limits, Session, Unexecuted};
use super::statuses::is_too_large;
use super::wire::{OVERHEAD, Results};
use crate::config::Caller;
use crate::error::OpError;
use crate::owner::Seqid;

/// Compounds that a batch is spread over, if their items are at least [`ITEMS_MIN`]. A server executes the operations of a compound
/// one after the other, and if each waits for a disk, compounds in flight together wait together.
pub(crate) const SPREAD: usize = 64;
/// As [`SPREAD`], for items of one operation that each wait for stable storage.
pub(crate) const WIDE_SPREAD: usize = 128;
/// Each item has a compound of its own.
pub(crate) const SEPARATE: usize = usize::MAX;
/// Minimum items of a compound of a batch that is spread.
const ITEMS_MIN: usize = 8;
/// Bytes of a WRITE before its data: operation, stateid, offset, stability, length (RFC 8881 §18.32.1).
const WRITE_HEADER: usize = 4 + 16 + 8 + 4 + 4;
/// Number of retries of an item after a compound that was too large.
const TRIES_MAX: u32 = 64;

/// One of many items.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its operations; the first is PUTFH.
    pub(crate) ops: Vec<Op>,
    /// Approximate number of their bytes in a request.
    pub(crate) request: usize,
    /// Maximum bytes of their results in a reply.
    pub(crate) reply: usize,
}

impl Item {
    /// Returns the number of bytes before the data of the item's WRITE, and of the item as a whole, both rounded up.
    fn write_offset(&self) -> (Option<usize>, usize) {
        let (mut offset, mut size) = (None, 0);
        for op in &self.ops {
            match op {
                Op::Write(args) => {
                    size += WRITE_HEADER;
                    offset = Some(size);
                    size += args.data.bytes().len().next_multiple_of(4);
                }
                op => size += to_bytes(op).len(),
            }
        }
        (offset, size)
    }
}

/// The outcome of an item.
pub(crate) type ItemOutcome = Result<Results, OpError>;

/// The items of a batch in progress.
struct Batch {
    items: Vec<Item>,
    outcomes: Vec<Option<ItemOutcome>>,
    tries: Vec<u32>,
    /// The seqid of each item's owner.
    seqids: Vec<Seqid>,
    /// The seqid that each item was sent with.
    sent: Vec<u32>,
    /// Items that are in no compound yet, by number.
    waiting: VecDeque<usize>,
    /// Items that wait for a time, with that time.
    paused: BTreeSet<(Duration, usize)>,
    /// When items end that the server delays.
    end: Duration,
    /// The items that have failed by DELAY or GRACE.
    is_delayed: Vec<bool>,
    /// Maximum number of items of the next compound.
    items_max: usize,
    /// Maximum number of items of any compound.
    share: usize,
    /// Offset in a record below which the data of each WRITE must begin; `None` if there are no WRITEs.
    write_start: Option<usize>,
}

/// The reaction to a failed item.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// Its outcome.
    Final,
    /// It is retried after a pause.
    Later,
    /// It is retried in a smaller compound.
    Smaller,
}

fn failure(status: Status) -> Failure {
    match status {
        Status::DELAY | Status::GRACE => Failure::Later,
        status if is_too_large(status) => Failure::Smaller,
        _ => Failure::Final,
    }
}

/// Returns the pause before an item is sent again that has failed this often.
fn pause(failures: u32) -> Duration {
    DELAY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(DELAY_MAX)
}

impl Nfs4 {
    /// Executes items and returns an outcome for each, in their order. Results of an item that failed end with the failure.
    /// `spread` is the number of compounds to spread them over; 1: as few as possible.
    ///
    /// The client does not request that the server keeps the replies: servers keep only a few KiB. If a reply is lost with its connection, the
    /// compound is executed again, and its results are marked as repeated: then NOENT or EXIST may come from the first time.
    pub(crate) async fn batch(&self, caller: &Caller, items: Vec<Item>, spread: usize) -> Vec<ItemOutcome> {
        let seqids = vec![Seqid::Ignored; items.len()];
        self.run_batch(None, caller, Batch::new(items, seqids, spread)).await.0
    }

    /// Executes items with one operation each of an owner of 4.0 (RFC 7530 §9.1.7), which has this seqid. Returns the seqids
    /// afterwards too. The items fail with BADSESSION if the session is lost: the server has forgotten the owners with it.
    pub(super) async fn batch_as(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        items: Vec<(Item, Seqid)>,
        spread: usize,
    ) -> (Vec<ItemOutcome>, Vec<Seqid>) {
        let (items, seqids) = items.into_iter().unzip();
        self.run_batch(Some(session), caller, Batch::new(items, seqids, spread)).await
    }

    /// Executes a batch in one session, or in the current ones.
    async fn run_batch(
        &self,
        fixed: Option<&Arc<Session>>,
        caller: &Caller,
        mut batch: Batch,
    ) -> (Vec<ItemOutcome>, Vec<Seqid>) {
        let mut running = FuturesUnordered::new();
        batch.end = self.retry_deadline();
        let has_writes = batch.has_writes();
        loop {
            let limits = match fixed {
                Some(session) => session.limits,
                None => match self.session().await {
                    Ok(session) => session.limits,
                    Err(error) => return batch.fail_rest(&error),
                },
            };
            // A server that has restarted may be another one.
            batch.write_start = has_writes.then(|| self.write_start.limit());
            batch.resume(self.engine.now());
            let in_flight_max = limits.in_flight as usize;
            while running.len() < in_flight_max {
                let Some(numbers) = batch.next_compound(self.compound_size.get(&limits), &limits) else {
                    break;
                };
                let ops = batch.start(&numbers);
                running.push(async move {
                    let outcome = match fixed {
                        Some(session) => execute_in(session, caller, &ops).await,
                        None => self.compound(caller, &ops, false).await,
                    };
                    (numbers, ops.len(), outcome)
                });
            }
            let ended = match (running.is_empty(), batch.next_resumption()) {
                (true, None) => return batch.finish(),
                (true, Some(due)) => {
                    self.engine.sleep_until(due).await;
                    None
                }
                (false, None) => running.next().await,
                (false, Some(due)) => match select(running.next(), self.engine.sleep_until(due)).await {
                    Either::Left((ended, _)) => ended,
                    Either::Right(_) => None,
                },
            };
            let Some((numbers, operations, outcome)) = ended else { continue };
            match batch.handle(&numbers, outcome, self.engine.now()) {
                Some(Failure::Smaller) => self.compound_size.shrink(operations),
                Some(Failure::Later | Failure::Final) => {}
                None => self.compound_size.grow(operations),
            }
        }
    }
}

/// Executes a compound in this session only.
async fn execute_in(session: &Arc<Session>, caller: &Caller, ops: &[Op]) -> Result<Results, OpError> {
    session.compound(caller.credential(), ops, false).await.map_err(|error| match error {
        Unexecuted::SessionLost { .. } | Unexecuted::ReplyLost => OpError::Status(Status::BADSESSION),
        Unexecuted::Refused(status) => OpError::Status(status),
        Unexecuted::Call(error) => OpError::Call(error),
    })
}

impl Batch {
    fn new(items: Vec<Item>, seqids: Vec<Seqid>, spread: usize) -> Self {
        let count = items.len();
        let share = if spread == SEPARATE { 1 } else { count.div_ceil(spread).max(ITEMS_MIN) };
        Self {
            items,
            outcomes: (0..count).map(|_| None).collect(),
            tries: vec![0; count],
            seqids,
            sent: vec![0; count],
            waiting: (0..count).collect(),
            paused: BTreeSet::new(),
            end: Duration::MAX,
            is_delayed: vec![false; count],
            items_max: share,
            share,
            write_start: None,
        }
    }

    fn has_writes(&self) -> bool {
        self.items.iter().any(|item| item.ops.iter().any(|op| matches!(op, Op::Write(_))))
    }

    /// Returns when [`Self::resume`] has something to do.
    fn next_resumption(&self) -> Option<Duration> {
        self.paused.first().map(|(due, _)| *due)
    }

    /// Ends the pauses that are over.
    fn resume(&mut self, now: Duration) {
        while let Some((due, number)) = self.paused.first().copied()
            && due <= now
        {
            self.paused.pop_first();
            self.waiting.push_back(number);
        }
    }

    /// Takes items for a compound of at most `operations`: the next ones, as many as fit; at least one.
    fn next_compound(&mut self, operations: usize, limits: &Limits) -> Option<Vec<usize>> {
        let (mut left_ops, mut left_request, mut left_reply) = (
            operations,
            (limits.request as usize).saturating_sub(OVERHEAD),
            (limits.response as usize).saturating_sub(OVERHEAD),
        );
        let mut taken = Vec::new();
        let mut size = OVERHEAD;
        while let Some(number) = self.waiting.front().copied() {
            let item = &self.items[number];
            let Item { ops, request, reply } = item;
            let (offset, own_size) = self.write_start.map_or((None, 0), |_| item.write_offset());
            let starts_early = offset.is_none_or(|offset| Some(size + offset) <= self.write_start);
            size += own_size;
            let fits = starts_early
                && ops.len() <= left_ops
                && *request <= left_request
                && *reply <= left_reply
                && taken.len() < self.items_max
                && !self.is_delayed[number];
            if !fits && !taken.is_empty() {
                break;
            }
            left_ops = left_ops.saturating_sub(ops.len());
            left_request = left_request.saturating_sub(*request);
            left_reply = left_reply.saturating_sub(*reply);
            self.waiting.pop_front();
            taken.push(number);
            // An item that was part of a compound too large is finally tried alone.
            if self.is_delayed[number] || self.tries[number] > TRIES_MAX / 2 {
                break;
            }
        }
        (!taken.is_empty()).then_some(taken)
    }

    /// Returns the operations of items, which are sent now.
    fn start(&mut self, numbers: &[usize]) -> Vec<Op> {
        let mut ops = Vec::new();
        for number in numbers {
            let seqid = self.seqids[*number].start_request();
            self.sent[*number] = seqid;
            ops.extend(self.items[*number].ops.iter().cloned().map(|mut op| {
                set_seqid(&mut op, seqid);
                op
            }));
        }
        ops
    }

    /// Updates the seqids of items by the results of their compound.
    fn end(&mut self, numbers: &[usize], results: &Results) {
        let mut at = 0;
        for number in numbers {
            let ops = &self.items[*number].ops;
            let status = ops.iter().position(has_seqid).and_then(|own| results.status_at(at + own));
            self.seqids[*number].end_request(self.sent[*number], status);
            at += ops.len();
        }
    }

    /// Handles the outcome of a compound with these items; returns the reaction to a failure.
    fn handle(
        &mut self,
        numbers: &[usize],
        outcome: Result<Results, OpError>,
        now: Duration,
    ) -> Option<Failure> {
        let mut results = match outcome {
            Ok(results) => results,
            Err(OpError::Status(status)) if failure(status) != Failure::Final => {
                return Some(self.retry(numbers, status, now));
            }
            Err(error) => {
                for number in numbers {
                    self.outcomes[*number] = Some(Err(error.clone()));
                }
                return Some(Failure::Final);
            }
        };
        self.end(numbers, &results);
        let is_repeated = results.is_repeated;
        for (at, number) in numbers.iter().enumerate() {
            let own: Vec<OpResult> = results.take_results(self.items[*number].ops.len());
            let status = own.last().map_or(Status::OK, HasStatus::status);
            let is_whole = own.len() == self.items[*number].ops.len() && status == Status::OK;
            if is_whole {
                self.outcomes[*number] = Some(Ok(Results::new(Status::OK, own, is_repeated)));
                continue;
            }
            if own.is_empty() && results.status() == Status::OK {
                let error = OpError::BadReply("results are missing");
                self.outcomes[*number] = Some(Err(error));
                continue;
            }
            let status = if own.is_empty() { results.status() } else { status };
            let has_changed = own.iter().any(|result| {
                result.status() == Status::OK && matches!(result, OpResult::Open(_) | OpResult::Create(_))
            });
            if failure(status) != Failure::Final && !has_changed {
                return Some(self.retry(&numbers[at..], status, now));
            }
            self.outcomes[*number] = Some(Ok(Results::new(status, own, is_repeated)));
            self.items_max = at.max(1);
            // The following ones were not executed.
            for number in numbers[at + 1..].iter().rev() {
                self.waiting.push_front(*number);
            }
            return Some(if has_changed { failure(status) } else { Failure::Final });
        }
        self.items_max = self.items_max.max(2 * numbers.len()).min(self.share);
        None
    }

    /// Returns items to the queue whose compound ended before them; the first of these failed. After DELAY and GRACE all of them
    /// wait, the first one twice as long after each failure.
    fn retry(&mut self, numbers: &[usize], status: Status, now: Duration) -> Failure {
        let failure = failure(status);
        let Some((first, rest)) = numbers.split_first() else { return failure };
        self.tries[*first] += 1;
        let gives_up =
            if failure == Failure::Later { now >= self.end } else { self.tries[*first] > TRIES_MAX };
        if gives_up {
            self.outcomes[*first] = Some(Err(OpError::Status(status)));
        }
        let again = if gives_up { rest } else { numbers };
        if failure == Failure::Later {
            self.is_delayed[*first] = true;
            for number in again {
                let tries = if number == first { self.tries[*first] } else { 1 };
                self.paused.insert((now + pause(tries), *number));
            }
        } else {
            for number in again.iter().rev() {
                self.waiting.push_front(*number);
            }
        }
        failure
    }

    fn fail_rest(mut self, error: &OpError) -> (Vec<ItemOutcome>, Vec<Seqid>) {
        for outcome in &mut self.outcomes {
            outcome.get_or_insert_with(|| Err(error.clone()));
        }
        self.finish()
    }

    fn finish(self) -> (Vec<ItemOutcome>, Vec<Seqid>) {
        let missing = || Err(OpError::BadReply("results are missing"));
        let outcomes = self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect();
        (outcomes, self.seqids)
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::types::Handle;

    use super::super::wire::put;
    use super::*;

    const LIMITS: Limits = Limits { request: 100_000, response: 100_000, operations: 50, in_flight: 4 };

    const NOW: Duration = Duration::from_secs(100);

    fn batch(count: usize, ops: usize, reply: usize) -> Batch {
        let item = Item { ops: vec![put(Handle::default()); ops], request: 100, reply };
        Batch::new(vec![item; count], vec![Seqid::Ignored; count], 1)
    }

    fn results(statuses: &[Status]) -> Results {
        let result = |status: &Status| {
            OpResult::PutFh(match *status {
                Status::OK => Ok(()).into(),
                status => Err(status).into(),
            })
        };
        Results::new(*statuses.last().unwrap(), statuses.iter().map(result).collect(), false)
    }

    fn statuses(batch: Batch) -> Vec<Status> {
        batch
            .finish()
            .0
            .into_iter()
            .map(|outcome| outcome.map_or_else(|_| Status::IO, |own| own.status()))
            .collect()
    }

    #[test]
    fn compounds_keep_within_operations_and_bytes() {
        assert_eq!(batch(100, 5, 10).next_compound(49, &LIMITS).unwrap().len(), 9);
        assert_eq!(batch(100, 5, 30_000).next_compound(49, &LIMITS).unwrap().len(), 3);
        assert_eq!(batch(2, 60, 1 << 20).next_compound(49, &LIMITS).unwrap(), [0], "one is tried");
        assert_eq!(batch(0, 1, 1).next_compound(49, &LIMITS), None);
    }

    #[test]
    fn a_failed_item_fails_alone_and_later_ones_are_repeated() {
        let mut batch = batch(3, 2, 10);
        let numbers = batch.next_compound(49, &LIMITS).unwrap();
        let failed =
            batch.handle(&numbers, Ok(results(&[Status::OK, Status::OK, Status::OK, Status::NOENT])), NOW);
        assert_eq!((failed, &batch.waiting), (Some(Failure::Final), &VecDeque::from([2])));
        let numbers = batch.next_compound(49, &LIMITS).unwrap();
        assert_eq!(batch.handle(&numbers, Ok(results(&[Status::OK, Status::OK])), NOW), None);
        assert_eq!(statuses(batch), [Status::OK, Status::NOENT, Status::OK]);
    }

    #[test]
    fn seqids_advance_only_for_items_that_were_executed() {
        use protocol::nfs4::ops::close::CloseArgs;
        use protocol::nfs4::types::Stateid;
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::ANONYMOUS });
        let item = Item { ops: vec![put(Handle::default()), close], request: 1, reply: 1 };
        let mut batch = Batch::new(vec![item; 3], vec![Seqid::Next(7); 3], 1);
        let numbers = batch.next_compound(49, &LIMITS).unwrap();
        let ops = batch.start(&numbers);
        assert!(matches!(&ops[5], Op::Close(args) if args.seqid == 7));
        let failed = results(&[Status::OK, Status::OK, Status::OK, Status::DELAY]);
        assert_eq!(batch.handle(&numbers, Ok(failed), NOW), Some(Failure::Later));
        assert_eq!(batch.seqids, [Seqid::Next(8), Seqid::Next(8), Seqid::Next(7)], "DELAY advances it too");
        batch.resume(NOW + DELAY_FIRST);
        let numbers = batch.next_compound(49, &LIMITS).unwrap();
        assert!(matches!(&batch.start(&numbers)[1], Op::Close(args) if args.seqid == 8));
        batch.handle(&numbers, Err(OpError::Status(Status::BADSESSION)), NOW);
        assert_eq!(
            batch.finish().1,
            [Seqid::Next(8), Seqid::Unknown, Seqid::Next(7)],
            "the last was not sent"
        );
    }

    #[test]
    fn items_are_spread_over_compounds() {
        let item = Item { ops: vec![put(Handle::default())], request: 1, reply: 1 };
        for (count, spread, expected) in
            [(100, 1, 49), (40, 4, 10), (10, 4, ITEMS_MIN), (3, 4, 3), (40, SEPARATE, 1)]
        {
            let mut batch = Batch::new(vec![item.clone(); count], vec![Seqid::Ignored; count], spread);
            assert_eq!(batch.next_compound(49, &LIMITS).unwrap().len(), expected, "{count} over {spread}");
        }
    }

    #[test]
    fn items_after_failures_spread_over_compounds() {
        let mut batch = batch(20, 1, 10);
        let numbers = batch.next_compound(49, &LIMITS).unwrap();
        assert_eq!(numbers.len(), 20);
        batch.handle(&numbers, Ok(results(&[Status::NOENT])), NOW);
        let next: Vec<usize> =
            (0..3).map(|_| batch.next_compound(49, &LIMITS).unwrap()).map(|numbers| numbers.len()).collect();
        assert_eq!(next, [1, 1, 1], "the first item failed");
        batch.handle(&[1], Ok(results(&[Status::OK])), NOW);
        assert_eq!(batch.next_compound(49, &LIMITS).unwrap().len(), 2, "it grows again");
    }

    #[test]
    fn a_delayed_item_waits_longer_each_time_and_does_not_hold_up_others() {
        let mut batch = batch(4, 1, 10);
        let numbers = batch.next_compound(49, &LIMITS).unwrap();
        let delayed = batch.handle(&numbers, Ok(results(&[Status::OK, Status::DELAY])), NOW);
        assert_eq!((delayed, batch.waiting.len()), (Some(Failure::Later), 0));
        assert_eq!(batch.next_resumption(), Some(NOW + DELAY_FIRST));
        batch.resume(NOW + DELAY_FIRST);
        assert_eq!(batch.next_compound(49, &LIMITS).unwrap(), [1], "alone");
        assert_eq!(batch.next_compound(49, &LIMITS).unwrap(), [2, 3]);
        assert_eq!(batch.handle(&[2, 3], Ok(results(&[Status::OK; 2])), NOW), None);
        let mut now = NOW + DELAY_FIRST;
        for tries in 2..=22 {
            batch.handle(&[1], Ok(results(&[Status::DELAY])), now);
            let due = batch.next_resumption().unwrap();
            let doubled = DELAY_FIRST.saturating_mul(2_u32.saturating_pow(tries - 1));
            assert_eq!(due, now + doubled.min(DELAY_MAX));
            now = due;
            batch.resume(now);
            assert_eq!(batch.next_compound(49, &LIMITS).unwrap(), [1]);
        }
        batch.end = now;
        batch.handle(&[1], Ok(results(&[Status::DELAY])), now);
        assert_eq!(batch.next_resumption(), None, "a soft mount gives up");
        assert!(matches!(batch.outcomes[1], Some(Err(OpError::Status(Status::DELAY)))));
    }

    #[test]
    fn compounds_that_are_delayed_together_wait_together() {
        let item = Item { ops: vec![put(Handle::default())], request: 1, reply: 1 };
        let mut batch = Batch::new(vec![item; 512], vec![Seqid::Ignored; 512], SPREAD);
        let sent: Vec<Vec<usize>> = (0..SPREAD).map(|_| batch.next_compound(49, &LIMITS).unwrap()).collect();
        for numbers in &sent {
            batch.handle(numbers, Ok(results(&[Status::DELAY])), NOW);
        }
        batch.resume(NOW + DELAY_FIRST);
        assert_eq!((batch.waiting.len(), batch.next_resumption()), (512, None));
    }

    #[test]
    fn an_item_of_a_compound_too_large_is_repeated_with_later_ones() {
        let mut batch = batch(3, 1, 10);
        let numbers = batch.next_compound(49, &LIMITS).unwrap();
        let too_big = batch.handle(&numbers, Err(OpError::Status(Status::REP_TOO_BIG)), NOW);
        assert_eq!((too_big, batch.waiting.len()), (Some(Failure::Smaller), 3));
    }
}
