//! A server without root's capabilities: it acts as its own user, and other callers are also checked in user space.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{Fixture, me, mode, user};
use vfs::{
    Access, Authority, Backend, Create, CreateMode, Error, OpenAccess, Removal, SetAttributes, SetXattr,
    Stability,
};

const GUARDED: Create = Create::File(CreateMode::Guarded);

/// Returns whether this process has no capabilities, as these tests need.
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
    let fixture = Fixture::new();
    assert!(!fixture.fs().acts_as_callers() && fixture.fs().uses_index());
}

#[test]
fn another_user_gets_the_permissions_of_the_mode() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let other = user(2000, &[]);
    let private = fixture.file(&me(), "private", 0o600);
    let public = fixture.file(&me(), "public", 0o644);
    fixture.write(&me(), &private, b"mine", Stability::Unstable).expect("write");
    fixture.write(&me(), &public, b"ours", Stability::Unstable).expect("write");
    assert_eq!(fixture.read(&other, &private).err(), Some(Error::Access), "though the server could");
    assert_eq!(fixture.read(&other, &public).expect("readable"), b"ours");
    assert_eq!(fixture.write(&other, &public, b"x", Stability::Unstable), Err(Error::Access));
    let (granted, _) = fixture.wait(fixture.fs().access(&other, &public, Access::all())).expect("access");
    assert_eq!(granted, Access::READ | Access::XAREAD | Access::XALIST);
    let access = OpenAccess { read: true, write: true };
    assert_eq!(
        fixture.wait(fixture.fs().open(&other, &public, access, Authority::Caller)).err(),
        Some(Error::Access)
    );
    assert_eq!(fixture.lookup(&other, &root, "public"), Ok(public));
}

#[test]
fn another_user_changes_no_names_where_the_mode_forbids() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let other = user(2000, &[]);
    let set =
        |bits| std::fs::set_permissions(&fixture.config.directory, std::fs::Permissions::from_mode(bits));
    set(0o755).expect("chmod");
    fixture.file(&me(), "a", 0o644);
    assert_eq!(fixture.make(&other, &root, "new", &GUARDED, 0o600), Err(Error::Access));
    assert_eq!(fixture.make(&other, &root, "new", &Create::Directory, 0o700), Err(Error::Access));
    assert_eq!(fixture.make(&other, &root, "a", &GUARDED, 0o600), Err(Error::Exists));
    let remove = || fixture.wait(fixture.fs().remove(&other, &root, b"a", Removal::File)).map(drop);
    let rename = || fixture.wait(fixture.fs().rename(&other, (&root, b"a"), (&root, b"b"))).map(drop);
    assert_eq!((remove(), rename()), (Err(Error::Access), Err(Error::Access)));
    set(0o1777).expect("chmod");
    assert_eq!((remove(), rename()), (Err(Error::NotPermitted), Err(Error::NotPermitted)), "sticky");
    set(0o777).expect("chmod");
    assert_eq!((rename(), remove()), (Ok(()), Err(Error::NotFound)));
    set(0o700).expect("chmod");
    assert_eq!(fixture.lookup(&other, &root, "b"), Err(Error::Access));
    assert_eq!(fixture.list(&other, &root).err(), Some(Error::Access));
}

// xattr(7): only the owner of a sticky directory changes them.
#[test]
fn another_user_gives_a_sticky_directory_no_attributes() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    if !fixture.fs().properties().xattrs {
        println!("no extended attributes here");
        return;
    }
    let (root, other, value) = (fixture.fs().root(), user(2000, &[]), bytes::Bytes::from_static(b"value"));
    let set = |who: &vfs::Context| {
        fixture.wait(fixture.fs().set_xattr(who, &root, b"name", &value, SetXattr::Either)).map(drop)
    };
    let remove = |who: &vfs::Context| fixture.wait(fixture.fs().remove_xattr(who, &root, b"name")).map(drop);
    let chmod = |bits| {
        std::fs::set_permissions(&fixture.config.directory, std::fs::Permissions::from_mode(bits))
            .expect("chmod");
    };
    chmod(0o1777);
    assert_eq!((set(&me()), set(&other)), (Ok(()), Err(Error::NotPermitted)));
    assert_eq!(remove(&other), Err(Error::NotPermitted));
    chmod(0o777);
    assert_eq!((set(&other), remove(&other)), (Ok(()), Ok(())));
}

#[test]
fn objects_that_another_user_creates_belong_to_the_server() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    std::fs::set_permissions(&fixture.config.directory, std::fs::Permissions::from_mode(0o777))
        .expect("chmod");
    let root = fixture.fs().root();
    let other = user(2000, &[]);
    let file = fixture.make(&other, &root, "theirs", &GUARDED, 0o666).expect("create");
    assert_eq!(fixture.getattr(&file).expect("there").uid, rustix::process::geteuid().as_raw());
    assert_eq!(fixture.write(&other, &file, b"x", Stability::Unstable), Ok(1), "as others may");
    let chmod = |set: &SetAttributes| {
        fixture.wait(fixture.fs().setattr(&other, &file, set, None, Authority::Caller)).err()
    };
    assert_eq!(chmod(&mode(0o600)), Some(Error::NotPermitted), "it is not the owner");
    // A client's root has the server's permissions, and no more.
    let root_caller = user(0, &[]);
    let give = SetAttributes { uid: Some(2000), ..SetAttributes::default() };
    let given = fixture.wait(fixture.fs().setattr(&root_caller, &file, &give, None, Authority::Caller));
    assert_eq!(given.err(), Some(Error::NotPermitted));
}

/// Returns the permission and set-ID bits of an entry from the kernel.
fn bits(fixture: &Fixture, name: &str) -> u32 {
    std::fs::symlink_metadata(fixture.path(name)).expect("metadata").permissions().mode() & 0o7777
}

// The file would belong to the server's user: any user who runs it would act as that user.
#[test]
fn another_user_creates_no_file_with_set_id_bits() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    std::fs::set_permissions(&fixture.config.directory, std::fs::Permissions::from_mode(0o777))
        .expect("chmod");
    let root = fixture.fs().root();
    let kinds = [
        ("guarded", GUARDED),
        ("unchecked", Create::File(CreateMode::Unchecked)),
        ("exclusive", Create::File(CreateMode::Exclusive(*b"verifier"))),
        ("fifo", Create::Fifo),
        ("socket", Create::Socket),
    ];
    for (name, what) in &kinds {
        fixture.make(&user(2000, &[]), &root, name, what, 0o6755).expect("create");
        assert_eq!(bits(&fixture, name), 0o755, "{name}");
    }
    fixture.make(&me(), &root, "own", &GUARDED, 0o6755).expect("create");
    assert_eq!(bits(&fixture, "own"), 0o6755, "the server's own user could do that without a server");
}

#[test]
fn a_clients_superuser_gives_files_no_set_id_bits() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o644);
    let chmod = |who: &vfs::Context, bits| {
        fixture.wait(fixture.fs().setattr(who, &file, &mode(bits), None, Authority::Caller)).expect("chmod");
    };
    let root_caller = user(0, &[]);
    chmod(&root_caller, 0o6711);
    assert_eq!(bits(&fixture, "a"), 0o711);
    chmod(&me(), 0o6711);
    assert_eq!(bits(&fixture, "a"), 0o6711, "the server's own user could do that without a server");
    chmod(&root_caller, 0o6700);
    assert_eq!(bits(&fixture, "a"), 0o700, "nor keeps them");
}

#[test]
fn a_directory_of_another_user_keeps_set_group_id_alone() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    std::fs::set_permissions(&fixture.config.directory, std::fs::Permissions::from_mode(0o777))
        .expect("chmod");
    let root = fixture.fs().root();
    let other = user(2000, &[]);
    let made = fixture.make(&other, &root, "made", &Create::Directory, 0o6777).expect("mkdir");
    assert_eq!(bits(&fixture, "made"), 0o2777);
    // New entries get its group and no set-ID bit; a directory gets the bit too.
    fixture.make(&other, &made, "file", &GUARDED, 0o2755).expect("create");
    fixture.make(&other, &made, "below", &Create::Directory, 0o755).expect("mkdir");
    assert_eq!((bits(&fixture, "made/file"), bits(&fixture, "made/below")), (0o755, 0o2755));
}

#[test]
fn acls_are_evaluated_for_other_users() {
    if !is_child() {
        return;
    }
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    fixture.write(&me(), &file, b"data", Stability::Unstable).expect("write");
    let path = fixture.path("a");
    let set = Command::new("setfacl").args(["-m", "u:2001:r,g:77:rw"]).arg(&path).status();
    if !set.is_ok_and(|status| status.success()) {
        println!("skipped: needs setfacl");
        return;
    }
    assert_eq!(fixture.read(&user(2001, &[]), &file).expect("named"), b"data");
    assert_eq!(fixture.write(&user(2001, &[]), &file, b"x", Stability::Unstable), Err(Error::Access));
    assert_eq!(fixture.write(&user(2003, &[77]), &file, b"DATA", Stability::Unstable), Ok(4));
    assert_eq!(fixture.read(&user(2004, &[]), &file).err(), Some(Error::Access));
}

#[test]
fn handles_survive_a_restart_without_privileges() {
    if !is_child() {
        return;
    }
    let mut fixture = Fixture::new();
    let root = fixture.fs().root();
    let directory = fixture.make(&me(), &root, "d", &Create::Directory, 0o755).expect("mkdir");
    let file = fixture.make(&me(), &directory, "f", &GUARDED, 0o600).expect("create");
    fixture.write(&me(), &file, b"kept", Stability::Unstable).expect("write");
    let renamed = fixture.wait(fixture.fs().rename(&me(), (&root, b"d"), (&root, b"e")));
    renamed.expect("rename");
    fixture.restart();
    assert_eq!(fixture.fs().root(), root);
    assert_eq!(fixture.read(&me(), &file).expect("found"), b"kept");
    assert_eq!(fixture.lookup(&me(), &directory, "f"), Ok(file));
}
