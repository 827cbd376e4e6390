use proptest::prelude::*;
use protocol::nfs4::attributes::number as n;
use protocol::nfs4::attributes::{FileAttributes, SetAttributes};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::setattr::{SetAttrArgs, SetAttrResult};
use protocol::nfs4::types::Stateid;

use super::*;
use crate::testing::{getattr, lab, putfh};

const DIRECTORY: Attributes = Attributes {
    kind: FileKind::Directory,
    uid: 10,
    gid: 20,
    ..crate::programs::nfs4::attributes::NO_ATTRIBUTES
};
const FILE: Attributes = Attributes { kind: FileKind::Regular, ..DIRECTORY };

fn acl(entries: &[(AclTag, u8)]) -> Acl {
    Acl::new(
        entries.iter().map(|(tag, permissions)| AclEntry { tag: *tag, permissions: *permissions }).collect(),
    )
    .unwrap()
}

fn ace(ace_type: AceType, who: &'static str, mask: AceMask) -> Ace {
    let (who, group) =
        who.strip_prefix("g:").map_or((who, AceFlags::empty()), |g| (g, AceFlags::IDENTIFIER_GROUP));
    Ace { ace_type, flags: group, mask, who: Utf8::from_static(who.as_bytes()) }
}

pub(super) const R: AceMask = AceMask::READ_DATA;
pub(super) const W: AceMask = AceMask::WRITE_DATA.union(AceMask::APPEND_DATA);

pub(super) fn allow(who: &'static str, mask: AceMask) -> Ace {
    ace(AceType::ALLOWED, who, mask)
}

fn deny(who: &'static str, mask: AceMask) -> Ace {
    ace(AceType::DENIED, who, mask)
}

fn converted(aces: Vec<Ace>, file: &Attributes) -> std::result::Result<(Acl, Option<Acl>), Status> {
    from_wire(&List::new(aces).unwrap(), file, None)
}

/// Permissions of a file's classes: owner, owning group, others.
fn classes(aces: Vec<Ace>) -> (u8, u8, u8) {
    let list = converted(aces, &FILE).unwrap().0;
    let of = |tag| list.get(tag).unwrap();
    (of(AclTag::Owner), of(AclTag::OwningGroup), of(AclTag::Other))
}

#[test]
fn allow_for_everyone_applies_to_each_class() {
    assert_eq!(classes(vec![allow("EVERYONE@", R)]), (4, 4, 4));
    assert_eq!(classes(vec![allow("OWNER@", R | W), allow("EVERYONE@", R)]), (6, 4, 4));
    assert_eq!(classes(vec![]), (0, 0, 0), "an empty list allows nothing");
}

#[test]
fn deny_overrides_later_allow_only() {
    assert_eq!(classes(vec![deny("EVERYONE@", R), allow("OWNER@", R)]), (0, 0, 0));
    assert_eq!(classes(vec![allow("OWNER@", R), deny("EVERYONE@", R)]), (4, 0, 0));
    // The owner may be in the group.
    assert_eq!(classes(vec![deny("GROUP@", R), allow("EVERYONE@", R)]), (0, 0, 4));
    assert_eq!(classes(vec![deny("OWNER@", R), allow("EVERYONE@", R)]), (0, 4, 4));
}

#[test]
fn write_permission_needs_all_write_bits() {
    assert_eq!(classes(vec![allow("EVERYONE@", AceMask::WRITE_DATA)]), (0, 0, 0));
    assert_eq!(
        classes(vec![allow("EVERYONE@", AceMask::WRITE_DATA), allow("OWNER@", AceMask::APPEND_DATA)]),
        (2, 0, 0)
    );
    let directory = |mask| converted(vec![allow("EVERYONE@", mask)], &DIRECTORY).unwrap().0.mode();
    assert_eq!(directory(W), 0, "a caller who may not remove names may not write to a directory");
    assert_eq!(directory(W | AceMask::DELETE_CHILD), 0o222);
}

#[test]
fn named_users_and_groups_get_entries_and_a_mask() {
    let aces = vec![
        allow("OWNER@", R | W),
        allow("1000", R | W),
        deny("1001", R),
        allow("g:300", R),
        allow("EVERYONE@", R),
    ];
    let (list, default) = converted(aces, &FILE).unwrap();
    let wanted = [
        (AclTag::Owner, 6),
        (AclTag::User(1000), 6),
        (AclTag::User(1001), 0),
        (AclTag::OwningGroup, 4),
        (AclTag::Group(300), 4),
        (AclTag::Mask, 6),
        (AclTag::Other, 4),
    ];
    assert_eq!(list, acl(&wanted));
    assert_eq!(default, None);
    // The owner by name is the owner.
    assert_eq!(classes(vec![allow("10", R)]).0, 4);
    // The group's name need not remain the owning group; its members get the permissions of either entry.
    let (list, _) = converted(vec![allow("g:20", R), allow("GROUP@", W), deny("GROUP@", R)], &FILE).unwrap();
    assert_eq!((list.get(AclTag::OwningGroup), list.get(AclTag::Group(20))), (Some(2), Some(4)));
}

#[test]
fn fully_inherited_aces_become_default_acl() {
    let with = |ace: Ace, flags| Ace { flags: ace.flags | flags, ..ace };
    let both = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
    let aces = vec![
        with(deny("1000", R), AceFlags::FILE_INHERIT | AceFlags::INHERIT_ONLY),
        with(allow("1001", R), AceFlags::FILE_INHERIT | AceFlags::INHERIT_ONLY),
        with(allow("1002", R), both | AceFlags::NO_PROPAGATE_INHERIT),
        with(allow("EVERYONE@", R), both),
    ];
    let (access, default) = converted(aces, &DIRECTORY).unwrap();
    assert_eq!(access.get(AclTag::User(1002)), Some(4));
    assert_eq!(access.get(AclTag::User(1000)), None, "for new objects only");
    let default = default.unwrap();
    assert_eq!(default.get(AclTag::User(1000)), Some(0), "a DENY also applies to other objects");
    assert_eq!(default.get(AclTag::User(1001)), None, "an ALLOW for files only cannot be represented");
    assert_eq!(default.get(AclTag::User(1002)), None, "nor one that ends");
    assert_eq!(default.get(AclTag::Other), Some(4));
}

#[test]
fn default_acl_ignores_owner_of_directory() {
    let both = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
    let default = |aces: Vec<Ace>| {
        let aces = aces.into_iter().map(|ace| Ace { flags: ace.flags | both, ..ace }).collect();
        converted(aces, &DIRECTORY).unwrap().1.unwrap()
    };
    // The directory belongs to 10 and 20; any user may create a file there.
    let list = default(vec![allow("10", R), allow("g:20", R)]);
    let of = |tag| list.get(tag);
    assert_eq!((of(AclTag::User(10)), of(AclTag::Group(20))), (Some(4), Some(4)));
    assert_eq!((of(AclTag::Owner), of(AclTag::OwningGroup)), (Some(0), Some(0)), "no rule grants more");
    let list = default(vec![allow("GROUP@", R), allow("g:20", AceMask::EXECUTE)]);
    let groups = (list.get(AclTag::OwningGroup), list.get(AclTag::Group(20)));
    assert_eq!(groups, (Some(4), Some(1)), "the file's group may be another");
    // A user who is denied access may create the file.
    for who in ["10", "1000"] {
        let list = default(vec![deny(who, R), allow("EVERYONE@", R)]);
        assert_eq!((list.get(AclTag::Owner), list.get(AclTag::Other)), (Some(0), Some(4)), "{who}");
    }
}

#[test]
fn refuses_unknown_aces() {
    let one = |ace| converted(vec![ace], &FILE).unwrap_err();
    assert_eq!(one(ace(AceType::AUDIT, "OWNER@", R)), Status::ATTRNOTSUPP);
    assert_eq!(one(ace(AceType(9), "OWNER@", R)), Status::ATTRNOTSUPP);
    assert_eq!(one(allow("INTERACTIVE@", R)), Status::BADOWNER);
    assert_eq!(one(allow("somebody@example.org", R)), Status::BADOWNER);
    assert_eq!(one(Ace { flags: AceFlags::FILE_INHERIT, ..allow("OWNER@", R) }), Status::ATTRNOTSUPP);
    let idle = vec![Ace { flags: AceFlags::INHERIT_ONLY, ..allow("OWNER@", R) }];
    assert_eq!(converted(idle, &DIRECTORY).unwrap_err(), Status::ATTRNOTSUPP, "inherited by nothing");
    let many =
        (0..1100).map(|id: u32| Ace { who: id_text(id, IdKind::User, None), ..allow("", R) }).collect();
    assert_eq!(converted(many, &FILE).unwrap_err(), Status::NOSPC);
}

/// Returns a list with named users 100, 101 and groups 200, 201.
fn any_list() -> impl Strategy<Value = Acl> {
    list_naming([AclTag::User(100), AclTag::User(101), AclTag::Group(200), AclTag::Group(201)])
}

/// As above, possibly with entries that name the owner and the group of [`FILE`].
fn any_list_with_its_own() -> impl Strategy<Value = Acl> {
    list_naming([AclTag::User(10), AclTag::User(101), AclTag::Group(20), AclTag::Group(201)])
}

fn list_naming(tags: [AclTag; 4]) -> impl Strategy<Value = Acl> {
    let permission = || 0u8..8;
    let named = prop::collection::vec((0usize..4, permission()), 0..4);
    ((permission(), permission(), permission(), permission()), named).prop_map(
        move |((owner, group, other, mask), named)| {
            let mut entries =
                vec![(AclTag::Owner, owner), (AclTag::OwningGroup, group), (AclTag::Other, other)];
            for (which, permissions) in named {
                let tag = tags[which];
                if !entries.iter().any(|(other, _)| *other == tag) {
                    entries.push((tag, permissions));
                }
            }
            if entries.len() > 3 {
                entries.push((AclTag::Mask, mask));
            }
            acl(&entries)
        },
    )
}

/// Returns an entry of an NFSv4 list over a few principals.
fn any_ace() -> impl Strategy<Value = Ace> {
    let who = ["OWNER@", "GROUP@", "EVERYONE@", "100", "101", "10", "g:200", "g:201", "g:20"];
    let masks = [R, AceMask::WRITE_DATA, AceMask::APPEND_DATA, W, AceMask::EXECUTE, R | W];
    (0..who.len(), 0..masks.len(), any::<bool>()).prop_map(move |(w, m, allowed)| {
        if allowed { allow(who[w], masks[m]) } else { deny(who[w], masks[m]) }
    })
}

/// Returns the part of `want` that the algorithm of RFC 8881 §6.2.1 allows on a file of this group.
fn rfc_allows(aces: &[Ace], gid: u32, (uid, groups): (u32, &[u32]), want: AceMask) -> bool {
    let mut left = want;
    for ace in aces {
        let is_group = ace.flags.contains(AceFlags::IDENTIFIER_GROUP);
        let applies = match &ace.who[..] {
            b"OWNER@" => uid == FILE.uid,
            b"GROUP@" => groups.contains(&gid),
            b"EVERYONE@" => true,
            text => {
                let id: u32 = std::str::from_utf8(text).unwrap().parse().unwrap();
                if is_group { groups.contains(&id) } else { id == uid }
            }
        };
        if applies && ace.ace_type == AceType::ALLOWED {
            left -= ace.mask;
        } else if applies && ace.mask.intersects(left) {
            return false;
        }
        if left.is_empty() {
            return true;
        }
    }
    left.is_empty()
}

proptest! {
    #[test]
    fn posix_acl_survives_round_trip(access in any_list_with_its_own(), default in prop::option::of(any_list())) {
        let shown = to_wire(&access, default.as_ref(), true, None);
        let (back, back_default) = from_wire(&shown, &DIRECTORY, None).unwrap();
            // With the mask applied: masked permissions grant nothing, and are not shown.
        prop_assert_eq!(back.effective(), access.effective());
        prop_assert_eq!(back_default.map(|acl| acl.effective()), default.map(|acl| acl.effective()));
    }

    #[test]
    fn posix_acl_never_grants_more_than_requested(aces in prop::collection::vec(any_ace(), 0..7)) {
        let list = converted(aces.clone(), &FILE).unwrap().0;
        let groups = [&[][..], &[20], &[200], &[201], &[20, 200], &[200, 201], &[20, 200, 201]];
            // The ACL is converted for the first owner, and stays when the file gets another one.
        for (gid, uid) in [FILE.gid, 200, 300].into_iter().flat_map(|gid| [10, 100, 101, 500].map(|uid| (gid, uid))) {
            for (groups, want) in groups.into_iter().flat_map(|groups| (1..8).map(move |want| (groups, want))) {
                let who = vfs::Credentials { uid, gid: 999, groups: groups.into() };
                if list.grants(&who, (FILE.uid, gid), want) {
                    let asked = rfc_allows(&aces, gid, (uid, groups), mask_of(want, false));
                    prop_assert!(asked, "{uid} of {groups:?} gets {want} of a file of {gid} by {list:?}");
                }
            }
        }
    }

    #[test]
    fn rule_index_finds_all_rules_of_a_class(aces in prop::collection::vec(any_ace(), 0..20), known: bool) {
        let rule = |ace: &Ace| Rule {
            tag: tag_of(ace, None).unwrap(),
            is_allowed: ace.ace_type == AceType::ALLOWED,
            mask: ace.mask,
        };
        let (rules, own) = (aces.iter().map(rule).collect::<Vec<_>>(), known.then_some(10));
        let found = RuleIndex::new(&rules);
        for class in rules.iter().map(|rule| rule.tag).chain([AclTag::Owner, AclTag::OwningGroup]) {
            let concerning = found.concerning(class);
            prop_assert_eq!(granted(&concerning, class, own), granted(&rules, class, own), "{:?}", class);
        }
    }

    #[test]
    fn nfs4_acl_grants_same_as_posix_acl(access in any_list()) {
        let shown = to_wire(&access, None, false, None);
        for uid in [10, 100, 101, 500] {
            // A user in several groups may combine their permissions in NFSv4, but not in POSIX.
            for groups in [&[][..], &[20], &[200], &[201]] {
                let who = vfs::Credentials { uid, gid: 999, groups: groups.into() };
                for want in 1..8 {
                    let granted = access.grants(&who, (FILE.uid, FILE.gid), want);
                    prop_assert_eq!(rfc_allows(&shown, FILE.gid, (uid, groups), mask_of(want, false)), granted);
                }
            }
        }
    }
}

pub(super) fn set_acl(acl: WireAcl) -> Op {
    let attributes: FileAttributes =
        SetAttributes { acl: Some(acl), ..SetAttributes::default() }.to_file_attributes();
    Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes })
}

#[test]
fn setattr_and_getattr_handle_acls() {
    let mut lab = lab();
    let file = lab.file(&["export", "file"], b"data");
    let shown = lab.attributes(&["export", "file"], &[n::ACL, n::ACLSUPPORT]);
    assert_eq!(shown.acl, Some(to_wire(&Acl::of_mode(0o644), None, false, None)));
    assert_eq!(shown.aclsupport.unwrap().bits(), 3, "ALLOW and DENY");
    let wanted = List::new(vec![allow("OWNER@", R | W), allow("1000", R)]).unwrap();
    lab.ok(vec![putfh(file), set_acl(wanted), getattr(&[n::MODE])]);
    assert_eq!(lab.attributes(&["export", "file"], &[n::MODE]).mode.unwrap().bits(), 0o640);
    lab.uid = 1000;
    assert_eq!(crate::testing::content(&mut lab, file), b"data");
    let stranger = List::new(vec![allow("EVERYONE@", R)]).unwrap();
    assert_eq!(lab.status(vec![putfh(file), set_acl(stranger)]), Status::PERM);
    lab.uid = 1001;
    let denied = lab.status(vec![
        putfh(file),
        Op::Read(protocol::nfs4::ops::read::ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 1 }),
    ]);
    assert_eq!(denied, Status::ACCESS);
}

#[test]
fn sets_acl_after_mode() {
    let mut lab = lab();
    let file = lab.file(&["export", "file"], b"");
    let acl = List::new(vec![allow("EVERYONE@", R)]).unwrap();
    let mode = Some(protocol::nfs4::types::Mode::from_bits_retain(0o4777));
    let attributes = SetAttributes { acl: Some(acl), mode, ..SetAttributes::default() }.to_file_attributes();
    lab.ok(vec![putfh(file), Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes })]);
    // RFC 8881 §6.4.1.3: "The mode-related attribute is set as given, then the ACL attribute is set as given".
    assert_eq!(lab.attributes(&["export", "file"], &[n::MODE]).mode.unwrap().bits(), 0o4444);
}

#[test]
fn failed_acl_reports_attributes_set_before() {
    let mut lab = lab();
    let file = lab.file(&["export", "file"], b"data");
    // More entries than the file system supports, but within the protocol's limit.
    let users =
        (0..600).map(|id: u32| Ace { who: id_text(id, IdKind::User, None), ..allow("", R) }).collect();
    let mode = Some(protocol::nfs4::types::Mode::from_bits_retain(0o666));
    let attributes = SetAttributes {
        size: Some(1),
        mode,
        acl: Some(List::new(users).unwrap()),
        ..SetAttributes::default()
    };
    let set =
        Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: attributes.to_file_attributes() });
    let reply = lab.run(vec![putfh(file), set]);
    let attributes_set = Bitmap::of(&[n::SIZE, n::MODE]);
    assert_eq!(
        reply.results.last(),
        Some(&OpResult::SetAttr(SetAttrResult { status: Status::NOSPC, attributes_set }))
    );
    let now = lab.attributes(&["export", "file"], &[n::SIZE, n::MODE]);
    assert_eq!((now.size, now.mode), (Some(1), mode), "as the answer says");
}

#[test]
fn pseudo_file_system_has_no_acl() {
    let mut lab = lab();
    let shown = lab.attributes(&[], &[n::ACL, n::ACLSUPPORT, n::SUPPORTED_ATTRS]);
    assert_eq!((shown.acl, shown.aclsupport.map(|support| support.bits())), (None, Some(0)));
    assert!(!shown.supported_attrs.unwrap().has(n::ACL));
}

#[test]
fn maps_names_to_ids() {
    let names = IdNames::new("example.org", [("alice".to_owned(), 1000)], [("staff".to_owned(), 300)]);
    let mut lab = crate::testing::lab_with(vec![crate::testing::export(1, "/export")], |settings| {
        settings.id_names = Some(std::sync::Arc::new(names));
    });
    let file = lab.file(&["export", "file"], b"");
    let aces = vec![allow("alice@example.org", R), allow("g:staff@example.org", R), allow("1001", R)];
    let owner = Some(Utf8::from_static(b"alice@example.org"));
    let acl = Some(List::new(aces).unwrap());
    let attributes = SetAttributes { acl, owner, ..SetAttributes::default() }.to_file_attributes();
    lab.ok(vec![putfh(file), Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes })]);
    let shown = lab.attributes(&["export", "file"], &[n::ACL, n::OWNER, n::OWNER_GROUP]);
    assert_eq!(shown.owner.as_deref(), Some(&b"alice@example.org"[..]));
    assert_eq!(shown.owner_group.as_deref(), Some(&b"0"[..]), "an owner without a name is a number");
    let acl = shown.acl.unwrap();
    let named = |text: &[u8]| acl.iter().any(|ace| ace.who[..] == *text);
    assert!(named(b"staff@example.org") && named(b"1001"));
    let unknown = List::new(vec![allow("bob@example.org", R)]).unwrap();
    assert_eq!(lab.status(vec![putfh(file), set_acl(unknown)]), Status::BADOWNER);
}
