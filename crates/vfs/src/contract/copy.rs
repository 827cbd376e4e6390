use super::subject::{Caller, Subject, assert_fails};
use crate::{Authority, CopyRange, Error, Handle, Seek};

fn range(
    source: Handle,
    source_offset: u64,
    destination: Handle,
    destination_offset: u64,
    count: u64,
) -> CopyRange {
    CopyRange {
        source,
        source_offset,
        source_authority: Authority::Caller,
        destination,
        destination_offset,
        destination_authority: Authority::Caller,
        count,
    }
}

/// Returns the block size of clones; `None` if clones do not work.
fn clone_block(t: &Subject) -> Option<u64> {
    let block = t.backend().properties().clone_block_bytes;
    if t.lacks(block > 0, "clones") { None } else { Some(u64::from(block)) }
}

/// Returns `count` bytes in which no two blocks are equal.
fn pattern(count: u64) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at / 4096) as u8).collect()
}

fn filled(me: &Caller<'_>, top: &Handle, name: &str, content: Vec<u8>) -> Handle {
    let file = me.file(top, name);
    me.write(&file, 0, content).unwrap();
    file
}

fn content(me: &Caller<'_>, file: &Handle) -> Vec<u8> {
    me.read(file, 0, 8 << 20).unwrap()
}

pub(super) fn clones_are_whole_and_independent(t: &Subject) {
    let Some(block) = clone_block(t) else { return };
    let (me, top) = (t.me(), t.top());
    let data = pattern(3 * block + 5);
    let (source, target) = (filled(&me, &top, "s", data.clone()), me.file(&top, "d"));
    let change = me.clone_range(&range(source, 0, target, 0, 0)).unwrap();
    assert_eq!((change.before.size, change.after.size), (0, 3 * block + 5));
    assert!(change.after.change > change.before.change);
    assert_eq!(content(&me, &target), data);
    me.write(&source, 0, "source").unwrap();
    me.write(&target, block, "target").unwrap();
    let mut wanted = data.clone();
    wanted[block as usize..block as usize + 6].copy_from_slice(b"target");
    assert_eq!(content(&me, &target), wanted, "a write to one is not seen in the other");
    wanted.copy_from_slice(&data);
    wanted[..6].copy_from_slice(b"source");
    assert_eq!(content(&me, &source), wanted);
}

pub(super) fn clones_keep_holes_and_replace_old_data(t: &Subject) {
    let Some(block) = clone_block(t) else { return };
    let (me, top) = (t.me(), t.top());
    let source = filled(&me, &top, "s", vec![1; block as usize]);
    me.truncate(&source, 4 * block).unwrap();
    let target = filled(&me, &top, "d", vec![9; 6 * block as usize]);
    let after = me.clone_range(&range(source, 0, target, block, 3 * block)).unwrap().after;
    assert_eq!(after.size, 6 * block, "a clone inside keeps the size");
    let mut wanted = vec![9; 6 * block as usize];
    wanted[block as usize..2 * block as usize].fill(1);
    wanted[2 * block as usize..4 * block as usize].fill(0);
    assert_eq!(content(&me, &target), wanted);
    if t.capabilities().holes {
        assert_eq!(me.seek(&target, 2 * block, Seek::Hole).unwrap(), Some(2 * block));
    }
    // RFC 7862 §15.13.3: "The destination offset … may be greater than the size of the destination file."
    let far = me.clone_range(&range(source, 0, target, 10 * block, block)).unwrap().after;
    assert_eq!(far.size, 11 * block);
    assert_eq!(
        me.read(&target, 9 * block, 2 * block as u32).unwrap()[block as usize..],
        vec![1; block as usize]
    );
}

pub(super) fn clones_inside_one_file_must_not_overlap(t: &Subject) {
    let Some(block) = clone_block(t) else { return };
    let (me, top) = (t.me(), t.top());
    let data = pattern(4 * block);
    let file = filled(&me, &top, "f", data.clone());
    assert_fails(me.clone_range(&range(file, 0, file, block, 2 * block)), &[Error::Invalid]);
    assert_fails(me.clone_range(&range(file, block, file, 0, 2 * block)), &[Error::Invalid]);
    assert_eq!(content(&me, &file), data);
    me.clone_range(&range(file, 0, file, 2 * block, 2 * block)).unwrap();
    assert_eq!(content(&me, &file), [&data[..2 * block as usize], &data[..2 * block as usize]].concat());
}

pub(super) fn bad_clones_change_nothing(t: &Subject) {
    let Some(block) = clone_block(t) else { return };
    let (me, top) = (t.me(), t.top());
    let (source, target) =
        (filled(&me, &top, "s", pattern(2 * block + 1)), filled(&me, &top, "d", pattern(10)));
    for (from, to, count) in [
        (1, 0, block),
        (0, 1, block),
        (0, 0, block - 1),
        (block, 0, 2 * block),
        (4 * block, 0, 0),
        (0, 0, u64::MAX),
        (u64::MAX, 0, 1),
    ] {
        let outcome = me.clone_range(&range(source, from, target, to, count));
        assert_fails(outcome, &[Error::Invalid]);
    }
    let beyond = me.clone_range(&range(source, 0, target, u64::MAX - block + 1, block));
    assert_fails(beyond, &[Error::TooLarge, Error::Invalid]);
    for (a, b) in [(top, target), (source, top)] {
        assert_fails(me.clone_range(&range(a, 0, b, 0, 0)), &[Error::IsDirectory]);
    }
    assert_eq!(content(&me, &target), pattern(10));
}

pub(super) fn clones_of_part_of_a_block_end_the_destination(t: &Subject) {
    let Some(block) = clone_block(t) else { return };
    let (me, top) = (t.me(), t.top());
    let data = pattern(block + 5);
    let source = filled(&me, &top, "s", data.clone());
    let target = filled(&me, &top, "d", vec![9; 2 * block as usize]);
    // Linux, generic_remap_check_len: part of a block may not replace more than itself.
    assert_fails(me.clone_range(&range(source, 0, target, 0, 0)), &[Error::Invalid]);
    assert_fails(me.clone_range(&range(source, block, target, block, 5)), &[Error::Invalid]);
    assert_eq!(content(&me, &target), vec![9; 2 * block as usize]);
    for size in [block + 5, block + 1] {
        me.truncate(&target, size).unwrap();
        assert_eq!(me.clone_range(&range(source, 0, target, 0, 0)).unwrap().after.size, block + 5);
        assert_eq!(content(&me, &target), data);
    }
}

pub(super) fn copies_run_in_steps_and_have_the_same_bytes(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let data = pattern((5 << 20) + 7);
    let (source, target) = (filled(&me, &top, "s", data.clone()), filled(&me, &top, "d", vec![9; 100]));
    copy_all(&me, range(source, 3, target, 50, data.len() as u64 - 3));
    let wanted = [&[9; 50][..], &data[3..]].concat();
    assert!(content(&me, &target) == wanted, "the copy differs");
    me.commit(&target, 0, 0).unwrap();
    let rest = me.copy_range(&range(source, 5 << 20, target, 0, 0)).unwrap();
    assert_eq!((rest.count, rest.is_all), (7, true), "0 means all to the end");
    let nothing = me.copy_range(&range(source, data.len() as u64, target, 0, 0)).unwrap();
    assert_eq!((nothing.count, nothing.is_all), (0, true));
}

/// Copies a range in as many steps as needed.
fn copy_all(me: &Caller<'_>, whole: CopyRange) {
    let mut left = whole;
    for _ in 0..100 {
        let step = me.copy_range(&left).unwrap();
        assert!(step.count > 0 && step.change.after.change > step.change.before.change);
        assert_eq!(step.is_all, step.count == left.count);
        if step.is_all {
            return;
        }
        left.source_offset += step.count;
        left.destination_offset += step.count;
        left.count -= step.count;
    }
    panic!("100 steps were not enough");
}

/// Returns a hole of 1 GiB between two MiB of data, and one of 256 MiB after them.
fn sparse(me: &Caller<'_>, top: &Handle) -> (Handle, u64) {
    let file = filled(me, top, "s", pattern(MIB));
    me.write(&file, 1025 * MIB, pattern(MIB)).unwrap();
    let size = 1282 * MIB;
    me.truncate(&file, size).unwrap();
    (file, size)
}

const MIB: u64 = 1 << 20;

pub(super) fn copies_of_sparse_files_are_sparse(t: &Subject) {
    if t.lacks(t.capabilities().holes, "holes") {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let (source, size) = sparse(&me, &top);
    let target = me.file(&top, "d");
    copy_all(&me, range(source, 0, target, 0, size));
    let copied = me.getattr(&target).unwrap();
    assert_eq!(copied.size, size);
    assert!(copied.used < 16 * MIB, "{} bytes used", copied.used);
    for at in [0, 1025 * MIB] {
        assert!(me.read(&target, at, MIB as u32).unwrap() == pattern(MIB), "data at {at}");
    }
    assert_eq!(me.seek(&target, 3 * MIB, Seek::Hole).unwrap(), Some(3 * MIB));
    // After the destination's data the hole extends the file, and the data remain.
    let longer = filled(&me, &top, "l", vec![9; 2 * MIB as usize]);
    copy_all(&me, range(source, MIB, longer, 4 * MIB, 600 * MIB));
    assert_eq!(me.getattr(&longer).unwrap().size, 604 * MIB);
    assert!(
        me.read(&longer, 0, 3 * MIB as u32).unwrap()
            == [vec![9; 2 * MIB as usize], vec![0; MIB as usize]].concat()
    );
}

pub(super) fn data_under_a_copied_hole_read_as_zeros(t: &Subject) {
    if t.lacks(t.capabilities().holes, "holes") {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let (source, _) = sparse(&me, &top);
    // Data in the middle of the future hole, and nothing at its beginning.
    let target = me.file(&top, "d");
    me.write(&target, 3 * MIB, vec![9; MIB as usize]).unwrap();
    copy_all(&me, range(source, 2 * MIB, target, 0, 8 * MIB));
    assert!(content(&me, &target) == vec![0; 8 * MIB as usize], "existing data are visible");
}

pub(super) fn bad_copies_change_nothing(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (source, target) = (filled(&me, &top, "s", pattern(10)), filled(&me, &top, "d", pattern(3)));
    // RFC 7862 §15.2.3: "If the source offset or the source offset plus count is greater than the size of the source file,
    // the operation MUST fail with NFS4ERR_INVAL."
    for (from, count) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 1), (1, u64::MAX)] {
        assert_fails(me.copy_range(&range(source, from, target, 0, count)), &[Error::Invalid]);
    }
    assert_fails(me.copy_range(&range(source, 0, source, 100, 5)), &[Error::Invalid]);
    let most = t.backend().properties().max_file_size;
    assert_fails(me.copy_range(&range(source, 0, target, most, 1)), &[Error::TooLarge]);
    assert_fails(me.copy_range(&range(source, 0, target, u64::MAX, 1)), &[Error::TooLarge]);
    for (a, b) in [(top, target), (source, top)] {
        assert_fails(me.copy_range(&range(a, 0, b, 0, 0)), &[Error::IsDirectory]);
    }
    assert_eq!(content(&me, &target), pattern(3));
}

pub(super) fn both_need_permission_on_both_files(t: &Subject) {
    if t.lacks(t.capabilities().identities, "identities") {
        return;
    }
    let (root, user, top) = (t.root(), t.user(1), t.top());
    let (source, target) = (filled(&root, &top, "s", pattern(10)), filled(&root, &top, "d", pattern(3)));
    let both = |allowed: &[Error]| {
        assert_fails(user.copy_range(&range(source, 0, target, 0, 0)), allowed);
        if t.backend().properties().clone_block_bytes > 0 {
            assert_fails(user.clone_range(&range(source, 0, target, 0, 0)), allowed);
        }
    };
    root.chmod(&target, 0o666).unwrap();
    root.chmod(&source, 0o600).unwrap();
    both(&[Error::Access]);
    root.chmod(&source, 0o644).unwrap();
    root.chmod(&target, 0o644).unwrap();
    both(&[Error::Access]);
    root.chmod(&target, 0o646).unwrap();
    assert_eq!(user.copy_range(&range(source, 0, target, 0, 0)).unwrap().count, 10);
}

pub(super) fn an_opened_file_is_not_checked_again(t: &Subject) {
    if t.lacks(t.capabilities().identities, "identities") {
        return;
    }
    let (root, user, top) = (t.root(), t.user(1), t.top());
    let (source, target) = (filled(&root, &top, "s", pattern(10)), filled(&root, &top, "d", pattern(3)));
    root.chmod(&source, 0o600).unwrap();
    root.chmod(&target, 0o600).unwrap();
    let opened = CopyRange {
        source_authority: Authority::Opened,
        destination_authority: Authority::Opened,
        ..range(source, 0, target, 0, 0)
    };
    assert_eq!(user.copy_range(&opened).unwrap().count, 10);
    assert_eq!(content(&root, &target), pattern(10));
}
