use std::fmt;
use std::ops::Deref;

use crate::Error;

/// The longest handle of a backend in bytes. The protocol servers put an export id and an authentication tag before
/// it and must stay within the 64 bytes of NFSv3 (RFC 1813 §2.4).
pub const MAX_HANDLE: usize = 48;

/// The identifier of a file in a backend. It remains valid across renames and restarts until the file is removed, and
/// never leads to another file.
#[derive(Clone, Copy)]
pub struct Handle {
    length: u8,
    data: [u8; MAX_HANDLE],
}

impl Handle {
    /// Copies `bytes`.
    ///
    /// # Errors
    /// [`Error::BadHandle`] above [`MAX_HANDLE`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_HANDLE {
            return Err(Error::BadHandle);
        }
        let mut data = [0; MAX_HANDLE];
        data[..bytes.len()].copy_from_slice(bytes);
        Ok(Self { length: bytes.len() as u8, data })
    }
}

impl Deref for Handle {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[..usize::from(self.length)]
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Handle {}

impl std::hash::Hash for Handle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
