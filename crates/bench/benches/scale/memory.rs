//! Counts the bytes that this program has allocated and not freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
pub(crate) struct Counting;

// SAFETY: every call is passed to the system's allocator with the same arguments; in addition, a number changes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller obeys the conditions of `alloc`, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `place` came from `alloc` with this layout, and so from the system's.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Returns the current number.
pub(crate) fn live_bytes() -> usize {
    LIVE_BYTES.load(Relaxed)
}
