//! The server lost uncommitted data: the fourth state of the 1994 paper.

use super::*;

/// Writes `len` bytes, acknowledged under verifier 1.
fn written(world: &mut World, len: u64) {
    world.write(0, len, 1);
    for action in world.poll_all() {
        world.answer(&action, 1);
    }
}

#[test]
fn another_verifier_in_a_commit_rewrites_synchronously() {
    let mut world = World::new();
    written(&mut world, 2 * WSIZE);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let commit = world.poll().unwrap();
    world.answer(&commit, 2);
    assert!(!ticket.is_done());
    assert_eq!((world.used(Kind::Uncommitted), world.used(Kind::Dirty) >= 2 * WSIZE), (0, true));
    for offset in [0, WSIZE] {
        world.now += Duration::from_secs(1);
        let action = world.poll().unwrap();
        assert_eq!(shape(std::slice::from_ref(&action)), [file_sync(offset, WSIZE)]);
        world.answer(&action, 2);
    }
    assert!(ticket.is_done());
    assert_eq!(world.poll_all(), [], "no COMMIT after synchronous WRITEs");
}

#[test]
fn another_verifier_in_a_write_shows_the_loss_at_once() {
    let mut world = World::new();
    written(&mut world, WSIZE);
    world.write(WSIZE, WSIZE, 2);
    let second = world.poll().unwrap();
    world.answer(&second, 2);
    let actions = world.poll_all();
    assert_eq!(shape(&actions), [file_sync(0, WSIZE)]);
    world.answer(&actions[0], 2);
    assert_eq!(world.writes.unstable_bytes(FILE), WSIZE, "data under the new verifier wait for their COMMIT");
}

#[test]
fn commit_that_the_old_server_answered_counts() {
    let mut world = World::new();
    written(&mut world, WSIZE);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let commit = world.poll().unwrap();
    // The server restarts after the COMMIT; another reply overtakes it.
    world.write(WSIZE, WSIZE, 2);
    let write = world.poll().unwrap();
    world.answer(&write, 2);
    world.answer(&commit, 1);
    assert!(ticket.is_done());
}

#[test]
fn failed_commit_rewrites_and_reports_the_error_of_the_rewriting() {
    let mut world = World::new();
    let mut open = world.writes.open(FILE);
    written(&mut world, 2 * WSIZE);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let WriteAction::Commit { id, .. } = world.poll().unwrap() else { panic!("no COMMIT") };
    world.writes.handle_committed(id, Err(RequestError::Failed(Errno::EIO)));
    world.now += Duration::from_secs(1);
    let first = world.poll().unwrap();
    world.answer(&first, 1);
    world.now += Duration::from_secs(1);
    let WriteAction::Write { id, .. } = world.poll().unwrap() else { panic!("no WRITE") };
    world.writes.handle_written(id, Err(RequestError::Failed(Errno::EIO)));
    assert!(ticket.is_done());
    assert_eq!(world.writes.take_error(&mut open), Err(Errno::EIO));
}

#[test]
fn commit_without_an_answer_is_sent_again() {
    let mut world = World::new();
    written(&mut world, WSIZE);
    world.writes.give_up(Demand { commit: true, ..Demand::default() });
    let WriteAction::Commit { id, .. } = world.poll().unwrap() else { panic!("no COMMIT") };
    world.writes.handle_committed(id, Err(RequestError::Retry));
    assert_eq!(shape(&world.poll_all()), [commit(0, WSIZE)]);
}

#[test]
fn rewriting_is_spread_over_time() {
    let settings = Settings { wsize: WSIZE, rewrite_rate: 8 * WSIZE, ..Settings::default() };
    let mut world = World::with(settings);
    written(&mut world, 1024 * WSIZE);
    world.writes.give_up(Demand { commit: true, ..Demand::default() });
    let commit = world.poll().unwrap();
    world.answer(&commit, 2);
    let mut seconds = [0; 16];
    while world.writes.unstable_bytes(FILE) > 0 {
        match world.poll() {
            Some(action) => {
                seconds[world.now.as_secs() as usize] += 1;
                world.answer(&action, 2);
            }
            None => world.now = world.writes.poll_timeout().unwrap(),
        }
    }
    for (second, requests) in seconds.iter().enumerate().take_while(|(_, requests)| **requests > 0) {
        // One more in the first second: the token bucket is full.
        assert!(*requests <= (8 << second) + 1, "second {second}: {requests}");
    }
    assert_eq!(seconds.iter().sum::<u64>(), 1024);
}

#[test]
fn new_data_do_not_wait_for_rewriting() {
    let settings = Settings { wsize: WSIZE, rewrite_rate: 1, ..Settings::default() };
    let mut world = World::with(settings);
    written(&mut world, 4 * WSIZE);
    world.writes.give_up(Demand { commit: true, ..Demand::default() });
    let commit = world.poll().unwrap();
    world.answer(&commit, 2);
    assert_eq!(shape(&world.poll_all()), [file_sync(0, WSIZE)]);
    world.write(8 * WSIZE, WSIZE, 3);
    assert_eq!(shape(&world.poll_all()), [unstable(8 * WSIZE, WSIZE)]);
}
