//! Names that the kernel may cache.
//!
//! The kernel uses a name for the time that it was given. If the client learns before that another client has changed the directory, the
//! kernel must look up the directory's names again ([`CachedNames::of`]).
//!
//! The kernel keeps an inode while it caches a name of it or a program uses it. Invalidating the name of an unused inode makes the kernel
//! send FORGET, which Linux before 6.18 does for no other reason ([`CachedNames::take_unused`]). An invalidated name of a directory breaks
//! programs that have it as working directory, and unmounts what is mounted there, so those of directories are never invalidated.

use std::collections::BTreeMap;
use std::ops::Bound;

use fuse::NodeId;
use parking_lot::Mutex;

/// A name in a directory.
pub(crate) type CachedName = (NodeId, Box<[u8]>);

/// New names between two searches for names that the kernel should drop.
const SEARCH_INTERVAL: usize = 256;

/// The object of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// There is none, which the kernel remembers.
    Absent,
    Directory(NodeId),
    /// A file or another object.
    Other(NodeId),
}

/// What is known of the inode of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The kernel has forgotten the inode.
    Forgotten,
    /// It is open, or was used since the last search.
    Used,
    Unused,
}

/// The names that the kernel may cache. The kernel drops names without telling, so some are outdated until a search finds that their
/// inode is forgotten.
#[derive(Debug, Default)]
pub(crate) struct CachedNames {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    names: BTreeMap<CachedName, Target>,
    /// Names added since the last search.
    added: usize,
    /// The last name that a search examined.
    hand: Option<CachedName>,
}

impl CachedNames {
    /// Notes that the kernel is given a name.
    pub(crate) fn insert(&self, directory: NodeId, name: &[u8], target: Target) {
        let mut table = self.table.lock();
        let is_new = table.names.insert((directory, name.into()), target).is_none();
        table.added += usize::from(is_new);
    }

    /// Notes that the kernel has dropped a name.
    pub(crate) fn remove(&self, directory: NodeId, name: &[u8]) {
        self.table.lock().names.remove(&(directory, name.into()));
    }

    /// Notes a rename. The kernel moves its name too.
    pub(crate) fn rename(&self, from: CachedName, to: CachedName) {
        let names = &mut self.table.lock().names;
        match names.remove(&from) {
            Some(target) => names.insert(to, target),
            None => names.remove(&to),
        };
    }

    /// Returns the names of a directory.
    pub(crate) fn of(&self, directory: NodeId) -> Vec<(Box<[u8]>, Target)> {
        let table = self.table.lock();
        let first: CachedName = (directory, Box::default());
        let names = table.names.range(first..).take_while(|((of, _), _)| *of == directory);
        names.map(|((_, name), target)| (name.clone(), *target)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.lock().names.len()
    }

    /// Returns whether so many names were added that another search is worth it.
    pub(crate) fn is_search_due(&self) -> bool {
        self.table.lock().added >= SEARCH_INTERVAL
    }

    /// Removes up to `count` names that the kernel should drop, and returns them: those of unused inodes, and absent ones. Examines at most
    /// `scan_max` names, from where the last search ended, and drops those of forgotten inodes.
    pub(crate) fn take_unused(
        &self,
        count: usize,
        scan_max: usize,
        mut use_of: impl FnMut(NodeId) -> Use,
    ) -> Vec<CachedName> {
        let mut table = self.table.lock();
        let Table { names, added, hand } = &mut *table;
        *added = 0;
        let (mut unused, mut forgotten) = (Vec::new(), Vec::new());
        let after = hand.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let first = names.range::<CachedName, _>((after, Bound::Unbounded));
        // Without a hand the first range has all names.
        let second = hand.iter().flat_map(|hand| names.range::<CachedName, _>(..=hand));
        let mut last = None;
        for (name, target) in first.chain(second).take(scan_max) {
            last = Some(name);
            let used = match target {
                Target::Absent => Use::Unused,
                Target::Directory(node) if use_of(*node) == Use::Forgotten => Use::Forgotten,
                Target::Directory(_) => Use::Used,
                Target::Other(node) => use_of(*node),
            };
            match used {
                Use::Forgotten => forgotten.push(name.clone()),
                Use::Used => {}
                Use::Unused => unused.push(name.clone()),
            }
            if unused.len() == count {
                break;
            }
        }
        *hand = last.cloned();
        for name in forgotten.iter().chain(&unused) {
            names.remove(name);
        }
        unused
    }

    /// Returns all names, for another process.
    pub(crate) fn save(&self) -> Vec<(u64, Vec<u8>, u64, bool)> {
        let saved = |((directory, name), target): (&CachedName, &Target)| {
            let (node, is_directory) = match target {
                Target::Absent => (0, false),
                Target::Directory(node) => (node.0, true),
                Target::Other(node) => (node.0, false),
            };
            (directory.0, name.to_vec(), node, is_directory)
        };
        self.table.lock().names.iter().map(saved).collect()
    }

    /// Takes a name that another process has saved.
    pub(crate) fn restore(&self, (directory, name, node, is_directory): (u64, Vec<u8>, u64, bool)) {
        let target = match (node, is_directory) {
            (0, _) => Target::Absent,
            (node, true) => Target::Directory(NodeId(node)),
            (node, false) => Target::Other(NodeId(node)),
        };
        self.insert(NodeId(directory), &name, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: NodeId = NodeId(1);

    fn names(count: u64) -> CachedNames {
        let names = CachedNames::default();
        for number in 0..count {
            names.insert(DIRECTORY, &[b'a' + number as u8], Target::Other(NodeId(10 + number)));
        }
        names
    }

    fn text(names: impl IntoIterator<Item = Box<[u8]>>) -> String {
        names
            .into_iter()
            .flat_map(|name| name.iter().map(|byte| char::from(*byte)).collect::<Vec<_>>())
            .collect()
    }

    fn taken(names: &CachedNames, count: usize, scan_max: usize, used: &[u64]) -> String {
        let use_of = |node: NodeId| if used.contains(&node.0) { Use::Used } else { Use::Unused };
        text(names.take_unused(count, scan_max, use_of).into_iter().map(|(_, name)| name))
    }

    #[test]
    fn a_search_continues_where_the_last_one_ended() {
        let names = names(6);
        assert_eq!(taken(&names, 2, 100, &[]), "ab");
        assert_eq!(taken(&names, 2, 100, &[12]), "de");
        assert_eq!(taken(&names, 2, 100, &[]), "fc", "after the last name comes the first");
        assert_eq!((taken(&names, 2, 100, &[]).as_str(), names.len()), ("", 0));
    }

    #[test]
    fn a_search_examines_no_more_than_its_limit() {
        let names = names(6);
        assert_eq!(taken(&names, 2, 3, &[10, 11, 12, 13, 14, 15]), "");
        assert_eq!(taken(&names, 6, 2, &[10, 11, 12]), "de", "the fourth and the fifth");
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn names_of_forgotten_inodes_are_dropped() {
        let names = names(3);
        assert_eq!(
            names.take_unused(3, 100, |node| if node.0 == 11 { Use::Used } else { Use::Forgotten }),
            []
        );
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn absent_names_are_unused_and_those_of_directories_are_kept() {
        let names = names(2);
        names.insert(DIRECTORY, b"a", Target::Directory(NodeId(10)));
        names.insert(DIRECTORY, b"x", Target::Absent);
        assert_eq!(taken(&names, 9, 100, &[]), "bx");
        assert_eq!(names.take_unused(9, 100, |_| Use::Forgotten), []);
        assert_eq!(names.len(), 0, "a forgotten directory");
    }

    #[test]
    fn a_name_is_invalidated_only_for_the_inode_that_has_it() {
        let names = names(3);
        // `a` becomes `c`, and `a` is a directory then.
        names.rename((DIRECTORY, (*b"a").into()), (DIRECTORY, (*b"c").into()));
        names.insert(DIRECTORY, b"a", Target::Directory(NodeId(20)));
        assert_eq!(taken(&names, 3, 100, &[]), "bc");
        // `d` is not known: it may be a directory, which replaces `e`.
        names.insert(DIRECTORY, b"e", Target::Other(NodeId(21)));
        names.rename((DIRECTORY, (*b"d").into()), (DIRECTORY, (*b"e").into()));
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn names_belong_to_their_directory_and_survive_a_hand_over() {
        let names = names(2);
        names.insert(NodeId(2), b"x", Target::Absent);
        names.insert(NodeId(2), b"y", Target::Directory(NodeId(3)));
        let other = CachedNames::default();
        names.save().into_iter().for_each(|name| other.restore(name));
        for names in [names, other] {
            assert_eq!(text(names.of(DIRECTORY).into_iter().map(|(name, _)| name)), "ab");
            let of = names.of(NodeId(2));
            assert_eq!(
                of,
                [((*b"x").into(), Target::Absent), ((*b"y").into(), Target::Directory(NodeId(3)))]
            );
            assert_eq!(names.of(NodeId(3)), []);
        }
    }

    #[test]
    fn a_search_is_due_after_some_new_names() {
        let names = CachedNames::default();
        for number in 0..SEARCH_INTERVAL as u64 {
            assert!(!names.is_search_due());
            names.insert(NodeId(number), b"a", Target::Absent);
            names.insert(NodeId(number), b"a", Target::Other(NodeId(7)));
        }
        assert!(names.is_search_due());
        assert_eq!(names.take_unused(1, 1, |_| Use::Used), []);
        assert!(!names.is_search_due());
    }
}
