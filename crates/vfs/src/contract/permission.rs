use std::sync::Arc;

use super::subject::{COMMON_GROUP, Caller, Subject, assert_fails};
use crate::{
    Access, Authority, Create, CreateMode, Credentials, Error, Handle, OpenAccess, Removal, SetAttributes,
    Stability,
};

const GUARDED: Create = Create::File(CreateMode::Guarded);

fn skipped(t: &Subject) -> bool {
    t.lacks(t.capabilities().identities, "identities")
}

/// Returns a file of `user(1)` and the common group, one byte long.
fn file_of_one(t: &Subject, mode: u32) -> Handle {
    let (root, top) = (t.root(), t.top());
    let file = root.file(&top, format!("mode{mode:o}"));
    root.write(&file, 0, "x").unwrap();
    root.chown(&file, 1001, COMMON_GROUP).unwrap();
    root.chmod(&file, mode).unwrap();
    file
}

/// Returns the caller of each class of a file made by [`file_of_one`], with the shift of its bits.
fn classes(t: &Subject) -> [(Caller<'_>, u32, &'static str); 3] {
    let stranger = Credentials { uid: 3000, gid: 3000, groups: Arc::from([]) };
    [(t.user(1), 6, "owner"), (t.user(2), 3, "group"), (t.caller(stranger), 0, "others")]
}

pub(super) fn the_matrix_of_modes(t: &Subject) {
    if skipped(t) {
        return;
    }
    for (caller, shift, class) in classes(t) {
        for bits in 0..8 {
            // The other classes have the complementary bits, so that using them is noticed.
            let mode = (0o777 & !(7 << shift)) & ((!bits & 7) * 0o111) | bits << shift;
            let file = file_of_one(t, mode);
            let (read, write, execute) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
            let owner = class == "owner";
            let what = format!("{class}, mode {mode:03o}");
            let want = Access::READ | Access::MODIFY | Access::EXTEND | Access::EXECUTE;
            let mut granted = Access::empty();
            granted.set(Access::READ, read);
            granted.set(Access::MODIFY | Access::EXTEND, write);
            granted.set(Access::EXECUTE, execute);
            assert_eq!(caller.access(&file, want).unwrap(), granted, "{what}: ACCESS");
            assert_eq!(caller.read(&file, 0, 1).is_ok(), read || execute || owner, "{what}: READ");
            assert_eq!(caller.write(&file, 0, "x").is_ok(), write || owner, "{what}: WRITE");
            assert_eq!(caller.truncate(&file, 1).is_ok(), write || owner, "{what}: SETATTR of the size");
            assert_eq!(caller.open(&file, true, false).is_ok(), read || execute, "{what}: open to read");
            assert_eq!(caller.open(&file, false, true).is_ok(), write, "{what}: open to write");
            let both = caller.open(&file, true, true).is_ok();
            assert_eq!(both, (read || execute) && write, "{what}: open for both");
            t.root().remove(&t.top(), format!("mode{mode:o}"), Removal::File).unwrap();
        }
    }
}

// RFC 1813 §4.4: "the server's permission checking algorithm should allow the owner of a file to access it regardless
// of the permission setting."
pub(super) fn the_owner_reads_and_writes_regardless_of_the_mode(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, owner) = (file_of_one(t, 0), t.user(1));
    assert_eq!(owner.read(&file, 0, 9).unwrap(), b"x");
    owner.write(&file, 0, "yy").unwrap();
    owner.truncate(&file, 1).unwrap();
    // "This should not affect the return result of access permissions as returned by the ACCESS procedure".
    assert_eq!(owner.access(&file, Access::READ | Access::MODIFY | Access::EXTEND).unwrap(), Access::empty());
    assert_fails(t.user(2).read(&file, 0, 9), &[Error::Access]);
    assert_fails(t.user(2).write(&file, 0, "z"), &[Error::Access]);
    assert_fails(t.user(2).truncate(&file, 0), &[Error::Access]);
}

pub(super) fn an_open_is_checked_by_the_mode_only(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, owner) = (file_of_one(t, 0o400), t.user(1));
    owner.open(&file, true, false).unwrap();
    assert_fails(owner.open(&file, false, true), &[Error::Access]);
    assert_fails(owner.open(&file, true, true), &[Error::Access]);
    let (seen, access) = (owner.getattr(&file).unwrap(), OpenAccess { read: false, write: true });
    assert_fails(owner.open_seen(&file, &seen, access), &[Error::Access]);
    assert_fails(t.user(2).open(&file, true, false), &[Error::Access]);
}

pub(super) fn an_opened_file_is_not_checked_again(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, other) = (file_of_one(t, 0), t.user(2));
    let open = OpenAccess { read: true, write: true };
    let _opened = other.open_with(&file, open, Authority::Opened).unwrap();
    assert_eq!(other.read_with(&file, 0, 9, Authority::Opened).unwrap().0, b"x");
    other.write_with(&file, 0, "yy", Stability::FileSync, Authority::Opened).unwrap();
    let cut = SetAttributes { size: Some(1), ..SetAttributes::default() };
    other.setattr_if(&file, cut, None, Authority::Opened).unwrap();
    let chmod = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    assert_fails(other.setattr_if(&file, chmod, None, Authority::Opened), &[Error::NotPermitted]);
}

// RFC 1813 §4.4: "the server allows reading of files if the uid given in the call has either execute or read
// permission".
pub(super) fn callers_that_may_execute_may_read(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, other) = (file_of_one(t, 0o010), t.user(2));
    assert_eq!(other.read(&file, 0, 9).unwrap(), b"x");
    other.open(&file, true, false).unwrap();
    assert_fails(other.open(&file, true, true), &[Error::Access]);
    assert_eq!(other.access(&file, Access::READ | Access::EXECUTE).unwrap(), Access::EXECUTE);
}

pub(super) fn supplementary_groups_count(t: &Subject) {
    if skipped(t) {
        return;
    }
    let file = file_of_one(t, 0o060);
    // More groups than AUTH_SYS carries: a server that looks them up passes all on.
    let groups: Arc<[u32]> = (5000..5019).chain([COMMON_GROUP]).collect();
    let member = t.caller(Credentials { uid: 3001, gid: 3001, groups });
    member.open(&file, true, true).unwrap();
    let primary = t.caller(Credentials { uid: 3002, gid: COMMON_GROUP, groups: Arc::from([]) });
    primary.open(&file, true, true).unwrap();
    let stranger = t.caller(Credentials { uid: 3003, gid: 3003, groups: Arc::from([5000]) });
    assert_fails(stranger.open(&file, true, false), &[Error::Access]);
}

// POSIX.1-2024 §4.7: the first matching class decides, also if a later one would grant.
pub(super) fn only_the_owners_class_counts_for_the_owner(t: &Subject) {
    if skipped(t) {
        return;
    }
    let file = file_of_one(t, 0o066);
    assert_fails(t.user(1).open(&file, true, false), &[Error::Access]);
    t.user(2).open(&file, true, true).unwrap();
    let file = file_of_one(t, 0o606);
    assert_fails(t.user(2).open(&file, true, false), &[Error::Access]);
}

pub(super) fn root_may_not_execute_files_without_execute_bits(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, root, top) = (file_of_one(t, 0), t.root(), t.top());
    root.open(&file, true, true).unwrap();
    assert_eq!(root.read(&file, 0, 9).unwrap(), b"x");
    let want = Access::READ | Access::MODIFY | Access::EXTEND | Access::EXECUTE;
    assert_eq!(root.access(&file, want).unwrap(), want - Access::EXECUTE);
    assert_eq!(root.access(&file_of_one(t, 0o001), want).unwrap(), want);
    let directory = t.user(1);
    let directory = {
        let made = root.directory(&top, "d");
        root.chown(&made, directory.credentials().uid, directory.credentials().gid).unwrap();
        root.chmod(&made, 0).unwrap();
        made
    };
    let inside = root.file(&directory, "f");
    assert_eq!(root.lookup(&directory, "f").unwrap().handle, inside);
    assert_eq!(root.names(&directory), [b"f"]);
    let want = Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE;
    assert_eq!(root.access(&directory, want).unwrap(), want);
}

/// Returns a directory of root with an entry `f`, in which others have `mode`.
fn directory_for_others(t: &Subject, mode: u32) -> (Handle, Handle) {
    let (root, top) = (t.root(), t.top());
    let directory = root.directory(&top, format!("directory{mode:o}"));
    root.chown(&directory, 0, 0).unwrap();
    let file = root.file(&directory, "f");
    root.chmod(&file, 0o666).unwrap();
    root.chmod(&directory, mode).unwrap();
    (directory, file)
}

pub(super) fn directories_need_search_to_pass_and_write_to_change(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (user, top, refused) = (t.user(2), t.top(), &[Error::Access]);
    t.root().chmod(&top, 0o777).unwrap();
    let own = user.file(&top, "own");
    for mode in [0o770, 0o771, 0o772, 0o774, 0o775, 0o776] {
        let (directory, _) = directory_for_others(t, mode);
        assert_eq!(user.lookup(&directory, "f").is_ok(), mode & 1 != 0, "{mode:o}: lookup");
        assert_eq!(user.parent(&directory).is_ok(), mode & 1 != 0, "{mode:o}: parent");
        assert_fails(user.make(&directory, "new", &GUARDED, 0o600), refused);
        assert_fails(user.make(&directory, "new", &Create::Directory, 0o700), refused);
        assert_fails(user.make(&directory, "new", &Create::Symlink("x".into()), 0o700), refused);
        assert_fails(user.make(&directory, "new", &Create::Fifo, 0o700), refused);
        assert_fails(user.remove(&directory, "f", Removal::File), refused);
        assert_fails(user.rename((&directory, "f"), (&directory, "g")), refused);
        assert_fails(user.rename((&directory, "f"), (&top, "g")), refused);
        assert_fails(user.rename((&top, "own"), (&directory, "g")), refused);
        assert_fails(user.rename((&top, "own"), (&directory, "f")), refused);
        assert_fails(user.link(&own, &directory, "g"), refused);
    }
    let (directory, file) = directory_for_others(t, 0o773);
    let _ = user.file(&directory, "new");
    user.rename((&directory, "f"), (&top, "g")).unwrap();
    user.rename((&top, "g"), (&directory, "new")).unwrap();
    assert_eq!(user.lookup(&directory, "new").unwrap().handle, file);
    user.remove(&directory, "new", Removal::File).unwrap();
}

pub(super) fn listing_needs_read_permission(t: &Subject) {
    if skipped(t) {
        return;
    }
    let user = t.user(2);
    for mode in [0o770, 0o771, 0o773] {
        let (directory, _) = directory_for_others(t, mode);
        assert_fails(user.page(&directory, (0, [0; 8]), 9), &[Error::Access]);
    }
    let (directory, _) = directory_for_others(t, 0o774);
    assert_eq!(user.names(&directory), [b"f"], "names may be read without search permission");
    let request = crate::ReadDir { cookie: 0, verifier: [0; 8], plus: true };
    let listing = user.page_with(&directory, request, 9).unwrap();
    assert!(listing.entries[0].object.is_none(), "their targets may not");
}

// POSIX.1-2024 §4.5 Directory Protection.
pub(super) fn sticky_directories_protect_entries(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (root, top) = (t.root(), t.top());
    let (one, two) = (t.user(1), t.user(2));
    let (shared, plain) = (root.directory(&top, "shared"), root.directory(&top, "plain"));
    root.chown(&shared, 1003, 1003).unwrap();
    root.chmod(&shared, 0o1777).unwrap();
    root.chmod(&plain, 0o777).unwrap();
    let _ =
        (one.file(&shared, "a"), one.file(&shared, "b"), one.file(&shared, "c"), two.file(&shared, "two"));
    let refused = &[Error::NotPermitted, Error::Access];
    assert_fails(two.remove(&shared, "a", Removal::File), refused);
    assert_fails(two.rename((&shared, "a"), (&shared, "z")), refused);
    assert_fails(two.rename((&shared, "a"), (&plain, "z")), refused);
    assert_fails(two.rename((&shared, "two"), (&shared, "a")), refused);
    one.remove(&shared, "a", Removal::File).unwrap();
    t.user(3).remove(&shared, "b", Removal::File).unwrap();
    root.remove(&shared, "c", Removal::File).unwrap();
    two.rename((&shared, "two"), (&plain, "two")).unwrap();
}

// POSIX.1-2024 rename(), EACCES: write permission may be required for a directory that moves, whose `..` changes.
// Linux requires it.
pub(super) fn a_moving_directory_must_be_writable(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (root, user, top) = (t.root(), t.user(1), t.top());
    let (from, to) = (root.directory(&top, "from"), root.directory(&top, "to"));
    root.chmod(&from, 0o777).unwrap();
    root.chmod(&to, 0o777).unwrap();
    let moving = user.directory(&from, "d");
    user.chmod(&moving, 0o500).unwrap();
    assert_fails(user.rename((&from, "d"), (&to, "d")), &[Error::Access]);
    user.rename((&from, "d"), (&from, "e")).unwrap();
    user.chmod(&moving, 0o700).unwrap();
    user.rename((&from, "e"), (&to, "d")).unwrap();
}

pub(super) fn access_agrees_with_operations(t: &Subject) {
    if skipped(t) {
        return;
    }
    let user = t.user(2);
    let want =
        Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE | Access::EXECUTE;
    let change = Access::MODIFY | Access::EXTEND | Access::DELETE;
    for (mode, granted) in [
        (0o770, Access::empty()),
        (0o771, Access::LOOKUP),
        (0o772, Access::empty()),
        (0o773, Access::LOOKUP | change),
        (0o774, Access::READ),
        (0o775, Access::READ | Access::LOOKUP),
        (0o777, Access::READ | Access::LOOKUP | change),
    ] {
        let (directory, _) = directory_for_others(t, mode);
        assert_eq!(user.access(&directory, want).unwrap(), granted, "{mode:o}");
        assert_eq!(
            user.access(&directory, Access::LOOKUP).unwrap(),
            granted & Access::LOOKUP,
            "only requested accesses"
        );
    }
    let file = file_of_one(t, 0o666);
    assert_eq!(user.access(&file, want).unwrap(), Access::READ | Access::MODIFY | Access::EXTEND);
}
