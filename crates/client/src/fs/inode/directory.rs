//! Reading directories.

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::types::Status;

use super::Inode;
use crate::attributes::{Attributes, FileKind};
use crate::cache::directory::{FIRST_COOKIE, LoopGuard};
use crate::config::Caller;
use crate::error::OpError;

/// Maximum bytes of one reply to a listing: some thousand entries with attributes.
const LISTING_BYTES: u32 = 1 << 20;

/// A directory that is being listed. It needs no release.
#[derive(Debug)]
pub struct OpenDirectory {
    inode: Inode,
    reader: Mutex<Reader>,
}

#[derive(Debug, Default)]
struct Reader {
    verifier: [u8; 8],
    /// Finds cookies that form a loop while one reader reads on.
    guard: LoopGuard,
    /// Where the last part ended.
    next_cookie: u64,
}

/// A part of a directory.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Entries in the server's order, without `.` and `..`.
    pub entries: Vec<Entry>,
    /// The cookie to read on from. It may differ from the last entry's.
    pub next_cookie: u64,
    /// Whether the directory ends here.
    pub is_end: bool,
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name: any bytes but `/` and NUL.
    pub name: Bytes,
    /// The object's number in its file system (`st_ino`).
    pub fileid: u64,
    /// The cookie to continue after this entry.
    pub cookie: u64,
    /// The type, if it is known.
    pub kind: Option<FileKind>,
    /// The object and its attributes, if the server sent them.
    pub object: Option<(Inode, Attributes)>,
}

impl Inode {
    /// Opens a directory to list it.
    ///
    /// # Errors
    /// [`Status::NOTDIR`].
    pub fn open_directory(&self) -> Result<OpenDirectory, OpError> {
        if self.kind() != FileKind::Directory {
            return Err(OpError::Status(Status::NOTDIR));
        }
        Ok(OpenDirectory { inode: self.clone(), reader: Mutex::default() })
    }
}

impl OpenDirectory {
    /// Returns the directory.
    #[must_use]
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Reads the part that follows `cookie`: 0, or one of an earlier part's entries. `wants_attributes` tells whether the
    /// caller has a use for the attributes of the entries (READDIRPLUS).
    ///
    /// # Errors
    /// As getdents(2). [`OpError::BadReply`] if the server's cookies form a loop.
    pub async fn read(
        &self,
        caller: &Caller,
        cookie: u64,
        wants_attributes: bool,
    ) -> Result<Listing, OpError> {
        let verifier = self.start(cookie)?;
        let bytes = self.inode.mount.info().read_max.min(LISTING_BYTES);
        let (client, handle) = (self.inode.client(), self.inode.handle());
        let page = client.read_directory(caller, handle, (cookie, verifier), bytes, wants_attributes).await?;
        if !page.eof && page.next_cookie == cookie {
            return Err(looping());
        }
        {
            let mut reader = self.reader.lock();
            (reader.verifier, reader.next_cookie) = (page.verifier, page.next_cookie);
        }
        let entry = |entry: crate::results::DirEntry| Entry {
            name: entry.name,
            fileid: entry.fileid,
            cookie: entry.cookie,
            kind: entry.object.map(|object| object.attributes.kind),
            object: entry.object.map(|object| self.inode.mount.found(&object)),
        };
        let entries = page.entries.into_iter().map(entry).collect();
        Ok(Listing { entries, next_cookie: page.next_cookie, is_end: page.eof })
    }

    /// Notes where the reader is and returns the verifier of the cookie.
    fn start(&self, cookie: u64) -> Result<[u8; 8], OpError> {
        let mut reader = self.reader.lock();
        if cookie == FIRST_COOKIE {
            // From the beginning again (rewinddir(3)).
            *reader = Reader::default();
        }
        if cookie == reader.next_cookie {
            reader.guard.visit(cookie).map_err(|_| looping())?;
        } else {
            // A jump back begins another walk.
            reader.guard = LoopGuard::default();
        }
        Ok(reader.verifier)
    }
}

fn looping() -> OpError {
    OpError::BadReply("a listing whose cookies form a loop")
}
