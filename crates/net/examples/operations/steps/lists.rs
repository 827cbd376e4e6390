//! Extended attributes and access control lists.

use bytes::Bytes;
use client::acl::{Acl, Nfs4Ace, PosixAcl, PosixEntry, Subject};
use client::attributes::SetAttributes;
use client::errno::Errno;
use client::results::access;
use client::xattr::XattrMode;

use super::{Feature, Outcome, Place, fails, same};

pub(super) fn extended_attributes(place: &Place) -> Outcome {
    let (fs, other, path) = (place.fs(), place.other(), b"xattrs");
    fs.write(path, "content")?;
    let (name, value) = (b"user.one", Bytes::from_static(b"a\0value"));
    let set = fs.set_xattr(path, name, value.clone(), XattrMode::Create, true);
    if place.of(Feature::Xattrs, set)?.is_none() {
        place.of(Feature::Xattrs, fs.get_xattr(path, name, true))?;
        place.of(Feature::Xattrs, fs.list_xattrs(path, true))?;
        place.of(Feature::Xattrs, fs.remove_xattr(path, name, true))?;
        return Ok(());
    }
    same("what another client gets", value.clone(), other.get_xattr(path, name, true)?)?;
    fails("creating it again", fs.set_xattr(path, name, value, XattrMode::Create, true), Errno::EEXIST)?;
    let replaced = fs.set_xattr(path, b"user.two", Bytes::new(), XattrMode::Replace, true);
    fails("replacing what is missing", replaced, Errno::ENODATA)?;
    let long = Bytes::from(vec![b'x'; 2000]);
    fs.set_xattr(path, name, long.clone(), XattrMode::Replace, true)?;
    fs.set_xattr(path, b"user.two", Bytes::new(), XattrMode::Either, true)?;
    fs.symlink(path, b"xattrs link")?;
    same("a long one, through a link", long, other.get_xattr(b"xattrs link", name, true)?)?;
    let mut names = other.list_xattrs(path, true)?;
    names.sort();
    same("the names", vec![Bytes::from_static(name), Bytes::from_static(b"user.two")], names)?;
    fs.remove_xattr(path, name, true)?;
    fails("what was removed", fs.get_xattr(path, name, true), Errno::ENODATA)?;
    fails("removing it again", fs.remove_xattr(path, name, true), Errno::ENODATA)
}

/// A user without privileges.
const USER: u32 = 1234;

pub(super) fn access_control_lists(place: &Place) -> Outcome {
    let (fs, path) = (place.fs(), b"acls");
    fs.write(path, "content")?;
    fs.set_attributes(path, &SetAttributes::with_mode(0o600))?;
    let asked = access::READ | access::MODIFY;
    same("before", 0, place.of_user(USER)?.access(path, asked)?)?;
    let got = fs.get_acl(path);
    let Some(acl) = place.of(Feature::Acls, got)? else {
        let entry = |subject| PosixEntry { subject, permissions: 6 };
        let access = [Subject::Owner, Subject::OwningGroup, Subject::Other].map(entry).to_vec();
        place.of(Feature::Acls, fs.set_acl(path, &Acl::Posix(PosixAcl { access, ..PosixAcl::default() })))?;
        return Ok(());
    };
    let set = fs.set_acl(path, &with_reader(&acl));
    if place.of(Feature::SetAcls, set)?.is_none() {
        return Ok(());
    }
    let user = place.of_user(USER)?;
    same("by the list", access::READ, user.access(path, asked)?)?;
    same("what the user reads", b"content".to_vec(), user.read(path)?)?;
    let listed = place.other().get_acl(path)?;
    let names_user = match &listed {
        Acl::Posix(lists) => lists.access.iter().any(|entry| entry.subject == Subject::User(USER)),
        Acl::Nfs4(entries) => entries.iter().any(|entry| entry.who.starts_with(b"1234")),
    };
    same(&format!("the user in {listed:?}"), true, names_user)?;
    // The list that was read is set again.
    fs.set_acl(path, &listed)?;
    same("the list that was set", listed, place.other().get_acl(path)?)?;
    fs.set_attributes(path, &SetAttributes::with_mode(0o600))?;
    fails("after chmod", place.of_user(USER)?.read(path), Errno::EACCES)
}

/// Returns a list that lets the user read, too.
fn with_reader(acl: &Acl) -> Acl {
    match acl {
        Acl::Posix(lists) => {
            let mut lists = lists.clone();
            lists.access.retain(|entry| entry.subject != Subject::Mask);
            lists.access.extend(
                [Subject::User(USER), Subject::Mask].map(|subject| PosixEntry { subject, permissions: 4 }),
            );
            lists.access.sort_by_key(|entry| entry.subject);
            Acl::Posix(lists)
        }
        Acl::Nfs4(entries) => {
            // RFC 8881 §6.2.1.3: READ_DATA, READ_ATTRIBUTES, READ_ACL, SYNCHRONIZE.
            let entry = Nfs4Ace { kind: 0, flags: 0, mask: 0x0012_0081, who: "1234".into() };
            Acl::Nfs4([&[entry], &entries[..]].concat())
        }
    }
}
