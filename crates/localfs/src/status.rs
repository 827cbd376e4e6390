//! Attributes of objects.

use std::sync::atomic::Ordering;

use rustix::fs::{Stat, Statx};
use vfs::{Attributes, Error, FileKind, Result};

use crate::attributes::{
    Snapshot, attributes, attributes_of_stat, changed, changed_of_stat, device_of, is_sealed, kind_of, status,
};
use crate::change::{Moment, nanoseconds};
use crate::errno::translate;
use crate::object::Object;
use crate::volume::{Handles, Volume};

impl Volume {
    /// Attributes as of now.
    ///
    /// # Errors
    /// [`Error::Stale`] where the object has lost its last name and no open holds it.
    pub(crate) fn stat(&self, object: &Object) -> Result<Snapshot> {
        self.observe(object, false)
    }

    /// Attributes just after a change that this server made.
    pub(crate) fn stat_after(&self, object: &Object) -> Result<Snapshot> {
        self.observe(object, true)
    }

    fn observe(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        // After a change one wants to know whether a write may follow (WRITE itself asks before: `seen`); and the index wants to know of
        // creation times.
        let is_sealed_wanted = own_change && object.kind == FileKind::Regular;
        if !is_sealed_wanted && self.may_glance() {
            return self.glance(object, own_change);
        }
        self.stat_whole(object, own_change)
    }

    /// Whether the faster call tells all that this volume has to know.
    pub(crate) fn may_glance(&self) -> bool {
        matches!(self.handles, Handles::Kernel { .. }) && !self.changes.is_coarse()
    }

    /// Attributes, and whether it is sealed.
    pub(crate) fn stat_whole(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        let moment = self.changes.moment();
        let status = object.lend(status).map_err(translate)?;
        self.require_name(object, status.stx_nlink)?;
        if let Handles::Indexed { index, .. } = &self.handles {
            index.confirm(&object.handle, &self.file_key(&status, object.fsid));
        }
        Ok(self.snapshot(object, &status, moment, own_change))
    }

    /// Attributes without a word on whether it is sealed, by the faster call.
    fn glance(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        let moment = self.changes.moment();
        let status = object.lend(|fd| rustix::fs::fstat(fd)).map_err(translate)?;
        self.glanced(object, &status, moment, own_change)
    }

    /// What fstat(2), called after `moment`, says of `object`.
    #[inline]
    pub(crate) fn glanced(
        &self,
        object: &Object,
        status: &Stat,
        moment: Moment,
        own_change: bool,
    ) -> Result<Snapshot> {
        self.require_name(object, u32::from(status.st_nlink != 0))?;
        let changed = changed_of_stat(status);
        let is_directory = object.kind == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (object.key, is_directory), changed, own_change);
        Ok(Snapshot {
            attributes: attributes_of_stat(status, object.created, object.fsid, change),
            sealed: None,
            settled: self.changes.is_settled(moment, changed),
        })
    }

    /// Whether nobody may write an object any more, root included. A seal cannot change without the change time.
    pub(crate) fn is_sealed(&self, object: &Object, snapshot: &Snapshot) -> Result<bool> {
        if let Some(sealed) = snapshot.sealed {
            return Ok(sealed);
        }
        let known = object.sealed.load(Ordering::Relaxed);
        if known != 0 && known & !1 == nanoseconds(snapshot.attributes.changed) << 1 {
            return Ok(known & 1 != 0);
        }
        let moment = self.changes.moment();
        let status = object.lend(status).map_err(translate)?;
        self.remember_seal(object, &status, moment);
        Ok(is_sealed(&status))
    }

    fn remember_seal(&self, object: &Object, status: &Statx, moment: Moment) {
        let changed = changed(status);
        // Directories that may share change times with files are not trusted here.
        let is_own = object.kind != FileKind::Directory || self.changes.is_steady();
        if is_own && self.changes.is_settled(moment, changed) {
            let known = nanoseconds(changed) << 1 | u64::from(is_sealed(status));
            object.sealed.store(known, Ordering::Relaxed);
        }
    }

    /// Fails for what has lost its last name while no open holds it.
    fn require_name(&self, object: &Object, links: u32) -> Result<()> {
        if links == 0 && self.counts_links && object.let_go() {
            self.forget(object);
            return Err(Error::Stale);
        }
        Ok(())
    }

    /// What `status`, taken after `moment`, says of `object`.
    pub(crate) fn snapshot(
        &self,
        object: &Object,
        status: &Statx,
        moment: Moment,
        own_change: bool,
    ) -> Snapshot {
        let changed = changed(status);
        let is_directory = object.kind == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (object.key, is_directory), changed, own_change);
        self.remember_seal(object, status, moment);
        Snapshot {
            attributes: attributes(status, object.fsid, change),
            sealed: Some(is_sealed(status)),
            settled: self.changes.is_settled(moment, changed),
        }
    }

    /// Attributes of what is not kept.
    pub(crate) fn seen(&self, moment: Moment, status: &Statx, fsid: u64) -> Attributes {
        let key = (device_of(status), status.stx_ino);
        let is_directory = kind_of(status.stx_mode) == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (key, is_directory), changed(status), false);
        attributes(status, fsid, change)
    }
}
