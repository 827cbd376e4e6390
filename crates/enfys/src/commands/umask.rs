//! The process's umask, which a server does not know.

use rustix::fs::Mode;

/// Returns the permission bits that new files do not get.
pub fn umask() -> u32 {
    // The call sets a mask; no other thread creates files between the two calls.
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    mask.as_raw_mode()
}
