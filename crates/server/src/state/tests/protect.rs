//! Clients with state protection by a machine credential.

use protocol::nfs4::ops::exchange_id::StateProtectOps;
use protocol::nfs4::types::{Bitmap, OpNum};

use super::super::StateProtect;
use super::*;
use crate::state::tables::wire::DirFromClient;

/// Returns a caller with RPCSEC_GSS.
fn gss(name: &'static [u8], is_protected: bool) -> Credential {
    Credential { principal: Principal::Gss(Bytes::from_static(name)), is_protected }
}

fn machine() -> Credential {
    gss(b"nfs@client", true)
}

fn strangers() -> [Credential; 4] {
    [
        gss(b"nfs@client", false),
        gss(b"nfs@other", true),
        Credential { principal: ROOT, is_protected: false },
        Credential { principal: Principal::Anonymous, is_protected: false },
    ]
}

fn asked(enforce: &[OpNum], allow: &[OpNum]) -> StateProtectOps {
    let set = |ops: &[OpNum]| Bitmap::of(&ops.iter().map(|op| op.0).collect::<Vec<_>>());
    StateProtectOps { must_enforce: set(enforce), must_allow: set(allow) }
}

fn exchange(
    world: &World,
    by: &Credential,
    (verifier, update): (u8, bool),
    protect: StateProtect,
) -> Result<ExchangedId, Status> {
    let verifier = [verifier; 8];
    world.state.exchange_id(world.now, &ExchangeId { owner: b"a", verifier, by, update, protect, from: None })
}

fn protect() -> StateProtect {
    StateProtect::machine(&asked(&[], &[OpNum::CLOSE]), &machine()).unwrap()
}

/// Returns a protected client and its first session.
fn protected(world: &World) -> (ExchangedId, SessionId) {
    let id = exchange(world, &machine(), (1, false), protect()).unwrap();
    let created = world.create_as(&machine().principal, id.client_id, id.sequence_id, 1).unwrap();
    (id, created.session_id)
}

#[test]
fn machine_protection_needs_a_protected_credential() {
    let nothing = asked(&[], &[]);
    for by in [gss(b"nfs@client", false), Credential { principal: ROOT, is_protected: false }] {
        assert_eq!(StateProtect::machine(&nothing, &by), Err(Status::INVAL));
    }
    assert!(StateProtect::machine(&nothing, &machine()).is_ok());
}

#[test]
fn exchange_id_returns_enforced_and_allowed_operations() {
    let of = |enforce: &[OpNum], allow: &[OpNum]| {
        let StateProtect::Machine(ops) = StateProtect::machine(&asked(enforce, allow), &machine()).unwrap()
        else {
            panic!()
        };
        ops
    };
    // RFC 8881 §18.35.3: of this set "the result spo_must_enforce MUST include the operations the client requested".
    let set = [
        OpNum::EXCHANGE_ID,
        OpNum::CREATE_SESSION,
        OpNum::DELEGPURGE,
        OpNum::DESTROY_SESSION,
        OpNum::BIND_CONN_TO_SESSION,
        OpNum::DESTROY_CLIENTID,
    ];
    assert_eq!(of(&set, &[]), asked(&set, &[]));
    // Operations with a file handle: "the client SHOULD NOT specify" them.
    assert!(!of(&[OpNum::WRITE, OpNum::CLOSE], &[]).must_enforce.has(OpNum::CLOSE.0));
    // The request of Linux's client.
    let state = [OpNum::CLOSE, OpNum::OPEN_DOWNGRADE, OpNum::LOCKU, OpNum::DELEGRETURN, OpNum::FREE_STATEID];
    let all = [&state[..], &[OpNum::LAYOUTRETURN, OpNum::SECINFO, OpNum::WRITE]].concat();
    assert_eq!(of(&[], &all).must_allow, asked(&[], &state).must_allow);
}

#[test]
fn other_principals_may_not_maintain_a_protected_client() {
    let world = World::new();
    let (id, session) = protected(&world);
    for by in strangers() {
        for op in [OpNum::CREATE_SESSION, OpNum::DESTROY_CLIENTID] {
            assert_eq!(world.state.admit_to_client(op, id.client_id, &by), Err(Status::WRONG_CRED));
        }
        for op in [OpNum::BIND_CONN_TO_SESSION, OpNum::DESTROY_SESSION] {
            assert_eq!(world.state.admit_to_session(op, &session, &by), Err(Status::WRONG_CRED));
        }
        // The client did not request enforcement of this one.
        assert_eq!(world.state.admit_to_session(OpNum::BACKCHANNEL_CTL, &session, &by), Ok(()));
        // RFC 8881 §18.35.4, 9 Update but Wrong Principal; 3 Client Collision.
        assert_eq!(exchange(&world, &by, (1, true), StateProtect::None), Err(Status::PERM));
        assert_eq!(exchange(&world, &by, (1, false), StateProtect::None), Err(Status::CLID_INUSE));
        assert_eq!(exchange(&world, &by, (2, false), StateProtect::None), Err(Status::CLID_INUSE));
    }
    assert_eq!(world.state.admit_to_client(OpNum::CREATE_SESSION, id.client_id, &machine()), Ok(()));
    assert_eq!(world.state.admit_to_session(OpNum::DESTROY_SESSION, &session, &machine()), Ok(()));
    // "The server returns the same client ID for the subsequent EXCHANGE_ID", with the protection negotiated first.
    let again = exchange(&world, &machine(), (1, false), StateProtect::None).unwrap();
    assert_eq!((again.client_id, again.protect), (id.client_id, protect()));
    assert_eq!(exchange(&world, &machine(), (1, true), protect()).unwrap().protect, protect());
}

#[test]
fn an_unprotected_client_accepts_any_principal() {
    let world = World::new();
    let peer = world.peer("a");
    for by in strangers() {
        assert_eq!(world.state.admit_to_client(OpNum::CREATE_SESSION, peer.client.id(), &by), Ok(()));
        assert_eq!(world.state.admit_to_session(OpNum::DESTROY_SESSION, &peer.session, &by), Ok(()));
    }
}

#[test]
fn backchannel_ctl_is_enforced_on_request() {
    let world = World::new();
    let ops = asked(&[OpNum::BACKCHANNEL_CTL], &[]);
    let id =
        exchange(&world, &machine(), (1, false), StateProtect::machine(&ops, &machine()).unwrap()).unwrap();
    let created = world.create_as(&machine().principal, id.client_id, id.sequence_id, 1).unwrap();
    let admit =
        |by: &Credential| world.state.admit_to_session(OpNum::BACKCHANNEL_CTL, &created.session_id, by);
    assert_eq!(admit(&machine()), Ok(()));
    strangers().iter().for_each(|by| assert_eq!(admit(by), Err(Status::WRONG_CRED)));
}

#[test]
fn a_protected_session_needs_bound_connections() {
    let world = World::new();
    let (_, session) = protected(&world);
    let sequence = |connection, sequence_id| {
        let args = SequenceArgs::in_first_slot(session, sequence_id);
        world.state.sequence(world.now, ConnectionId(connection), &args, 0).map(|_| ())
    };
    assert_eq!(sequence(1, 1), Ok(()), "CREATE_SESSION's own");
    // Neither a retransmission nor a new request changes the slot.
    for sequence_id in [1, 2] {
        assert_eq!(sequence(2, sequence_id), Err(Status::CONN_NOT_BOUND_TO_SESSION));
    }
    let bind = |connection| {
        let direction = DirFromClient::FORE;
        world.state.bind_connection(ConnectionId(connection), None, &session, direction).map(|_| ())
    };
    assert_eq!(bind(2), Ok(()));
    assert_eq!(sequence(2, 2), Ok(()));
    // The binding ends with the connection; a new connection is not bound.
    world.state.connection_closed(ConnectionId(2));
    assert_eq!(sequence(2, 3), Err(Status::CONN_NOT_BOUND_TO_SESSION));
    assert_eq!(sequence(1, 3), Ok(()));
}
