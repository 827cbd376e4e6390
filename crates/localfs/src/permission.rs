//! Checks a caller's permissions in user space, from one statx(2).
//!
//! Names are created, removed, moved and looked up as the caller, and the kernel checks permissions. READ and WRITE
//! use descriptors that the server keeps open for all callers. They are checked here for every request, so that a
//! descriptor that was opened for one caller gives no access to another.
//!
//! Without an ACL only permission bits count. Whether there is one is read once and remembered while the
//! change time is the same (an ACL cannot change without it). If there is one, the kernel checks as the caller.

use std::sync::atomic::Ordering;

use rustix::io::Errno;
use vfs::{Attributes, Authority, Context, Credentials, Error, FileKind, Result, SetAttributes};

use crate::acl;
use crate::attributes::Snapshot;
use crate::change::nanoseconds;
use crate::errno::translate;
use crate::identity;
use crate::object::Object;
use crate::sys;
use crate::volume::{Actor, Volume};
use crate::xattr_target::{Target, read_whole};

/// Permission to read, in the bits of access(2) and of a mode's last digit.
pub(crate) const READ: u32 = 4;
/// Permission to write.
pub(crate) const WRITE: u32 = 2;
/// Permission to execute, or to search a directory.
pub(crate) const EXECUTE: u32 = 1;

pub(crate) const STICKY: u32 = 0o1000;
pub(crate) const SET_USER_ID: u32 = 0o4000;
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
/// The bits that let a program run with the permissions of its owner or its group.
pub(crate) const SET_IDS: u32 = SET_USER_ID | SET_GROUP_ID;

/// Returns whether the permission bits grant `who` all of `want`.
pub(crate) fn mode_grants(who: &Credentials, file: &Attributes, want: u32) -> bool {
    if who.is_root() {
        // On Linux, root may execute a file that any user may execute, and search every directory.
        return want & EXECUTE == 0 || file.kind == FileKind::Directory || file.mode & 0o111 != 0;
    }
    let class = if who.uid == file.uid {
        file.mode >> 6
    } else if who.is_in_group(file.gid) {
        file.mode >> 3
    } else {
        file.mode
    };
    class & want == want
}

/// Returns whether `who` is the owner or root.
pub(crate) fn owns(who: &Credentials, file: &Attributes) -> bool {
    who.is_root() || who.uid == file.uid
}

impl Volume {
    /// Prepares this thread for calls in `directory` that the kernel checks as the caller. If the server can act
    /// only as itself, other callers are checked here, in addition to the kernel's check of the server.
    ///
    /// # Errors
    /// [`Error::Access`] if the caller lacks `want` on the directory.
    pub(crate) fn enter(&self, context: &Context, directory: &Object, want: u32) -> Result<()> {
        match &self.actor {
            Actor::Callers => identity::become_caller(&context.credentials),
            Actor::Itself { uid, .. } if context.credentials.uid == *uid => Ok(()),
            Actor::Itself { .. } => {
                let snapshot = self.stat(directory)?;
                self.require(context, directory, &snapshot, want)
            }
        }
    }

    /// Returns `set` without the set-ID bits that a foreign caller may not give.
    ///
    /// An object that a foreign caller creates belongs to the server's own user: such a bit would let every local
    /// user who can run the file act as that user. A directory keeps the set-group-ID bit, which on Linux grants
    /// nothing: it only determines the group of new entries. Set-user-ID has no meaning on a directory there.
    pub(crate) fn without_foreign_set_ids(
        &self,
        context: &Context,
        kind: FileKind,
        set: &SetAttributes,
    ) -> SetAttributes {
        let masked = match kind {
            _ if !self.is_foreign(context) => 0,
            FileKind::Directory => SET_USER_ID,
            _ => SET_IDS,
        };
        SetAttributes { mode: set.mode.map(|mode| mode & !masked), ..*set }
    }

    /// Returns whether the caller has all of `want`, by permission bits and ACL.
    pub(crate) fn may(
        &self,
        context: &Context,
        object: &Object,
        snapshot: &Snapshot,
        want: u32,
    ) -> Result<bool> {
        let who = &context.credentials;
        if want & WRITE != 0 && self.is_immutable(object, snapshot)? {
            return Ok(false);
        }
        if who.is_root() || !self.has_acl(object, snapshot)? {
            return Ok(mode_grants(who, &snapshot.attributes, want));
        }
        if self.is_foreign(context) {
            return self.acl_grants(object, who, &snapshot.attributes, want);
        }
        self.act_as(context)?;
        match object.with_fd(|fd| sys::may_access(fd, want)) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
            // Before Linux 5.8 this call does not exist, and the ACL must be read.
            Err(Errno::NOSYS) => self.acl_grants(object, who, &snapshot.attributes, want),
            Err(errno) => Err(translate(errno)),
        }
    }

    /// Fails if the caller lacks part of `want`.
    pub(crate) fn require(
        &self,
        context: &Context,
        object: &Object,
        snapshot: &Snapshot,
        want: u32,
    ) -> Result<()> {
        if self.may(context, object, snapshot, want)? { Ok(()) } else { Err(Error::Access) }
    }

    /// Fails if content may not be read. RFC 1813 §4.4: "the server's permission checking algorithm should allow
    /// the owner of a file to access it regardless of the permission setting", and "the server allows reading of
    /// files if the uid given in the call has either execute or read permission on the file", since clients page
    /// programs in by READ.
    pub(crate) fn require_read(
        &self,
        context: &Context,
        object: &Object,
        snapshot: &Snapshot,
        authority: Authority,
    ) -> Result<()> {
        let granted = authority == Authority::Opened
            || owns(&context.credentials, &snapshot.attributes)
            || self.may(context, object, snapshot, READ)?
            || self.may(context, object, snapshot, EXECUTE)?;
        if granted { Ok(()) } else { Err(Error::Access) }
    }

    /// Fails if content may not be written, with the same exception for the owner.
    pub(crate) fn require_write(
        &self,
        context: &Context,
        object: &Object,
        snapshot: &Snapshot,
        authority: Authority,
    ) -> Result<()> {
        if self.is_immutable(object, snapshot)? {
            return Err(Error::NotPermitted);
        }
        let granted = authority == Authority::Opened
            || owns(&context.credentials, &snapshot.attributes)
            || self.may(context, object, snapshot, WRITE)?;
        if granted { Ok(()) } else { Err(Error::Access) }
    }

    /// Fails if a caller that the kernel does not check may not remove `victim` from `directory`. POSIX.1-2024
    /// §4.5: in a sticky directory only the owner of the file, of the directory, or a privileged process may.
    pub(crate) fn require_removal(
        &self,
        context: &Context,
        directory: &Object,
        victim: &Attributes,
    ) -> Result<()> {
        let snapshot = self.stat(directory)?;
        self.require(context, directory, &snapshot, WRITE | EXECUTE)?;
        let who = &context.credentials;
        let is_protected = snapshot.attributes.mode & STICKY != 0;
        if is_protected && !owns(who, &snapshot.attributes) && !owns(who, victim) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    fn has_acl(&self, object: &Object, snapshot: &Snapshot) -> Result<bool> {
        if !self.has_acls || object.kind == FileKind::Symlink {
            return Ok(false);
        }
        let changed = nanoseconds(snapshot.attributes.changed) << 1;
        let known = object.acl.load(Ordering::Relaxed);
        if known != 0 && known & !1 == changed {
            return Ok(known & 1 != 0);
        }
        let has_one = match Target::of(object.file()).get(acl::ACCESS_ACL, &mut []) {
            Ok(_) => true,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
            Err(errno) => return Err(translate(errno)),
        };
        if snapshot.settled {
            object.acl.store(changed | u64::from(has_one), Ordering::Relaxed);
        }
        Ok(has_one)
    }

    fn acl_grants(&self, object: &Object, who: &Credentials, file: &Attributes, want: u32) -> Result<bool> {
        let target = Target::of(object.file());
        match read_whole(acl::MAX_ACL_BYTES, |value| target.get(acl::ACCESS_ACL, value)) {
            Ok(value) => acl::grants(&value, who, (file.uid, file.gid), want),
            // The ACL was removed in the meantime.
            Err(Errno::NODATA) => Ok(mode_grants(who, file, want)),
            Err(errno) => Err(translate(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vfs::{Device, Timestamp};

    fn file(kind: FileKind, mode: u32) -> Attributes {
        let time = Timestamp::default();
        Attributes {
            kind,
            mode,
            links: 1,
            uid: 1000,
            gid: 100,
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: 1,
            fileid: 1,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
            change: 0,
        }
    }

    fn who(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid: 5000, groups: Arc::from(groups) }
    }

    #[test]
    fn only_the_first_matching_class_counts() {
        let odd = file(FileKind::Regular, 0o047);
        assert!(
            !mode_grants(&who(1000, &[100]), &odd, READ),
            "the owner has nothing, even if others have rights"
        );
        assert!(mode_grants(&who(1001, &[100]), &odd, READ));
        assert!(
            !mode_grants(&who(1001, &[100]), &odd, WRITE),
            "the group does not have the rights of others"
        );
        assert!(mode_grants(&who(1001, &[]), &odd, READ | WRITE | EXECUTE));
    }

    #[test]
    fn the_superuser_executes_only_executable_files() {
        assert!(!mode_grants(&who(0, &[]), &file(FileKind::Regular, 0o666), EXECUTE));
        assert!(mode_grants(&who(0, &[]), &file(FileKind::Regular, 0o010), EXECUTE));
        assert!(mode_grants(&who(0, &[]), &file(FileKind::Directory, 0), READ | WRITE | EXECUTE));
    }
}
