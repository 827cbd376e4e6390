//! Callbacks of version 4.0 (RFC 7530 §17, §18), over connections that the server makes.
//!
//! Anybody who can connect can send them. The transport accepts connections of the server's addresses only, and
//! each CB_COMPOUND must have the `callback_ident` of SETCLIENTID, a random number that only the server knows (§16.33.4).

use bytes::Bytes;
use protocol::nfs4::callback::{CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::types::{HasStatus, Status};
use rpc::auth::AuthStatus;

use super::callback::{CallbackHandler, answer, outcome};
use crate::config::Config;

/// The answer to a callback.
pub(super) struct Answer {
    /// The record of the reply; `None` if no reply is possible.
    pub(super) reply: Option<Bytes>,
    /// Whether the call had the client's `callback_ident`.
    pub(super) is_proven: bool,
}

/// Returns the client's `callback_ident`. A process that continues the client has the same.
pub(super) fn callback_ident(config: &Config) -> u32 {
    let [.., a, b, c, d] = config.verifier;
    u32::from_be_bytes([a, b, c, d])
}

/// Answers a callback.
pub(super) fn answer_v40(record: Bytes, ident: u32, handler: &dyn CallbackHandler) -> Answer {
    let mut is_proven = false;
    let reply = answer(record, |compound| {
        if compound.callback_ident != ident {
            // As Linux's client does.
            return Err(AuthStatus::BADCRED);
        }
        is_proven = true;
        Ok(execute(compound, handler))
    });
    Answer { reply, is_proven }
}

fn execute(compound: &CbCompoundArgs, handler: &dyn CallbackHandler) -> CbCompoundResult {
    if compound.minor_version != 0 {
        // §17.2.4: with a "zero-length resarray".
        return outcome(compound, Status::MINOR_VERS_MISMATCH, Vec::new());
    }
    let (mut results, mut status) = (Vec::new(), Status::OK);
    for op in &*compound.ops {
        let result = match op {
            CbOp::GetAttr(_) | CbOp::Recall(_) => handler.execute(op),
            // §18.3: others belong to later minor versions.
            _ => CbOpResult::Illegal(Err(Status::OP_ILLEGAL).into()),
        };
        status = result.status();
        results.push(result);
        if status != Status::OK {
            break;
        }
    }
    outcome(compound, status, results)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use protocol::nfs4::callback::recall::{CbRecallAnyArgs, CbRecallArgs};
    use protocol::nfs4::callback::{PROC_COMPOUND, PROC_NULL, VERSION};
    use protocol::nfs4::types::{CallbackOpNum, Handle, Stateid};
    use rpc::message::{AcceptStatus, CallHeader, Rejection, RpcError, encode_call, parse_reply};
    use xdr::{List, Opaque, Writer};

    use super::super::callback::CALLBACK_PROGRAM;
    use super::*;

    const IDENT: u32 = 77;

    #[derive(Default)]
    struct Recalled(RefCell<Vec<CallbackOpNum>>);

    impl CallbackHandler for Recalled {
        fn execute(&self, op: &CbOp) -> CbOpResult {
            self.0.borrow_mut().push(op.opnum());
            CbOpResult::Recall(Ok(()).into())
        }
    }

    fn recall() -> CbOp {
        CbOp::Recall(CbRecallArgs { stateid: Stateid::ANONYMOUS, truncate: false, handle: Handle::default() })
    }

    fn call(ident: u32, minor_version: u32, ops: Vec<CbOp>) -> Bytes {
        let ops = List::new(ops).unwrap();
        let args =
            CbCompoundArgs { tag: Opaque::from_static(b"tag"), minor_version, callback_ident: ident, ops };
        let mut writer = Writer::new();
        encode_call(&mut writer, &CallHeader::new(5, CALLBACK_PROGRAM, VERSION, PROC_COMPOUND), &args);
        writer.into_bytes()
    }

    fn result(answer: Answer) -> Result<CbCompoundResult, RpcError> {
        parse_reply(answer.reply.expect("a reply"))
    }

    #[test]
    fn only_calls_with_the_ident_are_executed() {
        let handler = Recalled::default();
        let genuine = answer_v40(call(IDENT, 0, vec![recall(), recall()]), IDENT, &handler);
        assert!(genuine.is_proven);
        let reply = result(genuine).unwrap();
        assert_eq!((reply.status, reply.results.len(), &reply.tag[..]), (Status::OK, 2, &b"tag"[..]));
        let forged = answer_v40(call(IDENT + 1, 0, vec![recall()]), IDENT, &handler);
        assert!(!forged.is_proven);
        let refused = RpcError::Denied(Rejection::AuthError(AuthStatus::BADCRED));
        assert_eq!(result(forged).unwrap_err(), refused);
        assert_eq!(*handler.0.borrow(), [CallbackOpNum::RECALL; 2]);
    }

    #[test]
    fn operations_and_versions_that_4_0_does_not_have_are_refused() {
        let handler = Recalled::default();
        let any = CbRecallAnyArgs { objects_to_keep: 0, type_mask: Default::default() };
        let ops = vec![recall(), CbOp::RecallAny(any), recall()];
        let reply = result(answer_v40(call(IDENT, 0, ops), IDENT, &handler)).unwrap();
        assert_eq!((reply.status, reply.results.len()), (Status::OP_ILLEGAL, 2));
        assert_eq!(reply.results[1].opnum(), CallbackOpNum::ILLEGAL);
        let reply = result(answer_v40(call(IDENT, 1, vec![recall()]), IDENT, &handler)).unwrap();
        assert_eq!((reply.status, reply.results.len()), (Status::MINOR_VERS_MISMATCH, 0));
        assert_eq!(handler.0.borrow().len(), 1);
    }

    #[test]
    fn the_null_procedure_is_answered_and_other_records_are_not_executed() {
        let handler = Recalled::default();
        let mut null = Writer::new();
        encode_call(&mut null, &CallHeader::new(5, CALLBACK_PROGRAM, VERSION, PROC_NULL), &());
        let answer = answer_v40(null.into_bytes(), IDENT, &handler);
        assert_eq!((parse_reply::<()>(answer.reply.unwrap()), answer.is_proven), (Ok(()), false));
        let whole = call(IDENT, 0, vec![recall()]);
        for length in (0..whole.len()).step_by(4) {
            let cut = answer_v40(whole.slice(..length), IDENT, &handler);
            assert!(!cut.is_proven && cut.reply.is_none_or(|reply| parse_reply::<()>(reply).is_err()));
        }
        let long = Bytes::from([&whole[..], &[0; 4]].concat());
        let garbage = RpcError::NotExecuted(AcceptStatus::GarbageArguments);
        assert_eq!(result(answer_v40(long, IDENT, &handler)).unwrap_err(), garbage);
        assert!(handler.0.borrow().is_empty());
    }
}
