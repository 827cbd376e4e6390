//! The calls that need `unsafe`: FUSE_DEV_IOC_CLONE, and a signal that makes a thread leave read(2).
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::{mem, ptr};

use parking_lot::{Mutex, MutexGuard};
use rustix::ioctl::{Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Makes `fresh`, a descriptor of `/dev/fuse` without a mount, one more descriptor of the mount of `existing`.
///
/// # Errors
/// EINVAL if `existing` is not a descriptor of a mount or `fresh` has one already.
pub(crate) fn join(fresh: impl AsFd, existing: impl AsFd) -> rustix::io::Result<()> {
    let existing = existing.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the kernel reads a `uint32_t`, the number of a descriptor, from the pointer, which `Setter` gives for a `u32`; it writes
    // nothing there, although the number is an `_IOR`.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(existing)) }
}

/// The signal that interrupts threads. Programs ignore it unless they ask for it, and no program sends it to them.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Serializes the sessions of this process that change the action of [`SIGNAL`].
static IN_USE: Mutex<()> = Mutex::new(());

/// While it lives, threads can be made to leave a system call with EINTR. Restores the signal's action when dropped.
pub(crate) struct Interruption {
    before: libc::sigaction,
    _in_use: MutexGuard<'static, ()>,
}

extern "C" fn ignore(_signal: libc::c_int) {}

impl Interruption {
    /// Waits for other sessions of this process that use it.
    pub(crate) fn new() -> Self {
        let in_use = IN_USE.lock();
        // SAFETY: all zeros is a valid `sigaction`: no flags, so that system calls are not restarted, and an empty mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: as above.
        let mut before: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: both pointers are valid for the call; the handler does nothing, which is safe in any thread at any time. The call
        // fails only for signals that have no handlers.
        unsafe { libc::sigaction(SIGNAL, &raw const action, &raw mut before) };
        Self { before, _in_use: in_use }
    }

    /// Interrupts the system call in which a thread is. A thread that is in none now may enter one afterwards: repeat until it has ended.
    pub(crate) fn interrupt<T>(&self, thread: &JoinHandle<T>) {
        // SAFETY: the handle exists, so the thread is not joined, and its number is valid even if it has ended.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), SIGNAL) };
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        // SAFETY: `before` came from the kernel; a null pointer means that the present action is not requested.
        unsafe { libc::sigaction(SIGNAL, &raw const self.before, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_that_of_the_kernel_header() {
        assert_eq!(CLONE, 0x8004_e500);
    }

    #[test]
    fn refuses_descriptors_without_a_mount() {
        let null = std::fs::File::open("/dev/null").expect("a device that always exists");
        assert!(join(&null, &null).is_err());
    }

    #[test]
    fn a_thread_leaves_its_read() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let thread = std::thread::spawn(move || rustix::io::read(&reader, &mut [0; 1]));
        let interruption = Interruption::new();
        while !thread.is_finished() {
            interruption.interrupt(&thread);
            std::thread::yield_now();
        }
        assert_eq!(thread.join().expect("no panic"), Err(rustix::io::Errno::INTR));
        drop(writer);
    }
}
