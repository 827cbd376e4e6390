//! Headers of calls and replies compared with bytes derived by hand from RFC 5531 §9.

use bytes::Bytes;
use rpc::auth::{AuthFlavor, AuthStatus, OpaqueAuth};
use rpc::message::{
    AcceptStatus, AcceptedReply, CallError, CallHeader, MAX_CALL_HEADER, MessageType, Rejection, ReplyBody,
    ReplyHeader, RpcError, SUCCESS_HEADER_LENGTH, Unanswerable, VersionRange, encode_call, encode_success,
    parse_reply, peek,
};
use xdr::{DecodeError, Opaque, Reader, Writer, to_bytes};

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>().into()
}

fn parse(wire: Bytes) -> Result<CallHeader, CallError> {
    CallHeader::parse(&mut Reader::new(wire))
}

/// A call of NFSv3 NULL with AUTH_NONE.
const NULL: [u32; 10] = [0x1234, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];

#[test]
fn call_with_auth_none_round_trips() {
    let header = CallHeader::new(0x1234, 100_003, 3, 0);
    assert_eq!(to_bytes(&header), words(&NULL));
    assert_eq!(parse(words(&NULL)), Ok(header));
}

#[test]
fn parsing_a_call_leaves_the_reader_at_the_arguments() {
    let wire = words(&[1, 0, 2, 100_005, 3, 1, 0x55, 4, 0xaabb_ccdd, 0x66, 4, 0x1122_3344, 0xffff]);
    let mut reader = Reader::new(wire.clone());
    let header = CallHeader::parse(&mut reader).unwrap();
    assert_eq!((header.xid, header.program, header.version, header.procedure), (1, 100_005, 3, 1));
    assert_eq!(header.credential.flavor, AuthFlavor(0x55));
    assert_eq!(&header.credential.body[..], &[0xaa, 0xbb, 0xcc, 0xdd]);
    assert_eq!(header.verifier.flavor, AuthFlavor(0x66));
    assert_eq!(&header.verifier.body[..], &[0x11, 0x22, 0x33, 0x44]);
    assert_eq!(reader.peek(), &[0, 0, 0xff, 0xff]);

    let mut writer = Writer::new();
    encode_call(&mut writer, &header, &0xffffu32);
    assert_eq!(writer.into_bytes(), wire);
}

#[test]
fn truncated_header_gets_no_reply() {
    let wire = words(&[1, 0, 2, 100_005, 3, 1, 1, 4, 9, 1, 4, 9]);
    assert!(parse(wire.clone()).is_ok());
    for length in 0..wire.len() {
        assert_eq!(
            parse(wire.slice(..length)),
            Err(CallError::Unanswerable(Unanswerable::Truncated)),
            "{length}"
        );
    }
}

#[test]
fn reply_is_not_a_call() {
    for message_type in [1, 2, u32::MAX] {
        let mut wire = NULL;
        wire[1] = message_type;
        let not_a_call = Unanswerable::NotACall(MessageType(message_type));
        assert_eq!(parse(words(&wire)), Err(CallError::Unanswerable(not_a_call)));
    }
}

#[test]
fn other_rpc_version_gets_the_supported_one() {
    for version in [0, 1, 3, u32::MAX] {
        // Nothing after the version is read, so it may be missing.
        let Err(CallError::Refused(reply)) = parse(words(&[7, 0, version])) else { panic!("not refused") };
        assert_eq!(to_bytes(&reply), words(&[7, 1, 1, 0, 2, 2]));
    }
}

#[test]
fn rejects_bodies_above_400_bytes() {
    let credential = Bytes::from([&words(&[7, 0, 2, 100_003, 3, 0, 1, 401])[..], &[0; 500]].concat());
    let Err(CallError::Refused(reply)) = parse(credential) else { panic!("not refused") };
    assert_eq!(to_bytes(&reply), words(&[7, 1, 1, 1, 1]));
    let verifier = Bytes::from([&words(&[7, 0, 2, 100_003, 3, 0, 0, 0, 1, 404])[..], &[0; 500]].concat());
    let Err(CallError::Refused(reply)) = parse(verifier) else { panic!("not refused") };
    assert_eq!(to_bytes(&reply), words(&[7, 1, 1, 1, 3]));
    let huge = words(&[7, 0, 2, 100_003, 3, 0, 1, u32::MAX]);
    assert!(matches!(parse(huge), Err(CallError::Refused(_))));
}

#[test]
fn longest_header_fits_its_bound() {
    let longest = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body: Opaque::new(vec![7; 400]).unwrap() };
    let header =
        CallHeader { credential: longest.clone(), verifier: longest, ..CallHeader::new(1, 100_003, 4, 1) };
    let wire = to_bytes(&header);
    assert_eq!(wire.len(), MAX_CALL_HEADER);
    assert_eq!(parse(wire), Ok(header));
}

#[test]
fn accepted_replies_round_trip() {
    let range = VersionRange { low: 3, high: 4 };
    for (status, tail) in [
        (AcceptStatus::Success, &[0][..]),
        (AcceptStatus::ProgramUnavailable, &[1]),
        (AcceptStatus::ProgramMismatch(range), &[2, 3, 4]),
        (AcceptStatus::ProcedureUnavailable, &[3]),
        (AcceptStatus::GarbageArguments, &[4]),
        (AcceptStatus::SystemError, &[5]),
    ] {
        let reply = ReplyHeader::accepted(0xabcd, status);
        let wire = words(&[&[0xabcd, 1, 0, 0, 0], tail].concat());
        assert_eq!(to_bytes(&reply), wire);
        assert_eq!(ReplyHeader::parse(&mut Reader::new(wire.clone())), Ok(reply));
        let expected = match status {
            AcceptStatus::Success => Ok(()),
            other => Err(RpcError::NotExecuted(other)),
        };
        assert_eq!(parse_reply::<()>(wire), expected);
    }
}

#[test]
fn denied_replies_round_trip() {
    for (rejection, tail) in [
        (Rejection::RpcMismatch(VersionRange { low: 2, high: 2 }), &[0, 2, 2][..]),
        (Rejection::AuthError(AuthStatus::BADCRED), &[1, 1]),
        (Rejection::AuthError(AuthStatus::REJECTEDCRED), &[1, 2]),
        (Rejection::AuthError(AuthStatus::RPCSEC_GSS_CTXPROBLEM), &[1, 14]),
        (Rejection::AuthError(AuthStatus(99)), &[1, 99]),
    ] {
        let wire = words(&[&[0xabcd, 1, 1], tail].concat());
        let reply = ReplyHeader { xid: 0xabcd, body: ReplyBody::Denied(rejection) };
        assert_eq!(to_bytes(&reply), wire);
        assert_eq!(parse_reply::<()>(wire), Err(RpcError::Denied(rejection)));
    }
    assert_eq!(to_bytes(&ReplyHeader::auth_error(1, AuthStatus::TOOWEAK)), words(&[1, 1, 1, 1, 5]));
}

#[test]
fn encode_success_writes_the_same_bytes_as_reply_header() {
    let mut writer = Writer::new();
    encode_success(&mut writer, 0x0102_0304);
    let bytes = writer.into_bytes();
    assert_eq!(bytes.len(), SUCCESS_HEADER_LENGTH);
    assert_eq!(bytes, to_bytes(&ReplyHeader::accepted(0x0102_0304, AcceptStatus::Success)));
}

#[test]
fn parses_a_reply_with_verifier_and_results() {
    let wire = words(&[9, 1, 0, 6, 4, 0xdead_beef, 0, 0, 42]);
    let header = ReplyHeader::parse(&mut Reader::new(wire.clone())).unwrap();
    let ReplyBody::Accepted(AcceptedReply { verifier, status }) = header.body else { panic!("not accepted") };
    assert_eq!(
        (verifier.flavor, &verifier.body[..]),
        (AuthFlavor::RPCSEC_GSS, &[0xde, 0xad, 0xbe, 0xef][..])
    );
    assert_eq!(status, AcceptStatus::Success);
    assert_eq!(parse_reply::<u64>(wire.clone()), Ok(42));
    assert_eq!(parse_reply::<u32>(wire.clone()), Err(RpcError::Garbled(DecodeError::TrailingBytes(4))));
    assert_eq!(
        parse_reply::<u64>(wire.slice(..wire.len() - 4)),
        Err(RpcError::Garbled(DecodeError::Truncated { missing: 4 }))
    );
}

#[test]
fn rejects_malformed_replies() {
    let parse = |wire: &[u32]| ReplyHeader::parse(&mut Reader::new(words(wire)));
    let wrong = |type_name, value| Err(DecodeError::InvalidDiscriminant { type_name, value });
    assert_eq!(parse(&[1, 0, 0, 0, 0, 0]), wrong("MessageType::REPLY", 0));
    assert_eq!(parse(&[1, 1, 2, 0, 0, 0]), wrong("ReplyBody", 2));
    assert_eq!(parse(&[1, 1, 0, 0, 0, 6]), wrong("AcceptStatus", 6));
    assert_eq!(parse(&[1, 1, 1, 2]), wrong("Rejection", 2));
    assert!(parse(&[1, 1]).is_err());
}

#[test]
fn peek_returns_xid_and_type() {
    assert_eq!(peek(&words(&[5, 0, 2])), Ok((5, MessageType::CALL)));
    assert_eq!(peek(&words(&[0x0102_0304, 1])), Ok((0x0102_0304, MessageType::REPLY)));
    assert_eq!(peek(&words(&[5, 0])[..7]), Err(DecodeError::Truncated { missing: 1 }));
}
