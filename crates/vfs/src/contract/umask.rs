use super::subject::Subject;
use crate::{Create, CreateMode, SetAttributes};

const EXCLUSIVE: Create = Create::File(CreateMode::Exclusive(*b"verifier"));
const GUARDED: Create = Create::File(CreateMode::Guarded);

fn set(mode: u32, umask: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), umask: Some(umask), ..SetAttributes::default() }
}

// RFC 8275 §5: "all bits in the mode that are set in the unmask MUST be turned off".
pub(super) fn the_mode_is_limited_for_every_kind(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for (name, what, mode, umask, wanted) in [
        ("guarded", &GUARDED, 0o666, 0o022, 0o644),
        ("unchecked", &Create::File(CreateMode::Unchecked), 0o777, 0o027, 0o750),
        ("exclusive", &EXCLUSIVE, 0o666, 0o002, 0o664),
        ("exclusive without owner", &EXCLUSIVE, 0o666, 0o600, 0o066),
        ("exclusive without anything", &EXCLUSIVE, 0o777, 0o777, 0),
        ("directory", &Create::Directory, 0o777, 0o077, 0o700),
        ("fifo", &Create::Fifo, 0o666, 0o022, 0o644),
        ("without umask", &GUARDED, 0o666, 0, 0o666),
    ] {
        let created = me.create(&top, name, what, &set(mode, umask)).unwrap();
        assert_eq!(created.attributes.mode, wanted, "{name}");
        assert_eq!(me.getattr(&created.handle).unwrap().mode, wanted, "{name}");
        // The umask applies to one create only.
        let next = me.make(&top, format!("after {name}"), &GUARDED, 0o666).unwrap();
        assert_eq!(next.attributes.mode, 0o666, "{name}");
    }
}

pub(super) fn special_bits_survive_the_umask(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for (name, what) in [("file", &EXCLUSIVE), ("directory", &Create::Directory)] {
        let created = me.create(&top, name, what, &set(0o4777, 0o022)).unwrap();
        assert_eq!(created.attributes.mode, 0o4755, "{name}");
    }
}
