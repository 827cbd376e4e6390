use crate::{Credentials, Error, Result};

/// Maximum number of entries of an ACL: as many as the NFS_ACL protocol carries. File systems have lower bounds of their own.
pub const MAX_ACL_ENTRIES: usize = 1024;

/// Permission to read, in [`AclEntry::permissions`].
pub const ACL_READ: u8 = 4;
/// Permission to write.
pub const ACL_WRITE: u8 = 2;
/// Permission to execute, or to search a directory.
pub const ACL_EXECUTE: u8 = 1;

/// The user or group that an entry applies to. Entries are kept in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The owner.
    Owner,
    /// The user of this id.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// The group of this id.
    Group(u32),
    /// The maximum permissions of named users and all groups.
    Mask,
    /// All other users.
    Other,
}

/// An entry of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AclEntry {
    /// The user or group that it applies to.
    pub tag: AclTag,
    /// The granted permissions: the low three bits, as in a mode.
    pub permissions: u8,
}

/// One of an object's ACLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AclKind {
    /// The ACL that grants access.
    Access,
    /// The ACL that new objects in a directory inherit.
    Default,
}

/// An access control list of POSIX.1e draft 17: one entry each for the owner, the owning group and others, any number
/// of named users and groups, and a mask if there are any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Creates a list of these entries, in any order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an entry is missing, duplicate, or has impossible permissions; [`Error::TooBig`]
    /// above [`MAX_ACL_ENTRIES`].
    pub fn new(mut entries: Vec<AclEntry>) -> Result<Self> {
        if entries.len() > MAX_ACL_ENTRIES {
            return Err(Error::TooBig);
        }
        entries.sort_unstable();
        let has = |tag| entries.iter().any(|entry| entry.tag == tag);
        let is_named = |entry: &AclEntry| matches!(entry.tag, AclTag::User(_) | AclTag::Group(_));
        let is_whole = has(AclTag::Owner) && has(AclTag::OwningGroup) && has(AclTag::Other);
        let is_masked = has(AclTag::Mask) || !entries.iter().any(is_named);
        let is_single = entries.windows(2).all(|pair| pair[0].tag != pair[1].tag);
        let is_sane = entries.iter().all(|entry| {
            entry.permissions <= 7 && !matches!(entry.tag, AclTag::User(u32::MAX) | AclTag::Group(u32::MAX))
        });
        if is_whole && is_masked && is_single && is_sane { Ok(Self { entries }) } else { Err(Error::Invalid) }
    }

    /// Returns the list that is equivalent to the permission bits of `mode`.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        let entry = |tag, shift: u32| AclEntry { tag, permissions: (mode >> shift & 7) as u8 };
        Self {
            entries: vec![entry(AclTag::Owner, 6), entry(AclTag::OwningGroup, 3), entry(AclTag::Other, 0)],
        }
    }

    /// Returns the entries: the owner, named users by id, the owning group, named groups by id, the mask, others.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Returns the permissions of a tag, if it has an entry.
    #[must_use]
    pub fn get(&self, tag: AclTag) -> Option<u8> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    /// Returns whether permission bits cannot express it.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.entries.len() > 3
    }

    /// Returns the equivalent permission bits. The group's are the mask's, if there is one.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let of = |tag| u32::from(self.get(tag).unwrap_or(0));
        let group = self.get(AclTag::Mask).or(self.get(AclTag::OwningGroup)).unwrap_or(0);
        of(AclTag::Owner) << 6 | u32::from(group) << 3 | of(AclTag::Other)
    }

    /// Returns the list after chmod(2): the owner's, others' and the mask's permissions are the mode's.
    #[must_use]
    pub fn with_mode(&self, mode: u32) -> Self {
        let group = if self.get(AclTag::Mask).is_some() { AclTag::Mask } else { AclTag::OwningGroup };
        self.map(|tag, present| match tag {
            AclTag::Owner => (mode >> 6 & 7) as u8,
            AclTag::Other => (mode & 7) as u8,
            tag if tag == group => (mode >> 3 & 7) as u8,
            _ => present,
        })
    }

    /// Returns the list that an object created with `mode` inherits: the permissions that both grant.
    #[must_use]
    pub fn inherited(&self, mode: u32) -> Self {
        self.with_mode(self.mode() & mode)
    }

    /// Returns the effective permissions: each entry with the mask applied, and no mask.
    #[must_use]
    pub fn effective(&self) -> Vec<AclEntry> {
        let mask = self.get(AclTag::Mask).unwrap_or(7);
        let limited = |entry: &AclEntry| match entry.tag {
            AclTag::Mask => None,
            AclTag::Owner | AclTag::Other => Some(*entry),
            tag => Some(AclEntry { tag, permissions: entry.permissions & mask }),
        };
        self.entries.iter().filter_map(limited).collect()
    }

    /// Returns whether it grants `want` to a caller on an object of this owner and group, by acl(5)'s access check algorithm.
    #[must_use]
    pub fn grants(&self, who: &Credentials, (uid, gid): (u32, u32), want: u8) -> bool {
        let entries = self.effective();
        let covers = |entry: &AclEntry| entry.permissions & want == want;
        let of = |tag| entries.iter().find(|entry| entry.tag == tag);
        if who.uid == uid {
            return of(AclTag::Owner).is_some_and(covers);
        }
        if let Some(user) = of(AclTag::User(who.uid)) {
            return covers(user);
        }
        let groups: Vec<_> = entries
            .iter()
            .filter(|entry| match entry.tag {
                AclTag::OwningGroup => who.is_in_group(gid),
                AclTag::Group(group) => who.is_in_group(group),
                _ => false,
            })
            .collect();
        if groups.is_empty() { of(AclTag::Other).is_some_and(covers) } else { groups.into_iter().any(covers) }
    }

    fn map(&self, permissions: impl Fn(AclTag, u8) -> u8) -> Self {
        let changed =
            |entry: &AclEntry| AclEntry { permissions: permissions(entry.tag, entry.permissions), ..*entry };
        Self { entries: self.entries.iter().map(changed).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn acl(entries: &[(AclTag, u8)]) -> Result<Acl> {
        Acl::new(
            entries
                .iter()
                .map(|(tag, permissions)| AclEntry { tag: *tag, permissions: *permissions })
                .collect(),
        )
    }

    const BASE: [(AclTag, u8); 3] = [(AclTag::Other, 0), (AclTag::Owner, 6), (AclTag::OwningGroup, 4)];

    fn with(more: &[(AclTag, u8)]) -> Result<Acl> {
        acl(&[&BASE, more].concat())
    }

    fn who(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid: 5000, groups: Arc::from(groups) }
    }

    #[test]
    fn incomplete_lists_are_refused() {
        assert_eq!(with(&[]), Ok(Acl::of_mode(0o640)));
        assert!(with(&[(AclTag::User(1), 7), (AclTag::Group(1), 0), (AclTag::Mask, 4)]).is_ok());
        for (entries, why) in [
            (&[(AclTag::User(1), 7)][..], "no mask"),
            (&[(AclTag::Owner, 7)], "two owners"),
            (&[(AclTag::User(1), 7), (AclTag::User(1), 6), (AclTag::Mask, 7)], "one user twice"),
            (&[(AclTag::User(1), 8), (AclTag::Mask, 7)], "a fourth bit"),
            (&[(AclTag::User(u32::MAX), 7), (AclTag::Mask, 7)], "an invalid user"),
        ] {
            assert_eq!(with(entries), Err(Error::Invalid), "{why}");
        }
        assert_eq!(acl(&BASE[1..]), Err(Error::Invalid));
        let many: Vec<_> = (0..MAX_ACL_ENTRIES as u32).map(|id| (AclTag::User(id), 4)).collect();
        assert_eq!(with(&many), Err(Error::TooBig));
    }

    #[test]
    fn the_mask_is_the_groups_mode_bits_and_limits_named_entries() {
        let list = with(&[(AclTag::User(1), 7), (AclTag::Group(9), 5), (AclTag::Mask, 5)]).unwrap();
        assert_eq!(list.mode(), 0o650);
        assert!(list.grants(&who(1, &[]), (1000, 100), 5) && !list.grants(&who(1, &[]), (1000, 100), 2));
        let changed = list.with_mode(0o704);
        assert_eq!((changed.mode(), changed.get(AclTag::OwningGroup)), (0o704, Some(4)));
        assert!(!changed.grants(&who(1, &[]), (1000, 100), 1));
        assert_eq!(list.inherited(0o246).mode(), 0o240);
    }

    #[test]
    fn the_first_matching_entry_decides() {
        let list = with(&[(AclTag::User(1), 0), (AclTag::Group(7), 2), (AclTag::Mask, 7)]).unwrap();
        assert!(!list.grants(&who(1, &[100]), (1000, 100), 4), "only its entry counts for a named user");
        assert!(list.grants(&who(2, &[100]), (1000, 100), 4));
        assert!(list.grants(&who(2, &[100, 7]), (1000, 100), 2));
        assert!(!list.grants(&who(2, &[100, 7]), (1000, 100), 6), "one entry must grant all");
        assert!(!list.grants(&who(2, &[]), (1000, 100), 4));
    }
}
