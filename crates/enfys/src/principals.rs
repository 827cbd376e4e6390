//! Which users principals of Kerberos are: those of the same name, with all their groups, as the system's name services have them.
//!
//! They are asked by [`users`]. A context is made once an hour or once a day, and asks at most twice.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use net::kerberos::{Unavailable, Users};
use parking_lot::Mutex;
use tracing::warn;
use vfs::Credentials;

use crate::users;

/// Answers remembered at most.
const ANSWERS_MAX: usize = 4096;
/// How long a user and its groups are remembered.
const KNOWN_FOR: Duration = Duration::from_secs(300);
/// How long it is remembered that there is no such user.
const UNKNOWN_FOR: Duration = Duration::from_secs(30);
/// Bytes of a user's name at most (`LOGIN_NAME_MAX`).
const NAME_MAX: usize = 256;

/// The system's users, as answers to principals.
#[derive(Debug, Default)]
pub struct Principals {
    answers: Mutex<HashMap<String, Answer>>,
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
        ask: impl FnOnce(&str) -> Result<Option<Credentials>, String>,
    ) -> Result<Option<Credentials>, Unavailable> {
        if !is_name(name) {
            return Ok(None);
        }
        if let Some(answer) = self.answers.lock().get(name).filter(|answer| answer.until > now) {
            return Ok(answer.user.clone());
        }
        let user = ask(name).map_err(|why| {
            warn!(principal = name, reason = why, "the user of a Kerberos principal cannot be looked up");
            Unavailable
        })?;
        let until = now + if user.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
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

/// Whether it can be a user's name; one of a service (`nfs/host`) is none.
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
    fn answers_are_remembered_for_a_while_and_failures_are_not() {
        let (principals, start) = (Principals::default(), Instant::now());
        let never = |_: &str| -> Result<_, String> { panic!("it was asked before") };
        assert_eq!(principals.find_by("alice", start, |_| Err("away".into())), Err(Unavailable));
        assert_eq!(principals.find_by("alice", start, |_| Ok(user(7))), Ok(user(7)));
        assert_eq!(principals.find_by("bob", start, |_| Ok(None)), Ok(None));
        let soon = start + UNKNOWN_FOR - Duration::from_secs(1);
        assert_eq!(principals.find_by("alice", soon, never), Ok(user(7)));
        assert_eq!(principals.find_by("bob", soon, never), Ok(None));
        assert_eq!(principals.find_by("bob", start + UNKNOWN_FOR, |_| Ok(user(8))), Ok(user(8)));
        assert_eq!(principals.find_by("alice", start + KNOWN_FOR, |_| Ok(user(9))), Ok(user(9)));
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let (principals, now) = (Principals::default(), Instant::now());
        for number in 0..=ANSWERS_MAX {
            assert!(principals.find_by(&format!("user{number}"), now, |_| Ok(None)).is_ok());
        }
        assert!(principals.answers.lock().len() <= ANSWERS_MAX);
    }

    #[test]
    fn a_service_is_no_user() {
        for wrong in ["", "nfs/host.example.org", "a b", "a:b", "a\n", &"x".repeat(NAME_MAX + 1)] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
    }
}
