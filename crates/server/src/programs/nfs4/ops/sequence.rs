//! SEQUENCE (RFC 8881 §18.46): takes a slot, or finds the kept reply of a retransmission.

use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::{Failure, Result};
use crate::state::Sequenced;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = SequenceArgs::decode(arguments)?;
    match compound.begin(&arguments)? {
        Sequenced::New(running) => {
            running.sequence().encode(reply);
            compound.enter(running);
            Ok(())
        }
        Sequenced::Replay(replay) => match replay.reply {
            Some(cached) => Err(Failure::Replay(cached)),
            None => {
                // RFC 8881 §2.10.6.1.3: SEQUENCE's result, "with the next operation in COMPOUND … having the error
                // NFS4ERR_RETRY_UNCACHED_REP".
                replay.sequence.encode(reply);
                compound.refuse_rest(Status::RETRY_UNCACHED_REP);
                Ok(())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::remove::RemoveArgs;
    use protocol::nfs4::ops::session::SequenceStatus;

    use super::*;
    use crate::testing::{at, compound, lab, name};

    #[test]
    fn takes_its_slot_and_returns_the_slot_count() {
        let mut lab = lab();
        let result = lab.run(vec![]);
        let OpResult::Sequence(sequence) = &result.results[0] else { panic!() };
        let sequence = sequence.as_result().unwrap();
        assert_eq!((sequence.session_id, sequence.slot_id), (lab.session, 0));
        assert_eq!(sequence.sequence_id, lab.sequence);
        assert!(sequence.target_highest_slot_id >= 63, "the client requested 64 slots");
        assert!(!sequence.status_flags.contains(SequenceStatus::RESTART_RECLAIM_NEEDED));
    }

    #[test]
    fn a_retransmission_is_replayed() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let remove = Op::Remove(RemoveArgs { target: name("file") });
        let mut ops = vec![lab.next(true)];
        ops.extend(at(&["export"], vec![remove]));
        let args = xdr::to_bytes(&compound(ops));
        let first = lab.raw(&args).unwrap();
        let again = lab.raw(&args).unwrap();
        assert_eq!(first, again, "byte for byte");
        assert_eq!(lab.server.metrics().replayed.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn refuses_unknown_sessions_slots_and_numbers() {
        let mut lab = lab();
        let Op::Sequence(good) = lab.next(false) else { panic!() };
        for (args, status) in [
            (SequenceArgs { session_id: [7; 16], ..good }, Status::BADSESSION),
            (SequenceArgs { slot_id: 1 << 20, highest_slot_id: 1 << 20, ..good }, Status::BADSLOT),
            (SequenceArgs { sequence_id: good.sequence_id + 1, ..good }, Status::SEQ_MISORDERED),
        ] {
            let result = lab.send(&compound(vec![Op::Sequence(args), Op::PutRootFh]));
            assert_eq!((result.status, result.results.len()), (status, 1));
        }
        // None of these errors changed the slot.
        assert_eq!(lab.send(&compound(vec![Op::Sequence(good)])).status, Status::OK);
    }
}
