//! CREATE, MKDIR, SYMLINK, MKNOD.
//!
//! The kernel creates as the caller, in one step with the mode. Other attributes (another owner, a size,
//! times, a verifier) follow under the directory's lock; if it fails, the name is removed again.
//!
//! The verifier of an exclusive create is an extended attribute of the file, so that it survives restarts, and no
//! SETATTR, not even one of times, can be taken for it. The times hold it, as with the Linux kernel's server, until
//! they are set, if there are no extended attributes, or if a server without root's capabilities could not read
//! one back because the new file's mode forbids its owner to read.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use vfs::{
    Attributes, Context, Create, CreateMode, Created, Error, FileKind, Handle, Op, Result, SetAttributes,
    Verifier,
};

use super::setattr::{check_time_values, set_mode, set_owner, set_times};
use super::xattr::VERIFIER;
use crate::blocking::OpKind;
use crate::durable::{ObjectChange, SyncCaller};
use crate::errno::translate;
use crate::identity::with_umask;
use crate::name::Name;
use crate::nonblocking;
use crate::object::{Object, OpenFile, Reach};
use crate::permission::{EXECUTE, SET_GROUP_ID, SET_IDS, WRITE};
use crate::volume::{Actor, Volume};

/// Longest text of a symbolic link in bytes (PATH_MAX without its NUL).
const MAX_SYMLINK_BYTES: usize = 4095;
/// Mode bits that a file has until its verifier is written: its creator must be able to write it.
const MODE_UNTIL_VERIFIED: u32 = 0o600;

/// A file that existed before, and its directory.
#[derive(Clone)]
struct ExistingFile {
    directory: Arc<Object>,
    object: Arc<Object>,
}

/// The result of a CREATE.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
enum Outcome {
    Done(Vec<ObjectChange>, Created),
    /// The file existed, and gets another size. This takes the file's own lock, so it is a separate step.
    ResizeExisting(ExistingFile, u64),
}

/// Returns whether an existing file gets another size.
fn may_resize(what: &Create, set: &SetAttributes) -> bool {
    matches!(what, Create::File(CreateMode::Unchecked)) && set.size.is_some()
}

impl Volume {
    pub(crate) fn create<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created> {
        let make_job = || {
            let (context, directory, name) = (context.clone(), *directory, name.to_vec());
            let (what, set) = (what.clone(), *set);
            move |volume: &Arc<Self>| volume.create_now(&context, &directory, &name, &what, &set)
        };
        let in_place = || self.create_now(context, directory, name, what, set);
        let caller = SyncCaller::of(context);
        let resizing = may_resize(what, set).then(|| context.clone());
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |outcome| {
            match (outcome, resizing) {
                (Outcome::Done(changes, created), _) => self.answer_when_durable(caller, changes, created),
                (Outcome::ResizeExisting(existing, size), Some(context)) => {
                    self.resize(context, Create::File(CreateMode::Unchecked), (existing, size))
                }
                (Outcome::ResizeExisting(..), None) => unreachable!("only where it was requested"),
            }
        })
    }

    fn create_now(
        &self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Outcome> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        let name = Name::new(name)?;
        let set = &self.without_foreign_set_ids(context, kind_of(what), set);
        self.require_cached_directory(&directory)?;
        let lock = self.lock(&directory)?;
        let before = self.stat_before_entry(context, &directory)?;
        self.enter(context, &directory, EXECUTE)?;
        if self.is_foreign(context) {
            match self.find(&directory, &name) {
                Err(Error::NotFound) => self.enter(context, &directory, WRITE | EXECUTE)?,
                Err(error) => return Err(error),
                Ok(_) => {
                    drop(lock);
                    return self.open_existing(context, &directory, &name, what, set);
                }
            }
        }
        let checked = check(context, &before, what, set);
        let pending = directory.sync_state.begin_change();
        let made = checked.and_then(|()| self.make(context, &directory, &name, what, set));
        let (object, attributes) = match made {
            Ok(made) => made,
            Err(error) => {
                drop((pending, lock));
                // That the name exists is reported before any other error.
                return match self.open_existing(context, &directory, &name, what, set) {
                    Err(Error::NotFound) => Err(error),
                    again => again,
                };
            }
        };
        let (number, own_number) = (self.finish_change(pending), self.finish_creation(&object));
        let created = Created {
            handle: object.handle,
            attributes,
            directory: self.change_after_entry(context, &directory, &before)?,
            is_new: true,
            verifier_in_times: has_verifier_in_times(what, &attributes),
        };
        drop(lock);
        Ok(Outcome::Done(vec![(object, own_number), (directory, number)], created))
    }

    fn make(
        &self,
        context: &Context,
        directory: &Object,
        name: &Name,
        what: &Create,
        set: &SetAttributes,
    ) -> Result<(Arc<Object>, Attributes)> {
        let file = self.make_name(directory, name, what, set)?;
        nonblocking::allow_blocking();
        let made = match file {
            Some(file) => {
                self.insert_created(file, directory, name).map(|(object, seen)| (object, Some(seen)))
            }
            None => self.find(directory, name).map(|object| (object, None)),
        };
        let finished = made.and_then(|(object, seen)| {
            let is_changed = self.finish(context, &object, what, set)?;
            let attributes = match seen {
                Some(seen) if !is_changed => seen.attributes,
                _ => self.stat_after(&object)?.attributes,
            };
            Ok((object, attributes))
        });
        if finished.is_err() {
            let flags = match what {
                Create::Directory => rustix::fs::AtFlags::REMOVEDIR,
                _ => rustix::fs::AtFlags::empty(),
            };
            // Its creator may remove it; if not, the caller gets the original error.
            let _ = self.act_as(context);
            let _ = directory.with_fd(|fd| rustix::fs::unlinkat(fd, name.as_c_str(), flags));
            // A client that has seen the name must see another change.
            let _ = self.stat_after(directory);
        }
        finished
    }

    /// Makes the system call that creates the name.
    fn make_name(
        &self,
        directory: &Object,
        name: &Name,
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Option<OpenFile>> {
        let (umask, wanted) = (set.umask.unwrap_or(0) & !mode_until_verified(what), wanted_mode(what, set));
        let mode = match what {
            Create::File(CreateMode::Exclusive(_)) => wanted & !SET_IDS | MODE_UNTIL_VERIFIED,
            _ => wanted,
        };
        with_umask(umask, |left_out| {
            let mode = Mode::from_raw_mode(mode & !left_out);
            self.make_name_of_mode(directory, name, what, mode)
        })
    }

    fn make_name_of_mode(
        &self,
        directory: &Object,
        name: &Name,
        what: &Create,
        mode: Mode,
    ) -> Result<Option<OpenFile>> {
        let node = |kind, device: vfs::Device| {
            let device = rustix::fs::makedev(device.major, device.minor);
            directory.with_fd(|fd| rustix::fs::mknodat(fd, name.as_c_str(), kind, mode, device))
        };
        let made = match what {
            Create::File(_) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                // Linux allocates the descriptor first: if it has none, no name was created.
                let fd = directory.with_fd(|fd| {
                    self.descriptors.open(|| rustix::fs::openat(fd, name.as_c_str(), flags, mode))
                });
                return fd.map(|fd| Some(self.file_of(fd, Reach::ReadWrite))).map_err(translate);
            }
            Create::Directory => directory.with_fd(|fd| rustix::fs::mkdirat(fd, name.as_c_str(), mode)),
            Create::Symlink(text) => {
                directory.with_fd(|fd| rustix::fs::symlinkat(&text[..], fd, name.as_c_str()))
            }
            Create::Fifo => node(FileType::Fifo, vfs::Device::default()),
            Create::Socket => node(FileType::Socket, vfs::Device::default()),
            Create::CharDevice(device) => node(FileType::CharacterDevice, *device),
            Create::BlockDevice(device) => node(FileType::BlockDevice, *device),
        };
        made.map(|()| None).map_err(translate)
    }

    /// Sets attributes that the kernel did not set when it created the name. Returns whether there were any.
    fn finish(&self, context: &Context, object: &Object, what: &Create, set: &SetAttributes) -> Result<bool> {
        if object.kind == FileKind::Regular {
            // It was created open for writing.
            object.last_write.store(self.round.load(Ordering::Relaxed), Ordering::Relaxed);
            self.cleanup_queue.wake();
        }
        let wanted = wanted_mode(what, set);
        let is_exclusive = matches!(what, Create::File(CreateMode::Exclusive(_)));
        let is_given = set.uid.is_some() || set.gid.is_some();
        let takes_special_bits = object.kind == FileKind::Directory || is_given;
        // The current mode is changed, not replaced: a default ACL may have removed bits, and a directory inherits
        // its set-group-ID bit.
        let drops = mode_until_verified(what) & (!wanted | set.umask.unwrap_or(0));
        let adds = if is_exclusive || takes_special_bits { wanted & SET_IDS } else { 0 };
        let sets_mode = drops | adds != 0;
        let size = set.size.filter(|size| *size > 0 && object.kind == FileKind::Regular);
        let has_times = set.accessed.is_some() || set.modified.is_some();
        if !(is_exclusive || is_given || sets_mode || size.is_some() || has_times) {
            return Ok(false);
        }
        self.act_as(context)?;
        let file = object.file();
        let has_verifier_in_times = match what {
            Create::File(CreateMode::Exclusive(verifier)) => self.write_verifier(&file, verifier, wanted)?,
            _ => false,
        };
        if is_given {
            set_owner(&file, set)?;
        }
        if sets_mode {
            set_mode(&file, self.stat(object)?.attributes.mode & !drops | adds)?;
        }
        if let Some(size) = size {
            if size > self.properties.max_file_size {
                return Err(Error::TooLarge);
            }
            rustix::fs::ftruncate(&file, size).map_err(translate)?;
        }
        if has_times && !has_verifier_in_times {
            set_times(&file, set)?;
        }
        Ok(true)
    }

    /// Answers a CREATE of a name that exists.
    fn open_existing(
        &self,
        context: &Context,
        directory: &Arc<Object>,
        name: &Name,
        what: &Create,
        set: &SetAttributes,
    ) -> Result<Outcome> {
        self.enter(context, directory, EXECUTE)?;
        let object = self.find(directory, name)?;
        match what {
            Create::File(CreateMode::Unchecked) => match object.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Error::IsDirectory),
                FileKind::Symlink => return Err(Error::IsSymlink),
                _ => return Err(Error::WrongKind),
            },
            Create::File(CreateMode::Exclusive(verifier)) if self.has_verifier(&object, verifier)? => {}
            _ => return Err(Error::Exists),
        }
        let existing = ExistingFile { directory: Arc::clone(directory), object };
        if let (true, Some(size)) = (may_resize(what, set), set.size) {
            return Ok(Outcome::ResizeExisting(existing, size));
        }
        let mut changes = Vec::new();
        let ExistingFile { directory, object } = &existing;
        match what {
            // This is a retransmission. The first call may still wait for the device, may have failed to reach it, or
            // may have been lost with an earlier server.
            Create::File(CreateMode::Exclusive(_)) => {
                changes.push((Arc::clone(object), object.sync_state.begin_change().finish()));
                changes.push((Arc::clone(directory), directory.sync_state.begin_change().finish()));
            }
            // The name may be of another call that has not been answered yet.
            _ => changes
                .extend(directory.sync_state.unsynced_change().map(|number| (Arc::clone(directory), number))),
        }
        self.found(&existing, what).map(|created| Outcome::Done(changes, created))
    }

    /// Gives an existing file the size of an unchecked CREATE.
    fn resize<'a>(
        self: &'a Arc<Self>,
        context: Context,
        what: Create,
        (existing, size): (ExistingFile, u64),
    ) -> Op<'a, Created> {
        let (peer, caller) = (context.peer, SyncCaller::of(&context));
        let resize = move |volume: &Arc<Self>| {
            let ExistingFile { directory, object } = &existing;
            let size = SetAttributes { size: Some(size), ..SetAttributes::default() };
            let (_, change) = volume.setattr_cached(&context, object, &size, None, vfs::Authority::Caller)?;
            let resized = change.map(|number| (Arc::clone(object), number));
            // The name may be of another call that has not been answered yet.
            let named = directory.sync_state.unsynced_change().map(|number| (Arc::clone(directory), number));
            Ok((resized.into_iter().chain(named).collect::<Vec<_>>(), volume.found(&existing, &what)?))
        };
        let in_place = || resize(self);
        self.run_op(
            (OpKind::Change, peer),
            in_place,
            || resize.clone(),
            move |(changes, created)| self.answer_when_durable(caller, changes, created),
        )
    }

    /// Returns the answer for an existing file.
    fn found(&self, existing: &ExistingFile, what: &Create) -> Result<Created> {
        let attributes = self.stat(&existing.object)?.attributes;
        Ok(Created {
            handle: existing.object.handle,
            attributes,
            directory: Self::no_change(&self.stat(&existing.directory)?),
            is_new: false,
            verifier_in_times: has_verifier_in_times(what, &attributes),
        })
    }

    /// Writes the verifier. Returns true if the file's times hold it.
    fn write_verifier(&self, file: &OpenFile, verifier: &Verifier, mode: u32) -> Result<bool> {
        const OWNER_READS: u32 = 0o400;
        if matches!(self.actor, Actor::Callers) || mode & OWNER_READS != 0 {
            match rustix::fs::fsetxattr(file, VERIFIER, verifier, XattrFlags::empty()) {
                Err(Errno::OPNOTSUPP) => {}
                other => return other.map(|()| false).map_err(translate),
            }
        }
        let (accessed, modified) = times_of(verifier);
        let times = Timestamps {
            last_access: Timespec { tv_sec: accessed, tv_nsec: 0 },
            last_modification: Timespec { tv_sec: modified, tv_nsec: 0 },
        };
        rustix::fs::futimens(file, &times).map_err(translate)?;
        Ok(true)
    }

    fn has_verifier(&self, object: &Object, verifier: &Verifier) -> Result<bool> {
        if object.kind != FileKind::Regular {
            return Ok(false);
        }
        let mut kept = [0; 8];
        if let Ok(file) = self.readable(object) {
            self.act_as_server();
            match rustix::fs::fgetxattr(file.as_fd(), VERIFIER, &mut kept) {
                Ok(_) => return Ok(kept == *verifier),
                Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => {}
                Err(errno) => return Err(translate(errno)),
            }
        }
        let file = self.stat(object)?.attributes;
        // Otherwise a client that may set a file's times could have it taken for the file that another client's OPEN
        // created.
        Ok(file.size == 0 && are_times_of(verifier, &file))
    }
}

/// Returns the seconds of access and modification that encode a verifier. Like the Linux kernel's server, without the
/// highest bit of each half, which many file systems cannot store.
fn times_of(verifier: &Verifier) -> (i64, i64) {
    let [a, b, c, d, e, f, g, h] = *verifier;
    let half = |bytes| i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff);
    (half([a, b, c, d]), half([e, f, g, h]))
}

/// Returns mode bits that the object has until it is finished.
fn mode_until_verified(what: &Create) -> u32 {
    if matches!(what, Create::File(CreateMode::Exclusive(_))) { MODE_UNTIL_VERIFIED } else { 0 }
}

fn are_times_of(verifier: &Verifier, file: &Attributes) -> bool {
    let (accessed, modified) = (file.accessed, file.modified);
    let are_whole = accessed.nanoseconds == 0 && modified.nanoseconds == 0;
    are_whole && times_of(verifier) == (accessed.seconds, modified.seconds)
}

/// Returns whether the new file keeps its verifier in its times.
fn has_verifier_in_times(what: &Create, file: &Attributes) -> bool {
    matches!(what, Create::File(CreateMode::Exclusive(verifier)) if are_times_of(verifier, file))
}

fn kind_of(what: &Create) -> FileKind {
    match what {
        Create::File(_) => FileKind::Regular,
        Create::Directory => FileKind::Directory,
        Create::Symlink(_) => FileKind::Symlink,
        Create::Fifo => FileKind::Fifo,
        Create::Socket => FileKind::Socket,
        Create::CharDevice(_) => FileKind::CharDevice,
        Create::BlockDevice(_) => FileKind::BlockDevice,
    }
}

fn wanted_mode(what: &Create, set: &SetAttributes) -> u32 {
    let default = match what {
        Create::File(CreateMode::Exclusive(_)) => 0,
        Create::Directory => 0o700,
        _ => 0o600,
    };
    set.mode.unwrap_or(default) & 0o7777
}

/// Checks for errors that the kernel would report too late, after the name exists.
fn check(context: &Context, directory: &Attributes, what: &Create, set: &SetAttributes) -> Result<()> {
    check_time_values(set)?;
    let who = &context.credentials;
    match what {
        Create::Symlink(text) if text.len() > MAX_SYMLINK_BYTES => return Err(Error::NameTooLong),
        Create::Symlink(text) if text.is_empty() || text.contains(&0) => return Err(Error::Invalid),
        // POSIX.1-2024 mknod(): "only a process with appropriate privileges may create file types other than FIFO special".
        Create::CharDevice(_) | Create::BlockDevice(_) if !who.is_root() => return Err(Error::NotPermitted),
        _ => {}
    }
    let own_group = if directory.mode & SET_GROUP_ID != 0 { directory.gid } else { who.gid };
    let keeps_owner = set.uid.is_none_or(|uid| uid == who.uid);
    let may_group = set.gid.is_none_or(|gid| gid == own_group || who.is_in_group(gid));
    if who.is_root() || (keeps_owner && may_group) { Ok(()) } else { Err(Error::NotPermitted) }
}

#[cfg(test)]
mod tests {
    use vfs::{Credentials, Timestamp};

    use super::*;
    use crate::config::Config;
    use crate::handle::from_kernel;
    use crate::sys;
    use crate::volume::Handles;

    #[test]
    fn a_new_file_has_the_kernels_handle() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().join("export");
        std::fs::create_dir(&top).expect("directory");
        let config = Config { state_directory: Some(directory.path().join("state")), ..Config::new(&top) };
        let volume = crate::probe::open(&config).expect("volume");
        let Handles::Kernel { generations, .. } = &volume.handles else {
            return; // No handles to compare with.
        };
        let uid = rustix::process::geteuid().as_raw();
        let credentials = Arc::new(Credentials { uid, gid: uid, groups: Arc::from([]) });
        let context = Context::new(credentials, Timestamp::default());
        let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
        let (runtime, root) =
            (tokio::runtime::Builder::new_current_thread().build().expect("runtime"), volume.root.handle);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let made = volume.create(&context, &root, name.as_bytes(), &what, &set);
            let handle = runtime.block_on(made).expect("created").handle;
            let file = std::fs::File::open(top.join(name)).expect("open");
            let (kernel, _) = sys::name_to_handle_at(file.as_fd(), c"").expect("handle");
            assert_eq!(handle, from_kernel(&kernel).expect("short"));
            if let (b"h", Some(generations)) = (name.as_bytes(), generations) {
                // The trial has finished by now.
                let generation = sys::generation(file.as_fd()).ok();
                let is_right = generation.is_some() && generation == kernel.identity().map(|(_, held)| held);
                assert_eq!(generations.trial.result(), Some(is_right));
            }
        }
    }

    #[test]
    fn a_verifier_in_times_uses_31_bits_of_each_half() {
        assert_eq!(times_of(&[0xff; 8]), (0x7fff_ffff, 0x7fff_ffff));
        assert_eq!(times_of(&[0, 0, 0, 1, 0, 0, 1, 0]), (1, 256));
    }
}
