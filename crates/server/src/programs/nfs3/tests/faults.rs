//! A backend that fails, reads or writes too little, or is slow.

use protocol::procedure::Effect;

use super::*;

/// Returns one call of each procedure that uses the backend, with the backend's method.
fn calls(pair: &Pair) -> Vec<(Proc, Method, Bytes)> {
    let (file, dir, link) = (pair.file(b"file"), pair.root, pair.symlink(b"link", b"file"));
    pair.mkdir(b"dir", 0o755);
    let (attributes, data) = (Sattr::default(), Opaque::from_static(b"data"));
    let (cookie, cookieverf) = (0, [0; 8]);
    let how = CreateHow::Guarded(attributes);
    let symlink_data = NfsPath::from_static(b"file");
    let mode = Sattr { mode: Some(0o600), ..attributes };
    let write = WriteArgs { file, offset: 0, count: 4, stable: StableHow::Unstable, data };
    let symlink = SymlinkArgs { where_: pair.at(b"new"), symlink_attributes: attributes, symlink_data };
    let plus = ReaddirplusArgs { dir, cookie, cookieverf, dircount: 1000, maxcount: 4000 };
    macro_rules! table {
        ($($procedure:ident asks $method:ident: $args:expr,)*) => {
            vec![$((Proc::$procedure, Method::$method, xdr::to_bytes(&$args))),*]
        };
    }
    table! {
        GETATTR asks Getattr: GetattrArgs { object: file },
        SETATTR asks Setattr: SetattrArgs { object: file, new_attributes: mode, guard: None },
        LOOKUP asks Lookup: LookupArgs { what: pair.at(b"file") },
        ACCESS asks Access: AccessArgs { object: file, access: Access::READ },
        READLINK asks Readlink: ReadlinkArgs { symlink: link },
        READ asks Read: ReadArgs { file, offset: 0, count: 10 },
        WRITE asks Write: write,
        CREATE asks Create: CreateArgs { where_: pair.at(b"new"), how },
        MKDIR asks Create: MkdirArgs { where_: pair.at(b"new"), attributes },
        SYMLINK asks Create: symlink,
        MKNOD asks Create: MknodArgs { where_: pair.at(b"new"), what: MknodData::Fifo(attributes) },
        REMOVE asks Remove: RemoveArgs { object: pair.at(b"file") },
        RMDIR asks Remove: RemoveArgs { object: pair.at(b"dir") },
        RENAME asks Rename: RenameArgs { from: pair.at(b"file"), to: pair.at(b"new") },
        LINK asks Link: LinkArgs { file, link: pair.at(b"new") },
        READDIR asks Readdir: ReaddirArgs { dir, cookie, cookieverf, count: 1000 },
        READDIRPLUS asks Readdir: plus,
        FSSTAT asks Statfs: FsstatArgs { fsroot: dir },
        FSINFO asks Getattr: FsinfoArgs { fsroot: dir },
        PATHCONF asks Getattr: PathconfArgs { object: dir },
        COMMIT asks Commit: CommitArgs { file, offset: 0, count: 0 },
    }
}

/// Bytes of a failure's results with attributes: status, flag, attributes.
const WITH_ATTRIBUTES: usize = 4 + 4 + FATTR_LENGTH;

/// A transaction number that no other call here uses.
const XID: u32 = 9_000;

#[test]
fn every_procedure_is_among_the_calls() {
    let pair = pair();
    let called: Vec<_> = calls(&pair).iter().map(|(procedure, ..)| procedure.0).collect();
    assert_eq!(called, (1..TABLE.procedures.len() as u32).collect::<Vec<_>>());
    for (procedure, _, args) in calls(&super::pair()) {
        // Each call has its own file system, and succeeds without the fault.
        let pair = super::pair();
        calls(&pair);
        assert_eq!(pair.ask(XID, procedure, &args).0, NfsStat::OK, "{procedure:?}");
    }
}

#[test]
fn backend_errors_become_wire_statuses() {
    for (error, status) in [
        (Error::Later, NfsStat::JUKEBOX),
        (Error::NoSpace, NfsStat::NOSPC),
        (Error::Quota, NfsStat::DQUOT),
        (Error::Io, NfsStat::IO),
        (Error::Stale, NfsStat::STALE),
    ] {
        for (procedure, method, args) in calls(&pair()) {
            let (pair, backend) = faulty_pair();
            calls(&pair);
            backend.add(Rule::on(method, Fault::Fail(error)).times(1));
            let (reported, length) = pair.ask(XID, procedure, &args);
            assert_eq!(reported, status, "{procedure:?}");
            // Unless the attributes themselves cannot be read, a failure returns them too: post_op_attr or wcc_data.
            assert!(method == Method::Getattr || length >= WITH_ATTRIBUTES, "{procedure:?}: {length} bytes");
            // The same call again. RFC 1813 §2.6: a client that gets JUKEBOX "should wait and then try the request" again, so the
            // call is executed. Other failures of non-idempotent calls are answered from the cache.
            let before = backend.calls(method);
            let effect = TABLE.procedure(procedure.0).unwrap().effect;
            let is_kept = error != Error::Later && (effect == Effect::Once || procedure == Proc::WRITE);
            let expected = if is_kept { status } else { NfsStat::OK };
            assert_eq!(pair.ask(XID, procedure, &args).0, expected, "{procedure:?} again after {error:?}");
            assert_eq!(
                backend.calls(method) == before,
                is_kept && method != Method::Getattr,
                "{procedure:?}"
            );
        }
    }
}

/// The object is a mount point, and a retry would not help.
#[test]
fn removing_a_busy_object_returns_acces() {
    for (procedure, method, args) in calls(&pair()) {
        let is_removal = [Proc::REMOVE, Proc::RMDIR, Proc::RENAME].contains(&procedure);
        if is_removal {
            let (pair, backend) = faulty_pair();
            calls(&pair);
            backend.add(Rule::on(method, Fault::Fail(Error::Busy)).times(1));
            assert_eq!(pair.ask(XID, procedure, &args).0, NfsStat::ACCES, "{procedure:?}");
        }
    }
}

#[test]
fn short_reads_and_writes_report_their_length() {
    let (pair, backend) = faulty_pair();
    let file = pair.file(b"file");
    backend.add(Rule::on(Method::Write, Fault::Short(3)));
    backend.add(Rule::on(Method::Read, Fault::Short(2)));
    let written = pair.write(file, 0, b"HELLO", StableHow::FileSync).into_result().unwrap();
    // RFC 1813 §3.3.7: "The server may write fewer bytes than requested. If so, the actual number of bytes written …".
    assert_eq!((written.count, written.file_wcc.after.unwrap().size), (3, 3));
    let read = pair.read(file, 0, 100).into_result().unwrap();
    assert_eq!((&*read.data, read.count, read.eof), (&b"HE"[..], 2, false));
    let rest = pair.read(file, 2, 100).into_result().unwrap();
    assert_eq!((&*rest.data, rest.count, rest.eof), (&b"L"[..], 1, true));
}

#[test]
fn a_failed_commit_is_reported_and_changes_the_verifier() {
    let (pair, backend) = faulty_pair();
    let file = pair.file(b"file");
    let before = pair.write(file, 0, b"data", StableHow::Unstable).into_result().unwrap().verf;
    backend.add(Rule::on(Method::Commit, Fault::Fail(Error::Io)).times(1));
    let commit = || pair.call::<CommitResult>(Proc::COMMIT, &CommitArgs { file, offset: 0, count: 0 });
    assert_eq!(commit().status(), NfsStat::IO);
    // Another verifier makes the client send its earlier writes again.
    assert_ne!(commit().into_result().unwrap().verf, before);
}

#[test]
fn a_copy_of_a_call_in_progress_is_dropped() {
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
