//! Names of users and groups, looked up once each in the system's name services.

use std::cell::RefCell;
use std::collections::HashMap;

use super::lookup::Lookup;
use crate::name_services::getent;

/// Maximum number of remembered names; further ones are looked up again.
const REMEMBERED_MAX: usize = 10_000;

/// Maximum number of bytes of an account or group, which may have many members.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Databases of getent(1).
const USERS: &str = "passwd";
const GROUPS: &str = "group";

/// Finds names and numbers of users and groups.
#[derive(Debug, Default)]
pub struct OwnerNames {
    is_numeric: bool,
    known: RefCell<HashMap<(&'static str, u32), String>>,
}

impl OwnerNames {
    /// Creates a table that shows numbers instead of names if `is_numeric`.
    pub fn new(is_numeric: bool) -> Self {
        Self { is_numeric, known: RefCell::default() }
    }

    /// Returns the name of a user, or its number if it has none.
    pub fn user_name(&self, uid: u32) -> String {
        self.name(USERS, uid)
    }

    /// Returns the name of a group, or its number if it has none.
    pub fn group_name(&self, gid: u32) -> String {
        self.name(GROUPS, gid)
    }

    fn name(&self, database: &'static str, id: u32) -> String {
        if self.is_numeric {
            return id.to_string();
        }
        if let Some(name) = self.known.borrow().get(&(database, id)) {
            return name.clone();
        }
        let name = name_of(database, id).unwrap_or_else(|| id.to_string());
        let mut known = self.known.borrow_mut();
        if known.len() < REMEMBERED_MAX {
            known.insert((database, id), name.clone());
        }
        name
    }
}

/// Returns the group of a user's account.
pub fn login_group(user: &str) -> Option<u32> {
    fields(USERS, user)?.get(3)?.parse().ok()
}

fn name_of(database: &str, id: u32) -> Option<String> {
    let id = id.to_string();
    let fields = fields(database, &id)?;
    // getent(1) finds a name of digits too.
    (fields.get(2)? == &id).then(|| fields[0].clone())
}

fn number_of(database: &str, name: &str) -> Option<u32> {
    let fields = fields(database, name)?;
    // getent(1) takes digits as a number.
    fields.get(2).filter(|_| fields[0] == name)?.parse().ok()
}

/// Returns the fields of an entry of passwd(5) or group(5); `None` also if the name services do not answer.
fn fields(database: &str, key: &str) -> Option<Vec<String>> {
    let line = getent::query(database, Some(key), ENTRY_BYTES_MAX).ok()??;
    Some(line.lines().next()?.split(':').map(String::from).collect())
}

impl Lookup for OwnerNames {
    fn user(&self, name: &str) -> Option<u32> {
        number_of(USERS, name)
    }

    fn group(&self, name: &str) -> Option<u32> {
        number_of(GROUPS, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_number() {
        let names = OwnerNames::new(false);
        assert_eq!((names.user_name(0), names.group_name(0)), ("root".into(), "root".into()));
        assert_eq!(
            (names.user("root"), names.group("root"), login_group("root")),
            (Some(0), Some(0), Some(0))
        );
        assert_eq!(names.user("0"), None, "a number is not a name");
    }

    #[test]
    fn owners_without_a_name_are_numbers() {
        assert_eq!(OwnerNames::new(false).user_name(3_999_999_999), "3999999999");
        assert_eq!(OwnerNames::new(true).user_name(0), "0");
        assert_eq!(OwnerNames::new(false).user("no-such-user-of-enfys"), None);
    }
}
