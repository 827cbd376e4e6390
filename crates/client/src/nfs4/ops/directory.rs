//! READDIR, CREATE, REMOVE, RENAME, LINK (RFC 8881 §18.23, §18.4, §18.25, §18.26, §18.9).

use std::sync::atomic::{AtomicU32, Ordering};

use protocol::nfs4::attributes::{Attributes as WireAttributes, number};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::readdir::{DirEntry as WireEntry, ReadDirArgs};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::types::{Bitmap, LinkText, SpecData, Status};

use super::super::Nfs4;
use super::super::convert::{WANTED, changed, component, from_decoded, set_attributes};
use super::super::getattr::{get_attributes, take_attributes, take_object};
use super::super::wire::{Results, put, take};
use crate::attributes::{Changed, SetAttributes};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::repeated::find_created;
use crate::results::{DirEntry, DirPage, FileHandle, NewObject, Object};

/// The attributes that a listing without handles requests.
const PLAIN: Bitmap = Bitmap::of(&[number::FILEID, number::MOUNTED_ON_FILEID, number::RDATTR_ERROR]);

/// Returns CREATE of an object.
pub(super) fn create_op(name: &[u8], kind: &NewObject, set: &SetAttributes) -> Result<Op, OpError> {
    let device = |major: u32, minor: u32| SpecData { major, minor };
    let object_type = match kind {
        NewObject::Directory => CreateType::DIRECTORY,
        NewObject::Symlink(to) => CreateType::Link(
            LinkText::new(to.clone())
                .map_err(|_| OpError::Invalid(Errno::ENAMETOOLONG, "the link's content is too long"))?,
        ),
        NewObject::BlockDevice(major, minor) => CreateType::Block(device(*major, *minor)),
        NewObject::CharacterDevice(major, minor) => CreateType::Character(device(*major, *minor)),
        NewObject::Socket => CreateType::SOCKET,
        NewObject::Fifo => CreateType::FIFO,
    };
    Ok(Op::Create(CreateArgs { object_type, name: component(name)?, attributes: set_attributes(set) }))
}

/// A RENAME under way, by which the names of open files may change.
struct Renaming<'a>(&'a AtomicU32);

impl<'a> Renaming<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Renaming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Nfs4 {
    /// Lists a part of a directory of at most `bytes`. `plus` asks for handles and attributes too.
    pub(crate) async fn read_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        position: (u64, [u8; 8]),
        bytes: u32,
        plus: bool,
    ) -> Result<DirPage, OpError> {
        let ops = list_ops(directory, position, bytes, plus);
        take_page(&mut self.read_only(caller, &ops).await?, position.0)
    }

    /// Creates an object that is not a regular file.
    pub(crate) async fn create_object(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        kind: &NewObject,
        set: &SetAttributes,
    ) -> Result<(Object, Changed), OpError> {
        self.changing_names([directory], self.create_in(caller, directory, name, kind, set)).await
    }

    async fn create_in(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        kind: &NewObject,
        set: &SetAttributes,
    ) -> Result<(Object, Changed), OpError> {
        let create = create_op(name, kind, set)?;
        // The directory's attributes too: the next operation there would need another round trip for them.
        let ops = [put(directory), create, Op::GetFh, get_attributes(), put(directory), get_attributes()];
        let mut results = self.change(caller, &ops).await?;
        results.skip()?;
        let created = match take!(results, Create) {
            // A session was lost after it had created the object: the reply to that is lost.
            Err(OpError::Status(Status::EXIST)) if results.is_repeated => {
                let found = self.lookup(caller, directory, name).await;
                let object =
                    find_created(found, kind, async |link| self.read_link(caller, link).await).await?;
                return Ok((object, Changed::default()));
            }
            created => created?,
        };
        let object = take_object(&mut results)?;
        let after = results.skip().and_then(|()| take_attributes(&mut results)).ok();
        Ok((object, changed(created.change, after)))
    }

    /// Removes the name of a file.
    pub(crate) async fn remove_file(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        self.changing_names([directory], self.remove(caller, directory, name)).await
    }

    /// Removes an empty directory.
    pub(crate) async fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        self.changing_names([directory], self.remove(caller, directory, name)).await
    }

    /// Removes a name. REMOVE is for both: unlink and rmdir differ only in the expected kind, which the caller checks.
    async fn remove(&self, caller: &Caller, directory: FileHandle, name: &[u8]) -> Result<Changed, OpError> {
        let remove = Op::Remove(RemoveArgs { target: component(name)? });
        let mut results = self.change(caller, &[put(directory), remove, get_attributes()]).await?;
        results.skip()?;
        let info = match take!(results, Remove) {
            // A session was lost after it had removed the name: the reply to that is lost.
            Err(OpError::Status(Status::NOENT)) if results.is_repeated => return Ok(Changed::default()),
            removed => removed?,
        };
        Ok(changed(info, take_attributes(&mut results).ok()))
    }

    /// Renames, and replaces an object that has the new name. Returns the changes of the old and the new directory.
    pub(crate) async fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<(Changed, Changed), OpError> {
        self.changing_names([from.0, to.0], self.rename_in(caller, from, to)).await
    }

    async fn rename_in(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<(Changed, Changed), OpError> {
        let (old_name, new_name) = (component(from.1)?, component(to.1)?);
        let rename = RenameArgs { old_name: old_name.clone(), new_name: new_name.clone() };
        let _renaming = Renaming::new(&self.renames);
        let ops = [
            put(from.0),
            Op::SaveFh,
            put(to.0),
            Op::Rename(rename),
            get_attributes(),
            Op::RestoreFh,
            get_attributes(),
        ];
        let mut results = self.change(caller, &ops).await?;
        results.skip_many(3)?;
        let renamed = match take!(results, Rename) {
            // As for a removed name: the new name exists.
            Err(OpError::Status(Status::NOENT))
                if results.is_repeated && self.lookup(caller, to.0, to.1).await.is_ok() =>
            {
                self.note_renamed((&from.0, &old_name), (&to.0, &new_name));
                return Ok((Changed::default(), Changed::default()));
            }
            renamed => renamed?,
        };
        self.note_renamed((&from.0, &old_name), (&to.0, &new_name));
        let target = take_attributes(&mut results).ok();
        let source = results.skip().ok().and_then(|()| take_attributes(&mut results).ok());
        Ok((changed(renamed.source, source), changed(renamed.target, target)))
    }

    /// Gives a file another name in `directory`.
    pub(crate) async fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        self.changing_names([directory], self.link_in(caller, file, directory, name)).await
    }

    async fn link_in(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed, OpError> {
        let link = Op::Link(LinkArgs { new_name: component(name)? });
        let ops = [put(file), Op::SaveFh, put(directory), link, get_attributes()];
        let mut results = self.change(caller, &ops).await?;
        results.skip_many(3)?;
        let info = match take!(results, Link) {
            Err(OpError::Status(Status::EXIST))
                if results.is_repeated
                    && self.lookup(caller, directory, name).await.is_ok_and(|found| found.handle == file) =>
            {
                return Ok(Changed::default());
            }
            linked => linked?,
        };
        Ok(changed(info, take_attributes(&mut results).ok()))
    }
}

/// Returns the operations that list a part of a directory of at most `bytes`.
pub(super) fn list_ops(
    directory: FileHandle,
    (cookie, cookie_verifier): (u64, [u8; 8]),
    bytes: u32,
    plus: bool,
) -> [Op; 3] {
    let mut attributes = PLAIN;
    if plus {
        attributes = attributes.union(WANTED);
        attributes.insert(number::FILEHANDLE);
    }
    let args = ReadDirArgs { cookie, cookie_verifier, dircount: bytes, maxcount: bytes, attributes };
    [put(directory), get_attributes(), Op::ReadDir(args)]
}

/// Takes the results of [`list_ops`] for entries after `cookie`.
pub(super) fn take_page(results: &mut Results, cookie: u64) -> Result<DirPage, OpError> {
    results.skip()?;
    let directory = take_attributes(results)?;
    let page = take!(results, ReadDir)?;
    let listed = page.entries.into_vec();
    if listed.is_empty() && !page.eof {
        return Err(OpError::BadReply("a listing without entries that does not end"));
    }
    let next_cookie = listed.last().map_or(cookie, |entry| entry.cookie);
    let entries = listed.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    Ok(DirPage {
        entries: entries.into_iter().flatten().collect(),
        next_cookie,
        verifier: page.cookie_verifier,
        eof: page.eof,
        directory: Some(directory),
    })
}

/// Converts an entry; `None` if its name is not one of an entry of this directory.
fn entry(wire: WireEntry) -> Result<Option<DirEntry>, OpError> {
    if !crate::names::is_safe(&wire.name) {
        // Some servers list `.` and `..`; a name with `/` would leave the directory.
        return match &wire.name[..] {
            b"." | b".." => Ok(None),
            _ => Err(OpError::BadReply("an entry whose name is not allowed")),
        };
    }
    let decoded = WireAttributes::from_file_attributes(&wire.attributes)
        .map_err(|_| OpError::BadReply("attributes that cannot be decoded"))?;
    let fileid = decoded.fileid.or(decoded.mounted_on_fileid).unwrap_or(0);
    // §18.23.3: an object whose attributes cannot be read has only rdattr_error.
    let object = match (decoded.filehandle, decoded.file_type) {
        (Some(handle), Some(_)) if !handle.is_empty() => {
            Some(Object { handle, attributes: from_decoded(&decoded)? })
        }
        _ => None,
    };
    Ok(Some(DirEntry { name: wire.name.into_bytes(), fileid, cookie: wire.cookie, object }))
}
