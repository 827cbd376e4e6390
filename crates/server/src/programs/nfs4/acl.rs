//! NFSv4 ACLs (RFC 8881 §6.2) for files that have POSIX ones.
//!
//! **From POSIX**: an ordered list of ALLOW and DENY entries that grants what the POSIX list grants, so that clients see it:
//! first the owner, then named users, then groups (all their ALLOWs before their DENYs, as somebody may be in several),
//! then everyone. Where a class has less than those behind it, a DENY says so.
//!
//! **To POSIX**: what each class of the new list may do is what the given list is sure to allow to *everybody* in that
//! class: an ALLOW counts where it names the class or everyone, a DENY also where it may apply to somebody of the class (a
//! group that a user may be in). So the result never grants more than was asked, and often exactly that; what a list from
//! here said comes back as it was. The rejected alternative is to refuse lists that POSIX cannot say exactly: hardly any
//! list of a client would pass. What POSIX has no word for (to change owners, to delete) is not granted, and what it
//! grants always (to read attributes; for the owner, to change them) cannot be denied.

pub(crate) mod creation;

use protocol::nfs4::attributes::acl::{Ace, AceFlags, AceMask, AceType, Acl as WireAcl};
use protocol::nfs4::attributes::number;
use protocol::nfs4::types::{Bitmap, Status, Utf8};
use vfs::{
    ACL_EXECUTE, ACL_READ, ACL_WRITE, Acl, AclEntry, AclKind, AclTag, Attributes, FileKind, MAX_ACL_ENTRIES,
};
use xdr::List;

use super::compound::Compound;
use super::set_attributes::{id_text, parse_id};
use super::status::Result;
use crate::IdNames;
use crate::files::object::{File, Object};
use crate::id_names::IdKind;

/// What everybody may do.
const ALWAYS: AceMask = AceMask::READ_ATTRIBUTES.union(AceMask::READ_ACL).union(AceMask::SYNCHRONIZE);
/// What the owner may do.
const OWNERS: AceMask = AceMask::WRITE_ATTRIBUTES.union(AceMask::WRITE_ACL);
/// What a directory's entry for new objects says.
const INHERITED_ONLY: AceFlags =
    AceFlags::FILE_INHERIT.union(AceFlags::DIRECTORY_INHERIT).union(AceFlags::INHERIT_ONLY);
/// All that is about inheritance.
const INHERITANCE: AceFlags = INHERITED_ONLY.union(AceFlags::NO_PROPAGATE_INHERIT);

/// The ACL of an object as a client sees it, where it is among the attributes asked for and there are ACLs.
pub(crate) async fn get(
    compound: &Compound<'_>,
    object: &Object<'_>,
    mask: Bitmap,
    attributes: &Attributes,
) -> Result<Option<WireAcl>> {
    let Object::File(file) = object else { return Ok(None) };
    let backend = &file.export.backend;
    if !mask.has(number::ACL) || !backend.properties().acls {
        return Ok(None);
    }
    let context = compound.context(file.export);
    let access = backend.get_acl(&context, &file.handle, AclKind::Access).await?;
    let access = access.unwrap_or_else(|| Acl::of_mode(attributes.mode));
    let is_directory = attributes.kind == FileKind::Directory;
    let default = match is_directory {
        true => backend.get_acl(&context, &file.handle, AclKind::Default).await?,
        false => None,
    };
    Ok(Some(to_wire(&access, default.as_ref(), is_directory, compound.id_names())))
}

/// What a client's list means to the back end.
#[derive(Debug)]
pub(crate) struct Lists {
    access: Acl,
    /// Only directories have one.
    default: Option<Acl>,
}

impl Lists {
    /// Takes `acl` apart for an object that will have `attributes`.
    ///
    /// # Errors
    /// ATTRNOTSUPP where objects have no ACL, or none of this kind; INVAL; BADOWNER.
    pub(crate) fn parse(
        compound: &Compound<'_>,
        file: &File<'_>,
        acl: &WireAcl,
        attributes: &Attributes,
    ) -> Result<Self> {
        if !file.export.backend.properties().acls {
            return Err(Status::ATTRNOTSUPP.into());
        }
        let (access, default) = from_wire(acl, attributes, compound.id_names())?;
        Ok(Self { access, default })
    }

    /// Gives them to an object of this kind; its attributes afterwards.
    pub(crate) async fn set(
        &self,
        compound: &Compound<'_>,
        file: &File<'_>,
        kind: FileKind,
    ) -> Result<Attributes> {
        let context = compound.context(file.export);
        let backend = &file.export.backend;
        // First what children inherit: who comes in by the other list makes some at once.
        if kind == FileKind::Directory {
            let default = self.default.as_ref();
            backend.set_acl(&context, &file.handle, AclKind::Default, default).await?;
        }
        Ok(backend.set_acl(&context, &file.handle, AclKind::Access, Some(&self.access)).await?.after)
    }
}

/// The list that says what these say.
fn to_wire(access: &Acl, default: Option<&Acl>, is_directory: bool, names: Option<&IdNames>) -> WireAcl {
    let mut aces = Vec::new();
    append(access, AceFlags::empty(), is_directory, names, &mut aces);
    if let Some(default) = default {
        append(default, INHERITED_ONLY, is_directory, names, &mut aces);
    }
    // Two entries each at most, and POSIX lists are four times shorter than these may be.
    List::new(aces).unwrap_or_default()
}

fn append(acl: &Acl, flags: AceFlags, is_directory: bool, names: Option<&IdNames>, aces: &mut Vec<Ace>) {
    let entries = acl.effective();
    let any = |wanted: fn(AclTag) -> bool| {
        entries.iter().filter(|entry| wanted(entry.tag)).fold(0, |all, entry| all | entry.permissions)
    };
    let other = any(|tag| tag == AclTag::Other);
    let groups = other | any(|tag| matches!(tag, AclTag::OwningGroup | AclTag::Group(_)));
    let all = groups | any(|tag| matches!(tag, AclTag::User(_)));
    let mut put = |ace_type, tag: AclTag, permissions: u8| {
        let mut mask = mask_of(permissions, is_directory);
        if ace_type == AceType::ALLOWED {
            mask |= if tag == AclTag::Owner { ALWAYS | OWNERS } else { ALWAYS };
        } else if permissions == 0 {
            return;
        }
        let (who, kind) = who_of(tag, names);
        aces.push(Ace { ace_type, flags: flags | kind, mask, who });
    };
    for entry in entries.iter().filter(|entry| matches!(entry.tag, AclTag::Owner | AclTag::User(_))) {
        let behind = if entry.tag == AclTag::Owner { all } else { groups };
        put(AceType::DENIED, entry.tag, behind & !entry.permissions);
        put(AceType::ALLOWED, entry.tag, entry.permissions);
    }
    let of_groups =
        || entries.iter().filter(|entry| matches!(entry.tag, AclTag::OwningGroup | AclTag::Group(_)));
    for entry in of_groups() {
        put(AceType::ALLOWED, entry.tag, entry.permissions);
    }
    for entry in of_groups() {
        put(AceType::DENIED, entry.tag, other & !entry.permissions);
    }
    put(AceType::ALLOWED, AclTag::Other, other);
}

fn who_of(tag: AclTag, names: Option<&IdNames>) -> (Utf8, AceFlags) {
    match tag {
        AclTag::Owner => (Utf8::from_static(b"OWNER@"), AceFlags::empty()),
        AclTag::User(id) => (id_text(id, IdKind::User, names), AceFlags::empty()),
        AclTag::OwningGroup => (Utf8::from_static(b"GROUP@"), AceFlags::IDENTIFIER_GROUP),
        AclTag::Group(id) => (id_text(id, IdKind::Group, names), AceFlags::IDENTIFIER_GROUP),
        AclTag::Mask | AclTag::Other => (Utf8::from_static(b"EVERYONE@"), AceFlags::empty()),
    }
}

/// The accesses that a permission is. For directories, names are removed with it too.
fn mask_of(permissions: u8, is_directory: bool) -> AceMask {
    let mut mask = AceMask::empty();
    mask.set(AceMask::READ_DATA, permissions & ACL_READ != 0);
    mask.set(write_mask(is_directory), permissions & ACL_WRITE != 0);
    mask.set(AceMask::EXECUTE, permissions & ACL_EXECUTE != 0);
    mask
}

const fn write_mask(is_directory: bool) -> AceMask {
    let file = AceMask::WRITE_DATA.union(AceMask::APPEND_DATA);
    if is_directory { file.union(AceMask::DELETE_CHILD) } else { file }
}

/// The permissions that accesses make up: each needs all that it stands for.
fn permissions_of(mask: AceMask, is_directory: bool) -> u8 {
    let part = |needs: AceMask, permission| if mask.contains(needs) { permission } else { 0 };
    part(AceMask::READ_DATA, ACL_READ)
        | part(write_mask(is_directory), ACL_WRITE)
        | part(AceMask::EXECUTE, ACL_EXECUTE)
}

/// Whom an entry names; `AclTag::Other` stands for everyone.
fn tag_of(ace: &Ace, names: Option<&IdNames>) -> std::result::Result<AclTag, Status> {
    Ok(match &ace.who[..] {
        b"OWNER@" => AclTag::Owner,
        b"GROUP@" => AclTag::OwningGroup,
        b"EVERYONE@" => AclTag::Other,
        _ if ace.flags.contains(AceFlags::IDENTIFIER_GROUP) => {
            AclTag::Group(parse_id(&ace.who, IdKind::Group, names)?)
        }
        _ => AclTag::User(parse_id(&ace.who, IdKind::User, names)?),
    })
}

/// The access list, and of a directory the default one, that grant what `acl` grants, or less.
fn from_wire(
    acl: &WireAcl,
    file: &Attributes,
    names: Option<&IdNames>,
) -> std::result::Result<(Acl, Option<Acl>), Status> {
    let is_directory = file.kind == FileKind::Directory;
    let (mut access, mut default, mut inherits) = (Vec::new(), Vec::new(), false);
    for ace in acl.iter() {
        let is_allowed = match ace.ace_type {
            AceType::ALLOWED => true,
            AceType::DENIED => false,
            // RFC 8881 §6.2.1: what `aclsupport` does not name.
            _ => return Err(Status::ATTRNOTSUPP),
        };
        // RFC 8881 §6.2.1.4.1: on what is no directory, and for INHERIT_ONLY without an entry that is inherited, "the operation
        // attempting to set the ACL SHOULD fail with NFS4ERR_ATTRNOTSUPP".
        let inherited = ace.flags.intersects(AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT);
        let is_idle = ace.flags.contains(AceFlags::INHERIT_ONLY) && !inherited;
        if is_idle || (!is_directory && ace.flags.intersects(INHERITANCE)) {
            return Err(Status::ATTRNOTSUPP);
        }
        let rule = Rule { tag: tag_of(ace, names)?, is_allowed, mask: ace.mask };
        let both = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
        // POSIX gives everything new the same, all the way down: an ALLOW for less is left out, a DENY holds for more.
        let goes_whole = ace.flags.contains(both) && !ace.flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
        if inherited && (goes_whole || !is_allowed) {
            default.push(rule);
        }
        inherits |= inherited;
        if !ace.flags.contains(AceFlags::INHERIT_ONLY) {
            access.push(rule);
        }
    }
    // What is new belongs to who makes it, and to a group of theirs: whom a named entry is about is not known yet.
    let default = if inherits { Some(list(&default, None, true)?) } else { None };
    Ok((list(&access, Some(file.uid), is_directory)?, default))
}

/// An entry of a given list.
#[derive(Debug, Clone, Copy)]
struct Rule {
    tag: AclTag,
    is_allowed: bool,
    mask: AceMask,
}

/// User of the object that a list is for, where it is known.
type Own = Option<u32>;

/// The POSIX list that grants no more than `rules`.
fn list(rules: &[Rule], own: Own, is_directory: bool) -> std::result::Result<Acl, Status> {
    let mut tags = vec![AclTag::Owner, AclTag::OwningGroup, AclTag::Other];
    tags.extend(rules.iter().map(|rule| rule.tag));
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > MAX_ACL_ENTRIES {
        return Err(Status::NOSPC);
    }
    let found = Found::new(rules);
    let entry = |tag| {
        let allowed = granted(&found.concerning(tag), tag, own);
        AclEntry { tag, permissions: permissions_of(allowed, is_directory) }
    };
    let mut entries: Vec<_> = tags.into_iter().map(entry).collect();
    if entries.len() > 3 {
        let limited = |entry: &&AclEntry| !matches!(entry.tag, AclTag::Owner | AclTag::Other);
        let permissions = entries.iter().filter(limited).fold(0, |all, entry| all | entry.permissions);
        entries.push(AclEntry { tag: AclTag::Mask, permissions });
    }
    Acl::new(entries).map_err(|error| match error {
        vfs::Error::TooBig => Status::NOSPC,
        _ => Status::INVAL,
    })
}

/// Rules, found by whom they name: with thousands of entries not every class can go through all of them.
struct Found<'r> {
    rules: &'r [Rule],
    /// Places of those that may concern every named class, without what decides nothing any more: fewer than a mask has
    /// bits.
    shared: Vec<usize>,
    /// All places, ordered by tag.
    by_tag: Vec<(AclTag, usize)>,
}

impl<'r> Found<'r> {
    fn new(rules: &'r [Rule]) -> Self {
        let (mut shared, mut decided) = (Vec::new(), AceMask::empty());
        for (place, rule) in rules.iter().enumerate() {
            let is_shared = rule.tag == AclTag::Other || (!rule.is_allowed && is_group(rule.tag));
            if is_shared && !decided.contains(rule.mask) {
                decided |= rule.mask;
                shared.push(place);
            }
        }
        let mut by_tag: Vec<_> = rules.iter().enumerate().map(|(place, rule)| (rule.tag, place)).collect();
        by_tag.sort_unstable();
        Self { rules, shared, by_tag }
    }

    /// All that [`granted`] needs for a class, in order.
    fn concerning(&self, class: AclTag) -> Vec<Rule> {
        if !matches!(class, AclTag::User(_) | AclTag::Group(_)) {
            return self.rules.to_vec();
        }
        let named = &self.by_tag[self.by_tag.partition_point(|(tag, _)| *tag < class)..];
        let named = named.iter().take_while(|(tag, _)| *tag == class).map(|(_, place)| *place);
        let mut places: Vec<_> = named.chain(self.shared.iter().copied()).collect();
        places.sort_unstable();
        places.into_iter().map(|place| self.rules[place]).collect()
    }
}

/// What `rules` allow to everybody in a class, whatever groups else they are in. RFC 8881 §6.2.1: "Each ACE is processed
/// until all of the bits of the requester's access have been ALLOWED. Once a bit … has been ALLOWED by an
/// ACCESS_ALLOWED_ACE, it is no longer considered in the processing of later ACEs."
fn granted(rules: &[Rule], class: AclTag, own: Own) -> AceMask {
    let (mut allowed, mut denied) = (AceMask::empty(), AceMask::empty());
    for rule in rules {
        if rule.is_allowed && covers(rule.tag, class, own) {
            allowed |= rule.mask & !denied;
        } else if !rule.is_allowed && may_concern(rule.tag, class, own) {
            denied |= rule.mask & !allowed;
        }
    }
    allowed
}

/// Whether an entry is about everybody in a class. The file's group by its name is a class of its own: both entries are its members', and
/// what GROUP@ is given goes to another group with the file.
fn covers(tag: AclTag, class: AclTag, own: Own) -> bool {
    let names_owner = || class == AclTag::Owner && own.is_some_and(|uid| tag == AclTag::User(uid));
    tag == AclTag::Other || tag == class || names_owner()
}

/// Whether an entry may be about somebody in a class. POSIX judges the owner by the owner's entry and named users by theirs,
/// before it looks at groups, so that entries for them do not concern classes behind. Whoever is named may be the owner of
/// what is not there yet.
fn may_concern(tag: AclTag, class: AclTag, own: Own) -> bool {
    let may_own = own.is_none() && class == AclTag::Owner && matches!(tag, AclTag::User(_));
    covers(tag, class, own) || may_own || (is_group(tag) && class != AclTag::Other)
}

fn is_group(tag: AclTag) -> bool {
    matches!(tag, AclTag::OwningGroup | AclTag::Group(_))
}

#[cfg(test)]
mod tests;
