//! READDIR cookies of 32 bits for a backend's of 64.
//!
//! A cookie below [`WIDE`] is sent unchanged; most file systems have no others. A wider one (a hash of the name, in ext4) becomes a number
//! from [`WIDE`] on, which this map remembers: a keyed hash of directory and cookie, or the next free number after it if another cookie
//! of the directory has that. Old entries are forgotten, and a new process knows none. An unknown number is found again
//! by its hash among the cookies of the whole directory; if not exactly one has it, the listing ends with an error. So a listing never
//! skips or repeats an entry.

use std::collections::HashMap;
use std::hash::Hasher;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

/// The first number for a wider cookie.
const WIDE: u32 = 1 << 31;

/// Entries of each of the two generations; together they take about 6 MiB.
const GENERATION_MAX: usize = 1 << 16;

/// Numbers that are tried for a cookie. Two cookies of a directory of a million entries have the same number once in 4,000 directories.
const TRIES: u32 = 8;

/// Maps cookies to numbers; see the module's documentation.
pub(crate) struct ShortCookies {
    key: [u8; 16],
    known: Mutex<Known>,
}

/// Cookies by directory and number, in two generations. The older one is dropped when the newer one is full.
#[derive(Default)]
struct Known {
    new: HashMap<(u64, u32), u64>,
    old: HashMap<(u64, u32), u64>,
}

/// The meaning of a number from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// This cookie.
    Cookie(u64),
    /// A cookie that is not known: see [`ShortCookies::is_hash_of`].
    Forgotten,
}

impl ShortCookies {
    /// The key must be the same over restarts.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key, known: Mutex::default() }
    }

    /// Returns the number for a cookie of a directory, which is its fingerprint; none if all possible ones are taken.
    pub(super) fn shorten(&self, directory: u64, cookie: u64) -> Option<u32> {
        if let Some(narrow) = u32::try_from(cookie).ok().filter(|cookie| *cookie < WIDE) {
            return Some(narrow);
        }
        let first = self.hash(directory, cookie);
        let mut known = self.known.lock();
        let mut numbers = (0..TRIES).map(|step| first.wrapping_add(step) | WIDE);
        numbers.find(|number| known.take(directory, *number, cookie))
    }

    /// Returns the meaning of a number.
    pub(super) fn meaning(&self, directory: u64, number: u32) -> Meaning {
        if number < WIDE {
            return Meaning::Cookie(number.into());
        }
        let known = self.known.lock();
        known.get(directory, number).map_or(Meaning::Forgotten, Meaning::Cookie)
    }

    /// Returns whether a cookie has this number by its hash.
    pub(super) fn is_hash_of(&self, number: u32, directory: u64, cookie: u64) -> bool {
        cookie >= u64::from(WIDE) && self.hash(directory, cookie) == number
    }

    fn hash(&self, directory: u64, cookie: u64) -> u32 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(&directory.to_le_bytes());
        hasher.write(&cookie.to_le_bytes());
        hasher.finish() as u32 | WIDE
    }
}

impl Known {
    fn get(&self, directory: u64, number: u32) -> Option<u64> {
        let key = (directory, number);
        self.new.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    /// Gives the number to a cookie, unless another one has it.
    fn take(&mut self, directory: u64, number: u32, cookie: u64) -> bool {
        if self.get(directory, number).is_some_and(|other| other != cookie) {
            return false;
        }
        if self.new.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert((directory, number), cookie);
        true
    }
}

impl std::fmt::Debug for ShortCookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShortCookies").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDEST: u64 = u64::MAX;

    #[test]
    fn narrow_cookies_are_unchanged() {
        let cookies = ShortCookies::new([1; 16]);
        for cookie in [0, 3, 0x7fff_ffff] {
            assert_eq!(cookies.shorten(5, cookie), Some(cookie as u32));
            assert_eq!(cookies.meaning(5, cookie as u32), Meaning::Cookie(cookie));
        }
        assert!(cookies.known.lock().new.is_empty());
    }

    #[test]
    fn wide_cookies_are_remembered_for_their_directory() {
        let cookies = ShortCookies::new([1; 16]);
        for cookie in [1 << 31, 1 << 32, WIDEST] {
            let number = cookies.shorten(5, cookie).unwrap();
            assert!(number >= WIDE);
            assert_eq!(cookies.shorten(5, cookie), Some(number));
            assert_eq!(cookies.meaning(5, number), Meaning::Cookie(cookie));
            assert_eq!(cookies.meaning(6, number), Meaning::Forgotten);
        }
    }

    #[test]
    fn another_process_finds_them_by_their_hash() {
        let (old, new) = (ShortCookies::new([1; 16]), ShortCookies::new([1; 16]));
        let number = old.shorten(5, WIDEST).unwrap();
        assert_eq!(new.meaning(5, number), Meaning::Forgotten);
        assert!(new.is_hash_of(number, 5, WIDEST));
        assert!(!new.is_hash_of(number, 5, WIDEST - 1));
        assert!(!new.is_hash_of(3, 5, 3), "a narrow cookie has no hash");
    }

    #[test]
    fn cookies_with_one_hash_get_different_numbers() {
        let cookies = ShortCookies::new([1; 16]);
        let first = cookies.hash(5, WIDEST);
        for step in 0..TRIES {
            let number = first.wrapping_add(step) | WIDE;
            let is_last = step + 1 == TRIES;
            assert!(cookies.known.lock().take(5, number, 1 << 40));
            let expected = (!is_last).then(|| first.wrapping_add(step + 1) | WIDE);
            let taken = cookies.shorten(5, WIDEST);
            assert_eq!(taken, expected, "{step}");
            if let Some(number) = taken {
                cookies.known.lock().new.remove(&(5, number));
            }
        }
    }

    #[test]
    fn the_map_is_bounded() {
        let cookies = ShortCookies::new([1; 16]);
        let numbers: Vec<_> = (0..3 * GENERATION_MAX as u64)
            .map(|cookie| cookies.shorten(5, WIDEST - cookie).expect("enough numbers"))
            .collect();
        let known = cookies.known.lock();
        assert_eq!((known.new.len(), known.old.len()), (GENERATION_MAX, GENERATION_MAX));
        drop(known);
        let last = *numbers.last().unwrap();
        let expected = Meaning::Cookie(WIDEST - (3 * GENERATION_MAX as u64 - 1));
        assert_eq!(cookies.meaning(5, last), expected);
        assert_eq!(cookies.meaning(5, numbers[0]), Meaning::Forgotten);
    }
}
