//! Callbacks of the server over the session's back channel (RFC 8881 §2.10.3, §20).

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::callback::sequence::{CbSequenceArgs, CbSequenceOk};
use protocol::nfs4::callback::{
    CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult, PROC_COMPOUND, PROC_NULL, VERSION,
};
use protocol::nfs4::types::{HasStatus, SessionId, Status};
use rpc::auth::AuthStatus;
use rpc::message::{AcceptStatus, CallError, CallHeader, ReplyHeader, VersionRange, encode_success};
use xdr::{Decode, Encode, List, Reader, Writer};

/// Slots of the back channel.
pub(crate) const CALLBACK_SLOTS: u32 = 16;
/// A transient program number (RFC 5531 §8.3) for callbacks.
pub(crate) const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// The slots of a session's back channel at the client: the reply cache of its callbacks.
#[derive(Debug)]
pub(crate) struct CallbackSlots {
    session: SessionId,
    slots: Mutex<Vec<CallbackSlot>>,
}

#[derive(Debug, Clone, Default)]
struct CallbackSlot {
    /// The sequence ID of the last callback; 0 before the first.
    sequence: u32,
    /// The reply to it, for a repetition.
    reply: Option<CbCompoundResult>,
}

/// Executes the requests of callbacks.
pub trait CallbackHandler {
    /// Executes one operation after CB_SEQUENCE.
    fn execute(&self, op: &CbOp) -> CbOpResult;
}

impl CallbackSlots {
    pub(crate) fn new(session: SessionId) -> Self {
        Self { session, slots: Mutex::new(vec![CallbackSlot::default(); CALLBACK_SLOTS as usize]) }
    }

    /// Answers a callback. Returns the record of the reply; `None` for a record to which no reply is possible.
    pub(crate) fn answer(&self, record: Bytes, handler: &dyn CallbackHandler) -> Option<Bytes> {
        answer(record, |compound| Ok(self.compound(compound, handler)))
    }

    fn compound(&self, compound: &CbCompoundArgs, handler: &dyn CallbackHandler) -> CbCompoundResult {
        let Some((CbOp::Sequence(sequence), ops)) = compound.ops.split_first() else {
            // §20.9.3: every callback of a session begins with CB_SEQUENCE.
            return outcome(compound, Status::OP_NOT_IN_SESSION, Vec::new());
        };
        let mut slots = self.slots.lock();
        let slot = match self.slot(&mut slots, sequence) {
            Ok(slot) => slot,
            Err(status) => {
                let failed = CbOpResult::Sequence(Err(status).into());
                return outcome(compound, status, vec![failed]);
            }
        };
        if slot.sequence == sequence.sequence_id
            && let Some(reply) = &slot.reply
        {
            return reply.clone();
        }
        let highest = CALLBACK_SLOTS - 1;
        let ok = CbSequenceOk {
            session_id: sequence.session_id,
            sequence_id: sequence.sequence_id,
            slot_id: sequence.slot_id,
            highest_slot_id: highest,
            target_highest_slot_id: highest,
        };
        let mut results = vec![CbOpResult::Sequence(Ok(ok).into())];
        let mut status = Status::OK;
        for op in ops {
            let result = match op {
                CbOp::Sequence(_) => CbOpResult::Sequence(Err(Status::SEQUENCE_POS).into()),
                op => handler.execute(op),
            };
            status = result.status();
            results.push(result);
            if status != Status::OK {
                break;
            }
        }
        let reply = outcome(compound, status, results);
        *slot = CallbackSlot { sequence: sequence.sequence_id, reply: Some(reply.clone()) };
        reply
    }

    /// Returns the slot of a callback that is new or a repetition (§2.10.6.1).
    fn slot<'a>(
        &self,
        slots: &'a mut [CallbackSlot],
        sequence: &CbSequenceArgs,
    ) -> Result<&'a mut CallbackSlot, Status> {
        if sequence.session_id != self.session {
            return Err(Status::BADSESSION);
        }
        let slot = slots.get_mut(sequence.slot_id as usize).ok_or(Status::BADSLOT)?;
        let is_repetition = slot.reply.is_some() && sequence.sequence_id == slot.sequence;
        if is_repetition || sequence.sequence_id == slot.sequence.wrapping_add(1) {
            Ok(slot)
        } else {
            Err(Status::SEQ_MISORDERED)
        }
    }
}

/// Answers a call of the callback program; `compound` executes CB_COMPOUND, or refuses its caller.
pub(super) fn answer(
    record: Bytes,
    compound: impl FnOnce(&CbCompoundArgs) -> Result<CbCompoundResult, AuthStatus>,
) -> Option<Bytes> {
    let mut reader = Reader::new(record);
    let header = match CallHeader::parse(&mut reader) {
        Ok(header) => header,
        Err(CallError::Refused(reply)) => return Some(xdr::to_bytes(&reply)),
        Err(CallError::Unanswerable(_)) => return None,
    };
    let refused = |status| Some(xdr::to_bytes(&ReplyHeader::accepted(header.xid, status)));
    if header.program != CALLBACK_PROGRAM {
        return refused(AcceptStatus::ProgramUnavailable);
    }
    if header.version != VERSION {
        return refused(AcceptStatus::ProgramMismatch(VersionRange { low: VERSION, high: VERSION }));
    }
    let mut reply = Writer::new();
    encode_success(&mut reply, header.xid);
    match header.procedure {
        PROC_NULL => {}
        PROC_COMPOUND => {
            let Ok(args) = CbCompoundArgs::decode(&mut reader).and_then(|args| {
                reader.finish()?;
                Ok(args)
            }) else {
                return refused(AcceptStatus::GarbageArguments);
            };
            match compound(&args) {
                Ok(result) => result.encode(&mut reply),
                Err(status) => return Some(xdr::to_bytes(&ReplyHeader::auth_error(header.xid, status))),
            }
        }
        _ => return refused(AcceptStatus::ProcedureUnavailable),
    }
    Some(reply.into_bytes())
}

/// Returns the result of a compound.
pub(super) fn outcome(
    compound: &CbCompoundArgs,
    status: Status,
    results: Vec<CbOpResult>,
) -> CbCompoundResult {
    CbCompoundResult {
        status,
        tag: compound.tag.clone(),
        // There are no more results than operations, which have the same bound.
        results: List::new(results).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use protocol::nfs4::callback::recall::CbRecallSlotArgs;
    use rpc::message::{encode_call, parse_reply};
    use xdr::Opaque;

    use super::*;

    /// Counts executed operations.
    #[derive(Default)]
    struct Counter(Cell<u32>);

    impl CallbackHandler for Counter {
        fn execute(&self, _: &CbOp) -> CbOpResult {
            self.0.set(self.0.get() + 1);
            CbOpResult::RecallSlot(Ok(()).into())
        }
    }

    fn sequence(session_id: SessionId, slot_id: u32, sequence_id: u32) -> CbOp {
        CbOp::Sequence(CbSequenceArgs {
            session_id,
            sequence_id,
            slot_id,
            highest_slot_id: 0,
            cache_this: true,
            referring_calls: List::default(),
        })
    }

    fn call(ops: Vec<CbOp>, program: u32) -> Bytes {
        let mut writer = Writer::new();
        let args = CbCompoundArgs {
            tag: Opaque::default(),
            minor_version: 1,
            callback_ident: 0,
            ops: List::new(ops).unwrap(),
        };
        encode_call(&mut writer, &CallHeader::new(5, program, VERSION, PROC_COMPOUND), &args);
        writer.into_bytes()
    }

    fn recall_slot() -> CbOp {
        CbOp::RecallSlot(CbRecallSlotArgs { target_highest_slot_id: 0 })
    }

    #[test]
    fn a_repeated_callback_is_answered_and_not_executed_again() {
        let (slots, counter) = (CallbackSlots::new([1; 16]), Counter::default());
        let record = call(vec![sequence([1; 16], 0, 1), recall_slot()], CALLBACK_PROGRAM);
        let first = slots.answer(record.clone(), &counter).unwrap();
        assert_eq!(parse_reply::<CbCompoundResult>(first.clone()).unwrap().status, Status::OK);
        assert_eq!(slots.answer(record, &counter), Some(first));
        assert_eq!(counter.0.get(), 1);
    }

    #[test]
    fn callbacks_out_of_order_or_for_other_sessions_are_refused() {
        let (slots, counter) = (CallbackSlots::new([1; 16]), Counter::default());
        let status = |ops| {
            let reply = slots.answer(call(ops, CALLBACK_PROGRAM), &counter).unwrap();
            parse_reply::<CbCompoundResult>(reply).unwrap().status
        };
        assert_eq!(status(vec![sequence([2; 16], 0, 1), recall_slot()]), Status::BADSESSION);
        assert_eq!(status(vec![sequence([1; 16], CALLBACK_SLOTS, 1), recall_slot()]), Status::BADSLOT);
        assert_eq!(status(vec![sequence([1; 16], 0, 2), recall_slot()]), Status::SEQ_MISORDERED);
        assert_eq!(status(vec![sequence([1; 16], 0, 0), recall_slot()]), Status::SEQ_MISORDERED);
        assert_eq!(status(vec![recall_slot()]), Status::OP_NOT_IN_SESSION);
        assert_eq!(counter.0.get(), 0);
    }

    #[test]
    fn other_records_get_the_errors_of_rpc() {
        let (slots, counter) = (CallbackSlots::new([1; 16]), Counter::default());
        let reply = slots.answer(call(vec![], 7), &counter).unwrap();
        assert!(parse_reply::<CbCompoundResult>(reply).is_err());
        assert_eq!(slots.answer(Bytes::from_static(&[0; 6]), &counter), None);
        let whole = call(vec![sequence([1; 16], 0, 1)], CALLBACK_PROGRAM);
        let cut = slots.answer(whole.slice(..whole.len() - 4), &counter).unwrap();
        assert!(parse_reply::<CbCompoundResult>(cut).is_err());
    }
}
