//! Listing a directory with attributes, and sending as many bytes without listing.

use std::fs::File;
use std::mem::MaybeUninit;

use rustix::fs::{self, AtFlags, RawDir, SeekFrom};

use super::calls::{Arguments, Unknown, post_op_attributes, word};
use super::replies::Replies;
use crate::operation::LARGE_BYTES;

/// Bytes requested from getdents64(2) at once: more than all small files take.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of the handles that are listed: as many as an authenticated inode number and generation take, padded.
const HANDLE_BYTES: usize = 24;
/// Maximum bytes of an entry and of the end of the listing: a name of 255 bytes, attributes, handle.
const ENTRY_BYTES_MAX: usize = 512;

/// READDIRPLUS from the start to the end of a directory: `lseek`, `getdents64` until the end, an `fstatat` of each
/// name and an `fstat` of the directory. The handles are inode numbers and zeros; `.` and `..` are left out.
pub(super) fn readdirplus(
    directory: &File,
    call: &mut Arguments<'_>,
    out: &mut Replies,
) -> Result<(), Unknown> {
    if call.long()? != 0 {
        return Err(Unknown); // there is no second part of a listing
    }
    fs::seek(directory, SeekFrom::Start(0))?;
    word(out, 0);
    post_op_attributes(out, &fs::fstat(directory)?);
    out.append(&[0; 8]); // verifier
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let status = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !out.have_room_for(ENTRY_BYTES_MAX) {
            return Err(Unknown); // only what fits into one reply is listed
        }
        let name = name.to_bytes();
        word(out, 1);
        out.append(&entry.ino().to_be_bytes());
        word(out, name.len() as u32);
        out.append(name);
        out.append(&[0; 3][..name.len().next_multiple_of(4) - name.len()]);
        out.append(&entry.next_entry_cookie().to_be_bytes());
        post_op_attributes(out, &status);
        word(out, 1);
        word(out, HANDLE_BYTES as u32);
        let mut handle = [0; HANDLE_BYTES];
        handle[..8].copy_from_slice(&entry.ino().to_be_bytes());
        out.append(&handle);
    }
    word(out, 0);
    word(out, 1); // eof
    Ok(())
}

/// SEND: appends as many arbitrary bytes as requested.
pub(super) fn send(call: &mut Arguments<'_>, out: &mut Replies) -> Result<(), Unknown> {
    let count = call.word()?;
    if count > LARGE_BYTES || count % 4 != 0 {
        return Err(Unknown);
    }
    word(out, count);
    out.room(count as usize);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::calls::Files;
    use super::super::unsynced::Unsynced;
    use super::super::{Durability, FloorOptions, LargeRead};
    use super::*;
    use crate::layout;

    /// Record mark and the head of an accepted reply (RFC 5531 §9).
    const HEAD_BYTES: usize = 4 + 24;

    #[test]
    fn a_listing_takes_as_many_bytes_as_are_sent_without_one() {
        let export = tempfile::tempdir().unwrap();
        layout::prepare(export.path()).unwrap();
        let options = FloorOptions { large_read: LargeRead::Pread, durability: Durability::None };
        let files = Files::open(export.path(), options).unwrap();
        // xid, CALL, RPC 2, NFS 3, READDIRPLUS, AUTH_NONE twice, the handle of the small files, cookie, verifier, counts.
        let words: [u32; 18] = [7, 0, 2, 100_003, 3, 17, 0, 0, 0, 0, 4, 6, 0, 0, 0, 0, 1 << 20, 1 << 20];
        let call: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let mut replies = Replies::new();
        files.serve(&call, &mut replies, &mut Unsynced::default()).unwrap();
        assert_eq!(replies.len() - HEAD_BYTES, layout::LISTING_BYTES as usize);
    }
}
