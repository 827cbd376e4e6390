//! Names of directory entries.

use crate::errno::Errno;
use crate::error::OpError;

/// Maximum length of a name in bytes: above that of any file system.
pub const NAME_MAX: usize = 1024;

/// Checks a name that a caller passes.
///
/// # Errors
/// [`OpError::Invalid`] for names that no directory has: empty ones, `.` and `..`, those with `/` or NUL, and long ones.
pub fn check(name: &[u8]) -> Result<(), OpError> {
    let invalid = |why| Err(OpError::Invalid(Errno::EINVAL, why));
    match name {
        b"" => Err(OpError::Invalid(Errno::ENOENT, "the name is empty")),
        b"." | b".." => invalid("`.` and `..` are not names of entries"),
        _ if name.contains(&b'/') => invalid("the name contains `/`"),
        _ if name.contains(&0) => invalid("the name contains a NUL byte"),
        _ if name.len() > NAME_MAX => Err(OpError::Invalid(Errno::ENAMETOOLONG, "the name is too long")),
        _ => Ok(()),
    }
}

/// Returns whether a name that a server lists can be used: a path with it must not leave its directory.
#[must_use]
pub fn is_safe(name: &[u8]) -> bool {
    check(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_inside_their_directory_are_accepted() {
        for name in [&b"a"[..], b"...", b" ", b"\xff\xfe", b"a\nb", &[b'x'; NAME_MAX]] {
            assert!(is_safe(name), "{name:?}");
        }
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'x'; NAME_MAX + 1]] {
            assert!(!is_safe(name), "{name:?}");
        }
    }
}
