//! NFS_ACL, the additional protocol by which clients of version 3 get and set POSIX ACLs. It has no specification; comments
//! say what Linux and Solaris do.

mod getacl;
mod setacl;

use protocol::nfs3::NfsStat;
use protocol::nfsacl::{AclEntry as WireEntry, AclTag as WireTag, Proc};
use vfs::{Acl, AclEntry, AclTag, Attributes, Error};
use xdr::{Reader, Writer};

use crate::nfs3_reply::{done, whole};
use crate::request::{Request, Served};

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    request: &Request<'_>,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let status = match Proc(procedure) {
        Proc::NULL => NfsStat::OK,
        Proc::GETACL => match whole(arguments) {
            Some(arguments) => getacl::serve(request, arguments, reply).await,
            None => return Served::GarbageArguments,
        },
        Proc::SETACL => match whole(arguments) {
            Some(arguments) => setacl::serve(request, arguments, reply).await,
            None => return Served::GarbageArguments,
        },
        _ => return Served::NoProcedure,
    };
    request.server.metrics.nfsacl[procedure as usize].count(status != NfsStat::OK);
    done(request, status)
}

/// Encodes a list. `marker` is added to each tag: [`WireTag::DEFAULT`] in a default list.
///
/// Solaris expects at least four entries. Linux's server and client therefore add a missing mask with the permissions of the owning group.
fn to_wire(acl: &Acl, file: &Attributes, marker: u32) -> Vec<WireEntry> {
    let mut entries: Vec<_> = acl.entries().iter().map(|entry| wire_entry(entry, file, marker)).collect();
    if !acl.is_extended() {
        let permissions = acl.get(AclTag::OwningGroup).unwrap_or(0);
        let mask = AclEntry { tag: AclTag::Mask, permissions };
        entries.insert(2, wire_entry(&mask, file, marker));
    }
    entries
}

fn wire_entry(entry: &AclEntry, file: &Attributes, marker: u32) -> WireEntry {
    let (tag, id) = match entry.tag {
        AclTag::Owner => (WireTag::USER_OBJ, file.uid),
        AclTag::User(id) => (WireTag::USER, id),
        AclTag::OwningGroup => (WireTag::GROUP_OBJ, file.gid),
        AclTag::Group(id) => (WireTag::GROUP, id),
        AclTag::Mask => (WireTag::CLASS_OBJ, 0),
        AclTag::Other => (WireTag::OTHER_OBJ, 0),
    };
    WireEntry { tag: WireTag(tag.0 | marker), id, perm: u32::from(entry.permissions) }
}

/// Decodes a list; none for an empty one.
///
/// # Errors
/// [`Error::Invalid`] if it is not a valid list.
fn from_wire(entries: &[WireEntry]) -> Result<Option<Acl>, Error> {
    if entries.is_empty() {
        return Ok(None);
    }
    let mut list = Vec::with_capacity(entries.len());
    for entry in entries {
        let tag = match WireTag(entry.tag.0 & !WireTag::DEFAULT) {
            WireTag::USER_OBJ => AclTag::Owner,
            WireTag::USER => AclTag::User(entry.id),
            WireTag::GROUP_OBJ => AclTag::OwningGroup,
            WireTag::GROUP => AclTag::Group(entry.id),
            WireTag::CLASS_OBJ => AclTag::Mask,
            WireTag::OTHER_OBJ => AclTag::Other,
            _ => return Err(Error::Invalid),
        };
        let permissions = u8::try_from(entry.perm).map_err(|_| Error::Invalid)?;
        list.push(AclEntry { tag, permissions });
    }
    drop_needless_mask(&mut list);
    Acl::new(list).map(Some)
}

/// Removes the mask that [`to_wire`] would add.
fn drop_needless_mask(list: &mut Vec<AclEntry>) {
    let of = |tag| list.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions);
    if list.len() == 4 && of(AclTag::Mask).is_some() && of(AclTag::Mask) == of(AclTag::OwningGroup) {
        list.retain(|entry| entry.tag != AclTag::Mask);
    }
}
