//! Storage of replies, found by digest, in two blocks of memory.
//!
//! After megabytes of other replies this memory is cold, and each cache line that a call touches costs as much as a
//! system call. So replies are written to a ring, and an index of buckets holds their places: a call touches one line of the index, and the
//! few lines of its reply. Places count all bytes ever written and never repeat. Its place shows that a reply was overwritten, so that
//! nothing is cleaned up: it is the oldest of its bucket, and the first to be replaced.
//!
//! If a bucket gets more replies than it has slots, one is dropped early.

use super::tags::{Tagged, tag};
use super::{Memory, Reply};
use crate::prefetch;

/// Slots of a bucket; four fill a cache line.
const WAYS: usize = 4;

/// One part in this many of the memory is for the index: as many buckets as replies of the usual length.
const INDEX_SHARE: usize = 4;

/// Bytes of a record's head: transaction number, time, length, and padding.
const HEAD: usize = 16;

/// Records begin at multiples of this many bytes.
const ALIGNMENT: usize = 16;

/// Bytes of the ring after a reply that are prefetched for the next one, which is rarely longer.
const PREFETCHED: usize = 320;

/// The place of a record, in bytes ever written; 0 for none.
type Place = u64;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    digest: u64,
    place: Place,
}

#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Bucket([Slot; WAYS]);

/// The storage; see the module.
#[derive(Debug)]
pub(crate) struct RingStorage {
    index: Tagged<Bucket, WAYS>,
    /// Empty until the first reply.
    ring: Box<[u8]>,
    ring_bytes: usize,
    /// The next record's place. Records less than the ring's length before it still exist.
    next: Place,
}

impl Memory for RingStorage {
    fn new(bytes: usize) -> Self {
        let each = Tagged::<Bucket, WAYS>::EACH;
        let buckets = (bytes / INDEX_SHARE / each).max(1);
        let ring_bytes = bytes.saturating_sub(buckets * each) / ALIGNMENT * ALIGNMENT;
        // So that the first place is not 0, and earlier places count as overwritten.
        let next = 2 * ring_bytes as Place;
        Self { index: Tagged::new(buckets), ring: Box::default(), ring_bytes, next }
    }

    fn get(&self, digest: u64) -> Option<Reply<'_>> {
        let bucket = self.index.find(digest)?;
        let slot = bucket.0.iter().find(|slot| slot.digest == digest)?;
        self.reply(slot.place)
    }

    /// A reply longer than the whole memory is not stored.
    fn put(&mut self, digest: u64, reply: Reply<'_>) {
        let length = (HEAD + reply.bytes.len()).next_multiple_of(ALIGNMENT);
        if length > self.ring_bytes {
            return;
        }
        if self.ring.is_empty() {
            self.ring = vec![0; self.ring_bytes].into_boxed_slice();
        }
        let left = self.ring_bytes - self.offset(self.next);
        if left < length {
            self.next += left as Place;
        }
        let place = self.next;
        self.next += length as Place;
        let at = self.offset(place);
        let (head, rest) = self.ring[at..at + length].split_at_mut(HEAD);
        let numbers = [reply.xid, reply.began_s, reply.bytes.len() as u32];
        for (place, number) in head.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        rest[..reply.bytes.len()].copy_from_slice(reply.bytes);
        let behind = &self.ring[(at + length).min(self.ring_bytes)..];
        prefetch(&behind[..behind.len().min(PREFETCHED)]);
        let Some((Bucket(bucket), tags)) = self.index.find_mut(digest) else { return };
        let same = bucket.iter().position(|slot| slot.digest == digest);
        let oldest = || (0..WAYS).min_by_key(|slot| bucket[*slot].place).unwrap_or(0);
        let slot = same.unwrap_or_else(oldest);
        (bucket[slot], tags[slot]) = (Slot { digest, place }, tag(digest));
    }
}

impl RingStorage {
    /// Returns the lengths of the stored replies.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        let slots = self.index.iter().flat_map(|bucket| bucket.0);
        slots.filter_map(|slot| self.reply(slot.place)).map(|reply| reply.bytes.len())
    }

    fn reply(&self, place: Place) -> Option<Reply<'_>> {
        if place + (self.ring_bytes as Place) < self.next {
            return None;
        }
        let (head, rest) = self.ring.get(self.offset(place)..)?.split_at_checked(HEAD)?;
        let mut numbers =
            head.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        let (xid, began_s, length) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(Reply { xid, began_s, bytes: rest.get(..length as usize)? })
    }

    fn offset(&self, place: Place) -> usize {
        (place % self.ring_bytes.max(1) as Place) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(number: u32, bytes: &[u8]) -> Reply<'_> {
        Reply { xid: number, began_s: number + 1, bytes }
    }

    /// Spreads small numbers over all buckets, as a hash does.
    fn digest(number: u32) -> u64 {
        u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn the_newest_replies_of_a_bucket_stay() {
        let mut kept = RingStorage::new(16 << 10);
        let in_first_bucket = |number: u32| u64::from(number);
        for number in 0..10 {
            kept.put(in_first_bucket(number), reply(number, &[number as u8; 10]));
        }
        for number in 0..10 {
            let bytes = [number as u8; 10];
            let expected = (number >= 6).then(|| reply(number, &bytes));
            assert_eq!(kept.get(in_first_bucket(number)), expected, "{number}");
        }
    }

    #[test]
    fn another_reply_under_a_digest_takes_the_first_ones_place() {
        let mut kept = RingStorage::new(1 << 10);
        kept.put(7, reply(1, b"one"));
        kept.put(7, reply(2, b"two"));
        assert_eq!(kept.get(7), Some(reply(2, b"two")));
        assert_eq!(kept.lengths().count(), 1);
    }

    #[test]
    fn does_not_store_replies_longer_than_the_memory() {
        for bytes in [0, 64, 100] {
            let mut kept = RingStorage::new(bytes);
            kept.put(1, reply(1, &[0; 100]));
            assert_eq!(kept.get(1), None, "{bytes}");
        }
    }

    proptest! {
        /// Stored replies are returned unchanged; the newest that fit are all present, except in full buckets.
        #[test]
        fn keeps_the_newest_as_they_were(
            bytes in 0_usize..4096,
            lengths in prop::collection::vec(0_usize..150, 1..200),
        ) {
            let mut kept = RingStorage::new(bytes);
            for (number, length) in (0..).zip(&lengths) {
                kept.put(digest(number), reply(number, &vec![number as u8; *length]));
            }
            let longest = HEAD + 150 + ALIGNMENT;
            let (mut since, mut newer) = (0, vec![0; kept.index.count()]);
            for (number, length) in (0..).zip(&lengths).collect::<Vec<_>>().into_iter().rev() {
                let size = (HEAD + length).next_multiple_of(ALIGNMENT);
                let contents = vec![number as u8; *length];
                let found = kept.get(digest(number));
                if size > kept.ring_bytes {
                    prop_assert_eq!(found, None);
                    continue;
                }
                since += size;
                let in_bucket = &mut newer[kept.index.index(digest(number))];
                *in_bucket += 1;
                match found {
                    Some(found) => prop_assert_eq!(found, reply(number, &contents)),
                    None => prop_assert!(since + longest > kept.ring_bytes || *in_bucket > WAYS),
                }
                prop_assert!(found.is_none() || since <= kept.ring_bytes);
            }
        }
    }
}
