//! System calls that need `unsafe`: POSIX locks, shared mappings, and writing a file out without making it stable.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// A lock's kind, as in fcntl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Read,
    Write,
    Unlock,
}

impl Lock {
    fn raw(self) -> libc::c_short {
        (match self {
            Lock::Read => libc::F_RDLCK,
            Lock::Write => libc::F_WRLCK,
            Lock::Unlock => libc::F_UNLCK,
        }) as libc::c_short
    }
}

/// F_SETLK, or F_SETLKW if `wait`. The end `i64::MAX as u64` is the end of every file.
pub(crate) fn set_lock(file: &File, lock: Lock, range: &Range<u64>, wait: bool) -> io::Result<()> {
    let command = if wait { libc::F_SETLKW } else { libc::F_SETLK };
    fcntl(file, command, &mut description(lock, range))
}

/// F_GETLK: the kind and range of a conflicting lock, if any.
pub(crate) fn test_lock(
    file: &File,
    lock: Lock,
    range: &Range<u64>,
) -> io::Result<Option<(Lock, Range<u64>)>> {
    let mut found = description(lock, range);
    fcntl(file, libc::F_GETLK, &mut found)?;
    let kind = match libc::c_int::from(found.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => Lock::Read,
        _ => Lock::Write,
    };
    let start = found.l_start as u64;
    let end = if found.l_len == 0 { i64::MAX as u64 } else { start + found.l_len as u64 };
    Ok(Some((kind, start..end)))
}

fn description(lock: Lock, range: &Range<u64>) -> libc::flock {
    // A length of zero means: to the end, even if the file grows.
    let length = if range.end == i64::MAX as u64 { 0 } else { range.end - range.start };
    libc::flock {
        l_type: lock.raw(),
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start as libc::off_t,
        l_len: length as libc::off_t,
        l_pid: 0,
    }
}

fn fcntl(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` lives, the commands given are those that take a pointer
    // to `struct flock`, and `lock` is one that the kernel may write to.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// sync_file_range(2) of the whole file: writes it out and waits for that, without a promise of stability. On NFS, these are WRITEs
/// without a COMMIT.
pub(crate) fn write_out(file: &File) -> io::Result<()> {
    let how = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open as long as `file` lives; the call takes no memory.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, how) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A file's first bytes, shared with all programs that map, read or write them.
pub(crate) struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes, for reading and writing.
    pub(crate) fn new(file: &File, length: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping { start: start.cast(), length })
        }
    }

    /// Copies `bytes` into the mapping.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length, "outside the mapping");
        // SAFETY: the range was checked to be inside the mapping, which lives as long as `self` and was made
        // writable; raw copies, not references, because another process may change the bytes at any time.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset), bytes.len()) };
    }

    /// Copies bytes out of the mapping.
    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length, "outside the mapping");
        let mut bytes = vec![0; length];
        // SAFETY: as in `write`; the target was just made with room for `length` bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(offset), bytes.as_mut_ptr(), length) };
        bytes
    }

    /// MS_SYNC of the whole mapping.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is exactly the mapping.
        let result = unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and no code can use it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_the_file() {
        let path = std::env::temp_dir().join(format!("kernel-probe-mapping-{}", std::process::id()));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        file.set_len(8192).expect("room");
        let mut mapping = Mapping::new(&file, 8192).expect("a mapping");
        mapping.write(4094, b"across");
        mapping.sync().expect("msync");
        assert_eq!(mapping.read(4094, 6), b"across");
        assert_eq!(std::fs::read(&path).expect("the file")[4094..4100], *b"across");
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    #[should_panic(expected = "outside the mapping")]
    fn access_after_the_end_of_a_mapping_panics() {
        let file = File::open("/proc/self/exe").expect("a file");
        // Only the length matters here: nothing is mapped.
        let mapping = Mapping { start: std::ptr::null_mut(), length: 10 };
        drop(file);
        let mapping = std::mem::ManuallyDrop::new(mapping);
        mapping.read(8, 4);
    }

    #[test]
    fn own_locks_do_not_conflict() {
        let path = std::env::temp_dir().join(format!("kernel-probe-lock-{}", std::process::id()));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        set_lock(&file, Lock::Write, &(0..10), false).expect("a lock");
        assert_eq!(test_lock(&file, Lock::Write, &(0..i64::MAX as u64)).expect("an answer"), None);
        set_lock(&file, Lock::Unlock, &(0..i64::MAX as u64), false).expect("unlocked");
        std::fs::remove_file(&path).expect("removed");
    }
}
