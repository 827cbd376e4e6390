//! The lock table, without a server.

use super::*;
use crate::config::Caller;
use crate::opens::{NewOpen, OpenFiles, OpenMode};

const STATEID: Stateid = Stateid { seqid: 1, other: [7; 12] };

fn open(files: &OpenFiles) -> Arc<OpenFile> {
    let (handle, location, mode, stateid) = (Handle::default(), None, OpenMode::BOTH, STATEID);
    let new = NewOpen { handle, location, mode, stateid, is_local: false };
    files.add(files.take_owner(), &Caller::anonymous(), new)
}

fn held(first: u64, last: u64, file: &OpenFile) -> HeldRange {
    HeldRange { range: LockRange { first, last }, kind: LockKind::Exclusive, open: file.owner }
}

fn lock(locker: &Locker, file: &Arc<OpenFile>, first: u64, last: u64) {
    let snapshot = locker.snapshot(file.owner);
    assert!(locker.granted(snapshot, file, STATEID, held(first, last, file)));
}

#[test]
fn an_owner_is_forgotten_with_its_last_lock() {
    let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
    let file = open(&files);
    let locker = locks.locker(file.handle, LockOwner::Process(1));
    lock(&locker, &file, 0, 9);
    let number = locker.number();
    drop(locker);
    let locker = locks.find(file.handle, LockOwner::Process(1)).expect("it has a lock");
    assert_eq!((locker.number(), locks.owner_of(number)), (number, Some(LockOwner::Process(1))));
    let [part] = locker.unlocking(LockRange { first: 0, last: 4 })[..] else { panic!("one open") };
    assert!(!part.is_last && locker.unlocked(part, LockRange { first: 0, last: 4 }, Some(STATEID)));
    let [rest] = locker.unlocking(LockRange::WHOLE)[..] else { panic!("one open") };
    assert!(rest.is_last && locker.unlocked(rest, LockRange::WHOLE, None));
    drop(locker);
    assert!(locks.find(file.handle, LockOwner::Process(1)).is_none() && locks.all().is_empty());
}

#[test]
fn all_locks_of_a_file_are_local_or_none_is() {
    let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
    let file = open(&files);
    let [one, two] = [1, 2].map(|number| locks.locker(file.handle, LockOwner::Process(number)));
    let shared = |first, last| HeldRange { kind: LockKind::Shared, ..held(first, last, &file) };
    let conflict =
        || locks.local_conflict(&file.handle, LockOwner::Process(2), LockRange::WHOLE, LockKind::Exclusive);
    assert_eq!(conflict(), Some(None));
    assert_eq!(locks.lock_local(&one, &file, shared(0, 9)), LocalLock::Granted);
    assert_eq!(locks.lock_local(&two, &file, held(5, 5, &file)), LocalLock::Denied);
    assert_eq!(locks.lock_local(&two, &file, shared(5, 5)), LocalLock::Granted);
    assert_eq!(conflict().unwrap().unwrap().owner, Some(LockOwner::Process(1)));
    // The server may grant a lock any time.
    let asking = two.ask();
    assert!(asking.has_local && conflict().is_none());
    assert_eq!(locks.lock_local(&one, &file, shared(20, 29)), LocalLock::AskServer);
    drop(asking);
    for locker in locks.local_of(&file.handle) {
        for (range, _) in locker.local() {
            let early = locker.snapshot(range.open);
            locker.begin_reclaim(true);
            locker.end_reclaim();
            assert!(!locker.made_known(early, range.open, STATEID), "the server has restarted since");
            assert_eq!(locker.local().len(), 1);
            assert!(locker.made_known(locker.snapshot(range.open), range.open, STATEID));
        }
    }
    assert!(locks.local_of(&file.handle).is_empty() && conflict().is_none());
    assert_eq!(locks.lock_local(&one, &file, shared(20, 29)), LocalLock::AskServer);
    assert_eq!(one.unlocking(LockRange::WHOLE)[0].snapshot.stateid, Some(STATEID));
}

#[test]
fn a_range_that_is_being_unlocked_is_not_reclaimed() {
    let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
    let file = open(&files);
    let locker = locks.locker(file.handle, LockOwner::Process(1));
    lock(&locker, &file, 0, 9);
    locker.begin_unlock(LockRange { first: 5, last: 9 });
    let reclaimed: Vec<_> = locker.begin_reclaim(false).into_iter().map(|(held, _)| held).collect();
    assert_eq!(reclaimed, [held(0, 4, &file)]);
    locker.end_reclaim();
    locker.end_unlock();
    assert_eq!(locker.begin_reclaim(false).len(), 1);
}

#[test]
fn a_lock_protects_no_writes_while_its_last_range_is_being_unlocked() {
    let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
    let file = open(&files);
    let locker = locks.locker(file.handle, LockOwner::Process(1));
    lock(&locker, &file, 0, 9);
    let protects = || locks.exclusive_of(&file.handle, file.owner).is_some();
    assert!(protects() && locker.has_exclusive(file.owner, STATEID));
    locker.begin_unlock(LockRange { first: 5, last: 9 });
    assert!(protects(), "the stateid stays, with the other range");
    locker.begin_unlock(LockRange { first: 0, last: 9 });
    assert!(!protects() && !locker.has_exclusive(file.owner, STATEID));
    locker.end_unlock();
    assert!(protects(), "the LOCKU has failed");
}

#[test]
fn local_locks_are_reclaimed_unless_the_delegation_is_and_lost_with_it() {
    let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
    let file = open(&files);
    let locker = locks.locker(file.handle, LockOwner::Process(1));
    assert_eq!(locks.lock_local(&locker, &file, held(0, 9, &file)), LocalLock::Granted);
    assert_eq!((locker.begin_reclaim(true).len(), locker.local().len()), (0, 1));
    locker.end_reclaim();
    assert_eq!((locker.begin_reclaim(false).len(), locker.local().len()), (1, 0));
    locker.end_reclaim();
    let other = locks.locker(file.handle, LockOwner::Process(2));
    assert_eq!(locks.lock_local(&other, &file, held(20, 29, &file)), LocalLock::Granted);
    locks.lose_local(&file.handle);
    assert!(file.has_lost_lock() && other.local().is_empty());
}

#[test]
fn another_process_continues_locks_through_its_opens() {
    let (locks, files) = (Locks::new(false), OpenFiles::new(false));
    let (file, other) = (open(&files), open(&files));
    let locker = locks.locker(file.handle, LockOwner::File(5));
    lock(&locker, &file, 0, 9);
    lock(&locker, &other, 20, u64::MAX);
    locker.lose(held(0, 4, &file));
    let ((opens, last_open), (saved, last)) = (files.save().unwrap(), locks.save().unwrap());
    let (again_locks, again_files) = (Locks::new(false), OpenFiles::new(false));
    assert!(again_locks.restore(saved.clone(), last, &again_files).is_err(), "without the opens");
    again_files.restore(opens, last_open).unwrap();
    again_locks.restore(saved.clone(), last, &again_files).unwrap();
    assert_eq!(again_locks.save().unwrap(), (saved, last));
    let again = again_locks.find(file.handle, LockOwner::File(5)).unwrap();
    assert_eq!(again.stateids(), [(file.owner, STATEID), (other.owner, STATEID)]);
    let file = again_files.find(file.owner).unwrap();
    assert!(file.has_lost_lock() && !again_files.find(other.owner).unwrap().has_lost_lock());
    assert_eq!(again.unlocking(LockRange::WHOLE).len(), 2);
    assert!(!file.has_lost_lock(), "the owner has unlocked it");
    assert!(again_locks.locker(file.handle, LockOwner::File(6)).number() > locker.number());
    let asking = locker.ask();
    assert!(locks.save().is_err(), "the server may grant a lock any time");
    drop(asking);
    files.all()[0].delegated(STATEID);
    assert!(files.save().is_err());
}

#[test]
fn results_from_before_a_reclaim_do_not_count() {
    let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
    let file = open(&files);
    let locker = locks.locker(file.handle, LockOwner::File(1));
    lock(&locker, &file, 0, 9);
    let before = locker.snapshot(file.owner);
    let [unlocking] = locker.unlocking(LockRange::WHOLE)[..] else { panic!("one open") };
    assert_eq!(before.stateid, Some(STATEID));
    assert_eq!(locker.begin_reclaim(false).len(), 1);
    assert_eq!(locker.snapshot(file.owner).stateid, None);
    assert!(!locker.granted(before, &file, STATEID, held(20, 29, &file)));
    assert!(!locker.unlocked(unlocking, LockRange::WHOLE, None));
    locker.reclaimed(file.owner, STATEID);
    assert!(locker.is_reclaiming());
    locker.end_reclaim();
    assert!(!locker.is_reclaiming());
    assert_eq!(locker.stateids(), [(file.owner, STATEID)]);
}

#[test]
fn the_last_losses_are_remembered_by_file() {
    let locks = Locks::new(false);
    let file = |number: u8| Handle::new(&[number]).unwrap();
    let before = locks.losses();
    assert!(!locks.has_lost_since(&file(1), before));
    locks.note_loss(&file(1));
    let after = locks.losses();
    let lost = |number, since| locks.has_lost_since(&file(number), since);
    assert_eq!((lost(1, before), lost(2, before), lost(1, after)), (true, false, false));
    (0..LOSSES_MAX).for_each(|_| locks.note_loss(&file(2)));
    assert_eq!((lost(1, after), lost(3, after), lost(3, before)), (false, false, true));
}

#[test]
fn a_lost_lock_is_noted_at_its_open_until_it_is_unlocked_or_closed() {
    let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
    let (file, other) = (open(&files), open(&files));
    let locker = locks.locker(file.handle, LockOwner::Process(1));
    lock(&locker, &file, 0, 9);
    lock(&locker, &other, 10, 19);
    locks.lose_of_open(&file);
    assert_eq!((file.has_lost_lock(), other.has_lost_lock()), (true, false));
    locker.lose(held(10, 19, &other));
    assert!(other.has_lost_lock());
    assert!(locker.unlocking(LockRange { first: 0, last: 9 }).is_empty(), "the server has nothing");
    assert_eq!((file.has_lost_lock(), other.has_lost_lock()), (false, true));
    locker.closed(other.owner);
    assert!(!other.has_lost_lock());
}
