//! Servers with wrong replies. The caller gets an error that reports this, and nothing panics.

use std::cell::Cell;

use bytes::Bytes;
use client::Client;
use client::config::Config;
use client::engine::{CallError, RetryPolicy};
use client::error::{Fault, OpError};
use client::fs::{FileSystem, OpenOptions};
use client::results::{DirPage, FileHandle, OpenState, Stability};
use protocol::mount::{MountOk, MountResult};
use protocol::nfs3::{
    DirList, DirListPlus, Entry, EntryPlus, Fattr, FileHandle as WireHandle, FileType, Filename, LookupOk,
    NfsTime, Outcome, PROGRAM, PostOpAttr, Proc, ReadOk, ReaddirOk, ReaddirplusOk, SpecData, StableHow,
    WccData, WriteOk,
};
use protocol::nfs4::types::Status;
use protocol::{mount, nfs3};
use rpc::message::RpcError;
use xdr::{Chain, Encode, List, Opaque};

use crate::link::{Answer, Call, Link, config, root};

/// Returns a directory's attributes.
fn fattr() -> Fattr {
    let time = NfsTime::default();
    Fattr {
        file_type: FileType::DIR,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 4096,
        rdev: SpecData::default(),
        fsid: 1,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

fn handle() -> FileHandle {
    FileHandle::new(b"handle").unwrap()
}

/// Returns a client whose calls of `procedure` get these results.
fn lying<T: Encode + 'static>(procedure: Proc, results: T) -> (std::rc::Rc<Link>, Client) {
    let link = Link::new();
    let client = link.client();
    link.answer(move |call| {
        assert!(call.is(PROGRAM, procedure.0), "{:?}", call.header);
        call.reply(&results)
    });
    (link, client)
}

fn is_bad<T: std::fmt::Debug>(outcome: Result<T, OpError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, OpError::BadReply(_)), "{error:?}");
    assert_eq!(error.fault(), Fault::Server);
}

#[test]
fn reads_of_the_wrong_length_are_refused() {
    let read = |length: usize, count: u32, eof: bool| {
        let data = Opaque::new(vec![1; length]).unwrap();
        let ok = ReadOk { file_attributes: None, count, eof, data };
        let (link, client) = lying(Proc::READ, Outcome::<_, PostOpAttr>::Ok(ok));
        link.run(client.read(&root(), handle(), &OpenState::default(), 0, 10))
    };
    assert_eq!(read(10, 10, false).unwrap().data.len(), 10);
    assert_eq!(read(3, 3, false).unwrap().data.len(), 3, "a short READ is allowed");
    for (length, count, eof) in [(10, 9, true), (9, 10, true), (11, 11, true), (0, 10, true), (0, 0, false)] {
        is_bad(read(length, count, eof));
    }
}

#[test]
fn writes_of_the_wrong_length_or_stability_are_refused() {
    let write = |count: u32, committed: StableHow| {
        let ok = WriteOk { file_wcc: WccData::default(), count, committed, verf: [1; 8] };
        let (link, client) = lying(Proc::WRITE, Outcome::<_, WccData>::Ok(ok));
        let data = Bytes::from_static(b"0123456789");
        link.run(client.write(&root(), handle(), &OpenState::default(), 0, data, Stability::DataSync))
    };
    assert_eq!(write(3, StableHow::FileSync).unwrap().count, 3, "a short WRITE is allowed");
    assert_eq!(write(10, StableHow::DataSync).unwrap().stability, Stability::DataSync);
    for (count, committed) in [(11, StableHow::FileSync), (0, StableHow::FileSync), (10, StableHow::Unstable)]
    {
        is_bad(write(count, committed));
    }
}

#[test]
fn impossible_attributes_and_handles_are_refused() {
    let lookup = |object: &[u8], obj_attributes: PostOpAttr| {
        let object = WireHandle::new(object).unwrap();
        let ok = LookupOk { object, obj_attributes, dir_attributes: None };
        let (link, client) = lying(Proc::LOOKUP, Outcome::<_, PostOpAttr>::Ok(ok));
        link.run(client.lookup(&root(), handle(), b"name"))
    };
    assert_eq!(lookup(b"other", Some(fattr())).unwrap().attributes.fileid, 2);
    is_bad(lookup(b"", Some(fattr())));
    is_bad(lookup(b"other", Some(Fattr { file_type: FileType(99), ..fattr() })));
    let late = NfsTime { seconds: 1, nseconds: 1_000_000_000 };
    is_bad(lookup(b"other", Some(Fattr { mtime: late, ..fattr() })));
}

#[test]
fn an_empty_handle_cannot_be_mounted() {
    let link = Link::new();
    let client = link.client();
    link.answer(|call| {
        assert!(call.is(mount::PROGRAM, mount::Proc::MNT.0));
        let fhandle = WireHandle::new(b"").unwrap();
        call.reply(&MountResult::Ok(MountOk { fhandle, auth_flavors: List::default() }))
    });
    is_bad(link.run(client.mount(&root(), &[b"export"])));
}

/// Lists a directory of a server that sends this page.
fn listed(entries: &[(&'static [u8], u64)], eof: bool, plus: bool) -> Result<DirPage, OpError> {
    let name = |name: &'static [u8]| Filename::from_static(name);
    let list = |link: std::rc::Rc<Link>, client: Client| {
        link.run(client.read_directory(&root(), handle(), (7, [2; 8]), 4096, plus))
    };
    if plus {
        let entries = entries.iter().map(|(text, cookie)| EntryPlus {
            fileid: 1,
            name: name(text),
            cookie: *cookie,
            name_attributes: Some(fattr()),
            name_handle: Some(WireHandle::new(b"other").unwrap()),
        });
        let reply = DirListPlus { entries: Chain::new(entries.collect()).unwrap(), eof };
        let ok = ReaddirplusOk { dir_attributes: Some(fattr()), cookieverf: [3; 8], reply };
        let (link, client) = lying(Proc::READDIRPLUS, Outcome::<_, PostOpAttr>::Ok(ok));
        list(link, client)
    } else {
        let entries =
            entries.iter().map(|(text, cookie)| Entry { fileid: 1, name: name(text), cookie: *cookie });
        let reply = DirList { entries: Chain::new(entries.collect()).unwrap(), eof };
        let ok = ReaddirOk { dir_attributes: Some(fattr()), cookieverf: [3; 8], reply };
        let (link, client) = lying(Proc::READDIR, Outcome::<_, PostOpAttr>::Ok(ok));
        list(link, client)
    }
}

#[test]
fn names_that_leave_the_directory_and_pages_without_progress_are_refused() {
    for plus in [true, false] {
        let page = listed(&[(b".", 8), (b"a", 9), (b"..", 10)], false, plus).unwrap();
        let names: Vec<_> = page.entries.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!((names, page.next_cookie, page.verifier), (vec![&b"a"[..]], 10, [3; 8]));
        for name in [&b"a/b"[..], b"/", b"../x", b"", b"a\0b"] {
            is_bad(listed(&[(b"a", 8), (name, 9)], true, plus));
        }
        is_bad(listed(&[], false, plus));
        is_bad(listed(&[(b"a", 8), (b"b", 7)], false, plus));
        assert_eq!(listed(&[], true, plus).unwrap().next_cookie, 7);
    }
}

#[test]
fn a_listing_whose_cookies_form_a_loop_ends_with_an_error() {
    let link = Link::new();
    let client = link.client();
    let (fs, _) = link.run(FileSystem::mount(client, root(), b"/export")).unwrap();
    let count = Cell::new(0u64);
    link.answer(move |call| {
        if !call.is(PROGRAM, Proc::READDIR.0) {
            return Answer::Serve;
        }
        count.set(count.get() + 1);
        // 1, 2, 3, 1, …
        let cookie = 1 + (count.get() - 1) % 3;
        let entry = Entry { fileid: 1, name: Filename::from_static(b"a"), cookie };
        let reply = DirList { entries: Chain::new(vec![entry]).unwrap(), eof: false };
        let ok = ReaddirOk { dir_attributes: None, cookieverf: [0; 8], reply };
        call.reply(&Outcome::<_, PostOpAttr>::Ok(ok))
    });
    let error = link.run(fs.read_dir(b"", false)).unwrap_err();
    assert!(matches!(error.cause, OpError::BadReply(_)), "{error}");
}

#[test]
fn a_listing_whose_cookies_the_server_forgets_restarts_once() {
    for times in [1u32, 2] {
        let link = Link::new();
        let client = link.client();
        let (fs, _) = link.run(FileSystem::mount(client, root(), b"/export")).unwrap();
        let (calls, refused) = (Cell::new(0u64), Cell::new(0));
        link.answer(move |call| {
            if !call.is(PROGRAM, Proc::READDIR.0) {
                return Answer::Serve;
            }
            calls.set(calls.get() + 1);
            // Every second call continues after the first name.
            let is_second = calls.get() % 2 == 0;
            if is_second && refused.get() < times {
                refused.set(refused.get() + 1);
                return call.reply(&Outcome::<ReaddirOk, PostOpAttr>::Fail(nfs3::NfsStat::BAD_COOKIE, None));
            }
            let name = if is_second { Filename::from_static(b"b") } else { Filename::from_static(b"a") };
            let entry = Entry { fileid: 1, name, cookie: if is_second { 2 } else { 1 } };
            let reply = DirList { entries: Chain::new(vec![entry]).unwrap(), eof: is_second };
            let ok = ReaddirOk { dir_attributes: None, cookieverf: [0; 8], reply };
            call.reply(&Outcome::<_, PostOpAttr>::Ok(ok))
        });
        let listed = link.run(fs.read_dir(b"", false));
        match times {
            1 => {
                let names: Vec<_> = listed.unwrap().into_iter().map(|entry| entry.name).collect();
                assert_eq!(names, ["a", "b"], "no name occurs twice");
            }
            _ => assert_eq!(listed.unwrap_err().cause, OpError::Status(Status::BAD_COOKIE)),
        }
    }
}

#[test]
fn a_server_without_readdirplus_gets_readdir() {
    type Refusal = fn(&Call) -> Answer;
    let refusals: [Refusal; 2] = [
        |call| call.reply(&Outcome::<ReaddirplusOk, PostOpAttr>::Fail(nfs3::NfsStat::NOTSUPP, None)),
        |call| call.not_executed(3, &[]),
    ];
    for refuse in refusals {
        let link = Link::new();
        let client = link.client();
        let top = link.run(client.mount(&root(), &[b"export"])).unwrap().handle;
        link.answer(move |call| match Proc(call.header.procedure) {
            Proc::READDIRPLUS => refuse(call),
            _ => Answer::Serve,
        });
        for _ in 0..3 {
            let page = link.run(client.read_directory(&root(), top, (0, [0; 8]), 4096, true)).unwrap();
            assert!(page.eof);
        }
        assert_eq!(link.count(PROGRAM, Proc::READDIRPLUS.0), 1, "READDIRPLUS is not repeated");
    }
}

/// A server that gives several names the same handle, with other attributes.
#[test]
fn a_file_survives_lies_about_other_names_with_its_handle() {
    let link = Link::new();
    let client = link.client();
    let (fs, _) = link.run(FileSystem::mount(client, root(), b"/export")).unwrap();
    let file = link.run(fs.open(b"one", &OpenOptions::CREATE)).unwrap();
    link.run(file.write_at(0, Bytes::from_static(b"content of one"))).unwrap();
    let one = file.object();
    link.run(file.close()).unwrap();
    let read = || {
        link.run(async {
            let file = fs.open(b"one", &OpenOptions::READ).await?;
            let content = file.read_at(0, 100).await.map(|parts| parts.concat());
            file.close().await?;
            content
        })
    };
    assert_eq!(read().unwrap(), b"content of one");
    let fileid = one.attributes.fileid;
    let lies = [
        (&b"two"[..], FileType::REG, 14),
        (b"three", FileType::DIR, 14),
        (b"four", FileType::REG, 1 << 40),
        (b"five", FileType::REG, 0),
    ];
    for (name, file_type, size) in lies {
        let attributes = Fattr { file_type, fileid: fileid + 1, size, ..fattr() };
        let object = WireHandle::new(&one.handle).unwrap();
        link.answer(move |call| match call.is(PROGRAM, Proc::LOOKUP.0) {
            true => {
                let ok = LookupOk { object, obj_attributes: Some(attributes), dir_attributes: None };
                call.reply(&Outcome::<_, PostOpAttr>::Ok(ok))
            }
            false => Answer::Serve,
        });
        let two = link.run(fs.stat(name)).unwrap();
        assert_eq!((two.fileid, two.size), (fileid + 1, size));
        link.answer(|_| Answer::Serve);
        // No less, and no zeros after it.
        assert_eq!(read().unwrap(), b"content of one");
        assert_eq!(link.run(fs.stat(b"one")).unwrap().fileid, fileid);
    }
}

#[test]
fn garbage_is_an_error_and_every_cut_of_a_reply_too() {
    let link = Link::new();
    let client = link.client();
    let whole = Outcome::<_, PostOpAttr>::Ok(LookupOk {
        object: WireHandle::new(b"other").unwrap(),
        obj_attributes: Some(fattr()),
        dir_attributes: Some(fattr()),
    });
    let whole = xdr::to_bytes(&whole);
    let answer_with = |results: Bytes| {
        link.answer(move |call| {
            let Answer::Reply(header) = call.reply(&()) else { unreachable!() };
            Answer::Reply([&header[..], &results].concat().into())
        });
        link.run(client.lookup(&root(), handle(), b"name"))
    };
    assert!(answer_with(whole.clone()).is_ok());
    let is_garbled = |outcome: Result<_, OpError>| {
        matches!(outcome, Err(OpError::Call(CallError::Rpc(RpcError::Garbled(_)))))
    };
    for length in 0..whole.len() {
        assert!(is_garbled(answer_with(whole.slice(..length))), "{length}");
    }
    assert!(is_garbled(answer_with([&whole[..], &[0; 4]].concat().into())), "bytes after the results");
    assert!(is_garbled(answer_with(Bytes::from_static(&[0xff; 400]))));
}

#[test]
fn calls_that_the_server_does_not_execute_are_errors() {
    let link = Link::new();
    let client = link.client();
    for (status, more) in [(1, &[][..]), (2, &[4, 4]), (3, &[]), (4, &[]), (5, &[])] {
        link.answer(move |call| call.not_executed(status, more));
        let error = link.run(client.get_attributes(&root(), handle())).unwrap_err();
        assert!(matches!(error, OpError::Call(CallError::Rpc(RpcError::NotExecuted(_)))), "{error:?}");
    }
}

#[test]
fn a_server_that_breaks_every_connection_fails_a_soft_mount() {
    let link = Link::new();
    let retry = RetryPolicy { retries: Some(3), ..RetryPolicy::default() };
    let client = link.connect(Config { retry, ..config() }).unwrap();
    link.answer(|_| Answer::Break);
    let error = link.run(client.get_attributes(&root(), handle())).unwrap_err();
    assert_eq!(error.fault(), Fault::Network);
}
