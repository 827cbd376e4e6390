//! Buffers for requests. Each is as large as the largest request and is reused when all slices of it are dropped.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Spare buffers for each worker.
const SPARE_PER_WORKER: usize = 4;

pub(super) struct Buffers {
    size: usize,
    spare: Arc<Spare>,
}

struct Spare {
    buffers: Mutex<Vec<Box<[u8]>>>,
    max: usize,
}

/// A buffer that a large request occupies.
struct Occupied {
    buffer: Box<[u8]>,
    length: usize,
    spare: Arc<Spare>,
}

impl AsRef<[u8]> for Occupied {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        let mut buffers = self.spare.buffers.lock();
        if buffers.len() < self.spare.max {
            buffers.push(std::mem::take(&mut self.buffer));
        }
    }
}

impl Buffers {
    pub(super) fn new(size: usize, workers: usize) -> Self {
        Self { size, spare: Arc::new(Spare { buffers: Mutex::default(), max: workers * SPARE_PER_WORKER }) }
    }

    pub(super) fn take(&self) -> Box<[u8]> {
        let spare = self.spare.buffers.lock().pop();
        spare.unwrap_or_else(|| vec![0; self.size].into_boxed_slice())
    }

    /// Returns the first `length` bytes as a value of their own. A small request is copied, so that it keeps no more memory than it needs; a
    /// large one keeps the buffer, which is replaced by another.
    pub(super) fn split(&self, buffer: &mut Box<[u8]>, length: usize) -> Bytes {
        if length < self.size / 2 {
            return Bytes::copy_from_slice(&buffer[..length]);
        }
        let buffer = std::mem::replace(buffer, self.take());
        Bytes::from_owner(Occupied { buffer, length, spare: Arc::clone(&self.spare) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_request_is_copied() {
        let buffers = Buffers::new(100, 1);
        let mut buffer = buffers.take();
        buffer[..3].copy_from_slice(b"abc");
        let address = buffer.as_ptr();
        let message = buffers.split(&mut buffer, 3);
        assert_eq!((&message[..], buffer.as_ptr()), (&b"abc"[..], address));
    }

    #[test]
    fn a_large_request_keeps_its_buffer_until_its_last_slice_is_dropped() {
        let buffers = Buffers::new(100, 1);
        let mut buffer = buffers.take();
        let address = buffer.as_ptr();
        let message = buffers.split(&mut buffer, 60);
        assert_eq!((message.len(), message.as_ptr()), (60, address));
        assert_ne!(buffer.as_ptr(), address);
        let slice = message.slice(50..);
        drop(message);
        let other = buffers.take();
        assert_ne!(other.as_ptr(), address);
        drop(slice);
        let same = buffers.take();
        assert_eq!(same.as_ptr(), address);
    }

    #[test]
    fn spare_buffers_are_bounded() {
        let buffers = Buffers::new(2, 1);
        let mut buffer = buffers.take();
        let messages: Vec<Bytes> = (0..10).map(|_| buffers.split(&mut buffer, 2)).collect();
        drop(messages);
        assert_eq!(buffers.spare.buffers.lock().len(), SPARE_PER_WORKER);
    }
}
