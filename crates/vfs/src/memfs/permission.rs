//! Permission checks: mode bits, root, the owner, each with the source of its rule.

use super::inode::{Inode, STICKY};
use crate::{Access, Authority, Credentials, Error, Result};

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;

/// Returns whether the mode bits grant all of `want`. Root may not execute a file that no user may execute (POSIX.1-2024 §4.7
/// File Access Permissions).
pub(super) fn permits(who: &Credentials, inode: &Inode, want: u32) -> bool {
    if who.is_root() {
        return want & EXECUTE == 0 || inode.is_directory() || inode.mode & 0o111 != 0;
    }
    if let Some(acl) = &inode.acl {
        return acl.grants(who, (inode.uid, inode.gid), want as u8);
    }
    let class = if who.uid == inode.uid {
        6
    } else if who.is_in_group(inode.gid) {
        3
    } else {
        0
    };
    inode.mode >> class & want == want
}

pub(super) fn require(who: &Credentials, inode: &Inode, want: u32) -> Result<()> {
    if permits(who, inode, want) { Ok(()) } else { Err(Error::Access) }
}

pub(super) fn owns(who: &Credentials, inode: &Inode) -> bool {
    who.is_root() || who.uid == inode.uid
}

pub(super) fn require_owner(who: &Credentials, inode: &Inode) -> Result<()> {
    if owns(who, inode) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Fails unless content may be read.
// RFC 1813 §4.4: the owner has access regardless of the mode, and "the server allows reading of files if the uid given in
// the call has either execute or read permission on the file".
pub(super) fn require_read(who: &Credentials, inode: &Inode, authority: Authority) -> Result<()> {
    let granted = authority == Authority::Opened
        || owns(who, inode)
        || permits(who, inode, READ)
        || permits(who, inode, EXECUTE);
    if granted { Ok(()) } else { Err(Error::Access) }
}

/// Fails unless content may be written, with the same exception for the owner.
pub(super) fn require_write(who: &Credentials, inode: &Inode, authority: Authority) -> Result<()> {
    let granted = authority == Authority::Opened || owns(who, inode) || permits(who, inode, WRITE);
    if granted { Ok(()) } else { Err(Error::Access) }
}

/// Fails unless `who` may remove `victim` from `directory`. POSIX.1-2024 §4.5 Directory Protection: in a sticky directory
/// only the owner of the file, the owner of the directory or a privileged process may remove or rename.
pub(super) fn require_removal(who: &Credentials, directory: &Inode, victim: &Inode) -> Result<()> {
    require(who, directory, WRITE | EXECUTE)?;
    if directory.mode & STICKY != 0 && !owns(who, directory) && !owns(who, victim) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Returns the part of `want` that the mode bits grant. Access kinds that do not apply to the object are not granted.
/// RFC 1813 §4.4: the owner's exception "should not affect the return result of access permissions".
pub(super) fn access(who: &Credentials, inode: &Inode, want: Access, read_only: bool) -> Access {
    let write = if read_only { None } else { Some(WRITE) };
    let table: &[(Access, Option<u32>)] = if inode.is_directory() {
        let change = write.map(|write| write | EXECUTE);
        &[
            (Access::READ, Some(READ)),
            (Access::LOOKUP, Some(EXECUTE)),
            (Access::MODIFY, change),
            (Access::EXTEND, change),
            (Access::DELETE, change),
            (Access::XAREAD, Some(READ)),
            (Access::XALIST, Some(READ)),
            (Access::XAWRITE, write),
        ]
    } else {
        &[
            (Access::READ, Some(READ)),
            (Access::MODIFY, write),
            (Access::EXTEND, write),
            (Access::EXECUTE, Some(EXECUTE)),
            (Access::XAREAD, Some(READ)),
            (Access::XALIST, Some(READ)),
            (Access::XAWRITE, write),
        ]
    };
    let granted = |needs: &Option<u32>| needs.is_some_and(|needs| permits(who, inode, needs));
    table.iter().filter(|(_, needs)| granted(needs)).fold(Access::empty(), |all, (kind, _)| all | *kind)
        & want
}
