//! The file-system identity of a thread.
//!
//! With root's privileges a request runs with the caller's file-system user, group and supplementary groups, so that
//! the kernel itself checks permissions, owners, quotas and reserved space. These belong to a *thread* (the C
//! library's functions would change all threads), and a switch costs as much as ten GETATTRs. So each thread
//! remembers its identity and switches only the differences, and only for a request that needs an identity. Nothing is
//! switched back afterwards. The identity is not kept across an await: code that needs one sets it in the same
//! synchronous section.
//!
//! A new thread inherits the identity that its parent had at that moment, so a thread's identity counts as unknown
//! until it has been set once.
//!
//! When the file-system user changes from 0 to another, the kernel removes the capabilities that override file
//! permissions from the thread's effective set, and restores them on return. [`can_act_as_callers`] tests that.

use std::cell::RefCell;
use std::sync::Arc;

use vfs::{Credentials, Error};

use crate::sys;

/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID (0 to 4), LINUX_IMMUTABLE (9), MKNOD (27), MAC_OVERRIDE (32):
/// the capabilities that override file permissions. The same set that `setfsuid` drops.
pub(crate) const FILE_CAPABILITIES: u64 = 0x1f | 1 << 9 | 1 << 27 | 1 << 32;

/// The kernel takes this id as "leave it unchanged": never a caller.
const INVALID_ID: u32 = u32::MAX;

#[derive(Debug)]
struct Current {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Option<Arc<[u32]>>,
    /// Whether the thread has its own umask; `None` if that was not tested yet.
    has_own_umask: Option<bool>,
}

thread_local! {
    static CURRENT: RefCell<Current> =
        const { RefCell::new(Current { uid: None, gid: None, groups: None, has_own_umask: None }) };
}

impl Current {
    fn set_user(&mut self, uid: u32) -> Result<(), Error> {
        if self.uid == Some(uid) {
            return Ok(());
        }
        let now = if uid == INVALID_ID { None } else { Some(sys::set_thread_user(uid)) };
        self.uid = now;
        // Inside a user namespace an id may be unmapped; then the call changed nothing.
        if now == Some(uid) { Ok(()) } else { Err(Error::Access) }
    }

    fn set_group(&mut self, gid: u32) -> Result<(), Error> {
        if self.gid == Some(gid) {
            return Ok(());
        }
        let now = if gid == INVALID_ID { None } else { Some(sys::set_thread_group(gid)) };
        self.gid = now;
        if now == Some(gid) { Ok(()) } else { Err(Error::Access) }
    }

    fn set_groups(&mut self, groups: &Arc<[u32]>) -> Result<(), Error> {
        if let Some(current) = &self.groups
            && (Arc::ptr_eq(current, groups) || current == groups)
        {
            return Ok(());
        }
        self.groups = None;
        sys::set_thread_groups(groups).map_err(|_| Error::Access)?;
        self.groups = Some(Arc::clone(groups));
        Ok(())
    }
}

/// Gives this thread the caller's user and groups.
///
/// # Errors
/// [`Error::Access`] if the ids are not mapped here. The thread may then have part of another identity, and must
/// not act for the caller.
pub(crate) fn become_caller(credentials: &Credentials) -> Result<(), Error> {
    CURRENT.with_borrow_mut(|current| {
        current.set_groups(&credentials.groups)?;
        current.set_group(credentials.gid)?;
        current.set_user(credentials.uid)
    })
}

/// Gives this thread the caller's *user* and keeps its groups. That is enough for writing through an open descriptor
/// (quotas, reserved blocks, clearing of set-user-ID).
pub(crate) fn become_user(uid: u32) -> Result<(), Error> {
    CURRENT.with_borrow_mut(|current| current.set_user(uid))
}

/// Restores the server's own user 0; the groups do not matter then.
///
/// A thread that runs operations of a [`LocalFs`](crate::LocalFs) as root keeps the last caller's identity. Call this
/// before such a thread opens files of the server itself: keys, logs, configuration.
pub fn become_server() {
    let outcome = CURRENT.with_borrow_mut(|current| current.set_user(0));
    if outcome.is_err() {
        tracing::error!("cannot set the file-system user 0");
    }
}

/// Calls `make` with this umask, which the kernel applies unless the directory has a default ACL.
///
/// The thread's umask is 0 otherwise, so that modes are set as requested. If a thread cannot have its own umask,
/// `make` gets the bits to remove from the mode instead: then a default ACL may grant less than otherwise, never more.
pub(crate) fn with_umask<T>(umask: u32, make: impl FnOnce(u32) -> T) -> T {
    let has_own = CURRENT.with_borrow_mut(|current| {
        *current.has_own_umask.get_or_insert_with(|| {
            let is_own = sys::own_umask().is_ok();
            if !is_own {
                sys::set_umask(0);
            }
            is_own
        })
    });
    if umask == 0 || !has_own {
        return make(umask);
    }
    sys::set_umask(umask);
    let made = make(0);
    sys::set_umask(0);
    made
}

/// Returns whether this process can act as its callers: it is root, may set users and groups, and loses its capabilities over
/// files while it acts as another user. Tested on a separate thread.
pub(crate) fn can_act_as_callers() -> bool {
    rustix::process::geteuid().is_root() && std::thread::spawn(test_identity_switch).join().unwrap_or(false)
}

fn test_identity_switch() -> bool {
    const OTHER_USER: u32 = 65_534;
    let powers = sys::effective_capabilities().unwrap_or(0) & FILE_CAPABILITIES;
    // DAC_OVERRIDE: without it root has no more permissions than others. DAC_READ_SEARCH is not needed here, and
    // containers mostly lack it; `probe` tests separately whether handles can be opened.
    let enough = 1 << 1;
    let somebody = Credentials { uid: OTHER_USER, gid: OTHER_USER, groups: Arc::from([OTHER_USER]) };
    powers & enough == enough
        && become_caller(&somebody).is_ok()
        && sys::effective_capabilities().is_ok_and(|left| left & FILE_CAPABILITIES == 0)
        && become_user(0).is_ok()
        && sys::effective_capabilities().is_ok_and(|back| back & FILE_CAPABILITIES == powers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid: uid, groups: Arc::from(groups) }
    }

    /// Returns this thread's file-system user, group and supplementary groups from the kernel.
    fn shown() -> (u32, u32, Vec<u32>) {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("field");
            line.split_whitespace().map(|id| id.parse().expect("an id")).collect::<Vec<u32>>()
        };
        (field("Uid:")[3], field("Gid:")[3], field("Groups:"))
    }

    #[test]
    fn a_thread_has_the_identity_set_last() {
        if !can_act_as_callers() {
            return; // Only root can change identities.
        }
        std::thread::spawn(|| {
            for round in 0..50 {
                let uid = 1000 + round % 3;
                become_caller(&caller(uid, &[uid, 7])).expect("switch");
                assert_eq!(shown(), (uid, uid, vec![7, uid]));
            }
            become_server();
            assert_eq!(shown().0, 0);
            become_user(1001).expect("switch");
            assert_eq!(shown().0, 1001);
        })
        .join()
        .expect("thread");
        assert_eq!(shown().0, 0, "other threads are not affected");
    }

    #[test]
    fn a_new_thread_has_an_unknown_identity() {
        if !can_act_as_callers() {
            return;
        }
        std::thread::spawn(|| {
            become_caller(&caller(1000, &[])).expect("switch");
            // The new thread inherits user 1000, and must not assume that it is 0.
            std::thread::spawn(|| {
                become_server();
                assert_eq!(shown().0, 0);
            })
            .join()
            .expect("inner thread");
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn root_of_a_container_that_cannot_open_by_handle_acts_as_its_callers() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        if !can_act_as_callers() {
            return;
        }
        let without = |lost: CapabilitySet| {
            let changed = move || {
                let mut sets = capabilities(None).expect("capabilities");
                sets.effective.remove(lost);
                sets.permitted.remove(lost);
                sets.inheritable.remove(lost);
                set_capabilities(None, sets).expect("a thread may drop its capabilities");
                can_act_as_callers()
            };
            std::thread::spawn(changed).join().expect("thread")
        };
        assert!(without(CapabilitySet::DAC_READ_SEARCH));
        assert!(!without(CapabilitySet::DAC_OVERRIDE));
        assert!(!without(CapabilitySet::SETUID));
    }

    #[test]
    fn the_reserved_id_is_refused() {
        std::thread::spawn(|| assert_eq!(become_user(u32::MAX), Err(Error::Access))).join().expect("thread");
    }
}
