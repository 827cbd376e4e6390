//! The crate `nfs3_server` over a directory, for comparison. It is as fast as the crate's interface allows:
//! files are opened once and kept by file id, system calls run in place, paths are not walked for open files.
//! It is not meant for use: it has only the measured operations, and never forgets an id.
//!
//! `nfs3-server-peer DIRECTORY ADDRESS:PORT` exports the directory as `/export`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use nfs3_server::fs_util::{file_setattr, metadata_to_fattr3};
use nfs3_server::nfs3_types::nfs3::{createverf3, fattr3, filename3, nfspath3, nfsstat3, sattr3, stable_how};
use nfs3_server::tcp::{NFSTcp, NFSTcpListener};
use nfs3_server::vfs::{
    DirEntryPlus, FileHandleU64, NextResult, NfsFileSystem, NfsReadFileSystem, ReadDirPlusIterator,
};

/// A file that has been looked up.
struct Entry {
    path: PathBuf,
    file: File,
}

struct Directory {
    root: u64,
    /// By inode number. An entry is dropped when its name is removed through this server.
    entries: RwLock<HashMap<u64, Arc<Entry>>>,
}

fn status(error: io::Error) -> nfsstat3 {
    match error.kind() {
        io::ErrorKind::NotFound => nfsstat3::NFS3ERR_NOENT,
        io::ErrorKind::AlreadyExists => nfsstat3::NFS3ERR_EXIST,
        io::ErrorKind::NotADirectory => nfsstat3::NFS3ERR_NOTDIR,
        io::ErrorKind::PermissionDenied => nfsstat3::NFS3ERR_ACCES,
        io::ErrorKind::StorageFull => nfsstat3::NFS3ERR_NOSPC,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

fn attributes(metadata: &Metadata) -> fattr3 {
    metadata_to_fattr3(metadata.ino(), metadata)
}

impl Directory {
    fn open(root: &Path) -> io::Result<Self> {
        let file = File::open(root)?;
        let id = file.metadata()?.ino();
        let entry = Arc::new(Entry { path: root.into(), file });
        Ok(Self { root: id, entries: RwLock::new(HashMap::from([(id, entry)])) })
    }

    fn entry(&self, id: &FileHandleU64) -> Result<Arc<Entry>, nfsstat3> {
        let entries = self.entries.read().expect("no thread panicked");
        entries.get(&id.as_u64()).cloned().ok_or(nfsstat3::NFS3ERR_STALE)
    }

    fn keep(&self, path: PathBuf, file: File, id: u64) -> FileHandleU64 {
        self.entries.write().expect("no thread panicked").insert(id, Arc::new(Entry { path, file }));
        FileHandleU64::new(id)
    }
}

impl NfsReadFileSystem for Directory {
    type Handle = FileHandleU64;

    fn root_dir(&self) -> FileHandleU64 {
        FileHandleU64::new(self.root)
    }

    async fn lookup(&self, parent: &FileHandleU64, name: &filename3<'_>) -> Result<FileHandleU64, nfsstat3> {
        let path = self.entry(parent)?.path.join(OsStr::from_bytes(name.as_ref()));
        let metadata = fs::symlink_metadata(&path).map_err(status)?;
        let id = metadata.ino();
        if self.entries.read().expect("no thread panicked").contains_key(&id) {
            return Ok(FileHandleU64::new(id));
        }
        let file = OpenOptions::new().read(true).write(metadata.is_file()).open(&path).map_err(status)?;
        Ok(self.keep(path, file, id))
    }

    async fn getattr(&self, id: &FileHandleU64) -> Result<fattr3, nfsstat3> {
        Ok(attributes(&self.entry(id)?.file.metadata().map_err(status)?))
    }

    async fn read(&self, id: &FileHandleU64, offset: u64, count: u32) -> Result<(Vec<u8>, bool), nfsstat3> {
        let entry = self.entry(id)?;
        let mut data: Vec<u8> = Vec::with_capacity(count as usize);
        // SAFETY: the call writes at most `count` bytes into memory reserved for as many, and the length is set to
        // the bytes written. A cleared buffer would charge this server for work that its interface does not ask for.
        let read = unsafe {
            let read = libc::pread(
                entry.file.as_raw_fd(),
                data.as_mut_ptr().cast(),
                count as usize,
                offset as libc::off_t,
            );
            data.set_len(usize::try_from(read).map_err(|_| nfsstat3::NFS3ERR_IO)?);
            read as usize
        };
        Ok((data, read < count as usize))
    }

    async fn readdirplus(
        &self,
        _: &FileHandleU64,
        _: u64,
    ) -> Result<impl ReadDirPlusIterator<FileHandleU64>, nfsstat3> {
        Err::<NoEntries, _>(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn readlink(&self, _: &FileHandleU64) -> Result<nfspath3<'_>, nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }
}

/// Listing is not measured.
struct NoEntries;

impl ReadDirPlusIterator<FileHandleU64> for NoEntries {
    async fn next(&mut self) -> NextResult<DirEntryPlus<FileHandleU64>> {
        NextResult::Eof
    }
}

impl NfsFileSystem for Directory {
    async fn setattr(&self, id: &FileHandleU64, changes: sattr3) -> Result<fattr3, nfsstat3> {
        let entry = self.entry(id)?;
        file_setattr(&entry.file, &changes).await?;
        Ok(attributes(&entry.file.metadata().map_err(status)?))
    }

    async fn write(
        &self,
        id: &FileHandleU64,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<(fattr3, stable_how), nfsstat3> {
        let entry = self.entry(id)?;
        entry.file.write_all_at(data, offset).map_err(status)?;
        if stable != stable_how::UNSTABLE {
            entry.file.sync_all().map_err(status)?;
        }
        Ok((attributes(&entry.file.metadata().map_err(status)?), stable))
    }

    async fn create(
        &self,
        parent: &FileHandleU64,
        name: &filename3<'_>,
        _: sattr3,
    ) -> Result<(FileHandleU64, fattr3), nfsstat3> {
        let path = self.entry(parent)?.path.join(OsStr::from_bytes(name.as_ref()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(status)?;
        let metadata = file.metadata().map_err(status)?;
        Ok((self.keep(path, file, metadata.ino()), attributes(&metadata)))
    }

    async fn create_exclusive(
        &self,
        _: &FileHandleU64,
        _: &filename3<'_>,
        _: createverf3,
    ) -> Result<FileHandleU64, nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn mkdir(
        &self,
        _: &FileHandleU64,
        _: &filename3<'_>,
    ) -> Result<(FileHandleU64, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn remove(&self, parent: &FileHandleU64, name: &filename3<'_>) -> Result<(), nfsstat3> {
        let path = self.entry(parent)?.path.join(OsStr::from_bytes(name.as_ref()));
        let id = fs::symlink_metadata(&path).map_err(status)?.ino();
        fs::remove_file(&path).map_err(status)?;
        self.entries.write().expect("no thread panicked").remove(&id);
        Ok(())
    }

    async fn rename<'a>(
        &self,
        _: &FileHandleU64,
        _: &filename3<'a>,
        _: &FileHandleU64,
        _: &filename3<'a>,
    ) -> Result<(), nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn symlink<'a>(
        &self,
        _: &FileHandleU64,
        _: &filename3<'a>,
        _: &nfspath3<'a>,
        _: &sattr3,
    ) -> Result<(FileHandleU64, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn commit(&self, id: &FileHandleU64, _: u64, _: u32) -> Result<(), nfsstat3> {
        self.entry(id)?.file.sync_all().map_err(status)
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(listen)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: nfs3-server-peer DIRECTORY ADDRESS:PORT"));
    };
    let directory = Directory::open(Path::new(&directory))?;
    // The current-thread runtime: the server is measured on one core, where other threads would only add cost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut listener = NFSTcpListener::bind(&listen, directory).await?;
        listener.with_export_name("export");
        listener.handle_forever().await
    })
}
