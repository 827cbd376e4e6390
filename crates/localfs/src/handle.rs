//! Handles: how a file is named to clients.
//!
//! Two forms, told apart by their first byte. A volume gives out one form only.
//! - **kernel** (1): the type of the kernel's handle (one byte), then the kernel's handle. The kernel promises that it
//!   outlives renames and reboots and, with the inode's generation inside, never means another file.
//! - **indexed** (2): the index's own identity (8 bytes), then the number under which the index knows the file (8
//!   bytes, little endian). Numbers are given once.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use vfs::{Error, Handle};

use crate::errno::translate;
use crate::sys::{self, KernelHandle};

const KERNEL: u8 = 1;
const INDEXED: u8 = 2;

/// Identity of an index, made at random with it.
pub(crate) type IndexIdentity = [u8; 8];

/// What a handle says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// For open_by_handle_at(2): type and opaque part.
    Kernel(i32, &'a [u8]),
    /// For the index of this identity.
    Indexed(IndexIdentity, u64),
}

/// The handle of a file by the kernel's.
pub(crate) fn from_kernel(handle: &KernelHandle) -> Result<Handle, Error> {
    from_parts(handle.kind, handle.bytes()).ok_or(Error::ServerFault)
}

/// The same of the kernel's type and opaque part; `None` where they are none that is stored.
pub(crate) fn from_parts(kind: i32, bytes: &[u8]) -> Option<Handle> {
    // Types are single bytes; the bits above are flags that nobody asked for.
    let kind = u8::try_from(kind).ok()?;
    let mut encoded = [0; vfs::MAX_HANDLE];
    encoded[0] = KERNEL;
    encoded[1] = kind;
    let end = 2 + bytes.len();
    encoded.get_mut(2..end)?.copy_from_slice(bytes);
    Handle::new(&encoded[..end]).ok()
}

/// The handle of number `id` of an index.
pub(crate) fn from_index(identity: IndexIdentity, id: u64) -> Handle {
    let mut encoded = [0; 17];
    encoded[0] = INDEXED;
    encoded[1..9].copy_from_slice(&identity);
    encoded[9..].copy_from_slice(&id.to_le_bytes());
    Handle::new(&encoded).unwrap_or_else(|_| unreachable!("17 bytes are within the limit"))
}

/// Reads a handle, which may come from anywhere.
///
/// # Errors
/// [`Error::BadHandle`] for what has neither form.
pub(crate) fn decode(handle: &Handle) -> Result<Meaning<'_>, Error> {
    match &**handle {
        [KERNEL, kind, bytes @ ..] if !bytes.is_empty() => Ok(Meaning::Kernel(i32::from(*kind), bytes)),
        [INDEXED, rest @ ..] => {
            let (identity, id) = rest.split_at_checked(8).ok_or(Error::BadHandle)?;
            let identity = identity.try_into().map_err(|_| Error::BadHandle)?;
            let id = id.try_into().map_err(|_| Error::BadHandle)?;
            Ok(Meaning::Indexed(identity, u64::from_le_bytes(id)))
        }
        _ => Err(Error::BadHandle),
    }
}

/// The kernel's handle of `name` in `directory` (or of `directory` itself), `None` for what is on another mount than the
/// export's: some file systems have no handles, or longer ones, and the kernel says so before it tells the mount.
pub(crate) fn handle_on(
    mount: i32,
    directory: BorrowedFd<'_>,
    name: &CStr,
) -> Result<Option<KernelHandle>, Error> {
    match sys::name_to_handle_at(directory, name) {
        Ok((kernel, on)) => Ok((on == mount).then_some(kernel)),
        Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => Ok(None),
        Err(errno) => Err(translate(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_indexed_handle_comes_back() {
        let handle = from_index([9; 8], 0x0102_0304_0506_0708);
        assert_eq!(decode(&handle), Ok(Meaning::Indexed([9; 8], 0x0102_0304_0506_0708)));
    }

    #[test]
    fn other_shapes_are_no_handles() {
        for bytes in [&b""[..], &[0], &[1], &[1, 1], &[2], &[2; 16], &[2; 18], &[3; 17], &[255; 48]] {
            let handle = Handle::new(bytes).expect("short enough");
            assert_eq!(decode(&handle), Err(Error::BadHandle), "{bytes:?}");
        }
    }
}
