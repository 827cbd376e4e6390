//! Test support: exports in memory, and an NFSv4.1 client of a whole server.

pub(crate) mod local_locks;
pub(crate) mod minor0;

use core::net::SocketAddr;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes};
use protocol::nfs4::callback::sequence::{CbSequenceArgs, CbSequenceOk};
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::exchange_id::{ExchangeIdArgs, ExchangeIdFlags, ExchangeIdOk, StateProtectArgs};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim, OpenHow, OpenOk, ShareAccess, ShareDeny};
use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, CreateSessionOk, ReclaimCompleteArgs,
    SequenceArgs,
};
use protocol::nfs4::types::{
    Bitmap, ClientOwner, Component, Handle, HasStatus, Mode, Outcome, SessionId, StateOwner, Stateid, Status,
    Utf8,
};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM, VERSION};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, RpcError, encode_call, parse_reply};
use vfs::fault::Faulty;
use vfs::{MemFs, MemOptions, Timestamp};
use xdr::{Encode, List, Opaque, Writer};

use crate::{
    ClientPattern, Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable,
    HandleKey, Now, Server, Settings, Squash, Transport, Work,
};

/// The key of all test servers.
pub(crate) const KEY: HandleKey = HandleKey([9; 16]);

/// Returns an export in memory, for all clients and without squashing.
pub(crate) fn export(id: u32, path: &str) -> Export {
    let mut identity = [0; 16];
    identity[..4].copy_from_slice(&id.to_be_bytes());
    let backend = Arc::new(MemFs::new(&MemOptions { identity, ..MemOptions::default() }));
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    Export {
        id: ExportId(id),
        path: path.into(),
        backend,
        options,
        fsid: (100 + u64::from(id), 0),
        counts: Arc::default(),
    }
}

/// Returns an export, `/export`, with injected faults.
pub(crate) fn faulty() -> (Export, Arc<Faulty<MemFs>>) {
    let backend = Arc::new(Faulty::new(MemFs::new(&MemOptions::default())));
    (Export { backend: backend.clone(), ..export(1, "/export") }, backend)
}

/// Returns an export for the clients of one network.
pub(crate) fn export_for(id: u32, path: &str, network: &str) -> Export {
    let mut export = export(id, path);
    export.options.clients.push(ClientPattern::Network(network.parse().unwrap()));
    export
}

/// A server, and a client with a session there.
pub(crate) struct Lab {
    pub(crate) server: Arc<Server>,
    pub(crate) connection: Arc<Connection>,
    pub(crate) uid: u32,
    pub(crate) gids: Vec<u32>,
    /// The time of the next request, in seconds since the server's start.
    pub(crate) seconds: u64,
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
    pub(crate) client_id: u64,
    /// Minor version of compounds.
    pub(crate) minor: u32,
    /// The client's verifier, another one after its restart.
    pub(crate) verifier: u8,
    /// Attributes of sessions to be created.
    pub(crate) flags: CreateSessionFlags,
    xid: u32,
}

/// Returns a server of one export, `/export`, and the superuser of a client.
pub(crate) fn lab() -> Lab {
    lab_of(vec![export(1, "/export")])
}

/// As [`lab`], for a client of version 4.2.
pub(crate) fn lab_42() -> Lab {
    Lab { minor: 2, ..lab() }
}

pub(crate) fn lab_of(exports: Vec<Export>) -> Lab {
    lab_with(exports, |_| {})
}

pub(crate) fn lab_with(exports: Vec<Export>, change: impl FnOnce(&mut Settings)) -> Lab {
    let mut settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
    change(&mut settings);
    let server = Arc::new(Server::new(settings, ExportTable::new(exports).unwrap()));
    let mut lab = Lab::without_session(server, 1);
    lab.connect(b"client");
    lab
}

/// Returns a client of version 4.2 on an export that has become read-only, and a file there.
pub(crate) fn read_only() -> (Lab, Handle) {
    let mut exported = export(1, "/export");
    let mut lab = lab_of(vec![exported.clone()]);
    let file = lab.file(&["export", "file"], b"");
    exported.options.read_only = true;
    lab.server.replace_exports(ExportTable::new(vec![exported]).unwrap());
    lab.minor = 2;
    (lab, file)
}

/// Returns the channel attributes that test clients ask for; `LIMIT` bytes are more than any test needs.
pub(crate) fn channel() -> ChannelAttributes {
    const LIMIT: u32 = 1 << 21;
    ChannelAttributes {
        header_pad_size: 0,
        max_request_size: LIMIT,
        max_response_size: LIMIT,
        max_response_size_cached: 8192,
        max_operations: 64,
        max_requests: 64,
        rdma_ird: List::default(),
    }
}

/// CREATE_SESSION with default attributes.
pub(crate) fn session_args(client_id: u64, sequence: u32) -> CreateSessionArgs {
    CreateSessionArgs {
        client_id,
        sequence,
        flags: CreateSessionFlags::empty(),
        fore_channel: channel(),
        back_channel: channel(),
        callback_program: 0x4000_0000,
        sec_parms: List::default(),
    }
}

impl Lab {
    /// Returns a client on its own connection that has sent nothing.
    pub(crate) fn without_session(server: Arc<Server>, connection: u64) -> Self {
        Self::at_address([127, 0, 0, 1], server, connection)
    }

    fn at_address(address: [u8; 4], server: Arc<Server>, connection: u64) -> Self {
        let peer = SocketAddr::from((address, 700 + connection as u16));
        let (id, local) = (ConnectionId(connection), SocketAddr::from(([127, 0, 0, 1], 2049)));
        let connection = Connection::new(id, peer, local, Transport::Tcp, false);
        Self {
            server,
            connection: Arc::new(connection),
            uid: 0,
            gids: Vec::new(),
            seconds: 1,
            session: SessionId::default(),
            sequence: 0,
            client_id: 0,
            minor: 1,
            verifier: 1,
            flags: CreateSessionFlags::empty(),
            xid: 0,
        }
    }

    /// Returns another client of the same server.
    pub(crate) fn other(&self, name: &'static [u8]) -> Self {
        let mut other = Self::without_session(Arc::clone(&self.server), self.connection.id.0 + 1);
        other.seconds = self.seconds;
        other.connect(name);
        other
    }

    pub(crate) fn exchange(&mut self, name: &'static [u8]) -> ExchangeIdOk {
        let args = ExchangeIdArgs {
            client_owner: ClientOwner { verifier: [self.verifier; 8], owner_id: Opaque::from_static(name) },
            flags: ExchangeIdFlags::empty(),
            state_protect: StateProtectArgs::None,
            implementation: List::default(),
        };
        match self.alone(Op::ExchangeId(args)) {
            OpResult::ExchangeId(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn create_session(&mut self, id: &ExchangeIdOk, fore: ChannelAttributes) -> CreateSessionOk {
        let plain = session_args(id.client_id, id.sequence_id);
        let args = CreateSessionArgs { flags: self.flags, fore_channel: fore, ..plain };
        match self.alone(Op::CreateSession(args)) {
            OpResult::CreateSession(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Creates a session and ends the reclaim phase.
    pub(crate) fn connect(&mut self, name: &'static [u8]) {
        self.connect_with(name, channel());
    }

    pub(crate) fn connect_with(&mut self, name: &'static [u8], fore: ChannelAttributes) {
        let id = self.exchange(name);
        let session = self.create_session(&id, fore);
        (self.session, self.sequence, self.client_id) = (session.session_id, 0, id.client_id);
        let done = self.run(vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })]);
        assert_eq!(done.status, Status::OK);
    }

    /// Returns the RPC record of a COMPOUND call with these bytes as its arguments.
    pub(crate) fn record(&mut self, arguments: &[u8]) -> Bytes {
        self.record_of((PROGRAM, VERSION, PROC_COMPOUND), arguments)
    }

    /// The RPC record of a call with these bytes as its arguments; the target is a program, a version and a procedure.
    fn record_of(&mut self, (program, version, procedure): (u32, u32, u32), arguments: &[u8]) -> Bytes {
        struct Raw<'a>(&'a [u8]);
        impl Encode for Raw<'_> {
            fn encode(&self, writer: &mut Writer) {
                writer.raw(self.0);
            }
        }
        self.xid += 1;
        let credential = self.credential();
        let header = CallHeader { credential, ..CallHeader::new(self.xid, program, version, procedure) };
        let mut call = Writer::new();
        encode_call(&mut call, &header, &Raw(arguments));
        call.into_bytes()
    }

    fn credential(&self) -> OpaqueAuth {
        OpaqueAuth::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"client"),
            uid: self.uid,
            gid: self.uid,
            gids: GroupList::new(&self.gids).unwrap(),
        })
    }

    /// Returns the time of the next request.
    pub(crate) fn now(&self) -> Now {
        let wall = Timestamp { seconds: 1_000_000 + self.seconds as i64, nanoseconds: 5 };
        Now { monotonic: Duration::from_secs(self.seconds), wall }
    }

    /// Returns the next work for the driver.
    pub(crate) fn work(&self) -> Option<Work> {
        match self.server.poll_work(&Context::from_waker(Waker::noop())) {
            Poll::Ready(work) => Some(work),
            Poll::Pending => None,
        }
    }

    /// Returns the RPC record of an NFSv3 call.
    fn record_nfs3(&mut self, procedure: u32, arguments: &impl Encode) -> Bytes {
        self.record_of((PROGRAM, 3, procedure), &xdr::to_bytes(arguments))
    }

    /// Returns the status of an NFSv3 call.
    pub(crate) fn nfs3(&mut self, procedure: u32, arguments: &impl Encode) -> protocol::nfs3::NfsStat {
        let results = self.ask((PROGRAM, 3, procedure), &xdr::to_bytes(arguments)).expect("results");
        protocol::nfs3::NfsStat(u32::from_be_bytes(results[..4].try_into().unwrap()))
    }

    /// Calls a procedure (program, version, number) with bytes as its arguments. Returns the results' bytes, or why there are
    /// none.
    pub(crate) fn ask(&mut self, what: (u32, u32, u32), arguments: &[u8]) -> Result<Bytes, RpcError> {
        let record = self.record_of(what, arguments);
        let mut reply = Writer::new();
        let outcome = self.server.handle(&self.connection, self.now(), record, &mut reply).now_or_never();
        assert_eq!(outcome.expect("memory answers at once").disposition, Disposition::Reply);
        results(reply)
    }

    /// Sends bytes as the arguments of a compound. Returns the results' bytes, or why there are none.
    pub(crate) fn raw(&mut self, arguments: &[u8]) -> Result<Bytes, RpcError> {
        self.ask((PROGRAM, VERSION, PROC_COMPOUND), arguments)
    }

    /// Sends a compound unchanged.
    pub(crate) fn send(&mut self, args: &CompoundArgs) -> CompoundResult {
        let reply = self.raw(&xdr::to_bytes(args)).expect("results");
        xdr::from_bytes(reply).expect("a COMPOUND4res and nothing else")
    }

    /// Sends one operation by itself.
    pub(crate) fn alone(&mut self, op: Op) -> OpResult {
        let result = self.send(&compound(vec![op]));
        result.results.into_vec().pop().unwrap()
    }

    /// SEQUENCE of the next request.
    pub(crate) fn next(&mut self, cache_this: bool) -> Op {
        self.sequence += 1;
        let plain = SequenceArgs::in_first_slot(self.session, self.sequence);
        Op::Sequence(SequenceArgs { cache_this, ..plain })
    }

    /// Sends operations after a SEQUENCE.
    pub(crate) fn run(&mut self, ops: Vec<Op>) -> CompoundResult {
        let mut all = vec![self.next(false)];
        all.extend(ops);
        let sent = all.len();
        let result = self.send(&CompoundArgs { minor_version: self.minor, ..compound(all) });
        // Each result belongs to its operation, all but the last succeeded, and the last one's status is the compound's.
        let count = result.results.len();
        assert!(count == sent || result.status != Status::OK, "{result:?}");
        let statuses: Vec<_> = result.results.iter().map(HasStatus::status).collect();
        assert_eq!(statuses.last(), Some(&result.status));
        assert!(statuses[..count - 1].iter().all(|status| *status == Status::OK), "{result:?}");
        result
    }

    /// Returns the results of operations that all succeed, without SEQUENCE's.
    #[track_caller]
    pub(crate) fn ok(&mut self, ops: Vec<Op>) -> Vec<OpResult> {
        let result = self.run(ops);
        assert_eq!(result.status, Status::OK, "{result:?}");
        result.results.into_vec().split_off(1)
    }

    /// Returns the result of the last of these operations.
    #[track_caller]
    pub(crate) fn last(&mut self, ops: Vec<Op>) -> OpResult {
        self.ok(ops).pop().unwrap()
    }

    /// Returns the status that these operations end with.
    pub(crate) fn status(&mut self, ops: Vec<Op>) -> Status {
        self.run(ops).status
    }

    /// Returns the status of `op` on the object at `path`.
    pub(crate) fn status_at(&mut self, path: &[&'static str], op: Op) -> Status {
        self.status(at(path, vec![op]))
    }

    /// Returns the handle of the object at `path`.
    #[track_caller]
    pub(crate) fn handle(&mut self, path: &[&'static str]) -> Handle {
        match self.last(at(path, vec![Op::GetFh])) {
            OpResult::GetFh(handle) => handle.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Attributes of the object at `path`.
    #[track_caller]
    pub(crate) fn attributes(&mut self, path: &[&'static str], numbers: &[u32]) -> Attributes {
        attributes_in(&self.last(at(path, vec![getattr(numbers)])))
    }

    /// Creates a file of these bytes.
    #[track_caller]
    pub(crate) fn file(&mut self, path: &[&'static str], content: &'static [u8]) -> Handle {
        use protocol::nfs4::ops::close::CloseArgs;
        use protocol::nfs4::ops::write::WriteArgs;
        use protocol::nfs4::types::StableHow;
        let (name, directory) = path.split_last().unwrap();
        let write = Op::Write(WriteArgs {
            stateid: Stateid::CURRENT,
            offset: 0,
            stable: StableHow::FileSync,
            data: Opaque::from_static(content),
        });
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
        self.ok(at(directory, vec![create(name, b"maker"), write, close]));
        self.handle(path)
    }

    /// Opens a file for reading and writing.
    #[track_caller]
    pub(crate) fn open(&mut self, path: &[&'static str], owner: &'static [u8]) -> (Handle, Stateid) {
        let (name, directory) = path.split_last().unwrap();
        let results = self.ok(at(directory, vec![open(name, owner, ShareAccess::BOTH), Op::GetFh]));
        match &results[results.len() - 2..] {
            [OpResult::Open(open), OpResult::GetFh(handle)] => {
                (*handle.as_result().unwrap(), open.as_result().unwrap().stateid)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the bytes of a reply's results, or why there are none.
pub(crate) fn results(reply: Writer) -> Result<Bytes, RpcError> {
    struct Rest(Bytes);
    impl xdr::Decode for Rest {
        fn decode(reader: &mut xdr::Reader) -> Result<Self, xdr::DecodeError> {
            Ok(Self(reader.rest()))
        }
    }
    parse_reply::<Rest>(reply.into_bytes()).map(|rest| rest.0)
}

pub(crate) fn compound(ops: Vec<Op>) -> CompoundArgs {
    CompoundArgs { tag: Utf8::from_static(b"tag"), minor_version: 1, ops: List::new(ops).unwrap() }
}

/// PUTROOTFH, LOOKUPs, then `ops`.
pub(crate) fn at(path: &[&'static str], ops: Vec<Op>) -> Vec<Op> {
    std::iter::once(Op::PutRootFh).chain(path.iter().map(|name| lookup(name))).chain(ops).collect()
}

pub(crate) fn name(text: &'static str) -> Component {
    Component::from_static(text.as_bytes())
}

pub(crate) fn lookup(text: &'static str) -> Op {
    Op::Lookup(LookupArgs { name: name(text) })
}

pub(crate) fn putfh(handle: Handle) -> Op {
    Op::PutFh(PutFhArgs { handle })
}

pub(crate) fn getattr(numbers: &[u32]) -> Op {
    Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(numbers) })
}

pub(crate) fn attributes_in(result: &OpResult) -> Attributes {
    match result {
        OpResult::GetAttr(result) => Attributes::from_file_attributes(result.as_result().unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn open_result(result: &OpResult) -> &OpenOk {
    match result {
        OpResult::Open(result) => result.as_result().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// OPEN of an existing file by name.
pub(crate) fn open(text: &'static str, owner: &'static [u8], access: ShareAccess) -> Op {
    Op::Open(open_args(text, owner, access, OpenHow::NoCreate))
}

/// OPEN that creates a file of mode 0644.
pub(crate) fn create(text: &'static str, owner: &'static [u8]) -> Op {
    let how = CreateHow::Guarded(mode(0o644));
    Op::Open(open_args(text, owner, ShareAccess::BOTH, OpenHow::Create(how)))
}

pub(crate) fn open_args(
    text: &'static str,
    owner: &'static [u8],
    share_access: ShareAccess,
    how: OpenHow,
) -> OpenArgs {
    OpenArgs {
        seqid: 0,
        share_access,
        share_deny: ShareDeny::empty(),
        owner: StateOwner { client_id: 0, owner: Opaque::from_static(owner) },
        how,
        claim: OpenClaim::Null(name(text)),
    }
}

/// Returns a file in `/export` with sevens from `offset` on, and holes before and after them.
#[track_caller]
pub(crate) fn sparse(lab: &mut Lab, text: &'static str, offset: u64, length: usize, end: u64) -> Handle {
    use protocol::nfs4::ops::setattr::SetAttrArgs;
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::StableHow;
    let file = lab.file(&["export", text], b"");
    let (stateid, stable) = (Stateid::ANONYMOUS, StableHow::FileSync);
    let data = Opaque::new(vec![7; length]).unwrap();
    let write = Op::Write(WriteArgs { stateid, offset, stable, data });
    lab.ok(vec![putfh(file), write, Op::SetAttr(SetAttrArgs { stateid, attributes: size(end) })]);
    file
}

/// Returns the content of a file, up to 64 KiB.
#[track_caller]
pub(crate) fn content(lab: &mut Lab, file: Handle) -> Vec<u8> {
    use protocol::nfs4::ops::read::ReadArgs;
    let read = Op::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 65_536 });
    match lab.last(vec![putfh(file), read]) {
        OpResult::Read(read) => read.into_result().unwrap().data.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Attributes to set: a mode.
pub(crate) fn mode(bits: u32) -> FileAttributes {
    SetAttributes { mode: Some(Mode::from_bits_retain(bits)), ..SetAttributes::default() }
        .to_file_attributes()
}

/// Attributes to set: a size.
pub(crate) fn size(bytes: u64) -> FileAttributes {
    SetAttributes { size: Some(bytes), ..SetAttributes::default() }.to_file_attributes()
}

/// A call of the server to a client.
pub(crate) struct Call {
    pub(crate) header: CallHeader,
    /// `None` for CB_NULL.
    pub(crate) compound: Option<CbCompoundArgs>,
}

/// Takes all pending calls from an outbox.
pub(crate) fn drain(outbox: &crate::Outbox) -> Vec<Call> {
    let context = Context::from_waker(Waker::noop());
    let mut calls = Vec::new();
    while let Poll::Ready(record) = outbox.poll_record(&context) {
        let mut reader = xdr::Reader::new(record);
        let header = CallHeader::parse(&mut reader).unwrap();
        let is_compound = header.procedure == callback::PROC_COMPOUND;
        let compound = is_compound.then(|| xdr::Decode::decode(&mut reader).unwrap());
        reader.finish().unwrap();
        calls.push(Call { header, compound });
    }
    calls
}

impl Call {
    pub(crate) fn sequence(&self) -> CbSequenceArgs {
        match &self.compound.as_ref().unwrap().ops[0] {
            CbOp::Sequence(sequence) => sequence.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the operation after CB_SEQUENCE.
    pub(crate) fn operation(&self) -> &CbOp {
        &self.compound.as_ref().unwrap().ops[1]
    }

    pub(crate) fn reply(&self, results: &impl Encode) -> Bytes {
        let mut reply = Writer::new();
        rpc::message::encode_success(&mut reply, self.header.xid);
        results.encode(&mut reply);
        reply.into_bytes()
    }

    /// Returns the reply with this result.
    pub(crate) fn results(&self, result: CbOpResult) -> Bytes {
        let CbSequenceArgs { session_id, sequence_id, slot_id, highest_slot_id, .. } = self.sequence();
        let target_highest_slot_id = highest_slot_id;
        let sequence =
            CbSequenceOk { session_id, sequence_id, slot_id, highest_slot_id, target_highest_slot_id };
        let status = result.status();
        let results = List::new(vec![CbOpResult::Sequence(Outcome::Ok(sequence)), result]).unwrap();
        self.reply(&CbCompoundResult { status, tag: Opaque::default(), results })
    }

    /// Returns the reply that refuses CB_SEQUENCE.
    pub(crate) fn refusal(&self, status: Status) -> Bytes {
        let results = List::new(vec![CbOpResult::Sequence(Outcome::Error(status))]).unwrap();
        self.reply(&CbCompoundResult { status, tag: Opaque::default(), results })
    }
}

/// A request that may have to wait in the server.
pub(crate) struct PendingCall(Pin<Box<dyn Future<Output = Bytes>>>);

impl PendingCall {
    /// Returns the reply's results, if complete.
    pub(crate) fn poll_bytes(&mut self) -> Option<Bytes> {
        let mut context = Context::from_waker(Waker::noop());
        match self.0.as_mut().poll(&mut context) {
            Poll::Ready(results) => Some(results),
            Poll::Pending => None,
        }
    }

    /// Returns whether `act` wakes it while it waits.
    pub(crate) fn is_woken_by(&mut self, act: impl FnOnce()) -> bool {
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        assert!(self.0.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it does not wait");
        act();
        flag.0.load(Ordering::Relaxed)
    }

    /// Returns the result of a COMPOUND, if complete.
    pub(crate) fn poll(&mut self) -> Option<CompoundResult> {
        self.poll_bytes().map(|bytes| xdr::from_bytes(bytes).expect("a COMPOUND4res"))
    }
}

/// Requests that wait, and calls from the server.
impl Lab {
    /// Returns another client, with a probed back channel.
    pub(crate) fn reachable(&self, name: &'static [u8], connection: u64) -> Self {
        self.reachable_at([127, 0, 0, 1], name, connection)
    }

    /// As [`Self::other`], at its own address.
    pub(crate) fn reachable_at(&self, address: [u8; 4], name: &'static [u8], connection: u64) -> Self {
        let mut other = Self::at_address(address, Arc::clone(&self.server), connection);
        other.seconds = self.seconds;
        other.flags = CreateSessionFlags::CONN_BACK_CHAN;
        other.connect(name);
        let trial = other.calls().pop().expect("the path is tried");
        other.answer(trial.reply(&()));
        other
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        drain(&self.connection.outbox)
    }

    /// Sends a reply to a call of the server.
    pub(crate) fn answer(&self, reply: Bytes) {
        let done = self.server.handle(&self.connection, self.now(), reply, &mut Writer::new()).now_or_never();
        assert_eq!(done.expect("no reply waits").disposition, Disposition::Drop);
    }

    /// Sends operations after a SEQUENCE on their own slot, and does not wait.
    pub(crate) fn start(&mut self, slot_id: u32, ops: Vec<Op>) -> PendingCall {
        let sequence = Op::Sequence(SequenceArgs {
            session_id: self.session,
            sequence_id: 1,
            slot_id,
            highest_slot_id: slot_id,
            cache_this: false,
        });
        let all = std::iter::once(sequence).chain(ops).collect();
        self.start_compound(&CompoundArgs { minor_version: self.minor, ..compound(all) })
    }

    /// As [`Self::start`], for a complete compound.
    pub(crate) fn start_compound(&mut self, args: &CompoundArgs) -> PendingCall {
        let record = self.record(&xdr::to_bytes(args));
        self.fly(record)
    }

    /// As [`Self::start`], for a call of version 3.
    pub(crate) fn start_nfs3(&mut self, procedure: u32, arguments: &impl Encode) -> PendingCall {
        let record = self.record_nfs3(procedure, arguments);
        self.fly(record)
    }

    /// Starts a call of version 2 with these bytes as its arguments.
    pub(crate) fn start_nfs2(&mut self, procedure: u32, arguments: &[u8]) -> PendingCall {
        let record = self.record_of((PROGRAM, protocol::nfs2::VERSION, procedure), arguments);
        self.fly(record)
    }

    fn fly(&self, record: Bytes) -> PendingCall {
        let (server, connection, now) = (Arc::clone(&self.server), Arc::clone(&self.connection), self.now());
        PendingCall(Box::pin(async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, record, &mut reply).await;
            assert_eq!(outcome.disposition, Disposition::Reply);
            results(reply).expect("results")
        }))
    }

    /// Advances the time by this many seconds, and calls `maintain` in each.
    pub(crate) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            self.server.maintain(self.now());
        }
    }
}
