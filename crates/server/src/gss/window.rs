//! The sequence window of a context (RFC 2203 §5.3.3.1).

/// The size of the window: as many calls may run as a session may have slots. 128 bytes a context; §5.3.3.1:
/// "There are no known security issues with selecting a large window."
pub(super) const WINDOW: u32 = 1024;

const WORD_BITS: u32 = u64::BITS;
const WORDS: usize = (WINDOW / WORD_BITS) as usize;

/// The last [`WINDOW`] numbers.
#[derive(Debug)]
pub(super) struct SequenceWindow {
    /// The greatest number seen; 0 before the first.
    last: u32,
    /// Bit `n % WINDOW` is set if number `n` of the window was seen.
    seen: [u64; WORDS],
}

impl SequenceWindow {
    pub(super) fn new() -> Self {
        Self { last: 0, seen: [0; WORDS] }
    }

    /// Returns whether a call with this number is new, and marks it as seen. Only for calls with a valid checksum: otherwise any
    /// sender could move the window (§7.2.1).
    pub(super) fn admit(&mut self, number: u32) -> bool {
        if number > self.last {
            self.advance(number);
        } else if self.last - number >= WINDOW {
            // "If the sequence number received falls below this range, it is silently discarded."
            return false;
        }
        let (word, bit) = place(number);
        // "If the server determines that it has already seen a sequence number within the window, the request is silently
        // discarded."
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    /// Moves the window forward; the numbers that enter it were not seen.
    fn advance(&mut self, to: u32) {
        if to - self.last >= WINDOW {
            self.seen = [0; WORDS];
        } else {
            for number in self.last + 1..=to {
                let (word, bit) = place(number);
                self.seen[word] &= !bit;
            }
        }
        self.last = to;
    }
}

fn place(number: u32) -> (usize, u64) {
    let at = number % WINDOW;
    ((at / WORD_BITS) as usize, 1 << (at % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rpc::gss::MAXSEQ;

    use super::*;

    #[test]
    fn each_number_is_admitted_once_and_old_ones_never() {
        let mut window = SequenceWindow::new();
        assert!(window.admit(0) && !window.admit(0));
        assert!(window.admit(5) && window.admit(3) && !window.admit(3));
        assert!(window.admit(WINDOW + 4));
        // RFC 2203 §5.3.3.1: N through N - seq_window + 1, both inclusive.
        assert!(!window.admit(4), "below the window");
        assert!(!window.admit(5), "seen");
        assert!(window.admit(6));
        assert!(window.admit(MAXSEQ) && !window.admit(6) && !window.admit(MAXSEQ - WINDOW));
        assert!(window.admit(MAXSEQ - WINDOW + 1) && window.admit(MAXSEQ - 1));
    }

    proptest! {
        /// Compares with the rule in the RFC's words, implemented by a set.
        #[test]
        fn admits_as_a_set_of_numbers_would(steps in prop::collection::vec((any::<bool>(), 0..3 * WINDOW), 1..200)) {
            let (mut window, mut seen, mut last) = (SequenceWindow::new(), BTreeSet::new(), 0u32);
            for (forward, distance) in steps {
                let number = if forward { last + distance } else { last.saturating_sub(distance) };
                last = last.max(number);
                let expected = number + WINDOW > last && seen.insert(number);
                prop_assert_eq!(window.admit(number), expected, "{} behind {}", number, last);
            }
        }
    }
}
