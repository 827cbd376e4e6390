//! Errors reach each description of the right file once.

use super::*;

fn failed(error: Errno) -> Result<Written, RequestError> {
    Err(RequestError::Failed(error))
}

fn id(action: WriteAction) -> RequestId {
    match action {
        WriteAction::Write { id, .. } | WriteAction::Commit { id, .. } => id,
    }
}

#[test]
fn error_is_reported_once_to_each_description_of_its_file() {
    let mut world = World::new();
    let (mut one, mut other) = (world.writes.open(FILE), world.writes.open(FILE));
    let mut innocent = world.writes.open(FileId(2));
    world.write(0, 100, 1);
    let ticket = world.writes.sync(FILE, EVERYTHING);
    let write = id(world.poll().unwrap());
    world.writes.handle_written(write, failed(Errno::ENOSPC));
    assert!(ticket.is_done(), "fsync must not hang");
    assert_eq!(world.writes.take_error(&mut one), Err(Errno::ENOSPC));
    assert_eq!(world.writes.take_error(&mut one), Ok(()));
    assert_eq!(world.writes.take_error(&mut innocent), Ok(()));
    assert_eq!(world.writes.take_error(&mut other), Err(Errno::ENOSPC));
    assert_eq!(world.writes.close(other), Ok(()));
    assert_eq!(world.writes.close(one), Ok(()));
}

#[test]
fn data_that_failed_are_dropped_and_later_writes_are_tried() {
    let mut world = World::new();
    let open = world.writes.open(FILE);
    world.write(0, WSIZE, 1);
    let write = id(world.poll().unwrap());
    world.writes.handle_written(write, failed(Errno::EDQUOT));
    assert_eq!(world.writes.pages_mut().read(FILE, 0..WSIZE), [Piece::Hole(0..WSIZE)]);
    assert_eq!(world.user.used(), 0);
    world.write(0, WSIZE, 2);
    let action = world.poll().unwrap();
    world.answer(&action, 1);
    assert_eq!(world.writes.close(open), Err(Errno::EDQUOT));
}

#[test]
fn write_that_came_after_a_failing_request_is_not_dropped() {
    let mut world = World::new();
    world.write(0, WSIZE, 1);
    let write = id(world.poll().unwrap());
    world.write(0, 10, 2);
    world.writes.handle_written(write, failed(Errno::EIO));
    assert_eq!(world.writes.unstable_bytes(FILE), 10);
    drop(world.writes.sync(FILE, EVERYTHING));
    assert_eq!(shape(&world.poll_all()), [file_sync(0, 10)]);
}

#[test]
fn error_after_the_last_close_reaches_the_next_open() {
    let mut world = World::new();
    let open = world.writes.open(FILE);
    world.write(0, WSIZE, 1);
    let write = id(world.poll().unwrap());
    assert_eq!(world.writes.close(open), Ok(()));
    world.writes.handle_written(write, failed(Errno::ESTALE));
    let mut late = world.writes.open(FILE);
    assert_eq!(world.writes.take_error(&mut late), Err(Errno::ESTALE));
}

#[test]
fn unreported_errors_are_bounded() {
    let mut world = World::new();
    for file in 0..2 * UNSEEN_ERRORS_MAX as u64 {
        world.write_with(FileId(file), 0, &[1; WSIZE as usize], Stability::Unstable);
        let write = id(world.poll().unwrap());
        world.writes.handle_written(write, failed(Errno::EIO));
    }
    assert_eq!(world.writes.files.len(), UNSEEN_ERRORS_MAX);
}

#[test]
fn server_that_writes_nothing_is_an_error() {
    let mut world = World::new();
    let mut open = world.writes.open(FILE);
    world.write(0, WSIZE, 1);
    let write = id(world.poll().unwrap());
    let written = Written { count: 0, stability: Stability::FileSync, verifier: [1; 8] };
    world.writes.handle_written(write, Ok(written));
    assert_eq!(world.writes.take_error(&mut open), Err(Errno::EIO));
    assert_eq!(world.poll_all(), []);
}

#[test]
fn count_beyond_the_request_is_cut() {
    let mut world = World::new();
    world.write(0, 2 * WSIZE, 1);
    let first = id(world.poll().unwrap());
    let written = Written { count: u32::MAX, stability: Stability::FileSync, verifier: [1; 8] };
    world.writes.handle_written(first, Ok(written));
    assert_eq!(world.writes.unstable_bytes(FILE), WSIZE);
}

#[test]
fn reply_to_an_unknown_request_changes_nothing() {
    let mut world = World::new();
    world.write(0, WSIZE, 1);
    let write = id(world.poll().unwrap());
    world.writes.handle_committed(write, Ok([1; 8]));
    world.writes.handle_written(RequestId(99), failed(Errno::EIO));
    assert_eq!(world.writes.unstable_bytes(FILE), WSIZE);
    let reply = Written { count: WSIZE as u32, stability: Stability::FileSync, verifier: [1; 8] };
    world.writes.handle_written(write, Ok(reply));
    assert_eq!(world.writes.unstable_bytes(FILE), 0, "the request was still known");
}
