//! The users of Kerberos principals: those of the same name, with all their groups.
//!
//! A GSS context is made once an hour or once a day, and makes at most two queries.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use net::kerberos::{Unavailable, Users};
use parking_lot::Mutex;
use tracing::warn;
use vfs::Credentials;

use super::{LookupLog, users};

/// Maximum number of answers in the cache.
const ANSWERS_MAX: usize = 4096;
/// Lifetime of a user and its groups in the cache.
const KNOWN_LIFETIME: Duration = Duration::from_secs(300);
/// Lifetime of the answer that there is no such user.
const UNKNOWN_LIFETIME: Duration = Duration::from_secs(30);
/// Maximum number of bytes of a user's name (`LOGIN_NAME_MAX`).
const NAME_MAX: usize = 256;

/// A cache of the users of principals.
#[derive(Debug, Default)]
pub struct Principals {
    answers: Mutex<HashMap<String, Answer>>,
    log: LookupLog,
}

#[derive(Debug)]
struct Answer {
    user: Option<Credentials>,
    until: Instant,
}

impl Users for Principals {
    fn find(&self, name: &str) -> Result<Option<Credentials>, Unavailable> {
        self.find_by(name, Instant::now(), users::by_name)
    }
}

impl Principals {
    fn find_by(
        &self,
        name: &str,
        now: Instant,
        query: impl FnOnce(&str) -> Result<Option<Credentials>, String>,
    ) -> Result<Option<Credentials>, Unavailable> {
        if !is_name(name) {
            return Ok(None);
        }
        if let Some(answer) = self.answers.lock().get(name).filter(|answer| answer.until > now) {
            return Ok(answer.user.clone());
        }
        let user = query(name).map_err(|why| {
            self.log.failed(|suppressed| {
                warn!(
                    principal = name,
                    suppressed,
                    error = why,
                    "cannot look up the user of a Kerberos principal"
                );
            });
            Unavailable
        })?;
        let until = now + if user.is_some() { KNOWN_LIFETIME } else { UNKNOWN_LIFETIME };
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, answer| answer.until > now);
        }
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(name.to_owned(), Answer { user: user.clone(), until });
        Ok(user)
    }
}

/// Returns whether it can be a user's name. A service (`nfs/host`) is not a user.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b":/,".contains(&byte) || byte >= 0x80;
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> Option<Credentials> {
        Some(Credentials { uid, gid: uid, groups: [].into() })
    }

    #[test]
    fn answers_are_cached_for_a_while_and_failures_are_not() {
        let (principals, start) = (Principals::default(), Instant::now());
        let never = |_: &str| -> Result<_, String> { panic!("the answer is cached") };
        assert_eq!(principals.find_by("alice", start, |_| Err("away".into())), Err(Unavailable));
        assert_eq!(principals.find_by("alice", start, |_| Ok(user(7))), Ok(user(7)));
        assert_eq!(principals.find_by("bob", start, |_| Ok(None)), Ok(None));
        let soon = start + UNKNOWN_LIFETIME - Duration::from_secs(1);
        assert_eq!(principals.find_by("alice", soon, never), Ok(user(7)));
        assert_eq!(principals.find_by("bob", soon, never), Ok(None));
        assert_eq!(principals.find_by("bob", start + UNKNOWN_LIFETIME, |_| Ok(user(8))), Ok(user(8)));
        assert_eq!(principals.find_by("alice", start + KNOWN_LIFETIME, |_| Ok(user(9))), Ok(user(9)));
    }

    #[test]
    fn the_cache_is_bounded() {
        let (principals, now) = (Principals::default(), Instant::now());
        for number in 0..=ANSWERS_MAX {
            assert!(principals.find_by(&format!("user{number}"), now, |_| Ok(None)).is_ok());
        }
        assert!(principals.answers.lock().len() <= ANSWERS_MAX);
    }

    #[test]
    fn a_service_is_not_a_user() {
        for wrong in ["", "nfs/host.example.org", "a b", "a:b", "a\n", &"x".repeat(NAME_MAX + 1)] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
    }
}
