//! Share reservations: the access of a file's opens, and the access that they deny to others (RFC 8881 §9.7, §9.9).

use super::super::locks::LockKind;
use super::super::wire::{ShareAccess, ShareDeny, Status};
use super::entry_list::EntryList;

/// Access and deny of one open, and the OPENs that they are the union of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes {
    access: u8,
    deny: u8,
    /// Bit n is set if some OPEN had access n (1 to 3).
    accesses: u8,
    /// Bit n is set if some OPEN had deny n (0 to 3).
    denies: u8,
}

/// Returns the bits of access and deny, without the `want` flags for delegations.
///
/// # Errors
/// INVAL if access is empty, or either has unknown bits (§18.16.3, §18.18.3).
pub(crate) fn valid_bits(access: ShareAccess, deny: ShareDeny) -> Result<(u8, u8), Status> {
    let access = access.access().bits() as u8;
    if access == 0 || deny.bits() & !ShareDeny::BOTH.bits() != 0 {
        return Err(Status::INVAL);
    }
    Ok((access, deny.bits() as u8))
}

impl Modes {
    pub(crate) fn new((access, deny): (u8, u8)) -> Self {
        Self { access, deny, accesses: 1 << access, denies: 1 << deny }
    }

    pub(crate) fn deny(&self) -> u8 {
        self.deny
    }

    /// Returns access and deny.
    pub(crate) fn bits(&self) -> (u8, u8) {
        (self.access, self.deny)
    }

    /// Returns whether the open is for reading.
    pub(crate) fn reads(&self) -> bool {
        self.access & 1 != 0
    }

    /// Returns whether the open is for writing.
    pub(crate) fn writes(&self) -> bool {
        self.access & 2 != 0
    }

    /// Returns whether a lock of this kind is allowed under the open. §18.10.4: "LOCK operations are subject to … checks against
    /// the access type of the associated file". POSIX: a shared lock needs a descriptor open for reading, an exclusive lock one
    /// open for writing.
    pub(crate) fn may_lock(&self, kind: LockKind) -> bool {
        match kind {
            LockKind::Shared => self.reads(),
            LockKind::Exclusive => self.writes(),
        }
    }

    /// Adds another OPEN. §9.9: "it includes the union of the access and deny bits for all of the OPEN requests completed".
    pub(crate) fn upgraded(&self, (access, deny): (u8, u8)) -> Self {
        Self {
            access: self.access | access,
            deny: self.deny | deny,
            accesses: self.accesses | 1 << access,
            denies: self.denies | 1 << deny,
        }
    }

    /// Reduces access and deny, for OPEN_DOWNGRADE. OPENs for more than the rest are no longer in effect.
    ///
    /// # Errors
    /// INVAL unless §18.18.3 is met: "The bits in share_access SHOULD equal the union of the share_access bits … specified for
    /// some subset of the OPENs in effect", and share_deny likewise.
    pub(crate) fn downgraded(&self, (access, deny): (u8, u8)) -> Result<Self, Status> {
        let accesses = subsets(self.accesses, access);
        let denies = subsets(self.denies, deny);
        if union(accesses) != Some(access) || union(denies) != Some(deny) {
            return Err(Status::INVAL);
        }
        Ok(Self { access, deny, accesses, denies })
    }
}

/// Returns the values of a set that have no bit outside `within`.
fn subsets(set: u8, within: u8) -> u8 {
    (0..4).filter(|value| value & !within == 0).map(|value| set & 1 << value).sum()
}

/// Returns the union of the values in a set; `None` for an empty set.
fn union(set: u8) -> Option<u8> {
    (0..4).filter(|value| set & 1 << value != 0).reduce(|a, b| a | b)
}

/// Classes of opens: three values of access times four of deny.
const CLASSES: usize = 12;

/// Returns the class of an open with this access and deny.
fn class_of((access, deny): (u8, u8)) -> usize {
    usize::from(deny) * 3 + usize::from(access) - 1
}

/// Returns access and deny of a class.
fn bits_of(class: usize) -> (u8, u8) {
    (class as u8 % 3 + 1, class as u8 / 3)
}

/// Entries for which memory is always kept.
const LIST_MIN: usize = 64;

/// The opens of a file, sorted by access and deny: conflicting opens are found without scanning the others. Most files are open
/// once, and for these a list for each class would be ten times as large.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Opens {
    /// Entries, class after class.
    list: EntryList,
    /// Where each class ends.
    ends: [u32; CLASSES],
}

impl Opens {
    /// Adds an open and returns its position. Calls `moved` with the new position of each open that moves.
    pub(crate) fn insert(&mut self, bits: (u8, u8), entry: u32, mut moved: impl FnMut(u32, u32)) -> u32 {
        let class = class_of(bits);
        let mut gap = self.list.len() as u32;
        self.list.push(entry);
        // The first open of each later class moves to its end.
        for other in (class + 1..CLASSES).rev() {
            let first = self.ends[other - 1];
            if first < self.ends[other] {
                self.move_into(gap, first, &mut moved);
                gap = first;
            }
            self.ends[other] += 1;
        }
        self.ends[class] += 1;
        self.list[gap as usize] = entry;
        gap
    }

    /// Removes the open at a position. Calls `moved` with the new position of each open that moves.
    pub(crate) fn remove(&mut self, position: u32, mut moved: impl FnMut(u32, u32)) {
        let class = self.ends.iter().position(|end| position < *end).expect("the position of an open");
        let mut gap = position;
        // The last open of its class, and of each later class, fills the gap before it.
        for other in class..CLASSES {
            let last = self.ends[other] - 1;
            if last > gap {
                self.move_into(gap, last, &mut moved);
            }
            gap = last;
            self.ends[other] -= 1;
        }
        self.list.pop();
        if self.list.capacity() > LIST_MIN && self.list.len() < self.list.capacity() / 4 {
            self.list.grow(self.list.capacity() / 2);
        }
    }

    fn move_into(&mut self, gap: u32, from: u32, moved: &mut impl FnMut(u32, u32)) {
        let entry = self.list[from as usize];
        self.list[gap as usize] = entry;
        moved(entry, gap);
    }

    /// Returns the number of opens.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no opens.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Iterates over all opens.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, u32> {
        self.list.iter()
    }

    /// Iterates over the opens of the classes for whose access and deny `is_chosen` is true.
    fn of(&self, is_chosen: impl Fn(u8, u8) -> bool) -> impl Iterator<Item = u32> {
        let chosen = (0..CLASSES).filter(move |class| {
            let (access, deny) = bits_of(*class);
            is_chosen(access, deny)
        });
        chosen.flat_map(|class| {
            let start = if class == 0 { 0 } else { self.ends[class - 1] };
            self.list[start as usize..self.ends[class] as usize].iter().copied()
        })
    }

    /// Returns whether any open is for writing or denies something.
    pub(crate) fn has_writer_or_deny(&self) -> bool {
        self.of(|access, deny| access & 2 != 0 || deny != 0).next().is_some()
    }

    /// Iterates over the opens that conflict with an open, or with I/O, of these bits. §9.7: "if ((request.access & file_state.deny)) ||
    /// (request.deny & file_state.access)) { return (NFS4ERR_SHARE_DENIED)", where the state is that of all opens, "including those
    /// for the open-owner making the new OPEN request".
    pub(crate) fn conflicting(&self, bits: (u8, u8)) -> impl Iterator<Item = u32> {
        self.of(move |access, deny| bits.0 & deny != 0 || bits.1 & access != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rejects_empty_access_and_unknown_bits() {
        assert_eq!(valid_bits(ShareAccess::empty(), ShareDeny::empty()), Err(Status::INVAL));
        assert_eq!(valid_bits(ShareAccess::READ, ShareDeny::from_bits_retain(4)), Err(Status::INVAL));
        let want = ShareAccess::from_bits_retain(0x0102);
        assert_eq!(valid_bits(want, ShareDeny::READ), Ok((2, 1)), "want flags do not count");
    }

    #[test]
    fn a_downgrade_must_be_a_union_of_opens() {
        let opened = Modes::new((1, 0)).upgraded((3, 2));
        assert_eq!(opened.downgraded((2, 0)), Err(Status::INVAL), "no OPEN was for writing alone");
        assert_eq!(opened.downgraded((1, 1)), Err(Status::INVAL), "no OPEN denied reading");
        let less = opened.downgraded((1, 0)).unwrap();
        assert_eq!(less.bits(), (1, 0));
        assert_eq!(less.downgraded((3, 0)), Err(Status::INVAL), "that OPEN was undone");
        let both = Modes::new((1, 1)).upgraded((2, 2));
        assert!(both.downgraded((3, 3)).is_ok(), "a union of two");
        assert_eq!(both.downgraded((1, 0)), Err(Status::INVAL), "both OPENs denied something");
        assert!(both.downgraded((1, 1)).is_ok());
    }

    #[test]
    fn share_conflicts_follow_the_pseudocode() {
        let all: Vec<(u8, u8)> = (1..4).flat_map(|access| (0..4).map(move |deny| (access, deny))).collect();
        for held in &all {
            let mut opens = Opens::default();
            let position = opens.insert(*held, 7, |_, _| panic!("no open moves"));
            for asked in &all {
                let denied = asked.0 & held.1 != 0 || asked.1 & held.0 != 0;
                let found: Vec<u32> = opens.conflicting(*asked).collect();
                assert_eq!(found, if denied { vec![7] } else { vec![] }, "{asked:?} against {held:?}");
            }
            opens.remove(position, |_, _| panic!("no open moves"));
            assert_eq!(opens, Opens::default());
        }
    }

    proptest! {
        /// Opens come and go in any order, against a list. Each knows its position.
        #[test]
        fn finds_the_conflicting_opens_of_a_list(
            steps in prop::collection::vec((any::<bool>(), 1u8..4, 0u8..4, any::<usize>()), 1..100),
        ) {
            let mut opens = Opens::default();
            let mut plain: Vec<(u32, (u8, u8))> = Vec::new();
            let mut positions = HashMap::new();
            for (entry, (is_added, access, deny, which)) in (0..).zip(steps) {
                let mut moved = Vec::new();
                if is_added || plain.is_empty() {
                    let position = opens.insert((access, deny), entry, |other, position| moved.push((other, position)));
                    moved.push((entry, position));
                    plain.push((entry, (access, deny)));
                } else {
                    let (removed, _) = plain.swap_remove(which % plain.len());
                    let position = positions.remove(&removed).unwrap();
                    opens.remove(position, |other, position| moved.push((other, position)));
                }
                prop_assert!(moved.len() <= CLASSES, "a bounded number of moves");
                positions.extend(moved);
                let listed: HashMap<u32, u32> = opens.iter().copied().zip(0..).collect();
                prop_assert_eq!(&listed, &positions);
                let mut found: Vec<u32> = opens.conflicting((access, deny)).collect();
                let conflicts = |held: &(u8, u8)| access & held.1 != 0 || deny & held.0 != 0;
                let mut expected: Vec<u32> =
                    plain.iter().filter(|(_, held)| conflicts(held)).map(|(entry, _)| *entry).collect();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
                let has_writer_or_deny = plain.iter().any(|(_, held)| held.0 & 2 != 0 || held.1 != 0);
                prop_assert_eq!(opens.has_writer_or_deny(), has_writer_or_deny);
            }
        }
    }
}
