//! A tree of a server.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use bytes::Bytes;
use client::attributes::{Attributes, FileKind, SetAttributes, SetTime};
use client::errno::Errno;
use client::error::OpError;
use client::fs::FileSystem;
use client::results::{Creation, FileHandle, NewObject, Object, OpenMode, OpenState, Stability};
use client::url::Url;

use super::Tree;
use super::local::NewAttributes;
use super::path::TreePath;
use crate::commands::session::{Failure, Location, below, failed, shown};
use crate::commands::walk::list;

/// Most directories whose handles are remembered; others are looked up again.
const DIRECTORIES_MAX: usize = 1 << 20;

/// A directory of a server and everything below it. Symbolic links are never followed.
pub struct RemoteTree {
    fs: FileSystem,
    url: Url,
    root: FileHandle,
    directories: RefCell<HashMap<TreePath, FileHandle>>,
}

/// An open file of a server.
pub struct RemoteFile {
    handle: FileHandle,
    state: OpenState,
    path: TreePath,
    /// The end of what was written.
    end: Cell<u64>,
    /// The verifier of unstable WRITEs.
    verifier: Cell<Option<[u8; 8]>>,
}

impl RemoteTree {
    /// Creates the tree of a directory.
    pub fn new(location: &Location, root: &Object) -> Self {
        let directories = RefCell::default();
        Self { fs: location.fs.clone(), url: location.url.clone(), root: root.handle, directories }
    }

    /// Returns the handle of a directory.
    async fn directory(&self, path: &TreePath) -> Result<FileHandle, OpError> {
        if path.is_root() {
            return Ok(self.root);
        }
        if let Some(handle) = self.directories.borrow().get(path) {
            return Ok(*handle);
        }
        let names: Vec<&[u8]> = path.names().collect();
        let object = self.fs.client().lookup_chain(self.fs.caller(), self.root, &names).await?;
        self.remember(path, object.handle);
        Ok(object.handle)
    }

    fn remember(&self, path: &TreePath, handle: FileHandle) {
        let mut directories = self.directories.borrow_mut();
        if directories.len() < DIRECTORIES_MAX {
            directories.insert(path.clone(), handle);
        }
    }

    /// Returns the handle of a path's directory, and the name in it.
    async fn parent<'p>(&self, path: &'p TreePath) -> Result<(FileHandle, &'p [u8]), OpError> {
        let Some((parent, _)) = path.split_last() else {
            return Err(OpError::Invalid(Errno::EBUSY, "the root has no name"));
        };
        Ok((self.directory(&parent).await?, path.names().last().unwrap_or_default()))
    }

    /// Returns an object without following a symbolic link.
    async fn object(&self, path: &TreePath) -> Result<Object, OpError> {
        if path.is_root() {
            let attributes = self.fs.client().get_attributes(self.fs.caller(), self.root).await?;
            return Ok(Object { handle: self.root, attributes });
        }
        let (parent, name) = self.parent(path).await?;
        self.fs.client().lookup(self.fs.caller(), parent, name).await
    }

    fn failed(&self, operation: &str, path: &TreePath, cause: &OpError) -> Failure {
        failed(operation, &below(&self.url, path.as_bytes()), cause)
    }

    async fn open_file(
        &self,
        path: &TreePath,
        mode: OpenMode,
        creation: Creation,
        set: &SetAttributes,
    ) -> Result<RemoteFile, OpError> {
        let (parent, name) = self.parent(path).await?;
        let opened = self.fs.client().open(self.fs.caller(), parent, name, mode, creation, set).await?;
        let (object, path) = (opened.object, path.clone());
        let (end, verifier) = (Cell::new(object.attributes.size), Cell::new(None));
        Ok(RemoteFile { handle: object.handle, state: opened.state, path, end, verifier })
    }

    async fn write_all(&self, file: &RemoteFile, offset: u64, data: Bytes) -> Result<(), OpError> {
        let (mut offset, mut data) = (offset, data);
        let most = self.fs.info().write_max.max(1) as usize;
        while !data.is_empty() {
            let part = data.slice(..data.len().min(most));
            let (client, caller) = (self.fs.client(), self.fs.caller());
            let written = client.write(caller, file.handle, &file.state, offset, part, Stability::Unstable);
            let reply = written.await?;
            if reply.stability == Stability::Unstable
                && file.verifier.replace(Some(reply.verifier)).is_some_and(|before| before != reply.verifier)
            {
                return Err(LOST);
            }
            offset += u64::from(reply.count);
            data = data.slice((reply.count as usize).min(data.len())..);
        }
        file.end.set(file.end.get().max(offset));
        Ok(())
    }

    async fn commit(&self, file: &RemoteFile) -> Result<(), OpError> {
        let Some(verifier) = file.verifier.take() else { return Ok(()) };
        let reply = self.fs.client().commit(self.fs.caller(), file.handle, 0, 0).await?;
        if reply.verifier == verifier { Ok(()) } else { Err(LOST) }
    }

    async fn set(&self, file: &RemoteFile, size: u64, new: &NewAttributes) -> Result<(), OpError> {
        let (client, caller) = (self.fs.client(), self.fs.caller());
        if file.end.get() < size {
            // A hole at the end.
            let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
            client.set_attributes(caller, file.handle, &file.state, &set).await?;
        }
        let set = set_attributes(new);
        if !set.is_empty() {
            client.set_attributes(caller, file.handle, &file.state, &set).await?;
        }
        Ok(())
    }

    async fn make(&self, path: &TreePath, kind: &NewObject, mode: u32) -> Result<Object, OpError> {
        let (parent, name) = self.parent(path).await?;
        let set = SetAttributes::with_mode(mode);
        let made = self.fs.client().create_object(self.fs.caller(), parent, name, kind, &set).await;
        made.map(|(object, _)| object)
    }
}

/// The server lost what was written. A copy that is run again writes it again.
const LOST: OpError = OpError::Invalid(
    Errno::EIO,
    "the server restarted and has lost data that were written: copy the file again",
);

/// Mode bits of symbolic links, which servers ignore.
const LINK_MODE: u32 = 0o777;

fn set_attributes(new: &NewAttributes) -> SetAttributes {
    let time = |time: Option<client::attributes::Timestamp>| time.map_or(SetTime::Keep, SetTime::To);
    SetAttributes {
        mode: new.mode,
        uid: new.uid,
        gid: new.gid,
        size: None,
        atime: time(new.atime),
        mtime: time(new.mtime),
    }
}

impl Tree for RemoteTree {
    type Reader = RemoteFile;
    type Writer = RemoteFile;

    async fn attributes(&self, path: &TreePath) -> Result<Option<Attributes>, Failure> {
        match self.object(path).await {
            Ok(object) => Ok(Some(object.attributes)),
            Err(cause) if cause.errno() == Errno::ENOENT => Ok(None),
            Err(cause) => Err(self.failed("access", path, &cause)),
        }
    }

    async fn list(&self, path: &TreePath) -> Result<Vec<(Vec<u8>, Attributes)>, Failure> {
        let listing = async {
            let object = self.object(path).await?;
            list(&self.fs, &object).await
        };
        let listing = listing.await.map_err(|cause| self.failed("list", path, &cause))?;
        for (name, object) in &listing {
            if object.attributes.kind == FileKind::Directory
                && let Ok(path) = path.join(name)
            {
                self.remember(&path, object.handle);
            }
        }
        Ok(listing.into_iter().map(|(name, object)| (name, object.attributes)).collect())
    }

    async fn read_link(&self, path: &TreePath) -> Result<Vec<u8>, Failure> {
        let target = async {
            let object = self.object(path).await?;
            self.fs.client().read_link(self.fs.caller(), object.handle).await
        };
        let target = target.await.map_err(|cause| self.failed("read the link", path, &cause))?;
        Ok(target.to_vec())
    }

    async fn open(&self, path: &TreePath) -> Result<RemoteFile, Failure> {
        let none = SetAttributes::default();
        let opened = self.open_file(path, OpenMode::READ, Creation::No, &none).await;
        opened.map_err(|cause| self.failed("open", path, &cause))
    }

    async fn next_data(&self, _: &RemoteFile, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Failure> {
        Ok((offset < size).then_some((offset, size)))
    }

    async fn read(&self, file: &RemoteFile, offset: u64, length: usize) -> Result<Bytes, Failure> {
        let (client, caller) = (self.fs.client(), self.fs.caller());
        let most = self.fs.info().read_max.max(1) as usize;
        let mut parts = Vec::new();
        let mut done = 0;
        while done < length {
            let ask = (length - done).min(most) as u32;
            let reply = client.read(caller, file.handle, &file.state, offset + done as u64, ask).await;
            let reply = reply.map_err(|cause| self.failed("read", &file.path, &cause))?;
            done += reply.data.len();
            let is_end = reply.eof || reply.data.is_empty();
            parts.push(reply.data);
            if is_end {
                break;
            }
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Bytes::from(parts.concat()) })
    }

    async fn close(&self, file: RemoteFile) -> Result<(), Failure> {
        let closed = self.fs.client().close_file(self.fs.caller(), file.handle, &file.state).await;
        closed.map_err(|cause| self.failed("close", &file.path, &cause))
    }

    async fn create(&self, path: &TreePath, mode: u32) -> Result<RemoteFile, Failure> {
        let set = SetAttributes { mode: Some(mode), size: Some(0), ..SetAttributes::default() };
        let open = || self.open_file(path, OpenMode::WRITE, Creation::IfMissing, &set);
        let opened = match open().await {
            // A symbolic link has the name.
            Err(OpError::Status(status)) if OpError::Status(status).errno() == Errno::ELOOP => {
                self.remove(path, FileKind::Symlink).await?;
                open().await
            }
            opened => opened,
        };
        let file = opened.map_err(|cause| self.failed("create", path, &cause))?;
        if file.end.get() > 0 {
            // The server kept the content of a file that was there.
            let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
            let set =
                self.fs.client().set_attributes(self.fs.caller(), file.handle, &file.state, &empty).await;
            set.map_err(|cause| self.failed("empty", path, &cause))?;
            file.end.set(0);
        }
        Ok(file)
    }

    async fn write(&self, file: &RemoteFile, offset: u64, data: Bytes) -> Result<(), Failure> {
        let written = self.write_all(file, offset, data).await;
        written.map_err(|cause| self.failed("write", &file.path, &cause))
    }

    async fn finish(&self, file: RemoteFile, size: u64, new: &NewAttributes) -> Result<(), Failure> {
        let finished = async {
            self.commit(&file).await?;
            self.set(&file, size, new).await
        };
        let finished = finished.await;
        let closed = self.fs.client().close_file(self.fs.caller(), file.handle, &file.state).await;
        finished.and(closed).map_err(|cause| self.failed("write", &file.path, &cause))
    }

    async fn make_directory(&self, path: &TreePath, mode: u32) -> Result<bool, Failure> {
        match self.make(path, &NewObject::Directory, mode).await {
            Ok(object) => {
                self.remember(path, object.handle);
                Ok(true)
            }
            Err(cause) if cause.errno() == Errno::EEXIST => {
                let found = self.object(path).await.map_err(|cause| self.failed("access", path, &cause))?;
                if found.attributes.kind != FileKind::Directory {
                    return Err(self.failed("create directory", path, &cause));
                }
                self.remember(path, found.handle);
                Ok(false)
            }
            Err(cause) => Err(self.failed("create directory", path, &cause)),
        }
    }

    async fn make_link(&self, path: &TreePath, target: &[u8]) -> Result<(), Failure> {
        let link = NewObject::Symlink(Bytes::copy_from_slice(target));
        let made = self.make(path, &link, LINK_MODE).await;
        made.map(|_| ()).map_err(|cause| self.failed("create symbolic link", path, &cause))
    }

    async fn make_hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), Failure> {
        let linked = async {
            let file = self.object(existing).await?;
            let (parent, name) = self.parent(path).await?;
            self.fs.client().link(self.fs.caller(), file.handle, parent, name).await
        };
        linked.await.map(|_| ()).map_err(|cause| self.failed("create hard link", path, &cause))
    }

    async fn make_special(&self, path: &TreePath, like: &Attributes) -> Result<(), Failure> {
        let (major, minor) = like.device;
        let kind = match like.kind {
            FileKind::BlockDevice => NewObject::BlockDevice(major, minor),
            FileKind::CharacterDevice => NewObject::CharacterDevice(major, minor),
            FileKind::Socket => NewObject::Socket,
            _ => NewObject::Fifo,
        };
        let made = self.make(path, &kind, like.mode).await;
        made.map(|_| ()).map_err(|cause| self.failed("create special file", path, &cause))
    }

    async fn remove(&self, path: &TreePath, kind: FileKind) -> Result<(), Failure> {
        let removed = async {
            let (parent, name) = self.parent(path).await?;
            let (client, caller) = (self.fs.client(), self.fs.caller());
            if kind == FileKind::Directory {
                client.remove_directory(caller, parent, name).await
            } else {
                client.remove_file(caller, parent, name).await
            }
        };
        removed.await.map(|_| ()).map_err(|cause| self.failed("remove", path, &cause))
    }

    async fn set_attributes(&self, path: &TreePath, new: &NewAttributes) -> Result<(), Failure> {
        let changed = async {
            let object = self.object(path).await?;
            let mut set = set_attributes(new);
            if object.attributes.kind == FileKind::Symlink {
                set.mode = None;
            }
            let (client, caller) = (self.fs.client(), self.fs.caller());
            client.set_attributes(caller, object.handle, &OpenState::default(), &set).await
        };
        changed.await.map(|_| ()).map_err(|cause| self.failed("set attributes of", path, &cause))
    }

    fn user(&self) -> u32 {
        self.url.options.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    fn server(&self) -> Option<String> {
        let port = self.url.options.port;
        Some(format!("{} {port:?}", self.url.host()))
    }

    fn show(&self, path: &TreePath) -> String {
        shown(&below(&self.url, path.as_bytes()))
    }
}
