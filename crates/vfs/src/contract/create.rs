use bytes::Bytes;

use super::subject::{Subject, assert_fails};
use crate::{Create, CreateMode, Device, Error, FileKind, SetAttributes, SetTime, Timestamp};

const UNCHECKED: Create = Create::File(CreateMode::Unchecked);
const GUARDED: Create = Create::File(CreateMode::Guarded);
const EXCLUSIVE: Create = Create::File(CreateMode::Exclusive(*b"verifier"));

fn size(bytes: u64) -> SetAttributes {
    SetAttributes { size: Some(bytes), ..SetAttributes::default() }
}

pub(super) fn unchecked_accepts_an_existing_file(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    assert!(me.make(&top, "f", &UNCHECKED, 0o640).unwrap().is_new);
    let file = me.lookup(&top, "f").unwrap().handle;
    me.write(&file, 0, "content").unwrap();
    let around = me.getattr(&top).unwrap();
    let again = me.make(&top, "f", &UNCHECKED, 0o777).unwrap();
    assert!(!again.is_new);
    assert_eq!(again.handle, file);
    assert_eq!((again.attributes.mode, again.attributes.size), (0o640, 7), "only a size would be applied");
    assert!(t.is_same_change(around.change, again.directory.after.change), "nothing was created");
    let _ = (me.directory(&top, "d"), me.symlink(&top, "l", "f"));
    me.make(&top, "p", &Create::Fifo, 0o600).unwrap();
    assert_fails(me.make(&top, "d", &UNCHECKED, 0o600), &[Error::IsDirectory]);
    assert_fails(me.make(&top, "l", &UNCHECKED, 0o600), &[Error::IsSymlink]);
    assert_fails(me.make(&top, "p", &UNCHECKED, 0o600), &[Error::WrongKind]);
}

pub(super) fn unchecked_truncates_to_the_given_size(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    me.write(&file, 0, "content").unwrap();
    let again = me.create(&top, "f", &UNCHECKED, &size(3)).unwrap();
    assert_eq!((again.attributes.size, again.is_new), (3, false));
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"con");
    let new = me.create(&top, "g", &UNCHECKED, &size(5)).unwrap();
    assert_eq!((new.attributes.size, new.is_new), (5, true));
    assert_eq!(me.read(&new.handle, 0, 10).unwrap(), [0; 5]);
}

pub(super) fn guarded_refuses_an_existing_file(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.make(&top, "f", &GUARDED, 0o640).unwrap().handle;
    me.write(&file, 0, "content").unwrap();
    assert_fails(me.create(&top, "f", &GUARDED, &size(0)), &[Error::Exists]);
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"content");
}

// RFC 1813 §3.3.8: "the server reconstructs the file's verifier and compares it with the verifier in the request. If
// they match, the server treats the request as a success", since its first answer may have been lost.
pub(super) fn exclusive_recognizes_a_retransmission(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let first = me.create(&top, "f", &EXCLUSIVE, &SetAttributes::default()).unwrap();
    assert!(first.is_new);
    let second = me.create(&top, "f", &EXCLUSIVE, &SetAttributes::default()).unwrap();
    assert_eq!((second.handle, second.is_new), (first.handle, false));
    assert_eq!(me.names(&top), [b"f"]);
    let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    let given = me.create(&top, "g", &EXCLUSIVE, &set).unwrap();
    assert_eq!(given.attributes.mode, 0o640, "attributes given are set too");
}

pub(super) fn exclusive_refuses_another_verifier_and_other_files(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    me.create(&top, "f", &EXCLUSIVE, &SetAttributes::default()).unwrap();
    let other = Create::File(CreateMode::Exclusive(*b"Verifier"));
    let zeros = Create::File(CreateMode::Exclusive([0; 8]));
    assert_fails(me.create(&top, "f", &other, &SetAttributes::default()), &[Error::Exists]);
    let _ = (me.file(&top, "plain"), me.directory(&top, "d"));
    for verifier in [&EXCLUSIVE, &zeros] {
        assert_fails(me.create(&top, "plain", verifier, &SetAttributes::default()), &[Error::Exists]);
        assert_fails(me.create(&top, "d", verifier, &SetAttributes::default()), &[Error::Exists]);
    }
}

pub(super) fn an_existing_name_is_refused_for_every_kind(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let _ = (me.file(&top, "file"), me.directory(&top, "directory"), me.symlink(&top, "symlink", "nothing"));
    for name in ["file", "directory", "symlink"] {
        for what in [Create::Directory, Create::Symlink("x".into()), Create::Fifo, Create::Socket, GUARDED] {
            assert_fails(me.make(&top, name, &what, 0o700), &[Error::Exists]);
        }
    }
}

pub(super) fn defaults_are_private(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let mode = |name: &str, what: &Create| {
        me.create(&top, name, what, &SetAttributes::default()).unwrap().attributes.mode
    };
    assert_eq!(mode("unchecked", &UNCHECKED), 0o600);
    assert_eq!(mode("guarded", &GUARDED), 0o600);
    assert_eq!(mode("exclusive", &EXCLUSIVE), 0);
    assert_eq!(mode("directory", &Create::Directory), 0o700);
    assert_eq!(mode("fifo", &Create::Fifo), 0o600);
    assert_eq!(mode("socket", &Create::Socket), 0o600);
}

pub(super) fn given_attributes_are_set_by_create(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let past = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
    let set = SetAttributes {
        mode: Some(0o751),
        uid: Some(me.credentials().uid),
        gid: Some(me.credentials().gid),
        accessed: Some(SetTime::To(past)),
        modified: Some(SetTime::To(past)),
        ..SetAttributes::default()
    };
    for (name, what) in [("f", &GUARDED), ("d", &Create::Directory), ("p", &Create::Fifo)] {
        let made = me.create(&top, name, what, &set).unwrap().attributes;
        assert_eq!((made.mode, made.accessed, made.modified), (0o751, past, past), "{name}");
    }
    // Only the caller's umask applies: that of the server's process must have no effect.
    assert_eq!(me.make(&top, "open", &GUARDED, 0o666).unwrap().attributes.mode, 0o666);
    assert_eq!(me.make(&top, "opendir", &Create::Directory, 0o1777).unwrap().attributes.mode, 0o1777);
}

pub(super) fn devices_keep_their_numbers(t: &Subject) {
    if t.lacks(t.capabilities().devices, "device files") {
        return;
    }
    let (root, top) = (t.root(), t.top());
    let device = Device { major: 4095, minor: 1_048_575 };
    for (name, what, kind) in [
        ("c", Create::CharDevice(device), FileKind::CharDevice),
        ("b", Create::BlockDevice(device), FileKind::BlockDevice),
    ] {
        let made = root.make(&top, name, &what, 0o600).unwrap().attributes;
        assert_eq!((made.kind, made.device, made.mode), (kind, device, 0o600));
    }
    assert_eq!(root.getattr(&root.file(&top, "f")).unwrap().device, Device::default());
}

pub(super) fn creating_in_a_file_fails(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    for what in [UNCHECKED, EXCLUSIVE, Create::Directory, Create::Fifo] {
        assert_fails(me.make(&file, "x", &what, 0o700), &[Error::NotDirectory]);
    }
}

pub(super) fn a_symlink_keeps_its_text_byte_for_byte(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let long = Bytes::from(vec![b'x'; 4095]);
    for (name, text) in
        [("raw", Bytes::from_static(b"\xff/../ \n")), ("slashes", "///".into()), ("long", long)]
    {
        let made = me.create(&top, name, &Create::Symlink(text.clone()), &SetAttributes::default()).unwrap();
        assert_eq!(me.readlink(&made.handle).unwrap(), text);
        assert_eq!((made.attributes.kind, made.attributes.size), (FileKind::Symlink, text.len() as u64));
    }
    let longer = Create::Symlink(Bytes::from(vec![b'x'; 4096]));
    assert_fails(me.create(&top, "longer", &longer, &SetAttributes::default()), &[Error::NameTooLong]);
}

// As on Linux: in a directory with set-group-ID new objects get its group, and directories the bit too.
pub(super) fn set_group_id_is_inherited(t: &Subject) {
    if t.lacks(t.capabilities().identities, "identities") {
        return;
    }
    let (root, user, top) = (t.root(), t.user(1), t.top());
    let shared = root.directory(&top, "shared");
    root.chown(&shared, 0, 4321).unwrap();
    root.chmod(&shared, 0o2777).unwrap();
    let file = user.make(&shared, "f", &GUARDED, 0o644).unwrap().attributes;
    assert_eq!((file.uid, file.gid, file.mode), (user.credentials().uid, 4321, 0o644));
    let directory = user.make(&shared, "d", &Create::Directory, 0o755).unwrap().attributes;
    assert_eq!((directory.gid, directory.mode), (4321, 0o2755));
}
