use super::inode::{Inode, SETGID, change};
use super::permission::{WRITE, owns, permits, require_owner, require_write};
use super::state::{State, clear_set_id, drop_privileges};
use crate::{Authority, Change, Context, Credentials, Error, Result, SetAttributes, SetTime, Timestamp};

/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;

impl State {
    /// Sets all attributes, or none: everything is checked first.
    pub(super) fn setattr(
        &mut self,
        context: &Context,
        file: u64,
        set: &SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Result<Change> {
        let before = self.attributes(file);
        // RFC 1813 §3.3.2: "If the values are different, the server must preserve the object attributes and must return
        // a status of NFS3ERR_NOT_SYNC."
        if guard.is_some_and(|guard| guard != before.changed) {
            return Err(Error::NotSync);
        }
        self.check(&context.credentials, self.inode(file), set, authority)?;
        let set = &set.for_kind(before.kind);
        if set.is_empty() {
            return Ok(change(&before, before));
        }
        let inode = self.table.get(file).expect("the file was resolved");
        if let Some(uid) = set.uid {
            self.space.give(inode.uid, uid, inode.charged())?;
        }
        if set.size.is_some() {
            self.made_stable(file);
        }
        let inode = self.table.get_mut(file).expect("the file was resolved");
        set_owner(&context.credentials, inode, set);
        set_mode(&context.credentials, inode, set);
        if let Some(size) = set.size {
            let kept = inode.charged();
            inode.pages_mut()?.truncate(size);
            drop_privileges(&context.credentials, inode);
            inode.modified = context.now;
            self.space.refund(inode.uid, kept - inode.charged());
        }
        set_times(inode, set, context.now);
        match kept(set) {
            None => inode.attributes_changed(context.now),
            Some(Some(modified)) => inode.attributes_changed(modified),
            // RFC 9754 §5: "A change in the access time MUST NOT advance the change time".
            Some(None) => {}
        }
        Ok(change(&before, self.attributes(file)))
    }

    fn check(
        &self,
        who: &Credentials,
        inode: &Inode,
        set: &SetAttributes,
        authority: Authority,
    ) -> Result<()> {
        if set.mode.is_some() {
            require_owner(who, inode)?;
        }
        check_owner(who, inode, set)?;
        if let Some(size) = set.size {
            inode.pages()?;
            require_write(who, inode, authority)?;
            if size > self.max_file_size {
                return Err(Error::TooLarge);
            }
        }
        for time in [set.accessed, set.modified].into_iter().flatten() {
            check_time(who, inode, time)?;
        }
        Ok(())
    }
}

/// Returns the time of modification if only times from a delegation are set.
fn kept(set: &SetAttributes) -> Option<Option<Timestamp>> {
    let times = SetAttributes { accessed: set.accessed, modified: set.modified, ..SetAttributes::default() };
    let is_kept = |time: Option<SetTime>| matches!(time, None | Some(SetTime::Kept(_)));
    let is_all = *set == times && is_kept(set.accessed) && is_kept(set.modified);
    is_all.then_some(match set.modified {
        Some(SetTime::Kept(time)) => Some(time),
        _ => None,
    })
}

// POSIX.1-2024 chown() with _POSIX_CHOWN_RESTRICTED: only a privileged process changes the owner; the owner may give
// the file to a group that it is in.
fn check_owner(who: &Credentials, inode: &Inode, set: &SetAttributes) -> Result<()> {
    let keeps_owner = set.uid.is_none_or(|uid| uid == inode.uid);
    let may_group = set.gid.is_none_or(|gid| gid == inode.gid || who.is_in_group(gid));
    let changes = set.uid.is_some() || set.gid.is_some();
    if who.is_root() || !changes || (owns(who, inode) && keeps_owner && may_group) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

// POSIX.1-2024 futimens(): to the current time for the owner and for who may write (EACCES), to another for the owner
// alone (EPERM).
fn check_time(who: &Credentials, inode: &Inode, time: SetTime) -> Result<()> {
    match time {
        SetTime::To(time) | SetTime::Kept(time) if time.nanoseconds >= SECOND_NS => Err(Error::Invalid),
        SetTime::Now | SetTime::Kept(_) if owns(who, inode) || permits(who, inode, WRITE) => Ok(()),
        SetTime::Now | SetTime::Kept(_) => Err(Error::Access),
        SetTime::To(_) => require_owner(who, inode),
    }
}

// POSIX.1-2024 chown(): for a regular file the set-id bits are cleared; for the superuser that is
// implementation-defined, and Linux clears them too.
fn set_owner(who: &Credentials, inode: &mut Inode, set: &SetAttributes) {
    if set.uid.is_none() && set.gid.is_none() {
        return;
    }
    if !inode.is_directory() {
        clear_set_id(who, inode);
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
}

/// After the owner, so that a mode that is set together with it stays.
fn set_mode(who: &Credentials, inode: &mut Inode, set: &SetAttributes) {
    if let Some(mode) = set.mode {
        inode.set_permissions(mode & 0o7777);
        // POSIX.1-2024 chmod(): without privilege, and outside the file's group, set-group-id is cleared.
        if !who.is_root() && !who.is_in_group(inode.gid) {
            inode.mode &= !SETGID;
        }
    }
}

/// Sets times. RFC 8881 §18.16.3: the client sets attributes of an exclusively created file, so the verifier is of no use then.
pub(super) fn set_times(inode: &mut Inode, set: &SetAttributes, now: Timestamp) {
    let resolve = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::To(time) | SetTime::Kept(time) => time,
    };
    inode.accessed = set.accessed.map_or(inode.accessed, resolve);
    inode.modified = set.modified.map_or(inode.modified, resolve);
    inode.verifier = inode.verifier.filter(|_| set.modified.is_none());
}

/// Checks times of a new object, whose owner is its creator.
pub(super) fn check_new_times(set: &SetAttributes) -> Result<()> {
    let good = |time: Option<SetTime>| match time {
        Some(SetTime::To(time) | SetTime::Kept(time)) => time.nanoseconds < SECOND_NS,
        _ => true,
    };
    if good(set.accessed) && good(set.modified) { Ok(()) } else { Err(Error::Invalid) }
}
