//! Calls that are sent twice, to a server that has no reply cache.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::Client;
use client::attributes::{FileKind, SetAttributes};
use client::error::OpError;
use client::results::{Creation, FileHandle, NewObject, OpenMode, OpenState, Stability};
use protocol::nfs3::{
    CreateOk, CreateResult, FileHandle as WireHandle, GetattrResult, LinkResult, NfsStat, Outcome, PROGRAM,
    Proc, RemoveResult, RenameResult, WccData,
};
use protocol::nfs4::types::Status;

use crate::link::{Answer, Call, Link, root};

/// Breaks the connection after the server has executed this procedure for the first time. A repetition gets `second`'s
/// answer, as if the server had forgotten the first.
fn forget(link: &Link, procedure: Proc, second: impl Fn(&Call) -> Answer + 'static) {
    let count = Cell::new(0);
    link.answer(move |call| {
        if !call.is(PROGRAM, procedure.0) {
            return Answer::Serve;
        }
        count.set(count.get() + 1);
        match count.get() {
            1 => Answer::ServeAndBreak,
            2 => second(call),
            _ => Answer::Serve,
        }
    });
}

struct Test {
    link: Rc<Link>,
    client: Client,
    top: FileHandle,
}

impl Test {
    fn new() -> Self {
        let link = Link::new();
        let client = link.client();
        let top = link.run(client.mount(&root(), &[b"export"])).unwrap().handle;
        Self { link, client, top }
    }

    fn create(&self, name: &[u8]) -> FileHandle {
        let set = SetAttributes::with_mode(0o644);
        let caller = root();
        let open = self.client.open(&caller, self.top, name, OpenMode::WRITE, Creation::IfMissing, &set);
        self.link.run(open).unwrap().object.handle
    }
}

const EXIST: CreateResult = Outcome::Fail(NfsStat::EXIST, WccData { before: None, after: None });
const NOENT: RemoveResult = Outcome::Fail(NfsStat::NOENT, WccData { before: None, after: None });

#[test]
fn a_name_that_the_first_execution_removed_is_not_an_error() {
    let test = Test::new();
    test.create(b"file");
    forget(&test.link, Proc::REMOVE, |call| call.reply(&NOENT));
    test.link.run(test.client.remove_file(&root(), test.top, b"file")).unwrap();
    let missing = test.link.run(test.client.remove_file(&root(), test.top, b"file"));
    assert_eq!(missing, Err(OpError::Status(Status::NOENT)), "it was not repeated");
}

#[test]
fn an_object_that_the_first_execution_created_is_not_an_error() {
    let test = Test::new();
    let caller = root();
    let set = SetAttributes::with_mode(0o755);
    forget(&test.link, Proc::MKDIR, |call| call.reply(&EXIST));
    let make = || test.client.create_object(&caller, test.top, b"dir", &NewObject::Directory, &set);
    let (object, _) = test.link.run(make()).unwrap();
    assert_eq!(object.attributes.kind, FileKind::Directory);
    assert_eq!(test.link.run(make()).unwrap_err(), OpError::Status(Status::EXIST));
    forget(&test.link, Proc::RMDIR, |call| call.reply(&NOENT));
    test.link.run(test.client.remove_directory(&caller, test.top, b"dir")).unwrap();
    // An object of another kind belongs to another client.
    test.create(b"file");
    forget(&test.link, Proc::SYMLINK, |call| call.reply(&EXIST));
    let symlink = NewObject::Symlink(Bytes::from_static(b"x"));
    let made = test.link.run(test.client.create_object(&caller, test.top, b"file", &symlink, &set));
    assert_eq!(made.unwrap_err(), OpError::Status(Status::EXIST));
}

/// Programs use symbolic links as locks: the content names the holder.
#[test]
fn a_symbolic_link_of_another_content_belongs_to_another_client() {
    let test = Test::new();
    let (caller, set) = (root(), SetAttributes::with_mode(0o777));
    let make = |content: &'static [u8]| {
        let link = NewObject::Symlink(Bytes::from_static(content));
        test.link.run(test.client.create_object(&caller, test.top, b"lock", &link, &set))
    };
    forget(&test.link, Proc::SYMLINK, |call| call.reply(&EXIST));
    make(b"first").unwrap();
    // The repetition of a call that was lost before it arrived.
    let count = Cell::new(0);
    test.link.answer(move |call| match call.is(PROGRAM, Proc::SYMLINK.0) && count.replace(1) == 0 {
        true => Answer::Break,
        false => Answer::Serve,
    });
    assert_eq!(make(b"second").unwrap_err(), OpError::Status(Status::EXIST));
}

#[test]
fn renames_and_links_that_the_first_execution_made_are_not_errors() {
    let test = Test::new();
    let caller = root();
    let file = test.create(b"old");
    forget(&test.link, Proc::RENAME, |call| {
        call.reply(&RenameResult::Fail(NfsStat::NOENT, Default::default()))
    });
    let rename = || test.client.rename(&caller, (test.top, b"old"), (test.top, b"new"));
    test.link.run(rename()).unwrap();
    assert_eq!(test.link.run(rename()).unwrap_err(), OpError::Status(Status::NOENT));
    let exist = |call: &Call| call.reply(&LinkResult::Fail(NfsStat::EXIST, Default::default()));
    forget(&test.link, Proc::LINK, exist);
    test.link.run(test.client.link(&caller, file, test.top, b"hard")).unwrap();
    // The name of another file is an error.
    let other = test.create(b"other");
    forget(&test.link, Proc::LINK, exist);
    let linked = test.link.run(test.client.link(&caller, other, test.top, b"hard"));
    assert_eq!(linked.unwrap_err(), OpError::Status(Status::EXIST));
}

/// The server recognizes the verifier of an exclusive CREATE, so that a repetition is the same creation.
#[test]
fn a_repeated_exclusive_creation_succeeds() {
    let test = Test::new();
    forget(&test.link, Proc::CREATE, |_| Answer::Serve);
    let (caller, set) = (root(), SetAttributes::with_mode(0o644));
    let creation = Creation::Exclusive([9; 8]);
    let open = test.client.open(&caller, test.top, b"file", OpenMode::WRITE, creation, &set);
    test.link.run(open).unwrap();
    assert_eq!(test.link.count(PROGRAM, Proc::CREATE.0), 2);
}

#[test]
fn a_server_without_exclusive_creation_gets_a_guarded_one() {
    let test = Test::new();
    let refused = Cell::new(false);
    test.link.answer(move |call| {
        if !call.is(PROGRAM, Proc::CREATE.0) || refused.replace(true) {
            return Answer::Serve;
        }
        call.reply(&Outcome::<CreateOk, WccData>::Fail(NfsStat::NOTSUPP, WccData::default()))
    });
    let (caller, set) = (root(), SetAttributes::with_mode(0o604));
    let open = |verifier| {
        let creation = Creation::Exclusive(verifier);
        test.client.open(&caller, test.top, b"file", OpenMode::WRITE, creation, &set)
    };
    assert_eq!(test.link.run(open([1; 8])).unwrap().object.attributes.mode, 0o604);
    assert_eq!(test.link.run(open([2; 8])).unwrap_err(), OpError::Status(Status::EXIST));
}

#[test]
fn a_write_is_repeated_over_the_next_connection() {
    let test = Test::new();
    let file = test.create(b"file");
    forget(&test.link, Proc::WRITE, |_| Answer::Serve);
    let (caller, state, data) = (root(), OpenState::default(), Bytes::from(vec![1; 5000]));
    let write = test.client.write(&caller, file, &state, 0, data, Stability::FileSync);
    assert_eq!(test.link.run(write).unwrap().count, 5000);
    let attributes = test.link.run(test.client.get_attributes(&root(), file)).unwrap();
    assert_eq!(attributes.size, 5000);
}

#[test]
fn jukebox_is_repeated_after_seconds_with_a_new_transaction_id() {
    let test = Test::new();
    let seen = Rc::new(std::cell::RefCell::new(Vec::new()));
    let xids = Rc::clone(&seen);
    test.link.answer(move |call| {
        if !call.is(PROGRAM, Proc::GETATTR.0) {
            return Answer::Serve;
        }
        xids.borrow_mut().push(call.header.xid);
        match xids.borrow().len() {
            1..=3 => call.reply(&GetattrResult::Fail(NfsStat::JUKEBOX, ())),
            _ => Answer::Serve,
        }
    });
    let started = test.link.now();
    test.link.run(test.client.get_attributes(&root(), test.top)).unwrap();
    assert_eq!(test.link.now() - started, 3 * test.client.config().jukebox_pause);
    let xids = seen.borrow();
    assert_eq!(xids.iter().collect::<std::collections::HashSet<_>>().len(), 4, "{xids:?}");
}

/// Returns a successful CREATE or MKDIR without results about the new object.
fn without_object(handle: Option<WireHandle>) -> CreateResult {
    Outcome::Ok(CreateOk { obj: handle, obj_attributes: None, dir_wcc: WccData::default() })
}

#[test]
fn omitted_results_are_fetched() {
    let test = Test::new();
    let caller = root();
    let file = test.create(b"file");
    let wire = WireHandle::new(&file).unwrap();
    for handle in [None, Some(wire)] {
        test.link.answer(move |call| match Proc(call.header.procedure) {
            Proc::CREATE | Proc::MKDIR if call.header.program == PROGRAM => {
                call.reply(&without_object(handle))
            }
            _ => Answer::Serve,
        });
        let set = SetAttributes::with_mode(0o644);
        let creation = Creation::Exclusive([1; 8]);
        let opened = test.client.open(&caller, test.top, b"file", OpenMode::WRITE, creation, &set);
        let opened = test.link.run(opened).unwrap();
        assert_eq!((opened.object.handle, opened.object.attributes.kind), (file, FileKind::Regular));
    }
    test.link.answer(move |call| match Proc(call.header.procedure) {
        _ if call.header.program != PROGRAM => Answer::Serve,
        Proc::LOOKUP => call.reply(&protocol::nfs3::LookupResult::Ok(protocol::nfs3::LookupOk {
            object: wire,
            obj_attributes: None,
            dir_attributes: None,
        })),
        Proc::SETATTR => call.reply(&Outcome::<WccData, WccData>::Ok(WccData::default())),
        _ => Answer::Serve,
    });
    let found = test.link.run(test.client.lookup(&caller, test.top, b"file")).unwrap();
    assert_eq!((found.handle, found.attributes.kind), (file, FileKind::Regular));
    let chain = test.link.run(test.client.lookup_chain(&caller, test.top, &[b"file"])).unwrap();
    assert_eq!(chain, found);
    let set = SetAttributes::with_mode(0o600);
    let set = test.link.run(test.client.set_attributes(&caller, file, &OpenState::default(), &set)).unwrap();
    assert_eq!(set.kind, FileKind::Regular);
}
