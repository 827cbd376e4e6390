//! The name of one directory entry.

use std::ffi::CStr;

use vfs::Error;

/// Longest name in bytes on Linux (NAME_MAX).
pub(crate) const MAX_NAME: usize = 255;

/// One path component with a final NUL, checked so that no system call can follow it more than one step downwards.
pub(crate) struct Name {
    length: u8,
    bytes: [u8; MAX_NAME + 1],
}

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] above [`MAX_NAME`], [`Error::BadName`] for bytes that name no single entry.
    pub(crate) fn new(name: &[u8]) -> Result<Self, Error> {
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Error::BadName);
        }
        if name.len() > MAX_NAME {
            return Err(Error::NameTooLong);
        }
        let mut bytes = [0; MAX_NAME + 1];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Self { length: name.len() as u8, bytes })
    }

    /// Returns the name with its NUL, for system calls.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c".")
    }

    /// Returns the name without the NUL.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_path_components_are_names() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert_eq!(Name::new(bad).err(), Some(Error::BadName), "{bad:?}");
        }
        for good in [&b"..."[..], b".a", b"a ", b"\xff\xfe", b"-"] {
            assert_eq!(Name::new(good).expect("a name").as_c_str().to_bytes(), good);
        }
    }

    #[test]
    fn names_are_at_most_255_bytes() {
        assert_eq!(Name::new(&[b'x'; MAX_NAME]).expect("a name").as_bytes().len(), MAX_NAME);
        assert_eq!(Name::new(&[b'x'; MAX_NAME + 1]).err(), Some(Error::NameTooLong));
    }
}
