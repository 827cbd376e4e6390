//! The argument of `chown`: `USER`, `USER:GROUP`, `USER:` or `:GROUP`.

use super::lookup::Lookup;

/// New owners of a file; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnerChange {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// The largest number means none (chown(2)).
const ID_MAX: u32 = u32::MAX - 1;

impl OwnerChange {
    /// Parses names or numbers. `login_group` returns the group of a user's account, which `USER:` means.
    ///
    /// # Errors
    /// One line that names the unknown user or group.
    pub fn parse(
        text: &str,
        names: &dyn Lookup,
        login_group: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let uid = match user {
            "" => None,
            user => Some(number(user, |name| names.user(name)).ok_or_else(|| {
                format!(
                    "`{user}` is not a user of this machine: give one that `getent passwd` knows, or a number"
                )
            })?),
        };
        let gid = match group {
            None => None,
            Some("") if uid.is_some() => Some(login_group(user).ok_or_else(|| {
                format!("`{user}:` means the group of the account of `{user}`, which is unknown here: name a group")
            })?),
            Some("") => None,
            Some(group) => Some(number(group, |name| names.group(name)).ok_or_else(|| {
                format!("`{group}` is not a group of this machine: give one that `getent group` knows, or a number")
            })?),
        };
        if text.is_empty() {
            return Err("expected USER, USER:GROUP or :GROUP".into());
        }
        Ok(Self { uid, gid })
    }
}

/// Returns the number of a name, or the number in the text.
fn number(text: &str, lookup: impl Fn(&str) -> Option<u32>) -> Option<u32> {
    // POSIX: a name of digits has precedence over a number.
    lookup(text).or_else(|| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| is_number && *number <= ID_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names;

    impl Lookup for Names {
        fn user(&self, name: &str) -> Option<u32> {
            (name == "alice").then_some(1000)
        }

        fn group(&self, name: &str) -> Option<u32> {
            (name == "staff").then_some(50)
        }
    }

    fn parsed(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
        let change = OwnerChange::parse(text, &Names, |user| (user == "alice").then_some(100))?;
        Ok((change.uid, change.gid))
    }

    #[test]
    fn user_and_group_can_be_left_out() {
        for (text, owners) in [
            ("alice", (Some(1000), None)),
            ("alice:staff", (Some(1000), Some(50))),
            (":staff", (None, Some(50))),
            ("alice:", (Some(1000), Some(100))),
            ("7:8", (Some(7), Some(8))),
            (":", (None, None)),
            ("4294967294", (Some(4_294_967_294), None)),
        ] {
            assert_eq!(parsed(text), Ok(owners), "{text}");
        }
    }

    #[test]
    fn unknown_owners_are_named() {
        for (text, message) in [
            ("", "expected USER"),
            ("bob", "`bob` is not a user"),
            ("alice:wheel", "`wheel` is not a group"),
            ("7:", "the group of the account of `7`"),
            ("4294967295", "is not a user"),
            ("-1", "is not a user"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
