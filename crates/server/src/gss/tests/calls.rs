//! Credentials, verifiers, sequence numbers and services (RFC 2203 §5.3).

use proptest::prelude::*;
use rpc::gss::MAXSEQ;
use rpc::message::VersionRange;

use super::super::window::WINDOW;
use super::*;

/// Bytes of a header up to the end of the credential: RFC 5531 §9's six words, flavor and length, then version, procedure, sequence
/// number, service, and a handle of 16 bytes with its length.
const SIGNED: usize = (6 + 2 + 5) * 4 + 16;

#[test]
fn every_service_protects_calls_and_replies() {
    let server = server();
    for service in SERVICES {
        let mut peer = Peer::new(&server, "u1000", service);
        assert_eq!(peer.null(), NO_RESULTS, "{service:?}");
    }
    // RFC 2203 §5.3: "clients can change the security service and QOP used on a per-request basis".
    let mut peer = Peer::new(&server, "u1000", Service::Privacy);
    for service in SERVICES {
        peer.service = service;
        assert_eq!(peer.null(), NO_RESULTS, "{service:?}");
    }
}

#[test]
fn rpc_errors_are_signed_but_not_wrapped() {
    let server = server();
    for service in SERVICES {
        let mut peer = Peer::new(&server, "u1000", service);
        assert_eq!(peer.call((NFS, 3, 99), &()), Got::Status(AcceptStatus::ProcedureUnavailable));
        let versions = VersionRange { low: 3, high: 4 };
        assert_eq!(peer.call((NFS, 9, 0), &()), Got::Status(AcceptStatus::ProgramMismatch(versions)));
        assert_eq!(peer.call((400_000, 1, 0), &()), Got::Status(AcceptStatus::ProgramUnavailable));
        // GETATTR without a handle.
        assert_eq!(peer.call((NFS, 3, 1), &()), Got::Status(AcceptStatus::GarbageArguments));
    }
}

#[test]
fn repeated_or_too_old_calls_are_dropped() {
    let server = server();
    let mut peer = Peer::new(&server, "u1000", Service::Integrity);
    let first = peer.next((NFS, 3, 0), &());
    let record = peer.record(&first);
    assert_eq!(peer.exchange(&first, record.clone()), NO_RESULTS);
    assert_eq!(peer.exchange(&first, record), Got::Nothing);
    // The last number of the window, and the first one outside.
    let last = first.sequence + WINDOW;
    for (sequence, answer) in
        [(last, NO_RESULTS), (last - WINDOW + 1, NO_RESULTS), (last - WINDOW, Got::Nothing)]
    {
        let sent = Sent { sequence, ..first.clone() };
        assert_eq!(peer.send(&sent), answer, "{sequence}");
    }
}

#[test]
fn a_forged_call_does_not_move_the_window() {
    let server = server();
    let mut peer = Peer::new(&server, "u1000", Service::None);
    let far = Sent { sequence: 1_000_000, ..peer.next((NFS, 3, 0), &()) };
    let mut record = peer.record(&far).to_vec();
    // RFC 2203 §5.3.3.3: a wrong verifier gets CREDPROBLEM. The last byte before the padding is changed.
    let end = record.len() - 4;
    record[end] ^= 1;
    assert_eq!(peer.exchange(&far, record.into()), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
    assert_eq!(peer.null(), NO_RESULTS);
}

#[test]
fn a_sequence_number_beyond_the_maximum_needs_a_new_context() {
    let server = server();
    let mut peer = Peer::new(&server, "u1000", Service::Integrity);
    let sent = peer.next((NFS, 3, 0), &());
    for (sequence, answer) in [
        (MAXSEQ + 1, Got::Denied(AuthStatus::RPCSEC_GSS_CTXPROBLEM)),
        (u32::MAX, Got::Denied(AuthStatus::RPCSEC_GSS_CTXPROBLEM)),
        (MAXSEQ, NO_RESULTS),
    ] {
        assert_eq!(peer.send(&Sent { sequence, ..sent.clone() }), answer, "{sequence}");
    }
}

#[test]
fn arguments_of_another_call_are_garbage() {
    let server = server();
    for service in [Service::Integrity, Service::Privacy] {
        let mut peer = Peer::new(&server, "u1000", service);
        // RFC 2203 §5.3.3.1: "if the sequence number embedded in the request body is different".
        let (old, new) = (peer.next((NFS, 3, 0), &()), peer.next((NFS, 3, 0), &()));
        let (of_old, of_new) = (peer.record(&old), peer.record(&new));
        let mixed = [&of_new[..SIGNED + 20], &of_old[SIGNED + 20..]].concat();
        assert_eq!(
            peer.exchange(&new, mixed.into()),
            Got::Status(AcceptStatus::GarbageArguments),
            "{service:?}"
        );
    }
}

#[test]
fn changed_arguments_are_garbage() {
    let server = server();
    for service in [Service::Integrity, Service::Privacy] {
        let mut peer = Peer::new(&server, "u1000", service);
        let sent = peer.next((NFS, 3, 0), &());
        let mut record = peer.record(&sent).to_vec();
        // One of the nine bytes of the checksum, or of the twelve bytes of an encrypted empty body.
        let end = record.len() - 8;
        record[end] ^= 1;
        assert_eq!(
            peer.exchange(&sent, record.into()),
            Got::Status(AcceptStatus::GarbageArguments),
            "{service:?}"
        );
    }
}

#[test]
fn an_unknown_context_gets_credproblem() {
    let server = server();
    let mut peer = Peer::new(&server, "u1000", Service::None);
    let mine = peer.handle.clone();
    for handle in [Bytes::new(), Bytes::from(vec![0; 16]), mine.slice(..15), Bytes::from(vec![7; 128])] {
        peer.handle = handle;
        assert_eq!(peer.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
    }
    // Another principal's handle: "this will be detected by a failure in verifying the header checksum" (RFC 2203 §5.3.3.3).
    let mut other = Peer::new(&server, "u2000", Service::None);
    other.handle = mine;
    assert_eq!(other.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
}

#[test]
fn malformed_credentials_are_refused() {
    let server = server();
    let mut peer = Peer::new(&server, "u1000", Service::None);
    let sent = peer.next((NFS, 3, 0), &());
    let bad = Got::Denied(AuthStatus::BADCRED);
    // RFC 2203 §5.3.3.3: "illegal control procedure, or an illegal service".
    for service in [0, 4, u32::MAX] {
        assert_eq!(peer.send(&Sent { service, ..sent.clone() }), bad);
    }
    assert_eq!(peer.send(&Sent { procedure: GssProc(4), ..sent.clone() }), bad);
    // §5: control messages use the NULL procedure.
    for procedure in [GssProc::INIT, GssProc::CONTINUE_INIT, GssProc::DESTROY] {
        let sent = Sent { procedure, program: (NFS, 3, 1), ..sent.clone() };
        assert_eq!(peer.send(&sent), bad);
    }
    // A verifier of another flavor.
    let record = peer.record(&sent);
    let unsigned = [&record[..SIGNED], &to_bytes(&OpaqueAuth::NONE)].concat();
    assert_eq!(peer.exchange(&sent, unsigned.into()), Got::Denied(AuthStatus::BADVERF));
}

#[test]
fn other_gss_versions_are_refused() {
    let server = server();
    let mut peer = Peer::new(&server, "u1000", Service::None);
    for version in [0u32, 2, 3, 4] {
        let mut refused = |procedure: GssProc| {
            let sent = Sent { procedure, ..peer.next((NFS, 3, 0), &()) };
            let mut record = peer.record(&sent).to_vec();
            record[32..36].copy_from_slice(&version.to_be_bytes());
            peer.exchange(&sent, record.into())
        };
        // RFC 2203 §5.1, §5.2.3.2; RFC 7861 §2.2.
        assert_eq!(refused(GssProc::INIT), Got::Denied(AuthStatus::REJECTEDCRED), "{version}");
        // RFC 2203 §5.3.3.3: "If the version field in the credential does not match".
        assert_eq!(refused(GssProc::DATA), Got::Denied(AuthStatus::BADCRED), "{version}");
    }
}

#[test]
fn without_a_mechanism_gss_is_refused() {
    let lab = crate::testing::lab();
    let mut peer = Peer::stranger(&lab.server, "u1000");
    let denied = peer.init(GssProc::INIT, &[], &Toy::token("u1000", 0)).unwrap_err();
    assert_eq!(denied, Got::Denied(AuthStatus::REJECTEDCRED));
}

#[derive(Debug, Clone)]
enum Damage {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || any::<prop::sample::Index>();
    prop_oneof![
        at().prop_map(Damage::Cut),
        (at(), 1u8..).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ]
}

proptest! {
    /// A call that was changed on its way is never executed as the principal's, and the next call is served.
    #[test]
    fn a_damaged_call_is_not_served(service in 0usize..3, damage in damage()) {
        let server = server();
        let mut peer = Peer::new(&server, "u1000", SERVICES[service]);
        let sent = peer.next((NFS, 3, 0), &());
        let whole = peer.record(&sent).to_vec();
        let mut record = whole.clone();
        match damage {
            Damage::Cut(at) => record.truncate(at.index(whole.len())),
            Damage::Flip(at, bits) => record[at.index(whole.len())] ^= bits,
            Damage::Insert(at, bytes) => {
                let at = at.index(whole.len());
                record.splice(at..at, bytes);
            }
        }
        let reply = peer.deliver(record.clone().into());
        let answer = reply.ok().map(|reply| accepted(&mut Reader::new(reply)));
        if let Some(Ok((AcceptStatus::Success, OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, .. }))) = answer {
        // Header and checksum arrived unchanged, and so did protected arguments except for their padding.
            let (signed, checked) = (SIGNED + 8 + 9, whole.len() - 3);
            prop_assert_eq!(&record[..signed], &whole[..signed]);
            if sent.service > 1 {
                prop_assert_eq!(record.len(), whole.len());
                prop_assert_eq!(&record[SIGNED + 20..checked], &whole[SIGNED + 20..checked]);
            }
        }
        prop_assert_eq!(peer.null(), NO_RESULTS);
    }

    /// Credentials of arbitrary bytes.
    #[test]
    fn a_made_up_credential_is_denied(body in prop::collection::vec(any::<u8>(), 0..=400), version in 0u32..4) {
        let server = server();
        let peer = Peer::stranger(&server, "u1000");
        let mut body = body;
        if let Some(first) = body.first_chunk_mut::<4>() {
            *first = version.to_be_bytes();
        }
        let credential = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body: Opaque::new(body).unwrap() };
        let header = CallHeader { credential, ..CallHeader::new(1, NFS, 4, 1) };
        let reply = peer.deliver(to_bytes(&header)).unwrap();
        let answer = accepted(&mut Reader::new(reply)).unwrap_err();
        let Got::Denied(status) = answer else { panic!("{answer:?}") };
        let expected = [AuthStatus::BADCRED, AuthStatus::REJECTEDCRED, AuthStatus::RPCSEC_GSS_CREDPROBLEM];
        prop_assert!(expected.contains(&status), "{:?}", status);
    }
}
