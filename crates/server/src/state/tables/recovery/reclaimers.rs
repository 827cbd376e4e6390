//! Lists of clients that may reclaim, for log lines.

use core::fmt;

use bytes::Bytes;

use crate::Quoted;

/// Names in one log line.
pub(super) const NAMES_MAX: usize = 8;

/// Clients that may reclaim the state that they held before a restart.
///
/// Shown as a list: `["a", "b", and 3 more]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reclaimers {
    /// Number of clients.
    pub count: usize,
    /// Names of the first clients, sorted and bounded.
    pub names: Vec<Bytes>,
}

impl Reclaimers {
    /// Keeps at most `most` names.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a Bytes>, most: usize) -> Self {
        let mut names: Vec<_> = names.cloned().collect();
        let count = names.len();
        names.sort_unstable();
        names.truncate(most);
        Self { count, names }
    }
}

impl fmt::Display for Reclaimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, name) in self.names.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{}", Quoted(name))?;
        }
        match self.count - self.names.len() {
            0 => f.write_str("]"),
            more if self.names.is_empty() => write!(f, "{more}]"),
            more => write!(f, ", and {more} more]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_is_bounded_and_says_how_many_more_there_are() {
        let names = ["c", "a", "b\n"].map(|name| Bytes::from_static(name.as_bytes()));
        let shown = |most| Reclaimers::new(names.iter(), most).to_string();
        assert_eq!([3, 2, 0].map(shown), [r#"["a", "b\n", "c"]"#, r#"["a", "b\n", and 1 more]"#, "[3]"]);
        assert_eq!(Reclaimers::default().to_string(), "[]");
    }
}
