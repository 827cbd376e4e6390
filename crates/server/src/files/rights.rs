//! Rights that are checked before a delegation is recalled: a caller who may not do an operation must not cause a recall.
//!
//! ACCESS and ownership decide. An operation that is refused here is not tried at all, so that nothing changes without a query to the holder.
//! Undecided operations are let through: the backend checks each operation itself anyway. This costs only if a delegation conflicts.

use vfs::{
    Access, Attributes, Authority, Context, Error, FileKind, Handle, OpenAccess, SetAttributes, SetTime,
};

use crate::Export;
use crate::state::IoKind;

/// Mode bit of a directory in which only owners remove entries.
const STICKY: u32 = 0o1000;

/// A right that a caller needs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Right<'a> {
    /// None, or one that was checked before.
    Given,
    /// To read or write a file's content without an open.
    Content(IoKind),
    /// To open a file.
    Open(OpenAccess),
    /// To set attributes, the size by this authority.
    Attributes(&'a SetAttributes, Authority),
    /// To execute operations that only the owner may use.
    Own,
    /// To set and remove extended attributes.
    Xattrs,
    /// To create entries in this directory.
    Entries(&'a Handle),
    /// To remove an entry of this directory that leads to an object with these attributes.
    Removal(&'a Handle, &'a Attributes),
}

impl Right<'_> {
    /// Checks that the caller has the right on `object`.
    ///
    /// # Errors
    /// The error that the operation would return.
    pub(crate) async fn check(
        self,
        export: &Export,
        context: &Context,
        object: &Handle,
    ) -> Result<(), Error> {
        let judged = match self {
            Self::Given => return Ok(()),
            Self::Entries(directory) | Self::Removal(directory, _) => directory,
            _ => object,
        };
        let want = Access::READ | Access::EXECUTE | Access::MODIFY | Access::XAWRITE;
        let (granted, attributes) = export.backend.access(context, judged, want).await?;
        let owns =
            |object: &Attributes| context.credentials.is_root() || context.credentials.uid == object.uid;
        let (is_own, may_write) = (owns(&attributes), granted.contains(Access::MODIFY));
        // A caller who may execute a file may read it (RFC 8881 §6.2.1.3.1, RFC 1813 §4.4).
        let may_read = granted.intersects(Access::READ | Access::EXECUTE);
        let access = |is_allowed: bool| if is_allowed { Ok(()) } else { Err(Error::Access) };
        match self {
            Self::Given => Ok(()),
            // RFC 1813 §4.4: without an open the owner has access regardless of the mode.
            Self::Content(IoKind::Read) => access(is_own || may_read),
            Self::Content(IoKind::Write) => access(is_own || may_write),
            Self::Open(open) => access((may_read || !open.read) && (may_write || !open.write)),
            Self::Attributes(..) | Self::Own if is_own => Ok(()),
            Self::Own => Err(Error::NotPermitted),
            // Setting times needs write permission only. MODIFY on a directory includes search; XAWRITE does not.
            Self::Attributes(set, by) => {
                may_set(set, by, may_write, granted.intersects(Access::MODIFY | Access::XAWRITE))
            }
            Self::Xattrs => access(granted.contains(Access::XAWRITE)),
            // RFC 8881 §18.4.3: "If the current filehandle designates any other type of object, the error NFS4ERR_NOTDIR
            // results", whether or not the caller may write to it.
            Self::Entries(_) | Self::Removal(..) if attributes.kind != FileKind::Directory => {
                Err(Error::NotDirectory)
            }
            Self::Entries(_) => access(may_write),
            Self::Removal(_, _) if !may_write => Err(Error::Access),
            // POSIX.1-2024 §4.5: in a sticky directory only the owner of the file, of the directory, or a privileged process.
            Self::Removal(_, victim) if attributes.mode & STICKY != 0 && !is_own && !owns(victim) => {
                Err(Error::NotPermitted)
            }
            Self::Removal(..) => Ok(()),
        }
    }
}

/// Checks that a caller who does not own an object may set these attributes.
fn may_set(set: &SetAttributes, by: Authority, may_resize: bool, may_touch: bool) -> Result<(), Error> {
    if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
        return Err(Error::NotPermitted);
    }
    if set.size.is_some() && by == Authority::Caller && !may_resize {
        return Err(Error::Access);
    }
    // POSIX.1-2024 futimens(): to now for callers that may write (EACCES), to another time only for the owner (EPERM).
    for time in [set.accessed, set.modified].into_iter().flatten() {
        match time {
            SetTime::Now | SetTime::Kept(_) if may_touch => {}
            SetTime::Now | SetTime::Kept(_) => return Err(Error::Access),
            SetTime::To(_) => return Err(Error::NotPermitted),
        }
    }
    Ok(())
}
