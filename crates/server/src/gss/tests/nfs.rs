//! Principals in the NFS programs: ownership of files, retransmissions, and the protection of a client's state.

use protocol::mount::MountResult;
use protocol::nfs3::{self, DirOpArgs, FileHandle, MkdirArgs};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::backchannel::{
    BackchannelCtlArgs, BindConnToSessionArgs, CallbackSecParms, DirFromClient, GssCallbackHandles,
};
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::exchange_id::{
    DestroyClientIdArgs, ExchangeIdArgs, ExchangeIdFlags, ExchangeIdOk, StateProtectArgs, StateProtectOps,
    StateProtectResult,
};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::secinfo::GssService;
use protocol::nfs4::ops::session::{CreateSessionArgs, CreateSessionFlags, DestroySessionArgs, SequenceArgs};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::stateid::TestStateidArgs;
use protocol::nfs4::types::{Bitmap, ClientOwner, HasStatus, OpNum, SessionId, Stateid, Status};
use xdr::List;

use super::*;
use crate::testing::{Lab, at, channel, compound, getattr, mode, name, putfh};

const MOUNT: u32 = 100_005;

/// A client of version 4.1.
struct Client {
    peer: Peer,
    id: ExchangeIdOk,
    session: SessionId,
    sequence: u32,
}

fn status(got: &Got) -> u32 {
    let Got::Results(results) = got else { panic!("{got:?}") };
    u32::from_be_bytes(*results.first_chunk().unwrap())
}

fn result(got: Got) -> CompoundResult {
    let Got::Results(results) = got else { panic!("{got:?}") };
    from_bytes(results).unwrap()
}

impl Peer {
    fn alone(&mut self, op: Op) -> OpResult {
        result(self.call((NFS, 4, 1), &compound(vec![op]))).results.into_vec().pop().unwrap()
    }

    fn exchange_id(&mut self, state_protect: StateProtectArgs) -> Result<ExchangeIdOk, Status> {
        // A client's name belongs to its principal: RFC 8881 §18.35.4, case 3.
        let args = ExchangeIdArgs {
            client_owner: ClientOwner { verifier: [1; 8], owner_id: Opaque::new(self.name.clone()).unwrap() },
            flags: ExchangeIdFlags::empty(),
            state_protect,
            implementation: List::default(),
        };
        match self.alone(Op::ExchangeId(args)) {
            OpResult::ExchangeId(result) => result.into_result(),
            other => panic!("{other:?}"),
        }
    }
}

fn machine(allow: &[u32]) -> StateProtectArgs {
    let must_enforce = Bitmap::of(&[OpNum::EXCHANGE_ID.0, OpNum::CREATE_SESSION.0, OpNum::DESTROY_SESSION.0]);
    StateProtectArgs::MachineCredential(StateProtectOps { must_enforce, must_allow: Bitmap::of(allow) })
}

/// Creates a session of a client, the first one if `later` is zero.
fn session_args(id: &ExchangeIdOk, later: u32) -> CreateSessionArgs {
    CreateSessionArgs {
        client_id: id.client_id,
        sequence: id.sequence_id + later,
        flags: CreateSessionFlags::empty(),
        fore_channel: channel(),
        back_channel: channel(),
        callback_program: 0x4000_0000,
        sec_parms: List::default(),
    }
}

impl Client {
    fn new(mut peer: Peer, protect: StateProtectArgs) -> Self {
        let id = peer.exchange_id(protect).unwrap();
        let args = session_args(&id, 0);
        let OpResult::CreateSession(session) = peer.alone(Op::CreateSession(args)) else { panic!() };
        Self { peer, id, session: session.into_result().unwrap().session_id, sequence: 0 }
    }

    /// Sends the next request of the slot, as this principal.
    fn request(&mut self, ops: Vec<Op>) -> Sent {
        self.sequence += 1;
        let sequence = SequenceArgs::in_first_slot(self.session, self.sequence);
        let mut all = vec![Op::Sequence(SequenceArgs { cache_this: true, ..sequence })];
        all.extend(ops);
        self.peer.next((NFS, 4, 1), &compound(all))
    }

    fn run(&mut self, ops: Vec<Op>) -> CompoundResult {
        let sent = self.request(ops);
        result(self.peer.send(&sent))
    }
}

fn make_directory(text: &'static str) -> Vec<Op> {
    let create =
        CreateArgs { object_type: CreateType::DIRECTORY, name: name(text), attributes: Default::default() };
    at(&["export"], vec![Op::Create(create)])
}

#[test]
fn a_v3_retransmission_is_executed_once_and_sealed_again() {
    let server = server();
    for (number, service) in SERVICES.into_iter().enumerate() {
        let mut peer = Peer::new(&server, "u0", service);
        let got = peer.call((MOUNT, 3, 1), &Opaque::<64>::from_static(b"/export"));
        let Got::Results(results) = got else { panic!("{got:?}") };
        let MountResult::Ok(mounted) = from_bytes(results).unwrap() else { panic!() };
        let root = FileHandle::new(&mounted.fhandle).unwrap();
        let args = MkdirArgs {
            where_: DirOpArgs { dir: root, name: Opaque::new(vec![b'a' + number as u8]).unwrap() },
            attributes: Default::default(),
        };
        let sent = peer.next((NFS, 3, nfs3::Proc::MKDIR.0), &args);
        let first = peer.send(&sent);
        assert_eq!(status(&first), 0, "{service:?}");
        let again = peer.again(&sent);
        // A second execution would fail with EXIST.
        assert_eq!(peer.send(&again), first, "{service:?}");
        // The same over another context of the principal; another principal's call is a different one.
        let mut later = Peer::new(&server, "u0", service);
        later.sequence = 50;
        assert_eq!(later.send(&Sent { sequence: 60, ..sent.clone() }), first);
        let mut other = Peer::new(&server, "root/admin", service);
        assert_ne!(other.send(&Sent { sequence: 60, ..sent }), first);
    }
}

#[test]
fn a_slot_retransmission_is_sealed_again() {
    let server = server();
    for service in SERVICES {
        let mut client = Client::new(Peer::new(&server, "u0", service), StateProtectArgs::None);
        let text = ["none", "integrity", "privacy"][service as usize];
        let sent = client.request(make_directory(text));
        let first = client.peer.send(&sent);
        assert_eq!(status(&first), 0, "{service:?}");
        let again = client.peer.again(&sent);
        assert_eq!(client.peer.send(&again), first, "{service:?}");
        // RFC 8881 §2.10.6.1.3.1: another principal's request in the slot is not a retry.
        let mut other = Peer::new(&server, "u1", service);
        let stolen = result(other.send(&Sent { sequence: 1, ..sent }));
        assert_eq!(stolen.status, Status::SEQ_FALSE_RETRY);
    }
}

#[test]
fn files_belong_to_the_user_of_the_principal() {
    let server = server();
    let owner = |principal: &str, text: &'static str| {
        let mut client = Client::new(Peer::new(&server, principal, Service::Privacy), StateProtectArgs::None);
        client.run(make_directory(text)).status
    };
    // Root owns the export's directory.
    assert_eq!(owner("u0", "a"), Status::OK);
    assert_eq!(owner("u1000", "b"), Status::ACCESS);
    assert_eq!(owner("nobody-known", "c"), Status::ACCESS);
}

#[test]
fn a_machine_credential_must_be_protected() {
    let server = server();
    let mut plain = Peer::new(&server, "nfs/client", Service::None);
    // RFC 8881 §18.35.3: "with a service of RPC_GSS_SVC_INTEGRITY or RPC_GSS_SVC_PRIVACY".
    assert_eq!(plain.exchange_id(machine(&[])).unwrap_err(), Status::INVAL);
    for service in [Service::Integrity, Service::Privacy] {
        let mut peer = Peer::new(&server, "nfs/client", service);
        let id = peer.exchange_id(machine(&[OpNum::CLOSE.0, OpNum::READ.0])).unwrap();
        let StateProtectResult::MachineCredential(agreed) = id.state_protect else { panic!() };
        assert_eq!(agreed.must_allow, Bitmap::of(&[OpNum::CLOSE.0]));
        assert!(agreed.must_enforce.has(OpNum::EXCHANGE_ID.0));
        assert!(agreed.must_enforce.has(OpNum::BIND_CONN_TO_SESSION.0));
    }
}

#[test]
fn only_the_machine_principal_maintains_its_client() {
    let server = server();
    let mut client = Client::new(Peer::new(&server, "nfs/client", Service::Integrity), machine(&[]));
    let (client_id, session_id) = (client.id.client_id, client.session);
    let destroy = || Op::DestroySession(DestroySessionArgs { session_id });
    let bind = || BindConnToSessionArgs { session_id, direction: DirFromClient::FORE, use_rdma: false };
    let maintaining =
        || [Op::BindConnToSession(bind()), destroy(), Op::DestroyClientId(DestroyClientIdArgs { client_id })];
    // Another principal, and the machine itself without protection.
    for (principal, service) in [("u0", Service::Privacy), ("nfs/client", Service::None)] {
        for op in maintaining() {
            let mut stranger = Peer::new(&server, principal, service);
            assert_eq!(stranger.alone(op).status(), Status::WRONG_CRED, "{principal} {service:?}");
        }
    }
    // Requests of other users of the client use the same session.
    let sequence = SequenceArgs::in_first_slot(session_id, 1);
    let mut user = Peer::new(&server, "u1000", Service::None);
    assert_eq!(user.alone(Op::Sequence(sequence)).status(), Status::OK);
    client.sequence = 1;
    // The machine principal over another context, and with the other service.
    client.peer = Peer::new(&server, "nfs/client", Service::Privacy);
    assert_eq!(client.peer.alone(Op::BindConnToSession(bind())).status(), Status::OK);
    assert_eq!(client.peer.alone(destroy()).status(), Status::OK);
    assert_eq!(
        client.peer.alone(Op::DestroyClientId(DestroyClientIdArgs { client_id })).status(),
        Status::OK
    );
}

#[test]
fn data_outside_the_reply_buffer_are_protected_too() {
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::types::Stateid;
    let server = server();
    let mut lab = Lab::without_session(Arc::clone(&server), 5);
    lab.connect(b"writer");
    // More than is copied into a reply, and of a length that needs padding.
    static CONTENT: [u8; 100_003] = {
        let mut content = [0; 100_003];
        content[99_999] = 7;
        content[100_002] = 9;
        content
    };
    lab.file(&["export", "file"], &CONTENT);
    for service in SERVICES {
        let mut client = Client::new(Peer::new(&server, "u0", service), StateProtectArgs::None);
        let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 200_000 };
        // Not cached in the slot, which has no room for it.
        client.sequence = 1;
        let mut ops = vec![Op::Sequence(SequenceArgs::in_first_slot(client.session, 1))];
        ops.extend(at(&["export", "file"], vec![Op::Read(read)]));
        let sent = client.peer.next((NFS, 4, 1), &compound(ops));
        let results = result(client.peer.send(&sent)).results.into_vec();
        let Some(OpResult::Read(read)) = results.last() else { panic!() };
        let read = read.clone().into_result().unwrap();
        assert!(read.eof && read.data[..] == CONTENT[..], "{service:?}");
    }
}

#[test]
fn reply_limits_include_the_protection() {
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::types::Stateid;
    let server = server();
    let mut lab = Lab::without_session(Arc::clone(&server), 5);
    lab.connect(b"writer");
    lab.file(&["export", "file"], &[b'x'; 8000]);
    for service in SERVICES {
        let mut client = Client::new(Peer::new(&server, "u0", service), StateProtectArgs::None);
        let id = client.id.clone();
        const TAKES: u32 = 2048;
        let args = CreateSessionArgs {
            fore_channel: protocol::nfs4::ops::session::ChannelAttributes {
                max_response_size: TAKES,
                max_response_size_cached: TAKES,
                ..channel()
            },
            ..session_args(&id, 1)
        };
        let OpResult::CreateSession(session) = client.peer.alone(Op::CreateSession(args)) else { panic!() };
        client.session = session.into_result().unwrap().session_id;
        let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 8000 };
        let sent = client.request(at(&["export", "file"], vec![Op::Read(read)]));
        let record = client.peer.record(&sent);
        let reply = client.peer.deliver(record).unwrap();
        // RFC 8881 §18.36.3: ca_maxresponsesize is "the total size of the reply including the RPC header".
        assert!(reply.len() <= TAKES as usize, "{service:?}: {}", reply.len());
        assert!(reply.len() > TAKES as usize * 3 / 4, "{service:?}: {}", reply.len());
    }
}

#[test]
fn a_machine_principal_may_return_state_with_any_service() {
    use protocol::nfs4::ops::commit::CommitArgs;
    let mut export = open_export();
    let (server, _) = server_of(vec![export.clone()], None);
    let mut lab = Lab::without_session(Arc::clone(&server), 5);
    lab.connect(b"writer");
    let file = lab.file(&["export", "file"], b"content");
    export.options.flavors = Flavors::new(&[Flavor::Kerberos(Service::Privacy)]).unwrap();
    server.replace_exports(ExportTable::new(vec![export]).unwrap());

    let commit = || Op::Commit(CommitArgs { offset: 0, count: 0 });
    let attributes = || getattr(&[3]);
    let machine_peer = || Peer::new(&server, "nfs/client", Service::Integrity);
    let mut client = Client::new(machine_peer(), machine(&[OpNum::COMMIT.0, OpNum::TEST_STATEID.0]));
    let mut run = |peer: Peer, ops: Vec<Op>| {
        client.peer = peer;
        client.run([vec![putfh(file)], ops].concat()).status
    };
    assert_eq!(run(machine_peer(), vec![commit()]), Status::OK);
    assert_eq!(run(machine_peer(), vec![attributes(), commit(), attributes()]), Status::OK);
    // No other operation and no other principal.
    assert_eq!(run(machine_peer(), vec![attributes()]), Status::WRONGSEC);
    let test = || Op::TestStateid(TestStateidArgs { stateids: List::new(vec![Stateid::ANONYMOUS]).unwrap() });
    assert_eq!(run(machine_peer(), vec![commit(), test(), attributes()]), Status::OK);
    assert_eq!(run(machine_peer(), vec![attributes(), test()]), Status::WRONGSEC, "it needs no handle");
    // A forbidden operation before or after it: then the compound has no effect.
    let read = || Op::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 7 });
    let used = [
        read(),
        Op::GetFh,
        Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o777) }),
    ];
    for op in used {
        for ops in [
            vec![commit(), op.clone()],
            vec![op.clone(), commit()],
            vec![attributes(), commit(), Op::SaveFh, op.clone()],
            vec![commit(), Op::SaveFh, Op::RestoreFh, op.clone()],
        ] {
            assert_eq!(run(machine_peer(), ops.clone()), Status::WRONGSEC, "{ops:?}");
        }
    }
    // An operation with its own handle is checked separately.
    assert_eq!(run(machine_peer(), vec![commit(), putfh(file), commit()]), Status::OK);
    assert_eq!(run(machine_peer(), vec![commit(), putfh(file), Op::GetFh]), Status::WRONGSEC);
    assert_eq!(run(Peer::new(&server, "u0", Service::Integrity), vec![commit()]), Status::WRONGSEC);
    assert_eq!(run(Peer::new(&server, "nfs/client", Service::None), vec![commit()]), Status::WRONGSEC);
    assert_eq!(run(Peer::new(&server, "u0", Service::Privacy), vec![attributes()]), Status::OK);
    // Nor operations that the client did not request.
    let mut other = Client::new(Peer::new(&server, "nfs/other", Service::Integrity), machine(&[]));
    assert_eq!(other.run(vec![putfh(file), commit()]).status, Status::WRONGSEC);
}

/// Callback security of a client: contexts, by the server's handles.
fn by_contexts(handles: &[&Bytes]) -> Vec<CallbackSecParms> {
    let parms = |handle: &&Bytes| {
        CallbackSecParms::Gss(GssCallbackHandles {
            service: GssService::Integrity,
            handle_from_server: Opaque::new((*handle).clone()).unwrap(),
            handle_from_client: Opaque::from_static(b"the client's"),
        })
    };
    handles.iter().map(parms).collect()
}

const LIFETIME: Duration = Duration::from_secs(50);

/// Returns a client, its own context, and contexts that do not exist: one that never existed, and a destroyed one.
fn with_contexts() -> (Client, Bytes, [Bytes; 2]) {
    let server = server_of(vec![open_export()], Some(LIFETIME)).0;
    let client = Client::new(Peer::new(&server, "u0", Service::Integrity), StateProtectArgs::None);
    let own = client.peer.handle.clone();
    let mut other = Peer::new(&server, "u0", Service::None);
    let destroy = Sent { procedure: GssProc::DESTROY, ..other.next((NFS, 4, 0), &()) };
    assert_eq!(other.send(&destroy), NO_RESULTS);
    (client, own, [Bytes::from_static(b"Handle from server"), other.handle])
}

#[test]
fn backchannel_ctl_accepts_existing_contexts_only() {
    let (mut client, own, missing) = with_contexts();
    let control = |offered| {
        let sec_parms = List::new(offered).unwrap();
        vec![Op::BackchannelCtl(BackchannelCtlArgs { program: 0x4000_0001, sec_parms })]
    };
    assert_eq!(client.run(control(by_contexts(&[&own]))).status, Status::OK);
    // RFC 8881 §18.33.3: "does not exist on the server, the server MUST return NFS4ERR_NOENT".
    for handle in &missing {
        assert_eq!(client.run(control(by_contexts(&[&own, handle]))).status, Status::NOENT);
        let beside = [vec![CallbackSecParms::None], by_contexts(&[handle])].concat();
        assert_eq!(client.run(control(beside)).status, Status::NOENT);
    }
    // Its ticket has expired.
    let mut late = Peer::stranger(&client.peer.server, "u0");
    late.now.monotonic += LIFETIME;
    late.handle = late.init(GssProc::INIT, &[], &Toy::token("u0", 0)).unwrap().0.handle.into_bytes();
    client.peer = late;
    assert_eq!(client.run(control(by_contexts(&[&own]))).status, Status::NOENT);
}

#[test]
fn callbacks_use_existing_contexts_or_none() {
    let (mut client, own, missing) = with_contexts();
    let mut create = |later, offered| {
        let args =
            CreateSessionArgs { sec_parms: List::new(offered).unwrap(), ..session_args(&client.id, later) };
        client.peer.alone(Op::CreateSession(args)).status()
    };
    assert_eq!(create(1, by_contexts(&[&own])), Status::OK);
    // RFC 8881 §18.36.3: "does not exist on the server, the server will return NFS4ERR_NOENT".
    for handle in &missing {
        assert_eq!(create(2, by_contexts(&[&own, handle])), Status::NOENT);
    }
    let beside = [by_contexts(&[&missing[0]]), vec![CallbackSecParms::None]].concat();
    assert_eq!(create(2, beside), Status::OK, "callbacks are sent without it");
}
