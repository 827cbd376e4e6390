//! System calls that rustix lacks, or has in another form: the only unsafe code of this crate.
//!
//! Every function is a thin typed wrapper around one call. None keeps a pointer beyond its return.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use bytes::BytesMut;
use rustix::io::{Errno, Result};

/// Longest kernel handle that is stored, in bytes: [`vfs::MAX_HANDLE`] without two bytes of this crate. ext4 and XFS
/// need 8 to 12, tmpfs 12, btrfs 20.
pub(crate) const MAX_KERNEL_HANDLE: usize = vfs::MAX_HANDLE - 2;

/// `struct file_handle` with room for the longest handle that is accepted.
#[repr(C)]
#[derive(Clone, Copy)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    data: [u8; MAX_KERNEL_HANDLE],
}

/// The kernel's handle of an inode.
#[derive(Clone, Copy)]
pub(crate) struct KernelHandle {
    /// The file system's own type of handle.
    pub(crate) kind: i32,
    length: u8,
    data: [u8; MAX_KERNEL_HANDLE],
}

impl KernelHandle {
    /// Returns the opaque part.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data[..usize::from(self.length)]
    }

    /// Returns type and length.
    pub(crate) fn form(&self) -> (i32, usize) {
        (self.kind, usize::from(self.length))
    }

    /// Returns whether both name one object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.kind, self.bytes()) == (other.kind, other.bytes())
    }

    /// Returns inode number and generation of known forms; `None` for others.
    pub(crate) fn identity(&self) -> Option<(u64, u32)> {
        let word = |at: usize| self.data[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let long = |at: usize| self.data[at..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        match self.form() {
            // FILEID_INO32_GEN as `generic_encode_ino32_fh` makes it (ext4 and many others): inode number,
            // generation.
            (1, 8) => Some((u64::from(word(0)?), word(4)?)),
            // The same type in tmpfs: generation, lower and upper half of the inode number.
            (1, 12) => Some((u64::from(word(8)?) << 32 | u64::from(word(4)?), word(0)?)),
            // XFS with wide inode numbers: inode number, generation.
            (0x81, 12) => Some((long(0)?, word(8)?)),
            _ => None,
        }
    }

    /// Returns the handle of this form with this [`identity`](Self::identity); `None` for unknown forms, and if
    /// the number does not fit.
    pub(crate) fn of((kind, length): (i32, usize), inode: u64, generation: u32) -> Option<Self> {
        let mut handle = Self { kind, length: length as u8, data: [0; MAX_KERNEL_HANDLE] };
        let (number, generation) = (inode.to_ne_bytes(), generation.to_ne_bytes());
        match (kind, length) {
            (1, 8) => {
                handle.data[..4].copy_from_slice(&u32::try_from(inode).ok()?.to_ne_bytes());
                handle.data[4..8].copy_from_slice(&generation);
            }
            (1, 12) => {
                handle.data[..4].copy_from_slice(&generation);
                handle.data[4..8].copy_from_slice(&(inode as u32).to_ne_bytes());
                handle.data[8..12].copy_from_slice(&((inode >> 32) as u32).to_ne_bytes());
            }
            (0x81, 12) => {
                handle.data[..8].copy_from_slice(&number);
                handle.data[8..12].copy_from_slice(&generation);
            }
            _ => return None,
        }
        Some(handle)
    }
}

fn check(result: libc::c_long) -> Result<usize> {
    usize::try_from(result).map_err(|_| last_errno())
}

fn last_errno() -> Errno {
    // The standard library reads errno.
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// name_to_handle_at(2): returns the handle of `name` in `directory` (of `directory` itself if `name` is empty;
/// then it may be an `O_PATH` descriptor of anything), and the id of its mount. Symbolic links are not followed.
pub(crate) fn name_to_handle_at(directory: BorrowedFd<'_>, name: &CStr) -> Result<(KernelHandle, i32)> {
    handle_at(directory, name, if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 })
}

fn handle_at(directory: BorrowedFd<'_>, name: &CStr, flags: i32) -> Result<(KernelHandle, i32)> {
    let mut handle = FileHandle { bytes: MAX_KERNEL_HANDLE as u32, kind: 0, data: [0; MAX_KERNEL_HANDLE] };
    let mut mount = 0_i32;
    // SAFETY: all pointers are to live locals of the layouts the call wants; `bytes` is the room in `data`.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            flags,
        )
    })?;
    let length = u8::try_from(handle.bytes).map_err(|_| Errno::OVERFLOW)?;
    Ok((KernelHandle { kind: handle.kind, length, data: handle.data }, mount))
}

/// Returns the handle with which fanotify(7) names the object of a descriptor, which may be one that cannot be opened
/// (AT_HANDLE_FID, Linux 6.5).
pub(crate) fn name_for_events(fd: BorrowedFd<'_>) -> Result<KernelHandle> {
    match handle_at(fd, c"", libc::AT_EMPTY_PATH) {
        Err(Errno::OPNOTSUPP) => handle_at(fd, c"", libc::AT_EMPTY_PATH | libc::AT_HANDLE_FID),
        named => named,
    }
    .map(|(handle, _)| handle)
}

/// Creates a fanotify(7) group that names objects by their handles. With CAP_SYS_ADMIN it has no limit of marks. Its
/// queue is bounded, and the kernel reports an overflow.
pub(crate) fn fanotify_init() -> Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID | libc::FAN_NONBLOCK | libc::FAN_CLOEXEC;
    let events = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as libc::c_uint;
    let open = |flags: libc::c_uint| {
        // SAFETY: the call takes integers.
        check(unsafe { libc::fanotify_init(flags, events) }.into())
    };
    let fd = match open(flags | libc::FAN_UNLIMITED_MARKS) {
        // Only with CAP_SYS_ADMIN.
        Err(Errno::PERM) => open(flags)?,
        opened => opened?,
    };
    // SAFETY: the kernel has just returned this descriptor; no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// An operation on a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Adds events; creates the mark with the first.
    Add,
    /// As [`Self::Add`], without following a symbolic link.
    AddUnfollowed,
    /// Removes events; removes the mark with the last.
    Remove,
}

/// fanotify_mark(2) of the object of `path`, or without a path of the descriptor `at`, which must not be an `O_PATH`
/// one.
pub(crate) fn fanotify_mark(
    group: BorrowedFd<'_>,
    mark: Mark,
    events: u64,
    at: BorrowedFd<'_>,
    path: Option<&CStr>,
) -> Result<()> {
    let flags = match mark {
        Mark::Add => libc::FAN_MARK_ADD,
        Mark::AddUnfollowed => libc::FAN_MARK_ADD | libc::FAN_MARK_DONT_FOLLOW,
        Mark::Remove => libc::FAN_MARK_REMOVE,
    };
    let path = path.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the path is a C string that lives through the call, or null, which the call accepts.
    check(unsafe { libc::fanotify_mark(group.as_raw_fd(), flags, events, at.as_raw_fd(), path) }.into())
        .map(drop)
}

/// open_by_handle_at(2) relative to the mount of `mount`, which must not be an `O_PATH` descriptor.
pub(crate) fn open_by_handle_at(
    mount: BorrowedFd<'_>,
    kind: i32,
    bytes: &[u8],
    flags: i32,
) -> Result<OwnedFd> {
    if bytes.len() > MAX_KERNEL_HANDLE {
        return Err(Errno::INVAL);
    }
    let mut handle = FileHandle { bytes: bytes.len() as u32, kind, data: [0; MAX_KERNEL_HANDLE] };
    handle.data[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: `handle` lives through the call and its `bytes` field is within `data`.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut handle,
            flags | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: the kernel has just returned this descriptor; no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// preadv2(2) with `flags`, appending at most `count` bytes to `into`.
fn append(fd: BorrowedFd<'_>, into: &mut BytesMut, count: usize, offset: u64, flags: i32) -> Result<usize> {
    into.reserve(count);
    let spare = into.spare_capacity_mut();
    let vector = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: count };
    // SAFETY: `reserve` made at least `count` bytes of spare room, which the kernel may write. The offset goes as a
    // low and a high half; on 64-bit machines the low one holds it all and the high one is ignored.
    let read = check(unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd.as_raw_fd(),
            &raw const vector,
            1_usize,
            offset as libc::c_long,
            (offset >> 32) as libc::c_long,
            flags,
        )
    })?;
    // SAFETY: the kernel has initialized `read` ≤ `count` bytes after the old length, within the capacity.
    unsafe { into.set_len(into.len() + read) };
    Ok(read)
}

/// Appends the data that can be read without waiting for the device; `EAGAIN` if there are none, `EOPNOTSUPP` if the
/// file system cannot tell.
pub(crate) fn read_without_waiting(
    fd: BorrowedFd<'_>,
    into: &mut BytesMut,
    count: usize,
    offset: u64,
) -> Result<usize> {
    append(fd, into, count, offset, libc::RWF_NOWAIT)
}

/// Appends up to `count` bytes, waiting for the device.
pub(crate) fn read(fd: BorrowedFd<'_>, into: &mut BytesMut, count: usize, offset: u64) -> Result<usize> {
    append(fd, into, count, offset, 0)
}

/// Returns the number of cached pages of a range: cachestat(2), Linux 6.5.
pub(crate) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, length];
    let mut counts = [0_u64; 5];
    // SAFETY: both arrays have the layouts of `struct cachestat_range` and `struct cachestat` and outlive the call.
    check(unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) })?;
    Ok(counts[0])
}

/// Makes a range of `destination` share the extents of one of `source`; `count` 0 is to the end
/// (ioctl_ficlonerange(2)).
pub(crate) fn clone_range(
    (source, from): (BorrowedFd<'_>, u64),
    (destination, to): (BorrowedFd<'_>, u64),
    count: u64,
) -> Result<()> {
    let range = libc::file_clone_range {
        src_fd: i64::from(source.as_raw_fd()),
        src_offset: from,
        src_length: count,
        dest_offset: to,
    };
    // SAFETY: the structure has the kernel's layout, and outlives the call.
    check(i64::from(unsafe { libc::ioctl(destination.as_raw_fd(), libc::FICLONERANGE, &raw const range) }))?;
    Ok(())
}

/// Writes a range's dirty pages to the device and waits for it; neither metadata nor the device's cache
/// (sync_file_range(2)). Consumes the error of a failed write-back, as fsync(2) does, so it must not be called on a
/// descriptor that is used for syncs.
pub(crate) fn write_out(fd: BorrowedFd<'_>, offset: u64, count: u64) -> Result<()> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: affects nothing in memory.
    let done = unsafe {
        libc::sync_file_range(fd.as_raw_fd(), offset as libc::off64_t, count as libc::off64_t, flags)
    };
    check(i64::from(done))?;
    Ok(())
}

/// Begins to write a range's dirty pages to the device, without waiting for it (sync_file_range(2)). It may wait for room in the device's
/// queue. Errors of the device are left for fsync(2).
pub(crate) fn start_writing(fd: BorrowedFd<'_>, offset: u64, count: u64) -> Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: affects nothing in memory.
    let done = unsafe {
        libc::sync_file_range(fd.as_raw_fd(), offset as libc::off64_t, count as libc::off64_t, flags)
    };
    check(i64::from(done))?;
    Ok(())
}

/// A byte-range lock, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeLock {
    pub(crate) first: u64,
    /// At most the greatest `off_t`, which means "to the end of the file".
    pub(crate) last: u64,
    pub(crate) is_exclusive: bool,
}

/// Returns the kernel's form of a lock of this type.
fn flock_of(kind: i32, first: u64, last: u64) -> libc::flock {
    // A length of zero means "to the end of the file", and the last byte has no other form.
    let length = if last >= i64::MAX as u64 { 0 } else { last - first + 1 };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: first as libc::off_t,
        l_len: length as libc::off_t,
        // Required for locks of open file descriptions.
        l_pid: 0,
    }
}

fn type_of(lock: RangeLock) -> i32 {
    if lock.is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK }
}

/// `F_OFD_SETLK`: locks a range for the open file description, without waiting. `EAGAIN` if another one's lock conflicts.
pub(crate) fn lock_range(fd: BorrowedFd<'_>, lock: RangeLock) -> Result<()> {
    let mut flock = flock_of(type_of(lock), lock.first, lock.last);
    // SAFETY: `flock` lives through the call and has the layout that the command wants.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw mut flock) }.into()).map(drop)
}

/// `F_OFD_SETLK` with `F_UNLCK`: unlocks a range of the open file description.
pub(crate) fn unlock_range(fd: BorrowedFd<'_>, first: u64, last: u64) -> Result<()> {
    let mut flock = flock_of(libc::F_UNLCK, first, last);
    // SAFETY: `flock` lives through the call and has the layout that the command wants.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw mut flock) }.into()).map(drop)
}

/// `F_OFD_GETLK`: returns the first lock of others that conflicts.
pub(crate) fn conflicting_lock(fd: BorrowedFd<'_>, lock: RangeLock) -> Result<Option<RangeLock>> {
    let mut flock = flock_of(type_of(lock), lock.first, lock.last);
    // SAFETY: `flock` lives through the call and has the layout that the command wants and fills.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut flock) }.into())?;
    let kind = i32::from(flock.l_type);
    let (first, length) = (flock.l_start.cast_unsigned(), flock.l_len.cast_unsigned());
    let last = if length == 0 { i64::MAX as u64 } else { first + (length - 1) };
    Ok((kind != libc::F_UNLCK).then_some(RangeLock { first, last, is_exclusive: kind == libc::F_WRLCK }))
}

/// getdents64(2) into `buffer`; 0 at the end.
pub(crate) fn getdents64(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is writable for its whole length.
    check(unsafe { libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) })
}

/// faccessat2(2) on the object itself, with this thread's file-system identity. `want` is in the bits of access(2).
/// `ENOSYS` before Linux 5.8.
pub(crate) fn may_access(fd: BorrowedFd<'_>, want: u32) -> Result<()> {
    // SAFETY: the empty name is a valid C string.
    check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            want,
            libc::AT_EMPTY_PATH | libc::AT_EACCESS,
        )
    })
    .map(drop)
}

/// fchmodat2(2) on the object itself. `ENOSYS` before Linux 6.6.
pub(crate) fn chmod(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    // SAFETY: the empty name is a valid C string.
    check(unsafe {
        libc::syscall(libc::SYS_fchmodat2, fd.as_raw_fd(), c"".as_ptr(), mode, libc::AT_EMPTY_PATH)
    })
    .map(drop)
}

/// Returns the file system's UUID (FS_IOC_GETFSUUID, Linux 6.9); all zeros count as none.
pub(crate) fn file_system_uuid(fd: BorrowedFd<'_>) -> Option<[u8; 16]> {
    const FS_IOC_GETFSUUID: libc::c_ulong = 0x8011_1500;
    let mut answer = [0_u8; 17];
    // SAFETY: the call fills a `struct fsuuid2`, which is 17 bytes: a length, then 16 bytes.
    check(unsafe { libc::syscall(libc::SYS_ioctl, fd.as_raw_fd(), FS_IOC_GETFSUUID, answer.as_mut_ptr()) })
        .ok()?;
    let uuid: [u8; 16] = answer[1..].try_into().ok()?;
    (answer[0] == 16 && uuid != [0; 16]).then_some(uuid)
}

/// Returns the generation of an open file's inode (FS_IOC_GETVERSION); an error if the file system does not
/// support it.
pub(crate) fn generation(fd: BorrowedFd<'_>) -> Result<u32> {
    const FS_IOC_GETVERSION: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<libc::c_long>(b'v', 1);
    // The request names a `long`; file systems fill an `int`.
    let mut answer: [libc::c_int; 2] = [0; 2];
    // SAFETY: the call fills no more than a `long`, for which there is room, aligned as an `int` has to be.
    check(unsafe { libc::syscall(libc::SYS_ioctl, fd.as_raw_fd(), FS_IOC_GETVERSION, answer.as_mut_ptr()) })?;
    Ok(answer[0] as u32)
}

/// Returns the maximum number of hard links of a file of this file system, as far as the C library knows.
pub(crate) fn link_limit(fd: BorrowedFd<'_>) -> u32 {
    // SAFETY: the call takes a descriptor and a constant.
    let limit = unsafe { libc::fpathconf(fd.as_raw_fd(), libc::_PC_LINK_MAX) };
    // The library returns LINUX_LINK_MAX if it does not know the limit.
    u32::try_from(limit).ok().filter(|limit| *limit > 127).unwrap_or(u32::MAX)
}

/// Sets this thread's supplementary groups. (The C library's function sets those of all threads.)
pub(crate) fn set_thread_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: pointer and length are of one slice.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// Sets this thread's file-system user id and returns the resulting one: the call itself never reports failure.
pub(crate) fn set_thread_user(uid: u32) -> u32 {
    // SAFETY: the calls take integers; -1 is not a user and changes nothing.
    unsafe {
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32
    }
}

/// Sets this thread's file-system group id and returns the resulting one.
pub(crate) fn set_thread_group(gid: u32) -> u32 {
    // SAFETY: the calls take integers; -1 is not a group and changes nothing.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32
    }
}

/// Returns this thread's effective capabilities, as a bit mask.
pub(crate) fn effective_capabilities() -> Result<u64> {
    // _LINUX_CAPABILITY_VERSION_3, and thread 0: the calling one.
    let header = [0x2008_0522_u32, 0];
    let mut data = [0_u32; 6];
    // SAFETY: version 3 writes two `struct __user_cap_data_struct` of three words.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) })?;
    Ok(u64::from(data[0]) | u64::from(data[3]) << 32)
}

/// Gives this thread its own umask, working directory and root, and sets its umask to 0.
pub(crate) fn own_umask() -> Result<()> {
    // SAFETY: affects nothing in memory.
    let separated = check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FS) });
    if separated.is_ok() {
        set_umask(0);
    }
    separated.map(drop)
}

/// Sets the umask of this thread, and of all that share its file-system context.
pub(crate) fn set_umask(umask: u32) {
    // SAFETY: cannot fail, affects nothing in memory.
    unsafe { libc::umask(umask) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_read_appends_to_the_buffer_and_stops_at_the_end() {
        let file = tempfile::tempfile().expect("temporary file");
        rustix::io::pwrite(&file, b"hello", 0).expect("write");
        let mut into = BytesMut::from(&b"x"[..]);
        assert_eq!(read(file.as_fd(), &mut into, 100, 1).expect("read"), 4);
        assert_eq!(&into[..], b"xello");
        assert_eq!(read(file.as_fd(), &mut into, 100, 5).expect("read"), 0);
        assert_eq!(&into[..], b"xello");
    }

    #[test]
    fn a_failed_read_leaves_the_buffer_alone() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let fd = std::fs::File::open(directory.path()).expect("open");
        let mut into = BytesMut::from(&b"x"[..]);
        assert_eq!(read(fd.as_fd(), &mut into, 10, 0), Err(Errno::ISDIR));
        assert_eq!(&into[..], b"x");
    }

    #[test]
    fn capabilities_are_those_that_proc_shows() {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("CapEff");
        let shown = u64::from_str_radix(line.trim(), 16).expect("hexadecimal");
        assert_eq!(effective_capabilities().expect("capget"), shown);
    }

    fn handle_of(kind: i32, words: &[u32]) -> KernelHandle {
        let mut handle = KernelHandle { kind, length: words.len() as u8 * 4, data: [0; MAX_KERNEL_HANDLE] };
        for (place, word) in handle.data.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        handle
    }

    #[test]
    fn inode_and_generation_are_found_in_handles_of_known_forms_only() {
        let identity = |kind, words: &[u32]| handle_of(kind, words).identity();
        assert_eq!(identity(1, &[70, 5]), Some((70, 5)));
        assert_eq!(identity(1, &[5, 70, 3]), Some((3 << 32 | 70, 5)));
        assert_eq!(identity(0x4d, &[70, 0, 5, 0, 1]), None, "btrfs");
        assert_eq!(identity(2, &[70, 5, 71, 6]), None, "with the parent");
        // In any form, the number must be the kernel's own.
        let directory = tempfile::tempdir().expect("temporary directory");
        let fd = std::fs::File::open(directory.path()).expect("open");
        let status = rustix::fs::fstat(&fd).expect("fstat");
        if let Ok((handle, _)) = name_to_handle_at(fd.as_fd(), c"") {
            assert!(handle.identity().is_none_or(|(inode, _)| inode == status.st_ino));
        }
    }

    #[test]
    fn inode_and_generation_make_the_handle_that_they_came_from() {
        let wide = if cfg!(target_endian = "little") { [70, 3, 5] } else { [3, 70, 5] };
        for handle in [handle_of(1, &[70, 5]), handle_of(1, &[5, 70, 3]), handle_of(0x81, &wide)] {
            let (inode, generation) = handle.identity().expect("a known form");
            let made = KernelHandle::of(handle.form(), inode, generation).expect("has room");
            assert_eq!((made.kind, made.bytes()), (handle.kind, handle.bytes()));
        }
        assert!(KernelHandle::of((1, 8), 1 << 32, 5).is_none(), "the form has no such numbers");
        assert!(KernelHandle::of((0x4d, 20), 70, 5).is_none());
    }

    #[test]
    fn a_file_system_that_returns_generations_uses_them_in_its_handles() {
        // ext4 supports the request; tmpfs does not.
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut generations = std::collections::HashSet::new();
        for _ in 0..3 {
            let file = tempfile::tempfile_in(directory.path()).expect("temporary file");
            let Ok(generation) = generation(file.as_fd()) else { return };
            let Ok((handle, _)) = name_to_handle_at(file.as_fd(), c"") else { return };
            assert!(handle.identity().is_none_or(|(_, of_handle)| of_handle == generation));
            generations.insert(generation);
        }
        assert!(generations.len() > 1, "each file has its own");
    }

    #[test]
    fn an_overlong_handle_is_refused_before_the_kernel_sees_it() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let fd = std::fs::File::open(directory.path()).expect("open");
        let refused = open_by_handle_at(fd.as_fd(), 1, &[0; MAX_KERNEL_HANDLE + 1], 0);
        assert_eq!(refused.err(), Some(Errno::INVAL));
    }

    #[test]
    fn a_handle_names_the_inode_that_the_name_named() {
        let directory = tempfile::tempdir().expect("temporary directory");
        std::fs::write(directory.path().join("a"), b"").expect("write");
        let fd = std::fs::File::open(directory.path()).expect("open");
        let file = std::fs::File::open(directory.path().join("a")).expect("open");
        let Ok((by_name, mount)) = name_to_handle_at(fd.as_fd(), c"a") else {
            return; // The temporary directory is on a file system without handles.
        };
        let (by_descriptor, same_mount) = name_to_handle_at(file.as_fd(), c"").expect("handle");
        assert_eq!((by_name.kind, by_name.bytes()), (by_descriptor.kind, by_descriptor.bytes()));
        assert_eq!(mount, same_mount);
    }
}
