use super::subject::{Subject, assert_fails};
use crate::{Acl, AclEntry, AclKind, AclTag, Create, CreateMode, Error, SetAttributes};

fn skipped(t: &Subject) -> bool {
    t.lacks(t.backend().properties().acls, "access control lists")
}

/// Returns an ACL: owner rw-, owning group r--, others nothing, and these entries.
fn acl(more: &[(AclTag, u8)]) -> Acl {
    let base = [(AclTag::Owner, 6), (AclTag::OwningGroup, 4), (AclTag::Other, 0)];
    let entry = |(tag, permissions)| AclEntry { tag, permissions };
    Acl::new(base.iter().chain(more).copied().map(entry).collect()).unwrap()
}

pub(super) fn an_acl_is_kept_and_shows_in_the_mode(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let (file, directory) = (me.file(&top, "f"), me.directory(&top, "d"));
    let list = acl(&[(AclTag::User(1001), 7), (AclTag::Group(2001), 5), (AclTag::Mask, 6)]);
    for object in [file, directory] {
        assert_eq!(me.get_acl(&object, AclKind::Access).unwrap(), None);
        let change = me.set_acl(&object, AclKind::Access, Some(&list)).unwrap();
        assert!(change.after.change > change.before.change);
        assert_eq!(change.after.mode & 0o777, 0o660, "the mask shows as the group's bits");
        assert_eq!(me.get_acl(&object, AclKind::Access).unwrap(), Some(list.clone()));
        me.set_acl(&object, AclKind::Access, Some(&Acl::of_mode(0o640))).unwrap();
        assert_eq!(me.get_acl(&object, AclKind::Access).unwrap(), None, "the mode shows the same");
        assert_eq!(me.getattr(&object).unwrap().mode & 0o777, 0o640);
    }
    assert_eq!(me.get_acl(&directory, AclKind::Default).unwrap(), None);
    me.set_acl(&directory, AclKind::Default, Some(&list)).unwrap();
    assert_eq!(me.get_acl(&directory, AclKind::Default).unwrap(), Some(list));
    assert_eq!(me.getattr(&directory).unwrap().mode & 0o777, 0o640, "inherited entries grant nothing here");
    me.set_acl(&directory, AclKind::Default, None).unwrap();
    me.set_acl(&directory, AclKind::Default, None).unwrap();
    assert_eq!(me.get_acl(&directory, AclKind::Default).unwrap(), None);
}

pub(super) fn an_acl_grants_and_limits(t: &Subject) {
    if skipped(t) || t.lacks(t.capabilities().identities, "identities") {
        return;
    }
    let (root, one, other, top) = (t.root(), t.user(1), t.user(2), t.top());
    let file = root.file(&top, "f");
    root.write(&file, 0, "data").unwrap();
    let uid = one.credentials().uid;
    root.set_acl(&file, AclKind::Access, Some(&acl(&[(AclTag::User(uid), 6), (AclTag::Mask, 6)]))).unwrap();
    assert_eq!(one.read(&file, 0, 9).unwrap(), b"data");
    one.write(&file, 0, "DATA").unwrap();
    assert_fails(other.read(&file, 0, 9), &[Error::Access]);
    root.set_acl(&file, AclKind::Access, Some(&acl(&[(AclTag::User(uid), 6), (AclTag::Mask, 4)]))).unwrap();
    assert_eq!(one.read(&file, 0, 9).unwrap(), b"DATA");
    assert_fails(one.write(&file, 0, "x"), &[Error::Access]);
    let group = other.credentials().gid;
    root.set_acl(&file, AclKind::Access, Some(&acl(&[(AclTag::Group(group), 4), (AclTag::Mask, 7)])))
        .unwrap();
    assert_fails(one.read(&file, 0, 9), &[Error::Access]);
    assert_eq!(other.read(&file, 0, 9).unwrap(), b"DATA");
}

pub(super) fn a_mode_changes_its_mask(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    me.set_acl(&file, AclKind::Access, Some(&acl(&[(AclTag::User(1), 7), (AclTag::Mask, 7)]))).unwrap();
    me.chmod(&file, 0o604).unwrap();
    let changed = me.get_acl(&file, AclKind::Access).unwrap().unwrap();
    let of = |tag| changed.get(tag);
    assert_eq!((of(AclTag::Mask), of(AclTag::OwningGroup), of(AclTag::Other)), (Some(0), Some(4), Some(4)));
    assert_eq!(of(AclTag::User(1)), Some(7));
}

pub(super) fn a_default_acl_is_inherited_and_replaces_the_umask(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let parent = me.directory(&top, "d");
    let list = acl(&[(AclTag::User(1001), 6), (AclTag::Mask, 6)]);
    me.set_acl(&parent, AclKind::Default, Some(&list)).unwrap();
    let set = SetAttributes { mode: Some(0o664), umask: Some(0o077), ..SetAttributes::default() };
    for (name, what) in [
        ("guarded", Create::File(CreateMode::Guarded)),
        ("exclusive", Create::File(CreateMode::Exclusive(*b"verifier"))),
        ("fifo", Create::Fifo),
    ] {
        let made = me.create(&parent, name, &what, &set).unwrap();
        // RFC 8275 §5: "mu_mode SHOULD be used and mu_umask ignored".
        assert_eq!(made.attributes.mode, 0o660, "{name}");
        assert_eq!(me.get_acl(&made.handle, AclKind::Access).unwrap(), Some(list.clone()), "{name}");
    }
    let strict = SetAttributes { mode: Some(0o604), ..set };
    let made =
        me.create(&parent, "strict", &Create::File(CreateMode::Exclusive(*b"another.")), &strict).unwrap();
    assert_eq!(made.attributes.mode, 0o600, "no more than the mode grants");
    let inner = me.create(&parent, "inner", &Create::Directory, &set).unwrap();
    assert_eq!(me.get_acl(&inner.handle, AclKind::Default).unwrap(), Some(list));
    let link = me.symlink(&parent, "link", "x");
    assert_eq!(me.get_acl(&link, AclKind::Access).unwrap(), None);
}

/// An object whose ACL is set later is created so first.
pub(super) fn a_mode_without_permissions_limits_an_inherited_acl(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let parent = me.directory(&top, "d");
    let inherited = acl(&[(AclTag::User(1001), 6), (AclTag::Mask, 6)]);
    me.set_acl(&parent, AclKind::Default, Some(&inherited)).unwrap();
    let own = acl(&[(AclTag::User(1002), 4), (AclTag::Mask, 4)]);
    let closed = SetAttributes { mode: Some(0), ..SetAttributes::default() };
    for (name, what) in [
        ("guarded", Create::File(CreateMode::Guarded)),
        ("exclusive", Create::File(CreateMode::Exclusive(*b"verifier"))),
        ("fifo", Create::Fifo),
        ("directory", Create::Directory),
    ] {
        let made = me.create(&parent, name, &what, &closed).unwrap();
        assert_eq!(made.attributes.mode & 0o777, 0, "{name}");
        let list = me.get_acl(&made.handle, AclKind::Access).unwrap().unwrap();
        assert!(list.effective().iter().all(|entry| entry.permissions == 0), "{name}: {list:?}");
        me.set_acl(&made.handle, AclKind::Access, Some(&own)).unwrap();
        assert_eq!(me.get_acl(&made.handle, AclKind::Access).unwrap(), Some(own.clone()), "{name}");
    }
}

pub(super) fn only_the_owner_sets_an_acl(t: &Subject) {
    if skipped(t) || t.lacks(t.capabilities().identities, "identities") {
        return;
    }
    let (root, user, top) = (t.root(), t.user(1), t.top());
    let file = root.file(&top, "f");
    root.chmod(&file, 0o666).unwrap();
    let list = acl(&[(AclTag::User(1001), 7), (AclTag::Mask, 7)]);
    for set in [Some(&list), None] {
        assert_fails(user.set_acl(&file, AclKind::Access, set), &[Error::NotPermitted]);
    }
    root.chown(&file, user.credentials().uid, user.credentials().gid).unwrap();
    user.set_acl(&file, AclKind::Access, Some(&list)).unwrap();
    assert_eq!(root.get_acl(&file, AclKind::Access).unwrap(), Some(list));
}

pub(super) fn objects_without_acls_refuse_them(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let (file, link) = (me.file(&top, "f"), me.symlink(&top, "l", "x"));
    let list = acl(&[]);
    assert_fails(me.set_acl(&file, AclKind::Default, Some(&list)), &[Error::Invalid]);
    assert_fails(me.set_acl(&link, AclKind::Access, Some(&list)), &[Error::Invalid]);
    assert_eq!(me.get_acl(&file, AclKind::Default).unwrap(), None);
    let fifo = me.make(&top, "p", &Create::Fifo, 0o600).unwrap().handle;
    me.set_acl(&fifo, AclKind::Access, Some(&acl(&[(AclTag::User(1), 4), (AclTag::Mask, 4)]))).unwrap();
    assert!(me.get_acl(&fifo, AclKind::Access).unwrap().is_some());
}
