//! Share reservations: who may open, and who denies (RFC 8881 §9.7, §9.9).

use super::wire::{ShareAccess, ShareDeny, Status};

/// Access and deny of one open, with what they were made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Modes {
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
pub(super) fn valid_bits(access: ShareAccess, deny: ShareDeny) -> Result<(u8, u8), Status> {
    let access = access.access().bits() as u8;
    if access == 0 || deny.bits() & !ShareDeny::BOTH.bits() != 0 {
        return Err(Status::INVAL);
    }
    Ok((access, deny.bits() as u8))
}

impl Modes {
    pub(super) fn new((access, deny): (u8, u8)) -> Self {
        Self { access, deny, accesses: 1 << access, denies: 1 << deny }
    }

    pub(super) fn access(&self) -> u8 {
        self.access
    }

    pub(super) fn deny(&self) -> u8 {
        self.deny
    }

    /// Whether the open reads.
    pub(super) fn reads(&self) -> bool {
        self.access & 1 != 0
    }

    /// Whether the open writes.
    pub(super) fn writes(&self) -> bool {
        self.access & 2 != 0
    }

    /// §9.9: "it includes the union of the access and deny bits for all of the OPEN requests completed".
    pub(super) fn upgraded(&self, (access, deny): (u8, u8)) -> Self {
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
    pub(super) fn downgraded(&self, (access, deny): (u8, u8)) -> Result<Self, Status> {
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

/// How many opens of a file have each bit, so that a conflict is seen without a walk over the opens.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareCounts {
    access: [u32; 2],
    deny: [u32; 2],
}

impl ShareCounts {
    pub(super) fn add(&mut self, modes: &Modes) {
        for bit in 0..2 {
            self.access[bit] += u32::from(modes.access >> bit & 1);
            self.deny[bit] += u32::from(modes.deny >> bit & 1);
        }
    }

    pub(super) fn remove(&mut self, modes: &Modes) {
        for bit in 0..2 {
            self.access[bit] -= u32::from(modes.access >> bit & 1);
            self.deny[bit] -= u32::from(modes.deny >> bit & 1);
        }
    }

    /// Whether any open writes or denies.
    pub(super) fn has_writer_or_deny(&self) -> bool {
        self.access[1] > 0 || self.deny != [0; 2]
    }

    /// §9.7: "if ((request.access & file_state.deny)) || (request.deny & file_state.access)) { return (NFS4ERR_SHARE_DENIED)", the
    /// state being that of all opens, "including those for the open-owner making the new OPEN request".
    pub(super) fn conflicts(&self, (access, deny): (u8, u8)) -> bool {
        let present = |counts: [u32; 2]| u8::from(counts[0] > 0) | u8::from(counts[1] > 0) << 1;
        access & present(self.deny) != 0 || deny & present(self.access) != 0
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!((less.access(), less.deny()), (1, 0));
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
            let mut counts = ShareCounts::default();
            counts.add(&Modes::new(*held));
            for asked in &all {
                let denied = asked.0 & held.1 != 0 || asked.1 & held.0 != 0;
                assert_eq!(counts.conflicts(*asked), denied, "{asked:?} against {held:?}");
            }
            counts.remove(&Modes::new(*held));
            assert_eq!(counts, ShareCounts::default());
        }
    }
}
