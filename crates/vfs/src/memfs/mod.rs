//! A file system in memory: complete, bounded, and without a clock, a file or a random number of its own.
//!
//! It is used for `--memory` exports, for the protocol servers' tests, and for the simulator, which needs immediate
//! answers in virtual time, and a disk that can lose uncommitted data ([`MemFs::crash`]).
//!
//! - **Locking.** One reader-writer lock, held for one operation and never across an await, so every [`Change`] is
//!   atomic. GETATTR, LOOKUP, ACCESS, READ and directory listings share it.
//! - **Space.** A file's content is a map of 4 KiB pages; holes cost nothing. Pages, directory entries, texts of
//!   symbolic links and extended attributes are charged against [`MemOptions::max_bytes`] and the owner's quota,
//!   objects against [`MemOptions::max_files`]: memory is bounded for any behavior of clients.
//! - **Handles** contain the instance and a file id that is never reused: stale once the file is removed.
//! - **Listings.** An entry keeps its cookie; entries that stay are never skipped or repeated.
//! - **Times** are the context's, to the nanosecond. The change attribute counts changes, so it moves even if the
//!   clock stands still. Access times follow Linux's `relatime`: they move when they are older than the last change,
//!   or a day old; an access moves neither the change time nor the change attribute.
//! - **Stability.** WRITE answers the requested stability and COMMIT does nothing, unless
//!   [`MemOptions::is_volatile`]; then stable WRITEs of a [group](crate::GroupCommit) become stable with it.

mod acl;
mod copy;
mod create;
mod data;
mod directory;
mod inode;
mod namespace;
mod pages;
mod permission;
mod setattr;
mod space;
mod state;
mod table;
mod unstable;
mod xattr;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::{RwLock, RwLockWriteGuard};

use crate::{
    Access, Acl, AclKind, Attributes, Authority, Backend, Change, Committer, Committing, Context, Copied,
    CopyRange, Create, Created, EntriesWatch, Entry, Error, Found, FsStat, Handle, Linked, Op, OpenAccess,
    Opened, Peer, Pin, Properties, Quota, QuotaKind, Read, ReadDir, ReadDirEnd, ReadRequest, Removal,
    Renamed, Result, Seek, SetAttributes, SetXattr, Stability, Thread, Timestamp, Verifier, Written,
};
use inode::{Body, Inode};
use pages::PAGE;
use space::Space;
use state::{ROOT, State};
use table::Table;

/// Longest name in bytes, as on Linux.
const NAME_MAX: u32 = 255;
/// Maximum number of names of a file, and subdirectories of a directory less two: ext4's limit.
const LINKS_MAX: u32 = 65_000;
/// Longest text of a symbolic link in bytes: PATH_MAX without its NUL.
const SYMLINK_MAX: usize = 4095;
/// Longest name of an extended attribute in bytes: Linux's 255, less `user.`.
const XATTR_NAME_MAX: usize = 250;
/// Longest value of an extended attribute in bytes: Linux's XATTR_SIZE_MAX.
const XATTR_VALUE_MAX: usize = 65_536;

/// The options of a [`MemFs`]. [`Default`] gives 1 GiB and a million files, with a root directory that only root may
/// write.
#[derive(Debug, Clone)]
pub struct MemOptions {
    /// The identity of the file system, for [`Backend::identity`]; its first half is the `fsid`.
    pub identity: [u8; 16],
    /// Differs for every start: handles of another instance are stale, and the write verifier is derived from it.
    pub instance: u64,
    /// Maximum number of bytes of content, entries and attributes.
    pub max_bytes: u64,
    /// Maximum number of objects.
    pub max_files: u32,
    /// Greatest file size in bytes, at most 2^63 - 1.
    pub max_file_size: u64,
    /// Maximum number of bytes of one owner other than root.
    pub quota_bytes: Option<u64>,
    /// Whether changes are refused.
    pub is_read_only: bool,
    /// Whether unstable data are lost by [`MemFs::crash`]. Costs a copy of the replaced data.
    pub is_volatile: bool,
    /// Mode of the root directory.
    pub root_mode: u32,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// When the root directory was created.
    pub now: Timestamp,
}

impl Default for MemOptions {
    fn default() -> Self {
        Self {
            identity: *b"memory\0\0\0\0\0\0\0\0\0\0",
            instance: 1,
            max_bytes: 1 << 30,
            max_files: 1 << 20,
            max_file_size: i64::MAX as u64,
            quota_bytes: None,
            is_read_only: false,
            is_volatile: false,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
            now: Timestamp::default(),
        }
    }
}

/// A file system in memory; see the [module](self).
#[derive(Debug)]
pub struct MemFs {
    shared: Arc<Shared>,
    root: Handle,
    identity: [u8; 16],
    properties: Properties,
    /// Whether users have quotas.
    has_quotas: AtomicBool,
    when_full: Option<WhenFull>,
    clock: Option<FileClock>,
}

/// The time of day at which an operation is executed.
struct FileClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl std::fmt::Debug for FileClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileClock")
    }
}

/// Called for refusals because of space.
struct WhenFull(Arc<dyn Fn(u64) + Send + Sync>);

impl std::fmt::Debug for WhenFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WhenFull")
    }
}

#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    /// Counts changes of attributes, without those by reading, under the exclusive lock.
    changes: AtomicU64,
    verifier: RwLock<Verifier>,
}

impl Shared {
    /// Locks the state for a change of attributes.
    fn change(&self) -> RwLockWriteGuard<'_, State> {
        let state = self.state.write();
        self.changes.fetch_add(1, Ordering::AcqRel);
        state
    }
}

impl Committer for Shared {
    /// A file.
    type Change = u64;

    fn commit(self: Arc<Self>, changes: Vec<(u32, u64)>, _: Thread, _: Peer) -> Committing {
        Box::pin(async move {
            let mut state = self.state.write();
            changes.into_iter().for_each(|(_, file)| state.made_stable(file));
            Ok(())
        })
    }
}

/// A watch of a directory's entries, and of everything else.
#[derive(Debug)]
struct Unchanged {
    shared: Arc<Shared>,
    /// The number of changes when it began.
    changes: u64,
    entries: usize,
}

impl EntriesWatch for Unchanged {
    fn is_unchanged(&self) -> bool {
        self.shared.changes.load(Ordering::Acquire) == self.changes
    }

    fn entries(&self) -> usize {
        self.entries
    }
}

impl MemFs {
    /// Creates an empty file system.
    #[must_use]
    pub fn new(options: &MemOptions) -> Self {
        let fsid = options.identity.first_chunk().expect("eight of sixteen bytes");
        let mut table = Table::new(options.instance, options.max_files.max(1));
        let owner = (options.root_uid, options.root_gid);
        let body = Body::Directory(directory::Directory::new(ROOT));
        let root = Inode::new(body, options.root_mode & 0o7777, owner, options.now);
        let root = table.insert(root).expect("an empty table has room for the root");
        assert_eq!(root, ROOT, "the first object of a table is the root");
        let root = table.handle(root);
        let max_file_size = options.max_file_size.min(i64::MAX as u64);
        let state = State {
            table,
            space: Space::new(options.max_bytes, options.quota_bytes),
            unstable: options.is_volatile.then(Default::default),
            fsid: u64::from_be_bytes(*fsid),
            max_file_size,
            read_only: options.is_read_only,
        };
        let verifier = RwLock::new(options.instance.to_be_bytes());
        let shared = Arc::new(Shared { state: RwLock::new(state), changes: AtomicU64::new(0), verifier });
        let properties = properties(max_file_size, options.is_read_only);
        let has_quotas = AtomicBool::new(options.quota_bytes.is_some());
        Self {
            shared,
            root,
            identity: options.identity,
            properties,
            has_quotas,
            when_full: None,
            clock: None,
        }
    }

    /// Loses unstable data if the file system [is volatile](MemOptions::is_volatile), and changes the write
    /// verifier to `verifier`. Handles stay valid: clients see a server that crashed and came back.
    pub fn crash(&self, verifier: Verifier) {
        self.shared.change().crash();
        *self.shared.verifier.write() = verifier;
    }

    /// Sets other limits, as [`MemOptions::max_bytes`] and [`MemOptions::quota_bytes`]; usage above them remains.
    pub fn set_limits(&self, max_bytes: u64, quota_bytes: Option<u64>) {
        self.shared.state.write().space.set_limits(max_bytes, quota_bytes);
        self.has_quotas.store(quota_bytes.is_some(), Ordering::Relaxed);
    }

    /// Calls `notify` with [`MemOptions::max_bytes`] whenever an operation is refused because of space or objects. The
    /// call comes after the change, without a lock, and must not block.
    #[must_use]
    pub fn when_full(mut self, notify: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.when_full = Some(WhenFull(Arc::new(notify)));
        self
    }

    /// Takes file times from `clock` when an operation is executed, as file systems of an operating system do, instead of
    /// [`Context::now`], which is the time of the request.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Some(FileClock(Arc::new(clock)));
        self
    }

    /// Returns the context of an operation that is executed now.
    fn at_present<'c>(&self, context: &'c Context) -> Cow<'c, Context> {
        match &self.clock {
            None => Cow::Borrowed(context),
            Some(clock) => Cow::Owned(Context { now: (clock.0)(), ..context.clone() }),
        }
    }

    /// Answers from the state.
    fn ask<T>(&self, file: &Handle, answer: impl FnOnce(&State, u64) -> Result<T>) -> Op<'static, T> {
        let state = self.shared.state.read();
        Op::from(state.resolve(file).and_then(|file| answer(&state, file)))
    }

    /// Changes the state.
    fn act<T>(&self, file: &Handle, act: impl FnOnce(&mut State, u64) -> Result<T>) -> Op<'static, T> {
        let mut state = self.shared.change();
        let refusals = state.refusals();
        let result = state.resolve(file).and_then(|file| {
            if state.read_only {
                return Err(Error::ReadOnly);
            }
            act(&mut state, file)
        });
        let limit = (state.refusals() != refusals).then(|| state.space.limit());
        drop(state);
        if let (Some(limit), Some(notify)) = (limit, &self.when_full) {
            (notify.0)(limit);
        }
        Op::from(result)
    }

    /// Changes the state of two objects.
    fn act_on_two<T>(
        &self,
        (one, other): (&Handle, &Handle),
        act: impl FnOnce(&mut State, u64, u64) -> Result<T>,
    ) -> Op<'static, T> {
        self.act(one, |state, one| {
            let other = state.resolve(other)?;
            act(state, one, other)
        })
    }

    /// Answers from an object's content, and moves its access time if that is due: rarely, and then under the
    /// exclusive lock.
    fn access_content<T>(
        &self,
        file: &Handle,
        now: Timestamp,
        answer: impl FnOnce(&State, u64) -> Result<T>,
        attributes: impl FnOnce(&mut T) -> &mut Attributes,
    ) -> Op<'static, T> {
        let state = self.shared.state.read();
        let answered = state.resolve(file).and_then(|file| {
            let answer = answer(&state, file)?;
            Ok((answer, file, state.is_access_time_due(file, now)))
        });
        drop(state);
        Op::from(answered.map(|(mut answer, file, is_due)| {
            // The object may have been removed between the locks; the read data are valid.
            if is_due && let Some(inode) = self.shared.state.write().table.get_mut(file) {
                inode.accessed = now;
                attributes(&mut answer).accessed = now;
            }
            answer
        }))
    }
}

fn properties(max_file_size: u64, read_only: bool) -> Properties {
    Properties {
        max_file_size,
        max_name: NAME_MAX,
        max_links: LINKS_MAX,
        time_delta_ns: 1,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
        xattrs: true,
        acls: true,
        clone_block_bytes: PAGE as u32,
        shares_storage: false,
        quotas: false,
        read_only,
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    crate::check_name(name, NAME_MAX)
}

/// An open file.
struct OpenFile {
    shared: Arc<Shared>,
    file: u64,
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFile").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Pin for OpenFile {}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shared.state.write().close(self.file);
    }
}

impl Backend for MemFs {
    fn root(&self) -> Handle {
        self.root
    }

    fn properties(&self) -> Properties {
        Properties { quotas: self.has_quotas.load(Ordering::Relaxed), ..self.properties }
    }

    fn identity(&self) -> [u8; 16] {
        self.identity
    }

    fn write_verifier(&self) -> Verifier {
        *self.shared.verifier.read()
    }

    fn getattr<'a>(&'a self, _: &Context, file: &Handle) -> Op<'a, Attributes> {
        self.ask(file, |state, file| Ok(state.attributes(file)))
    }

    fn setattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        set: &'a SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act(file, |state, file| state.setattr(context, file, set, guard, authority))
    }

    fn lookup<'a>(&'a self, context: &Context, directory: &Handle, name: &[u8]) -> Op<'a, Found> {
        self.ask(directory, |state, directory| state.lookup(context, directory, name))
    }

    fn parent<'a>(&'a self, context: &'a Context, directory: &'a Handle) -> Op<'a, Found> {
        self.ask(directory, |state, directory| state.parent(context, directory))
    }

    fn access<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        want: Access,
    ) -> Op<'a, (Access, Attributes)> {
        self.ask(file, |state, file| Ok(state.access(context, file, want)))
    }

    fn readlink<'a>(&'a self, context: &'a Context, link: &'a Handle) -> Op<'a, (Bytes, Attributes)> {
        let context = &*self.at_present(context);
        self.access_content(link, context.now, |state, link| state.readlink(link), |answer| &mut answer.1)
    }

    fn read<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        let context = &*self.at_present(context);
        let read = |state: &State, file| state.read(context, file, request, into);
        self.access_content(file, context.now, read, |answer| &mut answer.attributes)
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
        let context = &*self.at_present(context);
        let group = context.group.as_ref().filter(|_| stability != Stability::Unstable);
        self.act(file, |state, file| {
            let Some(group) = group.filter(|_| state.unstable.is_some()) else {
                return state.write(context, file, offset, data, stability, authority);
            };
            // The request makes it stable at its end.
            let written = state.write(context, file, offset, data, Stability::Unstable, authority)?;
            group.defer(&self.shared, file);
            Ok(Written { stability, ..written })
        })
    }

    fn commit<'a>(&'a self, _: &'a Context, file: &'a Handle, _offset: u64, _count: u64) -> Op<'a, Change> {
        self.act(file, State::commit)
    }

    fn create<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created> {
        let context = &*self.at_present(context);
        self.act(directory, |state, directory| state.create(context, directory, name, what, set))
    }

    fn remove<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act(directory, |state, directory| state.remove(context, directory, name, removal))
    }

    fn rename<'a>(
        &'a self,
        context: &'a Context,
        from: (&'a Handle, &'a [u8]),
        to: (&'a Handle, &'a [u8]),
    ) -> Op<'a, Renamed> {
        let context = &*self.at_present(context);
        self.act_on_two((from.0, to.0), |state, source, target| {
            state.rename(context, (source, from.1), (target, to.1))
        })
    }

    fn link<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        directory: &'a Handle,
        name: &'a [u8],
    ) -> Op<'a, Linked> {
        let context = &*self.at_present(context);
        self.act_on_two((file, directory), |state, file, directory| {
            state.link(context, file, directory, name)
        })
    }

    fn readdir<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        request: ReadDir,
        visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send),
    ) -> Op<'a, ReadDirEnd> {
        let context = &*self.at_present(context);
        let list = |state: &State, directory| state.readdir(context, directory, request, visit);
        self.access_content(directory, context.now, list, |answer| &mut answer.directory)
    }

    fn watch_entries<'a>(
        &'a self,
        _: &'a Context,
        directory: &'a Handle,
    ) -> Op<'a, Option<Arc<dyn EntriesWatch>>> {
        self.ask(directory, |state, directory| {
            let entries = state.inode(directory).directory()?.len() as usize;
            let changes = self.shared.changes.load(Ordering::Acquire);
            Ok(Some(Arc::new(Unchanged { shared: Arc::clone(&self.shared), changes, entries }) as _))
        })
    }

    fn open<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        let mut state = self.shared.state.write();
        Op::from(state.resolve(file).and_then(|file| {
            state.open(context, file, access, authority)?;
            let pin = Arc::new(OpenFile { shared: self.shared.clone(), file });
            Ok(Opened { pin, attributes: state.attributes(file) })
        }))
    }

    fn statfs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, (FsStat, Attributes)> {
        self.ask(file, |state, file| Ok(state.statfs(context, file)))
    }

    fn quota(&self, kind: QuotaKind, id: u32) -> Op<'_, Option<Quota>> {
        let quota = match kind {
            QuotaKind::User => self.shared.state.read().space.quota_of(id),
            QuotaKind::Group => None,
        };
        Op::ok(quota)
    }

    fn sync(&self) -> Op<'_, ()> {
        self.shared.state.write().made_all_stable();
        Op::ok(())
    }

    fn seek<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        what: Seek,
        authority: Authority,
    ) -> Op<'a, Option<u64>> {
        self.ask(file, |state, file| state.seek(context, file, offset, what, authority))
    }

    fn allocate<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        length: u64,
        authority: Authority,
    ) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act(file, |state, file| state.allocate(context, file, (offset, length), authority))
    }

    fn deallocate<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        length: u64,
        authority: Authority,
    ) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act(file, |state, file| state.deallocate(context, file, (offset, length), authority))
    }

    fn write_hole<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        length: u32,
        authority: Authority,
    ) -> Op<'a, Written> {
        let context = &*self.at_present(context);
        self.act(file, |state, file| state.write_hole(context, file, (offset, length), authority))
    }

    fn clone_range<'a>(&'a self, context: &'a Context, range: &'a CopyRange) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act_on_two((&range.source, &range.destination), |state, source, destination| {
            state.clone_range(context, (source, destination), range)
        })
    }

    fn copy_range<'a>(&'a self, context: &'a Context, range: &'a CopyRange) -> Op<'a, Copied> {
        let context = &*self.at_present(context);
        self.act_on_two((&range.source, &range.destination), |state, source, destination| {
            state.copy_range(context, (source, destination), range)
        })
    }

    fn get_acl<'a>(&'a self, _: &'a Context, file: &'a Handle, kind: AclKind) -> Op<'a, Option<Acl>> {
        self.ask(file, |state, file| Ok(state.get_acl(file, kind)))
    }

    fn set_acl<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        kind: AclKind,
        acl: Option<&'a Acl>,
    ) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act(file, |state, file| state.set_acl(context, file, kind, acl))
    }

    fn get_xattr<'a>(&'a self, context: &'a Context, file: &'a Handle, name: &'a [u8]) -> Op<'a, Bytes> {
        self.ask(file, |state, file| state.get_xattr(context, file, name))
    }

    fn set_xattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        name: &'a [u8],
        value: &'a Bytes,
        how: SetXattr,
    ) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act(file, |state, file| state.set_xattr(context, file, name, value, how))
    }

    fn list_xattrs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, Vec<Bytes>> {
        self.ask(file, |state, file| state.list_xattrs(context, file))
    }

    fn remove_xattr<'a>(&'a self, context: &'a Context, file: &'a Handle, name: &'a [u8]) -> Op<'a, Change> {
        let context = &*self.at_present(context);
        self.act(file, |state, file| state.remove_xattr(context, file, name))
    }
}
