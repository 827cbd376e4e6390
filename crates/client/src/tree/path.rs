//! Paths below the root of a tree, which never lead out of it.

use std::fmt;

/// Maximum number of bytes of a name on Linux's file systems.
pub const NAME_MAX: usize = 255;
/// Maximum number of bytes of a path below a root.
pub const PATH_MAX: usize = 64 << 10;
/// Maximum number of names in a path below a root: trees are worked on level by level, and each level takes memory.
pub const DEPTH_MAX: usize = 512;

/// A path below the root of a tree: names with slashes between, or nothing for the root itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(Vec<u8>);

/// The reason why a name cannot be used below a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// It is empty, `.` or `..`.
    Special(Vec<u8>),
    /// It has a slash or a zero byte.
    Separator(Vec<u8>),
    /// It is longer than the maximum.
    LongName(usize),
    /// The path is longer than this program allows.
    LongPath(usize),
    /// The path has more names than this program allows.
    Deep,
}

impl TreePath {
    /// Returns the root.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the path of an entry of this directory. The name may come from an untrusted server.
    ///
    /// # Errors
    /// The name could lead elsewhere, or is too long.
    pub fn join(&self, name: &[u8]) -> Result<Self, NameError> {
        check_name(name)?;
        if self.names().count() >= DEPTH_MAX {
            return Err(NameError::Deep);
        }
        let separator: &[u8] = if self.0.is_empty() { b"" } else { b"/" };
        let path = [&self.0, separator, name].concat();
        if path.len() > PATH_MAX { Err(NameError::LongPath(path.len())) } else { Ok(Self(path)) }
    }

    /// Returns the path as bytes, without a slash at the beginning.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the names from the root downwards.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the directory and the name in it; `None` for the root.
    #[must_use]
    pub fn split_last(&self) -> Option<(Self, &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }

    /// Returns whether this is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

fn check_name(name: &[u8]) -> Result<(), NameError> {
    if matches!(name, b"" | b"." | b"..") {
        return Err(NameError::Special(name.to_vec()));
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(NameError::Separator(name.to_vec()));
    }
    if name.len() > NAME_MAX { Err(NameError::LongName(name.len())) } else { Ok(()) }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Special(name) | Self::Separator(name) => {
                write!(f, "\"{}\" is not a valid file name", name.escape_ascii())
            }
            Self::LongName(length) => write!(f, "a name of {length} bytes: Linux has at most {NAME_MAX}"),
            Self::LongPath(length) => write!(f, "a path of {length} bytes: at most {PATH_MAX} are followed"),
            Self::Deep => write!(f, "a path of more than {DEPTH_MAX} names"),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_of_names() {
        let path = TreePath::root().join(b"a").unwrap().join(b"b\xff").unwrap();
        assert_eq!(path.as_bytes(), b"a/b\xff");
        assert_eq!(path.names().collect::<Vec<_>>(), [&b"a"[..], b"b\xff"]);
        let (parent, name) = path.split_last().unwrap();
        assert_eq!((parent.as_bytes(), name), (&b"a"[..], &b"b\xff"[..]));
        assert_eq!(parent.split_last(), Some((TreePath::root(), &b"a"[..])));
        assert!(TreePath::root().is_root() && TreePath::root().split_last().is_none());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b""[..], b".", b".."] {
            assert_eq!(TreePath::root().join(name), Err(NameError::Special(name.to_vec())));
        }
        for name in [&b"a/b"[..], b"/", b"../x", b"a\0b", b"\0"] {
            assert_eq!(TreePath::root().join(name), Err(NameError::Separator(name.to_vec())));
        }
        assert_eq!(TreePath::root().join(&[b'a'; 256]), Err(NameError::LongName(256)));
        assert!(TreePath::root().join(&[b'a'; 255]).is_ok());
        let mut path = TreePath::root();
        let too_long = loop {
            match path.join(&[b'a'; 255]) {
                Ok(longer) => path = longer,
                Err(error) => break error,
            }
        };
        assert!(matches!(too_long, NameError::LongPath(length) if length > PATH_MAX));
        let deep = (0..DEPTH_MAX).try_fold(TreePath::root(), |path, _| path.join(b"a")).unwrap();
        assert_eq!(deep.join(b"a"), Err(NameError::Deep));
    }
}
