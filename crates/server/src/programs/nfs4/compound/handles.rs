//! The current and the saved file handle of a compound, and their stateids (RFC 8881 §16.2.3.1).

use protocol::nfs4::types::{Stateid, Status};
use vfs::Attributes;

use super::Compound;
use crate::exports::pseudo::Node;
use crate::files::object::{File, Object};
use crate::programs::nfs4::attributes;
use crate::programs::nfs4::status::{Failure, Result};
use crate::state::SavedReply;

/// A current or saved file handle.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileHandle<'r> {
    /// An object of this server.
    Own(Object<'r>),
    /// The handle of another server, as received.
    Foreign(&'r [u8]),
}

impl<'r> FileHandle<'r> {
    /// Returns the object. RFC 7862 §15.2.3: handles "may be validated in the context of the operation referencing them and an
    /// NFS4ERR_STALE error returned for an invalid filehandle at that point".
    fn own(self) -> Result<Object<'r>> {
        match self {
            Self::Own(object) => Ok(object),
            Self::Foreign(_) => Err(Status::STALE.into()),
        }
    }
}

impl<'r> Compound<'r> {
    /// Returns the object of the current file handle.
    pub(crate) fn current(&self) -> Result<Object<'r>> {
        self.current.ok_or(Failure::Status(Status::NOFILEHANDLE))?.own()
    }

    /// As [`Self::current`], but fails with `pseudo` for an object of the pseudo file system.
    pub(crate) fn file(&self, pseudo: Status) -> Result<File<'r>> {
        match self.current()? {
            Object::File(file) => Ok(file),
            Object::Pseudo(_) => Err(pseudo.into()),
        }
    }

    /// As [`Self::file`], but fails with ROFS on a read-only export.
    pub(crate) fn writable(&self, pseudo: Status) -> Result<File<'r>> {
        let file = self.file(pseudo)?;
        if file.export.options.read_only { Err(Status::ROFS.into()) } else { Ok(file) }
    }

    /// Returns the saved file handle's object.
    pub(crate) fn saved(&self) -> Result<Object<'r>> {
        self.saved_handle()?.own()
    }

    /// Returns the saved file handle of a COPY from another server.
    pub(crate) fn saved_handle(&self) -> Result<FileHandle<'r>> {
        self.saved.map(|(handle, _)| handle).ok_or(Failure::Status(Status::NOFILEHANDLE))
    }

    /// Makes another server's handle current; only SAVEFH and COPY accept it.
    pub(crate) fn set_foreign(&mut self, handle: &'r [u8]) {
        self.current = Some(FileHandle::Foreign(handle));
        self.stateid = Stateid::ANONYMOUS;
        self.fresh = None;
    }

    /// Makes `object` current.
    ///
    /// RFC 8881 §16.2.3.1.2: "If an operation sets the current filehandle but does not return a stateid, the current
    /// stateid MUST be set to the all-zeros special stateid".
    pub(crate) fn set_current(&mut self, object: Object<'r>, fresh: Option<Attributes>) {
        self.current = Some(FileHandle::Own(object));
        self.stateid = Stateid::ANONYMOUS;
        self.fresh = fresh;
    }

    /// Makes the file of a repeated OPEN current.
    ///
    /// # Errors
    /// STALE if the export was removed or no longer permits this client, as for PUTFH. WRONGSEC if the call uses none of its flavors:
    /// a replay ends before OPEN itself checks that.
    pub(crate) fn make_current_again(&mut self, saved: &SavedReply) -> std::result::Result<(), Status> {
        let Some((id, handle)) = saved.current else { return Ok(()) };
        let export = self.export(id);
        let export = export.ok_or(Status::STALE)?;
        if self.request.is_port_refused(export) {
            return Err(Status::PERM);
        }
        let object = Object::File(File::new(export, handle));
        if !self.allows(&object) {
            return Err(Status::WRONGSEC);
        }
        self.set_current(object, None);
        Ok(())
    }

    /// Clears the current file handle, as SECINFO does.
    pub(crate) fn consume_current(&mut self) {
        self.current = None;
        self.stateid = Stateid::ANONYMOUS;
        self.fresh = None;
    }

    /// SAVEFH: "save and restore both the current filehandle and the current stateid as a set" (§16.2.3.1.2).
    pub(crate) fn save(&mut self) -> Result {
        let current = self.current.ok_or(Failure::Status(Status::NOFILEHANDLE))?;
        self.saved = Some((current, self.stateid));
        Ok(())
    }

    /// RESTOREFH.
    pub(crate) fn restore(&mut self) -> Result {
        let (handle, stateid) = self.saved.ok_or(Failure::Status(Status::NOFILEHANDLE))?;
        (self.current, self.stateid, self.fresh) = (Some(handle), stateid, None);
        Ok(())
    }

    /// Makes `stateid` current: "If an operation returns a stateid, it MUST set the current stateid to the returned
    /// value" (RFC 8881 §16.2.3.1.2).
    pub(crate) fn set_stateid(&mut self, stateid: Stateid) {
        self.stateid = stateid;
    }

    /// Returns the stateid that an operation names: for (1, 0) the current one, with seqid zero.
    ///
    /// RFC 8881 §8.2.3: "The stateid passed to the operation in place of the special value has its "seqid" value set to zero,
    /// except when the current stateid is used by the operation CLOSE or OPEN_DOWNGRADE"; those call
    /// [`Self::exact_stateid`].
    ///
    /// # Errors
    /// BAD_STATEID if the current one is special ("a disallowed use of the current stateid", §16.2.3.1.2).
    pub(crate) fn stateid(&self, given: Stateid) -> Result<Stateid> {
        let meant = self.exact_stateid(given)?;
        Ok(if self.is_current(given) { Stateid { seqid: 0, ..meant } } else { meant })
    }

    /// As [`Self::stateid`], with the current one's seqid.
    ///
    /// # Errors
    /// As [`Self::stateid`].
    pub(crate) fn exact_stateid(&self, given: Stateid) -> Result<Stateid> {
        if !self.is_current(given) {
            return Ok(given);
        }
        if self.stateid.is_special() { Err(Status::BAD_STATEID.into()) } else { Ok(self.stateid) }
    }

    fn is_current(&self, given: Stateid) -> bool {
        given == Stateid::CURRENT && self.minor > 0
    }

    /// Drops the attributes of the current object: they may have changed.
    pub(crate) fn forget_fresh(&mut self) {
        self.fresh = None;
    }

    /// Keeps attributes of the current object for the next operation.
    pub(crate) fn set_fresh(&mut self, attributes: Attributes) {
        self.fresh = Some(attributes);
    }

    /// Returns the attributes of the current object, if the previous operation fetched them.
    pub(crate) fn fresh(&self) -> Option<&Attributes> {
        self.fresh.as_ref()
    }

    /// Returns attributes of the current object, fetched if the previous operation did not.
    pub(crate) async fn attributes(&mut self) -> Result<Attributes> {
        if let Some(fresh) = self.fresh {
            return Ok(fresh);
        }
        let attributes = self.attributes_of(&self.current()?).await?;
        self.fresh = Some(attributes);
        Ok(attributes)
    }

    /// Returns the attributes of a directory of the pseudo file system.
    pub(crate) fn pseudo_attributes(&self, node: &Node) -> Attributes {
        let (peer, exports) = (self.request.connection.peer.ip(), self.exports());
        exports.pseudo().attributes(node, exports, peer, self.request.now.wall)
    }

    /// Fetches the attributes of an object.
    pub(crate) async fn attributes_of(&self, object: &Object<'_>) -> Result<Attributes> {
        match object {
            Object::Pseudo(node) => Ok(self.pseudo_attributes(node)),
            Object::File(file) => {
                let context = self.context(file.export);
                Ok(file.export.backend.getattr(&context, &file.handle).await?)
            }
        }
    }

    /// Collects the values from which attributes of an object are encoded.
    pub(crate) fn subject<'s>(
        &'s self,
        object: Object<'s>,
        attributes: &'s Attributes,
    ) -> attributes::Subject<'s> {
        let mounted_on = match &object {
            // RFC 8881 §5.8.2.23: at the root of a file system, the fileid of the directory it is mounted on. The root of the tree
            // is mounted on nothing.
            Object::File(file) if file.is_root() => {
                let mount = self.exports().pseudo().mount_of(file.export.id);
                let inside =
                    || self.exports().junction_of(file.export.id).map(|inside| inside.covered_fileid);
                mount.map_or_else(inside, |node| (!node.is_root()).then_some(node.id))
            }
            _ => None,
        };
        attributes::Subject {
            settings: self.server().settings(),
            minor: self.minor,
            object,
            attributes,
            space: attributes::NO_SPACE,
            mounted_on: mounted_on.unwrap_or(attributes.fileid),
            acl: None,
            error: Status::OK,
        }
    }
}
