use proptest::prelude::*;

use super::*;
use crate::attributes::{FsId, Timestamp};
use crate::cache::limiter::{Budget, Limiter};

const FILE: FileId = FileId(1);

fn cache(timeouts: Timeouts) -> AttributeCache {
    AttributeCache::new(Limiter::new(Budget::new(0)).user(), 1 << 20, timeouts)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn time(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}

/// Returns a file of NFS 3, changed at second `changed`.
fn file(changed: i64) -> Attributes {
    Attributes {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        size: 10,
        used: 4096,
        device: (0, 0),
        fsid: FsId::default(),
        fileid: 7,
        atime: time(0),
        mtime: time(changed),
        ctime: time(changed),
        change: None,
    }
}

/// Returns a file with a change attribute.
fn file4(change: u64) -> Attributes {
    Attributes { change: Some(change), ..file(change as i64) }
}

fn directory(changed: i64) -> Attributes {
    Attributes { kind: FileKind::Directory, ..file(changed) }
}

/// Attributes of a GETATTR that is sent and answered at `now`.
fn getattr(cache: &mut AttributeCache, attributes: Attributes, now: Duration) -> Invalidate {
    let started = cache.start(now);
    cache.update(FILE, started, attributes, now)
}

fn nothing() -> Invalidate {
    Invalidate::default()
}

#[test]
fn unchanged_attributes_get_twice_the_time_up_to_the_maximum() {
    let mut cache = cache(Timeouts::default());
    let mut now = seconds(100);
    assert_eq!(getattr(&mut cache, file(1), now), Invalidate { data: true, access: true, ..nothing() });
    for timeout in [3, 6, 12, 24, 48, 60, 60] {
        assert!(cache.get(FILE, now + seconds(timeout) - Duration::from_nanos(1)).is_some(), "{timeout}");
        now += seconds(timeout);
        assert!(cache.get(FILE, now).is_none(), "{timeout}");
        assert_eq!(getattr(&mut cache, file(1), now), nothing());
    }
    // A change by another client resets the time.
    now += seconds(60);
    assert!(getattr(&mut cache, file(2), now).data);
    assert!(cache.get(FILE, now + seconds(3)).is_none());
}

#[test]
fn directories_have_their_own_timeouts() {
    let mut cache = cache(Timeouts::default());
    assert!(getattr(&mut cache, directory(1), seconds(0)).directory);
    assert!(cache.get(FILE, seconds(29)).is_some());
    assert!(cache.get(FILE, seconds(30)).is_none());
    assert_eq!(
        getattr(&mut cache, directory(2), seconds(30)),
        Invalidate { directory: true, access: true, ..nothing() }
    );
}

#[test]
fn noac_never_uses_cached_attributes_and_actimeo_sets_all() {
    let mut without = cache(Timeouts::noac());
    let _ = getattr(&mut without, file(1), seconds(1));
    assert!(without.get(FILE, seconds(1)).is_none());
    assert_eq!(without.last_known(FILE), Some(&file(1)));
    let mut seven = cache(Timeouts::actimeo(seconds(7)));
    let _ = getattr(&mut seven, directory(1), seconds(0));
    assert!(seven.get(FILE, seconds(6)).is_some());
    assert!(seven.get(FILE, seconds(7)).is_none());
}

#[test]
fn attributes_are_as_old_as_their_request() {
    let mut cache = cache(Timeouts::default());
    let started = cache.start(seconds(0));
    let _ = cache.update(FILE, started, file(1), seconds(2));
    assert!(cache.get(FILE, seconds(3)).is_none());
}

#[test]
fn late_reply_does_not_replace_newer_attributes() {
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, file4(5), seconds(0));
    let late = cache.start(seconds(1));
    assert!(getattr(&mut cache, file4(7), seconds(2)).data);
    assert_eq!(cache.update(FILE, late, file4(6), seconds(3)), nothing());
    assert_eq!(cache.last_known(FILE), Some(&file4(7)));
    // A late reply with a newer change attribute was answered later than it was sent.
    assert!(cache.update(FILE, late, file4(8), seconds(3)).data);
}

#[test]
fn own_writes_invalidate_nothing_in_any_order_of_replies() {
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, file(1), seconds(0));
    let epoch = cache.epoch(FILE);
    let writes: Vec<OwnChange> = (0..3).map(|_| cache.start_change(FILE, seconds(1))).collect();
    let reply = |before: i64| Changed {
        before: Some(version(&file(before))),
        change_after: None,
        after: Some(file(before + 1)),
    };
    for (write, before) in writes.into_iter().zip([3, 1, 2]) {
        assert_eq!(cache.end_change(write, Some(reply(before)), seconds(2)), nothing());
    }
    assert_eq!(cache.epoch(FILE), epoch);
    assert_eq!(cache.last_known(FILE), Some(&file(4)));
}

#[test]
fn change_by_another_client_between_own_writes_invalidates() {
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, file(1), seconds(0));
    let epoch = cache.epoch(FILE);
    let (first, second) = (cache.start_change(FILE, seconds(1)), cache.start_change(FILE, seconds(1)));
    let reply = |before, after| Changed {
        before: Some(version(&file(before))),
        change_after: None,
        after: Some(file(after)),
    };
    assert_eq!(cache.end_change(second, Some(reply(3, 4)), seconds(2)), nothing());
    // Another client changed 2 to 3.
    assert!(cache.end_change(first, Some(reply(1, 2)), seconds(2)).data);
    assert_ne!(cache.epoch(FILE), epoch);
}

#[test]
fn without_attributes_from_before_a_different_mtime_invalidates() {
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, file(1), seconds(0));
    let write = cache.start_change(FILE, seconds(1));
    let reply = Changed { after: Some(file(2)), ..Changed::default() };
    assert!(cache.end_change(write, Some(reply), seconds(1)).data);
    // chmod changes only the ctime: results of ACCESS are dropped, data are kept.
    let setattr = cache.start_change(FILE, seconds(2));
    let reply =
        Changed { after: Some(Attributes { mode: 0o600, ctime: time(3), ..file(2) }), ..Changed::default() };
    assert_eq!(cache.end_change(setattr, Some(reply), seconds(2)), Invalidate { access: true, ..nothing() });
}

#[test]
fn change_info_of_version_4_keeps_a_directory_and_expires_its_attributes() {
    let mut cache = cache(Timeouts::default());
    let at = |change: u64| Attributes { change: Some(change), ..directory(change as i64) };
    let _ = getattr(&mut cache, at(1), seconds(0));
    let create = cache.start_change(FILE, seconds(1));
    let info = Changed { before: Some(Before::Change(1)), change_after: Some(2), after: None };
    assert_eq!(cache.end_change(create, Some(info), seconds(1)), nothing());
    assert!(cache.get(FILE, seconds(1)).is_none());
    assert_eq!(getattr(&mut cache, at(2), seconds(1)), nothing());
    assert!(cache.get(FILE, seconds(2)).is_some());
}

#[test]
fn reply_without_attributes_expires_the_cached_ones() {
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, file(1), seconds(0));
    let write = cache.start_change(FILE, seconds(1));
    assert_eq!(cache.end_change(write, Some(Changed::default()), seconds(1)), nothing());
    assert!(cache.get(FILE, seconds(1)).is_none());
    assert!(getattr(&mut cache, file(2), seconds(1)).data, "it is unknown whether the change was only ours");
}

#[test]
fn failed_change_changes_nothing() {
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, file(1), seconds(0));
    let write = cache.start_change(FILE, seconds(1));
    assert_eq!(cache.end_change(write, None, seconds(1)), nothing());
    assert!(cache.get(FILE, seconds(1)).is_some());
}

#[test]
fn another_object_under_the_same_handle_is_reported() {
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, file(1), seconds(0));
    let invalidate = getattr(&mut cache, Attributes { fileid: 9, ..file(1) }, seconds(1));
    assert!(invalidate.replaced && invalidate.data);
}

#[test]
fn memory_is_bounded_and_files_with_changes_in_flight_stay() {
    let limiter = Limiter::new(Budget::new(0));
    let mut cache = AttributeCache::new(limiter.user(), 100 * ENTRY_BYTES, Timeouts::default());
    let _ = getattr(&mut cache, file(1), seconds(0));
    let epoch = cache.epoch(FILE);
    let write = cache.start_change(FILE, seconds(0));
    for id in 2..10_000 {
        let started = cache.start(seconds(0));
        let _ = cache.update(FileId(id), started, file(1), seconds(0));
        assert!(cache.bytes() <= 100 * ENTRY_BYTES);
        assert_eq!(limiter.used().total(), cache.bytes());
    }
    assert_eq!(cache.epoch(FILE), epoch);
    let _ = cache.end_change(write, None, seconds(0));
    cache.reclaim(u64::MAX);
    assert_eq!((cache.len(), limiter.used().total()), (0, 0));
}

/// An event of the model's file, or the outstanding reply that arrives.
#[derive(Clone, Debug)]
enum Op {
    Getattr,
    Write,
    ForeignWrite,
    /// The server executes one of the outstanding requests.
    Execute(usize),
    /// The reply to one of the executed requests arrives.
    Reply(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Getattr),
        4 => Just(Op::Write),
        1 => Just(Op::ForeignWrite),
        6 => (0..16_usize).prop_map(Op::Execute),
        6 => (0..16_usize).prop_map(Op::Reply),
    ]
}

enum Request {
    Getattr(Started),
    Write(OwnChange),
}

enum Reply {
    Getattr(Started, Attributes),
    Write(OwnChange, Changed),
}

/// A server with one file, and the requests and replies in flight.
struct Model {
    cache: AttributeCache,
    version4: bool,
    state: u64,
    foreign: bool,
    requests: Vec<Request>,
    replies: Vec<Reply>,
    invalidated: bool,
}

impl Model {
    fn new(version4: bool) -> Self {
        let mut cache = cache(Timeouts::default());
        let attributes = if version4 { file4(1) } else { file(1) };
        let _ = getattr(&mut cache, attributes, seconds(0));
        let (requests, replies) = Default::default();
        Self { cache, version4, state: 1, foreign: false, requests, replies, invalidated: false }
    }

    fn attributes(&self) -> Attributes {
        if self.version4 { file4(self.state) } else { file(self.state as i64) }
    }

    fn execute(&mut self, index: usize) {
        if self.requests.is_empty() {
            return;
        }
        let reply = match self.requests.remove(index % self.requests.len()) {
            Request::Getattr(started) => Reply::Getattr(started, self.attributes()),
            Request::Write(change) => {
                let before = Some(version(&self.attributes()));
                self.state += 1;
                Reply::Write(change, Changed { before, change_after: None, after: Some(self.attributes()) })
            }
        };
        self.replies.push(reply);
    }

    fn reply(&mut self, index: usize) {
        if self.replies.is_empty() {
            return;
        }
        let invalidate = match self.replies.remove(index % self.replies.len()) {
            Reply::Getattr(started, attributes) => self.cache.update(FILE, started, attributes, seconds(0)),
            Reply::Write(change, changed) => self.cache.end_change(change, Some(changed), seconds(0)),
        };
        self.invalidated |= invalidate.data;
    }

    fn play(&mut self, op: &Op) {
        match *op {
            Op::Getattr => self.requests.push(Request::Getattr(self.cache.start(seconds(0)))),
            Op::Write => {
                let change = self.cache.start_change(FILE, seconds(0));
                self.requests.push(Request::Write(change));
            }
            Op::ForeignWrite => {
                self.state += 1;
                self.foreign = true;
            }
            Op::Execute(index) => self.execute(index),
            Op::Reply(index) => self.reply(index),
        }
    }

    /// Completes all outstanding requests, and checks the state by a last GETATTR.
    fn finish(&mut self) {
        while !self.requests.is_empty() {
            self.execute(0);
        }
        while !self.replies.is_empty() {
            self.reply(0);
        }
        let attributes = self.attributes();
        self.invalidated |= getattr(&mut self.cache, attributes, seconds(0)).data;
        assert_eq!(self.cache.last_known(FILE), Some(&self.attributes()));
    }
}

proptest! {
    #[test]
    fn invalidates_exactly_when_another_client_changed_the_file(
        ops in prop::collection::vec(op(), 1..120), version4: bool,
    ) {
        let mut model = Model::new(version4);
        ops.iter().for_each(|op| model.play(op));
        model.finish();
        prop_assert_eq!(model.invalidated, model.foreign);
    }
}

const ROUND_TRIP: Duration = Duration::from_millis(10);

#[test]
fn a_directory_that_is_requested_again_soon_is_worth_a_delegation_at_times() {
    let mut cache = cache(Timeouts::default());
    let mut revalidate = |now| {
        let started = cache.start(now);
        let is_worth = cache.revalidate_directory(FILE, started);
        // A second reader asks before the reply arrives.
        let second = cache.start(now + ROUND_TRIP / 2);
        assert!(!cache.revalidate_directory(FILE, second));
        let _ = cache.update(FILE, started, directory(1), now + ROUND_TRIP);
        let _ = cache.update(FILE, second, directory(1), now + ROUND_TRIP);
        is_worth
    };
    let mut now = seconds(100);
    assert!(!revalidate(now), "nothing is known about it");
    for (after, is_worth) in [
        (DELEGATION_WORTH + ROUND_TRIP, false),
        (DELEGATION_WORTH + ROUND_TRIP, false),
        (DELEGATION_WORTH - seconds(1), true),
        (DELEGATION_PAUSE - seconds(1), false),
        (seconds(1), true),
        (DELEGATION_PAUSE, true),
    ] {
        now += after;
        assert_eq!(revalidate(now), is_worth, "{now:?}");
    }
    cache.pause_delegation(FILE, now + seconds(10));
    let started = cache.start(now + DELEGATION_PAUSE);
    assert!(!cache.revalidate_directory(FILE, started));
}

#[test]
fn names_are_delegated_once_no_own_change_hides_one_of_another_client() {
    let mut cache = cache(Timeouts::default());
    let at = |change| Attributes { change: Some(change), ..directory(1) };
    let _ = getattr(&mut cache, at(1), seconds(1));
    let own = cache.start_change(FILE, seconds(2));
    // Another client has changed the directory.
    let _ = getattr(&mut cache, at(5), seconds(3));
    cache.delegate(FILE, 7);
    assert!(!cache.is_delegated(FILE, 7));
    let changed = Changed { before: Some(Before::Change(5)), after: Some(at(6)), ..Changed::default() };
    assert!(cache.end_change(own, Some(changed), seconds(4)).directory, "it was not seen before");
    cache.delegate(FILE, 7);
    assert!(cache.is_delegated(FILE, 7) && !cache.is_delegated(FILE, 8));
    // Under the delegation, changes are own ones.
    let own = cache.start_change(FILE, seconds(5));
    cache.expire_unannounced(FILE);
    assert!(cache.is_delegated(FILE, 7));
    let changed = Changed { before: Some(Before::Change(6)), after: Some(at(7)), ..Changed::default() };
    assert_eq!(cache.end_change(own, Some(changed), seconds(6)), nothing());
    assert!(cache.get_delegated(FILE, 7).is_some_and(|known| known.change == Some(7)));
    cache.expire_unannounced(FILE);
    assert!(!cache.is_delegated(FILE, 7));
}

#[test]
fn a_change_by_another_client_between_an_own_one_and_its_attributes_invalidates() {
    let at = |change| Attributes { change: Some(change), ..directory(1) };
    for (read, hidden) in [(6, false), (7, true)] {
        let mut cache = cache(Timeouts::default());
        let _ = getattr(&mut cache, at(5), seconds(1));
        let own = cache.start_change(FILE, seconds(2));
        assert!(!cache.is_undecided(FILE));
        let (before, after) = (Some(Before::Change(5)), Some(at(read)));
        let changed = Changed { before, change_after: Some(6), after };
        assert_eq!(cache.end_change(own, Some(changed), seconds(3)).directory, hidden, "{read}");
    }
}

#[test]
fn names_are_undecided_while_an_own_change_may_hide_another() {
    let at = |change| Attributes { change: Some(change), ..directory(1) };
    let mut cache = cache(Timeouts::default());
    let _ = getattr(&mut cache, at(5), seconds(1));
    let own = cache.start_change(FILE, seconds(2));
    let _ = getattr(&mut cache, at(6), seconds(3));
    assert!(cache.is_undecided(FILE));
    let changed = Changed { before: Some(Before::Change(5)), change_after: Some(6), after: Some(at(6)) };
    assert_eq!(cache.end_change(own, Some(changed), seconds(4)), nothing(), "it was the own one");
    assert!(!cache.is_undecided(FILE));
}
