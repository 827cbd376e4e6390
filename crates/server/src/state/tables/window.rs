//! The number of slots of its session that a client may use: `sr_highest_slotid` and `sr_target_highest_slotid` (RFC 8881 §2.10.6.1).
//!
//! A client never waits for a slot while the server has memory, regardless of its request at the start: Linux requests 64. "The
//! value of N starts out as equal to ca_maxrequests - 1 (Section 18.36), but can be adjusted by the response to SEQUENCE", and
//! the target "permits the replier to withdraw (or add) resources". So the window is kept twice as wide as the slots in use: a
//! client whose load rises learns of further slots before it needs them. Unused slots take no memory. Linux's server grows its
//! window by a fifth when the last slot is used; Linux's client follows up to 1024 slots.
//!
//! Only the target shrinks. Slots above it stay valid (the "enforced highest_slotid" never falls): the client may have requests
//! under way there, and clients disagree whether a slot that is withdrawn and granted again begins at sequence ID 1. An empty
//! slot takes about 60 bytes; its cached reply is released like that of any idle slot.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Seconds for which a client must use less than a quarter of its window before the window is halved.
const QUIET_S: u32 = 60;

#[derive(Debug)]
pub(crate) struct Window {
    /// Slots granted at creation; the target never shrinks below.
    first: u32,
    /// Upper bound of the window.
    most: u32,
    /// Slots that are accepted. Never shrinks.
    granted: AtomicU32,
    /// Slots that the client should use.
    target: AtomicU32,
    /// The highest slot used since the last [`Self::adjust`].
    peak: AtomicU32,
    /// The last [`Self::adjust`] that found a quarter of the window or more in use, in seconds of the server's time.
    busy_s: AtomicU32,
}

impl Window {
    /// Returns a window of `first` slots (at least one) that grows up to `most`.
    pub(crate) fn new(first: u32, most: u32) -> Self {
        Self {
            first,
            most: most.max(first),
            granted: AtomicU32::new(first),
            target: AtomicU32::new(first),
            peak: AtomicU32::new(0),
            busy_s: AtomicU32::new(0),
        }
    }

    /// Returns the slots granted at creation.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the upper bound of the window.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Returns the number of slots that are accepted.
    pub(crate) fn granted(&self) -> u32 {
        self.granted.load(Relaxed)
    }

    /// Returns the number of slots that the client should use, by its load.
    pub(crate) fn target(&self) -> u32 {
        self.target.load(Relaxed)
    }

    /// Notes a request on a slot. Doubles the window if the slot lies in its upper half and `may_grow` returns true. Uses an
    /// atomic read-modify-write only when the window grows.
    pub(crate) fn use_slot(&self, slot: u32, may_grow: impl FnOnce() -> bool) {
        if slot > self.peak.load(Relaxed) {
            self.peak.store(slot, Relaxed);
        }
        let target = self.target();
        // Slot 0 is not a sign of load: a client that requested one slot keeps one.
        if slot < target / 2 || slot == 0 || target >= self.most || !may_grow() {
            return;
        }
        let wider = target.saturating_mul(2).min(self.most);
        // A slot is accepted before it is announced.
        self.granted.fetch_max(wider, Relaxed);
        _ = self.target.compare_exchange(target, wider, Relaxed, Relaxed);
    }

    /// Halves a window that was hardly used for a while; at once if memory `is_scarce`. Called periodically.
    pub(crate) fn adjust(&self, now_s: u32, is_scarce: bool) {
        let (peak, target) = (self.peak.swap(0, Relaxed), self.target());
        if target <= self.first {
            return;
        }
        let was_quiet = peak < target / 4;
        let quiet_s = now_s.saturating_sub(self.busy_s.load(Relaxed));
        if was_quiet && (is_scarce || quiet_s >= QUIET_S) {
            let narrower = (target / 2).max(self.first);
            _ = self.target.compare_exchange(target, narrower, Relaxed, Relaxed);
        }
        if !was_quiet {
            self.busy_s.store(now_s, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(window: &Window) -> (u32, u32) {
        (window.granted(), window.target())
    }

    #[test]
    fn grows_before_the_last_slot_is_used_up_to_its_bound() {
        let window = Window::new(64, 1000);
        window.use_slot(31, || true);
        assert_eq!(shape(&window), (64, 64));
        for (slot, wide) in [(32, 128), (63, 128), (64, 256), (128, 512), (300, 1000), (999, 1000)] {
            window.use_slot(slot, || true);
            assert_eq!(shape(&window), (wide, wide), "after slot {slot}");
        }
    }

    #[test]
    fn does_not_grow_without_memory_or_load() {
        let window = Window::new(64, 1000);
        window.use_slot(63, || false);
        assert_eq!(shape(&window), (64, 64));
        let single = Window::new(1, 1000);
        single.use_slot(0, || true);
        assert_eq!(shape(&single), (1, 1), "it requested one");
        let fixed = Window::new(64, 64);
        fixed.use_slot(63, || panic!("it does not grow at all"));
    }

    #[test]
    fn shrinks_to_its_initial_size_after_quiet_minutes() {
        let window = Window::new(64, 1024);
        (0..512).for_each(|slot| window.use_slot(slot, || true));
        assert_eq!(shape(&window), (1024, 1024));
        let mut seen = Vec::new();
        for now_s in (100..=400).step_by(16) {
            window.use_slot(3, || true);
            window.adjust(now_s, false);
            seen.push(window.target());
        }
        assert_eq!(seen[..4], [1024; 4], "busy at the first call, less than a minute ago at the others");
        assert_eq!(seen[4..9], [512, 256, 128, 64, 64]);
        assert_eq!(window.granted(), 1024, "accepted slots remain accepted");
    }

    #[test]
    fn shrinks_at_once_only_if_unused_and_memory_is_scarce() {
        let window = Window::new(64, 512);
        (0..256).for_each(|slot| window.use_slot(slot, || true));
        for now_s in (100..1000).step_by(16) {
            window.use_slot(128, || true);
            window.adjust(now_s, true);
            assert_eq!(window.target(), 512, "a quarter is in use");
        }
        window.adjust(1000, true);
        assert_eq!(window.target(), 256);
    }
}
