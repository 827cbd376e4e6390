//! Prefetches memory into the processor's cache: the only unsafe code of this crate.
#![allow(unsafe_code)]

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Prefetches the cache lines of `memory` for writing. Unlike a load or a store, it makes neither this thread nor a
/// following locked instruction wait. Does nothing on processors without such a hint.
#[inline]
pub fn prefetch<T>(memory: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        let start: *const i8 = memory.as_ptr().cast();
        for offset in (0..size_of_val(memory)).step_by(LINE) {
            // SAFETY: a hint, which changes nothing that a program can see and fails for no address; this one lies within
            // `memory`.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, LINE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetching_changes_nothing() {
        let bytes: Vec<u8> = (0..1000).map(|byte| byte as u8).collect();
        for range in [0..0, 0..1, 63..65, 1..1000, 1000..1000] {
            prefetch(&bytes[range]);
        }
        prefetch::<()>(&[(); 100]);
        assert!(bytes.iter().zip(0..1000).all(|(byte, expected)| *byte == expected as u8));
    }
}
