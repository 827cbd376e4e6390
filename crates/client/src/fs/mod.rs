//! Files by path, with POSIX semantics.
//!
//! A [`FileSystem`] is a directory of a server with a caller. Paths are bytes; they are relative to that directory, and a
//! leading `/` changes nothing. Symbolic links are followed by the client; an absolute one begins at that directory again.

use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs4::types::Status;

use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::client::Client;
use crate::config::Caller;
use crate::error::{Error, OpError};
use crate::results::{DirEntry, FsInfo, FsStat, NewObject, Object};

mod file;
pub mod inode;
mod listing;
mod lock;
mod many;
mod path;
mod space;
mod walk;
mod xattr;

pub use file::{File, OpenOptions};
pub use inode::{Inode, Mount};
pub use listing::Listing;
pub use many::{NewPath, WholeFile};
pub use walk::{Listed, Walk};

/// A directory of a server with everything below it, for one caller. Clones are the same.
#[derive(Clone)]
pub struct FileSystem {
    inner: Arc<Inner>,
}

struct Inner {
    mount: Mount,
    caller: Caller,
    root: Object,
    /// The inode of the root, which stays known.
    root_inode: Inode,
}

impl FileSystem {
    /// Takes the directory at `path` of the server as root. If `path` names a file, its directory is the root: the second
    /// value then is the file's name.
    ///
    /// # Errors
    /// If there is nothing at `path`, or the caller may not look it up.
    pub async fn mount(
        client: Client,
        caller: Caller,
        path: &[u8],
    ) -> Result<(Self, Option<Vec<u8>>), Error> {
        let failed = |cause| Error {
            operation: "mount",
            path: Some(path.to_vec()),
            server: client.config().server.clone(),
            cause: match cause {
                // exports(5), `secure`. Linux's servers have no other status for it.
                OpError::Status(status @ (Status::PERM | Status::ACCESS))
                    if client.has_unprivileged_port() =>
                {
                    OpError::MountRefused(status)
                }
                cause => cause,
            },
        };
        let names = path::split(path);
        let (mut object, mut info) = client.mount_with_info(&caller, &names).await.map_err(failed)?;
        let mut name = None;
        if object.attributes.kind != FileKind::Directory
            && let Some((last, parents)) = names.split_last()
        {
            (object, info) = client.mount_with_info(&caller, parents).await.map_err(failed)?;
            name = Some(last.to_vec());
        }
        let mount = Mount::at(client.clone(), &object, info);
        let root_inode = mount.root();
        Ok((Self { inner: Arc::new(Inner { mount, caller, root: object, root_inode }) }, name))
    }

    /// Takes a directory of this one as root. Both share their caches.
    ///
    /// # Errors
    /// `ENOTDIR` if it is none; that of the path.
    pub async fn subdirectory(&self, path: &[u8]) -> Result<Self, Error> {
        let failed = |cause| self.failed("open", path, cause);
        let root = self.resolve(path, true).await.map_err(failed)?;
        if root.attributes.kind != FileKind::Directory {
            return Err(failed(OpError::Status(Status::NOTDIR)));
        }
        let (mount, caller) = (self.inner.mount.clone(), self.caller().clone());
        let root_inode = mount.inode(&root);
        Ok(Self { inner: Arc::new(Inner { mount, caller, root, root_inode }) })
    }

    /// Returns the mount, whose inodes any caller can use.
    #[must_use]
    pub fn mounted(&self) -> &Mount {
        &self.inner.mount
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.inner.mount.client()
    }

    /// Returns the caller.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.inner.caller
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> Object {
        self.inner.root
    }

    /// Returns the properties of the root's file system.
    #[must_use]
    pub fn info(&self) -> FsInfo {
        self.inner.mount.info()
    }

    /// Returns the inode of the root.
    fn root_inode(&self) -> Inode {
        self.inner.root_inode.clone()
    }

    /// Returns the inode at `path`.
    async fn inode(&self, path: &[u8], follow: bool) -> Result<Inode, OpError> {
        Ok(self.inner.mount.inode(&self.resolve(path, follow).await?))
    }

    pub(crate) fn failed(&self, operation: &'static str, path: &[u8], cause: OpError) -> Error {
        Error { operation, path: Some(path.to_vec()), server: self.client().config().server.clone(), cause }
    }
}

/// Attributes.
impl FileSystem {
    /// Returns the attributes at `path`, following a symbolic link.
    ///
    /// # Errors
    /// As stat(2).
    pub async fn stat(&self, path: &[u8]) -> Result<Attributes, Error> {
        let object = self.resolve(path, true).await.map_err(|cause| self.failed("stat", path, cause))?;
        Ok(object.attributes)
    }

    /// Returns the attributes at `path`, of a symbolic link itself.
    ///
    /// # Errors
    /// As lstat(2).
    pub async fn lstat(&self, path: &[u8]) -> Result<Attributes, Error> {
        let object = self.resolve(path, false).await.map_err(|cause| self.failed("stat", path, cause))?;
        Ok(object.attributes)
    }

    /// Sets attributes; `follow` tells whether those of a symbolic link's target.
    ///
    /// # Errors
    /// As chmod(2), chown(2), truncate(2), utimensat(2).
    pub async fn set_attributes(
        &self,
        path: &[u8],
        set: &SetAttributes,
        follow: bool,
    ) -> Result<Attributes, Error> {
        let failed = |cause| self.failed("set attributes of", path, cause);
        let inode = self.inode(path, follow).await.map_err(failed)?;
        inode.set_attributes(self.caller(), None, set).await.map_err(failed)
    }

    /// Returns the caller's permissions among the requested ones ([`crate::results::access`]).
    ///
    /// # Errors
    /// As access(2), except that missing permissions are not an error.
    pub async fn access(&self, path: &[u8], asked: u32) -> Result<u32, Error> {
        let failed = |cause| self.failed("check access to", path, cause);
        let inode = self.inode(path, true).await.map_err(failed)?;
        inode.access(self.caller(), asked).await.map_err(failed)
    }

    /// Returns the free space of the file system at `path`.
    ///
    /// # Errors
    /// As statvfs(3).
    pub async fn stat_fs(&self, path: &[u8]) -> Result<FsStat, Error> {
        let failed = |cause| self.failed("statfs", path, cause);
        let inode = self.inode(path, true).await.map_err(failed)?;
        inode.stat_fs(self.caller()).await.map_err(failed)
    }
}

/// Directories and names.
impl FileSystem {
    /// Lists a directory, with handles and attributes if `plus`; without `.` and `..`, in the server's order.
    ///
    /// # Errors
    /// As opendir(3) and readdir(3).
    pub async fn read_dir(&self, path: &[u8], plus: bool) -> Result<Vec<DirEntry>, Error> {
        let failed = |cause| self.failed("list", path, cause);
        let object = self.resolve(path, true).await.map_err(failed)?;
        self.list(&object, plus).await.map_err(failed)
    }

    /// Lists the directory `object`.
    ///
    /// # Errors
    /// Among others [`OpError::BadReply`] if the server's cookies form a loop.
    pub async fn list(&self, object: &Object, plus: bool) -> Result<Vec<DirEntry>, OpError> {
        if object.attributes.kind != FileKind::Directory {
            return Err(OpError::Status(Status::NOTDIR));
        }
        match self.list_rest(object.handle, Listing::default(), plus).await {
            // The server no longer knows its cookies: list everything again.
            Err(OpError::Status(Status::BAD_COOKIE | Status::NOT_SAME)) => {
                self.list_rest(object.handle, Listing::default(), plus).await
            }
            listed => listed,
        }
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub async fn mkdir(&self, path: &[u8], mode: u32) -> Result<Object, Error> {
        self.create_object("create directory", path, &NewObject::Directory, mode).await
    }

    /// Creates a symbolic link with the content `target`.
    ///
    /// # Errors
    /// As symlink(2).
    pub async fn symlink(&self, target: &[u8], path: &[u8]) -> Result<Object, Error> {
        let link = NewObject::Symlink(Bytes::copy_from_slice(target));
        self.create_object("create symbolic link", path, &link, 0o777).await
    }

    /// Creates a device, a socket or a named pipe.
    ///
    /// # Errors
    /// As mknod(2).
    pub async fn mknod(&self, path: &[u8], kind: &NewObject, mode: u32) -> Result<Object, Error> {
        self.create_object("create special file", path, kind, mode).await
    }

    async fn create_object(
        &self,
        operation: &'static str,
        path: &[u8],
        kind: &NewObject,
        mode: u32,
    ) -> Result<Object, Error> {
        let failed = |cause| self.failed(operation, path, cause);
        let (parent, name) = self.parent(path).await.map_err(failed)?;
        let set = SetAttributes::with_mode(mode);
        let (inode, attributes) = parent.make(self.caller(), &name, kind, &set).await.map_err(failed)?;
        Ok(Object { handle: inode.handle(), attributes })
    }

    /// Removes the name of a file; directories are refused.
    ///
    /// # Errors
    /// As unlink(2).
    pub async fn unlink(&self, path: &[u8]) -> Result<(), Error> {
        let failed = |cause| self.failed("remove", path, cause);
        let (parent, name) = self.parent(path).await.map_err(failed)?;
        parent.unlink(self.caller(), &name).await.map_err(failed)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub async fn rmdir(&self, path: &[u8]) -> Result<(), Error> {
        let failed = |cause| self.failed("remove directory", path, cause);
        let (parent, name) = self.parent(path).await.map_err(failed)?;
        parent.rmdir(self.caller(), &name).await.map_err(failed)
    }

    /// Renames, and replaces an existing object with the new name.
    ///
    /// # Errors
    /// As rename(2).
    pub async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let failed = |cause| self.failed("rename", from, cause);
        let (from_parent, from_name) = self.parent(from).await.map_err(failed)?;
        let (to_parent, to_name) = self.parent(to).await.map_err(failed)?;
        from_parent.rename(self.caller(), &from_name, &to_parent, &to_name).await.map_err(failed)
    }

    /// Gives the file at `from` another name; a symbolic link is not followed.
    ///
    /// # Errors
    /// As link(2).
    pub async fn link(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let failed = |cause| self.failed("link", to, cause);
        let file = self.inode(from, false).await.map_err(failed)?;
        let (parent, name) = self.parent(to).await.map_err(failed)?;
        file.link(self.caller(), &parent, &name).await.map(|_| ()).map_err(failed)
    }

    /// Returns the content of a symbolic link.
    ///
    /// # Errors
    /// As readlink(2).
    pub async fn read_link(&self, path: &[u8]) -> Result<Bytes, Error> {
        let failed = |cause| self.failed("read link", path, cause);
        let inode = self.inode(path, false).await.map_err(failed)?;
        inode.read_link(self.caller()).await.map_err(failed)
    }
}
