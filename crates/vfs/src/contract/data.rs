use bytes::BytesMut;

use super::subject::{Subject, assert_fails, payload};
use crate::{Authority, Backend, Error, ReadRequest, Stability};

const ALL: [Stability; 3] = [Stability::Unstable, Stability::DataSync, Stability::FileSync];

/// Returns bytes that differ by place, so that a shift is noticed.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub(super) fn written_data_are_read(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let data = pattern(20_000);
    let written = me.write(&file, 0, &data).unwrap();
    assert_eq!((written.count, written.change.before.size, written.change.after.size), (20_000, 0, 20_000));
    assert_eq!(me.read(&file, 0, 20_000).unwrap(), data);
    for (offset, count) in [(0, 1), (1, 4095), (4095, 2), (4096, 4096), (8191, 8194), (19_999, 1)] {
        assert_eq!(me.read(&file, offset, count).unwrap(), data[offset as usize..][..count as usize]);
    }
}

pub(super) fn holes_read_as_zeros(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 100_000, "end").unwrap();
    me.write(&file, 50_000, "middle").unwrap();
    let mut wanted = vec![0; 100_003];
    wanted[50_000..50_006].copy_from_slice(b"middle");
    wanted[100_000..].copy_from_slice(b"end");
    assert_eq!(me.read(&file, 0, 200_000).unwrap(), wanted);
}

// RFC 1813 §3.3.6: "If offset is greater than or equal to the size of the file, the status, NFS3_OK, is returned with
// count set to 0 and eof set to TRUE".
pub(super) fn a_read_after_the_end_is_empty(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 0, "abc").unwrap();
    for offset in [3, 4, 1 << 40, i64::MAX as u64, u64::MAX - 5, u64::MAX] {
        let (data, read) = me.read_with(&file, offset, 10, Authority::Caller).unwrap();
        assert!(data.is_empty() && read.eof, "{offset}");
    }
}

pub(super) fn eof_is_exact(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 0, "abcdef").unwrap();
    for (offset, count, length, eof) in [
        (0, 5, 5, false),
        (0, 6, 6, true),
        (0, 7, 6, true),
        (5, 1, 1, true),
        (4, 1, 1, false),
        (0, 0, 0, false),
    ] {
        let (data, read) = me.read_with(&file, offset, count, Authority::Caller).unwrap();
        assert_eq!((data.len(), read.eof), (length, eof), "{offset}+{count}");
        assert_eq!(read.attributes.size, 6);
    }
}

pub(super) fn reading_appends_to_the_buffer(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 0, "content").unwrap();
    let request = ReadRequest { offset: 3, count: 4, may_splice: false, authority: Authority::Caller };
    let mut into = BytesMut::from(&b"header:"[..]);
    let read = t.wait(t.backend().read(&me.context(), &file, request, &mut into)).unwrap();
    let header = into.split_to(7);
    assert_eq!(&header[..], b"header:", "earlier buffer content remains");
    assert_eq!(payload(&read, &into), b"tent");
}

// RFC 1813 §3.3.7: "If count is 0, the WRITE will succeed and return a count of 0".
pub(super) fn empty_reads_and_writes_do_nothing(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let before = me.getattr(&file).unwrap();
    for offset in [0, 1 << 40] {
        let written = me.write(&file, offset, "").unwrap();
        assert_eq!((written.count, written.change.after), (0, before));
    }
    assert!(me.read(&file, 0, 0).unwrap().is_empty());
    assert_eq!(me.getattr(&file).unwrap().size, 0);
}

pub(super) fn writes_may_overlap(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let mut wanted = pattern(12_000);
    me.write(&file, 0, &wanted).unwrap();
    for (offset, length) in [(4_000, 200), (0, 1), (11_999, 1), (4_096, 4_096), (8_000, 4_500)] {
        let piece = vec![length as u8; length];
        me.write(&file, offset as u64, &piece).unwrap();
        wanted.resize(wanted.len().max(offset + length), 0);
        wanted[offset..offset + length].copy_from_slice(&piece);
        assert_eq!(me.read(&file, 0, 20_000).unwrap(), wanted);
    }
}

pub(super) fn large_offsets_work(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    for shift in [31, 32, 33, 40] {
        // Across the border, not at it.
        let offset = (1 << shift) - 2;
        if offset + 4 > t.backend().properties().max_file_size {
            break;
        }
        let after = me.write(&file, offset, "wxyz").unwrap().change.after;
        assert_eq!(after.size, offset + 4);
        assert!(after.used < 10 << 20, "{} bytes for the hole", after.used);
        assert_eq!(me.read(&file, offset - 1, 100).unwrap(), b"\0wxyz");
    }
}

pub(super) fn writes_beyond_the_greatest_size_are_refused(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let most = t.backend().properties().max_file_size;
    for offset in [most, most + 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX] {
        if offset >= most {
            assert_fails(me.write(&file, offset, "x"), &[Error::TooLarge]);
        }
    }
    assert_eq!(me.getattr(&file).unwrap().size, 0);
}

pub(super) fn a_megabyte_is_written_and_read(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let data = pattern(1 << 20);
    assert_eq!(me.write(&file, 777, &data).unwrap().count, 1 << 20);
    assert_eq!(me.read(&file, 777, 1 << 20).unwrap(), data);
    assert!(me.getattr(&file).unwrap().used >= 1 << 20);
}

// RFC 1813 §3.3.7: "If stable was FILE_SYNC, then committed must also be FILE_SYNC: anything else constitutes a protocol
// violation." More than requested is allowed, less never.
pub(super) fn stability_is_at_least_as_requested(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    for asked in ALL {
        let written = me.write_with(&file, 0, "data", asked, Authority::Caller).unwrap();
        assert!(written.stability >= asked, "asked for {asked:?}, got {:?}", written.stability);
    }
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"data");
}

// RFC 8881 §18.3.3: "The server must vary the value of the write verifier at each server event or instantiation that may
// lead to a loss of uncommitted data." No event here loses data, and a changed verifier would make clients write again.
pub(super) fn the_write_verifier_is_constant(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let verifier = t.backend().write_verifier();
    for stability in ALL {
        me.write_with(&file, 0, "data", stability, Authority::Caller).unwrap();
        me.commit(&file, 0, 0).unwrap();
    }
    me.remove(&t.top(), "f", crate::Removal::File).unwrap();
    t.wait(Backend::sync(t.backend())).unwrap();
    assert_eq!(t.backend().write_verifier(), verifier);
}

pub(super) fn commit_takes_any_range(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write_with(&file, 0, "data", Stability::Unstable, Authority::Caller).unwrap();
    for (offset, count) in [(0, 0), (0, 4), (2, 1), (100, 100), (0, 1 << 40), (1 << 40, 0)] {
        let commit = me.commit(&file, offset, count).unwrap();
        assert_eq!(commit.after.size, 4, "{offset}+{count}");
    }
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"data");
}
