use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use super::*;

/// Four threads send each request at once, as over four connections: one of them executes it.
#[test]
fn a_request_sent_by_many_threads_is_executed_once() {
    const REQUESTS: u32 = 500;
    let world = World::new();
    let peer = world.peer("a");
    let executed: Vec<AtomicU32> = (0..=REQUESTS).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for connection in 0..4 {
            let (world, executed, session) = (&world, &executed, peer.session);
            scope.spawn(move || {
                for sequence_id in 1..=REQUESTS {
                    let arguments = SequenceArgs {
                        session_id: session,
                        sequence_id,
                        slot_id: 0,
                        highest_slot_id: 0,
                        cache_this: true,
                    };
                    send_until_answered(
                        world,
                        ConnectionId(connection),
                        &arguments,
                        &executed[sequence_id as usize],
                    );
                }
            });
        }
    });
    assert!(executed[1..].iter().all(|count| count.load(Relaxed) == 1));
}

fn send_until_answered(
    world: &World,
    connection: ConnectionId,
    arguments: &SequenceArgs,
    executed: &AtomicU32,
) {
    loop {
        match world.state.sequence(world.now, connection, arguments, 0) {
            Ok(Sequenced::New(running)) => {
                executed.fetch_add(1, Relaxed);
                running.finish(world.now, Some(&arguments.sequence_id.to_be_bytes()));
                return;
            }
            Ok(Sequenced::Replay(replay)) => {
                assert_eq!(replay.reply.as_deref(), Some(&arguments.sequence_id.to_be_bytes()[..]));
                return;
            }
            Err(Status::DELAY) => thread::yield_now(),
            // The other threads have received this reply and continue.
            Err(Status::SEQ_MISORDERED) => return,
            Err(status) => panic!("SEQUENCE: {status:?}"),
        }
    }
}

/// Clients open, lock, conflict, restart and leave concurrently; in the end no state is left.
#[test]
fn concurrent_clients_leave_no_state() {
    let world = World::new();
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..60u64 {
                    let peer = world.fresh_peer(&format!("client {thread}"), round as u8);
                    world.state.reclaim_complete(&peer.client).unwrap();
                    for fileid in 0..8 {
                        let owner = format!("owner {}", (round + fileid) % 3);
                        let deny = if fileid == 3 { ShareDeny::BOTH } else { NONE };
                        let Ok(grant) = world.try_open(&peer, fileid, &owner, BOTH, deny) else { continue };
                        let open = (fileid, grant.stateid);
                        // It may be denied because of the other threads.
                        let _ = world.lock(&peer, &open, "l", LockType::Write, range(round % 5 * 10, 20));
                        if fileid % 2 == 0 {
                            world.close(&peer, fileid, &open.1).unwrap();
                        }
                    }
                }
                let id = world.exchange(&format!("client {thread}"), 255, &ROOT).unwrap();
                world
                    .create(id.client_id, id.sequence_id, thread)
                    .map(|created| {
                        world.state.destroy_session(ConnectionId(thread), &created.session_id).unwrap();
                        world.state.destroy_client(world.now, id.client_id, None).unwrap();
                    })
                    .unwrap();
            });
        }
    });
    assert_eq!(world.state.counts(), Default::default());
    assert_eq!(world.pinned(), 0);
    assert!(world.state.shards.iter().all(|shard| shard.lock().is_empty()));
}
