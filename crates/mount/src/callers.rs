//! The caller of a request: the program's user and groups, which AUTH_SYS sends to the server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::config::Caller;
use parking_lot::Mutex;
use rpc::auth::{AuthSys, GroupList, MAX_GROUPS, MAX_MACHINE_NAME};
use xdr::Opaque;

use crate::ids::IdMap;

/// Time for which the groups of a thread are used before `/proc` is read again.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Maximum number of threads that are remembered; then all are forgotten.
const THREADS_MAX: usize = 4096;

/// The identity of requests at the server.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Those of the program that makes the request.
    PerProgram {
        /// This machine's name in credentials.
        machine_name: String,
    },
    /// Always the same (`uid=`, `gid=`).
    Fixed(Caller),
}

/// The credentials of programs.
pub(crate) struct Callers {
    identity: Identity,
    users: IdMap,
    groups: IdMap,
    known: Mutex<HashMap<Key, Known>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    tid: u32,
    uid: u32,
    gid: u32,
}

struct Known {
    caller: Caller,
    since: Instant,
}

impl Callers {
    pub(crate) fn new(identity: Identity, users: IdMap, groups: IdMap) -> Self {
        Self { identity, users, groups, known: Mutex::default() }
    }

    /// Returns the credential of a request. A program whose groups are not visible has only its own group.
    pub(crate) fn caller(&self, program: fuse::Caller) -> Caller {
        let machine_name = match &self.identity {
            Identity::Fixed(caller) => return caller.clone(),
            Identity::PerProgram { machine_name } => machine_name,
        };
        let key = Key { tid: program.tid, uid: program.uid, gid: program.gid };
        let now = Instant::now();
        if let Some(known) = self.known.lock().get(&key)
            && now.duration_since(known.since) < AGE_MAX
        {
            return known.caller.clone();
        }
        let status =
            if key.tid == 0 { None } else { std::fs::read(format!("/proc/{}/status", key.tid)).ok() };
        let groups = status.map(|status| parse_groups(&status)).unwrap_or_default();
        let caller = self.credential(key, &groups, machine_name);
        let mut known = self.known.lock();
        if known.len() >= THREADS_MAX {
            known.clear();
        }
        known.insert(key, Known { caller: caller.clone(), since: now });
        caller
    }

    fn credential(&self, key: Key, groups: &[u32], machine_name: &str) -> Caller {
        // The program's own group has a field of its own; servers accept the first sixteen of the others.
        let others = groups.iter().filter(|group| **group != key.gid).map(|group| self.groups.remote(*group));
        let others: Vec<u32> = others.take(MAX_GROUPS).collect();
        let name = &machine_name.as_bytes()[..machine_name.len().min(MAX_MACHINE_NAME)];
        Caller::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::new(Bytes::copy_from_slice(name))
                .unwrap_or_else(|_| Opaque::from_static(b"")),
            uid: self.users.remote(key.uid),
            gid: self.groups.remote(key.gid),
            gids: GroupList::new(&others).unwrap_or_default(),
        })
    }
}

/// Returns the supplementary groups in `/proc/TID/status`.
fn parse_groups(status: &[u8]) -> Vec<u32> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Groups:"));
    let words = line.unwrap_or_default().split(u8::is_ascii_whitespace);
    words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(groups: IdMap) -> Callers {
        let mut users = IdMap::default();
        users.add("1000:501").expect("a pair");
        Callers::new(Identity::PerProgram { machine_name: "host".to_owned() }, users, groups)
    }

    fn sys(uid: u32, gid: u32, gids: &[u32]) -> Caller {
        let gids = GroupList::new(gids).expect("few groups");
        Caller::sys(&AuthSys { stamp: 0, machine_name: Opaque::from_static(b"host"), uid, gid, gids })
    }

    #[test]
    fn groups_are_read_from_proc() {
        assert_eq!(parse_groups(b"Name:\tsh\nGroups:\t4 24 1000 \nNStgid:\t1\n"), [4, 24, 1000]);
        assert_eq!(parse_groups(b"Groups:\t \n"), [0_u32; 0]);
        assert_eq!(parse_groups(b""), [0_u32; 0]);
    }

    #[test]
    fn a_credential_has_the_servers_numbers_and_at_most_sixteen_more_groups() {
        let mut map = IdMap::default();
        map.add("7:70").expect("a pair");
        let callers = callers(map);
        let key = Key { tid: 1, uid: 501, gid: 70 };
        assert_eq!(callers.credential(key, &[70, 5, 70], "host"), sys(1000, 7, &[5]));
        let many: Vec<u32> = (100..200).collect();
        assert_eq!(callers.credential(key, &many, "host"), sys(1000, 7, &many[..16]));
    }

    #[test]
    fn a_program_out_of_sight_has_no_other_groups() {
        let program = fuse::Caller { uid: 3, gid: 4, tid: 0, is_resent: false };
        assert_eq!(callers(IdMap::default()).caller(program), sys(3, 4, &[]));
    }

    #[test]
    fn a_fixed_identity_ignores_the_program() {
        let callers = Callers::new(Identity::Fixed(sys(9, 9, &[])), IdMap::default(), IdMap::default());
        let program = fuse::Caller { uid: 3, gid: 4, tid: 0, is_resent: false };
        assert_eq!(callers.caller(program), sys(9, 9, &[]));
    }
}
