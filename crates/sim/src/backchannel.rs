//! A client's end of the back channel: executes each callback once, however often it arrives.

use std::collections::HashMap;

use bytes::Bytes;
use protocol::nfs4::callback::sequence::CbSequenceOk;
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::types::{HasStatus, Outcome, Status, Utf8};
use rpc::message::{CallHeader, encode_success};
use xdr::{Decode, Encode, List, Reader, Writer};

/// The cached replies of the slots.
#[derive(Debug, Default)]
pub(crate) struct BackChannel {
    /// For each slot, the last sequence ID and its reply.
    answered: HashMap<u32, (u32, Bytes)>,
}

impl BackChannel {
    /// Forgets all slots, for a new session.
    pub(crate) fn clear(&mut self) {
        self.answered.clear();
    }

    /// Returns the reply to a callback; none to an old copy, which no real connection would deliver. `execute` runs once for each
    /// callback. If it returns `None`, CB_SEQUENCE returns DELAY and the slot is unchanged.
    ///
    /// # Errors
    /// Returns the error in the callback.
    pub(crate) fn called(
        &mut self,
        bytes: Bytes,
        execute: impl FnOnce(&CbOp) -> Result<Option<CbOpResult>, String>,
    ) -> Result<Option<Bytes>, String> {
        let (header, args) = parse(bytes)?;
        let mut reply = Writer::new();
        encode_success(&mut reply, header.xid);
        let Some(args) = args else { return Ok(Some(reply.into_bytes())) };
        let [CbOp::Sequence(sequence), op] = &args.ops[..] else { return Err(format!("{args:?}")) };
        let (last, results) = self.answered.get(&sequence.slot_id).cloned().unwrap_or_default();
        if sequence.sequence_id < last {
            return Ok(None);
        }
        if sequence.sequence_id == last {
            reply.raw(&results);
            return Ok(Some(reply.into_bytes()));
        }
        let ok = CbSequenceOk {
            session_id: sequence.session_id,
            sequence_id: sequence.sequence_id,
            slot_id: sequence.slot_id,
            highest_slot_id: sequence.highest_slot_id,
            target_highest_slot_id: sequence.highest_slot_id,
        };
        match execute(op)? {
            None => {
                let later = CbOpResult::Sequence(Outcome::Error(Status::DELAY));
                reply.raw(&encoded(Status::DELAY, vec![later]));
            }
            Some(result) => {
                let status = result.status();
                let results = encoded(status, vec![CbOpResult::Sequence(Outcome::Ok(ok)), result]);
                self.answered.insert(sequence.slot_id, (sequence.sequence_id, results.clone()));
                reply.raw(&results);
            }
        }
        Ok(Some(reply.into_bytes()))
    }
}

/// Returns a call's header, and its arguments unless it is CB_NULL.
fn parse(bytes: Bytes) -> Result<(CallHeader, Option<CbCompoundArgs>), String> {
    let mut reader = Reader::new(bytes);
    let header = CallHeader::parse(&mut reader).map_err(|error| format!("{error:?}"))?;
    if header.procedure == callback::PROC_NULL {
        return Ok((header, None));
    }
    let args = CbCompoundArgs::decode(&mut reader).map_err(|error| error.to_string())?;
    Ok((header, Some(args)))
}

/// Returns the operation of a call after CB_SEQUENCE.
///
/// # Errors
/// Returns the malformed part.
pub(crate) fn operation(call: &Bytes) -> Result<Option<CbOp>, String> {
    let (_, args) = parse(call.clone())?;
    Ok(args.and_then(|args| args.ops.into_vec().pop()))
}

fn encoded(status: Status, results: Vec<CbOpResult>) -> Bytes {
    let results = List::new(results).expect("two results at most");
    let mut writer = Writer::new();
    CbCompoundResult { status, tag: Utf8::default(), results }.encode(&mut writer);
    writer.into_bytes()
}
