//! Share reservations: who may open, and who denies (RFC 8881 §9.7, §9.9).

use super::shard::List;
use super::wire::{ShareAccess, ShareDeny, Status};

/// Access and deny of one open, with what they were made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes {
    access: u8,
    deny: u8,
    /// Bit n: some OPEN had access n (1 to 3).
    accesses: u8,
    /// Bit n: some OPEN had deny n (0 to 3).
    denies: u8,
}

/// The bits of access and deny, wishes for delegations left out.
///
/// # Errors
/// INVAL where access is none, or either has unknown bits (§18.16.3, §18.18.3).
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

    /// Access and deny.
    pub(crate) fn bits(&self) -> (u8, u8) {
        (self.access, self.deny)
    }

    /// Whether the open reads.
    pub(crate) fn reads(&self) -> bool {
        self.access & 1 != 0
    }

    /// Whether the open writes.
    pub(crate) fn writes(&self) -> bool {
        self.access & 2 != 0
    }

    /// Whether a byte-range lock may be had through the open. §18.10.4: "LOCK operations are subject to … checks against the
    /// access type of the associated file"; POSIX: a shared lock takes a descriptor open for reading, an exclusive one a
    /// descriptor open for writing.
    pub(crate) fn may_lock(&self, write: bool) -> bool {
        if write { self.writes() } else { self.reads() }
    }

    /// §9.9: "it includes the union of the access and deny bits for all of the OPEN requests completed".
    pub(crate) fn upgraded(&self, (access, deny): (u8, u8)) -> Self {
        Self {
            access: self.access | access,
            deny: self.deny | deny,
            accesses: self.accesses | 1 << access,
            denies: self.denies | 1 << deny,
        }
    }

    /// OPEN_DOWNGRADE. §18.18.3: "The bits in share_access SHOULD equal the union of the share_access bits … specified for
    /// some subset of the OPENs in effect", and of share_deny likewise; otherwise INVAL. OPENs that were for more than what is
    /// left are no longer in effect.
    pub(crate) fn downgraded(&self, (access, deny): (u8, u8)) -> Result<Self, Status> {
        let accesses = subsets(self.accesses, access);
        let denies = subsets(self.denies, deny);
        if union(accesses) != Some(access) || union(denies) != Some(deny) {
            return Err(Status::INVAL);
        }
        Ok(Self { access, deny, accesses, denies })
    }
}

/// Of the values in a set, those that have no bit beyond `within`.
fn subsets(set: u8, within: u8) -> u8 {
    (0..4).filter(|value| value & !within == 0).map(|value| set & 1 << value).sum()
}

/// All bits of the values in a set; `None` for an empty set.
fn union(set: u8) -> Option<u8> {
    (0..4).filter(|value| set & 1 << value != 0).reduce(|a, b| a | b)
}

/// Classes of opens: by the three values of access, and the four of deny.
const CLASSES: usize = 12;

/// The class of an open with this access and deny.
fn class_of((access, deny): (u8, u8)) -> usize {
    usize::from(deny) * 3 + usize::from(access) - 1
}

/// Access and deny of a class.
fn bits_of(class: usize) -> (u8, u8) {
    (class as u8 % 3 + 1, class as u8 / 3)
}

/// Entries for which there is room in any case.
const LIST_MIN: usize = 64;

/// The opens of a file, sorted by what they share and deny: those that are in the way of another are found without a walk over
/// the others. A list for each class would be ten times as large for the file that is open once, as most are.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Opens {
    /// Entries, class after class.
    list: List,
    /// Where each class ends.
    ends: [u32; CLASSES],
}

impl Opens {
    /// Adds an open and returns its place; `moved` hears of others that have another place now.
    pub(crate) fn insert(&mut self, bits: (u8, u8), entry: u32, mut moved: impl FnMut(u32, u32)) -> u32 {
        let class = class_of(bits);
        let mut gap = self.list.len() as u32;
        self.list.push(entry);
        // The first of each class behind becomes its last.
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

    /// Takes out the open at a place; `moved` hears of others that have another place now.
    pub(crate) fn remove(&mut self, place: u32, mut moved: impl FnMut(u32, u32)) {
        let class = self.ends.iter().position(|end| place < *end).expect("the place of an open");
        let mut gap = place;
        // The last of its own class, and of each behind, closes the gap in front of it.
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

    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, u32> {
        self.list.iter()
    }

    /// Those of the classes that `is_meant` names by their access and deny.
    fn of(&self, is_meant: impl Fn(u8, u8) -> bool) -> impl Iterator<Item = u32> {
        let meant = (0..CLASSES).filter(move |class| {
            let (access, deny) = bits_of(*class);
            is_meant(access, deny)
        });
        meant.flat_map(|class| {
            let start = if class == 0 { 0 } else { self.ends[class - 1] };
            self.list[start as usize..self.ends[class] as usize].iter().copied()
        })
    }

    /// Whether any open writes or denies.
    pub(crate) fn has_writer_or_deny(&self) -> bool {
        self.of(|access, deny| access & 2 != 0 || deny != 0).next().is_some()
    }

    /// Those that are in the way of an open or of I/O with these bits. §9.7: "if ((request.access & file_state.deny)) ||
    /// (request.deny & file_state.access)) { return (NFS4ERR_SHARE_DENIED)", the state being that of all opens, "including those
    /// for the open-owner making the new OPEN request".
    pub(crate) fn in_the_way(&self, bits: (u8, u8)) -> impl Iterator<Item = u32> {
        self.of(move |access, deny| bits.0 & deny != 0 || bits.1 & access != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits_are_valid_as_the_rfc_says() {
        assert_eq!(valid_bits(ShareAccess::empty(), ShareDeny::empty()), Err(Status::INVAL));
        assert_eq!(valid_bits(ShareAccess::READ, ShareDeny::from_bits_retain(4)), Err(Status::INVAL));
        let wish = ShareAccess::from_bits_retain(0x0102);
        assert_eq!(valid_bits(wish, ShareDeny::READ), Ok((2, 1)), "wishes for delegations do not count");
    }

    #[test]
    fn a_downgrade_must_be_a_union_of_opens() {
        let opened = Modes::new((1, 0)).upgraded((3, 2));
        assert_eq!(opened.downgraded((2, 0)), Err(Status::INVAL), "nobody opened for writing alone");
        assert_eq!(opened.downgraded((1, 1)), Err(Status::INVAL), "nobody denied reading");
        let less = opened.downgraded((1, 0)).unwrap();
        assert_eq!(less.bits(), (1, 0));
        assert_eq!(less.downgraded((3, 0)), Err(Status::INVAL), "what was given up is not in effect");
        let both = Modes::new((1, 1)).upgraded((2, 2));
        assert!(both.downgraded((3, 3)).is_ok(), "a union of two");
        assert_eq!(both.downgraded((1, 0)), Err(Status::INVAL), "no open denied nothing");
        assert!(both.downgraded((1, 1)).is_ok());
    }

    #[test]
    fn the_share_matrix_is_that_of_the_pseudocode() {
        let all: Vec<(u8, u8)> = (1..4).flat_map(|access| (0..4).map(move |deny| (access, deny))).collect();
        for held in &all {
            let mut opens = Opens::default();
            let place = opens.insert(*held, 7, |_, _| panic!("there is no other"));
            for asked in &all {
                let denied = asked.0 & held.1 != 0 || asked.1 & held.0 != 0;
                let found: Vec<u32> = opens.in_the_way(*asked).collect();
                assert_eq!(found, if denied { vec![7] } else { vec![] }, "{asked:?} against {held:?}");
            }
            opens.remove(place, |_, _| panic!("there is no other"));
            assert_eq!(opens, Opens::default());
        }
    }

    proptest! {
        /// Against a plain list: opens come and go in any order, and each knows its place.
        #[test]
        fn opens_in_the_way_are_those_of_a_plain_list(
            steps in prop::collection::vec((any::<bool>(), 1u8..4, 0u8..4, any::<usize>()), 1..100),
        ) {
            let mut opens = Opens::default();
            let mut plain: Vec<(u32, (u8, u8))> = Vec::new();
            let mut places = HashMap::new();
            for (entry, (comes, access, deny, which)) in (0..).zip(steps) {
                let mut moved = Vec::new();
                if comes || plain.is_empty() {
                    let place = opens.insert((access, deny), entry, |other, place| moved.push((other, place)));
                    moved.push((entry, place));
                    plain.push((entry, (access, deny)));
                } else {
                    let (gone, _) = plain.swap_remove(which % plain.len());
                    let place = places.remove(&gone).unwrap();
                    opens.remove(place, |other, place| moved.push((other, place)));
                }
                prop_assert!(moved.len() <= CLASSES, "however many opens there are");
                places.extend(moved);
                let listed: HashMap<u32, u32> = opens.iter().copied().zip(0..).collect();
                prop_assert_eq!(&listed, &places);
                let mut found: Vec<u32> = opens.in_the_way((access, deny)).collect();
                let against = |held: &(u8, u8)| access & held.1 != 0 || deny & held.0 != 0;
                let mut expected: Vec<u32> =
                    plain.iter().filter(|(_, held)| against(held)).map(|(entry, _)| *entry).collect();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
                let has_writer_or_deny = plain.iter().any(|(_, held)| held.0 & 2 != 0 || held.1 != 0);
                prop_assert_eq!(opens.has_writer_or_deny(), has_writer_or_deny);
            }
        }
    }
}
