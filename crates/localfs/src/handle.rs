//! File handles.
//!
//! There are two forms; the first byte says which. A volume uses one form only.
//! - **kernel** (1): the type of the kernel's handle (one byte), then the kernel's handle. The kernel guarantees that
//!   it survives renames and reboots and, with the inode's generation inside, never leads to another file.
//! - **indexed** (2): the index's own identity (8 bytes), then the number of the file in the index (8 bytes, little
//!   endian). Numbers are used once.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use vfs::{Error, Handle};

use crate::errno::translate;
use crate::sys::{self, KernelHandle};

const KERNEL: u8 = 1;
const INDEXED: u8 = 2;

/// The identity of an index, random.
pub(crate) type IndexIdentity = [u8; 8];

/// The content of a handle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// For open_by_handle_at(2): type and opaque part.
    Kernel(i32, &'a [u8]),
    /// A number in the index of this identity.
    Indexed(IndexIdentity, u64),
}

/// Converts a kernel handle.
pub(crate) fn from_kernel(handle: &KernelHandle) -> Result<Handle, Error> {
    from_parts(handle.kind, handle.bytes()).ok_or(Error::ServerFault)
}

/// Converts the type and opaque part of a kernel handle; `None` if they cannot be stored.
pub(crate) fn from_parts(kind: i32, bytes: &[u8]) -> Option<Handle> {
    // Types are single bytes; the bits above are flags that the server does not use.
    let kind = u8::try_from(kind).ok()?;
    let mut encoded = [0; vfs::MAX_HANDLE];
    encoded[0] = KERNEL;
    encoded[1] = kind;
    let end = 2 + bytes.len();
    encoded.get_mut(2..end)?.copy_from_slice(bytes);
    Handle::new(&encoded[..end]).ok()
}

/// Returns the handle of number `id` of an index.
pub(crate) fn from_index(identity: IndexIdentity, id: u64) -> Handle {
    let mut encoded = [0; 17];
    encoded[0] = INDEXED;
    encoded[1..9].copy_from_slice(&identity);
    encoded[9..].copy_from_slice(&id.to_le_bytes());
    Handle::new(&encoded).unwrap_or_else(|_| unreachable!("17 bytes are within the limit"))
}

/// Decodes an untrusted handle.
///
/// # Errors
/// [`Error::BadHandle`] for any other form.
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

/// Returns the kernel's handle of `name` in `directory` (or of `directory` itself if `name` is empty); `None` on
/// another mount than the export's. A file system without handles, or with longer ones, is another mount too: the
/// kernel returns that error first.
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
    fn an_indexed_handle_is_decoded() {
        let handle = from_index([9; 8], 0x0102_0304_0506_0708);
        assert_eq!(decode(&handle), Ok(Meaning::Indexed([9; 8], 0x0102_0304_0506_0708)));
    }

    #[test]
    fn malformed_handles_are_refused() {
        for bytes in [&b""[..], &[0], &[1], &[1, 1], &[2], &[2; 16], &[2; 18], &[3; 17], &[255; 48]] {
            let handle = Handle::new(bytes).expect("short enough");
            assert_eq!(decode(&handle), Err(Error::BadHandle), "{bytes:?}");
        }
    }
}
