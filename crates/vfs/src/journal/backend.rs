//! The implementation of [`Backend`]: which operations are logged, which wait for a checkpoint, and which are passed on.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Journaled;
use crate::{
    Access, Acl, AclKind, Advice, Attributes, Authority, Backend, Change, ChangeListener, Context, Copied,
    CopyRange, Create, CreateMode, Created, EntriesWatch, Entry, Error, Found, FsStat, Handle, Interest,
    Linked, Op, OpenAccess, Opened, Properties, Quota, QuotaKind, Read, ReadDir, ReadDirEnd, ReadRequest,
    Removal, Renamed, Result, Seek, SetAttributes, SetXattr, Stability, Timestamp, Verifier, Watch, Written,
};

/// Operations that are passed on unchanged.
macro_rules! passed {
    ($($name:ident($($argument:ident: $kind:ty),*) => $answer:ty;)+) => {$(
        fn $name<'a>(&'a self, context: &'a Context, $($argument: $kind),*) -> Op<'a, $answer> {
            self.inner.$name(context, $($argument),*)
        }
    )+};
}

/// Operations that change an object and are not logged.
macro_rules! unlogged {
    ($($name:ident of $object:expr, ($($argument:ident: $kind:ty),*) => $answer:ty;)+) => {$(
        fn $name<'a>(&'a self, context: &'a Context, $($argument: $kind),*) -> Op<'a, $answer> {
            Op::pending(async move {
                let _order = self.before_change($object).await?;
                self.inner.$name(context, $($argument),*).await
            })
        }
    )+};
}

impl<B: Backend> Backend for Journaled<B> {
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
        self.inner.write_verifier()
    }

    fn quota(&self, kind: QuotaKind, id: u32) -> Op<'_, Option<Quota>> {
        self.inner.quota(kind, id)
    }

    fn is_stable(&self) -> bool {
        self.inner.is_stable()
    }

    fn getattr<'a>(&'a self, context: &Context, file: &Handle) -> Op<'a, Attributes> {
        self.inner.getattr(context, file)
    }

    fn setattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        set: &'a SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Op<'a, Change> {
        if set.is_empty() {
            return self.inner.setattr(context, file, set, guard, authority);
        }
        Op::pending(self.set(context, file, set, guard, authority))
    }

    fn lookup<'a>(&'a self, context: &Context, directory: &Handle, name: &[u8]) -> Op<'a, Found> {
        self.inner.lookup(context, directory, name)
    }

    fn read<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        self.inner.read(context, file, request, into)
    }

    fn read_seen<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        seen: &Attributes,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        self.inner.read_seen(context, file, seen, request, into)
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
        let (context, file, data) = (context.clone(), *file, data.clone());
        match stability {
            Stability::Unstable => Op::pending(self.write_unstable(context, file, (offset, data), authority)),
            _ => Op::pending(self.write_stable(context, file, (offset, data), (stability, authority))),
        }
    }

    fn commit<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change> {
        if self.files.is_unknown(file) {
            return self.inner.commit(context, file, offset, count);
        }
        Op::pending(self.commit_known(context, file, (offset, count)))
    }

    fn create<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created> {
        if !(matches!(what, Create::File(CreateMode::Unchecked)) && set.size.is_some()) {
            return self.inner.create(context, directory, name, what, set);
        }
        let (context, directory, name, set) = (context.clone(), *directory, name.to_vec(), *set);
        Op::pending(self.create_or_resize(context, directory, name, set))
    }

    fn remove<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        if !self.has_changes() {
            return self.inner.remove(context, directory, name, removal);
        }
        let (context, directory, name) = (context.clone(), *directory, name.to_vec());
        Op::pending(async move {
            let _order = self.before_removal(&context, &directory, &name).await?;
            self.inner.remove(&context, &directory, &name, removal).await
        })
    }

    fn rename<'a>(
        &'a self,
        context: &'a Context,
        from: (&'a Handle, &'a [u8]),
        to: (&'a Handle, &'a [u8]),
    ) -> Op<'a, Renamed> {
        if !self.has_changes() {
            return self.inner.rename(context, from, to);
        }
        Op::pending(async move {
            let _order = self.before_removal(context, to.0, to.1).await?;
            self.inner.rename(context, from, to).await
        })
    }

    fn open<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        self.inner.open(context, file, access, authority)
    }

    fn open_seen<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        seen: &Attributes,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        self.inner.open_seen(context, file, seen, access, authority)
    }

    fn sync(&self) -> Op<'_, ()> {
        Op::pending(async move {
            // Without the log, the file system still keeps what it can.
            let emptied = self.checkpoint().await;
            self.inner.sync().await?;
            emptied
        })
    }

    fn sync_inherited(&self) -> Op<'_, ()> {
        self.inner.sync_inherited()
    }

    fn write_hole<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        length: u32,
        authority: Authority,
    ) -> Op<'a, Written> {
        Op::pending(async move {
            let _order = self.before_change(file).await?;
            let written = self.inner.write_hole(context, file, offset, length, authority).await?;
            Ok(self.note_written(file, offset, written))
        })
    }

    fn copy_range<'a>(&'a self, context: &'a Context, range: &'a CopyRange) -> Op<'a, Copied> {
        Op::pending(async move {
            let _order = self.before_change(&range.destination).await?;
            let copied = self.inner.copy_range(context, range).await?;
            if copied.stability == Stability::Unstable {
                self.files.note_unstable(&range.destination, None);
            }
            Ok(copied)
        })
    }

    unlogged! {
        allocate of file, (file: &'a Handle, offset: u64, length: u64, authority: Authority) => Change;
        deallocate of file, (file: &'a Handle, offset: u64, length: u64, authority: Authority) => Change;
        clone_range of &range.destination, (range: &'a CopyRange) => Change;
        set_acl of file, (file: &'a Handle, kind: AclKind, acl: Option<&'a Acl>) => Change;
    }

    passed! {
        parent(directory: &'a Handle) => Found;
        access(file: &'a Handle, want: Access) => (Access, Attributes);
        readlink(link: &'a Handle) => (Bytes, Attributes);
        link(file: &'a Handle, directory: &'a Handle, name: &'a [u8]) => Linked;
        readdir(
            directory: &'a Handle, request: ReadDir, visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send)
        ) => ReadDirEnd;
        statfs(file: &'a Handle) => (FsStat, Attributes);
        seek(file: &'a Handle, offset: u64, what: Seek, authority: Authority) => Option<u64>;
        watch(
            object: &'a Handle, interest: Interest, listener: &'a Arc<dyn ChangeListener>
        ) => Option<Box<dyn Watch>>;
        watch_entries(directory: &'a Handle) => Option<Arc<dyn EntriesWatch>>;
        advise(file: &'a Handle, offset: u64, count: u64, advice: Advice) => bool;
        get_acl(file: &'a Handle, kind: AclKind) => Option<Acl>;
        get_xattr(file: &'a Handle, name: &'a [u8]) => Bytes;
        set_xattr(file: &'a Handle, name: &'a [u8], value: &'a Bytes, how: SetXattr) => Change;
        list_xattrs(file: &'a Handle) => Vec<Bytes>;
        remove_xattr(file: &'a Handle, name: &'a [u8]) => Change;
    }
}

impl<B: Backend> Journaled<B> {
    /// An unchecked creation with a size. If the file exists, setting its size is a change of the file.
    async fn create_or_resize(
        &self,
        context: Context,
        directory: Handle,
        name: Vec<u8>,
        set: SetAttributes,
    ) -> Result<Created> {
        let create = |mode, set: SetAttributes| {
            self.inner.create(&context, &directory, &name, &Create::File(mode), &set)
        };
        match create(CreateMode::Guarded, set).await {
            Err(Error::Exists) => {}
            other => return other,
        }
        let found = create(CreateMode::Unchecked, SetAttributes { size: None, ..set }).await?;
        let resize = SetAttributes { size: set.size, ..SetAttributes::default() };
        let change = self.set(&context, &found.handle, &resize, None, Authority::Caller).await?;
        Ok(Created { attributes: change.after, ..found })
    }
}
