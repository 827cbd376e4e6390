//! Arguments that end too early, in every procedure except NFSv4's, which have their own tests.

#[path = "../../../protocol/tests/common/golden.rs"]
#[allow(dead_code, reason = "tshark's output about the messages is for the crate `protocol`")]
mod golden;

use std::collections::BTreeSet;

use rpc::message::{AcceptStatus, CallHeader, RpcError};
use xdr::Reader;

use crate::testing::{export, lab_with};

const PORTMAP: u32 = protocol::portmap::PROGRAM;

/// Recorded messages, the versions of their program that are served, and the procedures that have arguments.
const PROGRAMS: [(&str, &[u32], &[u32]); 5] = [
    ("nfs3", &[3], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]),
    ("mount", &[3], &[1, 3]),
    ("nfsacl", &[3], &[1, 2]),
    ("portmap", &[2], &[1, 2, 3]),
    ("rpcbind", &[3, 4], &[1, 2, 3, 7, 8, 9, 11]),
];

/// RFC 5531 §9: GARBAGE_ARGS is for a "procedure [that] can't decode params"; PROC_UNAVAIL comes before it.
#[test]
fn truncated_call_is_garbage_args() {
    let garbage = Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments));
    let unavailable = Err(RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable));
    let mut lab = lab_with(vec![export(1, "/export")], |settings| settings.portmap = Some(2049));
    for (program, versions, procedures) in PROGRAMS {
        let mut seen = BTreeSet::new();
        for call in golden::all(program).iter().filter(|message| message.name.contains("_call")) {
            let mut reader = Reader::new(call.message.clone());
            let header = CallHeader::parse(&mut reader).unwrap();
            let arguments = reader.rest();
            if !versions.contains(&header.version) || arguments.is_empty() {
                continue;
            }
            seen.insert(header.procedure);
            let what = (header.program, header.version, header.procedure);
            let whole = lab.ask(what, &arguments);
            assert_ne!(whole, garbage, "{}", call.name);
            // The port mapper refuses these procedures with any arguments: SET and UNSET return `false` (RFC 1833 §2.2.1),
            // TADDR2UADDR and others are unavailable.
            let is_refused = what.0 == PORTMAP && (header.procedure <= 2 || whole == unavailable);
            let expected = if is_refused { &whole } else { &garbage };
            for length in 0..arguments.len() {
                assert_eq!(&lab.ask(what, &arguments[..length]), expected, "{} at {length}", call.name);
            }
        }
        assert_eq!(seen, procedures.iter().copied().collect(), "{program}: every procedure was tested");
    }
}
