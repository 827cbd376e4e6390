//! A descriptor of the device and the requests that were read from it and are not answered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::abi::OutHeader;
use crate::device::{Device, SLICES_MAX};

/// Largest error number of a reply; the kernel refuses others.
const ERROR_MAX: i32 = 511;

/// A request that is not answered. Only the thread that removes it from its channel answers it.
pub(crate) struct Pending {
    /// The whole request, for a hand-over.
    pub(crate) message: Bytes,
    pub(crate) opcode: u32,
    pub(crate) tid: u32,
    /// Whether the kernel sent an INTERRUPT.
    pub(crate) is_interrupted: bool,
    /// Woken when the request is answered by another.
    pub(crate) waker: Option<Waker>,
}

/// The reason why a reply did not reach a program. The state that the operation granted (an open file, a lookup, a lock) must be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDelivered {
    /// The request was interrupted, handed over to another process, or the file system is unmounted.
    Withdrawn,
    /// The kernel refused the reply: it is longer than the request allows.
    Refused(Errno),
}

pub(crate) struct Channel {
    device: Device,
    pending: Mutex<HashMap<u64, Pending>>,
    /// Requests read since the start.
    requests: AtomicU64,
}

impl Channel {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, pending: Mutex::default(), requests: AtomicU64::new(0) }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.lock().len()
    }

    /// Returns the number of pending requests of other operations than this one.
    pub(crate) fn pending_besides(&self, opcode: u32) -> usize {
        self.pending.lock().values().filter(|request| request.opcode != opcode).count()
    }

    /// Returns the pending requests that were interrupted.
    pub(crate) fn interrupted(&self) -> Vec<u64> {
        let pending = self.pending.lock();
        pending.iter().filter(|(_, request)| request.is_interrupted).map(|(unique, _)| *unique).collect()
    }

    /// Adds a request before the file system sees it. The kernel never repeats a number.
    pub(crate) fn register(&self, unique: u64, pending: Pending) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.pending.lock().insert(unique, pending);
    }

    pub(crate) fn is_pending(&self, unique: u64) -> bool {
        self.pending.lock().contains_key(&unique)
    }

    /// Marks a pending request as interrupted and returns its operation and thread.
    pub(crate) fn mark_interrupted(&self, unique: u64) -> Option<(u32, u32)> {
        let mut pending = self.pending.lock();
        let request = pending.get_mut(&unique)?;
        request.is_interrupted = true;
        Some((request.opcode, request.tid))
    }

    /// Is ready when the request is not pending any more; until then it keeps the waker of the last call.
    pub(crate) fn poll_withdrawn(&self, unique: u64, context: &mut Context<'_>) -> Poll<()> {
        match self.pending.lock().entry(unique) {
            Entry::Vacant(_) => Poll::Ready(()),
            Entry::Occupied(mut request) => {
                request.get_mut().waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Removes all pending requests, for a hand-over.
    pub(crate) fn withdraw_all(&self) -> Vec<Pending> {
        let mut requests: Vec<(u64, Pending)> = self.pending.lock().drain().collect();
        // The kernel numbers requests in the order in which programs made them.
        requests.sort_by_key(|(unique, _)| *unique);
        requests.into_iter().map(|(_, request)| wake(request)).collect()
    }

    /// Answers a pending request with an error and wakes the file system's waker.
    pub(crate) fn withdraw(&self, unique: u64, error: Errno) {
        let removed = self.pending.lock().remove(&unique);
        if let Some(request) = removed {
            wake(request);
            // The program may be gone.
            let _ = self.write(unique, Err(error));
        }
    }

    /// Answers a pending request: with an error, or with the bytes of all parts.
    pub(crate) fn answer(&self, unique: u64, result: Result<&[&[u8]], Errno>) -> Result<(), NotDelivered> {
        if self.pending.lock().remove(&unique).is_none() {
            return Err(NotDelivered::Withdrawn);
        }
        match self.write(unique, result) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT | Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => {
                Err(NotDelivered::Withdrawn)
            }
            Err(refused) => {
                // The request may still be pending in the kernel: an error is short enough for all of them.
                let _ = self.write(unique, Err(Errno::IO));
                Err(NotDelivered::Refused(refused))
            }
        }
    }

    /// Writes a reply without a look at pending requests.
    pub(crate) fn write(&self, unique: u64, result: Result<&[&[u8]], Errno>) -> rustix::io::Result<()> {
        let (error, parts) = match result {
            Ok(parts) => (0, parts),
            Err(error) => (error.raw_os_error(), &[][..]),
        };
        let error = if (0..=ERROR_MAX).contains(&error) { error } else { Errno::IO.raw_os_error() };
        self.write_parts(unique, -error, parts)
    }

    /// Sends a notification, which is a message with number 0 and a code instead of an error.
    pub(crate) fn notify(&self, code: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
        self.write_parts(0, code, parts)
    }

    fn write_parts(&self, unique: u64, error: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
        let length = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let len = u32::try_from(length).map_err(|_| Errno::OVERFLOW)?;
        let header = OutHeader { len, error, unique };
        let joined = if parts.len() < SLICES_MAX { Vec::new() } else { parts.concat() };
        let mut message: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
        message.push(IoSlice::new(header.as_bytes()));
        if joined.is_empty() {
            message.extend(parts.iter().map(|part| IoSlice::new(part)));
        } else {
            message.push(IoSlice::new(&joined));
        }
        self.device.send(&message)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("pending", &self.pending_count()).finish_non_exhaustive()
    }
}

fn wake(mut request: Pending) -> Pending {
    if let Some(waker) = request.waker.take() {
        waker.wake();
    }
    request
}
