//! The system's users, as its name services have them; asked by [`getent`].

#[cfg(feature = "krb5")]
use vfs::Credentials;

use tracing::warn;

use crate::getent;

/// Bytes of an answer that are read at most: 65,536 groups (`NGROUPS_MAX`) of up to ten digits, and more.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The user with this name.
///
/// # Errors
/// Why there is no answer.
#[cfg(feature = "krb5")]
pub fn by_name(name: &str) -> Result<Option<Credentials>, String> {
    let Some(line) = ask("passwd", name)? else { return Ok(None) };
    // getent(1) takes digits for a uid, and then the entry is another's.
    let Some(account) = Account::parse(&line).filter(|account| account.name == name) else { return Ok(None) };
    let groups = supplementary(name)?;
    Ok(Some(Credentials { uid: account.uid, gid: account.gid, groups: groups.into() }))
}

/// The groups of the user with this uid, primary and supplementary; none where there is no such account.
///
/// # Errors
/// Why there is no answer.
pub fn groups_of(uid: u32) -> Result<Vec<u32>, String> {
    let Some(line) = ask("passwd", &uid.to_string())? else { return Ok(Vec::new()) };
    let Some(account) = Account::parse(&line).filter(|account| account.uid == uid) else {
        return Ok(Vec::new());
    };
    // The primary group is the user's, whatever is known of others.
    let mut groups = supplementary(account.name).unwrap_or_else(|why| {
        warn!(uid, "the supplementary groups of a local user cannot be found out: {why}");
        Vec::new()
    });
    groups.push(account.gid);
    Ok(groups)
}

fn ask(database: &str, key: &str) -> Result<Option<String>, String> {
    getent::print(database, Some(key), ANSWER_BYTES_MAX)
}

fn supplementary(name: &str) -> Result<Vec<u32>, String> {
    Ok(ask("initgroups", name)?.map(|line| parse_groups(name, &line)).unwrap_or_default())
}

/// What is read of a line of passwd(5).
#[derive(Debug, PartialEq, Eq)]
struct Account<'l> {
    name: &'l str,
    uid: u32,
    gid: u32,
}

impl<'l> Account<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let mut fields = line.trim_end().split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        Some(Self { name, uid, gid: fields.next()?.parse().ok()? })
    }
}

/// The groups in `getent initgroups`' line: the name, and numbers.
fn parse_groups(name: &str, line: &str) -> Vec<u32> {
    let numbers = line.strip_prefix(name).unwrap_or_default().split_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_of_passwd_and_initgroups() {
        let alice = Account::parse("alice:x:1234:100:Alice:/home/alice:/bin/sh\n");
        assert_eq!(alice, Some(Account { name: "alice", uid: 1234, gid: 100 }));
        assert_eq!(Account::parse("alice:x:many:100"), None);
        assert_eq!(Account::parse("\n"), None);
        assert_eq!(parse_groups("alice", "alice                 100 4321 27\n"), [100, 4321, 27]);
        assert!(parse_groups("alice", "alice                \n").is_empty());
    }

    #[test]
    fn the_superuser_has_an_account_and_nobody_else_is_root() {
        match groups_of(0) {
            Ok(groups) => assert!(groups.contains(&0)),
            Err(why) => println!("skipped: {why}"),
        }
        // No account has it: it is (uid_t) -1.
        assert!(groups_of(u32::MAX).map_or(true, |groups| groups.is_empty()));
    }

    #[cfg(feature = "krb5")]
    #[test]
    fn a_number_is_no_name() {
        match by_name("root") {
            Ok(found) => assert_eq!(found.map(|user| (user.uid, user.gid)), Some((0, 0))),
            Err(why) => println!("skipped: {why}"),
        }
        // As `getent passwd 0` answers.
        assert!(matches!(by_name("0"), Ok(None) | Err(_)));
        assert!(matches!(by_name("no-such-user-of-enfys"), Ok(None) | Err(_)));
    }
}
