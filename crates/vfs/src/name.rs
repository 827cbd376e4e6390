use crate::{Error, Result};

/// Checks the name of an entry as every backend must.
///
/// # Errors
/// [`Error::BadName`] for an empty name, `.`, `..`, or one with a slash or NUL; [`Error::NameTooLong`] above `max_bytes`.
pub fn check_name(name: &[u8], max_bytes: u32) -> Result<()> {
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::BadName);
    }
    if name.len() > max_bytes as usize {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slash_nul_and_the_dots_are_refused() {
        for bad in [&b""[..], b".", b"..", b"/", b"a/b", b"a\0", b"\0"] {
            assert_eq!(check_name(bad, 255), Err(Error::BadName), "{bad:?}");
        }
        for good in [&b"..."[..], b".a", b"a.", b"\xff\xfe", b"\n", b" ", b"\\", b"*"] {
            assert_eq!(check_name(good, 255), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        assert_eq!(check_name(&[b'n'; 255], 255), Ok(()));
        assert_eq!(check_name(&[b'n'; 256], 255), Err(Error::NameTooLong));
        assert_eq!(check_name(&[b'/'; 300], 255), Err(Error::BadName));
    }
}
