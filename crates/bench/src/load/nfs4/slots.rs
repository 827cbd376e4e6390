//! Requests of a session, their slots, and the last request on each slot.

use std::cell::Cell;

use protocol::nfs4;
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::{Outcome as Answer, SessionId, Status, Utf8};
use xdr::List;

use super::NFS4;
use crate::load::replies::Reply;
use crate::load::template::{Template, patch};

/// Returns the arguments of a compound in version 4.`minor_version`.
///
/// # Panics
/// If there are more operations than a compound can have.
#[must_use]
pub fn arguments(minor_version: u32, operations: Vec<Op>) -> CompoundArgs {
    let ops = List::new(operations).expect("few operations");
    CompoundArgs { tag: Utf8::from_static(b""), minor_version, ops }
}

/// Returns the operations' results, if all succeeded.
pub(super) fn all_well(result: CompoundResult) -> Result<Vec<OpResult>, String> {
    if result.status == Status::OK {
        Ok(result.results.into_vec())
    } else {
        Err(format!("{:?} from operation {}", result.status, result.results.len()))
    }
}

/// Whether the server must keep the reply for a retransmission (`sa_cachethis`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// The request may be executed twice.
    No,
    /// It may not.
    Yes,
}

/// The slots of a session. Single calls and the measured load share them, never at the same time.
#[derive(Debug)]
pub(super) struct Slots {
    session: SessionId,
    minor_version: u32,
    /// Sequence id last used, by slot.
    sequences: Vec<Cell<u32>>,
}

impl Slots {
    /// Takes over the slots of a session, with the sequence id last used on each.
    pub(super) fn new(session: SessionId, minor_version: u32, sequences: Vec<u32>) -> Self {
        Self { session, minor_version, sequences: sequences.into_iter().map(Cell::new).collect() }
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> usize {
        self.sequences.len()
    }

    /// Counts a request on `slot` and returns its sequence id.
    fn advance(&self, slot: usize) -> u32 {
        let sequence = self.sequences[slot].get().wrapping_add(1);
        self.sequences[slot].set(sequence);
        sequence
    }

    fn sequence(&self, slot: usize, sequence_id: u32, highest: usize, keep: Keep) -> SequenceArgs {
        SequenceArgs {
            session_id: self.session,
            sequence_id,
            slot_id: slot as u32,
            highest_slot_id: highest as u32,
            cache_this: keep == Keep::Yes,
        }
    }

    /// Returns the SEQUENCE of the next single call, on the first slot.
    pub(super) fn single(&self) -> SequenceArgs {
        self.sequence(0, self.advance(0), 0, Keep::No)
    }

    /// Returns a compound of `operations` that is sent repeatedly on `slot`.
    pub(super) fn request(&self, slot: usize, keep: Keep, operations: &[Op]) -> Request {
        let render = |sequence_id| {
            let sequence = Op::Sequence(self.sequence(slot, sequence_id, self.count() - 1, keep));
            let compound = arguments(self.minor_version, [&[sequence], operations].concat());
            Template::call(NFS4, nfs4::PROC_COMPOUND, &compound)
        };
        let template = render(0);
        let sequence_at = Template::field(&template, &render(u32::MAX));
        Request { slot, template, sequence_at }
    }

    /// Checks the reply to the last request of `slot` and returns what follows its SEQUENCE.
    pub(super) fn results(&self, slot: usize, reply: &Reply<'_>) -> Result<Vec<OpResult>, String> {
        let mut results = all_well(reply.results::<CompoundResult>()?)?;
        let Some(OpResult::Sequence(Answer::Ok(sequence))) = results.first() else {
            return Err(format!("results {results:?}"));
        };
        let sent = (self.session, slot as u32, self.sequences[slot].get());
        if (sequence.session_id, sequence.slot_id, sequence.sequence_id) != sent {
            return Err(format!("{sequence:?} for another request"));
        }
        results.remove(0);
        Ok(results)
    }
}

/// A compound that is sent many times on one slot.
#[derive(Debug)]
pub(super) struct Request {
    slot: usize,
    template: Template,
    sequence_at: usize,
}

impl Request {
    /// Appends the next request to `out` and returns where it starts there.
    pub(super) fn append(&self, slots: &Slots, xid: u32, out: &mut Vec<u8>) -> usize {
        let start = self.template.append(xid, out);
        patch(out, start + self.sequence_at, &slots.advance(self.slot).to_be_bytes());
        start
    }

    /// Returns the rendered request.
    pub(super) fn into_template(self) -> Template {
        self.template
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdr::Reader;

    /// Returns the sequence arguments of the request in `record`.
    fn sequence_in(record: &[u8]) -> (u32, SequenceArgs) {
        let mut reader = Reader::new(bytes::Bytes::copy_from_slice(&record[4..]));
        rpc::message::CallHeader::parse(&mut reader).unwrap();
        let compound = <CompoundArgs as xdr::Decode>::decode(&mut reader).unwrap();
        match compound.ops.first() {
            Some(Op::Sequence(sequence)) => (compound.minor_version, *sequence),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_slot_counts_its_own_requests() {
        let slots = Slots::new([7; 16], 2, vec![0; 3]);
        let requests = [0, 2].map(|slot| slots.request(slot, Keep::Yes, &[Op::PutRootFh]));
        let mut sent = Vec::new();
        // RFC 8881 §18.46.3: a slot's sequence id rises by one with each request on it, from 1.
        for index in [0, 1, 1, 0, 1] {
            let mut out = Vec::new();
            requests[index].append(&slots, 9, &mut out);
            let (minor_version, sequence) = sequence_in(&out);
            assert_eq!((minor_version, sequence.session_id), (2, [7; 16]));
            assert!(sequence.cache_this && sequence.highest_slot_id == 2);
            sent.push((sequence.slot_id, sequence.sequence_id));
        }
        assert_eq!(sent, [(0, 1), (2, 1), (2, 2), (0, 2), (2, 3)]);
        let single = slots.single();
        assert_eq!((single.slot_id, single.sequence_id), (0, 3));
    }
}
