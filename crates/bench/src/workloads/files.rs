//! Files that workloads prepare, and their content.

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};

use crate::layout::{fill_pattern, pattern_word};
use crate::targets::{Buffer, Fault, Files, How, OpenFile as _};

/// Bytes of one write while files are prepared.
const BLOCK_BYTES: u64 = 8 << 20;
/// Files that are prepared at the same time.
const PREPARED_AT_ONCE: usize = 32;

/// Returns `count` bytes of the pattern, as it is at `offset` of a file.
pub(super) fn pattern(offset: u64, count: u64) -> Bytes {
    let mut block = BytesMut::zeroed(count.next_multiple_of(8) as usize);
    fill_pattern(offset, &mut block);
    block.truncate(count as usize);
    block.freeze()
}

/// Checks the beginning of data that were read at `offset`, a multiple of eight. Call it outside of the timed part.
pub(super) fn check(buffer: &Buffer, offset: u64) -> Result<(), Fault> {
    match buffer.first_word() {
        Some(word) if word != pattern_word(offset) => Err(Fault::new(format!(
            "wrong data at offset {offset}: read {word:02x?}, wrote {:02x?}",
            pattern_word(offset)
        ))),
        _ => Ok(()),
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

/// Reads a file from the start to `size`, in pieces of `io_bytes`, and returns the bytes read. The beginning of each piece is
/// not checked: files may have been written by others.
pub(super) async fn read_whole(
    file: &impl crate::targets::OpenFile,
    size: u64,
    io_bytes: u64,
    buffer: &mut Buffer,
) -> Result<u64, Fault> {
    let mut offset = 0;
    while offset < size {
        let asked = io_bytes.min(size - offset);
        let read = file.read(offset, asked as usize, buffer).await? as u64;
        offset += read;
        if read < asked {
            break;
        }
    }
    Ok(offset)
}
