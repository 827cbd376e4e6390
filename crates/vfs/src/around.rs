//! Wraps a backend, so that every operation passes through one function.
//!
//! Scripted faults ([`crate::fault`]) and the simulator's delays are both an [`Around`], so that neither has to
//! implement the whole contract, and neither can forget an operation.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    Access, Acl, AclKind, Advice, Attributes, Authority, Backend, Change, ChangeListener, Context, Copied,
    CopyRange, Create, Created, EntriesWatch, Entry, Found, FsStat, Handle, Interest, Linked, Op, OpenAccess,
    Opened, Payload, Properties, Quota, QuotaKind, Read, ReadDir, ReadDirEnd, ReadRequest, Removal, Renamed,
    Seek, SetAttributes, SetXattr, Stability, Timestamp, Verifier, Watch, Written,
};

/// An operation of [`Backend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the backend's operation with that name")]
pub enum Method {
    Getattr,
    Setattr,
    Lookup,
    Parent,
    Access,
    Readlink,
    Read,
    Write,
    Commit,
    Create,
    Remove,
    Rename,
    Link,
    Readdir,
    Open,
    Statfs,
    Quota,
    Sync,
    SyncInherited,
    Seek,
    Allocate,
    Deallocate,
    WriteHole,
    Watch,
    WatchEntries,
    CloneRange,
    CopyRange,
    Advise,
    GetAcl,
    SetAcl,
    GetXattr,
    SetXattr,
    ListXattrs,
    RemoveXattr,
}

impl Method {
    /// The number of operations.
    pub const COUNT: usize = Self::RemoveXattr as usize + 1;
}

/// A requested operation.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The operation.
    pub method: Method,
    /// Its target, as far as needed to distinguish calls.
    pub subject: Subject<'a>,
    /// Its context; `None` if it has none.
    pub context: Option<&'a Context>,
    /// The other file whose content it reads.
    pub source: Option<&'a Handle>,
    /// The bytes of a WRITE, and the stability that it asks for.
    pub written: Option<(u64, Stability)>,
    /// The directory of a CREATE, and the attributes to set.
    pub created: Option<(&'a Handle, &'a SetAttributes)>,
}

impl<'a> Call<'a> {
    fn new(method: Method, subject: Subject<'a>, context: Option<&'a Context>) -> Self {
        Self { method, subject, context, source: None, written: None, created: None }
    }

    fn copy(method: Method, context: &'a Context, range: &'a CopyRange) -> Self {
        Self { source: Some(&range.source), ..Self::new(method, Subject::of(range), Some(context)) }
    }
}

/// The target of an operation.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// An object, or the whole file system.
    Whole,
    /// A name, in a directory or among extended attributes.
    Name(&'a [u8]),
    /// The names of RENAME.
    Names(&'a [u8], &'a [u8]),
    /// Attributes of an object.
    Attributes(&'a Handle, &'a SetAttributes),
    /// Bytes of a file from an offset.
    Bytes(&'a Handle, u64),
}

impl<'a> Subject<'a> {
    /// Returns the bytes that a copy writes.
    fn of(range: &'a CopyRange) -> Self {
        Self::Bytes(&range.destination, range.destination_offset)
    }
}

/// Wraps each operation of a backend.
pub trait Around: Send + Sync + fmt::Debug {
    /// Runs an operation with `run`, or answers it without. `run` takes the most bytes that a READ or WRITE may transfer; `None` is
    /// as many as requested.
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T>;

    /// Returns the write verifier to report; `verifier` is the backend's.
    fn write_verifier(&self, verifier: Verifier) -> Verifier {
        verifier
    }

    /// Returns the watch of an object; `None` leaves it to the backend.
    fn watch(
        &self,
        _object: &Handle,
        _interest: Interest,
        _alarm: &Arc<dyn ChangeListener>,
    ) -> Option<Box<dyn Watch>> {
        None
    }

    /// Returns the value for [`Backend::is_stable`]; the argument is the backend's value.
    fn is_stable(&self, is_stable: bool) -> bool {
        is_stable
    }
}

/// A backend that is [wrapped](Around).
#[derive(Debug)]
pub struct Wrapped<B, A> {
    pub(crate) inner: B,
    pub(crate) around: A,
}

impl<B, A> Wrapped<B, A> {
    /// Wraps a backend.
    pub const fn of(inner: B, around: A) -> Self {
        Self { inner, around }
    }

    /// Returns the wrapped backend.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns the wrapper.
    pub const fn around(&self) -> &A {
        &self.around
    }
}

/// Operations that are passed on unchanged.
macro_rules! passed {
    ($($name:ident: $method:ident($($argument:ident: $kind:ty),*) about $subject:expr => $answer:ty;)+) => {$(
        fn $name<'a>(&'a self, context: &'a Context, $($argument: $kind),*) -> Op<'a, $answer> {
            let call = Call::new(Method::$method, $subject, Some(context));
            self.around.around(call, move |_| self.inner.$name(context, $($argument),*))
        }
    )+};
}

impl<B: Backend, A: Around> Backend for Wrapped<B, A> {
    fn root(&self) -> Handle {
        self.inner.root()
    }

    fn properties(&self) -> Properties {
        self.inner.properties()
    }

    fn identity(&self) -> [u8; 16] {
        self.inner.identity()
    }

    fn write_verifier(&self) -> Verifier {
        self.around.write_verifier(self.inner.write_verifier())
    }

    fn getattr<'a>(&'a self, context: &Context, file: &Handle) -> Op<'a, Attributes> {
        let call = Call::new(Method::Getattr, Subject::Whole, Some(context));
        let (context, file) = (context.clone(), *file);
        self.around.around(call, move |_| self.inner.getattr(&context, &file))
    }

    fn lookup<'a>(&'a self, context: &Context, directory: &Handle, name: &[u8]) -> Op<'a, Found> {
        let call = Call::new(Method::Lookup, Subject::Name(name), Some(context));
        let (context, directory, name) = (context.clone(), *directory, name.to_vec());
        self.around.around(call, move |_| self.inner.lookup(&context, &directory, &name))
    }

    fn create<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created> {
        let call = Call {
            created: Some((directory, set)),
            ..Call::new(Method::Create, Subject::Name(name), Some(context))
        };
        let (context, directory, name) = (context.clone(), *directory, name.to_vec());
        let (what, set) = (what.clone(), *set);
        self.around.around(call, move |_| self.inner.create(&context, &directory, &name, &what, &set))
    }

    fn remove<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        let call = Call::new(Method::Remove, Subject::Name(name), Some(context));
        let (context, directory, name) = (context.clone(), *directory, name.to_vec());
        self.around.around(call, move |_| self.inner.remove(&context, &directory, &name, removal))
    }

    fn open<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        let call = Call::new(Method::Open, Subject::Whole, Some(context));
        let (context, file) = (context.clone(), *file);
        self.around.around(call, move |_| self.inner.open(&context, &file, access, authority))
    }

    fn read<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        mut request: ReadRequest,
        _: &mut BytesMut,
    ) -> Op<'a, Read> {
        let call = Call::new(Method::Read, Subject::Bytes(file, request.offset), Some(context));
        let (context, file) = (context.clone(), *file);
        self.around.around(call, move |most| {
            request.count = request.count.min(most.unwrap_or(u32::MAX));
            // It may run after the caller's buffer was freed.
            let mut data = BytesMut::new();
            match self.inner.read(&context, &file, request, &mut data) {
                Op::Ready(Some(Ok(Read { payload: Payload::Appended, count, eof, attributes }))) => {
                    Op::ok(Read { payload: Payload::Bytes(data.freeze()), count, eof, attributes })
                }
                other => other,
            }
        })
    }

    fn write<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        offset: u64,
        data: &Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Op<'a, Written> {
        let call = Call {
            written: Some((data.len() as u64, stability)),
            ..Call::new(Method::Write, Subject::Bytes(file, offset), Some(context))
        };
        let (context, handle, mut data) = (context.clone(), *file, data.clone());
        self.around.around(call, move |most| {
            data.truncate(most.map_or(data.len(), |most| most as usize));
            self.inner.write(&context, &handle, offset, &data, stability, authority)
        })
    }

    fn watch<'a>(
        &'a self,
        context: &'a Context,
        object: &'a Handle,
        interest: Interest,
        listener: &'a Arc<dyn ChangeListener>,
    ) -> Op<'a, Option<Box<dyn Watch>>> {
        let call = Call::new(Method::Watch, Subject::Whole, Some(context));
        self.around.around(call, move |_| match self.around.watch(object, interest, listener) {
            Some(watch) => Op::ok(Some(watch)),
            None => self.inner.watch(context, object, interest, listener),
        })
    }

    fn quota(&self, kind: QuotaKind, id: u32) -> Op<'_, Option<Quota>> {
        let call = Call::new(Method::Quota, Subject::Whole, None);
        self.around.around(call, move |_| self.inner.quota(kind, id))
    }

    fn sync(&self) -> Op<'_, ()> {
        let call = Call::new(Method::Sync, Subject::Whole, None);
        self.around.around(call, |_| self.inner.sync())
    }

    fn sync_inherited(&self) -> Op<'_, ()> {
        let call = Call::new(Method::SyncInherited, Subject::Whole, None);
        self.around.around(call, |_| self.inner.sync_inherited())
    }

    fn is_stable(&self) -> bool {
        self.around.is_stable(self.inner.is_stable())
    }

    fn clone_range<'a>(&'a self, context: &'a Context, range: &'a CopyRange) -> Op<'a, Change> {
        let call = Call::copy(Method::CloneRange, context, range);
        self.around.around(call, move |_| self.inner.clone_range(context, range))
    }

    fn copy_range<'a>(&'a self, context: &'a Context, range: &'a CopyRange) -> Op<'a, Copied> {
        let call = Call::copy(Method::CopyRange, context, range);
        self.around.around(call, move |_| self.inner.copy_range(context, range))
    }

    passed! {
        setattr: Setattr(
            file: &'a Handle, set: &'a SetAttributes, guard: Option<Timestamp>, authority: Authority
        ) about Subject::Attributes(file, set) => Change;
        parent: Parent(directory: &'a Handle) about Subject::Whole => Found;
        access: Access(file: &'a Handle, want: Access) about Subject::Whole => (Access, Attributes);
        readlink: Readlink(link: &'a Handle) about Subject::Whole => (Bytes, Attributes);
        commit: Commit(file: &'a Handle, offset: u64, count: u64) about Subject::Bytes(file, offset) => Change;
        rename: Rename(
            from: (&'a Handle, &'a [u8]), to: (&'a Handle, &'a [u8])
        ) about Subject::Names(from.1, to.1) => Renamed;
        link: Link(file: &'a Handle, directory: &'a Handle, name: &'a [u8]) about Subject::Name(name) => Linked;
        readdir: Readdir(
            directory: &'a Handle, request: ReadDir,
            visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send)
        ) about Subject::Whole => ReadDirEnd;
        statfs: Statfs(file: &'a Handle) about Subject::Whole => (FsStat, Attributes);
        seek: Seek(
            file: &'a Handle, offset: u64, what: Seek, authority: Authority
        ) about Subject::Bytes(file, offset) => Option<u64>;
        allocate: Allocate(
            file: &'a Handle, offset: u64, length: u64, authority: Authority
        ) about Subject::Bytes(file, offset) => Change;
        deallocate: Deallocate(
            file: &'a Handle, offset: u64, length: u64, authority: Authority
        ) about Subject::Bytes(file, offset) => Change;
        write_hole: WriteHole(
            file: &'a Handle, offset: u64, length: u32, authority: Authority
        ) about Subject::Bytes(file, offset) => Written;
        watch_entries: WatchEntries(directory: &'a Handle) about Subject::Whole => Option<Arc<dyn EntriesWatch>>;
        advise: Advise(
            file: &'a Handle, offset: u64, count: u64, advice: Advice
        ) about Subject::Bytes(file, offset) => bool;
        get_acl: GetAcl(file: &'a Handle, kind: AclKind) about Subject::Whole => Option<Acl>;
        set_acl: SetAcl(file: &'a Handle, kind: AclKind, acl: Option<&'a Acl>) about Subject::Whole => Change;
        get_xattr: GetXattr(file: &'a Handle, name: &'a [u8]) about Subject::Name(name) => Bytes;
        set_xattr: SetXattr(
            file: &'a Handle, name: &'a [u8], value: &'a Bytes, how: SetXattr
        ) about Subject::Name(name) => Change;
        list_xattrs: ListXattrs(file: &'a Handle) about Subject::Whole => Vec<Bytes>;
        remove_xattr: RemoveXattr(file: &'a Handle, name: &'a [u8]) about Subject::Name(name) => Change;
    }
}
