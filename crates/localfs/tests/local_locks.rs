//! Locks against local processes: each open file description has its own.

mod common;

use std::sync::Arc;

use common::{Fixture, me};
use vfs::{Authority, Backend, LocalLock, LocalLocks, OpenAccess, Pin};

/// The greatest offset that the kernel can lock.
const LAST_BYTE: u64 = i64::MAX as u64;

fn exclusive(first: u64, last: u64) -> LocalLock {
    LocalLock { first, last, is_exclusive: true }
}

fn shared(first: u64, last: u64) -> LocalLock {
    LocalLock { is_exclusive: false, ..exclusive(first, last) }
}

/// Opens a new file.
fn open(fixture: &Fixture, mode: u32) -> Arc<dyn Pin> {
    let file = fixture.file(&me(), "f", mode);
    let access = OpenAccess { read: true, write: false };
    fixture.wait(fixture.fs().open(&me(), &file, access, Authority::Opened)).expect("opened").pin
}

fn two_descriptions(pin: &dyn Pin) -> (Arc<dyn LocalLocks>, Arc<dyn LocalLocks>) {
    (pin.local_locks().expect("an ordinary file system"), pin.local_locks().expect("another description"))
}

#[test]
fn locks_of_two_descriptions_exclude_each_other() {
    let fixture = Fixture::new();
    let pin = open(&fixture, 0o600);
    let (one, two) = two_descriptions(&*pin);
    one.lock(exclusive(10, 19)).expect("nothing is locked");
    assert_eq!(two.lock(shared(0, 10)), Err(exclusive(10, 19)));
    assert_eq!(two.conflict(shared(19, 30)), Some(exclusive(10, 19)));
    assert_eq!(one.conflict(exclusive(0, 100)), None, "its own");
    two.lock(exclusive(0, 9)).expect("no byte in common");
    one.lock(shared(10, 19)).expect("a downgrade");
    two.lock(shared(0, 10)).expect("both are shared");
    assert_eq!(two.lock(exclusive(10, 10)), Err(shared(10, 19)));
    one.unlock(15, 19);
    two.lock(exclusive(15, 19)).expect("unlocked");
    drop(one);
    two.lock(exclusive(0, 100)).expect("all locks of a description end with it");
}

#[test]
fn locks_reach_to_the_end_of_the_file_and_no_farther() {
    let fixture = Fixture::new();
    let pin = open(&fixture, 0o600);
    let (one, two) = two_descriptions(&*pin);
    one.lock(exclusive(7, u64::MAX)).expect("nothing is locked");
    assert_eq!(two.conflict(shared(LAST_BYTE, LAST_BYTE)), Some(exclusive(7, u64::MAX)));
    one.unlock(7, LAST_BYTE - 1);
    assert_eq!(two.conflict(shared(0, u64::MAX)), Some(exclusive(LAST_BYTE, u64::MAX)));
    one.unlock(0, u64::MAX);
    assert_eq!(two.conflict(exclusive(0, u64::MAX)), None);
    // The kernel has no such bytes.
    one.lock(exclusive(LAST_BYTE + 1, u64::MAX)).expect("no conflict");
    assert_eq!(two.lock(exclusive(LAST_BYTE + 1, u64::MAX)), Ok(()));
}
