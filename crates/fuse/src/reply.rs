//! Replies. A [`Reply`] belongs to one request, has the type of its answer, and can be sent from any thread.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::abi::{self, opcode};
use crate::channel::Channel;
pub use crate::channel::NotDelivered;
use crate::flags::OpenFlags;
use crate::types::{Attributes, Entry, FileHandle, LockKind, LockRange, Timestamp};

/// Answers one request. If it is dropped without an answer, the request gets EIO.
#[must_use = "a request without a reply blocks its program"]
pub struct Reply<T: Answer> {
    ticket: Option<Ticket>,
    answer: PhantomData<fn(T)>,
}

/// A request of a channel.
pub(crate) struct Ticket {
    pub(crate) channel: Arc<Channel>,
    pub(crate) unique: u64,
    pub(crate) opcode: u32,
}

impl<T: Answer> Reply<T> {
    pub(crate) fn new(ticket: Ticket) -> Self {
        Self { ticket: Some(ticket), answer: PhantomData }
    }

    /// Sends the result.
    ///
    /// # Errors
    /// [`NotDelivered`] if no program receives it.
    pub fn send(mut self, result: Result<T, Errno>) -> Result<(), NotDelivered> {
        let Some(Ticket { channel, unique, opcode }) = self.ticket.take() else {
            return Err(NotDelivered::Withdrawn);
        };
        match result {
            Err(error) => channel.answer(unique, Err(error)),
            Ok(answer) => {
                let mut body = Body::default();
                answer.encode(opcode, &mut body);
                let mut parts: SmallVec<[&[u8]; 8]> = SmallVec::new();
                parts.push(body.head.as_slice());
                parts.extend(body.data.iter().map(|part| &part[..]));
                channel.answer(unique, Ok(&parts))
            }
        }
    }

    /// Sends a success.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn ok(self, answer: T) -> Result<(), NotDelivered> {
        self.send(Ok(answer))
    }

    /// Sends an error. A withdrawn request needs no error either.
    pub fn error(self, error: Errno) {
        let _ = self.send(Err(error));
    }

    /// Returns whether a program still waits for this reply.
    pub fn is_wanted(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| ticket.channel.is_pending(ticket.unique))
    }

    /// Completes when no program waits for this reply any more: the request was interrupted or handed over. A lock wait is abandoned then; an
    /// operation that changes something continues, and must release its results. Only the waker of the last call is woken.
    pub fn poll_unwanted(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.ticket {
            Some(ticket) => ticket.channel.poll_withdrawn(ticket.unique, context),
            None => Poll::Ready(()),
        }
    }
}

impl<T: Answer> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(Ticket { channel, unique, opcode }) = self.ticket.take()
            && channel.answer(unique, Err(Errno::IO)).is_ok()
        {
            tracing::error!(opcode, "request dropped without a reply; answered EIO");
        }
    }
}

impl<T: Answer> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Reply");
        if let Some(ticket) = &self.ticket {
            shown.field("unique", &ticket.unique).field("opcode", &ticket.opcode);
        }
        shown.finish_non_exhaustive()
    }
}

/// Bytes of an answer after the header.
#[derive(Default)]
pub struct Body {
    pub(crate) head: SmallVec<[u8; 256]>,
    pub(crate) data: Vec<Bytes>,
}

impl Body {
    fn put(&mut self, value: &(impl IntoBytes + zerocopy::Immutable)) {
        self.head.extend_from_slice(value.as_bytes());
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Types of answers.
pub trait Answer: sealed::Sealed {
    #[doc(hidden)]
    fn encode(self, opcode: u32, body: &mut Body);
}

/// Implements [`Answer`].
macro_rules! answer {
    ($type:ty, |$value:ident, $opcode:pat_param, $body:ident| $encode:expr) => {
        impl sealed::Sealed for $type {}

        impl Answer for $type {
            fn encode(self, $opcode: u32, $body: &mut Body) {
                let $value = self;
                $encode
            }
        }
    };
}

answer!((), |_nothing, _, _body| ());
answer!(Entry, |entry, _, body| body.put(&entry.to_abi()));

/// Attributes with the time for which the kernel may use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedAttributes {
    /// The attributes.
    pub attributes: Attributes,
    /// The time for which the kernel may cache them.
    pub timeout: Duration,
}

answer!(GrantedAttributes, |granted, _, body| body.put(&abi::AttrOut {
    attr_valid: granted.timeout.as_secs(),
    attr_valid_nsec: granted.timeout.subsec_nanos(),
    dummy: 0,
    attr: granted.attributes.to_abi(),
}));

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The file system's number for it.
    pub handle: FileHandle,
    /// Flags for the kernel.
    pub flags: OpenFlags,
}

impl Opened {
    fn to_abi(self) -> abi::OpenOut {
        abi::OpenOut { fh: self.handle.0, open_flags: self.flags.bits(), backing_id: 0 }
    }
}

answer!(Opened, |opened, _, body| body.put(&opened.to_abi()));

/// A file that was created and opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The new file.
    pub entry: Entry,
    /// The new file as open file.
    pub opened: Opened,
}

answer!(Created, |created, _, body| {
    body.put(&created.entry.to_abi());
    body.put(&created.opened.to_abi());
});

/// Content of a file, a target of a link, a listing: slices that are sent by one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data(pub Vec<Bytes>);

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![bytes.into()])
    }
}

answer!(Data, |data, _, body| body.data = data.0);

/// An extended attribute's value or the list of names, or its length if the request's size is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XattrReply {
    /// Length in bytes.
    Length(u32),
    /// The value, or names that end with NUL.
    Value(Bytes),
}

answer!(XattrReply, |reply, _, body| match reply {
    Self::Length(size) => body.put(&abi::GetxattrOut { size, padding: 0 }),
    Self::Value(value) => body.data.push(value),
});

/// Number of bytes that were written or copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied(pub u64);

answer!(Copied, |copied, opcode, body| match opcode {
    opcode::COPY_FILE_RANGE_64 => body.put(&abi::CopyFileRangeOut { bytes_copied: copied.0 }),
    // Requests of these are shorter than 4 GiB.
    _ => body.put(&abi::WriteOut { size: u32::try_from(copied.0).unwrap_or(u32::MAX), padding: 0 }),
});

/// Statistics of a file system, as in statvfs(3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Size in fragments.
    pub blocks: u64,
    /// Free fragments.
    pub blocks_free: u64,
    /// Fragments free for users.
    pub blocks_available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred size of I/O in bytes.
    pub block_size: u32,
    /// Bytes of a fragment.
    pub fragment_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
}

answer!(Statistics, |figures, _, body| body.put(&abi::StatfsOut {
    blocks: figures.blocks,
    bfree: figures.blocks_free,
    bavail: figures.blocks_available,
    files: figures.files,
    ffree: figures.files_free,
    bsize: figures.block_size,
    namelen: figures.name_max,
    frsize: figures.fragment_size,
    padding: 0,
    spare: [0; 6],
}));

answer!(LockRange, |lock, _, body| {
    let kind = match lock.kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
        LockKind::Unlock => 2,
    };
    body.put(&abi::LkOut { lk: abi::FileLock { start: lock.start, end: lock.end, kind, pid: lock.pid } });
});

// A position in a file.
answer!(u64, |offset, _, body| body.put(&abi::LseekOut { offset }));

/// Attributes as in statx(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatxAttributes {
    /// Attributes that stat(2) has too; `device` as in makedev(3).
    pub attributes: Attributes,
    /// Time of birth, if the file system knows it.
    pub birth: Option<Timestamp>,
    /// `STATX_ATTR_…` that are set.
    pub flags: u64,
    /// `STATX_ATTR_…` that the file system knows.
    pub known_flags: u64,
    /// The time for which the kernel may cache them.
    pub timeout: Duration,
}

/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

answer!(StatxAttributes, |reply, _, body| {
    let plain = reply.attributes;
    let time = |time: Timestamp| abi::SxTime { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 };
    let stat = abi::Statx {
        mask: STATX_BASIC | if reply.birth.is_some() { STATX_BTIME } else { 0 },
        blksize: plain.block_size,
        attributes: reply.flags,
        nlink: plain.links,
        uid: plain.uid,
        gid: plain.gid,
        // Sixteen bits hold type and permissions.
        mode: (plain.mode & 0xffff) as u16,
        ino: plain.inode,
        size: plain.size,
        blocks: plain.blocks,
        attributes_mask: reply.known_flags,
        atime: time(plain.atime),
        btime: time(reply.birth.unwrap_or_default()),
        ctime: time(plain.ctime),
        mtime: time(plain.mtime),
        rdev_major: rustix::fs::major(u64::from(plain.device)),
        rdev_minor: rustix::fs::minor(u64::from(plain.device)),
        ..abi::Statx::default()
    };
    body.put(&abi::StatxOut {
        attr_valid: reply.timeout.as_secs(),
        attr_valid_nsec: reply.timeout.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat,
    });
});
