//! WRITE_SAME (RFC 7862 §15.12): fills a range with application data blocks, each with its number and a pattern.
//!
//! The server creates the blocks and writes them in parts, between which other requests run. "WRITE_SAME MUST appear to populate the range of
//! the file as if the client used WRITE to transfer the instantiated ADBs" (§15.12.3.2), so it may stop early, like WRITE, at the
//! end of a block; the client continues with the next. Completion by CB_OFFLOAD is not used: it would not end sooner. Zeros are not
//! written as holes: §8.4 forbids to "modify space reservations".

use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use protocol::nfs4::ops::read_plus::{AppDataBlock, WriteSameArgs};
use protocol::nfs4::types::{StableHow, Status};
use vfs::{Authority, Stability};
use xdr::{Decode, Reader, Writer};

use super::read::wrong_kind;
use crate::files::object::File;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{IoKind, stable_how};

/// Maximum number of bytes of one WRITE_SAME and of a block: as many as one COPY copies before its reply.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes created and written at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of a block's number, `count4`.
const NUMBER_BYTES: u64 = 4;
/// RFC 7862 §8.1.1: a place in the block that "is set to NFS4_UINT64_MAX" means that "the corresponding field is not set".
const NOWHERE: u64 = u64::MAX;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let WriteSameArgs { stateid, stable, block } = WriteSameArgs::decode(arguments)?;
    let file = compound.writable(Status::ISDIR)?;
    // As for WRITE: no delegation is granted between the check for conflicts and the write.
    let _changing = compound.announce_change(&file);
    let permit = compound.admit_io(&file, stateid, IoKind::Write).await?;
    let blocks = Blocks::new(&block)?;
    // The verifier is read before the data are written, as for WRITE.
    let verifier = file.export.backend.write_verifier();
    let (count, stability) = fill(compound, &file, &blocks, permit.authority).await?;
    let stability = match stable {
        StableHow::Unstable => stability,
        // One sync for all parts.
        _ if stability < Stability::FileSync && count > 0 => {
            let context = compound.changing_context(file.export);
            let commit = file.export.backend.commit(&context, &file.handle, blocks.offset, count).await;
            compound.set_fresh(commit?.after);
            Stability::FileSync
        }
        _ => Stability::FileSync,
    };
    // Complete: no `wr_callback_id`.
    reply.u32(0);
    reply.u64(count);
    reply.u32(stable_how(stability) as u32);
    reply.opaque_fixed(&verifier);
    file.export.counts.written_bytes.fetch_add(count, Relaxed);
    Ok(())
}

/// The blocks to write.
#[derive(Debug)]
struct Blocks {
    /// First byte in the file.
    offset: u64,
    /// Bytes of a block.
    size: u64,
    /// Total bytes.
    length: u64,
    /// Offset of the number in a block, and the number of the first block.
    number: Option<(u64, u32)>,
    /// Offset of the pattern in a block, and the pattern.
    pattern: Option<(u64, Bytes)>,
}

impl Blocks {
    /// # Errors
    /// INVAL for empty or too large blocks, for numbers and patterns that overlap or cross the end of a block, and if block numbers
    /// overflow; FBIG as for WRITE.
    fn new(block: &AppDataBlock) -> std::result::Result<Self, Status> {
        let AppDataBlock { offset, block_size: size, block_count, .. } = *block;
        if size == 0 || size > MAX_BYTES {
            return Err(Status::INVAL);
        }
        let all = size.checked_mul(block_count).and_then(|length| offset.checked_add(length));
        if all.is_none_or(|end| end > i64::MAX as u64) {
            return Err(Status::FBIG);
        }
        let number = (block.number_offset != NOWHERE).then_some((block.number_offset, block.block_number));
        let pattern = (block.pattern_offset != NOWHERE && !block.pattern.is_empty())
            .then(|| (block.pattern_offset, block.pattern.bytes().clone()));
        let of_number = number.map(|(at, _)| part(at, NUMBER_BYTES, size)).transpose()?;
        let of_pattern =
            pattern.as_ref().map(|(at, bytes)| part(*at, bytes.len() as u64, size)).transpose()?;
        let overlap = |one: (u64, u64), other: (u64, u64)| one.0 < other.1 && other.0 < one.1;
        if of_number.zip(of_pattern).is_some_and(|(one, other)| overlap(one, other)) {
            return Err(Status::INVAL);
        }
        // "each block will be monotonically numbered" (§15.12.3).
        let last = u64::from(block.block_number).checked_add(block_count.saturating_sub(1));
        if number.is_some() && last.is_none_or(|last| last > u64::from(u32::MAX)) {
            return Err(Status::INVAL);
        }
        let length = block_count.min(MAX_BYTES / size) * size;
        Ok(Self { offset, size, length, number, pattern })
    }

    /// Returns the length of the part at `done`: whole blocks, or a part of a long one.
    fn piece(&self, done: u64) -> u64 {
        let most = if self.size < PIECE_BYTES { PIECE_BYTES / self.size * self.size } else { PIECE_BYTES };
        most.min(self.length - done)
    }

    /// Returns the bytes at `start`, relative to the first block.
    fn bytes(&self, start: u64, length: u64) -> Bytes {
        let mut bytes = BytesMut::zeroed(length as usize);
        for index in start / self.size..(start + length).div_ceil(self.size) {
            let block = index * self.size;
            if let Some((at, pattern)) = &self.pattern {
                put(&mut bytes, start, block + at, pattern);
            }
            if let Some((at, first)) = self.number {
                put(&mut bytes, start, block + at, &(first + index as u32).to_be_bytes());
            }
        }
        bytes.freeze()
    }

    /// Returns whether parts of one length at the same offset in a block are equal.
    fn repeats(&self) -> bool {
        self.number.is_none() && self.size <= PIECE_BYTES
    }
}

/// Returns the range of a part within a block, as start and end.
fn part(at: u64, length: u64, size: u64) -> std::result::Result<(u64, u64), Status> {
    let end = at.checked_add(length).filter(|end| *end <= size).ok_or(Status::INVAL)?;
    Ok((at, end))
}

/// Copies `what`, whose offset is `at`, into the bytes that start at offset `start`.
fn put(bytes: &mut [u8], start: u64, at: u64, what: &[u8]) {
    let (from, to) = (at.max(start), (at + what.len() as u64).min(start + bytes.len() as u64));
    if from < to {
        let source = &what[(from - at) as usize..(to - at) as usize];
        bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
    }
}

/// Writes blocks; returns the bytes of whole blocks, and their stability.
async fn fill(
    compound: &mut Compound<'_>,
    file: &File<'_>,
    blocks: &Blocks,
    authority: Authority,
) -> Result<(u64, Stability)> {
    let context = compound.context(file.export);
    let backend = &file.export.backend;
    let (mut done, mut stability) = (0, Stability::FileSync);
    // The last part, and its offset in a block: a backend may stop within a block.
    let (mut bytes, mut place) = (Bytes::new(), 0);
    while done < blocks.length {
        let length = blocks.piece(done);
        if bytes.len() as u64 != length || !blocks.repeats() || place != done % blocks.size {
            (bytes, place) = (blocks.bytes(done, length), done % blocks.size);
        }
        let at = blocks.offset + done;
        match backend.write(&context, &file.handle, at, &bytes, Stability::Unstable, authority).await {
            Ok(written) => {
                compound.set_fresh(written.change.after);
                done += u64::from(written.count);
                stability = stability.min(written.stability);
            }
            // As for a short WRITE: the next one reports the error.
            Err(_) if done >= blocks.size => break,
            Err(error) => return Err(wrong_kind(compound, error).await),
        }
        if done < blocks.length {
            yield_now().await;
        }
    }
    Ok((done / blocks.size * blocks.size, stability))
}

/// Yields to other requests: writes to memory never wait.
async fn yield_now() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::types::{Handle, Stateid, WriteResponse};
    use vfs::fault::{Fault, Method, Rule};
    use xdr::Opaque;

    use super::*;
    use crate::programs::nfs4::tests::delegations::{hold, recalled, return_delegation};
    use crate::testing::{Lab, at, content, faulty, lab_42, lab_of, open, putfh, read_only};

    /// RFC 7862 §8.3: "WRITE_SAME {0, 4K, 100, 0, 0, 8, 0xfeedface}", of smaller blocks.
    fn block(count: u64) -> AppDataBlock {
        AppDataBlock {
            offset: 0,
            block_size: 16,
            block_count: count,
            number_offset: 0,
            block_number: 0,
            pattern_offset: 8,
            pattern: Opaque::from_static(&[0xfe, 0xed, 0xfa, 0xce]),
        }
    }

    fn same(stateid: Stateid, block: AppDataBlock) -> Op {
        Op::WriteSame(WriteSameArgs { stateid, stable: StableHow::Unstable, block })
    }

    fn written(lab: &mut Lab, file: Handle, block: AppDataBlock) -> WriteResponse {
        match lab.last(vec![putfh(file), same(Stateid::ANONYMOUS, block)]) {
            OpResult::WriteSame(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fills_a_range_with_numbered_blocks() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], &[0xff; 64]);
        let two = AppDataBlock { offset: 16, block_number: 0x0102, ..block(2) };
        let done = written(&mut lab, file, two);
        assert!(done.callback_id.is_empty());
        assert_eq!(done.count, 32);
        let mut expected = vec![0xff; 64];
        expected[16..32].copy_from_slice(b"\0\0\x01\x02\0\0\0\0\xfe\xed\xfa\xce\0\0\0\0");
        expected[32..48].copy_from_slice(b"\0\0\x01\x03\0\0\0\0\xfe\xed\xfa\xce\0\0\0\0");
        assert_eq!(content(&mut lab, file), expected);
    }

    /// §8.1.1: "if either adb_reloff_pattern or adb_reloff_blocknum is set to NFS4_UINT64_MAX, then the corresponding field is not
    /// set".
    #[test]
    fn numbers_and_patterns_are_optional() {
        let mut lab = lab_42();
        let zeros = AppDataBlock { number_offset: NOWHERE, pattern_offset: NOWHERE, ..block(2) };
        let pattern = AppDataBlock { number_offset: NOWHERE, ..block(1) };
        let number = AppDataBlock { pattern_offset: NOWHERE, block_number: 7, ..block(1) };
        let nothing = block(0);
        for (text, block, expected) in [
            ("zeros", zeros, vec![0; 32]),
            ("pattern", pattern, b"\0\0\0\0\0\0\0\0\xfe\xed\xfa\xce\0\0\0\0".to_vec()),
            ("number", number, b"\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()),
            ("nothing", nothing, vec![]),
        ] {
            let file = lab.file(&["export", text], b"");
            assert_eq!(written(&mut lab, file, block).count, expected.len() as u64);
            assert_eq!(content(&mut lab, file), expected, "{text}");
        }
    }

    #[test]
    fn refuses_invalid_blocks() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        for (block, status) in [
            (AppDataBlock { block_size: 0, ..block(1) }, Status::INVAL),
            (AppDataBlock { block_size: MAX_BYTES + 1, ..block(1) }, Status::INVAL),
            (AppDataBlock { number_offset: 13, pattern_offset: NOWHERE, ..block(1) }, Status::INVAL),
            (AppDataBlock { number_offset: u64::MAX - 1, ..block(1) }, Status::INVAL),
            (AppDataBlock { pattern_offset: 13, ..block(1) }, Status::INVAL),
            (AppDataBlock { pattern_offset: 3, ..block(1) }, Status::INVAL),
            (AppDataBlock { block_number: u32::MAX, ..block(2) }, Status::INVAL),
            (AppDataBlock { offset: i64::MAX as u64, ..block(1) }, Status::FBIG),
            (AppDataBlock { number_offset: NOWHERE, ..block(u64::MAX) }, Status::FBIG),
        ] {
            let op = same(Stateid::ANONYMOUS, block.clone());
            assert_eq!(lab.status(vec![putfh(file), op]), status, "{block:?}");
        }
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(0));
    }

    #[test]
    fn has_the_checks_of_write() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        let op = || same(Stateid::ANONYMOUS, block(1));
        assert_eq!(lab.status_at(&["export"], op()), Status::ISDIR);
        let reading = vec![open("file", b"reader", ShareAccess::READ), same(Stateid::CURRENT, block(1))];
        assert_eq!(lab.status(at(&["export"], reading)), Status::OPENMODE);
        lab.uid = 1000;
        assert_eq!(lab.status(vec![putfh(file), op()]), Status::ACCESS);
        let (mut lab, file) = read_only();
        assert_eq!(lab.status(vec![putfh(file), op()]), Status::ROFS);
        // Only version 4.2 has it.
        let mut lab = crate::testing::lab();
        let file = lab.file(&["export", "file"], b"");
        assert_eq!(lab.status(vec![putfh(file), op()]), Status::OP_ILLEGAL);
    }

    #[test]
    fn is_as_stable_as_requested() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
            let op = Op::WriteSame(WriteSameArgs { stateid: Stateid::ANONYMOUS, stable, block: block(3) });
            let OpResult::WriteSame(result) = lab.last(vec![putfh(file), op]) else { panic!() };
            assert!(result.into_result().unwrap().committed >= stable);
        }
    }

    /// Polls until the end; returns the result and the number of polls.
    fn finish(lab: &mut Lab, ops: Vec<Op>) -> (CompoundResult, u64) {
        let mut flight = lab.start(1, ops);
        for polls in 1..1000 {
            if let Some(result) = flight.poll() {
                return (result, polls);
            }
        }
        panic!("it does not end");
    }

    /// §15.12.3.2: "as if the client used WRITE to transfer the instantiated ADBs".
    #[test]
    fn reports_blocks_written_before_an_error() {
        let with = |rule: Rule| {
            let (export, backend) = faulty();
            let mut lab = lab_of(vec![export]);
            lab.minor = 2;
            let file = lab.file(&["export", "file"], b"");
            backend.add(rule);
            let long = AppDataBlock { block_size: 48, ..block(100_000) };
            finish(&mut lab, vec![putfh(file), same(Stateid::ANONYMOUS, long)]).0
        };
        let failing = Rule::on(Method::Write, Fault::Fail(vfs::Error::NoSpace));
        assert_eq!(with(failing.clone()).status, Status::NOSPC);
        let result = with(failing.after(1));
        let Some(OpResult::WriteSame(done)) = result.results.last() else { panic!("{result:?}") };
        assert_eq!(done.as_result().unwrap().count, PIECE_BYTES / 48 * 48);
    }

    /// A backend may stop within a block; the next part then continues there.
    #[test]
    fn blocks_are_whole_after_short_writes() {
        let (export, backend) = faulty();
        let mut lab = lab_of(vec![export]);
        lab.minor = 2;
        let file = lab.file(&["export", "file"], b"");
        // To the middle of a block, then to its end.
        for bytes in [24, 8] {
            backend.add(Rule::on(Method::Write, Fault::Short(bytes)).times(1));
        }
        let count = 2 * PIECE_BYTES / 16 + 2;
        let many = AppDataBlock { number_offset: NOWHERE, ..block(count) };
        let (result, _) = finish(&mut lab, vec![putfh(file), same(Stateid::ANONYMOUS, many)]);
        let Some(OpResult::WriteSame(done)) = result.results.last() else { panic!("{result:?}") };
        assert_eq!(done.as_result().unwrap().count, count * 16);
        let all = content(&mut lab, file);
        let expected = b"\0\0\0\0\0\0\0\0\xfe\xed\xfa\xce\0\0\0\0";
        assert!(!all.is_empty() && all.chunks(16).all(|block| block == expected));
    }

    #[test]
    fn recalls_delegations_of_others_first() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"hello");
        let mut holder = lab.reachable(b"holder", 11);
        let held = hold(&mut holder, "file", ShareAccess::READ);
        let mut flight = lab.start(1, vec![putfh(file), same(Stateid::ANONYMOUS, block(1))]);
        assert!(flight.poll().is_none());
        assert_eq!(content(&mut lab, file), b"hello");
        assert_eq!(recalled(&holder).len(), 1);
        assert_eq!(return_delegation(&mut holder, file, held), Status::OK);
        assert_eq!(flight.poll().unwrap().status, Status::OK);
    }

    #[test]
    fn one_call_is_bounded_and_yields() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        // Blocks that do not divide the parts.
        let size = PIECE_BYTES + 48;
        let long =
            AppDataBlock { block_size: size, block_number: 5, pattern_offset: size - 4, ..block(1000) };
        let (result, polls) = finish(&mut lab, vec![putfh(file), same(Stateid::ANONYMOUS, long)]);
        let blocks = MAX_BYTES / size;
        let OpResult::WriteSame(done) = &result.results[2] else { panic!("{result:?}") };
        assert_eq!(done.as_result().unwrap().count, blocks * size);
        assert!(polls >= MAX_BYTES / PIECE_BYTES - 1, "{polls}");
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(blocks * size));
        for index in [0, 1, blocks - 1] {
            let read = |lab: &mut Lab, offset, count| {
                let args = protocol::nfs4::ops::read::ReadArgs { stateid: Stateid::ANONYMOUS, offset, count };
                match lab.last(vec![putfh(file), Op::Read(args)]) {
                    OpResult::Read(read) => read.into_result().unwrap().data.to_vec(),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(read(&mut lab, index * size, 8), [0, 0, 0, 5 + index as u8, 0, 0, 0, 0]);
            assert_eq!(read(&mut lab, (index + 1) * size - 6, 6), [0, 0, 0xfe, 0xed, 0xfa, 0xce]);
        }
    }
}
