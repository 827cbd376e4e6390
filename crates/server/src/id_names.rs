use std::collections::HashMap;

/// Maximum number of users, and of groups, with names.
pub const MAX_ID_NAMES: usize = 1 << 16;
/// Longest name in bytes, without domain; LOGIN_NAME_MAX of Linux.
const MAX_NAME: usize = 256;

/// Names of users and groups, for NFSv4 owners of the form `name@domain` (RFC 8881 §5.9).
///
/// They are read at the start and not later: a slow directory service must not delay requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IdNames {
    domain: String,
    users: Table,
    groups: Table,
}

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdKind {
    User,
    Group,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    names: HashMap<u32, String>,
    ids: HashMap<String, u32>,
}

impl Table {
    /// Takes the first [`MAX_ID_NAMES`] of `entries`. Of several names of an id the server sends the first and accepts all.
    fn new(entries: impl IntoIterator<Item = (String, u32)>) -> Self {
        let mut table = Self::default();
        let usable = |(name, _): &(String, u32)| {
            !name.is_empty()
                && name.len() <= MAX_NAME
                && !name.contains('@')
                && !name.bytes().all(|b| b.is_ascii_digit())
        };
        for (name, id) in entries.into_iter().filter(usable).take(MAX_ID_NAMES) {
            table.names.entry(id).or_insert_with(|| name.clone());
            table.ids.entry(name).or_insert(id);
        }
        table
    }
}

impl IdNames {
    /// Makes a table of names with their ids, in `domain`.
    #[must_use]
    pub fn new(
        domain: &str,
        users: impl IntoIterator<Item = (String, u32)>,
        groups: impl IntoIterator<Item = (String, u32)>,
    ) -> Self {
        Self { domain: domain.to_owned(), users: Table::new(users), groups: Table::new(groups) }
    }

    /// Returns the number of users and groups.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.users.ids.len(), self.groups.ids.len())
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    fn table(&self, kind: IdKind) -> &Table {
        match kind {
            IdKind::User => &self.users,
            IdKind::Group => &self.groups,
        }
    }

    /// Returns `name@domain` for an id that has a name.
    pub(crate) fn text(&self, kind: IdKind, id: u32) -> Option<String> {
        self.table(kind).names.get(&id).map(|name| format!("{name}@{}", self.domain))
    }

    /// Returns the id of `name@domain`.
    pub(crate) fn id(&self, kind: IdKind, text: &str) -> Option<u32> {
        let (name, domain) = text.rsplit_once('@')?;
        // RFC 8881 §5.9: the domain is a DNS name, which ignores case.
        if domain.eq_ignore_ascii_case(&self.domain) { self.table(kind).ids.get(name).copied() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> IdNames {
        let users = [("root", 0), ("toor", 0), ("alice", 1000), ("1000", 7), ("a@b", 8), ("", 9)];
        let own = |(name, id): (&str, u32)| (name.to_owned(), id);
        IdNames::new("example.org", users.map(own), [("alice", 100)].map(own))
    }

    #[test]
    fn names_go_both_ways_within_the_domain() {
        let names = names();
        assert_eq!(names.text(IdKind::User, 1000).as_deref(), Some("alice@example.org"));
        assert_eq!(names.text(IdKind::User, 0).as_deref(), Some("root@example.org"));
        assert_eq!(names.text(IdKind::User, 5), None);
        assert_eq!(names.id(IdKind::User, "toor@EXAMPLE.org"), Some(0));
        assert_eq!(names.id(IdKind::Group, "alice@example.org"), Some(100));
        for wrong in ["alice", "alice@example.com", "bob@example.org", "@example.org", "alice@"] {
            assert_eq!(names.id(IdKind::User, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ambiguous_names_are_refused() {
        assert_eq!(names().len(), (3, 1));
    }
}
