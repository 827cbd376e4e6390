//! A server without root's capabilities: it acts as its own user, and other callers are also checked in user space.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{Place, me, mode, user};
use vfs::{
    Access, Authority, Backend, Create, CreateMode, Error, OpenAccess, Removal, SetAttributes, SetXattr,
    Stability,
};

const GUARDED: Create = Create::File(CreateMode::Guarded);

/// Whether this process has no capabilities, as these tests need.
fn is_child() -> bool {
    let is_child = !rustix::process::geteuid().is_root();
    if !is_child {
        println!("left to `without_privileges`, which runs this as an ordinary user");
    }
    is_child
}

#[test]
fn without_privileges() {
    common::again_without_privileges(&[]);
}

#[test]
fn the_server_acts_as_itself_and_uses_the_index() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    assert!(!place.fs().acts_as_callers() && place.fs().uses_index());
}

#[test]
fn another_user_gets_the_permissions_of_the_mode() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    let root = place.fs().root();
    let other = user(2000, &[]);
    let private = place.file(&me(), "private", 0o600);
    let public = place.file(&me(), "public", 0o644);
    place.write(&me(), &private, b"mine", Stability::Unstable).expect("write");
    place.write(&me(), &public, b"ours", Stability::Unstable).expect("write");
    assert_eq!(place.read(&other, &private).err(), Some(Error::Access), "though the server could");
    assert_eq!(place.read(&other, &public).expect("readable"), b"ours");
    assert_eq!(place.write(&other, &public, b"x", Stability::Unstable), Err(Error::Access));
    let (granted, _) = place.wait(place.fs().access(&other, &public, Access::all())).expect("access");
    assert_eq!(granted, Access::READ | Access::XAREAD | Access::XALIST);
    let access = OpenAccess { read: true, write: true };
    assert_eq!(
        place.wait(place.fs().open(&other, &public, access, Authority::Caller)).err(),
        Some(Error::Access)
    );
    assert_eq!(place.lookup(&other, &root, "public"), Ok(public));
}

#[test]
fn another_user_changes_no_names_where_the_mode_forbids() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    let root = place.fs().root();
    let other = user(2000, &[]);
    let set = |bits| std::fs::set_permissions(&place.config.directory, std::fs::Permissions::from_mode(bits));
    set(0o755).expect("chmod");
    place.file(&me(), "a", 0o644);
    assert_eq!(place.make(&other, &root, "new", &GUARDED, 0o600), Err(Error::Access));
    assert_eq!(place.make(&other, &root, "new", &Create::Directory, 0o700), Err(Error::Access));
    assert_eq!(place.make(&other, &root, "a", &GUARDED, 0o600), Err(Error::Exists));
    let remove = || place.wait(place.fs().remove(&other, &root, b"a", Removal::File)).map(drop);
    let rename = || place.wait(place.fs().rename(&other, (&root, b"a"), (&root, b"b"))).map(drop);
    assert_eq!((remove(), rename()), (Err(Error::Access), Err(Error::Access)));
    set(0o1777).expect("chmod");
    assert_eq!((remove(), rename()), (Err(Error::NotPermitted), Err(Error::NotPermitted)), "sticky");
    set(0o777).expect("chmod");
    assert_eq!((rename(), remove()), (Ok(()), Err(Error::NotFound)));
    set(0o700).expect("chmod");
    assert_eq!(place.lookup(&other, &root, "b"), Err(Error::Access));
    assert_eq!(place.list(&other, &root).err(), Some(Error::Access));
}

// xattr(7): only the owner of a sticky directory changes them.
#[test]
fn another_user_gives_a_sticky_directory_no_attributes() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    if !place.fs().properties().xattrs {
        println!("no extended attributes here");
        return;
    }
    let (root, other, value) = (place.fs().root(), user(2000, &[]), bytes::Bytes::from_static(b"value"));
    let set = |who: &vfs::Context| {
        place.wait(place.fs().set_xattr(who, &root, b"name", &value, SetXattr::Either)).map(drop)
    };
    let remove = |who: &vfs::Context| place.wait(place.fs().remove_xattr(who, &root, b"name")).map(drop);
    let chmod = |bits| {
        std::fs::set_permissions(&place.config.directory, std::fs::Permissions::from_mode(bits))
            .expect("chmod");
    };
    chmod(0o1777);
    assert_eq!((set(&me()), set(&other)), (Ok(()), Err(Error::NotPermitted)));
    assert_eq!(remove(&other), Err(Error::NotPermitted));
    chmod(0o777);
    assert_eq!((set(&other), remove(&other)), (Ok(()), Ok(())));
}

#[test]
fn what_another_user_creates_belongs_to_the_server() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(&place.config.directory, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let root = place.fs().root();
    let other = user(2000, &[]);
    let file = place.make(&other, &root, "theirs", &GUARDED, 0o666).expect("create");
    assert_eq!(place.getattr(&file).expect("there").uid, rustix::process::geteuid().as_raw());
    assert_eq!(place.write(&other, &file, b"x", Stability::Unstable), Ok(1), "as others may");
    let chmod = |set: &SetAttributes| {
        place.wait(place.fs().setattr(&other, &file, set, None, Authority::Caller)).err()
    };
    assert_eq!(chmod(&mode(0o600)), Some(Error::NotPermitted), "it is not the owner");
    // A client's root has the server's permissions, and no more.
    let root_caller = user(0, &[]);
    let give = SetAttributes { uid: Some(2000), ..SetAttributes::default() };
    let given = place.wait(place.fs().setattr(&root_caller, &file, &give, None, Authority::Caller));
    assert_eq!(given.err(), Some(Error::NotPermitted));
}

/// Returns the permission and set-ID bits of an entry from the kernel.
fn bits(place: &Place, name: &str) -> u32 {
    std::fs::symlink_metadata(place.path(name)).expect("metadata").permissions().mode() & 0o7777
}

// The file would belong to the server's user: any user who runs it would act as that user.
#[test]
fn another_user_creates_no_file_with_set_id_bits() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(&place.config.directory, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let root = place.fs().root();
    let kinds = [
        ("guarded", GUARDED),
        ("unchecked", Create::File(CreateMode::Unchecked)),
        ("exclusive", Create::File(CreateMode::Exclusive(*b"verifier"))),
        ("fifo", Create::Fifo),
        ("socket", Create::Socket),
    ];
    for (name, what) in &kinds {
        place.make(&user(2000, &[]), &root, name, what, 0o6755).expect("create");
        assert_eq!(bits(&place, name), 0o755, "{name}");
    }
    place.make(&me(), &root, "own", &GUARDED, 0o6755).expect("create");
    assert_eq!(bits(&place, "own"), 0o6755, "the server's own user could do that without a server");
}

#[test]
fn a_clients_superuser_gives_files_no_set_id_bits() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    let file = place.file(&me(), "a", 0o644);
    let chmod = |who: &vfs::Context, bits| {
        place.wait(place.fs().setattr(who, &file, &mode(bits), None, Authority::Caller)).expect("chmod");
    };
    let root_caller = user(0, &[]);
    chmod(&root_caller, 0o6711);
    assert_eq!(bits(&place, "a"), 0o711);
    chmod(&me(), 0o6711);
    assert_eq!(bits(&place, "a"), 0o6711, "the server's own user could do that without a server");
    chmod(&root_caller, 0o6700);
    assert_eq!(bits(&place, "a"), 0o700, "nor keeps them");
}

#[test]
fn a_directory_of_another_user_keeps_set_group_id_alone() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(&place.config.directory, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let root = place.fs().root();
    let other = user(2000, &[]);
    let made = place.make(&other, &root, "made", &Create::Directory, 0o6777).expect("mkdir");
    assert_eq!(bits(&place, "made"), 0o2777);
    // New entries get its group and no set-ID bit; a directory gets the bit too.
    place.make(&other, &made, "file", &GUARDED, 0o2755).expect("create");
    place.make(&other, &made, "below", &Create::Directory, 0o755).expect("mkdir");
    assert_eq!((bits(&place, "made/file"), bits(&place, "made/below")), (0o755, 0o2755));
}

#[test]
fn acls_are_evaluated_for_other_users() {
    if !is_child() {
        return;
    }
    let place = Place::new();
    let file = place.file(&me(), "a", 0o600);
    place.write(&me(), &file, b"data", Stability::Unstable).expect("write");
    let path = place.path("a");
    let set = Command::new("setfacl").args(["-m", "u:2001:r,g:77:rw"]).arg(&path).status();
    if !set.is_ok_and(|status| status.success()) {
        println!("skipped: needs setfacl");
        return;
    }
    assert_eq!(place.read(&user(2001, &[]), &file).expect("named"), b"data");
    assert_eq!(place.write(&user(2001, &[]), &file, b"x", Stability::Unstable), Err(Error::Access));
    assert_eq!(place.write(&user(2003, &[77]), &file, b"DATA", Stability::Unstable), Ok(4));
    assert_eq!(place.read(&user(2004, &[]), &file).err(), Some(Error::Access));
}

#[test]
fn handles_survive_a_restart_without_privileges() {
    if !is_child() {
        return;
    }
    let mut place = Place::new();
    let root = place.fs().root();
    let directory = place.make(&me(), &root, "d", &Create::Directory, 0o755).expect("mkdir");
    let file = place.make(&me(), &directory, "f", &GUARDED, 0o600).expect("create");
    place.write(&me(), &file, b"kept", Stability::Unstable).expect("write");
    let renamed = place.wait(place.fs().rename(&me(), (&root, b"d"), (&root, b"e")));
    renamed.expect("rename");
    place.restart();
    assert_eq!(place.fs().root(), root);
    assert_eq!(place.read(&me(), &file).expect("found"), b"kept");
    assert_eq!(place.lookup(&me(), &directory, "f"), Ok(file));
}
