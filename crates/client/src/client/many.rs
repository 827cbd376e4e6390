//! Operations on many files.

use super::{Client, Protocol, singles};
use crate::attributes::{Attributes, SetAttributes};
use crate::config::Caller;
use crate::error::OpError;
use crate::many::{ListPart, NewDirectory, NewEntry, NewFile, ReadFile, Whole};
use crate::results::{Creation, DirPage, FileHandle, Object, OpenMode, Opened};

/// Operations on many files ([`crate::many`]).
impl Client {
    /// Reads files from their start, whole if they are not longer than requested.
    pub async fn read_many(&self, caller: &Caller, files: &[ReadFile<'_>]) -> Vec<Result<Whole, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.read_many(caller, files).await,
            Protocol::Nfs3(_) => singles::read(self, caller, files).await,
        }
    }

    /// Creates files, or overwrites them, with all their data, which are stable afterwards. If a file fails, some of its
    /// data may have been written.
    pub async fn write_many(&self, caller: &Caller, files: &[NewFile<'_>]) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) if nfs4.has_sessions() => {
                let outcomes = nfs4.write_many(caller, files).await;
                // Caches do not learn of the changes.
                outcomes.iter().flatten().for_each(|object| _ = nfs4.delegations.give_back(&object.handle));
                outcomes
            }
            Protocol::Nfs4(nfs4) => {
                let mut outcomes = nfs4.write_many_v40(caller, files).await;
                singles::write_rest(self, caller, files, &mut outcomes).await;
                outcomes.into_iter().flatten().collect()
            }
            Protocol::Nfs3(_) => singles::write(self, caller, files).await,
        }
    }

    /// Creates empty files and other objects. A name that exists is an error (EEXIST), and its object is not changed.
    pub async fn create_many(&self, caller: &Caller, new: &[NewEntry<'_>]) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) if nfs4.has_sessions() => nfs4.create_many(caller, new).await,
            Protocol::Nfs4(_) | Protocol::Nfs3(_) => singles::create(self, caller, new).await,
        }
    }

    /// Lists parts of directories, with handles and attributes.
    pub async fn list_many(&self, caller: &Caller, parts: &[ListPart]) -> Vec<Result<DirPage, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.list_many(caller, parts).await,
            Protocol::Nfs3(_) => singles::list(self, caller, parts).await,
        }
    }

    /// Looks up names in directories.
    pub async fn stat_many(
        &self,
        caller: &Caller,
        names: &[(FileHandle, &[u8])],
    ) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.stat_many(caller, names).await,
            Protocol::Nfs3(_) => singles::in_flight(names, |name| self.lookup(caller, name.0, name.1)).await,
        }
    }

    /// Returns the attributes of objects.
    pub async fn get_attributes_many(
        &self,
        caller: &Caller,
        handles: &[FileHandle],
    ) -> Vec<Result<Attributes, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.get_attributes_many(caller, handles).await,
            Protocol::Nfs3(_) => {
                singles::in_flight(handles, |handle| self.get_attributes(caller, *handle)).await
            }
        }
    }

    /// Creates a file, or opens an existing one and empties it.
    pub(super) async fn open_anew(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.open_anew(caller, directory, name, set).await,
            Protocol::Nfs4(nfs4) => {
                nfs4.open(caller, directory, name, OpenMode::WRITE, Creation::IfMissing, set).await
            }
        }
    }

    /// Creates directories.
    pub async fn create_directories(
        &self,
        caller: &Caller,
        directories: &[NewDirectory<'_>],
    ) -> Vec<Result<Object, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.create_directories(caller, directories).await,
            Protocol::Nfs3(_) => singles::create_directories(self, caller, directories).await,
        }
    }

    /// Removes names of files, or of empty directories if `directories`.
    pub async fn remove_many(
        &self,
        caller: &Caller,
        names: &[(FileHandle, &[u8])],
        directories: bool,
    ) -> Vec<Result<(), OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.remove_many(caller, names).await,
            Protocol::Nfs3(_) => singles::remove(self, caller, names, directories).await,
        }
    }

    /// Sets attributes of objects. A size is set without an open, which share reservations of others may forbid.
    pub async fn set_attributes_many(
        &self,
        caller: &Caller,
        objects: &[(FileHandle, SetAttributes)],
    ) -> Vec<Result<Attributes, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => {
                let outcomes = nfs4.set_attributes_many(caller, objects).await;
                // Caches do not learn of the changes.
                objects.iter().for_each(|(handle, _)| _ = nfs4.delegations.give_back(handle));
                outcomes
            }
            Protocol::Nfs3(_) => singles::set_attributes(self, caller, objects).await,
        }
    }
}
