//! MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK (RFC 1813 §3.3.9–3.3.15).
//!
//! None of them can be executed twice with the same result. A server that restarted, or whose reply cache is small, executes a
//! repeated call again: if it then reports that the name exists or is missing, the first execution made the change.

use protocol::nfs3::{
    CreateOk, DeviceData, LinkArgs, MkdirArgs, MknodArgs, MknodData, NfsPath, RemoveArgs, RenameArgs,
    SpecData, SymlinkArgs, WccData,
};
use protocol::nfs4::types::Status;

use super::super::Nfs3;
use super::super::calls::{RmdirArgs, from_wire, to_wire};
use super::super::convert::{changed, entry_of, set_attributes};
use crate::attributes::{Changed, SetAttributes};
use crate::calls::Replied;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::repeated::find_created;
use crate::results::{FileHandle, NewObject, Object};

impl Nfs3 {
    /// Creates an object that is not a regular file.
    pub(crate) async fn create_object(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        kind: &NewObject,
        set: &SetAttributes,
    ) -> Result<(Object, Changed), OpError> {
        let replied = self.make(caller, directory, name, kind, set).await?;
        if replied.is_repeated_with(Status::EXIST) {
            let found = self.lookup(caller, directory, name).await;
            let object = find_created(found, kind, async |link| self.read_link(caller, link).await).await?;
            return Ok((object, Changed::default()));
        }
        let ok = replied.result?;
        let object = self.created(caller, directory, name, &ok).await?;
        Ok((object, changed(&ok.dir_wcc)?))
    }

    async fn make(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        kind: &NewObject,
        set: &SetAttributes,
    ) -> Result<Replied<CreateOk>, OpError> {
        let (where_, attributes) = (entry_of(&directory, name)?, set_attributes(set));
        let device = |major: u32, minor: u32| DeviceData {
            dev_attributes: attributes,
            spec: SpecData { major, minor },
        };
        let what = match kind {
            NewObject::Directory => return self.call_once(caller, &MkdirArgs { where_, attributes }).await,
            NewObject::Symlink(to) => {
                let too_long = |_| OpError::Invalid(Errno::ENAMETOOLONG, "the link's content is too long");
                let symlink_data = NfsPath::new(to.clone()).map_err(too_long)?;
                let arguments = SymlinkArgs { where_, symlink_attributes: attributes, symlink_data };
                return self.call_once(caller, &arguments).await;
            }
            NewObject::BlockDevice(major, minor) => MknodData::BlockDevice(device(*major, *minor)),
            NewObject::CharacterDevice(major, minor) => MknodData::CharacterDevice(device(*major, *minor)),
            NewObject::Socket => MknodData::Socket(attributes),
            NewObject::Fifo => MknodData::Fifo(attributes),
        };
        self.call_once(caller, &MknodArgs { where_, what }).await
    }

    /// Returns a new object. Its handle and attributes are fetched if the server has left them out.
    pub(super) async fn created(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        ok: &CreateOk,
    ) -> Result<Object, OpError> {
        match &ok.obj {
            Some(handle) => self.object(caller, from_wire(handle)?, &ok.obj_attributes).await,
            None => self.lookup(caller, directory, name).await,
        }
    }

    /// Removes the name of a file.
    pub(crate) async fn remove_file(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        let arguments = RemoveArgs { object: entry_of(&directory, name)? };
        removed(self.call_once(caller, &arguments).await?)
    }

    /// Removes an empty directory.
    pub(crate) async fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        let arguments = RmdirArgs(RemoveArgs { object: entry_of(&directory, name)? });
        removed(self.call_once(caller, &arguments).await?)
    }

    /// Renames, and replaces an object that has the new name. Returns the changes of the old and the new directory.
    pub(crate) async fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<(Changed, Changed), OpError> {
        let arguments = RenameArgs { from: entry_of(&from.0, from.1)?, to: entry_of(&to.0, to.1)? };
        let replied = self.call_once(caller, &arguments).await?;
        if replied.is_repeated_with(Status::NOENT) && self.lookup(caller, to.0, to.1).await.is_ok() {
            return Ok((Changed::default(), Changed::default()));
        }
        let ok = replied.result?;
        Ok((changed(&ok.fromdir_wcc)?, changed(&ok.todir_wcc)?))
    }

    /// Gives a file another name in `directory`.
    pub(crate) async fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        let arguments = LinkArgs { file: to_wire(&file)?, link: entry_of(&directory, name)? };
        let replied = self.call_once(caller, &arguments).await?;
        if replied.is_repeated_with(Status::EXIST)
            && self.lookup(caller, directory, name).await.is_ok_and(|found| found.handle == file)
        {
            return Ok(Changed::default());
        }
        changed(&replied.result?.linkdir_wcc)
    }
}

fn removed(replied: Replied<WccData>) -> Result<Changed, OpError> {
    if replied.is_repeated_with(Status::NOENT) {
        return Ok(Changed::default());
    }
    changed(&replied.result?)
}
