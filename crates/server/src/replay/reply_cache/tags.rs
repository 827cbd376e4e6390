//! A few bits of each stored digest, outside of the buckets.
//!
//! Nearly every call is new, and its bucket is cold: a useless access would cost as much as a system call. Tags take a small
//! part of the buckets' memory and are mostly in the cache. If no tag matches, the digest is not stored. The bucket is prefetched
//! meanwhile, because the call's reply will be written there.

use crate::prefetch;

/// Bits of a digest that select neither its shard (the lowest) nor its bucket (the highest).
type Tag = u8;

/// Buckets of `WAYS` entries, found by digest, each with its tags.
#[derive(Debug)]
pub(super) struct Tagged<B, const WAYS: usize> {
    /// Both are empty until the first reply.
    tags: Box<[[Tag; WAYS]]>,
    buckets: Box<[B]>,
    count: usize,
}

impl<B: Default + Clone, const WAYS: usize> Tagged<B, WAYS> {
    /// Bytes of a bucket with its tags.
    pub(super) const EACH: usize = size_of::<B>() + WAYS * size_of::<Tag>();

    /// Returns a table of this many buckets.
    pub(super) fn new(count: usize) -> Self {
        Self { tags: Box::default(), buckets: Box::default(), count }
    }

    /// Returns the number of buckets.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bucket of a digest if a tag matches.
    pub(super) fn find(&self, digest: u64) -> Option<&B> {
        let index = self.index(digest);
        let bucket = self.buckets.get(index)?;
        if self.tags[index].contains(&tag(digest)) {
            return Some(bucket);
        }
        prefetch(std::slice::from_ref(bucket));
        None
    }

    /// Returns the bucket of a digest and its tags, for storing an entry.
    pub(super) fn find_mut(&mut self, digest: u64) -> Option<(&mut B, &mut [Tag; WAYS])> {
        if self.buckets.is_empty() {
            self.buckets = vec![B::default(); self.count].into_boxed_slice();
            self.tags = vec![[0; WAYS]; self.count].into_boxed_slice();
        }
        let index = self.index(digest);
        Some((self.buckets.get_mut(index)?, self.tags.get_mut(index)?))
    }

    /// Iterates over all buckets; over none before the first reply.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &B> {
        self.buckets.iter()
    }

    /// Returns the index of a digest's bucket: its high half, scaled down.
    pub(super) fn index(&self, digest: u64) -> usize {
        (((digest >> 32) * self.count as u64) >> 32) as usize
    }
}

/// Returns the tag of a digest.
pub(super) fn tag(digest: u64) -> Tag {
    (digest >> 8) as Tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_found_by_its_tags_only() {
        let mut tagged = Tagged::<u32, 4>::new(3);
        assert!(tagged.find(0).is_none(), "empty");
        let in_second = |tag: u64| 0x8000_0000_0000_0000 | tag << 8;
        let (bucket, tags) = tagged.find_mut(in_second(7)).unwrap();
        *bucket = 5;
        *tags = [7, 8, 9, 10].map(|number| tag(in_second(number)));
        for number in 0..=255 {
            let expected = (7..=10).contains(&number).then_some(&5);
            assert_eq!(tagged.find(in_second(number)), expected, "{number}");
        }
        assert!(tagged.find(7 << 8).is_none(), "another bucket");
        assert!(Tagged::<u32, 4>::new(0).find_mut(1).is_none());
    }
}
