//! The file system by fuser. INTERRUPT does not reach a file system.

use std::ffi::OsStr;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::Outcome;
use crate::files::{FILE_SIZE, Files, REQUEST_MAX, ROOT};

#[derive(Default)]
struct Served {
    files: Files,
    blocked: Mutex<Vec<ReplyData>>,
}

fn attributes(node: u64) -> FileAttr {
    let (kind, perm, size, nlink) = if node == ROOT {
        (FileType::Directory, 0o755, 0, 2)
    } else {
        (FileType::RegularFile, 0o644, FILE_SIZE, 1)
    };
    FileAttr {
        ino: INodeNo(node),
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config
            .set_max_write(REQUEST_MAX)
            .map(drop)
            .map_err(|max| io::Error::other(format!("max_write: at most {max}")))
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match Files::find(name.as_bytes()) {
            Some(node) => reply.entry(&Duration::ZERO, &attributes(node), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.files.got_attributes();
        reply.attr(&Duration::ZERO, &attributes(node.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.files.read(node.0, offset, size) {
            Some(data) => reply.data(&data),
            None => self.blocked.lock().expect("no panic").push(reply),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.files.wrote(data.len());
        // At most REQUEST_MAX.
        reply.written(data.len() as u32);
    }
}

pub fn serve(directory: &Path, workers: NonZeroUsize) -> Outcome<()> {
    let mut config = fuser::Config::default();
    config.n_threads = Some(workers.get());
    config.clone_fd = true;
    fuser::mount(Served::default(), directory, &config)?;
    Ok(())
}
