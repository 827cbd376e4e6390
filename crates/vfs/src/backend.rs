use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    Access, Acl, AclKind, Alarm, Attributes, Change, Context, Device, EntriesWatch, Error, FileKind, FsStat,
    Handle, Interest, Op, Payload, Properties, SetAttributes, Timestamp, Watch,
};

/// Eight bytes that a client or server compares for equality alone.
pub type Verifier = [u8; 8];

/// On whose word an operation on a file's content goes ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// The caller's, judged by permission bits and ACL; the owner may always read and write its own file, because a
    /// stateless client has checked at its open(2), and who may execute a file may read it, because paging a program in
    /// looks like reading (both RFC 1813 §4.4).
    Caller,
    /// An open that was judged before: no further check.
    Opened,
}

/// How far data have travelled before WRITE is answered (RFC 1813 §3.3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// Accepted; may be lost by a crash until committed.
    Unstable,
    /// Data and what is needed to find them are on stable storage.
    DataSync,
    /// Data and all attributes are on stable storage.
    FileSync,
}

/// What a READ asks.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// First byte.
    pub offset: u64,
    /// Bytes at most.
    pub count: u32,
    /// Whether the answer may be a [`Payload::Range`].
    pub may_splice: bool,
    /// On whose word.
    pub authority: Authority,
}

/// Answer to a READ.
#[derive(Debug)]
pub struct Read {
    /// Bytes read; fewer than asked only at the end of the file, or where the backend says so.
    pub count: u32,
    /// Whether `offset + count` reaches the end of the file.
    pub eof: bool,
    /// Where the bytes are.
    pub payload: Payload,
    /// The file afterwards.
    pub attributes: Attributes,
}

/// Answer to a WRITE.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Bytes written, at least one unless none was given.
    pub count: u32,
    /// How far they have travelled, at least as far as asked.
    pub stability: Stability,
    /// The file around it.
    pub change: Change,
}

/// Answer to a lookup.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The object.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// The directory's attributes.
    pub directory: Attributes,
}

/// What a new file does with one that is there already (RFC 1813 §3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Takes the file that is there; a size among the attributes is applied, nothing else. What is there and no
    /// regular file is [`Error::IsDirectory`], [`Error::IsSymlink`] or [`Error::WrongKind`].
    Unchecked,
    /// Fails with [`Error::Exists`].
    Guarded,
    /// Fails with [`Error::Exists`] unless that file was created with the same verifier, which is kept on stable
    /// storage with the file, so that a retransmission succeeds even over a restart. The attributes given are set too.
    Exclusive(Verifier),
}

/// What to create.
#[derive(Debug, Clone)]
pub enum Create {
    /// A regular file.
    File(CreateMode),
    /// A directory.
    Directory,
    /// A symbolic link to this text.
    Symlink(Bytes),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
}

impl Create {
    /// Of which kind the object is.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::File(_) => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
            Self::CharDevice(_) => FileKind::CharDevice,
            Self::BlockDevice(_) => FileKind::BlockDevice,
        }
    }
}

/// Answer to a create.
#[derive(Debug, Clone, Copy)]
pub struct Created {
    /// The object.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// The directory around it.
    pub directory: Change,
    /// Whether the object is new; false where an unchecked create found it, or an exclusive one was repeated.
    pub is_new: bool,
    /// Whether the file's times of access and modification hold the verifier of an exclusive create, and are to be set by
    /// whoever made it (RFC 1813 §3.3.8, RFC 8881 §18.16.4).
    pub verifier_in_times: bool,
}

/// What may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Anything but a directory (RFC 1813 REMOVE).
    File,
    /// A directory (RMDIR).
    Directory,
    /// Either (NFSv4 REMOVE).
    Any,
}

/// Answer to a rename.
#[derive(Debug, Clone, Copy)]
pub struct Renamed {
    /// The directory that the entry left.
    pub from: Change,
    /// The directory that it came to; the same values where they are one.
    pub to: Change,
}

/// Answer to a link.
#[derive(Debug, Clone, Copy)]
pub struct Linked {
    /// The file.
    pub attributes: Attributes,
    /// The directory around it.
    pub directory: Change,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAccess {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
}

/// Keeps an open file's content alive after its last name is gone; dropped when it is closed.
pub trait Pin: Send + Sync + fmt::Debug {}

/// Answer to an open.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Hold it as long as the file is open.
    pub pin: Arc<dyn Pin>,
    /// The file.
    pub attributes: Attributes,
}

/// What a directory listing asks.
#[derive(Debug, Clone, Copy)]
pub struct ReadDir {
    /// Cookie of the last entry seen; 0 for the start.
    pub cookie: u64,
    /// The verifier that came with it; zeros with cookie 0.
    pub verifier: Verifier,
    /// Whether entries carry attributes and handles.
    pub plus: bool,
}

/// An entry of a directory. `.` and `..` are never listed: the protocols that have them add them.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode number.
    pub fileid: u64,
    /// Continues behind this entry; at least 3, so that 0, 1 and 2 are free for the protocols (RFC 8881 §18.23.3).
    pub cookie: u64,
    /// Attributes and handle, if asked for and to be had.
    pub object: Option<(Handle, Attributes)>,
}

/// Answer to a directory listing.
#[derive(Debug, Clone, Copy)]
pub struct ReadDirEnd {
    /// Whether the last entry was visited.
    pub eof: bool,
    /// Comes back with a cookie.
    pub verifier: Verifier,
    /// The directory.
    pub directory: Attributes,
}

/// What to find from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Data.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}

/// What CLONE and COPY put where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// The file to read.
    pub source: Handle,
    /// First byte there.
    pub source_offset: u64,
    /// On whose word it is read.
    pub source_authority: Authority,
    /// The file to write; may be the source.
    pub destination: Handle,
    /// First byte there.
    pub destination_offset: u64,
    /// On whose word it is written.
    pub destination_authority: Authority,
    /// Bytes; 0 for all to the end of the source.
    pub count: u64,
}

impl CopyRange {
    /// What is left of it when `done` bytes are copied; `done` is less than its count, unless that is 0.
    #[must_use]
    pub fn behind(self, done: u64) -> Self {
        Self {
            source_offset: self.source_offset.saturating_add(done),
            destination_offset: self.destination_offset.saturating_add(done),
            // 0 stays 0: to the end.
            count: self.count.saturating_sub(done),
            ..self
        }
    }
}

/// Smallest hole in bytes that a copy leaves a hole, where it may: a step and a change of the size cost as much as copying that.
pub const COPIED_HOLE_BYTES: u64 = 64 << 10;

/// Answer to a step of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Copied {
    /// Bytes copied, from the start of the range on; at least one unless none was to be.
    pub count: u64,
    /// How far they have travelled.
    pub stability: Stability,
    /// Whether that was all of the range.
    pub is_all: bool,
    /// The destination around it.
    pub change: Change,
}

/// What a client expects to do with a range of a file soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Read it.
    WillNeed,
    /// Leave it.
    DontNeed,
}

/// What setting an extended attribute does with one that is there, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Creates or replaces.
    Either,
    /// Must not be there.
    Create,
    /// Must be there.
    Replace,
}

/// A file system that the servers can export.
///
/// Durability: a backend that promises it ([`Backend`]s are constructed so) has every change of names and attributes
/// on stable storage before it answers (RFC 1813 §1.1, §4.8), and data as [`Stability`] says.
///
/// Names are bytes without slash and NUL; empty names, `.` and `..` are refused with [`Error::BadName`], longer ones
/// than [`Properties::max_name`] with [`Error::NameTooLong`]. Handles may come from anywhere: what is not a handle of
/// this backend is [`Error::BadHandle`], a file that is gone [`Error::Stale`]. Reading content of anything but a regular
/// file is [`Error::IsDirectory`] for directories, [`Error::WrongKind`] for others.
pub trait Backend: Send + Sync + fmt::Debug {
    /// The top of what is exported.
    fn root(&self) -> Handle;

    /// What is constant.
    fn properties(&self) -> Properties;

    /// A name for the file system as a whole that stays the same over restarts, moves of the machine and reboots.
    fn identity(&self) -> [u8; 16];

    /// Changes exactly when unstable data may have been lost: at a start after unclean writes, and when an fsync failed.
    fn write_verifier(&self) -> Verifier;

    /// All attributes. What is returned borrows the backend alone, as that of all operations does that are begun before it is known whether
    /// they need a future.
    fn getattr<'a>(&'a self, context: &Context, file: &Handle) -> Op<'a, Attributes>;

    /// Sets attributes, all that an object of this kind takes ([`SetAttributes::for_kind`]), or, on failure, as few as the system
    /// allows. The mode of any kind is its owner's alone to set.
    ///
    /// # Errors
    /// [`Error::NotSync`] where `guard` is not the file's change time (RFC 1813 §3.3.2).
    fn setattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        set: &'a SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Op<'a, Change>;

    /// Finds a name in a directory. Does not follow symbolic links and does not leave the export.
    fn lookup<'a>(&'a self, context: &Context, directory: &Handle, name: &[u8]) -> Op<'a, Found>;

    /// The directory that holds `directory`; [`Error::NotFound`] at the root.
    fn parent<'a>(&'a self, context: &'a Context, directory: &'a Handle) -> Op<'a, Found>;

    /// Which of `want` the caller has.
    fn access<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        want: Access,
    ) -> Op<'a, (Access, Attributes)>;

    /// The text of a symbolic link; [`Error::Invalid`] for anything else.
    fn readlink<'a>(&'a self, context: &'a Context, link: &'a Handle) -> Op<'a, (Bytes, Attributes)>;

    /// Reads; what is answered at once may be appended to `into`, and only there ([`Payload::Appended`]).
    fn read<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read>;

    /// [`Self::read`] of a file that the same request has just seen, with the attributes `seen`: they may be those that the answer
    /// tells, and the end of the file be where they say.
    fn read_seen<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        seen: &Attributes,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        let _ = seen;
        self.read(context, file, request, into)
    }

    /// Writes all of `data`, or less where that is what could be done.
    fn write<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        offset: u64,
        data: &Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Op<'a, Written>;

    /// Brings unstable data of the range (`count` 0: to the end) to stable storage; reports every write error since
    /// the last commit to somebody.
    fn commit<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change>;

    /// Creates an object. Attributes not given are: mode 0 for [`CreateMode::Exclusive`], else 0600 for files and 0700
    /// for directories; owner the caller; group the caller's, or the directory's where it has set-group-id.
    fn create<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created>;

    /// Removes a name; the object goes with its last name and its last [`Pin`].
    fn remove<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change>;

    /// Renames, replacing what is there as POSIX rename(2) does.
    fn rename<'a>(
        &'a self,
        context: &'a Context,
        from: (&'a Handle, &'a [u8]),
        to: (&'a Handle, &'a [u8]),
    ) -> Op<'a, Renamed>;

    /// Gives a file another name; a directory is [`Error::IsDirectory`].
    fn link<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        directory: &'a Handle,
        name: &'a [u8],
    ) -> Op<'a, Linked>;

    /// Visits entries in the order of their cookies until `visit` breaks; an entry on which it breaks counts as not seen.
    /// Entries that stay are neither skipped nor repeated while others come and go. `visit` must not call the backend,
    /// which may hold a lock.
    fn readdir<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        request: ReadDir,
        visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send),
    ) -> Op<'a, ReadDirEnd>;

    /// Opens a regular file. With [`Authority::Caller`] this is the open(2) that the owner's exception rests on, so the
    /// permission bits alone decide; execute permission grants reading too (RFC 8881 §6.2.1.3.1).
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::IsSymlink`], and [`Error::WrongKind`] for other kinds.
    fn open<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened>;

    /// [`Self::open`] of a file that the same request has just found or created, with the attributes `seen`, and has waited
    /// for nothing since: it need not be looked at once more. Whoever removes it meanwhile comes after the open.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn open_seen<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        seen: &Attributes,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        let _ = seen;
        self.open(context, file, access, authority)
    }

    /// Space left.
    fn statfs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, (FsStat, Attributes)>;

    /// Brings everything accepted to stable storage, before a shutdown.
    fn sync(&self) -> Op<'_, ()> {
        Op::ok(())
    }

    /// Brings to stable storage, where this backend promises it, what an instance before this one changed and did not answer,
    /// so that it can be answered now. This instance knows nothing of those changes.
    fn sync_inherited(&self) -> Op<'_, ()> {
        Op::ok(())
    }

    /// Whether a change of names is on stable storage by the time that it is answered.
    fn is_stable(&self) -> bool {
        false
    }

    /// Next data or hole at or behind `offset`; `None` where no data follow.
    ///
    /// # Errors
    /// [`Error::NoDevice`] where `offset` lies at or behind the end, as lseek(2) has it.
    fn seek<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _offset: u64,
        _what: Seek,
        _authority: Authority,
    ) -> Op<'a, Option<u64>> {
        Op::err(Error::NotSupported)
    }

    /// Reserves space for a range, extending the file (RFC 7862 §15.1).
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes or more than a number can say, [`Error::TooLarge`].
    fn allocate<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _offset: u64,
        _length: u64,
        _authority: Authority,
    ) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }

    /// Frees the space of a range, which reads as zeros afterwards; the size stays (RFC 7862 §15.4).
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes or more than a number can say.
    fn deallocate<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _offset: u64,
        _length: u64,
        _authority: Authority,
    ) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }

    /// Makes a hole of a range where an unstable [write](Self::write) of as many zeros would put them: what is there reads as
    /// zeros afterwards, and the file reaches at least to the range's end.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes, [`Error::TooLarge`]; [`Error::NotSupported`], nothing having changed, where there is
    /// something to be freed and the back end cannot: zeros are to be written then.
    fn write_hole<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _offset: u64,
        _length: u32,
        _authority: Authority,
    ) -> Op<'a, Written> {
        Op::err(Error::NotSupported)
    }

    /// Has `alarm` rung soon after anybody who does not come through this backend has done to an object what `interest` names: from
    /// this answer on, until what is answered is dropped. `None` where there is nobody else, or where they cannot be seen.
    ///
    /// # Errors
    /// [`Error::Later`] where as many objects are watched as may be; [`Error::Access`] where the server may not watch this one.
    fn watch<'a>(
        &'a self,
        _: &'a Context,
        _object: &'a Handle,
        _interest: Interest,
        _alarm: &'a Arc<dyn Alarm>,
    ) -> Op<'a, Option<Box<dyn Watch>>> {
        Op::ok(None)
    }

    /// Watches a directory and all its entries, so that a listing that is made from now on can be told again for as long as
    /// [nothing has changed](EntriesWatch::is_unchanged). It takes several system calls an entry: for what is listed again and again. `None` where
    /// changes cannot be seen, or where there are more entries than this is meant for.
    fn watch_entries<'a>(
        &'a self,
        _: &'a Context,
        _directory: &'a Handle,
    ) -> Op<'a, Option<Arc<dyn EntriesWatch>>> {
        Op::ok(None)
    }

    /// Has a range hold the same bytes as another, all at once and without copying them (RFC 7862 §15.13); answers the
    /// destination's change.
    ///
    /// # Errors
    /// [`Error::Invalid`] for offsets that are no multiples of [`Properties::clone_block_bytes`], a count that is none
    /// and does not reach the source's end, or does not reach the destination's; what lies behind the source's end, and
    /// ranges of one file that overlap;
    /// [`Error::CrossDevice`] between file systems; [`Error::NotSupported`].
    fn clone_range<'a>(&'a self, _: &'a Context, _range: &'a CopyRange) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }

    /// Copies the first bytes of a range, as many as one step may take (RFC 7862 §15.2); the caller asks again for the
    /// rest. A hole of the source of at least [`COPIED_HOLE_BYTES`] that comes to lie behind all data of the destination stays
    /// a hole there: a sparse file's copy takes the space that the file takes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what lies behind the source's end and for a file copied to itself;
    /// [`Error::CrossDevice`] where the back end cannot copy between the two.
    fn copy_range<'a>(&'a self, _: &'a Context, _range: &'a CopyRange) -> Op<'a, Copied> {
        Op::err(Error::NotSupported)
    }

    /// Prepares for what will happen to a range (`count` 0: to the end); true where that means anything here.
    fn advise<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _offset: u64,
        _count: u64,
        _advice: Advice,
    ) -> Op<'a, bool> {
        Op::ok(false)
    }

    /// An ACL; `None` where the permission bits say all, and where a directory has no default one.
    ///
    /// # Errors
    /// [`Error::NotSupported`] where the back end has none.
    fn get_acl<'a>(&'a self, _: &'a Context, _file: &'a Handle, _kind: AclKind) -> Op<'a, Option<Acl>> {
        Op::err(Error::NotSupported)
    }

    /// Sets an ACL, and the permission bits to what it shows as; `None` leaves the permission bits alone, or removes a
    /// directory's default one.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for whom the file does not belong to; [`Error::Invalid`] for a default one of anything but a
    /// directory, and for symbolic links; [`Error::NoSpace`] or [`Error::TooBig`] for one that is too long.
    fn set_acl<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _kind: AclKind,
        _acl: Option<&'a Acl>,
    ) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }

    /// Value of a user extended attribute; `name` comes without the `user.` prefix (RFC 8276 §8.1).
    fn get_xattr<'a>(&'a self, _: &'a Context, _file: &'a Handle, _name: &'a [u8]) -> Op<'a, Bytes> {
        Op::err(Error::NotSupported)
    }

    /// Sets a user extended attribute.
    fn set_xattr<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _name: &'a [u8],
        _value: &'a Bytes,
        _how: SetXattr,
    ) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }

    /// Names of all user extended attributes, sorted, without the prefix.
    fn list_xattrs<'a>(&'a self, _: &'a Context, _file: &'a Handle) -> Op<'a, Vec<Bytes>> {
        Op::err(Error::NotSupported)
    }

    /// Removes a user extended attribute.
    fn remove_xattr<'a>(&'a self, _: &'a Context, _file: &'a Handle, _name: &'a [u8]) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }
}
