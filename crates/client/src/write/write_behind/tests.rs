use super::*;
use crate::cache::limiter::{Budget, Limiter, User};
use crate::cache::pages::{Piece, charge};

mod errors;
mod recovery;
mod simulation;

const FILE: FileId = FileId(1);
const WSIZE: u64 = 8192;
const EVERYTHING: Range<u64> = 0..u64::MAX;

/// A client and its requests.
struct World {
    writes: WriteBehind,
    user: User,
    now: Duration,
}

impl World {
    fn new() -> Self {
        Self::with(Settings { wsize: WSIZE, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let user = Limiter::new(Budget::new(256 << 20)).user();
        Self { writes: WriteBehind::new(settings), user, now: Duration::ZERO }
    }

    fn write_with(&mut self, file: FileId, offset: u64, data: &[u8], stability: Stability) {
        let permit = self.user.try_reserve(Kind::Dirty, charge(data.len())).unwrap();
        self.writes.write(file, offset, Bytes::copy_from_slice(data), permit, stability, self.now);
    }

    fn write(&mut self, offset: u64, len: u64, byte: u8) {
        self.write_with(FILE, offset, &vec![byte; len as usize], Stability::Unstable);
    }

    fn poll(&mut self) -> Option<WriteAction> {
        self.writes.poll_action(self.now)
    }

    /// Returns all requests that can be sent now.
    fn poll_all(&mut self) -> Vec<WriteAction> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    /// Answers a WRITE completely, or a COMMIT.
    fn answer(&mut self, action: &WriteAction, verifier: u8) {
        match action {
            WriteAction::Write { data, stability, id, .. } => {
                let count = data.iter().map(Bytes::len).sum::<usize>() as u32;
                let written = Written { count, stability: *stability, verifier: [verifier; 8] };
                self.writes.handle_written(*id, Ok(written));
            }
            WriteAction::Commit { id, .. } => self.writes.handle_committed(*id, Ok([verifier; 8])),
        }
    }

    fn used(&self, kind: Kind) -> u64 {
        self.user.limiter().used().of(kind)
    }
}

/// Offset, length and stability of WRITEs; COMMITs as offset and count.
fn shape(actions: &[WriteAction]) -> Vec<(u64, u64, Option<Stability>)> {
    let one = |action: &WriteAction| match action {
        WriteAction::Write { offset, data, stability, .. } => {
            (*offset, data.iter().map(|data| data.len() as u64).sum(), Some(*stability))
        }
        WriteAction::Commit { offset, count, .. } => (*offset, u64::from(*count), None),
    };
    actions.iter().map(one).collect()
}

fn unstable(offset: u64, len: u64) -> (u64, u64, Option<Stability>) {
    (offset, len, Some(Stability::Unstable))
}

fn file_sync(offset: u64, len: u64) -> (u64, u64, Option<Stability>) {
    (offset, len, Some(Stability::FileSync))
}

fn commit(offset: u64, count: u64) -> (u64, u64, Option<Stability>) {
    (offset, count, None)
}

#[test]
fn full_requests_are_sent_at_once_and_the_rest_by_age() {
    let mut world = World::new();
    world.write(0, 2 * WSIZE + 100, 1);
    assert_eq!(shape(&world.poll_all()), [unstable(0, WSIZE), unstable(WSIZE, WSIZE)]);
    world.now = world.writes.poll_timeout().unwrap();
    assert_eq!(world.now, Duration::from_secs(1));
    assert_eq!(shape(&world.poll_all()), [unstable(2 * WSIZE, 100)]);
}

#[test]
fn a_wait_for_requests_under_way_ends_although_others_are_sent_meanwhile() {
    let mut world = World::new();
    world.write(0, 2 * WSIZE, 1);
    let first = world.poll_all();
    let ticket = world.writes.requests_ended(FILE).unwrap();
    for block in 2..20 {
        world.write(block * WSIZE, WSIZE, 2);
        assert_eq!(shape(&world.poll_all()), [unstable(block * WSIZE, WSIZE)]);
    }
    world.answer(&first[1], 1);
    assert!(!ticket.is_done());
    world.answer(&first[0], 1);
    assert!(ticket.is_done());
    assert_eq!(world.writes.in_flight(), 18);
    assert!(!world.writes.requests_ended(FILE).unwrap().is_done());
}

#[test]
fn adjacent_writes_join_up_to_wsize() {
    let mut world = World::new();
    for block in (0..16).rev() {
        world.write(block * 512, 512, 1);
    }
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [unstable(0, WSIZE)]);
    let WriteAction::Write { data, .. } = &actions[0] else { panic!("{actions:?}") };
    assert_eq!(data.concat(), [1; WSIZE as usize]);
}

#[test]
fn requests_inside_dirty_data_end_at_a_page() {
    let mut world = World::new();
    world.write(100, 3 * WSIZE, 1);
    drop(world.writes.sync(FILE, EVERYTHING));
    assert_eq!(
        shape(&world.poll_all()),
        [
            unstable(100, WSIZE - 100),
            unstable(WSIZE, WSIZE),
            unstable(2 * WSIZE, WSIZE),
            unstable(3 * WSIZE, 100)
        ]
    );
}

#[test]
fn fsync_of_little_data_is_one_request() {
    let mut world = World::new();
    world.write(10, 100, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [file_sync(10, 100)]);
    assert!(!ticket.is_done());
    world.answer(&actions[0], 1);
    assert!(ticket.is_done());
    assert_eq!(world.poll_all(), []);
    assert_eq!(world.writes.unstable_bytes(FILE), 0);
}

#[test]
fn fsync_of_much_data_ends_with_one_commit() {
    let mut world = World::new();
    world.write(0, 3 * WSIZE, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let actions = world.poll_all();
    assert_eq!(actions.len(), 3);
    for action in actions.iter().rev() {
        assert_eq!(world.poll_all(), [], "a COMMIT must wait for all replies");
        world.answer(action, 1);
    }
    assert_eq!(world.used(Kind::Dirty), 0);
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [commit(0, 3 * WSIZE)]);
    assert!(!ticket.is_done());
    world.answer(&actions[0], 1);
    assert!(ticket.is_done());
    assert_eq!((world.used(Kind::Uncommitted), world.used(Kind::Clean) >= 3 * WSIZE), (0, true));
}

#[test]
fn fsync_covers_only_earlier_data() {
    let mut world = World::new();
    world.write(0, 100, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let first = world.poll().unwrap();
    world.write(4096, 100, 2);
    world.answer(&first, 1);
    assert!(ticket.is_done());
    assert_eq!(world.writes.unstable_bytes(FILE), 100);
    assert!(world.writes.sync(FileId(2), EVERYTHING).is_done(), "nothing was written there");
}

#[test]
fn fsync_ends_although_the_program_keeps_overwriting() {
    let mut world = World::new();
    world.write(0, 2 * WSIZE, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let mut requests = 0;
    while !ticket.is_done() {
        let actions = world.poll_all();
        world.write(0, 2 * WSIZE, 2);
        requests += actions.len();
        actions.iter().for_each(|action| world.answer(action, 1));
        assert!(requests <= 4, "two UNSTABLE WRITEs and two stable ones");
    }
}

#[test]
fn a_flush_ends_with_the_replies_and_without_a_commit() {
    let mut world = World::new();
    assert!(world.writes.flush(FILE).is_none(), "nothing was written");
    world.write(0, 2 * WSIZE, 1);
    let ticket = world.writes.flush(FILE).unwrap();
    for action in world.poll_all() {
        assert!(!ticket.is_done() && world.writes.has_unacknowledged(FILE));
        world.answer(&action, 1);
    }
    assert!(ticket.is_done() && !world.writes.has_unacknowledged(FILE));
    assert_eq!(world.poll_all(), []);
    assert_eq!(world.writes.unstable_bytes(FILE), 2 * WSIZE, "they wait for a COMMIT");
    assert!(world.writes.flush(FILE).is_none());
}

#[test]
fn a_flush_ends_although_the_program_overwrites_what_is_under_way() {
    let mut world = World::new();
    world.write(0, 2 * WSIZE, 1);
    let ticket = world.writes.flush(FILE).unwrap();
    let actions = world.poll_all();
    world.write(0, 2 * WSIZE, 2);
    actions.iter().for_each(|action| world.answer(action, 1));
    assert!(ticket.is_done() && world.writes.has_unacknowledged(FILE));
    let actions = world.poll_all();
    assert_eq!(
        shape(&actions),
        [unstable(0, WSIZE), unstable(WSIZE, WSIZE)],
        "nobody waits for them any more"
    );
}

#[test]
fn rest_of_a_partial_write_is_sent() {
    let mut world = World::new();
    world.write(0, WSIZE, 1);
    let WriteAction::Write { id, .. } = world.poll().unwrap() else { panic!("no WRITE") };
    let written = Written { count: 1, stability: Stability::Unstable, verifier: [1; 8] };
    world.writes.handle_written(id, Ok(written));
    assert_eq!(shape(&world.poll_all()), [unstable(1, WSIZE - 1)]);
}

#[test]
fn bytes_are_not_sent_again_while_their_request_is_under_way() {
    let mut world = World::new();
    world.write(0, WSIZE, 1);
    let first = world.poll().unwrap();
    world.write(4096, WSIZE, 2);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [unstable(WSIZE, 4096)], "other data may be sent");
    let WriteAction::Write { data, .. } = &first else { panic!("no WRITE") };
    assert_eq!(data.concat(), [1; WSIZE as usize], "the request keeps the old bytes");
    world.answer(&first, 1);
    let second = world.poll_all();
    assert_eq!(shape(&second), [unstable(4096, 4096)]);
    [actions, second].iter().flatten().for_each(|action| world.answer(action, 1));
    let last = world.poll().unwrap();
    world.answer(&last, 1);
    assert!(ticket.is_done());
}

#[test]
fn replaced_memory_is_accounted_until_its_request_ends() {
    let mut world = World::new();
    world.write(0, WSIZE, 1);
    let first = world.poll().unwrap();
    world.write(0, WSIZE, 2);
    assert_eq!(world.used(Kind::Dirty), 2 * charge(WSIZE as usize));
    world.answer(&first, 1);
    assert_eq!(world.used(Kind::Dirty), charge(WSIZE as usize));
}

#[test]
fn truncation_waits_for_writes_beyond_it_and_holds_later_ones() {
    let mut world = World::new();
    world.write(0, 2 * WSIZE, 1);
    let actions = world.poll_all();
    let ticket = world.writes.start_truncate(FILE, WSIZE + 10);
    world.write(3 * WSIZE, WSIZE, 2);
    assert_eq!(world.poll_all(), []);
    world.answer(&actions[0], 1);
    assert!(!ticket.is_done());
    world.answer(&actions[1], 1);
    assert!(ticket.is_done());
    assert_eq!(world.poll_all(), []);
    world.writes.end_truncate(FILE);
    assert_eq!(shape(&world.poll_all()), [unstable(3 * WSIZE, WSIZE)]);
    assert_eq!(world.writes.unstable_bytes(FILE), 2 * WSIZE + 10);
}

#[test]
fn version_2_needs_no_commit() {
    let mut world =
        World::with(Settings { wsize: WSIZE, stability: Stability::FileSync, ..Settings::default() });
    world.write(0, 3 * WSIZE, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [file_sync(0, WSIZE), file_sync(WSIZE, WSIZE), file_sync(2 * WSIZE, WSIZE)]);
    actions.iter().for_each(|action| world.answer(action, 0));
    assert!(ticket.is_done());
}

#[test]
fn o_dsync_sends_data_sync() {
    let mut world = World::new();
    world.write(2 * WSIZE, 10, 1);
    world.write_with(FILE, 0, &[2; 10], Stability::DataSync);
    let ticket = world.writes.sync(FILE, 0..10);
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [(0, 10, Some(Stability::DataSync)), unstable(2 * WSIZE, 10)]);
    world.answer(&actions[0], 1);
    assert!(ticket.is_done());
}

#[test]
fn server_that_stores_more_than_requested_needs_no_commit() {
    let mut world = World::new();
    world.write(0, 2 * WSIZE, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    for action in world.poll_all() {
        let WriteAction::Write { id, .. } = action else { panic!("no WRITE") };
        let written = Written { count: WSIZE as u32, stability: Stability::FileSync, verifier: [1; 8] };
        world.writes.handle_written(id, Ok(written));
    }
    assert!(ticket.is_done());
    assert_eq!(world.poll_all(), []);
}

#[test]
fn server_that_stores_less_than_requested_gets_a_commit() {
    let mut world = World::new();
    world.write(0, 10, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let WriteAction::Write { id, .. } = world.poll().unwrap() else { panic!("no WRITE") };
    let written = Written { count: 10, stability: Stability::Unstable, verifier: [1; 8] };
    world.writes.handle_written(id, Ok(written));
    assert!(!ticket.is_done());
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [commit(0, 10)]);
    world.answer(&actions[0], 1);
    assert!(ticket.is_done());
}

#[test]
fn files_alternate_and_awaited_files_come_first() {
    let mut world = World::new();
    let write = |world: &mut World, file| {
        world.write_with(FileId(file), 0, &[1; 4 * WSIZE as usize], Stability::Unstable);
    };
    let file = |action: WriteAction| match action {
        WriteAction::Write { file, .. } | WriteAction::Commit { file, .. } => file.0,
    };
    (1..=3).for_each(|file| write(&mut world, file));
    let order: Vec<u64> = (0..6).filter_map(|_| world.poll()).map(file).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
    write(&mut world, 4);
    drop(world.writes.sync(FileId(4), EVERYTHING));
    let order: Vec<u64> = world.poll_all().into_iter().map(file).collect();
    assert_eq!(order[..4], [4; 4]);
}

#[test]
fn short_memory_sends_and_commits_the_largest_files() {
    let mut world = World::new();
    world.write_with(FileId(1), 0, &[1; 100], Stability::Unstable);
    world.write_with(FileId(2), 0, &[1; 5000], Stability::Unstable);
    assert_eq!(world.poll_all(), []);
    world.writes.give_up(Demand { flush: true, ..Demand::default() });
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [unstable(0, 5000)]);
    world.answer(&actions[0], 1);
    assert_eq!(world.poll_all(), []);
    world.writes.give_up(Demand { commit: true, ..Demand::default() });
    world.writes.give_up(Demand { commit: true, ..Demand::default() });
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [commit(0, 5000)], "one COMMIT, even if memory is short repeatedly");
    world.answer(&actions[0], 1);
    world.writes.give_up(Demand { clean: 1, ..Demand::default() });
    assert_eq!(world.user.used(), charge(100));
}

#[test]
fn many_small_files_are_asked_once_while_memory_is_short() {
    let mut world = World::new();
    for file in 0..1000 {
        world.write_with(FileId(file), 0, &[1; 100], Stability::Unstable);
    }
    for _ in 0..1000 {
        world.writes.give_up(Demand { flush: true, ..Demand::default() });
    }
    assert_eq!(world.poll_all().len(), 500, "half of the bytes");
}

#[test]
fn discarded_data_are_not_sent_and_their_descriptions_get_the_error() {
    let mut world = World::new();
    let open = world.writes.open(FILE);
    world.write(0, 3 * WSIZE, 1);
    let under_way = world.poll().unwrap();
    let ticket = world.writes.sync(FILE, EVERYTHING);
    world.writes.discard(FILE, Errno::ESTALE);
    assert!(ticket.is_done());
    assert_eq!(world.poll_all(), []);
    assert!(world.user.used() > 0, "the request under way still uses memory");
    world.answer(&under_way, 1);
    assert_eq!(world.user.used(), 0);
    assert_eq!(world.writes.close(open), Err(Errno::ESTALE));
}

#[test]
fn writer_never_depends_on_replies() {
    let mut world = World::new();
    for index in 0..10_000 {
        world.write(index * 2 * WSIZE, 64, 1);
    }
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let actions = world.poll_all();
    assert_eq!(actions.len(), 10_000, "no limit on requests");
    assert_eq!(world.writes.in_flight(), 10_000);
    actions.iter().for_each(|action| world.answer(action, 1));
    let last = world.poll_all();
    assert_eq!(last.len(), 1);
    world.answer(&last[0], 1);
    assert!(ticket.is_done());
}

#[test]
fn idle_files_leave_no_state() {
    let mut world = World::new();
    let open = world.writes.open(FILE);
    world.write(0, 100, 1);
    drop(world.writes.sync(FILE, EVERYTHING));
    let action = world.poll().unwrap();
    world.answer(&action, 1);
    assert_eq!(world.writes.close(open), Ok(()));
    assert!(world.writes.files.is_empty() && world.writes.requests.is_empty());
    world.writes.give_up(Demand { clean: u64::MAX, ..Demand::default() });
    assert!(world.writes.pages().is_empty());
    assert_eq!(world.user.used(), 0);
}
