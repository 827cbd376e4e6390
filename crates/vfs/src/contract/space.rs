use super::subject::{Subject, assert_fails};
use crate::{Error, Seek};

fn skipped(t: &Subject) -> bool {
    t.lacks(t.capabilities().holes, "holes")
}

pub(super) fn statfs_is_plausible(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    for handle in [t.top(), file] {
        let space = me.statfs(&handle).unwrap();
        assert!(space.total_bytes > 0 && space.total_bytes >= space.free_bytes);
        assert!(space.free_bytes >= space.available_bytes);
        assert!(space.total_files >= space.free_files && space.free_files >= space.available_files);
    }
}

pub(super) fn seek_finds_data_and_holes(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let (start, length) = (1 << 20, 1 << 18);
    me.write(&file, start, vec![1; length as usize]).unwrap();
    me.truncate(&file, 4 << 20).unwrap();
    let data = me.seek(&file, 0, Seek::Data).unwrap().expect("there are data");
    assert!(data > 0 && data <= start, "data at {data}");
    assert_eq!(me.seek(&file, 0, Seek::Hole).unwrap(), Some(0));
    assert_eq!(me.seek(&file, start + 7, Seek::Data).unwrap(), Some(start + 7), "inside data");
    let hole = me.seek(&file, start, Seek::Hole).unwrap().expect("the end is a hole");
    assert!(hole >= start + length && hole < 4 << 20, "hole at {hole}");
    assert_eq!(me.seek(&file, 3 << 20, Seek::Data).unwrap(), None, "only a hole follows");
    assert_eq!(me.seek(&file, 3 << 20, Seek::Hole).unwrap(), Some(3 << 20));
    for what in [Seek::Data, Seek::Hole] {
        for offset in [4 << 20, (4 << 20) + 1, i64::MAX as u64, u64::MAX] {
            assert_fails(me.seek(&file, offset, what), &[Error::NoDevice]);
        }
        assert_fails(me.seek(&t.top(), 0, what), &[Error::IsDirectory]);
    }
}

pub(super) fn allocate_extends_with_zeros(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 10, "content").unwrap();
    let change = me.allocate(&file, 5, 100_000).unwrap();
    assert_eq!((change.before.size, change.after.size), (17, 100_005));
    assert!(change.after.used >= 100_000, "{} bytes reserved", change.after.used);
    let mut wanted = vec![0; 100_005];
    wanted[10..17].copy_from_slice(b"content");
    assert_eq!(me.read(&file, 0, 200_000).unwrap(), wanted);
    assert_eq!(me.allocate(&file, 0, 10).unwrap().after.size, 100_005, "a range inside keeps the size");
}

pub(super) fn deallocate_punches_and_keeps_the_size(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 0, vec![7; 1 << 18]).unwrap();
    let used = me.getattr(&file).unwrap().used;
    let mut wanted = vec![7; 1 << 18];
    for (offset, length) in [(1000, 150_000), (200_000, 3), ((1 << 18) - 10, 1 << 30)] {
        let after = me.deallocate(&file, offset, length).unwrap().after;
        assert_eq!(after.size, 1 << 18);
        let end = (offset + length).min(1 << 18) as usize;
        wanted[offset as usize..end].fill(0);
        assert_eq!(me.read(&file, 0, 1 << 20).unwrap(), wanted, "{offset}+{length}");
    }
    assert!(me.getattr(&file).unwrap().used < used);
}

pub(super) fn a_written_hole_equals_written_zeros(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 0, vec![7; 1 << 18]).unwrap();
    let used = me.getattr(&file).unwrap().used;
    let mut wanted = vec![7; 1 << 18];
    // Inside, across the end, and after it.
    for (offset, length) in [(1000, 150_000), ((1 << 18) - 10, 70_000), (400_000, 1 << 20)] {
        let written = me.write_hole(&file, offset, length).unwrap();
        let end = offset as usize + length as usize;
        assert_eq!((written.count, written.change.after.size as usize), (length, end.max(1 << 18)));
        wanted.resize(wanted.len().max(end), 0);
        wanted[offset as usize..end].fill(0);
        assert_eq!(me.read(&file, 0, 1 << 21).unwrap(), wanted, "{offset}+{length}");
    }
    assert!(me.getattr(&file).unwrap().used < used, "space is freed, and none is taken");
    assert_fails(me.write_hole(&file, 0, 0), &[Error::Invalid]);
    let most = t.backend().properties().max_file_size;
    assert_fails(me.write_hole(&file, most, 1), &[Error::TooLarge]);
    assert_fails(me.write_hole(&t.top(), 0, 1), &[Error::IsDirectory]);
}

pub(super) fn bad_ranges_are_refused(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    for (offset, length) in [(0, 0), (u64::MAX, 1), (10, u64::MAX), (u64::MAX, u64::MAX)] {
        assert_fails(me.allocate(&file, offset, length), &[Error::Invalid, Error::TooLarge]);
        assert_fails(me.deallocate(&file, offset, length), &[Error::Invalid, Error::TooLarge]);
    }
    let most = t.backend().properties().max_file_size;
    assert_fails(me.allocate(&file, most, 1), &[Error::TooLarge]);
    assert_fails(me.allocate(&t.top(), 0, 1), &[Error::IsDirectory]);
    assert_fails(me.deallocate(&t.top(), 0, 1), &[Error::IsDirectory]);
    assert_eq!(me.getattr(&file).unwrap().size, 0);
}

pub(super) fn sync_succeeds(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 0, "content").unwrap();
    t.wait(t.backend().sync()).unwrap();
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"content");
}
