//! Descriptors of `/dev/fuse`. One call reads one request; one call writes one reply.
//!
//! A clone of a descriptor has its own list of requests under way: a reply must be written to the descriptor from which its request
//! was read. When a clone is closed, the kernel ends its requests with ECONNABORTED; when the last is closed, the mount is dead.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys;

/// The device's path.
const PATH: &str = "/dev/fuse";
/// Maximum number of slices of one write (`IOV_MAX`).
pub(crate) const SLICES_MAX: usize = 1024;

/// A descriptor of the device.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// Outcome of a read.
pub(crate) enum Received {
    /// A request with its length in bytes.
    Request(usize),
    /// A signal interrupted the wait.
    Interrupted,
    /// The file system is unmounted, or its connection aborted.
    Ended,
}

impl Device {
    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Opens the device; the descriptor belongs to no mount yet.
    pub(crate) fn open() -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Returns another descriptor of the same mount, with its own list of requests.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let clone = Self::open()?;
        sys::join(&clone, &self.0)?;
        Ok(Self(clone))
    }

    /// Returns the descriptor itself, to be passed to another process.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Waits for the next request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Ended),
                Ok(length) => return Ok(Received::Request(length)),
                Err(Errno::INTR) => return Ok(Received::Interrupted),
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::NOENT | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes one message.
    pub(crate) fn send(&self, message: &[io::IoSlice<'_>]) -> rustix::io::Result<()> {
        rustix::io::writev(&self.0, message).map(drop)
    }
}
