//! A few bits of each digest that is kept, beside the buckets.
//!
//! Nearly every call is new, and its bucket cold: to look there for what is not there would cost what a system call does. Tags
//! are a small part of the buckets' memory, and mostly near. Where none fits, nothing is kept under the digest; the bucket
//! will be written when the call is answered, and is asked for meanwhile.

use crate::prefetch;

/// A digest's: bits that tell neither its shard (the lowest) nor its bucket (the highest).
type Tag = u8;

/// Buckets of `WAYS` entries, found by digest, each beside its tags.
#[derive(Debug)]
pub(super) struct Tagged<B, const WAYS: usize> {
    /// Both empty until the first reply comes.
    tags: Box<[[Tag; WAYS]]>,
    buckets: Box<[B]>,
    count: usize,
}

impl<B: Default + Clone, const WAYS: usize> Tagged<B, WAYS> {
    /// Bytes of a bucket and its tags.
    pub(super) const EACH: usize = size_of::<B>() + WAYS * size_of::<Tag>();

    /// So many buckets.
    pub(super) fn new(count: usize) -> Self {
        Self { tags: Box::default(), buckets: Box::default(), count }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The bucket of a digest, unless there is none under it for certain.
    pub(super) fn find(&self, digest: u64) -> Option<&B> {
        let index = self.index(digest);
        let bucket = self.buckets.get(index)?;
        if self.tags[index].contains(&tag(digest)) {
            return Some(bucket);
        }
        prefetch(std::slice::from_ref(bucket));
        None
    }

    /// The bucket of a digest, and its entries' tags, for something to be put in.
    pub(super) fn find_mut(&mut self, digest: u64) -> Option<(&mut B, &mut [Tag; WAYS])> {
        if self.buckets.is_empty() {
            self.buckets = vec![B::default(); self.count].into_boxed_slice();
            self.tags = vec![[0; WAYS]; self.count].into_boxed_slice();
        }
        let index = self.index(digest);
        Some((self.buckets.get_mut(index)?, self.tags.get_mut(index)?))
    }

    /// All that there are, none until the first reply comes.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &B> {
        self.buckets.iter()
    }

    /// Which bucket a digest falls into: its high half, scaled down.
    pub(super) fn index(&self, digest: u64) -> usize {
        (((digest >> 32) * self.count as u64) >> 32) as usize
    }
}

/// The tag of an entry with this digest.
pub(super) fn tag(digest: u64) -> Tag {
    (digest >> 8) as Tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_found_by_each_tag_in_it_and_by_no_other() {
        let mut tagged = Tagged::<u32, 4>::new(3);
        assert!(tagged.find(0).is_none(), "nothing is there yet");
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
