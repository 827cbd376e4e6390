//! SETATTR: checked as a whole before anything is changed, then done as the caller, so that the kernel checks again.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;
use vfs::{
    Attributes, Authority, Change, Context, Error, Handle, Op, Result, SetAttributes, SetTime, Timestamp,
};

use super::watch_entries::access_time_was_set;
use super::write::require_page;
use crate::attributes::Snapshot;
use crate::blocking::OpKind;
use crate::durable::SyncCaller;
use crate::errno::translate;
use crate::nonblocking;
use crate::object::{Object, OpenFile, Reach};
use crate::permission::{WRITE, owns};
use crate::sync_state::ChangeId;
use crate::sys;
use crate::volume::Volume;

/// Size of a file in bytes from which truncation runs on threads for long work.
const MANY_BYTES: u64 = 64 << 20;
const SECOND_NS: u32 = 1_000_000_000;

impl Volume {
    pub(crate) fn setattr<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Op<'a, Change> {
        let make_job = || {
            let (context, file, set) = (context.clone(), *file, *set);
            move |volume: &Arc<Self>| volume.setattr_now(&context, &file, &set, guard, authority)
        };
        let in_place = || self.setattr_now(context, file, set, guard, authority);
        let caller = SyncCaller::of(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |done| match done {
            (object, change, Some(number)) => self.answer_when_durable(caller, [(object, number)], change),
            (_, change, None) => Op::ok(change),
        })
    }

    fn setattr_now(
        &self,
        context: &Context,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Result<(Arc<Object>, Change, Option<ChangeId>)> {
        let object = self.object(file)?;
        let (change, number) = self.setattr_cached(context, &object, set, guard, authority)?;
        Ok((object, change, number))
    }

    /// Sets attributes of an object. The change is `None` if nothing changed.
    pub(crate) fn setattr_cached(
        &self,
        context: &Context,
        object: &Arc<Object>,
        set: &SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Result<(Change, Option<ChangeId>)> {
        let _lock = self.lock(object)?;
        let before = self.stat(object)?;
        // RFC 1813 §3.3.2: "If the server's ctime … does not match, the server … returns NFS3ERR_NOT_SYNC".
        if guard.is_some_and(|guard| guard != before.attributes.changed) {
            return Err(Error::NotSync);
        }
        if set.is_empty() {
            return Ok((Self::no_change(&before), None));
        }
        self.check_setattr(context, object, &before, set, authority)?;
        let set = &self.without_foreign_set_ids(context, object.kind, &set.for_kind(object.kind));
        if set.is_empty() {
            return Ok((Self::no_change(&before), None));
        }
        // Opened by the server, before this thread acts as the caller, whose permission has been checked.
        let (writable, pending) = match set.size {
            Some(size) => {
                let (file, pending) = self.begin_write(object)?;
                self.require_quick_resize(object, &file, &before.attributes, size)?;
                (Some(file), pending)
            }
            None => (None, object.sync_state.begin_change()),
        };
        self.apply(context, object, &before, set, writable)?;
        let number = pending.finish();
        Ok((self.change_since(object, &before.attributes)?, Some(number)))
    }

    fn check_setattr(
        &self,
        context: &Context,
        object: &Object,
        before: &Snapshot,
        set: &SetAttributes,
        authority: Authority,
    ) -> Result<()> {
        self.require_writable()?;
        let (who, file) = (&*context.credentials, &before.attributes);
        if set.mode.is_some() && !owns(who, file) {
            return Err(Error::NotPermitted);
        }
        // POSIX.1-2024 chown() with _POSIX_CHOWN_RESTRICTED: only a privileged process changes the owner; the owner may give
        // the file to a group that it is in.
        if set.uid.is_some() || set.gid.is_some() {
            let keeps_owner = set.uid.is_none_or(|uid| uid == file.uid);
            let may_group = set.gid.is_none_or(|gid| gid == file.gid || who.is_in_group(gid));
            let may = who.is_root() || (owns(who, file) && keeps_owner && may_group);
            if !may {
                return Err(Error::NotPermitted);
            }
        }
        if let Some(size) = set.size {
            object.require_regular()?;
            self.require_write(context, object, before, authority)?;
            if size > self.properties.max_file_size {
                return Err(Error::TooLarge);
            }
        }
        check_time_values(set)?;
        for time in [set.accessed, set.modified].into_iter().flatten() {
            match time {
                _ if owns(who, file) => {}
                // POSIX.1-2024 futimens(): to now for callers that may write (EACCES), to another time for the owner only (EPERM).
                SetTime::Now | SetTime::Kept(_) => self.require(context, object, before, WRITE)?,
                SetTime::To(_) => return Err(Error::NotPermitted),
            }
        }
        Ok(())
    }

    /// Fails if truncating or extending the file may block: if blocks to free are not known in memory, or
    /// are many, or if the page at the old or the new end is not cached.
    ///
    /// # Errors
    /// See [`nonblocking::require_blocking`].
    fn require_quick_resize(
        &self,
        object: &Object,
        file: &OpenFile,
        before: &Attributes,
        size: u64,
    ) -> Result<()> {
        // In memory each page is freed too.
        if size < before.size && before.used >= MANY_BYTES {
            nonblocking::require_long_lane()?;
        }
        if nonblocking::may_block() || size == before.size || self.is_in_memory {
            return Ok(());
        }
        self.require_known_blocks(object, before)?;
        require_page(object, file, before.size, size.min(before.size))
    }

    fn apply(
        &self,
        context: &Context,
        object: &Object,
        before: &Snapshot,
        set: &SetAttributes,
        writable: Option<Arc<OpenFile>>,
    ) -> Result<()> {
        self.act_as(context)?;
        let file = object.file();
        if set.uid.is_some() || set.gid.is_some() {
            set_owner(&file, set)?;
        }
        if let Some(mode) = set.mode {
            set_mode(&file, mode & 0o7777)?;
        }
        if let (Some(size), Some(writable)) = (set.size, writable) {
            rustix::fs::ftruncate(&writable, size).map_err(translate)?;
        }
        if set.accessed.is_some() || set.modified.is_some() {
            if !owns(&context.credentials, &before.attributes) {
                // A caller with write permission may set one time to now; utimensat(2) allows that only for both at
                // once.
                self.act_as_server();
            }
            set_times(&file, set)?;
        }
        Ok(())
    }
}

/// Fails for times with an invalid number of nanoseconds.
pub(crate) fn check_time_values(set: &SetAttributes) -> Result<()> {
    let is_good = |time: Option<SetTime>| match time {
        Some(SetTime::To(time) | SetTime::Kept(time)) => time.nanoseconds < SECOND_NS,
        _ => true,
    };
    if is_good(set.accessed) && is_good(set.modified) { Ok(()) } else { Err(Error::Invalid) }
}

/// chown(2) of the open object.
pub(crate) fn set_owner(file: &OpenFile, set: &SetAttributes) -> Result<()> {
    // The kernel takes the id of all ones as "leave it unchanged", and no user has it.
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(Error::Invalid);
    }
    let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
    rustix::fs::chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(translate)
}

/// chmod(2) of the open object.
pub(crate) fn set_mode(file: &OpenFile, mode: u32) -> Result<()> {
    let mode_bits = Mode::from_raw_mode(mode);
    let done = match file.reach {
        Reach::Path => match sys::chmod(file.as_fd(), mode) {
            // Before Linux 6.6, or in a sandbox that does not know the call: by its path in /proc.
            Err(Errno::NOSYS | Errno::PERM) => {
                rustix::fs::chmodat(CWD, file.name_in_proc(), mode_bits, AtFlags::empty())
            }
            other => other,
        },
        _ => rustix::fs::fchmod(file, mode_bits),
    };
    done.map_err(translate)
}

/// utimensat(2) of the open object.
pub(crate) fn set_times(file: &OpenFile, set: &SetAttributes) -> Result<()> {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let resolve = |time: Option<SetTime>| match time {
        None => special(UTIME_OMIT),
        Some(SetTime::Now) => special(UTIME_NOW),
        Some(SetTime::To(time) | SetTime::Kept(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
        }
    };
    let times = Timestamps { last_access: resolve(set.accessed), last_modification: resolve(set.modified) };
    let set_them = rustix::fs::utimensat(file, c"", &times, AtFlags::EMPTY_PATH).map_err(translate);
    if set.accessed.is_some() && set.modified.is_none() {
        access_time_was_set();
    }
    set_them
}
