//! The system's users and their groups.

#[cfg(feature = "krb5")]
use vfs::Credentials;

use tracing::warn;

use super::{LookupLog, getent};

/// Maximum number of bytes of an answer: more than 65,536 groups (`NGROUPS_MAX`) of up to ten digits.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Returns the user with this name.
///
/// # Errors
/// One line: the name services did not answer.
#[cfg(feature = "krb5")]
pub fn by_name(name: &str) -> Result<Option<Credentials>, String> {
    let Some(line) = query("passwd", name)? else { return Ok(None) };
    // getent(1) takes digits as a uid, so the entry may have another name.
    let Some(account) = Account::parse(&line).filter(|account| account.name == name) else { return Ok(None) };
    let groups = supplementary(name)?;
    Ok(Some(Credentials { uid: account.uid, gid: account.gid, groups: groups.into() }))
}

/// Returns the primary and supplementary groups of the user with this uid; none without such an account.
///
/// # Errors
/// One line: the name services did not answer.
pub(super) fn groups_of(uid: u32, log: &LookupLog) -> Result<Vec<u32>, String> {
    let Some(line) = query("passwd", &uid.to_string())? else { return Ok(Vec::new()) };
    let Some(account) = Account::parse(&line).filter(|account| account.uid == uid) else {
        return Ok(Vec::new());
    };
    // The primary group is known even if the others are not.
    let mut groups = supplementary(account.name).unwrap_or_else(|why| {
        log.failed(|suppressed| {
            warn!(uid, suppressed, error = why, "cannot look up the supplementary groups of a local user");
        });
        Vec::new()
    });
    groups.push(account.gid);
    Ok(groups)
}

fn query(database: &str, key: &str) -> Result<Option<String>, String> {
    getent::query(database, Some(key), ANSWER_BYTES_MAX)
}

fn supplementary(name: &str) -> Result<Vec<u32>, String> {
    Ok(query("initgroups", name)?.map(|line| parse_groups(name, &line)).unwrap_or_default())
}

/// The fields of a passwd(5) line that are needed.
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

/// Parses the output of `getent initgroups`: a name, and numbers.
fn parse_groups(name: &str, line: &str) -> Vec<u32> {
    let numbers = line.strip_prefix(name).unwrap_or_default().split_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_passwd_and_initgroups_are_parsed() {
        let alice = Account::parse("alice:x:1234:100:Alice:/home/alice:/bin/sh\n");
        assert_eq!(alice, Some(Account { name: "alice", uid: 1234, gid: 100 }));
        assert_eq!(Account::parse("alice:x:many:100"), None);
        assert_eq!(Account::parse("\n"), None);
        assert_eq!(parse_groups("alice", "alice                 100 4321 27\n"), [100, 4321, 27]);
        assert!(parse_groups("alice", "alice                \n").is_empty());
    }

    #[test]
    fn root_has_an_account_and_an_unknown_user_has_no_groups() {
        let log = LookupLog::default();
        match groups_of(0, &log) {
            Ok(groups) => assert!(groups.contains(&0)),
            Err(why) => println!("skipped: {why}"),
        }
        // No account has the uid (uid_t) -1.
        assert!(groups_of(u32::MAX, &log).map_or(true, |groups| groups.is_empty()));
    }

    #[cfg(feature = "krb5")]
    #[test]
    fn a_number_is_not_a_name() {
        match by_name("root") {
            Ok(found) => assert_eq!(found.map(|user| (user.uid, user.gid)), Some((0, 0))),
            Err(why) => println!("skipped: {why}"),
        }
        // `getent passwd 0` answers with root's entry.
        assert!(matches!(by_name("0"), Ok(None) | Err(_)));
        assert!(matches!(by_name("no-such-user-of-enfys"), Ok(None) | Err(_)));
    }
}
