use std::cell::Cell;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Capabilities, Fixture};
use crate::{
    Access, Acl, AclKind, Attributes, Authority, Backend, Change, Context, Copied, CopyRange, Create,
    CreateMode, Created, Credentials, Error, Found, FsStat, Handle, Linked, Op, OpenAccess, Opened, Payload,
    Read, ReadDir, ReadRequest, Removal, Renamed, Result, Seek, SetAttributes, SetXattr, Stability,
    Timestamp, Verifier, Written,
};

/// The context's time advances by this many nanoseconds between two operations: no multiple of a microsecond.
const TICK_NS: u32 = 1_000_007;

/// The context's time at the start of a case, in seconds.
const START_S: i64 = 1_700_000_000;

/// The group of both [`Subject::user`]s.
pub(super) const COMMON_GROUP: u32 = 2_000;

/// A backend under test, with helpers for cases.
#[derive(Debug)]
pub struct Subject {
    fixture: Fixture,
    top: Handle,
    now: Cell<Timestamp>,
    clock_stands: Cell<bool>,
}

impl Subject {
    /// Prepares a directory that the caller owns.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn new(fixture: Fixture) -> Self {
        let now = Cell::new(Timestamp { seconds: START_S, nanoseconds: 0 });
        let root = fixture.backend.root();
        let mut subject = Self { fixture, top: root, now, clock_stands: Cell::new(false) };
        if subject.capabilities().identities {
            let owner = subject.fixture.caller.clone();
            let set = SetAttributes {
                mode: Some(0o755),
                uid: Some(owner.uid),
                gid: Some(owner.gid),
                ..SetAttributes::default()
            };
            let top = subject.root().create(&root, "top", &Create::Directory, &set);
            subject.top = top.expect("the superuser creates a directory in the root").handle;
        }
        subject
    }

    /// Returns the directory to work in, owned by [`me`](Self::me), mode 0755.
    #[must_use]
    pub fn top(&self) -> Handle {
        self.top
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.fixture.backend
    }

    /// Returns the backend's capabilities.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.fixture.capabilities
    }

    /// Returns the ordinary caller.
    #[must_use]
    pub fn me(&self) -> Caller<'_> {
        self.caller(self.fixture.caller.clone())
    }

    /// Returns root as a caller.
    #[must_use]
    pub fn root(&self) -> Caller<'_> {
        self.caller(Credentials::root())
    }

    /// Returns an ordinary user: uid and gid are 1000 and `number`, supplementary groups 2000 and 2100 with `number`.
    #[must_use]
    pub fn user(&self, number: u32) -> Caller<'_> {
        let (id, groups) = (1000 + number, Arc::from([COMMON_GROUP, 2100 + number]));
        self.caller(Credentials { uid: id, gid: id, groups })
    }

    /// Returns a caller with these credentials.
    #[must_use]
    pub fn caller(&self, credentials: Credentials) -> Caller<'_> {
        Caller { subject: self, credentials: Arc::new(credentials) }
    }

    /// Returns whether the change attribute `later` may follow `earlier` without a change in between: it is equal, or on a
    /// coarse clock may be greater.
    #[must_use]
    pub fn is_same_change(&self, earlier: u64, later: u64) -> bool {
        earlier == later || (!self.capabilities().steady_change && earlier < later)
    }

    /// Asserts that nothing changed from `earlier` to `later`.
    ///
    /// # Panics
    /// If something did.
    pub fn assert_same(&self, earlier: &Attributes, later: &Attributes) {
        assert!(self.is_same_change(earlier.change, later.change), "{earlier:?}\n{later:?}");
        assert_eq!(Attributes { change: earlier.change, ..*later }, *earlier);
    }

    /// Returns whether the case does not apply, because the backend lacks the tested capability. Prints a message.
    #[must_use]
    pub fn lacks(&self, present: bool, what: &str) -> bool {
        if !present {
            println!("not applicable: this backend lacks {what}");
        }
        !present
    }

    /// Keeps the context's time constant from now on.
    pub fn stop_clock(&self) {
        self.clock_stands.set(true);
    }

    /// Returns the context's time of the last operation.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now.get()
    }

    /// Returns the same storage after a restart; `None` if nothing survives the backend.
    #[must_use]
    pub fn restart(&self) -> Option<Arc<dyn Backend>> {
        self.fixture.restart.as_ref().map(|restart| restart())
    }

    /// Waits for an operation.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn wait<T>(&self, op: Op<'_, T>) -> Result<T> {
        self.block_on(op)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut answer = None;
        {
            let whole = pin!(async { answer = Some(future.await) });
            (self.fixture.drive)(whole);
        }
        answer.expect("the fixture drives a future to its end")
    }

    fn tick(&self) -> Timestamp {
        let mut now = self.now.get();
        if !self.clock_stands.get() {
            now.nanoseconds += TICK_NS;
            now.seconds += i64::from(now.nanoseconds / 1_000_000_000);
            now.nanoseconds %= 1_000_000_000;
            self.now.set(now);
        }
        now
    }
}

/// A caller of the backend. Methods call the backend's of the same name, with the usual arguments.
#[derive(Debug, Clone)]
pub struct Caller<'t> {
    subject: &'t Subject,
    credentials: Arc<Credentials>,
}

/// A part of a directory's listing.
#[derive(Debug)]
pub struct Listing {
    /// Entries in their order.
    pub entries: Vec<Listed>,
    /// Whether it reached the end.
    pub eof: bool,
    /// The verifier for the next part.
    pub verifier: Verifier,
}

/// An entry of a listing.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Name.
    pub name: Vec<u8>,
    /// File id.
    pub fileid: u64,
    /// Cookie.
    pub cookie: u64,
    /// Handle and attributes, if any.
    pub object: Option<(Handle, Attributes)>,
}

#[allow(missing_docs, reason = "each method is the backend's of the same name")]
#[allow(clippy::missing_errors_doc, reason = "as above")]
impl<'t> Caller<'t> {
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns the context of the next operation.
    #[must_use]
    pub fn context(&self) -> Context {
        Context::new(self.credentials.clone(), self.subject.tick())
    }

    pub fn getattr(&self, file: &Handle) -> Result<Attributes> {
        self.subject.wait(self.backend().getattr(&self.context(), file))
    }

    pub fn setattr(&self, file: &Handle, set: SetAttributes) -> Result<Change> {
        self.setattr_if(file, set, None, Authority::Caller)
    }

    pub fn setattr_if(
        &self,
        file: &Handle,
        set: SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Result<Change> {
        self.subject.wait(self.backend().setattr(&self.context(), file, &set, guard, authority))
    }

    pub fn chmod(&self, file: &Handle, mode: u32) -> Result<Change> {
        self.setattr(file, SetAttributes { mode: Some(mode), ..SetAttributes::default() })
    }

    pub fn chown(&self, file: &Handle, uid: u32, gid: u32) -> Result<Change> {
        self.setattr(file, SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() })
    }

    pub fn truncate(&self, file: &Handle, size: u64) -> Result<Change> {
        self.setattr(file, SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    pub fn lookup(&self, directory: &Handle, name: impl AsRef<[u8]>) -> Result<Found> {
        self.subject.wait(self.backend().lookup(&self.context(), directory, name.as_ref()))
    }

    pub fn parent(&self, directory: &Handle) -> Result<Found> {
        self.subject.wait(self.backend().parent(&self.context(), directory))
    }

    pub fn access(&self, file: &Handle, want: Access) -> Result<Access> {
        Ok(self.subject.wait(self.backend().access(&self.context(), file, want))?.0)
    }

    pub fn readlink(&self, link: &Handle) -> Result<Bytes> {
        Ok(self.subject.wait(self.backend().readlink(&self.context(), link))?.0)
    }

    pub fn read(&self, file: &Handle, offset: u64, count: u32) -> Result<Vec<u8>> {
        self.read_with(file, offset, count, Authority::Caller).map(|(data, _)| data)
    }

    /// Returns the bytes, and the result of the backend. Reads with and without splicing, which must agree.
    pub fn read_with(
        &self,
        file: &Handle,
        offset: u64,
        count: u32,
        authority: Authority,
    ) -> Result<(Vec<u8>, Read)> {
        let ask = |may_splice| {
            let request = ReadRequest { offset, count, may_splice, authority };
            let mut into = BytesMut::new();
            let read = self.subject.wait(self.backend().read(&self.context(), file, request, &mut into))?;
            assert!(may_splice || !matches!(read.payload, Payload::Range(_)), "spliced without permission");
            let data = payload(&read, &into);
            assert_eq!(data.len(), read.count as usize, "count differs from the bytes read");
            Ok((data, read))
        };
        let spliced = ask(true);
        let (data, read) = ask(false)?;
        let (same, _) = spliced.expect("a READ that may splice fails only where others do");
        assert_eq!(same, data, "splicing reads something else");
        Ok((data, read))
    }

    pub fn write(&self, file: &Handle, offset: u64, data: impl AsRef<[u8]>) -> Result<Written> {
        self.write_with(file, offset, data, Stability::FileSync, Authority::Caller)
    }

    pub fn write_with(
        &self,
        file: &Handle,
        offset: u64,
        data: impl AsRef<[u8]>,
        stability: Stability,
        authority: Authority,
    ) -> Result<Written> {
        let data = Bytes::copy_from_slice(data.as_ref());
        let context = self.context();
        self.subject.wait(self.backend().write(&context, file, offset, &data, stability, authority))
    }

    pub fn commit(&self, file: &Handle, offset: u64, count: u64) -> Result<Change> {
        self.subject.wait(self.backend().commit(&self.context(), file, offset, count))
    }

    pub fn create(
        &self,
        directory: &Handle,
        name: impl AsRef<[u8]>,
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Created> {
        self.subject.wait(self.backend().create(&self.context(), directory, name.as_ref(), what, set))
    }

    /// Creates an object with a mode and nothing else.
    pub fn make(
        &self,
        directory: &Handle,
        name: impl AsRef<[u8]>,
        what: &Create,
        mode: u32,
    ) -> Result<Created> {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.create(directory, name, what, &set)
    }

    /// Creates a regular file, mode 0644.
    #[track_caller]
    #[must_use]
    pub fn file(&self, directory: &Handle, name: impl AsRef<[u8]>) -> Handle {
        self.make(directory, name, &Create::File(CreateMode::Guarded), 0o644)
            .expect("a file is created")
            .handle
    }

    /// Creates a directory, mode 0755.
    #[track_caller]
    #[must_use]
    pub fn directory(&self, directory: &Handle, name: impl AsRef<[u8]>) -> Handle {
        self.make(directory, name, &Create::Directory, 0o755).expect("a directory is created").handle
    }

    /// Creates a symbolic link.
    #[track_caller]
    #[must_use]
    pub fn symlink(&self, directory: &Handle, name: impl AsRef<[u8]>, text: &'static str) -> Handle {
        let what = Create::Symlink(Bytes::from_static(text.as_bytes()));
        self.create(directory, name, &what, &SetAttributes::default()).expect("a link is created").handle
    }

    pub fn remove(&self, directory: &Handle, name: impl AsRef<[u8]>, removal: Removal) -> Result<Change> {
        self.subject.wait(self.backend().remove(&self.context(), directory, name.as_ref(), removal))
    }

    pub fn rename(
        &self,
        from: (&Handle, impl AsRef<[u8]>),
        to: (&Handle, impl AsRef<[u8]>),
    ) -> Result<Renamed> {
        let (from, to) = ((from.0, from.1.as_ref()), (to.0, to.1.as_ref()));
        self.subject.wait(self.backend().rename(&self.context(), from, to))
    }

    pub fn link(&self, file: &Handle, directory: &Handle, name: impl AsRef<[u8]>) -> Result<Linked> {
        self.subject.wait(self.backend().link(&self.context(), file, directory, name.as_ref()))
    }

    /// Lists at most `limit` entries after a cookie.
    pub fn page(
        &self,
        directory: &Handle,
        (cookie, verifier): (u64, Verifier),
        limit: usize,
    ) -> Result<Listing> {
        self.page_with(directory, ReadDir { cookie, verifier, plus: false }, limit)
    }

    pub fn page_with(&self, directory: &Handle, request: ReadDir, limit: usize) -> Result<Listing> {
        let mut entries = Vec::new();
        let mut visit = |entry: crate::Entry<'_>| {
            if entries.len() == limit {
                return ControlFlow::Break(());
            }
            let (name, fileid, cookie, object) =
                (entry.name.to_vec(), entry.fileid, entry.cookie, entry.object);
            entries.push(Listed { name, fileid, cookie, object });
            ControlFlow::Continue(())
        };
        let context = self.context();
        let end = self.subject.wait(self.backend().readdir(&context, directory, request, &mut visit))?;
        Ok(Listing { entries, eof: end.eof, verifier: end.verifier })
    }

    /// Returns all names, sorted.
    #[track_caller]
    #[must_use]
    pub fn names(&self, directory: &Handle) -> Vec<Vec<u8>> {
        let listing = self.page(directory, (0, [0; 8]), usize::MAX).expect("the directory is listed");
        assert!(listing.eof, "a listing that nothing stopped reaches the end");
        let mut names: Vec<_> = listing.entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    pub fn open(&self, file: &Handle, read: bool, write: bool) -> Result<Opened> {
        self.open_with(file, OpenAccess { read, write }, Authority::Caller)
    }

    pub fn open_with(&self, file: &Handle, access: OpenAccess, authority: Authority) -> Result<Opened> {
        self.subject.wait(self.backend().open(&self.context(), file, access, authority))
    }

    pub fn open_seen(&self, file: &Handle, seen: &Attributes, access: OpenAccess) -> Result<Opened> {
        self.subject.wait(self.backend().open_seen(&self.context(), file, seen, access, Authority::Caller))
    }

    pub fn read_seen(&self, file: &Handle, seen: &Attributes, count: u32) -> Result<(Vec<u8>, Read)> {
        let request = ReadRequest { offset: 0, count, may_splice: false, authority: Authority::Opened };
        let mut into = BytesMut::new();
        let context = self.context();
        let read = self.subject.wait(self.backend().read_seen(&context, file, seen, request, &mut into))?;
        Ok((payload(&read, &into), read))
    }

    pub fn statfs(&self, file: &Handle) -> Result<FsStat> {
        Ok(self.subject.wait(self.backend().statfs(&self.context(), file))?.0)
    }

    pub fn seek(&self, file: &Handle, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.subject.wait(self.backend().seek(&self.context(), file, offset, what, Authority::Caller))
    }

    pub fn allocate(&self, file: &Handle, offset: u64, length: u64) -> Result<Change> {
        let context = self.context();
        self.subject.wait(self.backend().allocate(&context, file, offset, length, Authority::Caller))
    }

    pub fn get_acl(&self, file: &Handle, kind: AclKind) -> Result<Option<Acl>> {
        self.subject.wait(self.backend().get_acl(&self.context(), file, kind))
    }

    pub fn set_acl(&self, file: &Handle, kind: AclKind, acl: Option<&Acl>) -> Result<Change> {
        self.subject.wait(self.backend().set_acl(&self.context(), file, kind, acl))
    }

    pub fn clone_range(&self, range: &CopyRange) -> Result<Change> {
        self.subject.wait(self.backend().clone_range(&self.context(), range))
    }

    pub fn copy_range(&self, range: &CopyRange) -> Result<Copied> {
        self.subject.wait(self.backend().copy_range(&self.context(), range))
    }

    pub fn deallocate(&self, file: &Handle, offset: u64, length: u64) -> Result<Change> {
        let context = self.context();
        self.subject.wait(self.backend().deallocate(&context, file, offset, length, Authority::Caller))
    }

    pub fn write_hole(&self, file: &Handle, offset: u64, length: u32) -> Result<Written> {
        let context = self.context();
        self.subject.wait(self.backend().write_hole(&context, file, offset, length, Authority::Caller))
    }

    pub fn get_xattr(&self, file: &Handle, name: impl AsRef<[u8]>) -> Result<Bytes> {
        self.subject.wait(self.backend().get_xattr(&self.context(), file, name.as_ref()))
    }

    pub fn set_xattr(
        &self,
        file: &Handle,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        how: SetXattr,
    ) -> Result<Change> {
        let (context, value) = (self.context(), Bytes::copy_from_slice(value.as_ref()));
        self.subject.wait(self.backend().set_xattr(&context, file, name.as_ref(), &value, how))
    }

    pub fn list_xattrs(&self, file: &Handle) -> Result<Vec<Bytes>> {
        self.subject.wait(self.backend().list_xattrs(&self.context(), file))
    }

    pub fn remove_xattr(&self, file: &Handle, name: impl AsRef<[u8]>) -> Result<Change> {
        self.subject.wait(self.backend().remove_xattr(&self.context(), file, name.as_ref()))
    }

    fn backend(&self) -> &'t dyn Backend {
        self.subject.backend()
    }
}

/// Returns the bytes of a READ, of any payload.
pub(super) fn payload(read: &Read, into: &BytesMut) -> Vec<u8> {
    match &read.payload {
        Payload::Appended => into.to_vec(),
        Payload::Bytes(bytes) => {
            assert!(into.is_empty(), "bytes both in the buffer and outside");
            bytes.to_vec()
        }
        Payload::Range(range) => {
            assert!(into.is_empty(), "bytes both in the buffer and in the file");
            assert_eq!(range.length, read.count, "a range of the length read");
            let mut data = vec![0xee; range.length as usize];
            range.source.read_at(range.offset, &mut data);
            data
        }
    }
}

/// Requires an operation to fail with one of `errors`.
#[track_caller]
pub(super) fn assert_fails<T: std::fmt::Debug>(answer: Result<T>, errors: &[Error]) {
    match answer {
        Err(error) if errors.contains(&error) => {}
        other => panic!("expected one of {errors:?}, got {other:?}"),
    }
}

/// Ignores an answer.
pub(super) fn done<T>(_: T) {}
