//! A client that waits for each reply: NFSv3, MOUNT, and the part of NFSv4.1 that the tests need.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use client::config::{Caller, Config, Version};
use client::engine::{ConnectionId, Engine, RetryPolicy};
use client::raw::{RawSession, send_compound};
use net::transport::{Carrier, SystemClock};
use protocol::mount::{DirPath, MountResult, MountStat};
use protocol::nfs3::{
    CommitArgs, CommitOk, CreateArgs, CreateHow, CreateOk, DirOpArgs, Fattr, FileHandle, Filename,
    GetattrArgs, LookupArgs, LookupOk, NfsStat, Outcome, PostOpAttr, Proc, ReadArgs, ReadOk, RenameArgs,
    RenameWcc, Sattr, StableHow, WccData, WriteArgs, WriteOk, WriteVerf,
};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lookup::LookupArgs as Lookup4;
use protocol::nfs4::ops::open::{DelegationType, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::ops::session::{CreateSessionFlags, ReclaimCompleteArgs, SequenceArgs};
use protocol::nfs4::types::{Component, Handle, SessionId, StateOwner, Stateid, Status};
use protocol::nlm::{Lock, NetObj};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, RpcError, encode_call, encode_success, parse_reply, peek};
use rpc::record::{finish_record, start_record};
use rustix::process::{getgid, getuid};
use tokio::runtime::{Builder, Runtime};
use xdr::{Decode, Encode, Opaque, Writer};

/// Longest time for a reply; far above the usual one.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Longer than any reply here.
const MAX_RECORD: usize = 2 << 20;

/// Carries the records of all clients.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));

/// Requested slots of a session.
const SLOTS: u32 = 8;
/// OPENs in one compound.
const OPENS_AT_ONCE: usize = 50;

/// Programs and their versions.
pub const NFS3: (u32, u32) = (protocol::nfs3::PROGRAM, 3);
pub const NFS4: (u32, u32) = (protocol::nfs4::PROGRAM, 4);
const MOUNT3: (u32, u32) = (protocol::mount::PROGRAM, 3);

/// Returns the default user of calls: root may claim any user, others only themselves.
fn ordinary_user() -> u32 {
    if getuid().is_root() { 1000 } else { getuid().as_raw() }
}

/// Returns a lock of the whole file by a host of version 3 (NLM).
pub fn lock_of(name: &'static str, file: FileHandle) -> Lock {
    Lock {
        caller_name: Opaque::from_static(name.as_bytes()),
        fh: NetObj::new(file.to_vec()).unwrap(),
        oh: Opaque::from_static(name.as_bytes()),
        svid: 1,
        l_offset: 0,
        l_len: 0,
    }
}

/// A connection, and the user of its calls.
pub struct Client {
    carrier: Carrier,
    engine: Arc<Engine>,
    connection: ConnectionId,
    /// Transaction ID of the last call.
    xid: u32,
    pub uid: u32,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    /// Connects from another address of this machine.
    pub fn connect_from(address: SocketAddr, own: [u8; 4]) -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&socket, &SocketAddr::from((own, 0))).expect("an address of this machine");
        connect(&socket, &address).expect("the server listens");
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("an option");
        stream.set_nonblocking(true).expect("an option");
        let _runtime = RUNTIME.enter();
        let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
        Self::carried_by(Carrier::new(stream, MAX_RECORD), 1)
    }

    fn carried_by(carrier: Carrier, first_xid: u32) -> Self {
        let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), first_xid));
        let policy = RetryPolicy { timeout: TIME_LIMIT, retries: Some(0), fails_fast: true };
        let connection = engine.open_connection(protocol::nfs3::PORT, policy).expect("the first connection");
        Self { carrier, engine, connection, xid: 0, uid: ordinary_user() }
    }

    /// CREATE in version 3, or the reason why the call was refused.
    pub fn try_create(&mut self, directory: FileHandle, name: &str) -> Result<NfsStat, RpcError> {
        let created: Outcome<CreateOk, WccData> =
            self.ask(NFS3, Proc::CREATE.0, &create_args(directory, name))?;
        Ok(created.status())
    }

    /// Sends the same call, and closes the connection without waiting for the reply.
    pub fn send_create(self, directory: FileHandle, name: &str) {
        let call = record(&self.credential(), 1, NFS3, Proc::CREATE.0, &create_args(directory, name));
        self.into_stream().write_all(&call).expect("room in the socket");
    }

    /// Gives the next call the transaction ID of the last call of `other`, as in a retransmission over another connection.
    pub fn repeats(self, other: &Self) -> Self {
        Self { uid: self.uid, ..Self::carried_by(self.carrier, other.xid) }
    }

    /// Calls a procedure and decodes its results.
    pub fn call<R: Decode>(&mut self, program: (u32, u32), procedure: u32, arguments: &impl Encode) -> R {
        self.ask(program, procedure, arguments).expect("results")
    }

    /// As [`Self::call`], if the call may be refused.
    pub fn ask<R: Decode>(
        &mut self,
        program: (u32, u32),
        procedure: u32,
        arguments: &impl Encode,
    ) -> Result<R, RpcError> {
        let credential = self.credential();
        let call = self.engine.call(self.connection, |xid| {
            self.xid = xid;
            vec![call(&credential, xid, program, procedure, arguments)]
        });
        parse_reply(self.run(call).expect("a reply"))
    }

    /// Sends a call that is refused; returns the reason.
    pub fn refused(&mut self, program: (u32, u32), procedure: u32, arguments: &impl Encode) -> RpcError {
        self.ask::<()>(program, procedure, arguments).expect_err("a call that is not executed")
    }

    /// Waits for the next callback.
    fn called(&mut self) -> Bytes {
        let engine = Arc::clone(&self.engine);
        let called = async { tokio::time::timeout(TIME_LIMIT, poll_fn(|cx| engine.poll_callback(cx))).await };
        self.run(called).expect("a callback in time").expect("an open connection").1
    }

    fn answer(&mut self, xid: u32, results: &impl Encode) {
        let mut reply = Writer::new();
        encode_success(&mut reply, xid);
        results.encode(&mut reply);
        self.engine.send_reply(self.connection, vec![reply.into_bytes()]);
        // The next poll of this finds the reply sent.
        self.run(tokio::task::yield_now());
    }

    /// Waits for the value of a future of this client.
    fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        RUNTIME.block_on(self.carrier.carry(&self.engine, self.connection, work))
    }

    fn user(&self) -> AuthSys {
        AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"client"),
            uid: self.uid,
            gid: if self.uid == getuid().as_raw() { getgid().as_raw() } else { self.uid },
            gids: GroupList::default(),
        }
    }

    fn credential(&self) -> OpaqueAuth {
        OpaqueAuth::sys(&self.user())
    }

    fn into_stream(self) -> TcpStream {
        let _runtime = RUNTIME.enter();
        self.carrier.into_stream().into_std().expect("a socket")
    }

    fn nfs3<T: Decode, F: Decode>(&mut self, procedure: Proc, arguments: &impl Encode) -> Result<T, NfsStat> {
        let outcome: Outcome<T, F> = self.call(NFS3, procedure.0, arguments);
        outcome.into_result().map_err(|(status, _)| status)
    }

    /// MNT.
    pub fn mount(&mut self, path: &str) -> Result<FileHandle, MountStat> {
        let path = DirPath::new(path.to_owned().into_bytes()).expect("a short path");
        match self.call(MOUNT3, 1, &path) {
            MountResult::Ok(ok) => Ok(ok.fhandle),
            MountResult::Fail(status) => Err(status),
        }
    }

    pub fn getattr(&mut self, object: FileHandle) -> Result<Fattr, NfsStat> {
        self.nfs3::<_, ()>(Proc::GETATTR, &GetattrArgs { object })
    }

    pub fn lookup(&mut self, directory: FileHandle, name: &str) -> Result<FileHandle, NfsStat> {
        let arguments = LookupArgs { what: entry(directory, name) };
        self.nfs3::<LookupOk, PostOpAttr>(Proc::LOOKUP, &arguments).map(|found| found.object)
    }

    /// RENAME from one directory and name to another.
    pub fn rename(&mut self, from: (FileHandle, &str), to: (FileHandle, &str)) -> Result<(), NfsStat> {
        let arguments = RenameArgs { from: entry(from.0, from.1), to: entry(to.0, to.1) };
        self.nfs3::<RenameWcc, RenameWcc>(Proc::RENAME, &arguments).map(drop)
    }

    /// Creates a file that every user may change.
    pub fn create(&mut self, directory: FileHandle, name: &str) -> Result<FileHandle, NfsStat> {
        let sattr = Sattr { mode: Some(0o666), ..Sattr::default() };
        let arguments = CreateArgs { where_: entry(directory, name), how: CreateHow::Guarded(sattr) };
        let created = self.nfs3::<CreateOk, WccData>(Proc::CREATE, &arguments);
        created.map(|created| created.obj.expect("a handle"))
    }

    pub fn write(
        &mut self,
        file: FileHandle,
        data: &'static [u8],
        stable: StableHow,
    ) -> Result<WriteVerf, NfsStat> {
        self.write_at(file, 0, data, stable)
    }

    pub fn write_at(
        &mut self,
        file: FileHandle,
        offset: u64,
        data: &'static [u8],
        stable: StableHow,
    ) -> Result<WriteVerf, NfsStat> {
        let count = data.len() as u32;
        let arguments = WriteArgs { file, offset, count, stable, data: Opaque::from_static(data) };
        let written: WriteOk = self.nfs3::<_, WccData>(Proc::WRITE, &arguments)?;
        assert_eq!(written.count, count);
        assert!(written.committed >= stable);
        Ok(written.verf)
    }

    pub fn commit(&mut self, file: FileHandle) -> Result<WriteVerf, NfsStat> {
        let arguments = CommitArgs { file, offset: 0, count: 0 };
        self.nfs3::<CommitOk, WccData>(Proc::COMMIT, &arguments).map(|committed| committed.verf)
    }

    pub fn read(&mut self, file: FileHandle) -> Result<Vec<u8>, NfsStat> {
        self.read_at(file, 0, 65_536)
    }

    pub fn read_at(&mut self, file: FileHandle, offset: u64, count: u32) -> Result<Vec<u8>, NfsStat> {
        let arguments = ReadArgs { file, offset, count };
        self.nfs3::<ReadOk, PostOpAttr>(Proc::READ, &arguments).map(|read| read.data.to_vec())
    }

    /// Sends READs without reading replies, until the server stops reading.
    pub fn clog(self, file: FileHandle) -> TcpStream {
        let arguments = ReadArgs { file, offset: 0, count: 1 << 20 };
        let call = record(&self.credential(), 1, NFS3, Proc::READ.0, &arguments);
        let mut stream = self.into_stream();
        while stream.write_all(&call).is_ok() {}
        stream
    }
}

/// Returns a call.
fn call(
    credential: &OpaqueAuth,
    xid: u32,
    (program, version): (u32, u32),
    procedure: u32,
    arguments: &impl Encode,
) -> Bytes {
    let credential = credential.clone();
    let header = CallHeader { credential, ..CallHeader::new(xid, program, version, procedure) };
    let mut call = Writer::new();
    encode_call(&mut call, &header, arguments);
    call.into_bytes()
}

/// Returns a call with its record mark, for a socket.
fn record(
    credential: &OpaqueAuth,
    xid: u32,
    program: (u32, u32),
    procedure: u32,
    arguments: &impl Encode,
) -> Bytes {
    let mut record = Writer::new();
    let start = start_record(&mut record);
    record.raw(&call(credential, xid, program, procedure, arguments));
    finish_record(&mut record, start);
    record.into_bytes()
}

fn create_args(directory: FileHandle, name: &str) -> CreateArgs {
    CreateArgs { where_: entry(directory, name), how: CreateHow::Guarded(Sattr::default()) }
}

fn entry(dir: FileHandle, name: &str) -> DirOpArgs {
    DirOpArgs { dir, name: Filename::new(name.to_owned().into_bytes()).expect("a short name") }
}

/// An NFSv4.1 client with a session, of which it uses the first slot.
pub struct Client4 {
    client: Client,
    minor_version: u32,
    session: SessionId,
    /// The sequence ID of the last request.
    sequence: u32,
    /// The result of CREATE_SESSION.
    pub granted: CreateSessionFlags,
}

impl Client4 {
    /// Creates a session on a new connection, and sends RECLAIM_COMPLETE.
    pub fn connect(address: SocketAddr) -> Self {
        let mut this = Self::named(address, "test client");
        this.complete();
        this
    }

    /// The same in version 4.2.
    pub fn connect_2(address: SocketAddr) -> Self {
        Self::in_minor(address, "test client", 2)
    }

    /// Creates a session for a client of this name and minor version, and sends RECLAIM_COMPLETE.
    pub fn in_minor(address: SocketAddr, name: &str, minor_version: u32) -> Self {
        let mut this = Self::over(Client::connect(address), name, CreateSessionFlags::empty(), minor_version);
        this.complete();
        this
    }

    /// Creates a session for the client of this name, which may reclaim.
    pub fn named(address: SocketAddr, name: &str) -> Self {
        Self::with_flags(address, name, CreateSessionFlags::empty())
    }

    /// Requests a persistent session, and sends RECLAIM_COMPLETE.
    pub fn persistent(address: SocketAddr) -> Self {
        let mut this = Self::with_flags(address, "test client", CreateSessionFlags::PERSIST);
        this.complete();
        this
    }

    /// Creates a session whose connection carries callbacks, and answers the server's CB_NULL.
    pub fn reachable(address: SocketAddr) -> Self {
        let mut this = Self::with_flags(address, "test client", CreateSessionFlags::CONN_BACK_CHAN);
        this.complete();
        let trial = this.called();
        this.client.answer(peek(&trial).expect("a message").0, &());
        // The server reads in order: this reply shows that it has read the answer to its CB_NULL.
        this.run(Vec::new()).expect("a session");
        this
    }

    /// Waits for the next callback.
    pub fn called(&mut self) -> Bytes {
        self.client.called()
    }

    /// Answers a callback.
    pub fn answer(&mut self, xid: u32, results: &impl Encode) {
        self.client.answer(xid, results);
    }

    /// Creates another client on the same connection, and sends RECLAIM_COMPLETE.
    pub fn followed_by(self, name: &str) -> Self {
        let mut this = Self::over(self.client, name, CreateSessionFlags::empty(), 1);
        this.complete();
        this
    }

    fn with_flags(address: SocketAddr, name: &str, flags: CreateSessionFlags) -> Self {
        Self::over(Client::connect(address), name, flags, 1)
    }

    fn over(mut client: Client, name: &str, flags: CreateSessionFlags, minor_version: u32) -> Self {
        let machine = Caller::sys(&client.user());
        let config = Arc::new(Config {
            version: Version::ALL.into_iter().find(|version| version.minor() == Some(minor_version)),
            slots: SLOTS,
            ..Config::new("the server", name.as_bytes(), [1; 8], machine)
        });
        let creating = RawSession::create(Arc::clone(&client.engine), client.connection, config, flags);
        let session = client.run(creating).expect("a session");
        Self { client, minor_version, session: session.id(), sequence: 0, granted: session.flags() }
    }

    /// Sends RECLAIM_COMPLETE.
    pub fn complete(&mut self) {
        self.run(vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })]).expect("once");
    }

    /// Continues the session over another connection; the next request repeats the sequence ID of the last one.
    pub fn again(&self, address: SocketAddr) -> Self {
        let Self { minor_version, session, sequence, granted, .. } = *self;
        Self { client: Client::connect(address), minor_version, session, sequence: sequence - 1, granted }
    }

    /// Runs operations after a SEQUENCE; returns their results, or the error.
    pub fn run(&mut self, ops: Vec<Op>) -> Result<Vec<OpResult>, Status> {
        self.sequence += 1;
        let sequence = SequenceArgs::in_first_slot(self.session, self.sequence);
        let (engine, connection) = (Arc::clone(&self.client.engine), self.client.connection);
        let caller = Caller::sys(&self.client.user());
        let sent = send_compound(&engine, connection, &caller, self.minor_version, Some(sequence), &ops);
        let result = self.client.run(sent).expect("results");
        if result.status == Status::OK {
            Ok(result.results.into_vec().split_off(1))
        } else {
            Err(result.status)
        }
    }

    /// Opens the file `name` of the export at `/path`, for reading and writing.
    pub fn open(&mut self, path: &'static str, name: &'static str) -> Result<(), Status> {
        self.open_often(path, name, 1).map(drop)
    }

    /// The same for several open-owners; returns the file's handle.
    pub fn open_often(
        &mut self,
        path: &'static str,
        name: &'static str,
        owners: usize,
    ) -> Result<Handle, Status> {
        let lookup = Op::Lookup(Lookup4 { name: Component::from_static(path.as_bytes()) });
        let claim = OpenClaim::Null(Component::from_static(name.as_bytes()));
        let opens = (0..owners).flat_map(|owner| [Op::RestoreFh, open(owner, claim.clone())]);
        let ops = [Op::PutRootFh, lookup, Op::SaveFh].into_iter().chain(opens).chain([Op::GetFh]).collect();
        match self.run(ops)?.pop() {
            Some(OpResult::GetFh(handle)) => Ok(*handle.as_result().expect("a handle")),
            other => panic!("as GETFH: {other:?}"),
        }
    }

    /// Opens all these files of the export at `/path`, for reading and writing.
    pub fn open_all(&mut self, path: &'static str, names: &[String]) -> Result<(), Status> {
        let lookup = Op::Lookup(Lookup4 { name: Component::from_static(path.as_bytes()) });
        for names in names.chunks(OPENS_AT_ONCE) {
            let opens = names.iter().flat_map(|name| {
                let name = Component::new(name.clone().into_bytes()).expect("a short name");
                [Op::RestoreFh, open(0, OpenClaim::Null(name))]
            });
            self.run([Op::PutRootFh, lookup.clone(), Op::SaveFh].into_iter().chain(opens).collect())?;
        }
        Ok(())
    }

    /// As [`Self::open`]; returns the file's handle and the open's stateid.
    pub fn opened(&mut self, path: &'static str, name: &'static str) -> (Handle, Stateid) {
        let lookup = Op::Lookup(Lookup4 { name: Component::from_static(path.as_bytes()) });
        let claim = OpenClaim::Null(Component::from_static(name.as_bytes()));
        let results = self.run(vec![Op::PutRootFh, lookup, open(0, claim), Op::GetFh]).expect("it opens");
        match &results[2..] {
            [OpResult::Open(open), OpResult::GetFh(handle)] => {
                let stateid = open.as_result().expect("a stateid").stateid;
                (*handle.as_result().expect("a handle"), stateid)
            }
            other => panic!("as OPEN and GETFH: {other:?}"),
        }
    }

    /// Reclaims the opens of several owners.
    pub fn reclaim(&mut self, handle: Handle, owners: usize) -> Result<(), Status> {
        let opens = (0..owners).map(|owner| open(owner, OpenClaim::Previous(DelegationType::NONE)));
        self.run([Op::PutFh(PutFhArgs { handle })].into_iter().chain(opens).collect()).map(drop)
    }
}

/// OPEN for reading and writing by the owner with this number.
fn open(owner: usize, claim: OpenClaim) -> Op {
    let owner = Opaque::new(format!("owner {owner}").into_bytes()).expect("a short name");
    Op::Open(OpenArgs {
        seqid: 0,
        share_access: ShareAccess::BOTH,
        share_deny: ShareDeny::empty(),
        owner: StateOwner { client_id: 0, owner },
        how: OpenHow::NoCreate,
        claim,
    })
}
