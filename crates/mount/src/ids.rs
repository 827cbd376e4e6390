//! Users and groups whose numbers differ between the server and this machine.

use std::collections::HashMap;
use std::fmt;

/// Maximum number of pairs of one map.
pub const PAIRS_MAX: usize = 1024;

/// The reason why a map is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdMapError {
    /// Not `REMOTE:LOCAL`.
    Syntax(String),
    /// A number is mapped twice.
    Twice(u32),
    /// More than [`PAIRS_MAX`] pairs.
    TooMany,
}

impl fmt::Display for IdMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text) => write!(f, "`{text}`: expected REMOTE:LOCAL, two numbers"),
            Self::Twice(id) => write!(f, "{id} is mapped twice"),
            Self::TooMany => write!(f, "more than {PAIRS_MAX} pairs"),
        }
    }
}

impl std::error::Error for IdMapError {}

/// Pairs of numbers of one user or group at the server and here. Numbers without a pair are the same on both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    to_local: HashMap<u32, u32>,
    to_remote: HashMap<u32, u32>,
}

impl IdMap {
    /// Adds a pair, as `REMOTE:LOCAL`.
    ///
    /// # Errors
    /// See [`IdMapError`].
    pub fn add(&mut self, pair: &str) -> Result<(), IdMapError> {
        let syntax = || IdMapError::Syntax(pair.to_owned());
        let (remote, local) = pair.split_once(':').ok_or_else(syntax)?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX).ok_or_else(syntax);
        let (remote, local) = (number(remote)?, number(local)?);
        if self.to_local.len() == PAIRS_MAX {
            return Err(IdMapError::TooMany);
        }
        if self.to_local.contains_key(&remote) {
            return Err(IdMapError::Twice(remote));
        }
        if self.to_remote.contains_key(&local) {
            return Err(IdMapError::Twice(local));
        }
        self.to_local.insert(remote, local);
        self.to_remote.insert(local, remote);
        Ok(())
    }

    /// Returns the number here.
    pub(crate) fn local(&self, remote: u32) -> u32 {
        self.to_local.get(&remote).copied().unwrap_or(remote)
    }

    /// Returns the server's number.
    pub(crate) fn remote(&self, local: u32) -> u32 {
        self.to_remote.get(&local).copied().unwrap_or(local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_apply_in_both_directions_and_others_are_unchanged() {
        let mut map = IdMap::default();
        map.add("1000:501").expect("a pair");
        assert_eq!((map.local(1000), map.remote(501)), (501, 1000));
        assert_eq!((map.local(7), map.remote(7)), (7, 7));
    }

    #[test]
    fn wrong_and_repeated_pairs_are_refused() {
        let mut map = IdMap::default();
        for wrong in ["", "1", "1:", ":1", "a:1", "1:-1", "4294967295:1", "1:2:3"] {
            assert_eq!(map.add(wrong), Err(IdMapError::Syntax(wrong.to_owned())));
        }
        map.add("1:2").expect("a pair");
        assert_eq!(map.add("1:3"), Err(IdMapError::Twice(1)));
        assert_eq!(map.add("4:2"), Err(IdMapError::Twice(2)));
    }
}
