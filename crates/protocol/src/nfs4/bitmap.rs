//! `bitmap4`: a set of small numbers.

use std::fmt;

use xdr::{Decode, DecodeError, Encode, Reader, Writer};

/// `bitmap4`: a set of attribute, operation, notification or hint numbers below [`Bitmap::LIMIT`].
///
/// It is stored inline, because every GETATTR has one. No number beyond [`Bitmap::LIMIT`] is assigned: the highest attribute
/// is 86, the highest operation 75. Further words from a peer are decoded into [`Bitmap::has_beyond`] only. Trailing zero
/// words are not encoded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bitmap {
    words: [u32; Self::WORDS],
    beyond: bool,
}

impl Bitmap {
    /// Number of stored words.
    pub const WORDS: usize = 4;
    /// Numbers in the set are less than this.
    pub const LIMIT: u32 = 32 * Self::WORDS as u32;
    /// Maximum number of words from a peer: far more than any registry defines, but only a kilobyte.
    pub const MAX_WIRE_WORDS: usize = 256;
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; Self::WORDS], beyond: false };

    /// Returns the set of these numbers.
    ///
    /// # Panics
    /// If a number is not below [`Self::LIMIT`].
    #[must_use]
    pub const fn of(numbers: &[u32]) -> Self {
        let mut set = Self::EMPTY;
        let mut i = 0;
        while i < numbers.len() {
            assert!(numbers[i] < Self::LIMIT, "number does not fit the bitmap");
            set.words[numbers[i] as usize / 32] |= 1 << (numbers[i] % 32);
            i += 1;
        }
        set
    }

    /// Returns the set with these first words, smallest numbers first.
    #[must_use]
    pub const fn from_words(words: [u32; Self::WORDS]) -> Self {
        Self { words, beyond: false }
    }

    /// Returns the words, smallest numbers first.
    #[must_use]
    pub const fn words(&self) -> &[u32; Self::WORDS] {
        &self.words
    }

    /// Returns whether `number` is in the set; false from [`Self::LIMIT`] on.
    #[inline]
    #[must_use]
    pub const fn has(&self, number: u32) -> bool {
        number < Self::LIMIT && self.words[number as usize / 32] & (1 << (number % 32)) != 0
    }

    /// Adds `number`.
    ///
    /// # Panics
    /// If it is not below [`Self::LIMIT`].
    #[inline]
    pub const fn insert(&mut self, number: u32) {
        assert!(number < Self::LIMIT, "number does not fit the bitmap");
        self.words[number as usize / 32] |= 1 << (number % 32);
    }

    /// Removes `number`.
    #[inline]
    pub const fn remove(&mut self, number: u32) {
        if number < Self::LIMIT {
            self.words[number as usize / 32] &= !(1 << (number % 32));
        }
    }

    /// Returns whether the peer set a bit at [`Self::LIMIT`] or beyond.
    #[must_use]
    pub const fn has_beyond(&self) -> bool {
        self.beyond
    }

    /// Returns whether the set is empty, also beyond [`Self::LIMIT`].
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.beyond && self.length() == 0
    }

    /// Returns the number of elements below [`Self::LIMIT`].
    #[must_use]
    pub const fn length(&self) -> u32 {
        let mut count = 0;
        let mut i = 0;
        while i < Self::WORDS {
            count += self.words[i].count_ones();
            i += 1;
        }
        count
    }

    /// Returns the numbers in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        let mut words = self.words;
        let mut i = 0;
        while i < Self::WORDS {
            words[i] &= other.words[i];
            i += 1;
        }
        Self { words, beyond: self.beyond && other.beyond }
    }

    /// Returns the numbers in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        let mut words = self.words;
        let mut i = 0;
        while i < Self::WORDS {
            words[i] |= other.words[i];
            i += 1;
        }
        Self { words, beyond: self.beyond || other.beyond }
    }

    /// Returns the numbers in this set but not in the other. Bits beyond [`Self::LIMIT`] are unknown and stay.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        let mut words = self.words;
        let mut i = 0;
        while i < Self::WORDS {
            words[i] &= !other.words[i];
            i += 1;
        }
        Self { words, beyond: self.beyond }
    }

    /// Returns whether this set is a subset of the other.
    #[must_use]
    pub const fn is_subset(self, other: Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Returns the numbers in ascending order.
    #[must_use]
    pub fn iter(&self) -> Iter {
        Iter { words: self.words, word: 0 }
    }

    /// Returns the number of encoded words, without trailing zeros.
    #[must_use]
    pub fn encoded_words(&self) -> usize {
        self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1)
    }
}

/// An iterator over the numbers of a [`Bitmap`], ascending.
#[derive(Debug, Clone)]
pub struct Iter {
    words: [u32; Bitmap::WORDS],
    word: usize,
}

impl Iterator for Iter {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.word < Bitmap::WORDS {
            let bits = self.words[self.word];
            if bits != 0 {
                self.words[self.word] = bits & (bits - 1);
                return Some(self.word as u32 * 32 + bits.trailing_zeros());
            }
            self.word += 1;
        }
        None
    }
}

impl IntoIterator for &Bitmap {
    type Item = u32;
    type IntoIter = Iter;
    fn into_iter(self) -> Iter {
        self.iter()
    }
}

impl FromIterator<u32> for Bitmap {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::EMPTY;
        numbers.into_iter().for_each(|number| set.insert(number));
        set
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = f.debug_set();
        set.entries(self.iter());
        if self.beyond {
            set.entry(&format_args!(".."));
        }
        set.finish()
    }
}

impl Decode for Bitmap {
    #[inline]
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let count = reader.length(Self::MAX_WIRE_WORDS)?;
        let mut set = Self::EMPTY;
        for i in 0..count {
            let word = reader.u32()?;
            match set.words.get_mut(i) {
                Some(kept) => *kept = word,
                None => set.beyond |= word != 0,
            }
        }
        Ok(set)
    }
}

impl Encode for Bitmap {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        let count = self.encoded_words();
        writer.u32(count as u32);
        for word in &self.words[..count] {
            writer.u32(*word);
        }
    }
}
