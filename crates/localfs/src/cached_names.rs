//! Names that were found in memory lately.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::object::Object;
use crate::patience;

/// Names that are remembered. Eight bytes each.
const NAMES: usize = 16 * 1024;
/// Places of which a mark may have any: with one, some thirty pairs of a directory's thousand names would push each other out.
const WAYS: usize = 4;

/// Names that were found in memory lately: each a mark made of directory, name and minute, in a set given by the
/// same, the newest first. A mark that is pushed out costs an openat2(2) the next time; so does one that is lost because two threads
/// remembered at once.
#[derive(Debug)]
pub(crate) struct Names {
    sets: Box<[[AtomicU64; WAYS]]>,
    hasher: quick_cache::DefaultHashBuilder,
}

impl Default for Names {
    fn default() -> Self {
        Self { sets: (0..NAMES / WAYS).map(|_| Default::default()).collect(), hasher: Default::default() }
    }
}

/// The mark of a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u64);

/// Makes the marks of a directory's names.
pub(crate) struct Marker(NameHasher);

type NameHasher = <quick_cache::DefaultHashBuilder as BuildHasher>::Hasher;

impl Marker {
    /// The mark of a name.
    pub(crate) fn mark(&self, name: &[u8]) -> Mark {
        let mut hasher = self.0.clone();
        name.hash(&mut hasher);
        Mark(hasher.finish() | 1)
    }
}

impl Names {
    /// For the names in `directory`, for this minute.
    pub(crate) fn marker(&self, directory: &Object) -> Marker {
        let mut hasher = self.hasher.build_hasher();
        (directory.key, patience::era()).hash(&mut hasher);
        Marker(hasher)
    }

    fn set(&self, mark: Mark) -> &[AtomicU64; WAYS] {
        &self.sets[(mark.0 >> 32) as usize % (NAMES / WAYS)]
    }

    pub(crate) fn knows(&self, mark: Mark) -> bool {
        self.set(mark).iter().any(|place| place.load(Ordering::Relaxed) == mark.0)
    }

    pub(crate) fn remember(&self, mark: Mark) {
        let mut pushed = mark.0;
        for place in self.set(mark) {
            let here = place.load(Ordering::Relaxed);
            place.store(pushed, Ordering::Relaxed);
            if here == mark.0 {
                return;
            }
            pushed = here;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark of the first set.
    fn mark(number: u64) -> Mark {
        Mark(number << 1 | 1)
    }

    #[test]
    fn a_set_knows_its_newest_marks() {
        let names = Names::default();
        (0..WAYS as u64).for_each(|number| names.remember(mark(number)));
        // Once more: pushes nothing out.
        names.remember(mark(0));
        assert!((0..WAYS as u64).all(|number| names.knows(mark(number))));
        names.remember(mark(9));
        let known: Vec<u64> = (0..10).filter(|number| names.knows(mark(*number))).collect();
        assert_eq!(known, [0, 2, 3, 9], "1 was the oldest");
        assert!(!names.knows(Mark(1 << 32 | 1)), "another set's");
    }
}
