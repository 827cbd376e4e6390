use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    Access, Acl, AclKind, Attributes, Change, ChangeListener, Context, Device, EntriesWatch, Error, FileKind,
    FsStat, Handle, Interest, LocalLocks, Op, Payload, Properties, Quota, QuotaKind, SetAttributes,
    Timestamp, Watch,
};

/// Eight bytes that a client or server only compares for equality.
pub type Verifier = [u8; 8];

/// The authority for an operation on a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// The caller, checked by permission bits and ACL. The owner may always read and write its own file, because a
    /// stateless client has checked at its open(2). A caller that may execute a file may read it, because paging a
    /// program in is a READ (both RFC 1813 §4.4).
    Caller,
    /// An open that was checked before: no further check.
    Opened,
}

/// Durability of data before WRITE is answered (RFC 1813 §3.3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// Accepted; may be lost by a crash until committed.
    Unstable,
    /// Data and the metadata needed to find them are on stable storage.
    DataSync,
    /// Data and all attributes are on stable storage.
    FileSync,
}

/// The arguments of a READ.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// First byte.
    pub offset: u64,
    /// Maximum number of bytes.
    pub count: u32,
    /// Whether the answer may be a [`Payload::Range`].
    pub may_splice: bool,
    /// The authority for it.
    pub authority: Authority,
}

/// The result of a READ.
#[derive(Debug)]
pub struct Read {
    /// Bytes read; fewer than requested only at the end of the file, or if the backend documents it.
    pub count: u32,
    /// Whether `offset + count` reaches the end of the file.
    pub eof: bool,
    /// Where the bytes are.
    pub payload: Payload,
    /// The attributes of the file.
    pub attributes: Attributes,
}

/// The result of a WRITE.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Bytes written, at least one unless none was given.
    pub count: u32,
    /// Their durability, at least as requested.
    pub stability: Stability,
    /// The file before and after.
    pub change: Change,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The object.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// The directory's attributes.
    pub directory: Attributes,
}

/// The treatment of an existing file by CREATE (RFC 1813 §3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Accepts the existing file. Of the attributes, only a size is applied. For other kinds of objects it
    /// fails with [`Error::IsDirectory`], [`Error::IsSymlink`] or [`Error::WrongKind`].
    Unchecked,
    /// Fails with [`Error::Exists`].
    Guarded,
    /// Fails with [`Error::Exists`] unless that file was created with the same verifier, which is kept on stable
    /// storage with the file, so that a retransmission succeeds even across a restart. The attributes are set too.
    Exclusive(Verifier),
}

/// The object to create.
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
    /// Returns the kind of the object.
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

/// The result of a create.
#[derive(Debug, Clone, Copy)]
pub struct Created {
    /// The object.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: Attributes,
    /// The directory before and after.
    pub directory: Change,
    /// Whether the object is new; false if an unchecked create found it, or an exclusive one was repeated.
    pub is_new: bool,
    /// Whether the file's times of access and modification hold the verifier of an exclusive create, so that the
    /// creator has to set them (RFC 1813 §3.3.8, RFC 8881 §18.16.4).
    pub verifier_in_times: bool,
}

/// The kinds of objects that a removal applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Anything but a directory (RFC 1813 REMOVE).
    File,
    /// A directory (RMDIR).
    Directory,
    /// Either (NFSv4 REMOVE).
    Any,
}

/// The result of a rename.
#[derive(Debug, Clone, Copy)]
pub struct Renamed {
    /// The old directory.
    pub from: Change,
    /// The new directory; the same values if it is the old one.
    pub to: Change,
}

/// The result of a link.
#[derive(Debug, Clone, Copy)]
pub struct Linked {
    /// The file.
    pub attributes: Attributes,
    /// The directory before and after.
    pub directory: Change,
}

/// The access of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAccess {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
}

/// Keeps an open file's content after its last name is removed; dropped when the file is closed.
pub trait Pin: Send + Sync + fmt::Debug {
    /// Returns byte-range locks of the file against local processes, none of them locked; `None` if the backend has no
    /// such locks, or no room for them.
    fn local_locks(&self) -> Option<Arc<dyn LocalLocks>> {
        None
    }
}

/// The result of an open.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Keep it as long as the file is open.
    pub pin: Arc<dyn Pin>,
    /// The attributes of the file.
    pub attributes: Attributes,
}

/// The arguments of a directory listing.
#[derive(Debug, Clone, Copy)]
pub struct ReadDir {
    /// Cookie of the last entry seen; 0 for the start.
    pub cookie: u64,
    /// The verifier that came with it; zeros with cookie 0.
    pub verifier: Verifier,
    /// Whether entries carry attributes and handles.
    pub plus: bool,
}

/// An entry of a directory. `.` and `..` are never listed: protocols that have them add them.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode number.
    pub fileid: u64,
    /// Continues after this entry; at least 3, so that the protocols can use 0, 1 and 2 (RFC 8881 §18.23.3).
    pub cookie: u64,
    /// Attributes and handle, if requested and available.
    pub object: Option<(Handle, Attributes)>,
}

/// The result of a directory listing.
#[derive(Debug, Clone, Copy)]
pub struct ReadDirEnd {
    /// Whether the last entry was visited.
    pub eof: bool,
    /// The verifier that the client returns with a cookie.
    pub verifier: Verifier,
    /// The attributes of the directory.
    pub directory: Attributes,
}

/// The kind of range to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Data.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}

/// The ranges of CLONE and COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// The file to read.
    pub source: Handle,
    /// First byte there.
    pub source_offset: u64,
    /// The authority to read it.
    pub source_authority: Authority,
    /// The file to write; may be the source.
    pub destination: Handle,
    /// First byte there.
    pub destination_offset: u64,
    /// The authority to write it.
    pub destination_authority: Authority,
    /// Bytes; 0 for all to the end of the source.
    pub count: u64,
}

impl CopyRange {
    /// Returns the rest of the range after `done` bytes, which must be less than its count, unless that is 0.
    #[must_use]
    pub fn behind(self, done: u64) -> Self {
        Self {
            source_offset: self.source_offset.saturating_add(done),
            destination_offset: self.destination_offset.saturating_add(done),
            // 0 remains 0: to the end.
            count: self.count.saturating_sub(done),
            ..self
        }
    }
}

/// The smallest hole in bytes that a copy keeps as a hole: a step and a change of the size cost as much as copying
/// it.
pub const COPIED_HOLE_BYTES: u64 = 64 << 10;

/// The result of a step of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Copied {
    /// Bytes copied, from the start of the range; at least one unless none was requested.
    pub count: u64,
    /// Their durability.
    pub stability: Stability,
    /// Whether the whole range is copied.
    pub is_all: bool,
    /// The destination before and after.
    pub change: Change,
}

/// A client's announced use of a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Read it.
    WillNeed,
    /// Not use it.
    DontNeed,
}

/// The treatment of an existing extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Creates or replaces.
    Either,
    /// Must not exist.
    Create,
    /// Must exist.
    Replace,
}

/// A file system that the servers can export.
///
/// Durability: a backend that promises it (this is set at construction) has every change of names and attributes on
/// stable storage before it answers (RFC 1813 §1.1, §4.8), and data by [`Stability`].
///
/// Names are bytes without slash and NUL. Empty names, `.` and `..` are refused with [`Error::BadName`], names longer
/// than [`Properties::max_name`] with [`Error::NameTooLong`]. Handles are untrusted: one that is not of this backend
/// is [`Error::BadHandle`], one of a removed file [`Error::Stale`]. Reading content of other objects than regular
/// files is [`Error::IsDirectory`] for directories, [`Error::WrongKind`] for others.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Returns the handle of the exported directory.
    fn root(&self) -> Handle;

    /// Returns the constant properties.
    fn properties(&self) -> Properties;

    /// Returns an identity of the file system that is the same across restarts, moves of the machine and reboots.
    fn identity(&self) -> [u8; 16];

    /// Returns the write verifier. It changes exactly when unstable data may have been lost: at a start after unclean
    /// writes, and when an fsync failed.
    fn write_verifier(&self) -> Verifier;

    /// Returns all attributes. The result borrows only the backend, as with all operations that are begun before it
    /// is known whether they need a future.
    fn getattr<'a>(&'a self, context: &Context, file: &Handle) -> Op<'a, Attributes>;

    /// Sets all attributes that an object of this kind takes ([`SetAttributes::for_kind`]), or, on failure, as few as
    /// the system allows. Only the owner may set the mode, of any kind of object.
    ///
    /// # Errors
    /// [`Error::NotSync`] if `guard` is not the file's change time (RFC 1813 §3.3.2).
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

    /// Returns the directory that contains `directory`; [`Error::NotFound`] at the root.
    fn parent<'a>(&'a self, context: &'a Context, directory: &'a Handle) -> Op<'a, Found>;

    /// Returns the part of `want` that the caller has.
    fn access<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        want: Access,
    ) -> Op<'a, (Access, Attributes)>;

    /// Returns the text of a symbolic link; [`Error::Invalid`] for other objects.
    fn readlink<'a>(&'a self, context: &'a Context, link: &'a Handle) -> Op<'a, (Bytes, Attributes)>;

    /// Reads. An immediate answer may append the data to `into`, and only there ([`Payload::Appended`]).
    fn read<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read>;

    /// As [`Self::read`], of a file whose attributes the same request has just read: `seen`. They may be the
    /// attributes of the answer, and determine the end of the file.
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

    /// Writes `data`, or a part of it.
    fn write<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        offset: u64,
        data: &Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Op<'a, Written>;

    /// Makes unstable data of the range (`count` 0: to the end) durable. Reports every write error since the last
    /// commit to some caller.
    fn commit<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change>;

    /// Creates an object. Defaults of attributes: mode 0 for [`CreateMode::Exclusive`], otherwise 0600 for files and
    /// 0700 for directories; owner the caller; group the caller's, or the directory's if it has set-group-ID.
    fn create<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created>;

    /// Removes a name. The object is removed with its last name and its last [`Pin`].
    fn remove<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change>;

    /// Renames, replacing an existing entry as POSIX rename(2) does.
    fn rename<'a>(
        &'a self,
        context: &'a Context,
        from: (&'a Handle, &'a [u8]),
        to: (&'a Handle, &'a [u8]),
    ) -> Op<'a, Renamed>;

    /// Gives a file another name. For a directory fails with [`Error::IsDirectory`].
    fn link<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        directory: &'a Handle,
        name: &'a [u8],
    ) -> Op<'a, Linked>;

    /// Visits entries in the order of their cookies until `visit` breaks; the entry on which it breaks counts as not
    /// visited. Remaining entries are neither skipped nor repeated while others are created and removed. `visit` must not call
    /// the backend, which may hold a lock.
    fn readdir<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        request: ReadDir,
        visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send),
    ) -> Op<'a, ReadDirEnd>;

    /// Opens a regular file. With [`Authority::Caller`] this is the open(2) on which the owner's exception relies, so
    /// only the permission bits count. Execute permission grants reading too (RFC 8881 §6.2.1.3.1).
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

    /// As [`Self::open`], of a file that the same request has just found or created, with the attributes `seen`,
    /// without waiting since. The attributes need not be read again. A concurrent removal counts as later than the
    /// open.
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

    /// Returns the space of the file system.
    fn statfs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, (FsStat, Attributes)>;

    /// Returns the quota of a user or group on the file system; `None` if it has none. The caller of this function checks
    /// the right of the client.
    fn quota(&self, _kind: QuotaKind, _id: u32) -> Op<'_, Option<Quota>> {
        Op::ok(None)
    }

    /// Makes everything durable, before a shutdown.
    fn sync(&self) -> Op<'_, ()> {
        Op::ok(())
    }

    /// Makes changes durable that an earlier instance did not answer, so that they can be answered now. Does
    /// nothing if this backend does not promise durability. This instance does not know those changes.
    fn sync_inherited(&self) -> Op<'_, ()> {
        Op::ok(())
    }

    /// Returns whether a change of names is on stable storage when it is answered.
    fn is_stable(&self) -> bool {
        false
    }

    /// Returns the next data or hole at or after `offset`; `None` if no data follow.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if `offset` is at or after the end, as with lseek(2).
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
    /// [`Error::Invalid`] for an empty range or one beyond 64 bits, [`Error::TooLarge`].
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

    /// Frees the space of a range, which reads as zeros afterwards; the size does not change (RFC 7862 §15.4).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range or one beyond 64 bits.
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

    /// Makes a range a hole, like an unstable [write](Self::write) of as many zeros: old content reads as zeros
    /// afterwards, and the file reaches at least to the range's end.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, [`Error::TooLarge`]; [`Error::NotSupported`], without any change, if
    /// old content cannot be freed: then zeros have to be written.
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

    /// Notifies `listener` soon after a change of the kinds in `interest` that was not made by this backend, from
    /// this answer until the watch is dropped. `None` if there are no other users, or if their changes cannot
    /// be seen.
    ///
    /// # Errors
    /// [`Error::Later`] if the limit of watched objects is reached; [`Error::Access`] if the server may not
    /// watch this one.
    fn watch<'a>(
        &'a self,
        _: &'a Context,
        _object: &'a Handle,
        _interest: Interest,
        _alarm: &'a Arc<dyn ChangeListener>,
    ) -> Op<'a, Option<Box<dyn Watch>>> {
        Op::ok(None)
    }

    /// Watches a directory and all its entries, so that a listing made from now on can be reused as long as [nothing
    /// has changed](EntriesWatch::is_unchanged). It takes several system calls per entry, so it is for directories
    /// that are listed often. `None` if changes cannot be seen, or if there are too many entries.
    fn watch_entries<'a>(
        &'a self,
        _: &'a Context,
        _directory: &'a Handle,
    ) -> Op<'a, Option<Arc<dyn EntriesWatch>>> {
        Op::ok(None)
    }

    /// Makes a range contain the same bytes as another, atomically and without copying them (RFC 7862 §15.13).
    /// Returns the destination's change.
    ///
    /// # Errors
    /// [`Error::Invalid`] for offsets that are not multiples of [`Properties::clone_block_bytes`]; for a count that is
    /// not a multiple and does not reach the end of both files; for a range beyond the source's end; and for overlapping ranges
    /// of one file. [`Error::CrossDevice`] between file systems; [`Error::NotSupported`].
    fn clone_range<'a>(&'a self, _: &'a Context, _range: &'a CopyRange) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }

    /// Copies the first bytes of a range, as many as one step may take (RFC 7862 §15.2); the caller repeats for the
    /// rest. A hole of the source of at least [`COPIED_HOLE_BYTES`] remains a hole where the destination has no data
    /// after it, so that the copy of a sparse file takes no more space.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range beyond the source's end and for a file copied to itself; [`Error::CrossDevice`]
    /// if the back end cannot copy between the two.
    fn copy_range<'a>(&'a self, _: &'a Context, _range: &'a CopyRange) -> Op<'a, Copied> {
        Op::err(Error::NotSupported)
    }

    /// Prepares for the announced use of a range (`count` 0: to the end). Returns true if that has an effect.
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

    /// Returns an ACL; `None` if the permission bits express it, and if a directory has no default ACL.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the back end has none.
    fn get_acl<'a>(&'a self, _: &'a Context, _file: &'a Handle, _kind: AclKind) -> Op<'a, Option<Acl>> {
        Op::err(Error::NotSupported)
    }

    /// Sets an ACL, and the permission bits that correspond to it. `None` keeps the permission bits, or removes a
    /// directory's default ACL.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for callers that are not the owner; [`Error::Invalid`] for a default ACL of another
    /// object than a directory, and for symbolic links; [`Error::NoSpace`] or [`Error::TooBig`] for one that is too
    /// long.
    fn set_acl<'a>(
        &'a self,
        _: &'a Context,
        _file: &'a Handle,
        _kind: AclKind,
        _acl: Option<&'a Acl>,
    ) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }

    /// Returns the value of a user extended attribute; `name` is without the `user.` prefix (RFC 8276 §8.1).
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

    /// Returns the names of all user extended attributes, sorted, without the prefix.
    fn list_xattrs<'a>(&'a self, _: &'a Context, _file: &'a Handle) -> Op<'a, Vec<Bytes>> {
        Op::err(Error::NotSupported)
    }

    /// Removes a user extended attribute.
    fn remove_xattr<'a>(&'a self, _: &'a Context, _file: &'a Handle, _name: &'a [u8]) -> Op<'a, Change> {
        Op::err(Error::NotSupported)
    }
}
