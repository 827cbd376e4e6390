use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The cookie of a directory's first entry; 0, 1 and 2 are reserved by the protocols.
const FIRST_COOKIE: u64 = 3;

/// The object of an entry.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) name: Arc<[u8]>,
    pub(super) fileid: u64,
}

/// The entries of a directory, by name and by cookie.
///
/// A cookie is never reused, and an entry keeps its cookie until its name is removed. So a listing that continues
/// after a cookie visits each remaining entry exactly once. Another object under an existing name (rename over it)
/// keeps that name's cookie, because for a reader the name remained.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: u64,
    pub(super) subdirectories: u32,
    by_name: BTreeMap<Arc<[u8]>, u64>,
    by_cookie: BTreeMap<u64, Slot>,
    next_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: u64) -> Self {
        Self {
            parent,
            subdirectories: 0,
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.by_name.len() as u64
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|cookie| self.by_cookie[cookie].fileid)
    }

    /// Maps `name` to `fileid`; returns its former object.
    pub(super) fn put(&mut self, name: &[u8], fileid: u64) -> Option<u64> {
        if let Some(cookie) = self.by_name.get(name) {
            let slot = self.by_cookie.get_mut(cookie).expect("every name has its cookie");
            return Some(std::mem::replace(&mut slot.fileid, fileid));
        }
        let name: Arc<[u8]> = name.into();
        self.by_name.insert(name.clone(), self.next_cookie);
        self.by_cookie.insert(self.next_cookie, Slot { name, fileid });
        self.next_cookie += 1;
        None
    }

    pub(super) fn take(&mut self, name: &[u8]) -> Option<u64> {
        let cookie = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie).map(|slot| slot.fileid)
    }

    /// Returns whether `cookie` was issued, or starts a listing.
    pub(super) fn gave(&self, cookie: u64) -> bool {
        cookie == 0 || (FIRST_COOKIE..self.next_cookie).contains(&cookie)
    }

    /// Returns the entries after `cookie`, in order.
    pub(super) fn behind(&self, cookie: u64) -> impl Iterator<Item = (u64, &Slot)> {
        self.by_cookie
            .range((Bound::Excluded(cookie), Bound::Unbounded))
            .map(|(&cookie, slot)| (cookie, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Directory, cookie: u64) -> Vec<&[u8]> {
        directory.behind(cookie).map(|(_, slot)| &*slot.name).collect()
    }

    #[test]
    fn a_cookie_is_never_reused() {
        let mut directory = Directory::new(1);
        directory.put(b"a", 10);
        let (first, _) = directory.behind(0).next().unwrap();
        assert_eq!(first, 3);
        directory.take(b"a");
        directory.put(b"a", 10);
        assert_eq!(directory.behind(0).next().unwrap().0, 4);
        assert!(directory.gave(first), "a removed entry's cookie still marks a place");
        assert!(!directory.gave(5) && !directory.gave(1) && !directory.gave(2));
    }

    #[test]
    fn a_name_keeps_its_place_when_its_object_changes() {
        let mut directory = Directory::new(1);
        directory.put(b"a", 10);
        directory.put(b"b", 11);
        let (cookie, _) = directory.behind(0).next().unwrap();
        assert_eq!(directory.put(b"a", 12), Some(10));
        assert_eq!(names(&directory, cookie), [b"b"]);
        assert_eq!(directory.find(b"a"), Some(12));
    }
}
