//! Servers with wrong or unusual replies. The caller gets an error that reports this, and nothing panics.

use std::rc::Rc;

use bytes::Bytes;
use client::Client;
use client::attributes::SetAttributes;
use client::errno::Errno;
use client::error::{Fault, OpError};
use client::results::{FileHandle, NewObject, OpenState, Stability};
use protocol::mount::{self, FhStatus};
use protocol::nfs2::{
    DirOpOk, DirOpRes, Entry, Fattr, FileType, Filename, PROGRAM, Proc, ReadOk, ReadRes, ReaddirOk,
    ReaddirRes, Stat, TimeVal,
};
use protocol::nfs4::types::Status;
use xdr::{Chain, Encode, Opaque};

use crate::link::{Answer, Link, root};

fn fattr() -> Fattr {
    let time = TimeVal::default();
    Fattr {
        file_type: FileType::REG,
        mode: 0o100_644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 10,
        blocksize: 4096,
        rdev: 0,
        blocks: 8,
        fsid: 1,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

fn handle() -> FileHandle {
    FileHandle::new(&[7; 32]).unwrap()
}

/// Returns a client whose calls of `procedure` get these results.
fn lying<T: Encode + 'static>(procedure: Proc, results: T) -> (Rc<Link>, Client) {
    let link = Link::new();
    let client = link.client();
    link.answer(move |call| {
        assert!(call.is(PROGRAM, procedure.0) && call.header.version == 2, "{:?}", call.header);
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
    let read = |length: usize, size: u32| {
        let data = Opaque::new(vec![1; length]).unwrap();
        let ok = ReadOk { attributes: Fattr { size, ..fattr() }, data };
        let (link, client) = lying(Proc::READ, ReadRes::Ok(ok));
        link.run(client.read(&root(), handle(), &OpenState::default(), 0, 10))
    };
    let short = read(3, 20).unwrap();
    assert_eq!((short.data.len(), short.eof), (3, false), "a short READ is allowed");
    assert!(read(10, 10).unwrap().eof && !read(10, 11).unwrap().eof);
    is_bad(read(11, 11));
    is_bad(read(0, 10));
    // Servers show a file of more than 32 bits so.
    assert_eq!(read(10, u32::MAX).unwrap_err().errno(), Errno::EFBIG);
}

#[test]
fn impossible_attributes_are_refused() {
    let lookup = |attributes: Fattr| {
        let (link, client) = lying(Proc::LOOKUP, DirOpRes::Ok(DirOpOk { file: [7; 32], attributes }));
        link.run(client.lookup(&root(), handle(), b"name"))
    };
    assert_eq!(lookup(fattr()).unwrap().attributes.size, 10);
    is_bad(lookup(Fattr { file_type: FileType::NON, mode: 0o644, ..fattr() }));
    is_bad(lookup(Fattr { file_type: FileType(77), mode: 0o644, ..fattr() }));
    for useconds in [1_000_000, u32::MAX] {
        is_bad(lookup(Fattr { mtime: TimeVal { seconds: 0, useconds }, ..fattr() }));
    }
}

#[test]
fn a_listing_whose_cookies_form_a_loop_ends() {
    let entry =
        |cookie: u32| Entry { fileid: 1, name: Filename::from_static(b"name"), cookie: cookie.to_be_bytes() };
    let list = |entries: Vec<Entry>, eof: bool| {
        let ok = ReaddirOk { entries: Chain::new(entries).unwrap(), eof };
        let (link, client) = lying(Proc::READDIR, ReaddirRes::Ok(ok));
        link.run(client.read_directory(&root(), handle(), (7, [0; 8]), 4096, false))
    };
    assert_eq!(list(vec![entry(u32::MAX)], false).unwrap().next_cookie, u64::from(u32::MAX));
    is_bad(list(vec![entry(7)], false));
    is_bad(list(Vec::new(), false));
    assert!(list(Vec::new(), true).unwrap().eof);
}

#[test]
fn a_handle_of_another_length_never_reaches_the_server() {
    let link = Link::new();
    let client = link.client();
    link.answer(|call| panic!("{:?}", call.header));
    for length in [0, 31, 33, 64] {
        let handle = FileHandle::new(&vec![7; length]).unwrap();
        let refused = link.run(client.get_attributes(&root(), handle)).unwrap_err();
        assert_eq!(refused, OpError::Status(Status::BADHANDLE));
        let data = Bytes::from_static(b"x");
        let state = OpenState::default();
        let refused = link.run(client.write(&root(), handle, &state, 0, data, Stability::FileSync));
        assert_eq!(refused.unwrap_err(), OpError::Status(Status::BADHANDLE));
    }
}

#[test]
fn a_file_in_place_of_a_device_is_an_error_and_is_not_removed() {
    let link = Link::new();
    let client = link.client();
    link.answer(move |call| match Proc(call.header.procedure) {
        Proc::LOOKUP => call.reply(&DirOpRes::Fail(Stat::NOENT)),
        Proc::CREATE => call.reply(&DirOpRes::Ok(DirOpOk { file: [7; 32], attributes: fattr() })),
        _ => panic!("{:?}", call.header),
    });
    let set = SetAttributes::with_mode(0o600);
    let made = link.run(client.create_object(&root(), handle(), b"pipe", &NewObject::Fifo, &set));
    assert_eq!(made.unwrap_err(), OpError::Unsupported("special files in NFS version 2"));
}

#[test]
fn mount_reports_the_servers_error() {
    let link = Link::new();
    let client = link.client();
    link.answer(|call| {
        assert!(call.is(mount::PROGRAM, mount::Proc::MNT.0) && call.header.version == 1);
        call.reply(&FhStatus::Fail(13))
    });
    let refused = link.run(client.mount(&root(), &[b"export"])).unwrap_err();
    assert_eq!(refused.errno(), Errno::EACCES);
    link.answer(|call| match call.header.program {
        mount::PROGRAM => call.not_executed(2, &[3, 3]),
        _ => Answer::Serve,
    });
    let missing = link.run(client.mount(&root(), &[b"export"])).unwrap_err();
    assert_eq!(missing.errno(), Errno::EPROTONOSUPPORT, "{missing}");
}
