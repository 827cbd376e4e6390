//! Replies in the order in which they came, in one piece of memory: each new one takes the place of the oldest.
//!
//! A ring is written from front to back and never searched, so that keeping a reply touches the few cache lines that it
//! fills and those of the oldest one's head; an allocation for each would touch cold memory in several more places.

/// Bytes of a record's head: tag, time, length.
const HEAD: usize = 16;

/// Records begin at multiples of this many bytes.
const ALIGNMENT: usize = 16;

/// Where a record begins.
pub(super) type Place = u32;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ring {
    /// Nothing until the first record comes.
    memory: Box<[u8]>,
    capacity: usize,
    /// Where the next record goes.
    head: usize,
    /// The oldest record. Records lie from here to the head; where the head is not behind it, to `end` and from 0 on.
    tail: usize,
    end: usize,
    records: usize,
}

/// A record that was pushed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'r> {
    pub(super) tag: u64,
    /// Seconds.
    pub(super) began_s: u32,
    pub(super) bytes: &'r [u8],
}

impl Ring {
    /// Of at most `capacity` bytes, heads among them, and at most 4 GiB.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(Place::MAX as usize) / ALIGNMENT * ALIGNMENT;
        Self { memory: Box::default(), capacity, head: 0, tail: 0, end: 0, records: 0 }
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.records
    }

    /// What was pushed to `place`, while it is there.
    pub(super) fn get(&self, place: Place) -> Record<'_> {
        let (head, rest) = self.memory[place as usize..].split_at(HEAD);
        let (tag, times) = head.split_at(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
        let tag = tag.first_chunk().map_or(0, |tag| u64::from_ne_bytes(*tag));
        Record { tag, began_s: word(times), bytes: &rest[..word(&times[4..]) as usize] }
    }

    /// Puts a record behind all others; `forget` is told tag and place of each that had to go for it. `None` for one that is
    /// longer than the ring.
    pub(super) fn push(&mut self, record: &Record<'_>, mut forget: impl FnMut(u64, Place)) -> Option<Place> {
        let length = (HEAD + record.bytes.len()).next_multiple_of(ALIGNMENT);
        if length > self.capacity {
            return None;
        }
        if self.memory.is_empty() {
            self.memory = vec![0; self.capacity].into_boxed_slice();
        }
        while !self.has_room(length) {
            self.pop(&mut forget);
        }
        let place = self.head;
        let (head, rest) = self.memory[place..place + length].split_at_mut(HEAD);
        head[..8].copy_from_slice(&record.tag.to_ne_bytes());
        head[8..12].copy_from_slice(&record.began_s.to_ne_bytes());
        head[12..].copy_from_slice(&(record.bytes.len() as u32).to_ne_bytes());
        rest[..record.bytes.len()].copy_from_slice(record.bytes);
        self.head += length;
        self.records += 1;
        Some(place as Place)
    }

    /// Whether a record of `length` bytes fits at the head; goes back to the front where that is better.
    fn has_room(&mut self, length: usize) -> bool {
        if self.records == 0 {
            (self.head, self.tail) = (0, 0);
            return true;
        }
        if self.head > self.tail {
            if self.head + length <= self.capacity {
                return true;
            }
            (self.end, self.head) = (self.head, 0);
        }
        self.head + length <= self.tail
    }

    /// Forgets the oldest record, of which there must be one.
    pub(super) fn pop(&mut self, forget: &mut impl FnMut(u64, Place)) {
        let oldest = self.get(self.tail as Place);
        let (tag, length) = (oldest.tag, oldest.bytes.len());
        forget(tag, self.tail as Place);
        self.tail += (HEAD + length).next_multiple_of(ALIGNMENT);
        self.records -= 1;
        if self.tail == self.end && self.head <= self.tail {
            self.tail = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn record(tag: u64, bytes: &[u8]) -> Record<'_> {
        Record { tag, began_s: tag as u32 + 1, bytes }
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut ring = Ring::new(3 * 32);
        let mut gone = Vec::new();
        for tag in 0..5 {
            let place = ring.push(&record(tag, &[tag as u8; 10]), |tag, _| gone.push(tag)).expect("short");
            assert_eq!(ring.get(place), record(tag, &[tag as u8; 10]));
        }
        assert_eq!((ring.len(), &gone[..]), (3, &[0, 1][..]));
    }

    #[test]
    fn what_is_longer_than_the_ring_is_not_kept() {
        let mut ring = Ring::new(64);
        assert_eq!(ring.push(&record(1, &[0; 49]), |_, _| ()), None);
        assert_eq!(Ring::new(0).push(&record(1, b""), |_, _| ()), None);
        assert!(ring.push(&record(1, &[0; 48]), |_, _| ()).is_some());
    }

    proptest! {
        /// Against a queue: the oldest go first, and the others stay as they were.
        #[test]
        fn keeps_the_newest_as_they_were(capacity in 16_usize..600, lengths in prop::collection::vec(0_usize..150, 1..200)) {
            let mut ring = Ring::new(capacity);
            let mut kept = VecDeque::new();
            for (tag, length) in (0..).zip(lengths) {
                let bytes = vec![tag as u8; length];
                let size = (HEAD + length).next_multiple_of(ALIGNMENT);
                let mut gone = Vec::new();
                let place = ring.push(&record(tag, &bytes), |tag, place| gone.push((tag, place)));
                prop_assert_eq!(place.is_some(), size <= capacity / ALIGNMENT * ALIGNMENT);
                for one in gone {
                    let (tag, place, _) = kept.pop_front().expect("forgotten once");
                    prop_assert_eq!(one, (tag, place));
                }
                kept.extend(place.map(|place| (tag, place, bytes)));
                prop_assert_eq!(ring.len(), kept.len());
                for (tag, place, bytes) in &kept {
                    prop_assert_eq!(ring.get(*place), record(*tag, bytes));
                }
                let used: usize = kept.iter().map(|(_, _, bytes)| (HEAD + bytes.len()).next_multiple_of(ALIGNMENT)).sum();
                prop_assert!(used <= capacity);
            }
        }
    }
}
