use proptest::prelude::*;

use super::*;
use crate::cache::limiter::{Budget, Limiter};

const DIRECTORY: FileId = FileId(1);

fn epoch(epoch: u64) -> Epoch {
    Epoch::for_test(epoch)
}

fn cache(policy: LookupCache) -> NameCache {
    NameCache::new(Limiter::new(Budget::new(0)).user(), 1 << 20, policy)
}

#[test]
fn returns_names_and_absent_names_in_their_epoch() {
    let mut names = cache(LookupCache::All);
    let started = names.start(epoch(1));
    names.looked_up(started, DIRECTORY, b"a", Some(FileId(7)));
    names.looked_up(started, DIRECTORY, b"b", None);
    assert_eq!(names.lookup(DIRECTORY, epoch(1), b"a"), Lookup::Found(FileId(7)));
    assert_eq!(names.lookup(DIRECTORY, epoch(1), b"b"), Lookup::Absent);
    assert_eq!(names.lookup(DIRECTORY, epoch(1), b"c"), Lookup::Unknown);
    assert_eq!(names.lookup(DIRECTORY, epoch(2), b"a"), Lookup::Unknown);
    assert_eq!(names.lookup(FileId(2), epoch(1), b"a"), Lookup::Unknown);
}

#[test]
fn lookupcache_decides_which_names_are_answered() {
    for (policy, positive, negative) in [
        (LookupCache::All, Lookup::Found(FileId(7)), Lookup::Absent),
        (LookupCache::Positive, Lookup::Found(FileId(7)), Lookup::Unknown),
        (LookupCache::None, Lookup::Unknown, Lookup::Unknown),
    ] {
        let mut names = cache(policy);
        names.changed(DIRECTORY, epoch(1), b"a", Some(FileId(7)));
        names.changed(DIRECTORY, epoch(1), b"b", None);
        assert_eq!(names.lookup(DIRECTORY, epoch(1), b"a"), positive, "{policy:?}");
        assert_eq!(names.lookup(DIRECTORY, epoch(1), b"b"), negative, "{policy:?}");
    }
}

#[test]
fn lookup_that_was_sent_before_an_own_change_is_not_cached() {
    let mut names = cache(LookupCache::All);
    let started = names.start(epoch(1));
    names.changed(DIRECTORY, epoch(1), b"a", None);
    names.looked_up(started, DIRECTORY, b"a", Some(FileId(7)));
    assert_eq!(names.lookup(DIRECTORY, epoch(1), b"a"), Lookup::Absent);
    // Even if the entry was evicted meanwhile.
    names.reclaim(u64::MAX);
    names.looked_up(started, DIRECTORY, b"a", Some(FileId(7)));
    assert_eq!(names.lookup(DIRECTORY, epoch(1), b"a"), Lookup::Unknown);
}

#[test]
fn names_are_bounded_and_accounted_with_their_length() {
    let limiter = Limiter::new(Budget::new(0));
    let mut names = NameCache::new(limiter.user(), 64 << 10, LookupCache::All);
    let started = names.start(epoch(1));
    for index in 0..10_000 {
        names.looked_up(started, DIRECTORY, format!("{index:0>100}").as_bytes(), Some(FileId(index)));
        assert!(names.bytes() <= 64 << 10);
        assert_eq!(names.bytes(), limiter.used().total());
        assert_eq!(names.bytes() % (ENTRY_BYTES + 100), 0);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Send(u8),
    Execute(usize),
    Reply(usize),
    Create(u8),
    Remove(u8),
    ForeignChange(u8, bool),
    Reclaim,
}

fn op() -> impl Strategy<Value = Op> {
    let (name, index) = (|| 0..4_u8, || 0..8_usize);
    prop_oneof![
        3 => name().prop_map(Op::Send),
        3 => index().prop_map(Op::Execute),
        3 => index().prop_map(Op::Reply),
        2 => name().prop_map(Op::Create),
        2 => name().prop_map(Op::Remove),
        1 => (name(), any::<bool>()).prop_map(|(name, exists)| Op::ForeignChange(name, exists)),
        1 => Just(Op::Reclaim),
    ]
}

proptest! {
    /// LOOKUPs overlap own changes; a change of another client is known at once, through the directory's attributes.
    #[test]
    fn never_returns_an_old_name(ops in prop::collection::vec(op(), 1..100)) {
        let mut names = cache(LookupCache::All);
        let mut server: [Option<FileId>; 4] = [None; 4];
        let (mut sent, mut replies) = (Vec::new(), Vec::new());
        let (mut current, mut next) = (1, 0);
        for op in ops {
            match op {
                Op::Send(name) => sent.push((names.start(epoch(current)), name)),
                Op::Execute(index) if !sent.is_empty() => {
                    let (started, name): (LookupStarted, u8) = sent.remove(index % sent.len());
                    replies.push((started, name, server[name as usize]));
                }
                Op::Reply(index) if !replies.is_empty() => {
                    let (started, name, target) = replies.remove(index % replies.len());
                    names.looked_up(started, DIRECTORY, &[name], target);
                }
                Op::Create(name) => {
                    next += 1;
                    server[name as usize] = Some(FileId(next));
                    names.changed(DIRECTORY, epoch(current), &[name], Some(FileId(next)));
                }
                Op::Remove(name) => {
                    server[name as usize] = None;
                    names.changed(DIRECTORY, epoch(current), &[name], None);
                }
                Op::ForeignChange(name, exists) => {
                    next += 1;
                    server[name as usize] = exists.then_some(FileId(next));
                    current += 1;
                }
                Op::Reclaim => drop(names.reclaim(ENTRY_BYTES)),
                Op::Execute(_) | Op::Reply(_) => {}
            }
            for (name, target) in server.iter().enumerate() {
                let expected = target.map_or(Lookup::Absent, Lookup::Found);
                let answer = names.lookup(DIRECTORY, epoch(current), &[name as u8]);
                prop_assert!(answer == Lookup::Unknown || answer == expected, "{name}: {answer:?}, not {expected:?}");
            }
        }
    }
}
