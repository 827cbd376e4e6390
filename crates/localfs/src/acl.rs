//! POSIX ACLs in the format of the kernel's `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! They are evaluated here only if the kernel cannot do it: in a server without root's capabilities, for a caller
//! of another user id. With root's capabilities the kernel evaluates them (`faccessat2` as the caller).

use vfs::{Acl, AclEntry, AclTag, Credentials, Error};

/// Name of the extended attribute that holds a file's ACL.
pub(crate) const ACCESS_ACL: &str = "system.posix_acl_access";
/// Name of the extended attribute with the ACL that new objects in a directory inherit.
pub(crate) const DEFAULT_ACL: &str = "system.posix_acl_default";
/// Longest ACL that is read, in bytes: the kernel's limit for the value of an extended attribute.
pub(crate) const MAX_ACL_BYTES: usize = 65_536;

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    permissions: u32,
    id: u32,
}

/// Returns whether `value` grants the caller `want`, in the bits of access(2), on a file of owner `uid` and group `gid`.
///
/// This is acl(5)'s "access check algorithm": owner, named user, groups (one entry must grant all of `want`), others.
/// The mask limits named users and groups.
///
/// # Errors
/// [`Error::Io`] for a value that is not an ACL.
pub(crate) fn grants(
    value: &[u8],
    credentials: &Credentials,
    (uid, gid): (u32, u32),
    want: u32,
) -> Result<bool, Error> {
    let entries = parse(value)?;
    let find = |tag| entries.iter().find(|entry: &&Entry| entry.tag == tag);
    let mask = find(MASK).map_or(7, |entry| entry.permissions);
    let covers = |permissions: u32| permissions & want == want;
    if credentials.uid == uid {
        return Ok(find(USER_OBJ).is_some_and(|entry| covers(entry.permissions)));
    }
    if let Some(user) = entries.iter().find(|entry| entry.tag == USER && entry.id == credentials.uid) {
        return Ok(covers(user.permissions & mask));
    }
    let mut is_member = false;
    for entry in &entries {
        let applies = match entry.tag {
            GROUP_OBJ => credentials.is_in_group(gid),
            GROUP => credentials.is_in_group(entry.id),
            _ => false,
        };
        if applies && covers(entry.permissions & mask) {
            return Ok(true);
        }
        is_member |= applies;
    }
    Ok(!is_member && find(OTHER).is_some_and(|entry| covers(entry.permissions)))
}

/// Decodes an ACL.
///
/// # Errors
/// [`Error::Io`] for a value that is not an ACL.
pub(crate) fn decode(value: &[u8]) -> Result<Acl, Error> {
    let entry = |entry: &Entry| {
        let tag = match entry.tag {
            USER_OBJ => AclTag::Owner,
            USER => AclTag::User(entry.id),
            GROUP_OBJ => AclTag::OwningGroup,
            GROUP => AclTag::Group(entry.id),
            MASK => AclTag::Mask,
            OTHER => AclTag::Other,
            _ => return Err(Error::Io),
        };
        Ok(AclEntry { tag, permissions: entry.permissions as u8 })
    };
    let entries = parse(value)?.iter().map(entry).collect::<Result<_, _>>()?;
    Acl::new(entries).map_err(|_| Error::Io)
}

/// Encodes an ACL.
pub(crate) fn encode(acl: &Acl) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in acl.entries() {
        let (tag, id) = match entry.tag {
            AclTag::Owner => (USER_OBJ, u32::MAX),
            AclTag::User(id) => (USER, id),
            AclTag::OwningGroup => (GROUP_OBJ, u32::MAX),
            AclTag::Group(id) => (GROUP, id),
            AclTag::Mask => (MASK, u32::MAX),
            AclTag::Other => (OTHER, u32::MAX),
        };
        value.extend(tag.to_le_bytes());
        value.extend(u16::from(entry.permissions).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn parse(value: &[u8]) -> Result<Vec<Entry>, Error> {
    let (header, body) = value.split_at_checked(HEADER_BYTES).ok_or(Error::Io)?;
    if header != VERSION.to_le_bytes() || body.len() % ENTRY_BYTES != 0 {
        return Err(Error::Io);
    }
    let word = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    Ok(body
        .chunks_exact(ENTRY_BYTES)
        .map(|entry| Entry {
            tag: word(entry),
            permissions: u32::from(word(&entry[2..])) & 7,
            id: u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]),
        })
        .collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;

    const READ: u32 = 4;
    const WRITE: u32 = 2;

    /// Encodes an ACL with the four required entries, and named ones as (tag, permissions, id).
    pub(crate) fn encode(
        owner: u16,
        group: u16,
        mask: u16,
        other: u16,
        named: &[(u16, u16, u32)],
    ) -> Vec<u8> {
        let mut entries = vec![(USER_OBJ, owner, u32::MAX), (GROUP_OBJ, group, u32::MAX)];
        entries.extend_from_slice(named);
        entries.extend([(MASK, mask, u32::MAX), (OTHER, other, u32::MAX)]);
        entries.sort_by_key(|entry| (entry.0, entry.2));
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    fn caller(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid: 5000, groups: Arc::from(groups) }
    }

    #[test]
    fn a_named_user_gets_its_entry_within_the_mask_and_nothing_from_others() {
        let value = encode(6, 0, 4, 6, &[(USER, 6, 1001)]);
        assert_eq!(grants(&value, &caller(1001, &[]), (1000, 100), READ), Ok(true));
        assert_eq!(grants(&value, &caller(1001, &[]), (1000, 100), WRITE), Ok(false));
        assert_eq!(grants(&value, &caller(1002, &[]), (1000, 100), READ | WRITE), Ok(true));
    }

    #[test]
    fn one_group_entry_must_grant_all_requested_permissions() {
        let value = encode(6, 4, 7, 7, &[(GROUP, 2, 200)]);
        let both = caller(1001, &[100, 200]);
        assert_eq!(grants(&value, &both, (1000, 100), READ), Ok(true));
        assert_eq!(grants(&value, &both, (1000, 100), WRITE), Ok(true));
        assert_eq!(grants(&value, &both, (1000, 100), READ | WRITE), Ok(false));
    }

    #[test]
    fn a_malformed_acl_grants_nothing() {
        for value in [&b""[..], &[2, 0, 0], &[1, 0, 0, 0], &[2, 0, 0, 0, 1]] {
            assert_eq!(grants(value, &caller(1, &[]), (1, 1), READ), Err(Error::Io));
        }
    }
}
