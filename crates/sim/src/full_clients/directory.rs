//! The directory that programs share: by handles, or through a mount with caches and delegations.

use bytes::Bytes;
use client::Client;
use client::attributes::{Attributes, SetAttributes};
use client::config::Caller;
use client::error::OpError;
use client::fs::FileSystem;
use client::fs::inode::OpenFlags;
use client::results::{Creation, FileHandle, NewObject, Object, OpenMode, OpenState};

/// Bytes of a part of a listing: few entries, so that listings take several requests.
const LISTING_BYTES: u32 = 1024;

/// A directory as one program uses it.
#[derive(Clone)]
pub(super) struct Directory {
    pub(super) client: Client,
    pub(super) caller: Caller,
    pub(super) handle: FileHandle,
    /// The mount, if operations go through its caches.
    pub(super) fs: Option<FileSystem>,
}

impl Directory {
    /// Creates a file, writes `content` if there are caches, and closes the file.
    pub(super) async fn create_file(
        &self,
        name: &str,
        creation: Creation,
        set: &SetAttributes,
        content: Bytes,
    ) -> Result<FileHandle, OpError> {
        let (client, caller) = (&self.client, &self.caller);
        if let Some(fs) = &self.fs {
            let root = fs.mounted().root();
            let file = root.create(caller, name.as_bytes(), OpenFlags::BOTH, creation, set).await?;
            file.write(0, content).await?;
            file.flush().await?;
            file.release().await?;
            return Ok(file.inode().handle());
        }
        let opened = client.open(caller, self.handle, name.as_bytes(), OpenMode::BOTH, creation, set).await?;
        client.close_file(caller, opened.object.handle, &opened.state).await?;
        Ok(opened.object.handle)
    }

    /// Creates an object that is not a file.
    pub(super) async fn create_object(
        &self,
        name: &str,
        new: &NewObject,
        set: &SetAttributes,
    ) -> Result<Object, OpError> {
        let caller = &self.caller;
        match &self.fs {
            Some(fs) => {
                let (inode, attributes) = fs.mounted().root().make(caller, name.as_bytes(), new, set).await?;
                Ok(Object { handle: inode.handle(), attributes })
            }
            None => {
                let created = self.client.create_object(caller, self.handle, name.as_bytes(), new, set);
                created.await.map(|(object, _)| object)
            }
        }
    }

    /// Removes a name.
    pub(super) async fn remove(&self, name: &str, is_directory: bool) -> Result<(), OpError> {
        let (client, caller, name) = (&self.client, &self.caller, name.as_bytes());
        match (&self.fs, is_directory) {
            (Some(fs), true) => fs.mounted().root().rmdir(caller, name).await,
            (Some(fs), false) => fs.mounted().root().unlink(caller, name).await,
            (None, true) => client.remove_directory(caller, self.handle, name).await.map(|_| ()),
            (None, false) => client.remove_file(caller, self.handle, name).await.map(|_| ()),
        }
    }

    /// Renames.
    pub(super) async fn rename(&self, from: &str, to: &str) -> Result<(), OpError> {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        match &self.fs {
            Some(fs) => {
                let root = fs.mounted().root();
                root.rename(&self.caller, from, &root, to).await
            }
            None => {
                let (from, to) = ((self.handle, from), (self.handle, to));
                self.client.rename(&self.caller, from, to).await.map(|_| ())
            }
        }
    }

    /// Gives the object `handle`, which has the name `from`, another name.
    pub(super) async fn link(&self, (from, handle): (&str, FileHandle), name: &str) -> Result<(), OpError> {
        match &self.fs {
            Some(fs) => {
                let root = fs.mounted().root();
                let (inode, _) = root.lookup(&self.caller, from.as_bytes()).await?;
                inode.link(&self.caller, &root, name.as_bytes()).await.map(|_| ())
            }
            None => self.client.link(&self.caller, handle, self.handle, name.as_bytes()).await.map(|_| ()),
        }
    }

    /// Sets attributes of the object `handle`, which has this name.
    pub(super) async fn set_attributes(
        &self,
        (name, handle): (&str, FileHandle),
        set: &SetAttributes,
    ) -> Result<Attributes, OpError> {
        match &self.fs {
            Some(fs) => {
                let (inode, _) = fs.mounted().root().lookup(&self.caller, name.as_bytes()).await?;
                inode.set_attributes(&self.caller, None, set).await
            }
            None => {
                let state = OpenState::default();
                self.client.set_attributes(&self.caller, handle, &state, set).await
            }
        }
    }

    /// Looks up a name.
    pub(super) async fn look_up(&self, name: &str) -> Result<Object, OpError> {
        match &self.fs {
            Some(fs) => {
                let found = fs.mounted().root().lookup(&self.caller, name.as_bytes()).await;
                found.map(|(inode, attributes)| Object { handle: inode.handle(), attributes })
            }
            None => self.client.lookup(&self.caller, self.handle, name.as_bytes()).await,
        }
    }

    /// Reads a file; `None` without caches, where files are empty.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, OpError> {
        let Some(fs) = &self.fs else { return Ok(None) };
        let (inode, _) = fs.mounted().root().lookup(&self.caller, name.as_bytes()).await?;
        let file = inode.open(&self.caller, OpenFlags::READ).await?;
        let parts = file.read(0, 4096).await?;
        file.release().await?;
        Ok(Some(parts.concat()))
    }

    /// Lists all names.
    pub(super) async fn list(&self, plus: bool) -> Result<Vec<Bytes>, OpError> {
        if let Some(fs) = &self.fs {
            let entries = fs.list(&fs.root(), plus).await?;
            return Ok(entries.into_iter().map(|entry| entry.name).collect());
        }
        let (mut position, mut names) = ((0, [0; 8]), Vec::new());
        loop {
            let (handle, bytes) = (self.handle, LISTING_BYTES);
            let page = self.client.read_directory(&self.caller, handle, position, bytes, plus).await?;
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            if page.eof {
                return Ok(names);
            }
            position = (page.next_cookie, page.verifier);
        }
    }
}
