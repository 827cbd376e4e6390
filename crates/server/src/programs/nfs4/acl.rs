//! NFSv4 ACLs (RFC 8881 §6.2) for files that have POSIX ones.
//!
//! **From POSIX**: an ordered list of ALLOW and DENY entries that grants the same as the POSIX list: first the owner, then named
//! users, then groups (all ALLOWs before all DENYs, because a user may be in several groups), then everyone. A class with
//! fewer permissions than a later one also gets a DENY.
//!
//! **To POSIX**: each class gets the permissions that the given list allows to *every* member of the class. An ALLOW counts if
//! it names the class or everyone; a DENY also counts if it may apply to some member (a group that a user may be in). The
//! result never grants more than the given list, and a list that this module made converts back unchanged. Refusing lists
//! without an exact POSIX equivalent was rejected: it would refuse almost every list. Permissions that POSIX lacks (change
//! the owner, delete) are not granted. Those that POSIX always grants (read attributes; for the owner, change them) cannot be
//! denied.

pub(crate) mod creation;

use protocol::nfs4::attributes::acl::{Ace, AceFlags, AceMask, AceType, Acl as WireAcl};
use protocol::nfs4::attributes::number;
use protocol::nfs4::types::{Bitmap, Status, Utf8};
use vfs::{
    ACL_EXECUTE, ACL_READ, ACL_WRITE, Acl, AclEntry, AclKind, AclTag, Attributes, Context, FileKind,
    MAX_ACL_ENTRIES,
};
use xdr::List;

use super::compound::Compound;
use super::set_attributes::{id_text, parse_id};
use super::status::Result;
use crate::IdNames;
use crate::files::object::{File, Object};
use crate::id_names::IdKind;

/// Accesses that POSIX grants to everyone.
const ALWAYS: AceMask = AceMask::READ_ATTRIBUTES.union(AceMask::READ_ACL).union(AceMask::SYNCHRONIZE);
/// Accesses that POSIX always grants to the owner.
const OWNERS: AceMask = AceMask::WRITE_ATTRIBUTES.union(AceMask::WRITE_ACL);
/// Flags of an ACE that only new objects inherit.
const INHERITED_ONLY: AceFlags =
    AceFlags::FILE_INHERIT.union(AceFlags::DIRECTORY_INHERIT).union(AceFlags::INHERIT_ONLY);
/// All flags about inheritance.
const INHERITANCE: AceFlags = INHERITED_ONLY.union(AceFlags::NO_PROPAGATE_INHERIT);

/// Returns the ACL of an object, if the client requests it and the backend has ACLs.
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

/// The POSIX lists that an NFSv4 ACL is converted to.
#[derive(Debug)]
pub(crate) struct PosixAcls {
    access: Acl,
    /// Only directories have one.
    default: Option<Acl>,
}

impl PosixAcls {
    /// Converts `acl` for an object that will have `attributes`.
    ///
    /// # Errors
    /// ATTRNOTSUPP if objects have no ACL, or the ACE type is not supported; INVAL; BADOWNER.
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

    /// Sets the lists on an object of this kind and returns its new attributes.
    pub(crate) async fn set(&self, context: &Context, file: &File<'_>, kind: FileKind) -> Result<Attributes> {
        let backend = &file.export.backend;
        // The default list comes first: the access list may let users in who create files at once.
        if kind == FileKind::Directory {
            let default = self.default.as_ref();
            backend.set_acl(context, &file.handle, AclKind::Default, default).await?;
        }
        Ok(backend.set_acl(context, &file.handle, AclKind::Access, Some(&self.access)).await?.after)
    }
}

/// Returns the NFSv4 ACL with the same meaning as the POSIX lists.
fn to_wire(access: &Acl, default: Option<&Acl>, is_directory: bool, names: Option<&IdNames>) -> WireAcl {
    let mut aces = Vec::new();
    append(access, AceFlags::empty(), is_directory, names, &mut aces);
    if let Some(default) = default {
        append(default, INHERITED_ONLY, is_directory, names, &mut aces);
    }
    // Each POSIX entry gives at most two ACEs, and the bound of a POSIX list is four times smaller.
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

/// Returns the accesses that a permission includes. Write permission on a directory includes DELETE_CHILD.
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

/// Returns the permissions whose accesses are all in `mask`.
fn permissions_of(mask: AceMask, is_directory: bool) -> u8 {
    let part = |needs: AceMask, permission| if mask.contains(needs) { permission } else { 0 };
    part(AceMask::READ_DATA, ACL_READ)
        | part(write_mask(is_directory), ACL_WRITE)
        | part(AceMask::EXECUTE, ACL_EXECUTE)
}

/// Returns the class that an ACE names; `AclTag::Other` means everyone.
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

/// Returns the access list, and for a directory the default list, that grant no more than `acl`.
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
            // RFC 8881 §6.2.1: the type is not in `aclsupport`.
            _ => return Err(Status::ATTRNOTSUPP),
        };
        // RFC 8881 §6.2.1.4.1: for objects other than directories, and for INHERIT_ONLY without an inherit flag, "the operation
        // attempting to set the ACL SHOULD fail with NFS4ERR_ATTRNOTSUPP".
        let inherited = ace.flags.intersects(AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT);
        let is_idle = ace.flags.contains(AceFlags::INHERIT_ONLY) && !inherited;
        if is_idle || (!is_directory && ace.flags.intersects(INHERITANCE)) {
            return Err(Status::ATTRNOTSUPP);
        }
        let rule = Rule { tag: tag_of(ace, names)?, is_allowed, mask: ace.mask };
        let both = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
        // A POSIX default list applies to all new objects at every depth. A narrower ALLOW is left out; a narrower DENY is widened.
        let goes_whole = ace.flags.contains(both) && !ace.flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
        if inherited && (goes_whole || !is_allowed) {
            default.push(rule);
        }
        inherits |= inherited;
        if !ace.flags.contains(AceFlags::INHERIT_ONLY) {
            access.push(rule);
        }
    }
    // The owner and group of a new object are unknown here: they are its creator's.
    let default = if inherits { Some(list(&default, None, true)?) } else { None };
    Ok((list(&access, Some(file.uid), is_directory)?, default))
}

/// An ACE, with its class resolved.
#[derive(Debug, Clone, Copy)]
struct Rule {
    tag: AclTag,
    is_allowed: bool,
    mask: AceMask,
}

/// The owner of the object that a list is for, if known.
type Own = Option<u32>;

/// Returns the POSIX list that grants no more than `rules`.
fn list(rules: &[Rule], own: Own, is_directory: bool) -> std::result::Result<Acl, Status> {
    let mut tags = vec![AclTag::Owner, AclTag::OwningGroup, AclTag::Other];
    tags.extend(rules.iter().map(|rule| rule.tag));
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > MAX_ACL_ENTRIES {
        return Err(Status::NOSPC);
    }
    let found = RuleIndex::new(rules);
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

/// An index of rules by class. With thousands of entries, not every class can scan all rules.
struct RuleIndex<'r> {
    rules: &'r [Rule],
    /// Positions of rules that may apply to every named class, without those whose bits are already decided. There are fewer
    /// than a mask has bits.
    shared: Vec<usize>,
    /// All positions, ordered by tag.
    by_tag: Vec<(AclTag, usize)>,
}

impl<'r> RuleIndex<'r> {
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

    /// Returns the rules that [`granted`] needs for a class, in order.
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

/// Returns the accesses that `rules` allow to every member of a class, in any other groups. RFC 8881 §6.2.1: "Each ACE is processed
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

/// Returns whether a rule applies to every member of a class. The file's group by name is a separate class: its members match
/// both entries, but GROUP@ follows the file when its group changes.
fn covers(tag: AclTag, class: AclTag, own: Own) -> bool {
    let names_owner = || class == AclTag::Owner && own.is_some_and(|uid| tag == AclTag::User(uid));
    tag == AclTag::Other || tag == class || names_owner()
}

/// Returns whether a rule may apply to some member of a class. POSIX checks the owner's entry and named users before groups, so
/// their rules do not affect later classes. A named user may become the owner of a new object.
fn may_concern(tag: AclTag, class: AclTag, own: Own) -> bool {
    let may_own = own.is_none() && class == AclTag::Owner && matches!(tag, AclTag::User(_));
    covers(tag, class, own) || may_own || (is_group(tag) && class != AclTag::Other)
}

fn is_group(tag: AclTag) -> bool {
    matches!(tag, AclTag::OwningGroup | AclTag::Group(_))
}

#[cfg(test)]
mod tests;
