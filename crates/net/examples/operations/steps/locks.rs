//! Locks: granted, refused, tested, waited for.

use std::thread;

use client::errno::Errno;
use client::error::Error;
use client::locks::{LockKind, LockOwner, LockRange};
use net::blocking::File;

use super::{BOTH, Feature, Outcome, Place, fails, same};

const OWNER: LockOwner = LockOwner::Process(1);

/// Opens a file by both clients; `None` if the server has no locks, which was checked.
fn opened(place: &Place, path: &[u8]) -> Outcome<Option<(File, File)>> {
    let (one, two) = (place.fs().open(path, &BOTH)?, place.other().open(path, &BOTH)?);
    let locked = one.try_lock(OWNER, LockRange::WHOLE, LockKind::Exclusive);
    if place.of(Feature::Locks, locked)?.is_some() {
        one.unlock(OWNER, LockRange::WHOLE)?;
        return Ok(Some((one, two)));
    }
    place.of(Feature::Locks, one.test_lock(OWNER, LockRange::WHOLE, LockKind::Exclusive))?;
    place.of(Feature::Locks, one.try_flock(LockKind::Exclusive))?;
    one.close()?;
    two.close()?;
    Ok(None)
}

pub(super) fn ranges_exclude(place: &Place) -> Outcome {
    let Some((one, two)) = opened(place, b"locked")? else { return Ok(()) };
    let range = LockRange::new(10, 10)?;
    one.lock(OWNER, range, LockKind::Exclusive)?;
    fails("a lock of another client", two.try_lock(OWNER, range, LockKind::Shared), Errno::EAGAIN)?;
    let other = LockOwner::Process(2);
    fails("a lock of another owner", one.try_lock(other, range, LockKind::Shared), Errno::EAGAIN)?;
    let conflict = two.test_lock(OWNER, LockRange::WHOLE, LockKind::Shared)?.ok_or("no conflict")?;
    same("the conflict", (range, LockKind::Exclusive), (conflict.range, conflict.kind))?;
    same("a test beside it", None, two.test_lock(OWNER, LockRange::new(20, 5)?, LockKind::Exclusive)?)?;
    one.unlock(OWNER, LockRange::new(13, 4)?)?;
    two.try_lock(OWNER, LockRange::new(13, 4)?, LockKind::Exclusive)?;
    fails(
        "what is left before",
        two.try_lock(OWNER, LockRange::new(12, 1)?, LockKind::Shared),
        Errno::EAGAIN,
    )?;
    fails(
        "what is left behind",
        two.try_lock(OWNER, LockRange::new(17, 1)?, LockKind::Shared),
        Errno::EAGAIN,
    )?;
    one.unlock(OWNER, LockRange::WHOLE)?;
    two.unlock(OWNER, LockRange::WHOLE)?;
    one.try_lock(OWNER, LockRange::WHOLE, LockKind::Shared)?;
    two.try_lock(OWNER, LockRange::WHOLE, LockKind::Shared)?;
    fails("a shared lock beside it", two.try_lock(OWNER, range, LockKind::Exclusive), Errno::EAGAIN)?;
    one.close()?;
    two.try_lock(OWNER, range, LockKind::Exclusive)
        .map_err(|error| format!("after the close of the other: {error}"))?;
    Ok(two.close()?)
}

pub(super) fn a_lock_is_waited_for(place: &Place) -> Outcome {
    let Some((one, two)) = opened(place, b"waited")? else { return Ok(()) };
    one.lock(OWNER, LockRange::WHOLE, LockKind::Exclusive)?;
    thread::scope(|scope| -> Result<(), Error> {
        let waiting = scope.spawn(|| -> Result<(), Error> {
            two.lock(OWNER, LockRange::WHOLE, LockKind::Exclusive)?;
            two.write_at(0, "second")
        });
        // Under the lock, so that the other's data come later.
        one.write_at(0, "first and longer")?;
        one.sync()?;
        one.unlock(OWNER, LockRange::WHOLE)?;
        waiting.join().expect("the thread ends")
    })?;
    two.close()?;
    one.close()?;
    same("what both wrote", b"secondand longer".to_vec(), place.fs().read(b"waited")?[..16].to_vec())
}

pub(super) fn files_exclude(place: &Place) -> Outcome {
    let Some((one, two)) = opened(place, b"flocked")? else { return Ok(()) };
    one.flock(LockKind::Exclusive)?;
    fails("a second one", two.try_flock(LockKind::Shared), Errno::EAGAIN)?;
    one.funlock()?;
    two.flock(LockKind::Shared)?;
    one.try_flock(LockKind::Shared)?;
    fails("an exclusive one beside it", one.try_flock(LockKind::Exclusive), Errno::EAGAIN)?;
    two.close()?;
    one.try_flock(LockKind::Exclusive).map_err(|error| format!("after the close of the other: {error}"))?;
    Ok(one.close()?)
}
