//! Objects that file handles name.

use protocol::nfs4::types::Status;
use vfs::{Context, FileKind, Handle};

use crate::exports::pseudo::Node;
use crate::replay::crash_replay::Directory;
use crate::shared::Shared;
use crate::state::FileKey;
use crate::{Export, ExportId, HandleKey, WireHandle};

/// An object that the current or saved file handle names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Object<'r> {
    /// A directory above the exports.
    Pseudo(&'r Node),
    /// An object of an export.
    File(File<'r>),
}

/// An object of an export.
#[derive(Debug, Clone, Copy)]
pub(crate) struct File<'r> {
    pub(crate) export: &'r Export,
    pub(crate) handle: Handle,
    /// The keyed hash of the handle, computed at first use.
    fingerprint: Option<u64>,
}

impl<'r> File<'r> {
    pub(crate) fn new(export: &'r Export, handle: Handle) -> Self {
        Self { export, handle, fingerprint: None }
    }

    /// As [`Self::new`], of a handle from the wire that [`HandleKey::open`] has taken.
    pub(crate) fn opened(export: &'r Export, handle: Handle, wire: &[u8]) -> Self {
        Self { export, handle, fingerprint: HandleKey::fingerprint_in(wire) }
    }

    /// Returns the root of an export.
    pub(crate) fn root(export: &'r Export) -> Self {
        Self::new(export, export.backend.root())
    }

    /// Returns whether this is the root of its export.
    pub(crate) fn is_root(&self) -> bool {
        self.handle == self.export.backend.root()
    }

    /// Returns the key of the file in the tables of opens and locks.
    ///
    /// Handles are unique (`unique_handles`) and never reused, so a keyed hash of the handle serves as the number:
    /// a query for the inode number would cost each READ a system call.
    pub(crate) fn key(&self, server: &Shared) -> FileKey {
        let make = || server.settings().handle_key.fingerprint(self.export.id, &self.handle);
        FileKey { fsid: self.export.fsid, fileid: self.fingerprint.unwrap_or_else(make) }
    }

    /// Computes the key once, for several uses.
    pub(crate) fn with_key(self, server: &Shared) -> Self {
        Self { fingerprint: Some(self.key(server).fileid), ..self }
    }

    /// Returns the object as a directory whose names change.
    pub(crate) fn place<'a>(&'a self, context: &'a Context) -> Directory<'a> {
        Directory { export: self.export, context, directory: &self.handle }
    }

    /// Another object of the same export.
    pub(crate) fn with(self, handle: Handle) -> Self {
        Self::new(self.export, handle)
    }
}

impl Object<'_> {
    /// Returns the handle for clients.
    pub(crate) fn seal(&self, key: &HandleKey) -> WireHandle {
        match self {
            Self::Pseudo(node) => key.seal(ExportId::PSEUDO, &node.handle()),
            Self::File(File { export, handle, fingerprint: Some(known) }) => {
                HandleKey::seal_known(*known, export.id, handle)
            }
            Self::File(file) => key.seal(file.export.id, &file.handle),
        }
    }
}

/// Returns the status with which operations on the content of files refuse an object of another kind.
///
/// RFC 8881 §18.22.3: "In the case that the current filehandle represents an object of type NF4DIR, NFS4ERR_ISDIR is
/// returned. If the current filehandle designates a symbolic link, NFS4ERR_SYMLINK is returned. In all other cases,
/// NFS4ERR_WRONG_TYPE is returned."
pub(crate) const fn not_regular(kind: FileKind) -> Status {
    match kind {
        FileKind::Directory => Status::ISDIR,
        FileKind::Symlink => Status::SYMLINK,
        _ => Status::WRONG_TYPE,
    }
}
