//! The file system by fuse3 on tokio.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use fuse3::raw::Request;
use fuse3::raw::reply::{FileAttr, ReplyAttr, ReplyData, ReplyEntry, ReplyInit, ReplyOpen, ReplyWrite};
use fuse3::{FileType, Inode, MountOptions, Result, Timestamp};
use tokio::sync::oneshot;

use crate::Outcome;
use crate::files::{FILE_SIZE, Files, REQUEST_MAX, ROOT};

/// `FOPEN_DIRECT_IO` of `linux/fuse.h`.
const DIRECT_IO: u32 = 1;

#[derive(Default)]
struct Served {
    files: Files,
    /// Whether INTERRUPT ends a request.
    eintr: bool,
    blocked: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

fn attributes(node: u64) -> FileAttr {
    let (kind, perm, size, nlink) = if node == ROOT {
        (FileType::Directory, 0o755, 0, 2)
    } else {
        (FileType::RegularFile, 0o644, FILE_SIZE, 1)
    };
    let time = Timestamp::new(0, 0);
    FileAttr {
        ino: node,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        kind,
        perm,
        nlink,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
    }
}

impl fuse3::raw::Filesystem for Served {
    async fn init(&self, _: Request) -> Result<ReplyInit> {
        Ok(ReplyInit::new(const { NonZeroU32::new(REQUEST_MAX).unwrap() }))
    }

    async fn destroy(&self, _: Request) {}

    async fn lookup(&self, _: Request, _: Inode, name: &OsStr) -> Result<ReplyEntry> {
        let node = Files::find(name.as_bytes()).ok_or(libc::ENOENT)?;
        Ok(ReplyEntry { ttl: Duration::ZERO, attr: attributes(node), generation: 0 })
    }

    async fn getattr(&self, _: Request, node: Inode, _: Option<u64>, _: u32) -> Result<ReplyAttr> {
        self.files.got_attributes();
        Ok(ReplyAttr { ttl: Duration::ZERO, attr: attributes(node) })
    }

    async fn open(&self, _: Request, _: Inode, _: u32) -> Result<ReplyOpen> {
        Ok(ReplyOpen { fh: 0, flags: DIRECT_IO })
    }

    async fn read(&self, request: Request, node: Inode, _: u64, offset: u64, size: u32) -> Result<ReplyData> {
        if let Some(data) = self.files.read(node, offset, size) {
            return Ok(data.into());
        }
        let (sender, interrupted) = oneshot::channel();
        self.blocked.lock().expect("no panic").insert(request.unique, sender);
        let _ = interrupted.await;
        Err(libc::EINTR.into())
    }

    async fn write(
        &self,
        _: Request,
        _: Inode,
        _: u64,
        _: u64,
        data: &[u8],
        _: u32,
        _: u32,
    ) -> Result<ReplyWrite> {
        self.files.wrote(data.len());
        // At most REQUEST_MAX.
        Ok(ReplyWrite { written: data.len() as u32 })
    }

    async fn interrupt(&self, _: Request, unique: u64) -> Result<()> {
        if !self.eintr {
            // The trait's default.
            return Err(libc::ENOSYS.into());
        }
        self.blocked.lock().expect("no panic").remove(&unique);
        Ok(())
    }
}

pub fn serve(directory: &Path, workers: NonZeroUsize, eintr: bool, by_fusermount: bool) -> Outcome<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers.get()).enable_all().build()?;
    runtime.block_on(async {
        let session = fuse3::raw::Session::new(MountOptions::default());
        let served = Served { eintr, ..Served::default() };
        let mount = if by_fusermount {
            session.mount_with_unprivileged(served, directory).await?
        } else {
            session.mount(served, directory).await?
        };
        mount.await
    })?;
    Ok(())
}
