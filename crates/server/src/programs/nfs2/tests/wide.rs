//! A backend whose directory cookies are wide, as ext4's are.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use vfs::{
    Access, Attributes, Authority, Backend, Change, Context, Create, Created, Entry, Found, FsStat, Handle,
    Linked, MemFs, Op, OpenAccess, Opened, Properties, Read, ReadDir, ReadDirEnd, ReadRequest, Removal,
    Renamed, SetAttributes, Stability, Timestamp, Verifier, Written,
};

/// Set in the cookies, which are the others shifted.
const WIDE: u64 = 1 << 62;
const SHIFT: u32 = 20;

#[derive(Debug)]
pub(in super::super) struct WideCookies(MemFs);

impl WideCookies {
    pub(in super::super) fn new(inner: MemFs) -> Self {
        Self(inner)
    }
}

impl Backend for WideCookies {
    fn root(&self) -> Handle {
        self.0.root()
    }

    fn properties(&self) -> Properties {
        self.0.properties()
    }

    fn identity(&self) -> [u8; 16] {
        self.0.identity()
    }

    fn write_verifier(&self) -> Verifier {
        self.0.write_verifier()
    }

    fn getattr<'a>(&'a self, context: &Context, file: &Handle) -> Op<'a, Attributes> {
        self.0.getattr(context, file)
    }

    fn setattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        set: &'a SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Op<'a, Change> {
        self.0.setattr(context, file, set, guard, authority)
    }

    fn lookup<'a>(&'a self, context: &Context, directory: &Handle, name: &[u8]) -> Op<'a, Found> {
        self.0.lookup(context, directory, name)
    }

    fn parent<'a>(&'a self, context: &'a Context, directory: &'a Handle) -> Op<'a, Found> {
        self.0.parent(context, directory)
    }

    fn access<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        want: Access,
    ) -> Op<'a, (Access, Attributes)> {
        self.0.access(context, file, want)
    }

    fn readlink<'a>(&'a self, context: &'a Context, link: &'a Handle) -> Op<'a, (Bytes, Attributes)> {
        self.0.readlink(context, link)
    }

    fn read<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        self.0.read(context, file, request, into)
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
        self.0.write(context, file, offset, data, stability, authority)
    }

    fn commit<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change> {
        self.0.commit(context, file, offset, count)
    }

    fn create<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created> {
        self.0.create(context, directory, name, what, set)
    }

    fn remove<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        self.0.remove(context, directory, name, removal)
    }

    fn rename<'a>(
        &'a self,
        context: &'a Context,
        from: (&'a Handle, &'a [u8]),
        to: (&'a Handle, &'a [u8]),
    ) -> Op<'a, Renamed> {
        self.0.rename(context, from, to)
    }

    fn link<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        directory: &'a Handle,
        name: &'a [u8],
    ) -> Op<'a, Linked> {
        self.0.link(context, file, directory, name)
    }

    fn readdir<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        request: ReadDir,
        visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send),
    ) -> Op<'a, ReadDirEnd> {
        let cookie = (request.cookie & !WIDE) >> SHIFT;
        let mut widened = |entry: Entry<'_>| {
            let cookie = WIDE | entry.cookie << SHIFT;
            visit(Entry { cookie, ..entry })
        };
        // Memory answers at once, before the closure ends.
        let listed = self.0.readdir(context, directory, ReadDir { cookie, ..request }, &mut widened).now();
        listed.into()
    }

    fn open<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        self.0.open(context, file, access, authority)
    }

    fn statfs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, (FsStat, Attributes)> {
        self.0.statfs(context, file)
    }
}
