//! Attributes of objects.

use std::sync::atomic::Ordering;

use rustix::fs::{Stat, Statx};
use vfs::{Attributes, Error, FileKind, Result};

use crate::attributes::{
    Snapshot, attributes, attributes_of_stat, changed, changed_of_stat, created, device_of, is_immutable,
    kind_of, status,
};
use crate::change::{CoarseTime, nanoseconds};
use crate::errno::translate;
use crate::index::FileKey;
use crate::object::Object;
use crate::volume::{Handles, Volume};

impl Volume {
    /// Returns the current attributes.
    ///
    /// # Errors
    /// [`Error::Stale`] if the object has lost its last name and no open holds it.
    pub(crate) fn stat(&self, object: &Object) -> Result<Snapshot> {
        self.observe(object, false)
    }

    /// Returns the attributes just after a change through this server.
    pub(crate) fn stat_after(&self, object: &Object) -> Result<Snapshot> {
        self.observe(object, true)
    }

    fn observe(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        // After a change of a file, whether it is immutable is needed too (WRITE itself reads it before, see
        // `batch_attrs`), and the index needs the time of creation.
        let is_sealed_wanted = own_change && object.kind == FileKind::Regular;
        if !is_sealed_wanted && self.can_use_fstat() {
            return self.fstat_snapshot(object, own_change);
        }
        self.statx_snapshot(object, own_change)
    }

    /// Returns whether fstat(2), which is faster, returns all that this volume needs.
    pub(crate) fn can_use_fstat(&self) -> bool {
        matches!(self.handles, Handles::Kernel { .. }) && !self.changes.is_coarse()
    }

    /// Returns the attributes, and whether the object is immutable, by statx(2).
    pub(crate) fn statx_snapshot(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        let moment = self.changes.coarse_time();
        let status = object.lend(status).map_err(translate)?;
        self.require_name(object, status.stx_nlink)?;
        if let Handles::Indexed { index, .. } = &self.handles {
            index.confirm(&object.handle, &self.file_key(&status, object.fsid));
        }
        Ok(self.snapshot(object, &status, moment, own_change))
    }

    /// Returns the attributes by fstat(2).
    fn fstat_snapshot(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        let moment = self.changes.coarse_time();
        let status = object.lend(|fd| rustix::fs::fstat(fd)).map_err(translate)?;
        self.snapshot_of_fstat(object, &status, moment, own_change)
    }

    /// Converts the result of fstat(2), which was called after `moment`.
    #[inline]
    pub(crate) fn snapshot_of_fstat(
        &self,
        object: &Object,
        status: &Stat,
        moment: CoarseTime,
        own_change: bool,
    ) -> Result<Snapshot> {
        self.require_name(object, u32::from(status.st_nlink != 0))?;
        let changed = changed_of_stat(status);
        let is_directory = object.kind == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (object.key, is_directory), changed, own_change);
        Ok(Snapshot {
            attributes: attributes_of_stat(status, object.created, object.fsid, change),
            immutable: None,
            settled: self.changes.is_settled(moment, changed),
        })
    }

    /// Returns whether no user may write the object, not even root. This cannot change without the change time.
    pub(crate) fn is_immutable(&self, object: &Object, snapshot: &Snapshot) -> Result<bool> {
        if let Some(immutable) = snapshot.immutable {
            return Ok(immutable);
        }
        let known = object.immutable.load(Ordering::Relaxed);
        if known != 0 && known & !1 == nanoseconds(snapshot.attributes.changed) << 1 {
            return Ok(known & 1 != 0);
        }
        let moment = self.changes.coarse_time();
        let status = object.lend(status).map_err(translate)?;
        self.remember_immutable(object, &status, moment);
        Ok(is_immutable(&status))
    }

    fn remember_immutable(&self, object: &Object, status: &Statx, moment: CoarseTime) {
        let changed = changed(status);
        // Directories that share change times with files are not trusted here.
        let is_own = object.kind != FileKind::Directory || self.changes.is_steady();
        if is_own && self.changes.is_settled(moment, changed) {
            let known = nanoseconds(changed) << 1 | u64::from(is_immutable(status));
            object.immutable.store(known, Ordering::Relaxed);
        }
    }

    /// Fails for an object that has lost its last name while no open holds it.
    fn require_name(&self, object: &Object, links: u32) -> Result<()> {
        if links == 0 && self.counts_links && object.release() {
            self.forget(object);
            return Err(Error::Stale);
        }
        Ok(())
    }

    /// Converts the result of statx(2), which was called after `moment`.
    pub(crate) fn snapshot(
        &self,
        object: &Object,
        status: &Statx,
        moment: CoarseTime,
        own_change: bool,
    ) -> Snapshot {
        let changed = changed(status);
        let is_directory = object.kind == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (object.key, is_directory), changed, own_change);
        self.remember_immutable(object, status, moment);
        Snapshot {
            attributes: attributes(status, object.fsid, change),
            immutable: Some(is_immutable(status)),
            settled: self.changes.is_settled(moment, changed),
        }
    }

    /// Returns the attributes of an object that is not cached.
    pub(crate) fn attributes_of_status(&self, moment: CoarseTime, status: &Statx, fsid: u64) -> Attributes {
        let key = (device_of(status), status.stx_ino);
        let is_directory = kind_of(status.stx_mode) == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (key, is_directory), changed(status), false);
        attributes(status, fsid, change)
    }

    pub(crate) fn file_key(&self, status: &Statx, fsid: u64) -> FileKey {
        let created = created(status).unwrap_or_default();
        FileKey { fsid, inode: status.stx_ino, created }
    }
}
