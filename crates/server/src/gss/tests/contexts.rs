//! Creation, lifetime and end of contexts (RFC 2203 §5.2, §5.4).

use std::sync::atomic::Ordering::Relaxed;

use super::super::toy::DEFECTIVE_TOKEN;
use super::*;
use crate::HandleKey;

/// `GSS_S_CONTINUE_NEEDED`, `GSS_S_NO_CONTEXT` (RFC 2203 appendix A).
const CONTINUE: u32 = 1;
const NO_CONTEXT: u32 = 0x0008_0000;

#[test]
fn a_context_may_take_several_tokens() {
    let server = server();
    let mut peer = Peer::stranger(&server, "u1000");
    let (first, verifier) = peer.init(GssProc::INIT, &[], &Toy::token("u1000", 1)).unwrap();
    assert_eq!((first.major, &first.token[..], verifier), (CONTINUE, &b"more"[..], OpaqueAuth::NONE));
    // An incomplete context cannot be used.
    peer.handle = first.handle.bytes().clone();
    assert_eq!(peer.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
    let (last, _) = peer.init(GssProc::CONTINUE_INIT, &first.handle, &Toy::token("u1000", 0)).unwrap();
    // §5.2.2: the handle "will not change for the duration of the context".
    assert_eq!((last.major, &last.handle), (0, &first.handle));
    assert_eq!(peer.null(), NO_RESULTS);
    let (over, verifier) = peer.init(GssProc::CONTINUE_INIT, &first.handle, &Toy::token("u1", 0)).unwrap();
    assert_eq!((over.major, over.handle.len(), verifier), (NO_CONTEXT, 0, OpaqueAuth::NONE));
}

#[test]
fn a_defective_token_creates_no_context() {
    let (server, alive) = server_of(vec![open_export()], None);
    let mut peer = Peer::stranger(&server, "u1000");
    let (result, verifier) = peer.init(GssProc::INIT, &[], &[]).unwrap();
    // RFC 2203 §5.2.3.1: "handle and gss_token must be set to NULL by the server."
    assert_eq!((result.major, result.minor), (DEFECTIVE_TOKEN, 7));
    assert_eq!((result.handle.len(), result.token.len(), verifier), (0, 0, OpaqueAuth::NONE));
    assert_eq!((alive.load(Relaxed), server.gss_contexts()), (0, 0));
}

#[test]
fn a_first_call_has_no_handle_and_no_verifier() {
    let server = server();
    let mut peer = Peer::stranger(&server, "u1000");
    let token = Toy::token("u1000", 0);
    assert_eq!(peer.init(GssProc::INIT, &[1; 16], &token), Err(Got::Denied(AuthStatus::BADCRED)));
    let credential =
        GssCredential { procedure: GssProc::INIT, sequence: 0, service: 1, handle: Opaque::default() };
    let arguments = to_bytes(&InitArgs { token: Opaque::new(token).unwrap() });
    let signed = peer.signed(5, (NFS, 4, 0), &credential, &arguments);
    assert_eq!(
        accepted(&mut Reader::new(peer.deliver(signed).unwrap())),
        Err(Got::Denied(AuthStatus::BADVERF))
    );
    // Invalid arguments; a program that is not served.
    for (program, arguments, status) in [
        ((NFS, 4, 0), &arguments[..2], AcceptStatus::GarbageArguments),
        ((400_000, 4, 0), &arguments[..], AcceptStatus::ProgramUnavailable),
    ] {
        let reply = peer.deliver(call(6, program, &credential, arguments)).unwrap();
        assert_eq!(accepted(&mut Reader::new(reply)), Ok((status, OpaqueAuth::NONE)));
    }
    assert_eq!(server.gss_contexts(), 0);
}

#[test]
fn handles_are_unique_across_restarts() {
    let (one, other) = (server(), server());
    let mut handles: Vec<_> = (0..100).map(|_| Peer::new(&one, "u1000", Service::None).handle).collect();
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), 100);
    // The same secret yields the same handles; a server has a new secret at every start.
    assert_eq!(Peer::new(&other, "u1000", Service::None).handle.len(), 16);
    let mut settings = Settings::new(KEY, 1, [4; 16], b"test".to_vec());
    settings.gss = Some(Arc::new(Toy::default()));
    let later = Arc::new(Server::new(settings, ExportTable::new(vec![open_export()]).unwrap()));
    let handle = Peer::new(&later, "u1000", Service::None).handle;
    assert!(!handles.contains(&handle));
}

#[test]
fn a_principal_has_the_same_number_at_every_start() {
    let number = |key: HandleKey, secret: u8, exported: &[u8]| {
        let mut settings = Settings::new(key, 1, [secret; 16], b"test".to_vec());
        settings.gss = Some(Arc::new(Toy::default()));
        let server = Server::new(settings, ExportTable::new(vec![open_export()]).unwrap());
        server.shared.gss.as_ref().unwrap().contexts.number(exported)
    };
    // After a restart, persistent sessions and the log of calls find a request by this number.
    assert_eq!(number(KEY, 3, b"u1000"), number(KEY, 4, b"u1000"));
    assert_ne!(number(KEY, 3, b"u1000"), number(KEY, 3, b"u1001"));
    // It cannot be computed without the state directory's key.
    assert_ne!(number(KEY, 3, b"u1000"), number(HandleKey([7; 16]), 3, b"u1000"));
}

#[test]
fn incomplete_contexts_do_not_displace_complete_ones() {
    let (server, alive) = server_of(vec![open_export()], None);
    let mut mine = Peer::new(&server, "u1000", Service::Integrity);
    let mut flood = Peer::stranger(&server, "u2000");
    let begin = |flood: &mut Peer| flood.init(GssProc::INIT, &[], &Toy::token("u2000", 1)).unwrap().0.handle;
    let oldest = begin(&mut flood);
    for _ in 0..5000 {
        begin(&mut flood);
    }
    let gss = server.gss().unwrap();
    assert_eq!(gss.contexts.unfinished(), 256);
    assert_eq!(alive.load(Relaxed), 1 + 256);
    let newest = begin(&mut flood);
    let finish = |flood: &mut Peer, handle: &[u8]| {
        flood.init(GssProc::CONTINUE_INIT, handle, &Toy::token("u2000", 0)).unwrap().0.major
    };
    assert_eq!((finish(&mut flood, &oldest), finish(&mut flood, &newest)), (NO_CONTEXT, 0));
    // Incomplete contexts are removed too.
    flood.now.monotonic += Duration::from_secs(61);
    server.maintain(flood.now);
    assert_eq!(gss.contexts.unfinished(), 0);
    assert_eq!(mine.null(), NO_RESULTS);
}

#[test]
fn the_least_used_context_is_removed_at_the_limit() {
    let (server, alive) = server_of(vec![open_export()], None);
    let mut first = Peer::new(&server, "u1", Service::None);
    let mut idle = Peer::new(&server, "u2", Service::None);
    for second in 0..20_000 {
        let mut peer = Peer::stranger(&server, "u3");
        peer.now.monotonic += Duration::from_millis(second);
        peer.init(GssProc::INIT, &[], &Toy::token("u3", 0)).unwrap();
        if second % 100 == 0 {
            first.now.monotonic = peer.now.monotonic;
            assert_eq!(first.null(), NO_RESULTS);
        }
    }
    assert!(server.gss_contexts() <= 16_384);
    assert_eq!(alive.load(Relaxed), server.gss_contexts() as u64);
    // RFC 2203 §5.3.3.3: "on an LRU basis".
    assert_eq!(first.null(), NO_RESULTS);
    assert_eq!(idle.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
}

#[test]
fn a_context_ends_with_its_ticket() {
    let (server, alive) = server_of(vec![open_export()], Some(Duration::from_secs(600)));
    let mut peer = Peer::new(&server, "u1000", Service::Integrity);
    peer.now.monotonic += Duration::from_secs(599);
    assert_eq!(peer.null(), NO_RESULTS);
    peer.now.monotonic += Duration::from_secs(1);
    // RFC 2203 §5.3.3.3: "if security credentials become stale while in use".
    assert_eq!(peer.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CTXPROBLEM));
    (0..16).for_each(|_| assert!(!server.maintain(peer.now)));
    assert_eq!((alive.load(Relaxed), server.gss_contexts()), (0, 0));
    assert_eq!(peer.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
}

#[test]
fn drops_unused_contexts() {
    let server = server();
    let (mut used, mut idle) =
        (Peer::new(&server, "u1", Service::None), Peer::new(&server, "u2", Service::None));
    used.now.monotonic += Duration::from_secs(1800);
    assert_eq!(used.null(), NO_RESULTS);
    used.now.monotonic += Duration::from_secs(1801);
    // A handle alone, without its key, does not keep a context alive.
    idle.now.monotonic = used.now.monotonic - Duration::from_secs(1);
    let sent = idle.next((NFS, 3, 0), &());
    let mut forged = idle.record(&sent).to_vec();
    let end = forged.len() - 4;
    forged[end] ^= 1;
    assert_eq!(idle.exchange(&sent, forged.into()), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
    (0..16).for_each(|_| assert!(!server.maintain(used.now)));
    assert_eq!(server.gss_contexts(), 1);
    assert_eq!(used.null(), NO_RESULTS);
    assert_eq!(idle.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
}

#[test]
fn destroy_is_answered_and_ends_the_context() {
    let (server, alive) = server_of(vec![open_export()], None);
    for service in SERVICES {
        let mut peer = Peer::new(&server, "u1000", service);
        // Only its principal can destroy it.
        let sent = Sent { procedure: GssProc::DESTROY, ..peer.next((NFS, 4, 0), &()) };
        let mut forged = peer.record(&sent).to_vec();
        forged[3] ^= 1;
        assert_eq!(peer.exchange(&sent, forged.into()), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
        // §5.4: "The server sends a response as it would to a data request."
        assert_eq!(peer.send(&sent), NO_RESULTS, "{service:?}");
        assert_eq!(peer.null(), Got::Denied(AuthStatus::RPCSEC_GSS_CREDPROBLEM));
    }
    assert_eq!((alive.load(Relaxed), server.gss_contexts()), (0, 0));
}
