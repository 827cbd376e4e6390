//! Scenarios of NFSv3 against a file system in memory, through the whole server.

mod acl;
mod faults;
mod filesystem;
mod flavors;
mod names;
mod objects;
mod stability;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use protocol::nfs3::*;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
use vfs::fault::{Fault, Faulty, Gate, Method, Rule};
use vfs::{Backend, Error, MemFs, MemOptions, Timestamp};
use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use crate::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, Transport,
};

const KEY: HandleKey = HandleKey([9; 16]);

/// A server of one export, and a client of it.
struct Pair {
    server: Server,
    connection: Arc<Connection>,
    root: FileHandle,
    xid: std::cell::Cell<u32>,
    uid: u32,
}

fn pair_with(options: ExportOptions, memory: &MemOptions, uid: u32) -> Pair {
    pair_over(Arc::new(MemFs::new(memory)), options, uid)
}

/// As [`pair`], over a backend that fails as configured.
fn faulty_pair() -> (Pair, Arc<Faulty<MemFs>>) {
    let backend = Arc::new(Faulty::new(MemFs::new(&MemOptions::default())));
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    (pair_over(backend.clone(), options, 0), backend)
}

fn pair_over(backend: Arc<dyn Backend>, options: ExportOptions, uid: u32) -> Pair {
    pair_of(
        vec![Export {
            id: ExportId(1),
            path: "/export".into(),
            backend,
            options,
            fsid: (7, 0),
            counts: Arc::default(),
        }],
        uid,
    )
}

/// Returns a client of a server of these exports; its root is the first one's.
fn pair_of(exports: Vec<Export>, uid: u32) -> Pair {
    let root = top(&exports[0]);
    let settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
    let server = Server::new(settings, ExportTable::new(exports).unwrap());
    let address = |port| core::net::SocketAddr::from(([127, 0, 0, 1], port));
    let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
    Pair { server, connection: Arc::new(connection), root, xid: 1.into(), uid }
}

/// Returns the handle of an export's root.
fn top(export: &Export) -> FileHandle {
    FileHandle::new(&KEY.seal(export.id, &export.backend.root())).unwrap()
}

fn pair() -> Pair {
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    pair_with(options, &MemOptions::default(), 0)
}

/// Arguments that are bytes already.
struct Raw(Bytes);

impl Encode for Raw {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(&self.0);
    }
}

/// Results as bytes.
struct Rest(Bytes);

impl Decode for Rest {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(reader.rest()))
    }
}

impl Pair {
    fn raw(&self, xid: u32, program: u32, version: u32, procedure: u32, args: &impl Encode) -> Option<Bytes> {
        let credential = OpaqueAuth::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"client"),
            uid: self.uid,
            gid: self.uid,
            gids: GroupList::default(),
        });
        let mut call = Writer::new();
        let header = CallHeader { credential, ..CallHeader::new(xid, program, version, procedure) };
        encode_call(&mut call, &header, args);
        let wall = Timestamp { seconds: 1_000 + i64::from(xid), nanoseconds: 5 };
        let now = Now { monotonic: Duration::from_secs(1), wall };
        let mut reply = Writer::new();
        let outcome = self.server.handle(&self.connection, now, call.into_bytes(), &mut reply).now_or_never();
        match outcome.expect("a file system in memory answers at once").disposition {
            Disposition::Reply => Some(reply.into_bytes()),
            Disposition::Drop | Disposition::Close => None,
        }
    }

    fn call<T: Decode>(&self, procedure: Proc, args: &impl Encode) -> T {
        self.xid.set(self.xid.get() + 1);
        let reply = self.raw(self.xid.get(), PROGRAM, VERSION, procedure.0, args).expect("a reply");
        parse_reply(reply).expect("results")
    }

    /// Returns the status of a call with these bytes as its arguments, and the length of its results.
    fn ask(&self, xid: u32, procedure: Proc, args: &Bytes) -> (NfsStat, usize) {
        let args = Raw(args.clone());
        let reply = self.raw(xid, PROGRAM, VERSION, procedure.0, &args).expect("a reply");
        let Rest(results) = parse_reply(reply).expect("results");
        (NfsStat(u32::from_be_bytes(results[..4].try_into().unwrap())), results.len())
    }

    /// Returns the status of a call.
    fn status(&self, procedure: Proc, args: &impl Encode) -> NfsStat {
        self.xid.set(self.xid.get() + 1);
        self.ask(self.xid.get(), procedure, &xdr::to_bytes(args)).0
    }

    fn mkdir(&self, name: &'static [u8], mode: u32) -> FileHandle {
        let attributes = Sattr { mode: Some(mode), ..Sattr::default() };
        let made: MkdirResult = self.call(Proc::MKDIR, &MkdirArgs { where_: self.at(name), attributes });
        made.into_result().unwrap().obj.unwrap()
    }

    fn symlink(&self, name: &'static [u8], text: &'static [u8]) -> FileHandle {
        let symlink_data = NfsPath::from_static(text);
        let args = SymlinkArgs { where_: self.at(name), symlink_attributes: Sattr::default(), symlink_data };
        self.call::<SymlinkResult>(Proc::SYMLINK, &args).into_result().unwrap().obj.unwrap()
    }

    fn attributes(&self, object: FileHandle) -> Fattr {
        self.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object }).into_result().unwrap()
    }

    fn create(&self, name: &'static [u8], how: CreateHow) -> CreateResult {
        self.call(Proc::CREATE, &CreateArgs { where_: self.at(name), how })
    }

    fn file(&self, name: &'static [u8]) -> FileHandle {
        let attributes = Sattr { mode: Some(0o644), ..Sattr::default() };
        self.create(name, CreateHow::Guarded(attributes)).into_result().unwrap().obj.unwrap()
    }

    fn at(&self, name: &'static [u8]) -> DirOpArgs {
        DirOpArgs { dir: self.root, name: Filename::from_static(name) }
    }

    fn lookup(&self, name: &'static [u8]) -> LookupResult {
        self.call(Proc::LOOKUP, &LookupArgs { what: self.at(name) })
    }

    fn write(&self, file: FileHandle, offset: u64, data: &'static [u8], stable: StableHow) -> WriteResult {
        let data = Opaque::from_static(data);
        self.call(Proc::WRITE, &WriteArgs { file, offset, count: data.len() as u32, stable, data })
    }

    fn read(&self, file: FileHandle, offset: u64, count: u32) -> ReadResult {
        self.call(Proc::READ, &ReadArgs { file, offset, count })
    }
}

#[test]
fn exclusive_create_survives_its_retransmission_under_a_new_number() {
    let pair = pair();
    let first = pair.create(b"once", CreateHow::Exclusive([1; 8])).into_result().unwrap();
    let second = pair.create(b"once", CreateHow::Exclusive([1; 8])).into_result().unwrap();
    assert_eq!(first.obj, second.obj);
    assert_eq!(pair.create(b"once", CreateHow::Exclusive([2; 8])).status(), NfsStat::EXIST);
    assert_eq!(pair.create(b"once", CreateHow::Guarded(Sattr::default())).status(), NfsStat::EXIST);
    assert_eq!(pair.create(b"once", CreateHow::Unchecked(Sattr::default())).status(), NfsStat::OK);
}

#[test]
fn a_retransmission_of_each_non_idempotent_call_gets_the_first_reply() {
    let pair = pair();
    let old = pair.file(b"old");
    let dir = || pair.at(b"d");
    let twice = |procedure: Proc, args: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new();
        args(&mut writer);
        let args = Raw(writer.into_bytes());
        let xid = 9_000 + procedure.0;
        let first = pair.raw(xid, PROGRAM, VERSION, procedure.0, &args).unwrap();
        let again = pair.raw(xid, PROGRAM, VERSION, procedure.0, &args).unwrap();
        assert_eq!(first, again, "{procedure:?}");
        let status = NfsStat::decode(&mut Reader::new(first.slice(24..))).unwrap();
        assert_eq!(status, NfsStat::OK, "{procedure:?}");
    };
    let guard = match pair.lookup(b"old").into_result().unwrap().obj_attributes {
        Some(attributes) => attributes.ctime,
        None => panic!("attributes"),
    };
    let attributes = Sattr { mode: Some(0o600), ..Sattr::default() };
    let sattr = Sattr::default();
    twice(Proc::SETATTR, &|w| {
        SetattrArgs { object: old, new_attributes: attributes, guard: Some(guard) }.encode(w)
    });
    twice(Proc::CREATE, &|w| {
        CreateArgs { where_: pair.at(b"new"), how: CreateHow::Guarded(sattr) }.encode(w)
    });
    twice(Proc::MKDIR, &|w| MkdirArgs { where_: dir(), attributes: sattr }.encode(w));
    twice(Proc::SYMLINK, &|w| {
        let symlink_data = NfsPath::from_static(b"old");
        SymlinkArgs { where_: pair.at(b"l"), symlink_attributes: sattr, symlink_data }.encode(w);
    });
    twice(Proc::MKNOD, &|w| MknodArgs { where_: pair.at(b"p"), what: MknodData::Fifo(sattr) }.encode(w));
    twice(Proc::LINK, &|w| LinkArgs { file: old, link: pair.at(b"hard") }.encode(w));
    twice(Proc::RENAME, &|w| RenameArgs { from: pair.at(b"old"), to: pair.at(b"renamed") }.encode(w));
    twice(Proc::REMOVE, &|w| RemoveArgs { object: pair.at(b"hard") }.encode(w));
    twice(Proc::RMDIR, &|w| RemoveArgs { object: dir() }.encode(w));
    assert_eq!(pair.server.metrics().replayed.load(std::sync::atomic::Ordering::Relaxed), 9);
}

#[test]
fn rename_link_and_remove_keep_the_handle_until_the_last_name_is_gone() {
    let pair = pair();
    let file = pair.file(b"a");
    let renamed: RenameResult =
        pair.call(Proc::RENAME, &RenameArgs { from: pair.at(b"a"), to: pair.at(b"b") });
    assert_eq!(renamed.status(), NfsStat::OK);
    let linked: LinkResult = pair.call(Proc::LINK, &LinkArgs { file, link: pair.at(b"c") });
    assert_eq!(linked.into_result().unwrap().file_attributes.unwrap().nlink, 2);
    for name in [&b"b"[..], b"c"] {
        assert_eq!(
            pair.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object: file }).status(),
            NfsStat::OK
        );
        let object = DirOpArgs { dir: pair.root, name: Filename::new(name).unwrap() };
        assert_eq!(pair.call::<RemoveResult>(Proc::REMOVE, &RemoveArgs { object }).status(), NfsStat::OK);
    }
    assert_eq!(
        pair.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object: file }).status(),
        NfsStat::STALE
    );
}

#[test]
fn setattr_checks_its_guard() {
    let pair = pair();
    let object = pair.file(b"file");
    let new_attributes = Sattr { size: Some(10), ..Sattr::default() };
    let guard = Some(NfsTime { seconds: 1, nseconds: 1 });
    let refused: SetattrResult = pair.call(Proc::SETATTR, &SetattrArgs { object, new_attributes, guard });
    assert_eq!(refused.status(), NfsStat::NOT_SYNC);
    let done: SetattrResult = pair.call(Proc::SETATTR, &SetattrArgs { object, new_attributes, guard: None });
    assert_eq!(done.into_result().unwrap().after.unwrap().size, 10);
    let atime = SetTime::ToClientTime(NfsTime { seconds: 1, nseconds: 1_000_000_000 });
    let new_attributes = Sattr { atime, ..Sattr::default() };
    let bad: SetattrResult = pair.call(Proc::SETATTR, &SetattrArgs { object, new_attributes, guard: None });
    assert_eq!(bad.status(), NfsStat::INVAL);
}

#[test]
fn lists_every_entry_once_with_any_page_size() {
    let pair = pair();
    let names: Vec<_> = (0..100).map(|n| format!("entry-{n:03}")).collect();
    for name in &names {
        let name = Filename::new(name.clone().into_bytes()).unwrap();
        let args = MkdirArgs { where_: DirOpArgs { dir: pair.root, name }, attributes: Sattr::default() };
        assert_eq!(pair.call::<MkdirResult>(Proc::MKDIR, &args).status(), NfsStat::OK);
    }
    let mut expected: Vec<_> = names.iter().map(|name| name.clone().into_bytes()).collect();
    expected.extend([b".".to_vec(), b"..".to_vec()]);
    expected.sort();
    for count in [200, 512, 4096, 1 << 20] {
        let (mut cookie, mut cookieverf, mut seen) = (0, [0; 8], Vec::new());
        loop {
            let args = ReaddirArgs { dir: pair.root, cookie, cookieverf, count };
            let page = pair.call::<ReaddirResult>(Proc::READDIR, &args).into_result().unwrap();
            let reply_length = 4 + xdr::to_bytes(&page).len();
            assert!(reply_length <= count as usize, "{reply_length} > {count}");
            assert_eq!(page.dir_attributes.unwrap().nlink, 102);
            seen.extend(page.reply.entries.iter().map(|entry| entry.name.to_vec()));
            cookieverf = page.cookieverf;
            match page.reply.entries.last() {
                Some(last) if !page.reply.eof => cookie = last.cookie,
                _ => break,
            }
        }
        seen.sort();
        assert_eq!(seen, expected, "count {count}");
    }
    let args = ReaddirArgs { dir: pair.root, cookie: 0, cookieverf: [0; 8], count: 100 };
    assert_eq!(pair.call::<ReaddirResult>(Proc::READDIR, &args).status(), NfsStat::TOOSMALL);
}

#[test]
fn readdirplus_agrees_with_lookup_and_getattr() {
    let pair = pair();
    let file = pair.file(b"file");
    let args =
        ReaddirplusArgs { dir: pair.root, cookie: 0, cookieverf: [0; 8], dircount: 4096, maxcount: 8192 };
    let page = pair.call::<ReaddirplusResult>(Proc::READDIRPLUS, &args).into_result().unwrap();
    let entry = page.reply.entries.iter().find(|entry| &*entry.name == b"file").unwrap();
    assert_eq!(entry.name_handle, Some(file));
    let attributes =
        pair.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object: file }).into_result().unwrap();
    assert_eq!(entry.name_attributes, Some(attributes));
    assert!(page.reply.eof);
}

#[test]
fn squashed_root_is_nobody_and_owners_are_respected() {
    let memory = MemOptions { root_mode: 0o777, ..MemOptions::default() };
    let pair = pair_with(ExportOptions::default(), &memory, 0);
    let file = pair.file(b"file");
    let attributes =
        pair.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object: file }).into_result().unwrap();
    assert_eq!((attributes.uid, attributes.gid), (65_534, 65_534));
    let new_attributes = Sattr { uid: Some(1), ..Sattr::default() };
    let chown: SetattrResult =
        pair.call(Proc::SETATTR, &SetattrArgs { object: file, new_attributes, guard: None });
    assert_eq!(chown.status(), NfsStat::PERM);
}

#[test]
fn a_read_only_export_changes_nothing_and_grants_no_change() {
    let options = ExportOptions { read_only: true, squash: Squash::None, ..ExportOptions::default() };
    let pair = pair_with(options, &MemOptions::default(), 0);
    assert_eq!(pair.create(b"file", CreateHow::Unchecked(Sattr::default())).status(), NfsStat::ROFS);
    let access: AccessResult =
        pair.call(Proc::ACCESS, &AccessArgs { object: pair.root, access: Access::all() });
    assert_eq!(access.into_result().unwrap().access, Access::READ | Access::LOOKUP);
}

#[test]
fn clients_from_elsewhere_are_refused() {
    let options = ExportOptions {
        clients: vec!["10.0.0.0/8".parse::<crate::Network>().unwrap().into()],
        ..ExportOptions::default()
    };
    let pair = pair_with(options, &MemOptions::default(), 0);
    let refused: GetattrResult = pair.call(Proc::GETATTR, &GetattrArgs { object: pair.root });
    assert_eq!(refused.status(), NfsStat::ACCES);
    use protocol::mount;
    let path = mount::DirPath::from_static(b"/export");
    let mnt = pair.raw(9, mount::PROGRAM, mount::VERSION_3, mount::Proc::MNT.0, &path).expect("a reply");
    let mnt: mount::MountResult = parse_reply(mnt).expect("results");
    assert_eq!(mnt, mount::MountResult::Fail(mount::MountStat::ACCES));
    assert_eq!(pair.server.metrics().refused.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[test]
fn forged_handles_and_handles_of_removed_exports_are_refused() {
    let pair = pair();
    let getattr = |object| pair.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object }).status();
    assert_eq!(getattr(FileHandle::new(&[1; 40]).unwrap()), NfsStat::BADHANDLE);
    assert_eq!(getattr(FileHandle::default()), NfsStat::BADHANDLE);
    let inner = pair.server.exports().iter().next().unwrap().backend.root();
    let lost = FileHandle::new(&KEY.seal(ExportId(2), &inner)).unwrap();
    assert_eq!(getattr(lost), NfsStat::STALE);
    let forged = FileHandle::new(&HandleKey([1; 16]).seal(ExportId(1), &inner)).unwrap();
    assert_eq!(getattr(forged), NfsStat::BADHANDLE);
}

#[test]
fn unknown_programs_versions_and_procedures_get_different_errors() {
    let pair = pair();
    let status = |program, version, procedure| match parse_reply::<()>(
        pair.raw(1, program, version, procedure, &()).unwrap(),
    ) {
        Err(RpcError::NotExecuted(status)) => status,
        other => panic!("{other:?}"),
    };
    let mismatch = |low, high| AcceptStatus::ProgramMismatch(rpc::message::VersionRange { low, high });
    assert_eq!(status(100_099, 1, 0), AcceptStatus::ProgramUnavailable);
    assert_eq!(status(PROGRAM, 5, 0), mismatch(3, 4));
    assert_eq!(status(PROGRAM, 1, 0), mismatch(3, 4));
    assert_eq!(status(100_005, 7, 0), mismatch(3, 3));
    assert_eq!(status(PROGRAM, VERSION, 22), AcceptStatus::ProcedureUnavailable);
    assert_eq!(parse_reply::<()>(pair.raw(1, PROGRAM, VERSION, 0, &()).unwrap()), Ok(()));
}

#[test]
fn counts_refused_calls() {
    use std::sync::atomic::Ordering::Relaxed;
    let pair = pair();
    pair.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object: FileHandle::new(&[1; 40]).unwrap() });
    pair.raw(1, PROGRAM, VERSION, Proc::GETATTR.0, &()).unwrap();
    let metrics = pair.server.metrics();
    assert_eq!((metrics.bad_handles.load(Relaxed), metrics.malformed.load(Relaxed)), (1, 1));
    let getattr = &metrics.nfs3[Proc::GETATTR.0 as usize];
    assert_eq!((getattr.calls.load(Relaxed), getattr.errors.load(Relaxed)), (2, 2), "of both a call");
}

#[test]
fn calls_of_unknown_programs_are_counted() {
    use std::sync::atomic::Ordering::Relaxed;
    let pair = pair();
    let unserved = [
        (protocol::rquota::PROGRAM, 1, 0),
        (PROGRAM, 2, 0),
        (protocol::nfs4::PROGRAM, 5, 0),
        (PROGRAM, VERSION, 22),
        (protocol::nfs4::PROGRAM, 4, 2),
        (protocol::mount::PROGRAM, 1, 0),
        (protocol::mount::PROGRAM, 3, 6),
        (protocol::nfsacl::PROGRAM, 3, 3),
        (100_000, 2, 0),
    ];
    for (count, (program, version, procedure)) in (0..).zip(unserved) {
        assert_eq!(pair.server.metrics().unserved.load(Relaxed), count);
        pair.raw(1, program, version, procedure, &()).expect("a reply");
    }
    assert_eq!(pair.server.metrics().unserved.load(Relaxed), unserved.len() as u64);
    assert_eq!(pair.server.metrics().malformed.load(Relaxed), 0);
}
