//! The names of users and groups for NFSv4, read once from the system's name services at the start.

use server::{IdNames, MAX_ID_NAMES};

use super::getent;

/// Maximum number of bytes of a list: groups may have many members.
const MAX_LIST_BYTES: usize = 64 << 20;

/// Reads all names that the name services list.
///
/// # Errors
/// One line: they did not answer.
pub fn read(domain: &str) -> Result<IdNames, String> {
    Ok(IdNames::new(domain, list("passwd")?, list("group")?))
}

/// Checks a domain for names. RFC 8881 §5.9: "a DNS domain name".
///
/// # Errors
/// The expected form.
pub fn check_domain(domain: &str) -> Result<(), String> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if domain.len() <= 253 && domain.split('.').all(is_label) {
        Ok(())
    } else {
        Err(format!("expected a DNS domain, as in \"example.org\", found {domain:?}"))
    }
}

fn list(database: &str) -> Result<Vec<(String, u32)>, String> {
    let text = getent::query(database, None, MAX_LIST_BYTES)
        .map_err(|why| format!("id-domain: cannot read names: {why}"))?;
    Ok(entries(&text.unwrap_or_default()))
}

/// Parses names and IDs in the format of passwd(5) and group(5).
fn entries(text: &str) -> Vec<(String, u32)> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((name, fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(entry).take(MAX_ID_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_parsed() {
        let text = "root:x:0:0:root:/root:/bin/bash\nstaff:x:50:alice,bob\nbroken\nno:id:x\n";
        assert_eq!(entries(text), [("root".to_owned(), 0), ("staff".to_owned(), 50)]);
    }

    #[test]
    fn a_domain_is_a_dns_name() {
        for good in ["example.org", "localdomain", "a-b.example"] {
            assert_eq!(check_domain(good), Ok(()), "{good}");
        }
        for wrong in ["", ".", "a..b", "a@b", "a b", &"x".repeat(64)] {
            assert!(check_domain(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_read_where_getent_is_installed() {
        match read("example.org") {
            Ok(names) => assert!(!names.is_empty()),
            Err(why) => println!("skipped: {why}"),
        }
    }
}
