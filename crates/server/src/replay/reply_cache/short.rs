//! Storage of short replies of one length, each with its digest in a bucket.
//!
//! A stream of small WRITEs touches memory that is cold after thousands of others, and each cache line costs as much as a system
//! call. Here a call touches one or two adjacent lines, and no ring. The cached part of a WRITE reply of version 2 or 3 fits; its
//! attributes do not, and are read again for a retransmission (`nfs2::write`, `nfs3::write`).
//!
//! Entries of a bucket are ordered by age: the newest is in front.

use super::tags::{Tagged, tag};
use super::{Memory, Reply};

/// Bytes of a short reply.
pub(crate) const SHORT: usize = 16;

/// Entries of a bucket, two to a cache line.
const WAYS: usize = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// 0 if empty. One call in 2^64 has that digest; a retransmission of it is executed again.
    digest: u64,
    xid: u32,
    began_s: u32,
    bytes: [u8; SHORT],
}

#[derive(Debug, Clone, Default)]
#[repr(align(128))]
struct Bucket([Entry; WAYS]);

const _: () = assert!(size_of::<Bucket>() == 128);

/// The storage; see the module.
#[derive(Debug)]
pub(crate) struct Short {
    buckets: Tagged<Bucket, WAYS>,
}

impl Memory for Short {
    fn new(bytes: usize) -> Self {
        Self { buckets: Tagged::new(bytes / Tagged::<Bucket, WAYS>::EACH) }
    }

    fn get(&self, digest: u64) -> Option<Reply<'_>> {
        let bucket = self.buckets.find(digest)?;
        let entry = bucket.0.iter().find(|entry| entry.digest == digest && digest != 0)?;
        Some(Reply { xid: entry.xid, began_s: entry.began_s, bytes: &entry.bytes })
    }

    /// A reply of another length is not stored.
    fn put(&mut self, digest: u64, reply: Reply<'_>) {
        let Ok(bytes) = reply.bytes.try_into() else { return };
        let Some((Bucket(entries), tags)) = self.buckets.find_mut(digest) else { return };
        let gone = entries.iter().position(|entry| entry.digest == digest).unwrap_or(WAYS - 1);
        entries.copy_within(..gone, 1);
        entries[0] = Entry { digest, xid: reply.xid, began_s: reply.began_s, bytes };
        tags.copy_within(..gone, 1);
        tags[0] = tag(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(number: u32, bytes: &[u8]) -> Reply<'_> {
        Reply { xid: number, began_s: number + 1, bytes }
    }

    #[test]
    fn the_newest_replies_of_a_bucket_stay_unchanged() {
        let mut short = Short::new(1 << 10);
        let bytes = |number: u32| [number as u8; SHORT];
        for number in 1..=10 {
            short.put(number.into(), reply(number, &bytes(number)));
        }
        for number in 1..=10 {
            let expected = bytes(number);
            let expected = (number > 6).then(|| reply(number, &expected));
            assert_eq!(short.get(number.into()), expected, "{number}");
        }
    }

    #[test]
    fn another_reply_under_a_digest_takes_the_first_ones_place() {
        let mut short = Short::new(1 << 10);
        for (digest, xid) in [(7, 1), (8, 2), (9, 3), (10, 4), (8, 5)] {
            short.put(digest, reply(xid, &[1; SHORT]));
        }
        for (digest, xid) in [(7, 1), (8, 5), (9, 3), (10, 4)] {
            assert_eq!(short.get(digest), Some(reply(xid, &[1; SHORT])), "no other entry was replaced");
        }
    }

    #[test]
    fn replies_of_other_lengths_and_without_memory_are_not_stored() {
        let mut short = Short::new(1 << 10);
        for length in [0, SHORT - 1, SHORT + 1] {
            short.put(7, reply(1, &vec![1; length]));
            assert_eq!(short.get(7), None, "{length}");
        }
        assert_eq!(short.get(0), None, "empty");
        short.put(1 << 40, reply(1, &[0; SHORT]));
        assert_eq!(short.get(0), None, "an empty slot is not a reply");
        let mut none = Short::new(100);
        none.put(7, reply(1, &[1; SHORT]));
        assert_eq!(none.get(7), None);
    }

    #[test]
    fn memory_is_used_up_to_its_bound() {
        const REPLIES: u32 = 512;
        let mut short = Short::new(REPLIES as usize / WAYS * Tagged::<Bucket, WAYS>::EACH);
        let digest = |number: u32| u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 0..10 * REPLIES {
            short.put(digest(number), reply(number, &[3; SHORT]));
        }
        let kept = (0..10 * REPLIES).filter(|number| short.get(digest(*number)).is_some()).count();
        assert_eq!(kept, REPLIES as usize, "every slot is in use");
        assert!((10 * REPLIES - 50..10 * REPLIES).all(|number| short.get(digest(number)).is_some()));
    }
}
