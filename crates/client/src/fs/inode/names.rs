//! Operations on names of a directory.

use protocol::nfs4::types::Status;

use super::{Inode, OpenFile, OpenFlags};
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::config::{Caller, Version};
use crate::error::OpError;
use crate::results::{Creation, NewObject};

impl Inode {
    /// Looks up a name, and returns its object with the attributes.
    ///
    /// # Errors
    /// [`Status::NOENT`] if there is none.
    pub async fn lookup(&self, caller: &Caller, name: &[u8]) -> Result<(Self, Attributes), OpError> {
        let object = self.client().lookup(caller, self.handle(), name).await?;
        let found = self.mount.found(&object);
        found.0.node.opens.lock().note_name(self.id(), name);
        Ok(found)
    }

    /// Opens the file that has a name, and creates it if `creation` asks for it; `set` are its first attributes. A size of 0
    /// in `set` truncates a file that is there.
    ///
    /// # Errors
    /// As open(2). [`Status::SYMLINK`] if the name is a symbolic link.
    pub async fn create(
        &self,
        caller: &Caller,
        name: &[u8],
        flags: OpenFlags,
        creation: Creation,
        set: &SetAttributes,
    ) -> Result<OpenFile, OpError> {
        let opened = self.client().open(caller, self.handle(), name, flags.mode, creation, set).await?;
        let inode = self.mount.inode(&opened.object);
        inode.node.opens.lock().note_name(self.id(), name);
        let file = OpenFile::new(inode, caller.clone(), flags, opened);
        // O_TRUNC of a file that was there: an OPEN without creation, or one whose server kept the size.
        if set.size == Some(0) && file.opened_attributes().size > 0 {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            if let Err(error) = file.inode().set_attributes(caller, Some(&file), &set).await {
                let _ = file.release().await;
                return Err(error);
            }
        }
        Ok(file)
    }

    /// Creates an object that is no regular file.
    ///
    /// # Errors
    /// As mkdir(2), symlink(2), mknod(2).
    pub async fn make(
        &self,
        caller: &Caller,
        name: &[u8],
        kind: &NewObject,
        set: &SetAttributes,
    ) -> Result<(Self, Attributes), OpError> {
        let (object, _) = self.client().create_object(caller, self.handle(), name, kind, set).await?;
        Ok(self.mount.found(&object))
    }

    /// Gives this object the name `name` in `directory`, and returns its attributes.
    ///
    /// # Errors
    /// As link(2).
    pub async fn link(&self, caller: &Caller, directory: &Self, name: &[u8]) -> Result<Attributes, OpError> {
        self.client().link(caller, self.handle(), directory.handle(), name).await?;
        self.attributes(caller).await
    }

    /// Removes the name of an object that is no directory. A file that is open stays until its last release.
    ///
    /// # Errors
    /// As unlink(2).
    pub async fn unlink(&self, caller: &Caller, name: &[u8]) -> Result<(), OpError> {
        // REMOVE of version 4 takes directories too.
        if self.client().version() != Version::V3 || self.mount.has_open_files() {
            let (object, _) = self.lookup(caller, name).await?;
            if object.kind() == FileKind::Directory {
                return Err(OpError::Status(Status::ISDIR));
            }
            if object.keep_unlinked(caller, self, name).await? {
                return Ok(());
            }
        }
        self.client().remove_file(caller, self.handle(), name).await.map(|_| ())
    }

    /// Removes the name of an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub async fn rmdir(&self, caller: &Caller, name: &[u8]) -> Result<(), OpError> {
        if self.client().version() != Version::V3 {
            let (object, _) = self.lookup(caller, name).await?;
            if object.kind() != FileKind::Directory {
                return Err(OpError::Status(Status::NOTDIR));
            }
        }
        self.client().remove_directory(caller, self.handle(), name).await.map(|_| ())
    }

    /// Renames the entry `name` of this directory, and replaces an object that has the new name. A replaced file that is open
    /// stays until its last release.
    ///
    /// # Errors
    /// As rename(2).
    pub async fn rename(
        &self,
        caller: &Caller,
        name: &[u8],
        to: &Self,
        new_name: &[u8],
    ) -> Result<(), OpError> {
        if self.mount.has_open_files() {
            self.keep_replaced(caller, name, to, new_name).await?;
        }
        let (from, target) = ((self.handle(), name), (to.handle(), new_name));
        self.client().rename(caller, from, target).await.map(|_| ())
    }

    /// Keeps an open file that a rename is going to replace.
    async fn keep_replaced(
        &self,
        caller: &Caller,
        name: &[u8],
        to: &Self,
        new_name: &[u8],
    ) -> Result<(), OpError> {
        let replaced = match to.lookup(caller, new_name).await {
            Ok((replaced, _)) => replaced,
            Err(OpError::Status(Status::NOENT)) => return Ok(()),
            Err(error) => return Err(error),
        };
        if replaced.kind() == FileKind::Directory {
            return Ok(());
        }
        // A missing source must not cost the target its name, and two names of one file change nothing (rename(2)).
        let (source, _) = self.lookup(caller, name).await?;
        if source != replaced && source.kind() != FileKind::Directory {
            replaced.keep_unlinked(caller, to, new_name).await?;
        }
        Ok(())
    }
}
