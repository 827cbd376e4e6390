//! Changes by local processes recall delegations.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::callback::sequence::CbSequenceOk;
use protocol::nfs4::callback::{CbCompoundArgs, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{
    Bitmap, Component, Handle, Outcome, StableHow, StateOwner, Stateid, Status, Utf8,
};
use rpc::message::{CallHeader, peek};
use xdr::{Decode, List, Opaque, Reader};

use crate::client::Client4;
use crate::server::{ENFYS, Server, TestDir};
use crate::status::status;

/// Starts a server of a directory with `file` and `other`, with additional lines for the export.
fn started(dir: &TestDir, words: &str) -> Server {
    Server::start(dir, &configured(dir, words))
}

/// Returns the arguments of such a server.
fn configured(dir: &TestDir, words: &str) -> [OsString; 3] {
    let (export, state) = (dir.directory("export"), dir.path("state"));
    for file in ["file", "other"] {
        std::fs::write(export.join(file), "first").expect("file");
        std::fs::set_permissions(export.join(file), crate::server::mode(0o666)).expect("permissions");
    }
    let config = format!(
        "listen = ['127.0.0.1:0']\nstate-dir = '{}'\n[[export]]\npath = '{}'\nsquash = 'none'\n{words}\n",
        state.display(),
        export.display(),
    );
    let config = dir.file("enfys.toml", &config);
    ["serve".into(), "--config".into(), config.into()]
}

/// Returns a command in a new user namespace with a limit of `/proc/sys/user`; `None` without such namespaces.
fn limited(limit: &str, to: u32) -> Option<Command> {
    let limited = || {
        let script = format!("echo {to} >/proc/sys/user/{limit} && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", &script, "-"]);
        command
    };
    let can = limited().arg("true").output().is_ok_and(|output| output.status.success());
    if !can {
        println!("skipped: no user namespace with limits of its own");
    }
    can.then(limited)
}

/// Opens a file; returns its handle, and the stateid of the delegation.
fn held(client: &mut Client4, name: &'static str, access: ShareAccess) -> (Handle, Stateid) {
    match opened(client, name, access) {
        (handle, OpenDelegation::Read(read)) => (handle, read.stateid),
        (handle, OpenDelegation::Write(write)) => (handle, write.stateid),
        (_, none) => panic!("nothing is delegated: {none:?}"),
    }
}

/// Opens a file; returns its handle, and the delegation.
fn opened(client: &mut Client4, name: &'static str, access: ShareAccess) -> (Handle, OpenDelegation) {
    let open = Op::Open(OpenArgs {
        seqid: 0,
        share_access: access,
        share_deny: ShareDeny::empty(),
        owner: StateOwner { client_id: 0, owner: Opaque::from_static(b"holder") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Null(Component::from_static(name.as_bytes())),
    });
    let lookup = Op::Lookup(LookupArgs { name: Component::from_static(b"export") });
    let results = client.run(vec![Op::PutRootFh, lookup, open, Op::GetFh]).expect("it opens");
    let [.., OpResult::Open(Outcome::Ok(open)), OpResult::GetFh(Outcome::Ok(handle))] = &results[..] else {
        panic!("as OPEN and GETFH: {results:?}");
    };
    (*handle, open.delegation.clone())
}

/// Returns change attribute and size, and optionally returns the delegation after that.
fn look(client: &mut Client4, handle: Handle, gives_back: Option<Stateid>) -> (u64, u64) {
    let attributes = Bitmap::of(&[n::CHANGE, n::SIZE]);
    let mut ops = vec![Op::PutFh(PutFhArgs { handle }), Op::GetAttr(GetAttrArgs { attributes })];
    ops.extend(gives_back.map(|stateid| Op::DelegReturn(DelegReturnArgs { stateid })));
    let results = client.run(ops).expect("attributes");
    let OpResult::GetAttr(Outcome::Ok(reported)) = &results[1] else { panic!("as GETATTR: {results:?}") };
    let reported = Attributes::from_file_attributes(reported).expect("attributes");
    (reported.change.expect("asked for"), reported.size.expect("asked for"))
}

/// Waits for the recall of this delegation, and answers it.
fn recalled(client: &mut Client4, handle: Handle, stateid: Stateid) {
    let call = client.called();
    let mut reader = Reader::new(call.clone());
    CallHeader::parse(&mut reader).expect("a call");
    let compound = CbCompoundArgs::decode(&mut reader).expect("a CB_COMPOUND");
    let [CbOp::Sequence(sequence), CbOp::Recall(recall)] = &compound.ops[..] else { panic!("{compound:?}") };
    assert_eq!((recall.stateid, recall.handle), (stateid, handle));
    let slot = CbSequenceOk {
        session_id: sequence.session_id,
        sequence_id: sequence.sequence_id,
        slot_id: sequence.slot_id,
        highest_slot_id: sequence.highest_slot_id,
        target_highest_slot_id: sequence.highest_slot_id,
    };
    let results = vec![CbOpResult::Sequence(Outcome::Ok(slot)), CbOpResult::Recall(Outcome::Ok(()))];
    let tag = Utf8::from_static(b"");
    let results = List::new(results).expect("two results");
    client.answer(peek(&call).expect("a call").0, &CbCompoundResult { status: Status::OK, tag, results });
}

fn local(script: &str, file: &Path) {
    let status = Command::new("sh").args(["-c", script, "-"]).arg(file).status();
    assert!(status.expect("a shell").success());
}

/// Returns the number of a server's fanotify(7) descriptors.
fn groups(server: &Server) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("descriptors");
    let target = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    descriptors.filter_map(target).filter(|target| target.as_os_str() == "anon_inode:[fanotify]").count()
}

/// Returns whether the server can watch for changes; if not, its log says so at the start.
fn is_watched(server: &Server) -> bool {
    let log = server.log();
    let why = log.lines().find(|line| line.contains("recall no delegation"));
    if let Some(why) = why {
        println!("skipped: {why}");
    }
    why.is_none()
}

#[test]
fn changes_by_local_processes_recall_delegations() {
    for (access, script) in [
        (ShareAccess::READ, "printf ' second' >>\"$1\""),
        (ShareAccess::READ, ": >\"$1\""),
        (ShareAccess::READ, "chmod 600 \"$1\""),
        (ShareAccess::READ, "mv \"$1\" \"$1.moved\""),
        (ShareAccess::READ, "rm \"$1\""),
        (ShareAccess::BOTH, "cat \"$1\""),
        (ShareAccess::BOTH, "printf ' second' >>\"$1\""),
    ] {
        let dir = TestDir::new();
        let server = started(&dir, "");
        if !is_watched(&server) {
            return;
        }
        let mut holder = Client4::reachable(server.address);
        let (handle, stateid) = held(&mut holder, "file", access);
        let file = dir.path("export/file");
        let before = look(&mut holder, handle, None);
        local(script, &file);
        recalled(&mut holder, handle, stateid);
        let returning = look(&mut holder, handle, Some(stateid));
        assert_eq!(returning.0, before.0, "{script}: its cache has the state of the grant");
        if let Ok(now) = file.metadata() {
            let after = look(&mut holder, handle, None);
            assert_eq!(after.1, now.len(), "{script}");
            assert_eq!(after.0 != before.0, script != "cat \"$1\"", "{script}: its cache is outdated");
        }
        server.stop();
    }
}

#[test]
fn the_servers_own_changes_cause_no_recall() {
    let dir = TestDir::new();
    let server = started(&dir, "");
    if !is_watched(&server) {
        return;
    }
    let mut holder = Client4::reachable(server.address);
    let (handle, _) = held(&mut holder, "file", ShareAccess::READ);
    // A client's own OPENs and WRITEs do not conflict: only an event could cause a recall.
    for _ in 0..3 {
        let (_, open) = holder.opened("export", "file");
        let data = Opaque::from_static(b"FIRST");
        let write = WriteArgs { stateid: open, offset: 0, stable: StableHow::FileSync, data };
        let close = CloseArgs { seqid: 0, open_stateid: open };
        let ops = vec![Op::PutFh(PutFhArgs { handle }), Op::Write(write), Op::Close(close)];
        holder.run(ops).expect("its own");
    }
    // Events keep their order: events of the earlier changes would have arrived before this one.
    let (other, stateid) = held(&mut holder, "other", ShareAccess::READ);
    local("printf ' second' >>\"$1\"", &dir.path("export/other"));
    recalled(&mut holder, other, stateid);
    look(&mut holder, other, Some(stateid));
    assert_eq!(status(&dir)["recalls"]["recalled"], 1);
    server.stop();
}

#[test]
fn ignored_local_changes_are_not_watched() {
    let dir = TestDir::new();
    let server = started(&dir, "local-changes = 'ignore'");
    let mut holder = Client4::reachable(server.address);
    let (handle, _) = held(&mut holder, "file", ShareAccess::READ);
    assert_eq!(groups(&server), 0);
    let before = look(&mut holder, handle, None);
    local("printf ' second' >>\"$1\"", &dir.path("export/file"));
    assert_ne!(look(&mut holder, handle, None), before, "the holder sees the file's own attributes");
    assert_eq!(status(&dir)["recalls"]["recalled"], 0);
    server.stop();
}

#[test]
fn the_log_says_why_an_export_is_not_watched() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let Some(mut command) = limited("max_fanotify_groups", 0) else { return };
    command.arg(ENFYS).args(crate::server::with(&dir, &[&export]));
    let server = Server::spawn(&dir, command);
    server.await_log(0, "export /export: changes by local processes do not recall delegations: the limit of fanotify groups is reached");
    assert_eq!(groups(&server), 0);
    server.stop();
}

#[test]
fn a_reached_watch_limit_is_logged() {
    let dir = TestDir::new();
    let Some(mut command) = limited("max_fanotify_marks", 1) else { return };
    let server = Server::spawn(&dir, {
        command.arg(ENFYS).args(configured(&dir, ""));
        command
    });
    if !is_watched(&server) {
        return;
    }
    let mut holder = Client4::reachable(server.address);
    held(&mut holder, "file", ShareAccess::READ);
    let (_, delegation) = opened(&mut holder, "other", ShareAccess::READ);
    assert!(matches!(delegation, OpenDelegation::None | OpenDelegation::NoneExt(_)), "{delegation:?}");
    let undelegated = "files are not delegated, because their local changes cannot be watched: the limit of fanotify marks is reached \
                       (user.max_fanotify_marks)";
    server.await_log(0, undelegated);
    opened(&mut holder, "other", ShareAccess::READ);
    // For repeated listings, the server watches the directory and its entries.
    let lookup = Op::Lookup(LookupArgs { name: Component::from_static(b"export") });
    let readdir = Op::ReadDir(ReadDirArgs {
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount: 4096,
        maxcount: 4096,
        attributes: Bitmap::of(&[n::SIZE]),
    });
    for _ in 0..3 {
        holder.run(vec![Op::PutRootFh, lookup.clone(), readdir.clone()]).expect("a listing");
    }
    let untold = "directories are read for each listing: the limit of fanotify marks is reached";
    server.await_log(0, untold);
    let log = server.log();
    assert_eq!((log.matches(undelegated).count(), log.matches(untold).count()), (1, 1), "{log}");
    assert!(log.contains(&dir.path("export").display().to_string()), "{log}");
    server.stop();
}
