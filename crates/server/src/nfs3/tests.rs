//! Scenarios of NFSv3 against a file system in memory, through the whole server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use protocol::nfs3::*;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
use vfs::fault::{Fault, Faulty, Gate, Method, Rule};
use vfs::{Backend, Error, MemFs, MemOptions, Timestamp};
use xdr::{Decode, Encode, Opaque, Writer};

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

/// As [`pair`], over a backend that goes wrong as told.
fn faulty_pair() -> (Pair, Arc<Faulty<MemFs>>) {
    let backend = Arc::new(Faulty::new(MemFs::new(&MemOptions::default())));
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    (pair_over(backend.clone(), options, 0), backend)
}

fn pair_over(backend: Arc<dyn Backend>, options: ExportOptions, uid: u32) -> Pair {
    let root = FileHandle::new(&KEY.seal(ExportId(1), &backend.root())).unwrap();
    let export = Export { id: ExportId(1), path: "/export".into(), backend, options, fsid: (7, 0) };
    let settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
    let server = Server::new(settings, ExportTable::new(vec![export]).unwrap());
    let address = |port| core::net::SocketAddr::from(([127, 0, 0, 1], port));
    let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
    Pair { server, connection: Arc::new(connection), root, xid: 1.into(), uid }
}

fn pair() -> Pair {
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    pair_with(options, &MemOptions::default(), 0)
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
        match outcome.expect("memory answers at once").disposition {
            Disposition::Reply => Some(reply.into_bytes()),
            Disposition::Drop | Disposition::Close => None,
        }
    }

    fn call<T: Decode>(&self, procedure: Proc, args: &impl Encode) -> T {
        self.xid.set(self.xid.get() + 1);
        let reply = self.raw(self.xid.get(), PROGRAM, VERSION, procedure.0, args).expect("a reply");
        parse_reply(reply).expect("results")
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
fn writes_reads_and_reports_the_end() {
    let pair = pair();
    let file = pair.file(b"file");
    let written = pair.write(file, 0, b"hello, world", StableHow::FileSync).into_result().unwrap();
    assert_eq!((written.count, written.committed), (12, StableHow::FileSync));
    let wcc = written.file_wcc;
    assert_eq!((wcc.before.unwrap().size, wcc.after.unwrap().size), (0, 12));
    let read = pair.read(file, 7, 100).into_result().unwrap();
    assert_eq!((&*read.data, read.count, read.eof), (&b"world"[..], 5, true));
    let read = pair.read(file, 0, 5).into_result().unwrap();
    assert_eq!((&*read.data, read.eof), (&b"hello"[..], false));
    assert_eq!(read.file_attributes.unwrap().size, 12);
    let behind = pair.read(file, 100, 5).into_result().unwrap();
    assert_eq!((behind.count, behind.eof), (0, true));
}

#[test]
fn commit_tells_the_verifier_that_writes_told() {
    let pair = pair();
    let file = pair.file(b"file");
    let written = pair.write(file, 0, b"data", StableHow::Unstable).into_result().unwrap();
    let args = CommitArgs { file, offset: 0, count: 0 };
    let committed = pair.call::<CommitResult>(Proc::COMMIT, &args).into_result().unwrap();
    assert_eq!(committed.verf, written.verf);
    let other = pair_with(ExportOptions::default(), &MemOptions { instance: 2, ..MemOptions::default() }, 0);
    let stale = other.call::<CommitResult>(Proc::COMMIT, &args);
    assert_eq!(stale.status(), NfsStat::STALE, "another instance of memory has none of the files");
}

#[test]
fn a_write_whose_counts_differ_or_that_ends_nowhere_is_refused() {
    let pair = pair();
    let file = pair.file(b"file");
    let args = WriteArgs {
        file,
        offset: 0,
        count: 5,
        stable: StableHow::Unstable,
        data: Opaque::from_static(b"four"),
    };
    assert_eq!(pair.call::<WriteResult>(Proc::WRITE, &args).status(), NfsStat::INVAL);
    let args = WriteArgs { offset: u64::MAX - 1, count: 4, ..args };
    assert_eq!(pair.call::<WriteResult>(Proc::WRITE, &args).status(), NfsStat::FBIG);
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
        struct Raw(Bytes);
        impl Encode for Raw {
            fn encode(&self, writer: &mut Writer) {
                writer.raw(&self.0);
            }
        }
        let mut writer = Writer::new();
        args(&mut writer);
        let args = Raw(writer.into_bytes());
        let xid = 9_000 + procedure.0;
        let first = pair.raw(xid, PROGRAM, VERSION, procedure.0, &args).unwrap();
        let again = pair.raw(xid, PROGRAM, VERSION, procedure.0, &args).unwrap();
        assert_eq!(first, again, "{procedure:?}");
        let status = NfsStat::decode(&mut xdr::Reader::new(first.slice(24..))).unwrap();
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
fn a_late_copy_of_a_write_undoes_nothing_and_is_told_the_same() {
    let pair = pair();
    let file = pair.file(b"file");
    let first = WriteArgs {
        file,
        offset: 0,
        count: 3,
        stable: StableHow::DataSync,
        data: Opaque::from_static(b"old"),
    };
    let send = |xid, args: &WriteArgs| -> WriteResult {
        parse_reply(pair.raw(xid, PROGRAM, VERSION, Proc::WRITE.0, args).unwrap()).unwrap()
    };
    let told = send(9_000, &first).into_result().unwrap();
    pair.write(file, 0, b"newer", StableHow::Unstable);
    let again = send(9_000, &first).into_result().unwrap();
    assert_eq!((again.count, again.committed, again.verf), (told.count, told.committed, told.verf));
    assert_eq!(
        (again.file_wcc.before, again.file_wcc.after.unwrap().size),
        (None, 5),
        "attributes as of now"
    );
    assert_eq!(&*pair.read(file, 0, 9).into_result().unwrap().data, b"newer");
    let failing = WriteArgs { count: 2, ..first };
    for _ in 0..2 {
        assert_eq!(send(9_001, &failing).status(), NfsStat::INVAL);
    }
    assert_eq!(pair.server.metrics().replayed.load(std::sync::atomic::Ordering::Relaxed), 2);
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
fn setattr_heeds_its_guard() {
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
fn lists_every_entry_once_whatever_the_page_size() {
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
fn readdirplus_tells_what_lookup_and_getattr_tell() {
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
fn dot_and_dot_dot_are_found_and_not_created_or_removed() {
    let pair = pair();
    assert_eq!(pair.lookup(b".").into_result().unwrap().object, pair.root);
    assert_eq!(pair.lookup(b"..").into_result().unwrap().object, pair.root, "nothing is above the top");
    for name in [&b"."[..], b".."] {
        let place = || DirOpArgs { dir: pair.root, name: Filename::new(name).unwrap() };
        let mkdir: MkdirResult =
            pair.call(Proc::MKDIR, &MkdirArgs { where_: place(), attributes: Sattr::default() });
        assert_eq!(mkdir.status(), NfsStat::EXIST);
        let remove: RemoveResult = pair.call(Proc::REMOVE, &RemoveArgs { object: place() });
        assert_ne!(remove.status(), NfsStat::OK);
    }
}

#[test]
fn names_that_may_not_be_are_refused() {
    let pair = pair();
    let long = vec![b'x'; 300];
    for (name, expected) in [
        (&b"a/b"[..], NfsStat::ACCES),
        (b"a\0b", NfsStat::ACCES),
        (b"", NfsStat::ACCES),
        (&long, NfsStat::NAMETOOLONG),
    ] {
        let place = DirOpArgs { dir: pair.root, name: Filename::new(name.to_vec()).unwrap() };
        let mkdir: MkdirResult =
            pair.call(Proc::MKDIR, &MkdirArgs { where_: place.clone(), attributes: Sattr::default() });
        assert_eq!(mkdir.status(), expected, "{name:?}");
    }
}

#[test]
fn squashed_root_is_nobody_and_owners_are_obeyed() {
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
    let options = ExportOptions { clients: vec!["10.0.0.0/8".parse().unwrap()], ..ExportOptions::default() };
    let pair = pair_with(options, &MemOptions::default(), 0);
    let refused: GetattrResult = pair.call(Proc::GETATTR, &GetattrArgs { object: pair.root });
    assert_eq!(refused.status(), NfsStat::ACCES);
}

#[test]
fn handles_made_up_or_of_lost_exports_lead_nowhere() {
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
fn every_call_cut_short_is_garbage_and_none_panics() {
    let pair = pair();
    let file = pair.file(b"file");
    let data = Opaque::from_static(b"data");
    let write = xdr::to_bytes(&WriteArgs { file, offset: 0, count: 4, stable: StableHow::Unstable, data });
    struct Raw<'a>(&'a [u8]);
    impl Encode for Raw<'_> {
        fn encode(&self, writer: &mut Writer) {
            writer.raw(self.0);
        }
    }
    for procedure in 1..22 {
        for length in (0..write.len()).step_by(4) {
            let xid = 50_000 + procedure * 1000 + length as u32;
            let reply = pair.raw(xid, PROGRAM, VERSION, procedure, &Raw(&write[..length])).expect("a reply");
            if length == 0 {
                let error = parse_reply::<()>(reply).unwrap_err();
                assert_eq!(
                    error,
                    RpcError::NotExecuted(AcceptStatus::GarbageArguments),
                    "procedure {procedure}"
                );
            }
        }
    }
}

#[test]
fn unknown_programs_versions_and_procedures_are_told_apart() {
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
fn a_file_that_is_not_there_yet_is_jukebox_and_asking_again_is_not_answered_from_the_cache() {
    let (pair, backend) = faulty_pair();
    backend.add(Rule::on(Method::Create, Fault::Fail(Error::Later)).times(1));
    let args = CreateArgs { where_: pair.at(b"file"), how: CreateHow::Guarded(Sattr::default()) };
    let ask = || {
        parse_reply::<CreateResult>(pair.raw(5, PROGRAM, VERSION, Proc::CREATE.0, &args).unwrap()).unwrap()
    };
    assert_eq!(ask().status(), NfsStat::JUKEBOX);
    // RFC 1813 §2.6 lets a client come back under the same number as well as under another.
    assert_eq!(ask().status(), NfsStat::OK);
    backend.add(Rule::on(Method::Read, Fault::Fail(Error::Later)).times(1));
    let file = pair.lookup(b"file").into_result().unwrap().object;
    assert_eq!(pair.read(file, 0, 10).status(), NfsStat::JUKEBOX);
    assert_eq!(pair.read(file, 0, 10).status(), NfsStat::OK);
}

#[test]
fn a_failing_commit_reaches_the_client_and_changes_the_verifier() {
    let (pair, backend) = faulty_pair();
    let file = pair.file(b"file");
    let before = pair.write(file, 0, b"data", StableHow::Unstable).into_result().unwrap().verf;
    backend.add(Rule::on(Method::Commit, Fault::Fail(Error::Io)).times(1));
    let commit = || pair.call::<CommitResult>(Proc::COMMIT, &CommitArgs { file, offset: 0, count: 0 });
    assert_eq!(commit().status(), NfsStat::IO);
    // The client must send again what it wrote before: another verifier says so.
    assert_ne!(commit().into_result().unwrap().verf, before);
}

#[test]
fn a_full_disk_and_a_used_up_quota_are_told_apart() {
    let (pair, backend) = faulty_pair();
    let file = pair.file(b"file");
    for (error, status) in [(Error::NoSpace, NfsStat::NOSPC), (Error::Quota, NfsStat::DQUOT)] {
        backend.add(Rule::on(Method::Write, Fault::Fail(error)).times(1));
        let result = pair.write(file, 0, b"data", StableHow::Unstable);
        assert_eq!(result.status(), status);
        assert!(
            matches!(result, Outcome::Fail(_, wcc) if wcc.after.is_some()),
            "a failure tells attributes too"
        );
    }
}

#[test]
fn a_copy_of_a_call_that_is_being_executed_is_dropped() {
    let (pair, backend) = faulty_pair();
    let gate = Gate::new();
    backend.add(Rule::on(Method::Create, Fault::Hold(gate.clone())).times(1));
    let where_ = pair.at(b"file");
    let mut call = Writer::new();
    let header = CallHeader::new(9, PROGRAM, VERSION, Proc::CREATE.0);
    encode_call(&mut call, &header, &CreateArgs { where_, how: CreateHow::Guarded(Sattr::default()) });
    let call = call.into_bytes();
    let now = Now { monotonic: Duration::from_secs(1), wall: Timestamp::default() };
    let (mut first, mut copy) = (Writer::new(), Writer::new());
    let mut executing = Box::pin(pair.server.handle(&pair.connection, now, call.clone(), &mut first));
    assert!((&mut executing).now_or_never().is_none(), "the gate holds it");
    let outcome = pair.server.handle(&pair.connection, now, call.clone(), &mut copy).now_or_never().unwrap();
    assert_eq!(outcome.disposition, Disposition::Drop);
    gate.open();
    let outcome = executing.now_or_never().expect("the gate is open");
    assert_eq!(outcome.disposition, Disposition::Reply);
    let outcome = pair.server.handle(&pair.connection, now, call, &mut copy).now_or_never().unwrap();
    assert_eq!(outcome.disposition, Disposition::Reply);
    assert_eq!(first.inline(), copy.inline(), "a later copy gets the first one's reply");
    assert_eq!(backend.calls(Method::Create), 1);
}

#[test]
fn what_is_refused_is_counted() {
    use std::sync::atomic::Ordering::Relaxed;
    let pair = pair();
    pair.call::<GetattrResult>(Proc::GETATTR, &GetattrArgs { object: FileHandle::new(&[1; 40]).unwrap() });
    pair.raw(1, PROGRAM, VERSION, Proc::GETATTR.0, &()).unwrap();
    let metrics = pair.server.metrics();
    assert_eq!((metrics.bad_handles.load(Relaxed), metrics.malformed.load(Relaxed)), (1, 1));
}

/// The NFS_ACL side protocol.
mod acl {
    use protocol::nfsacl::{
        Acl, AclEntry, AclTag, GetAclArgs, GetAclResult, Mask, PROGRAM, Proc, SecAttr, SetAclArgs,
        SetAclResult, VERSION,
    };
    use xdr::List;

    use super::*;

    impl Pair {
        fn acl<T: Decode>(&self, procedure: Proc, args: &impl Encode) -> T {
            self.xid.set(self.xid.get() + 1);
            let reply = self.raw(self.xid.get(), PROGRAM, VERSION, procedure.0, args).expect("a reply");
            parse_reply(reply).expect("results")
        }

        fn get_acl(&self, fh: FileHandle, mask: Mask) -> SecAttr {
            let result: GetAclResult = self.acl(Proc::GETACL, &GetAclArgs { fh, mask });
            let ok = result.into_result().unwrap();
            assert!(ok.attributes.is_some());
            ok.acl
        }

        fn set_acl(&self, fh: FileHandle, acl: SecAttr) -> NfsStat {
            let result: SetAclResult = self.acl(Proc::SETACL, &SetAclArgs { fh, acl });
            result.status()
        }
    }

    fn list(entries: &[(AclTag, u32, u32)], marker: u32) -> Acl {
        let entry = |(tag, id, perm): &(AclTag, u32, u32)| AclEntry {
            tag: AclTag(tag.0 | marker),
            id: *id,
            perm: *perm,
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        Acl { count: entries.len() as u32, entries: List::new(entries).unwrap() }
    }

    const LISTED: [(AclTag, u32, u32); 5] = [
        (AclTag::USER_OBJ, 0, 6),
        (AclTag::USER, 1000, 4),
        (AclTag::GROUP_OBJ, 0, 4),
        (AclTag::CLASS_OBJ, 0, 5),
        (AclTag::OTHER_OBJ, 0, 0),
    ];

    #[test]
    fn a_file_without_a_list_has_the_one_that_its_mode_says_with_a_mask() {
        let pair = pair();
        let file = pair.file(b"file");
        let all = Mask::all();
        let got = pair.get_acl(file, all);
        let minimal = [
            (AclTag::USER_OBJ, 0, 6),
            (AclTag::GROUP_OBJ, 0, 4),
            (AclTag::CLASS_OBJ, 0, 4),
            (AclTag::OTHER_OBJ, 0, 4),
        ];
        assert_eq!(got, SecAttr { mask: all, acl: list(&minimal, 0), dfacl: Acl::default() });
        let counted = pair.get_acl(file, Mask::ACLCNT);
        assert_eq!((counted.acl.count, counted.acl.entries.len()), (4, 0));
        // What came so goes back so, and leaves no list.
        assert_eq!(pair.set_acl(file, SecAttr { mask: Mask::ACL, ..got.clone() }), NfsStat::OK);
        assert_eq!(pair.get_acl(file, all), got);
    }

    #[test]
    fn lists_are_set_and_got_and_judge() {
        let pair = pair();
        let file = pair.file(b"file");
        let mask = Mask::ACL | Mask::ACLCNT;
        let wanted = SecAttr { mask, acl: list(&LISTED, 0), dfacl: Acl::default() };
        assert_eq!(pair.set_acl(file, wanted.clone()), NfsStat::OK);
        assert_eq!(pair.get_acl(file, mask), wanted);
        let attributes: GetattrResult = pair.call(super::Proc::GETATTR, &GetattrArgs { object: file });
        assert_eq!(attributes.into_result().unwrap().mode, 0o650);
        let user = Pair { uid: 1000, ..pair };
        let other = |pair: &Pair| pair.read(file, 0, 1).status();
        assert_eq!(other(&user), NfsStat::OK);
        assert_eq!(other(&Pair { uid: 1001, ..user }), NfsStat::ACCES);
    }

    #[test]
    fn a_directorys_default_list_is_set_alone_and_taken_away() {
        let pair = pair();
        let mask = Mask::DFACL | Mask::DFACLCNT;
        let wanted = SecAttr { mask, acl: Acl::default(), dfacl: list(&LISTED, AclTag::DEFAULT) };
        assert_eq!(pair.set_acl(pair.root, wanted.clone()), NfsStat::OK);
        assert_eq!(pair.get_acl(pair.root, mask), wanted);
        assert_eq!(pair.get_acl(pair.root, Mask::ACL).acl.entries.len(), 4, "the access list is as it was");
        assert_eq!(pair.set_acl(pair.root, SecAttr { mask, ..SecAttr::default() }), NfsStat::OK);
        assert_eq!(pair.get_acl(pair.root, mask), SecAttr { mask, ..SecAttr::default() });
    }

    #[test]
    fn refuses_what_is_no_list_and_who_may_not() {
        let pair = pair();
        let file = pair.file(b"file");
        let set = |pair: &Pair, acl, dfacl| {
            pair.set_acl(file, SecAttr { mask: Mask::ACL | Mask::DFACL, acl, dfacl })
        };
        for wrong in [&LISTED[1..], &LISTED[..4], &[LISTED[0], LISTED[0]]] {
            assert_eq!(set(&pair, list(wrong, 0), Acl::default()), NfsStat::INVAL);
        }
        let impossible = [(AclTag::USER_OBJ, 0, 8), LISTED[2], LISTED[4]];
        assert_eq!(set(&pair, list(&impossible, 0), Acl::default()), NfsStat::INVAL);
        let default = list(&LISTED, AclTag::DEFAULT);
        assert_eq!(set(&pair, list(&LISTED, 0), default), NfsStat::INVAL, "no directory");
        let result: GetAclResult =
            pair.acl(Proc::GETACL, &GetAclArgs { fh: file, mask: Mask::from_bits_retain(0x10) });
        assert_eq!(result.status(), NfsStat::INVAL);
        let stranger = Pair { uid: 1000, ..pair };
        assert_eq!(set(&stranger, list(&LISTED, 0), Acl::default()), NfsStat::PERM);
        let read_only = pair_with(
            ExportOptions { squash: Squash::None, read_only: true, ..ExportOptions::default() },
            &MemOptions::default(),
            0,
        );
        let refused = read_only.set_acl(
            read_only.root,
            SecAttr { mask: Mask::ACL, acl: list(&LISTED, 0), ..SecAttr::default() },
        );
        assert_eq!(refused, NfsStat::ROFS);
    }

    #[test]
    fn other_versions_and_procedures_are_told_apart() {
        let pair = pair();
        let reply = pair.raw(50, PROGRAM, 2, 0, &()).unwrap();
        let refused = parse_reply::<()>(reply).unwrap_err();
        let range = rpc::message::VersionRange { low: 3, high: 3 };
        assert_eq!(refused, RpcError::NotExecuted(AcceptStatus::ProgramMismatch(range)));
        let reply = pair.raw(51, PROGRAM, VERSION, 5, &()).unwrap();
        let refused = parse_reply::<()>(reply).unwrap_err();
        assert_eq!(refused, RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable));
    }
}
