//! Files that workloads prepare, and their content.

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};

use crate::layout::{fill_pattern, first_difference};
use crate::runner::Meter;
use crate::targets::{Buffer, Fault, Files, How, OpenFile};

/// Bytes of one write while files are prepared.
const BLOCK_BYTES: u64 = 8 << 20;
/// Bytes at the start of a read that are always compared.
const START_BYTES: usize = 64;
/// Files that are prepared at the same time.
const PREPARED_AT_ONCE: usize = 32;

/// Returns `count` bytes of the pattern, as it is at `offset` of a file.
pub(super) fn pattern(offset: u64, count: u64) -> Bytes {
    let lead = offset % 8;
    let mut block = BytesMut::zeroed((lead + count).next_multiple_of(8) as usize);
    fill_pattern(offset - lead, &mut block);
    block.truncate((lead + count) as usize);
    block.freeze().slice(lead as usize..)
}

/// Compares data that were read at `offset` with the pattern. Call it outside of the timed part.
pub(super) fn check(meter: &Meter, buffer: &Buffer, offset: u64) -> Result<(), Fault> {
    check_block(meter, buffer, offset, offset)
}

/// As [`check`], of the first 8 bytes alone: cheap enough for reads within a measured operation.
pub(super) fn check_start(buffer: &Buffer, offset: u64) -> Result<(), Fault> {
    compare(buffer, offset, offset, 8)
}

/// Compares data that were read at `offset` of a file with the pattern as it is at `pattern_offset`: some workloads write the same
/// block everywhere. Call it outside of the timed part.
pub(super) fn check_block(
    meter: &Meter,
    buffer: &Buffer,
    offset: u64,
    pattern_offset: u64,
) -> Result<(), Fault> {
    let compare = |bytes| compare(buffer, offset, pattern_offset, bytes);
    meter.compare(|| compare(usize::MAX), || compare(START_BYTES))
}

/// Compares the first `bytes` bytes of data that were read at `offset`.
fn compare(buffer: &Buffer, offset: u64, pattern_offset: u64, bytes: usize) -> Result<(), Fault> {
    let mut before = 0;
    for part in buffer.parts() {
        let part = &part[..part.len().min(bytes.saturating_sub(before as usize))];
        if let Some(place) = first_difference(pattern_offset + before, part) {
            let place_in_file = offset + before + place as u64;
            return Err(Fault::new(format!(
                "wrong data at offset {place_in_file}: not what was written there (read {:02x})",
                part[place]
            )));
        }
        before += part.len() as u64;
    }
    Ok(())
}

/// As [`check`] for files with holes, whose bytes are zeros.
pub(super) fn check_with_holes(meter: &Meter, buffer: &Buffer, offset: u64) -> Result<(), Fault> {
    let compare = |bytes| compare_with_holes(buffer, offset, bytes);
    meter.compare(|| compare(usize::MAX), || compare(START_BYTES))
}

/// As [`compare`], where bytes may be zero too.
fn compare_with_holes(buffer: &Buffer, offset: u64, bytes: usize) -> Result<(), Fault> {
    let Err(fault) = compare(buffer, offset, offset, bytes) else { return Ok(()) };
    let mut before = offset;
    for part in buffer.parts() {
        let part = &part[..part.len().min(bytes.saturating_sub((before - offset) as usize))];
        let expected = pattern(before, part.len() as u64);
        if part.iter().zip(&expected).any(|(byte, expected)| byte != expected && *byte != 0) {
            return Err(fault);
        }
        before += part.len() as u64;
    }
    Ok(())
}

/// A file as it was read, in pieces. They are kept so that they are compared outside of the timed part; their memory is used again.
#[derive(Default)]
pub(super) struct Pieces {
    buffers: Vec<Buffer>,
    /// Offsets of the pieces of the last file.
    offsets: Vec<u64>,
}

impl Pieces {
    /// Compares the last file that was read with the pattern. Call it outside of the timed part.
    pub(super) fn check(&self, meter: &Meter) -> Result<(), Fault> {
        let compare = |bytes| {
            let mut pieces = self.buffers.iter().zip(&self.offsets);
            pieces.try_for_each(|(buffer, offset)| compare(buffer, *offset, *offset, bytes))
        };
        meter.compare(|| compare(usize::MAX), || compare(START_BYTES))
    }

    /// Returns the buffer of the next piece.
    fn next(&mut self, offset: u64) -> &mut Buffer {
        let number = self.offsets.len();
        self.offsets.push(offset);
        if self.buffers.len() <= number {
            self.buffers.push(Buffer::default());
        }
        &mut self.buffers[number]
    }
}

/// Makes a file of this size with the pattern, unless it exists.
pub(super) async fn make_file<F: Files>(files: &F, path: &str, size: u64) -> Result<(), Fault> {
    match files.stat(path).await {
        Ok(status) if status.size == size => return Ok(()),
        Err(fault) if !fault.is_missing() => return Err(fault),
        _ => {}
    }
    write_file(files, path, size).await
}

/// Writes a file of this size with the pattern.
pub(super) async fn write_file<F: Files>(files: &F, path: &str, size: u64) -> Result<(), Fault> {
    let file = files.open(path, How::CREATE).await?;
    let mut offset = 0;
    while offset < size {
        let block = pattern(offset, BLOCK_BYTES.min(size - offset));
        let length = block.len();
        let written = file.write(offset, block).await?;
        if written < length {
            return Err(Fault::new(format!("write {path}: {written} of {length} bytes were written")));
        }
        offset += length as u64;
    }
    file.sync().await?;
    file.close().await
}

/// Makes many files at the same time.
pub(super) async fn make_files<F: Files>(
    files: &F,
    wanted: impl Iterator<Item = (String, u64)>,
) -> Result<(), Fault> {
    let mut making = stream::iter(wanted)
        .map(|(path, size)| async move { make_file(files, &path, size).await })
        .buffer_unordered(PREPARED_AT_ONCE);
    while let Some(made) = making.next().await {
        made?;
    }
    Ok(())
}

/// Makes a directory, unless it exists.
pub(crate) async fn make_directory<F: Files>(files: &F, path: &str) -> Result<(), Fault> {
    match files.make_directory(path).await {
        Err(fault) if fault.is_there() => Ok(()),
        made => made,
    }
}

/// Removes a tree. A missing one counts as removed.
pub(crate) async fn remove_tree<F: Files>(files: &F, path: &str) -> Result<(), Fault> {
    let entries = match files.list(path).await {
        Err(fault) if fault.is_missing() => return Ok(()),
        listed => listed?,
    };
    let mut removing = stream::iter(entries)
        .map(|(name, status)| async move {
            let path = format!("{path}/{name}");
            if status.is_directory {
                Box::pin(remove_tree(files, &path)).await
            } else {
                files.remove(&path).await
            }
        })
        .buffer_unordered(PREPARED_AT_ONCE);
    while let Some(removed) = removing.next().await {
        removed?;
    }
    drop(removing);
    files.remove_directory(path).await
}

/// Reads a file from the start to `size`, in pieces of `io_bytes`, and returns the bytes read. [`Pieces::check`] compares them.
pub(super) async fn read_whole(
    file: &impl OpenFile,
    size: u64,
    io_bytes: u64,
    pieces: &mut Pieces,
) -> Result<u64, Fault> {
    pieces.offsets.clear();
    let mut offset = 0;
    while offset < size {
        let asked = io_bytes.min(size - offset);
        let read = file.read(offset, asked as usize, pieces.next(offset)).await? as u64;
        offset += read;
        if read < asked {
            break;
        }
    }
    Ok(offset)
}
