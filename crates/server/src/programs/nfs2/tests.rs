//! A client of version 2 against a file system in memory, through the whole server.

mod conflicts;
mod malformed;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use protocol::nfs2::{
    AttrStat, CreateArgs, DirOpArgs, DirOpOk, DirOpRes, FHSIZE, Fattr, FileHandle, Filename, PROGRAM, Path,
    Proc, ReadArgs, ReadRes, Sattr, Stat, SymlinkArgs, VERSION, WriteArgs,
};
use protocol::nfs3;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, RpcError, encode_call};
use vfs::{Backend, MemFs, MemOptions, Timestamp};
use xdr::{Decode, Encode, Opaque, Writer};

use crate::testing::{KEY, results};
use crate::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, Now, Server,
    Settings, Squash, Transport, Versions,
};

pub(super) use wide::WideCookies;

mod wide;

/// The superuser of a client, and the server of its one export.
pub(super) struct Client {
    server: RefCell<Arc<Server>>,
    connection: Arc<Connection>,
    export: Export,
    pub(super) root: FileHandle,
    xid: Cell<u32>,
}

impl Client {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Creates a client of an export with other options.
    pub(super) fn with(change: impl FnOnce(&mut ExportOptions)) -> Self {
        let mut options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        change(&mut options);
        Self::of(Arc::new(MemFs::new(&MemOptions::default())), options)
    }

    /// Creates a client of a backend that `around` wraps around one in memory.
    pub(super) fn over<B: Backend + 'static>(around: impl FnOnce(MemFs) -> B) -> Self {
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        Self::of(Arc::new(around(MemFs::new(&MemOptions::default()))), options)
    }

    fn of(backend: Arc<dyn Backend>, options: ExportOptions) -> Self {
        let (id, path, fsid) = (ExportId(1), "/export".into(), (7, 0));
        let root = KEY.seal_short(id, &backend.root()).expect("a short handle");
        let export = Export { id, path, backend, options, fsid, counts: Arc::default() };
        let address = |port| core::net::SocketAddr::from(([127, 0, 0, 1], port));
        let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
        let server = RefCell::new(server(&export));
        Self { server, connection: Arc::new(connection), export, root, xid: Cell::new(1 << 16) }
    }

    /// Starts another server of the same export.
    pub(super) fn restart(&self) {
        self.server.replace(server(&self.export));
    }

    fn handle(&self, xid: u32, target: (u32, u32, u32), arguments: &[u8]) -> (Disposition, Writer) {
        let call = record(xid, target, arguments);
        let wall = Timestamp { seconds: 1000, nanoseconds: 5 };
        let now = Now { monotonic: Duration::from_secs(1), wall };
        let mut reply = Writer::new();
        let server = Arc::clone(&self.server.borrow());
        let outcome = server.handle(&self.connection, now, call, &mut reply).now_or_never();
        (outcome.expect("memory answers at once").disposition, reply)
    }

    fn ask(&self, xid: u32, target: (u32, u32, u32), arguments: &[u8]) -> Result<Bytes, RpcError> {
        let (disposition, reply) = self.handle(xid, target, arguments);
        assert_eq!(disposition, Disposition::Reply);
        results(reply)
    }

    /// Calls as [`Self::call_as`]; returns whether there is no reply.
    pub(super) fn is_dropped(&self, xid: u32, procedure: Proc, arguments: &impl Encode) -> bool {
        let target = (PROGRAM, VERSION, procedure.0);
        self.handle(xid, target, &xdr::to_bytes(arguments)).0 == Disposition::Drop
    }

    /// Calls a procedure with bytes as its arguments.
    pub(super) fn raw(&self, procedure: Proc, arguments: &[u8]) -> Result<Bytes, RpcError> {
        self.xid.set(self.xid.get() + 1);
        self.ask(self.xid.get(), (PROGRAM, VERSION, procedure.0), arguments)
    }

    pub(super) fn call<R: Decode>(&self, procedure: Proc, arguments: &impl Encode) -> R {
        let results = self.raw(procedure, &xdr::to_bytes(arguments)).expect("results");
        xdr::from_bytes(results).expect("the results and no bytes after them")
    }

    /// Calls with a transaction number below 65536, which may repeat.
    pub(super) fn call_as<R: Decode>(&self, xid: u32, procedure: Proc, arguments: &impl Encode) -> R {
        let target = (PROGRAM, VERSION, procedure.0);
        let results = self.ask(xid, target, &xdr::to_bytes(arguments)).expect("results");
        xdr::from_bytes(results).expect("the results and no bytes after them")
    }

    /// Returns a call of version 3.
    fn call3<R: Decode>(&self, procedure: nfs3::Proc, arguments: &impl Encode) -> R {
        self.xid.set(self.xid.get() + 1);
        let target = (PROGRAM, nfs3::VERSION, procedure.0);
        let results = self.ask(self.xid.get(), target, &xdr::to_bytes(arguments)).expect("results");
        xdr::from_bytes(results).expect("the results and no bytes after them")
    }

    pub(super) fn create_in(&self, directory: FileHandle, name: &[u8]) -> FileHandle {
        let attributes = Sattr { mode: 0o644, ..Sattr::NONE };
        found(self.call(Proc::CREATE, &CreateArgs { where_: place(directory, name), attributes })).file
    }

    pub(super) fn create(&self, name: &[u8]) -> FileHandle {
        self.create_in(self.root, name)
    }

    pub(super) fn mkdir(&self, name: &[u8]) -> FileHandle {
        let args = CreateArgs { where_: place(self.root, name), attributes: Sattr::NONE };
        found(self.call(Proc::MKDIR, &args)).file
    }

    pub(super) fn remove(&self, name: &[u8]) -> Stat {
        self.call(Proc::REMOVE, &place(self.root, name))
    }

    pub(super) fn symlink(&self, name: &[u8], text: &[u8]) -> Stat {
        let to = Path::new(text.to_vec()).unwrap();
        let args = SymlinkArgs { from: place(self.root, name), to, attributes: Sattr::NONE };
        self.call(Proc::SYMLINK, &args)
    }

    pub(super) fn write(&self, file: FileHandle, offset: u32, data: &[u8]) {
        let data = Opaque::new(data.to_vec()).unwrap();
        let args = WriteArgs { file, beginoffset: 0, offset, totalcount: 0, data };
        attributes(self.call(Proc::WRITE, &args));
    }

    pub(super) fn content(&self, name: &[u8]) -> Vec<u8> {
        let file = found(self.call(Proc::LOOKUP, &place(self.root, name))).file;
        let args = ReadArgs { file, offset: 0, count: 8192, totalcount: 0 };
        match self.call::<ReadRes>(Proc::READ, &args) {
            ReadRes::Ok(ok) => ok.data.to_vec(),
            ReadRes::Fail(status) => panic!("{status:?}"),
        }
    }

    fn place3(&self, name: &[u8]) -> nfs3::DirOpArgs {
        let dir = nfs3::FileHandle::new(&self.root).unwrap();
        nfs3::DirOpArgs { dir, name: nfs3::Filename::new(name.to_vec()).unwrap() }
    }

    /// Makes a file of zeros by version 3, which has the sizes for it.
    pub(super) fn large_file(&self, name: &[u8], size: u64) -> FileHandle {
        let attributes = nfs3::Sattr { mode: Some(0o644), size: Some(size), ..nfs3::Sattr::default() };
        let how = nfs3::CreateHow::Guarded(attributes);
        let args = nfs3::CreateArgs { where_: self.place3(name), how };
        let made = self.call3::<nfs3::CreateResult>(nfs3::Proc::CREATE, &args).into_result();
        let made = made.expect("a new file");
        assert_eq!(made.obj_attributes.map(|attributes| attributes.size), Some(size));
        let (id, inner) = KEY.open(&made.obj.expect("a handle")).unwrap();
        KEY.seal_short(id, &inner).unwrap()
    }

    /// Makes a link by version 3, which has longer ones.
    pub(super) fn symlink3(&self, name: &[u8], text: &[u8]) {
        let symlink_data = nfs3::NfsPath::new(text.to_vec()).unwrap();
        let symlink_attributes = nfs3::Sattr::default();
        let args = nfs3::SymlinkArgs { where_: self.place3(name), symlink_attributes, symlink_data };
        let made = self.call3::<nfs3::SymlinkResult>(nfs3::Proc::SYMLINK, &args);
        assert_eq!(made.status(), nfs3::NfsStat::OK);
    }
}

fn server(export: &Export) -> Arc<Server> {
    let versions = Versions::V2 | Versions::DEFAULT;
    let settings = Settings { versions, ..Settings::new(KEY, 1, [3; 16], b"test".to_vec()) };
    Arc::new(Server::new(settings, ExportTable::new(vec![export.clone()]).unwrap()))
}

/// Returns the RPC record of a call of the superuser with these bytes as its arguments.
fn record(xid: u32, (program, version, procedure): (u32, u32, u32), arguments: &[u8]) -> Bytes {
    struct Raw<'a>(&'a [u8]);
    impl Encode for Raw<'_> {
        fn encode(&self, writer: &mut Writer) {
            writer.raw(self.0);
        }
    }
    let machine_name = Opaque::from_static(b"client");
    let sys = AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids: GroupList::default() };
    let credential = OpaqueAuth::sys(&sys);
    let header = CallHeader { credential, ..CallHeader::new(xid, program, version, procedure) };
    let mut call = Writer::new();
    encode_call(&mut call, &header, &Raw(arguments));
    call.into_bytes()
}

pub(super) fn place(dir: FileHandle, name: &[u8]) -> DirOpArgs {
    DirOpArgs { dir, name: Filename::new(name.to_vec()).unwrap() }
}

#[track_caller]
pub(super) fn found(result: DirOpRes) -> DirOpOk {
    match result {
        DirOpRes::Ok(ok) => ok,
        DirOpRes::Fail(status) => panic!("{status:?}"),
    }
}

#[track_caller]
pub(super) fn attributes(result: AttrStat) -> Fattr {
    match result {
        AttrStat::Ok(attributes) => attributes,
        AttrStat::Fail(status) => panic!("{status:?}"),
    }
}

#[test]
fn procedures_without_results_answer_nothing() {
    let client = Client::new();
    for procedure in [Proc::NULL, Proc::ROOT, Proc::WRITECACHE] {
        assert_eq!(client.raw(procedure, &[]), Ok(Bytes::new()), "{procedure:?}");
    }
    assert_eq!(FHSIZE, client.root.len());
}

#[test]
fn a_handle_of_one_version_is_one_of_the_others() {
    let client = Client::new();
    let file = client.create(b"file");
    let args = nfs3::GetattrArgs { object: nfs3::FileHandle::new(&file).unwrap() };
    let seen = client.call3::<nfs3::GetattrResult>(nfs3::Proc::GETATTR, &args).into_result().unwrap();
    let shown = attributes(client.call(Proc::GETATTR, &file));
    assert_eq!((u64::from(shown.fileid), u64::from(shown.size)), (seen.fileid, seen.size));
}
