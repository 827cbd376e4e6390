//! GETACL and SETACL of NFS_ACL, which has no RFC: servers and clients follow Solaris and Linux.

use protocol::nfs4::types::Status;
use protocol::nfsacl::{
    Acl as WireAcl, AclEntry as WireEntry, AclTag, GetAclArgs, Mask, SecAttr, SetAclArgs,
};
use xdr::List;

use super::super::calls::to_wire;
use super::super::convert::post_op;
use super::super::{Nfs3, lacks_program};
use crate::acl::{Acl, PosixAcl, PosixEntry, Subject};
use crate::attributes::Attributes;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::FileHandle;

impl Nfs3 {
    /// Returns the access control lists of an object.
    pub(crate) async fn get_acl(&self, caller: &Caller, handle: FileHandle) -> Result<Acl, OpError> {
        let arguments = GetAclArgs { fh: to_wire(&handle)?, mask: Mask::all() };
        let ok = self.call(caller, &arguments).await.map_err(as_unsupported)?;
        let SecAttr { mask, acl, dfacl } = ok.acl;
        if !mask.contains(Mask::ACL) {
            return Err(OpError::BadReply("access control lists without the access list"));
        }
        let default = if mask.contains(Mask::DFACL) { list(&dfacl, AclTag::DEFAULT)? } else { Vec::new() };
        Ok(Acl::Posix(PosixAcl { access: list(&acl, 0)?, default }))
    }

    /// Sets the access control lists of an object, and returns its attributes if the server sends them. An empty default
    /// list removes the existing one.
    pub(crate) async fn set_acl(
        &self,
        caller: &Caller,
        handle: FileHandle,
        acl: &Acl,
    ) -> Result<Option<Attributes>, OpError> {
        let Acl::Posix(PosixAcl { access, default }) = acl else {
            return Err(OpError::Unsupported("access control lists of version 4"));
        };
        if access.is_empty() {
            return Err(OpError::Invalid(Errno::EINVAL, "the access list is empty"));
        }
        let acl = SecAttr {
            mask: Mask::all(),
            acl: wire_list(access, 0)?,
            dfacl: wire_list(default, AclTag::DEFAULT)?,
        };
        let arguments = SetAclArgs { fh: to_wire(&handle)?, acl };
        post_op(&self.call(caller, &arguments).await.map_err(as_unsupported)?)
    }
}

fn as_unsupported(error: OpError) -> OpError {
    match error {
        OpError::Status(Status::NOTSUPP) => OpError::Unsupported("access control lists"),
        error if lacks_program(&error) => OpError::Unsupported("access control lists"),
        error => error,
    }
}

/// Converts a list whose tags have `marker`.
fn list(wire: &WireAcl, marker: u32) -> Result<Vec<PosixEntry>, OpError> {
    if wire.count as usize != wire.entries.len() {
        return Err(OpError::BadReply("an access control list whose count differs from its length"));
    }
    let mut entries = wire.entries.iter().map(|wire| entry(wire, marker)).collect::<Result<Vec<_>, _>>()?;
    // Solaris sends any order.
    entries.sort_unstable();
    if entries.windows(2).any(|pair| pair[0].subject == pair[1].subject) {
        return Err(OpError::BadReply("an access control list with a subject twice"));
    }
    let has = |subject| entries.iter().any(|entry| entry.subject == subject);
    let is_whole = has(Subject::Owner) && has(Subject::OwningGroup) && has(Subject::Other);
    if !entries.is_empty() && !is_whole {
        return Err(OpError::BadReply("an access control list without owner, group or others"));
    }
    // Servers add a mask to a list of three entries, because Solaris expects four.
    let of = |subject| entries.iter().find(|entry| entry.subject == subject).map(|entry| entry.permissions);
    if entries.len() == 4 && of(Subject::Mask).is_some() && of(Subject::Mask) == of(Subject::OwningGroup) {
        entries.retain(|entry| entry.subject != Subject::Mask);
    }
    Ok(entries)
}

fn entry(wire: &WireEntry, marker: u32) -> Result<PosixEntry, OpError> {
    // Some servers leave the marker out.
    let subject = match AclTag(wire.tag.0 & !marker) {
        AclTag::USER_OBJ => Subject::Owner,
        AclTag::USER => Subject::User(wire.id),
        AclTag::GROUP_OBJ => Subject::OwningGroup,
        AclTag::GROUP => Subject::Group(wire.id),
        AclTag::CLASS_OBJ => Subject::Mask,
        AclTag::OTHER_OBJ => Subject::Other,
        _ => return Err(OpError::BadReply("an entry of an access control list for an unknown subject")),
    };
    match u8::try_from(wire.perm) {
        Ok(permissions @ 0..=7) => Ok(PosixEntry { subject, permissions }),
        _ => Err(OpError::BadReply("unknown permissions in an access control list")),
    }
}

/// Converts a list for the wire, in the order that servers expect, and with the mask that Solaris expects.
fn wire_list(entries: &[PosixEntry], marker: u32) -> Result<WireAcl, OpError> {
    let mut entries = entries.to_vec();
    let group = entries.iter().find(|entry| entry.subject == Subject::OwningGroup);
    if entries.len() == 3
        && let Some(PosixEntry { permissions, .. }) = group.copied()
    {
        entries.push(PosixEntry { subject: Subject::Mask, permissions });
    }
    entries.sort_unstable();
    let wire: Vec<WireEntry> = entries.iter().map(|entry| wire_entry(entry, marker)).collect();
    let count = wire.len() as u32;
    let too_long = |_| OpError::Invalid(Errno::ENOSPC, "the access control list is too long");
    Ok(WireAcl { count, entries: List::new(wire).map_err(too_long)? })
}

fn wire_entry(entry: &PosixEntry, marker: u32) -> WireEntry {
    let (tag, id) = match entry.subject {
        Subject::Owner => (AclTag::USER_OBJ, 0),
        Subject::User(id) => (AclTag::USER, id),
        Subject::OwningGroup => (AclTag::GROUP_OBJ, 0),
        Subject::Group(id) => (AclTag::GROUP, id),
        Subject::Mask => (AclTag::CLASS_OBJ, 0),
        Subject::Other => (AclTag::OTHER_OBJ, 0),
    };
    WireEntry { tag: AclTag(tag.0 | marker), id, perm: u32::from(entry.permissions) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of(subject: Subject, permissions: u8) -> PosixEntry {
        PosixEntry { subject, permissions }
    }

    fn of_mode() -> Vec<PosixEntry> {
        vec![entry_of(Subject::Owner, 6), entry_of(Subject::OwningGroup, 4), entry_of(Subject::Other, 0)]
    }

    fn wire(tag: u32, id: u32, perm: u32) -> WireEntry {
        WireEntry { tag: AclTag(tag), id, perm }
    }

    fn wire_acl(entries: Vec<WireEntry>) -> WireAcl {
        WireAcl { count: entries.len() as u32, entries: List::new(entries).unwrap() }
    }

    #[test]
    fn a_list_of_three_entries_has_a_mask_on_the_wire_only() {
        let sent = wire_list(&of_mode(), 0).unwrap();
        let expected = [wire(1, 0, 6), wire(4, 0, 4), wire(16, 0, 4), wire(32, 0, 0)];
        assert_eq!((sent.count, &sent.entries[..]), (4, &expected[..]));
        assert_eq!(list(&sent, 0), Ok(of_mode()));
    }

    #[test]
    fn entries_are_sorted_and_defaults_marked() {
        let named = [
            entry_of(Subject::Other, 1),
            entry_of(Subject::Group(9), 2),
            entry_of(Subject::Mask, 7),
            entry_of(Subject::User(8), 3),
            entry_of(Subject::OwningGroup, 4),
            entry_of(Subject::Owner, 5),
            entry_of(Subject::User(7), 6),
        ];
        let sent = wire_list(&named, AclTag::DEFAULT).unwrap();
        let order: Vec<_> = sent.entries.iter().map(|entry| (entry.tag.0, entry.id)).collect();
        let expected =
            [(0x1001, 0), (0x1002, 7), (0x1002, 8), (0x1004, 0), (0x1008, 9), (0x1010, 0), (0x1020, 0)];
        assert_eq!(order, expected);
        let mut sorted = named.to_vec();
        sorted.sort_unstable();
        assert_eq!(list(&sent, AclTag::DEFAULT), Ok(sorted));
    }

    #[test]
    fn impossible_lists_are_refused() {
        let whole = || vec![wire(1, 0, 6), wire(4, 0, 4), wire(32, 0, 0)];
        assert_eq!(list(&wire_acl(whole()), 0), Ok(of_mode()));
        let with = |entry| [whole(), vec![entry]].concat();
        let missing = WireAcl { count: 4, entries: List::new(whole()).unwrap() };
        let wrong = [
            missing,
            wire_acl(with(wire(64, 0, 4))),
            wire_acl(with(wire(16, 0, 8))),
            wire_acl(with(wire(1, 0, 6))),
            wire_acl(whole()[..2].to_vec()),
            wire_acl(with(wire(0x1010, 0, 4))),
        ];
        for wrong in wrong {
            assert!(matches!(list(&wrong, 0), Err(OpError::BadReply(_))), "{wrong:?}");
        }
    }
}
