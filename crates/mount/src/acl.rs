//! Access control lists as programs have them: values of extended attributes.
//!
//! - `system.posix_acl_access`, `system.posix_acl_default` (Linux, `include/uapi/linux/posix_acl_xattr.h`): a version, then 8 bytes for each
//!   entry, little-endian.
//! - `system.nfs4_acl`: the attribute `acl` of version 4 as XDR (RFC 8881 §6.2.1), as nfs4_getfacl(1) expects it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use client::acl::{Nfs4Ace, PosixEntry, Subject};
use fuse::Errno;

use crate::ids::IdMap;

/// The list of permissions for POSIX programs.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that new objects in a directory inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";
/// The list of version 4.
pub(crate) const NFS4: &[u8] = b"system.nfs4_acl";

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
/// Bytes of an entry of a POSIX list.
const ENTRY: usize = 8;
/// `ACL_UNDEFINED_ID`.
const NO_ID: u32 = u32::MAX;
/// Maximum number of entries of a version 4 list.
const ACES_MAX: u32 = 4096;
/// Maximum number of bytes of a name in it.
const WHO_MAX: u32 = 1024;

/// Numbers of users and groups here and at the server.
#[derive(Clone, Copy)]
pub(crate) struct Ids<'a> {
    pub(crate) users: &'a IdMap,
    pub(crate) groups: &'a IdMap,
}

/// Returns whether the list says no more than a mode does.
pub(crate) fn is_mode(entries: &[PosixEntry]) -> bool {
    entries
        .iter()
        .all(|entry| matches!(entry.subject, Subject::Owner | Subject::OwningGroup | Subject::Other))
}

/// Returns the list that a mode stands for.
pub(crate) fn of_mode(mode: u32) -> Vec<PosixEntry> {
    // Three bits.
    let entry = |subject, shift: u32| PosixEntry { subject, permissions: (mode >> shift & 7) as u8 };
    vec![entry(Subject::Owner, 6), entry(Subject::OwningGroup, 3), entry(Subject::Other, 0)]
}

/// Returns the value of a POSIX list.
pub(crate) fn from_posix(entries: &[PosixEntry], ids: Ids<'_>) -> Bytes {
    let mut value = BytesMut::with_capacity(4 + entries.len() * ENTRY);
    value.put_u32_le(VERSION);
    for PosixEntry { subject, permissions } in entries {
        let (tag, id) = match *subject {
            Subject::Owner => (0x01, NO_ID),
            Subject::User(id) => (0x02, ids.users.local(id)),
            Subject::OwningGroup => (0x04, NO_ID),
            Subject::Group(id) => (0x08, ids.groups.local(id)),
            Subject::Mask => (0x10, NO_ID),
            Subject::Other => (0x20, NO_ID),
        };
        value.put_u16_le(tag);
        value.put_u16_le(u16::from(*permissions));
        value.put_u32_le(id);
    }
    value.freeze()
}

/// Returns the POSIX list of a value.
///
/// # Errors
/// EOPNOTSUPP for another version, EINVAL for a value that is not a list.
pub(crate) fn to_posix(mut value: Bytes, ids: Ids<'_>) -> Result<Vec<PosixEntry>, Errno> {
    let version = value.try_get_u32_le().map_err(|_| Errno::INVAL)?;
    if version != VERSION {
        return Err(Errno::OPNOTSUPP);
    }
    if !value.len().is_multiple_of(ENTRY) {
        return Err(Errno::INVAL);
    }
    let mut entries = Vec::with_capacity(value.len() / ENTRY);
    while value.has_remaining() {
        let (tag, permissions, id) = (value.get_u16_le(), value.get_u16_le(), value.get_u32_le());
        let subject = match tag {
            0x01 => Subject::Owner,
            0x02 => Subject::User(ids.users.remote(id)),
            0x04 => Subject::OwningGroup,
            0x08 => Subject::Group(ids.groups.remote(id)),
            0x10 => Subject::Mask,
            0x20 => Subject::Other,
            _ => return Err(Errno::INVAL),
        };
        let permissions = u8::try_from(permissions).ok().filter(|bits| *bits <= 7).ok_or(Errno::INVAL)?;
        entries.push(PosixEntry { subject, permissions });
    }
    Ok(entries)
}

/// Returns the value of a version 4 list.
pub(crate) fn from_nfs4(entries: &[Nfs4Ace]) -> Bytes {
    let mut value = BytesMut::new();
    // Within the bound of the protocol.
    value.put_u32(entries.len() as u32);
    for Nfs4Ace { kind, flags, mask, who } in entries {
        for word in [*kind, *flags, *mask, who.len() as u32] {
            value.put_u32(word);
        }
        value.put_slice(who);
        value.put_bytes(0, padding(who.len()));
    }
    value.freeze()
}

/// Returns the version 4 list of a value.
///
/// # Errors
/// EINVAL for a value that is not a list.
pub(crate) fn to_nfs4(mut value: Bytes) -> Result<Vec<Nfs4Ace>, Errno> {
    let word = |value: &mut Bytes| value.try_get_u32().map_err(|_| Errno::INVAL);
    let count = word(&mut value)?;
    if count > ACES_MAX {
        return Err(Errno::INVAL);
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let (kind, flags, mask) = (word(&mut value)?, word(&mut value)?, word(&mut value)?);
        let length = word(&mut value)?;
        let end = length as usize + padding(length as usize);
        if length > WHO_MAX || end > value.len() {
            return Err(Errno::INVAL);
        }
        let who = value.split_to(end).slice(..length as usize);
        entries.push(Nfs4Ace { kind, flags, mask, who });
    }
    if value.is_empty() { Ok(entries) } else { Err(Errno::INVAL) }
}

/// Returns the bytes after opaque data of this length (RFC 4506 §4.10).
fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `setfacl -m u:1234:rw` has stored for a file of mode 0644, as getfattr(1) shows it.
    const VALUE: [u8; 44] = [
        2, 0, 0, 0, // version
        1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, // owner
        2, 0, 6, 0, 0xd2, 4, 0, 0, // user 1234
        4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, // group
        0x10, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, // mask
        0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, // others
    ];

    #[test]
    fn posix_lists_have_the_values_of_linux() {
        let (mut users, groups) = (IdMap::default(), IdMap::default());
        let ids = Ids { users: &users, groups: &groups };
        let entries = to_posix(Bytes::from_static(&VALUE), ids).expect("a list");
        assert_eq!(entries[1], PosixEntry { subject: Subject::User(1234), permissions: 6 });
        assert!(!is_mode(&entries) && is_mode(&of_mode(0o640)));
        assert_eq!(from_posix(&entries, ids), VALUE[..]);
        // The server knows the user by another number.
        users.add("77:1234").expect("a pair");
        let ids = Ids { users: &users, groups: &groups };
        let entries = to_posix(Bytes::from_static(&VALUE), ids).expect("a list");
        assert_eq!(entries[1].subject, Subject::User(77));
        assert_eq!(from_posix(&entries, ids), VALUE[..]);
    }

    #[test]
    fn values_that_are_no_lists_are_refused() {
        let (users, groups) = (IdMap::default(), IdMap::default());
        let ids = Ids { users: &users, groups: &groups };
        for end in 0..VALUE.len() {
            let is_whole = end >= 4 && (end - 4) % 8 == 0;
            assert_eq!(to_posix(Bytes::copy_from_slice(&VALUE[..end]), ids).is_ok(), is_whole, "{end}");
        }
        let changed = |at: usize, byte: u8| {
            let mut value = VALUE;
            value[at] = byte;
            to_posix(Bytes::copy_from_slice(&value), ids)
        };
        assert_eq!(changed(0, 1), Err(Errno::OPNOTSUPP));
        assert_eq!(changed(4, 3), Err(Errno::INVAL));
        assert_eq!(changed(6, 8), Err(Errno::INVAL));
        let list = from_nfs4(&[Nfs4Ace { kind: 0, flags: 0, mask: 1, who: Bytes::from_static(b"OWNER@") }]);
        for end in 0..list.len() {
            assert_eq!(to_nfs4(list.slice(..end)), Err(Errno::INVAL), "{end}");
        }
        let mut huge = list.to_vec();
        huge[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(to_nfs4(huge.into()), Err(Errno::INVAL));
    }

    #[test]
    fn version_4_lists_are_xdr() {
        let who = Bytes::from_static(b"GROUP@");
        let entries = vec![Nfs4Ace { kind: 1, flags: 0x40, mask: 0x0012_00a9, who }];
        // RFC 8881 §6.2.1: type, flags, mask, who.
        let expected = b"\0\0\0\x01\0\0\0\x01\0\0\0\x40\0\x12\0\xa9\0\0\0\x06GROUP@\0\0";
        assert_eq!(from_nfs4(&entries), expected[..]);
        assert_eq!(to_nfs4(Bytes::from_static(expected)), Ok(entries));
        assert_eq!(to_nfs4(Bytes::from_static(b"\0\0\0\0")), Ok(Vec::new()));
    }
}
