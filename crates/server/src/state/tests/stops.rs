//! The clients that the next server waits for after an orderly stop.

use std::future::Future;

use protocol::nfs4::types::Bitmap;

use super::notices::delegate;
use super::restarts::Site;
use super::*;
use crate::state::DelegationKind;

impl Site {
    /// Stops the server in order and starts another one. Returns the clients that it waits for.
    fn stop_and_start(&mut self) -> Vec<Bytes> {
        self.world.state.prepare_restart(self.world.now);
        self.restart();
        self.waited_for()
    }
}

/// Clients without state: idle since RECLAIM_COMPLETE, everything closed, and version 4.0 with everything closed.
fn idle_clients(site: &Site) {
    site.world.peer("idle");
    let closed = site.world.peer("closed");
    let open = site.world.open(&closed, 1, "o", BOTH);
    site.world.lock(&closed, &(1, open), "l", LockType::Write, range(0, 9)).unwrap();
    site.world.close(&closed, 1, &open).unwrap();
    let mut old = site.world.peer0("old", 1);
    let open = site.world.open0(&mut old, 1, "o");
    site.world.close0(&mut old, 1, &open);
}

#[test]
fn no_grace_period_follows_an_orderly_stop_without_holders() {
    let mut site = Site::new();
    idle_clients(&site);
    assert_eq!(site.disk.clients(), 3, "each might have got state at any moment");
    assert!(site.stop_and_start().is_empty());
    assert_eq!(site.disk.clients(), 0);
    let stranger = site.world.peer("stranger");
    let open = site.world.open(&stranger, 1, "o", BOTH);
    site.world.lock(&stranger, &(1, open), "l", LockType::Write, range(0, 9)).unwrap();
    let mut old = site.world.peer0("old", 1);
    site.world.open0(&mut old, 2, "o");
}

#[test]
fn a_client_without_state_returns_without_an_error() {
    for holder in [false, true] {
        let mut site = Site::new();
        idle_clients(&site);
        if holder {
            let holder = site.world.peer("holder");
            site.world.open(&holder, 9, "o", BOTH);
        }
        site.stop_and_start();
        // RFC 8881 §18.51.3: the client sends RECLAIM_COMPLETE "even if there are no reclaims to be done".
        let mut idle = site.world.fresh_peer("idle", 1);
        assert_eq!(idle.ping(&site.world), SequenceStatus::empty(), "nothing has to be reclaimed");
        assert_eq!(site.world.try_open(&idle, 1, "o", READ, NONE), Err(Status::GRACE), "it comes first");
        assert_eq!(site.world.state.reclaim_complete(&idle.client), Ok(()));
        let opened = site.world.try_open(&idle, 1, "o", READ, NONE).map(drop);
        assert_eq!(opened, if holder { Err(Status::GRACE) } else { Ok(()) });
        assert_eq!(site.reclaim(&idle, 2), Err(Status::NO_GRACE));
        let open = if holder {
            site.come_back("holder", &[9]);
            site.world.open(&idle, 1, "o", READ)
        } else {
            opened.unwrap();
            site.world.open(&idle, 1, "p", READ)
        };
        site.world.close(&idle, 1, &open).unwrap();
    }
}

#[test]
fn others_wait_until_the_last_holder_has_reclaimed() {
    let mut site = Site::new();
    idle_clients(&site);
    let holder = site.world.peer("holder");
    let open = site.world.open(&holder, 1, "o", BOTH);
    site.world.lock(&holder, &(1, open), "l", LockType::Write, range(0, 9)).unwrap();
    let mut old = site.world.peer0("old holder", 1);
    site.world.open0(&mut old, 2, "o");
    assert_eq!(site.stop_and_start(), ["holder", "old holder"]);
    let stranger = site.world.peer("stranger");
    let try_open = |site: &Site| site.world.try_open(&stranger, 3, "o", READ, NONE).map(drop);
    assert_eq!(try_open(&site), Err(Status::GRACE));
    site.come_back("holder", &[1]);
    assert_eq!(try_open(&site), Err(Status::GRACE));
    let old = site.world.peer0("old holder", 1);
    site.reclaim0(&old, 2).unwrap();
    (0..3).for_each(|_| _ = site.ask0(&old));
    assert_eq!(try_open(&site), Ok(()), "the last holder has reclaimed");
}

#[test]
fn the_server_waits_for_all_clients_after_a_crash() {
    let mut site = Site::new();
    idle_clients(&site);
    site.restart();
    assert_eq!(site.waited_for(), ["closed", "idle", "old"]);
}

#[test]
fn unfinished_reclaims_continue_after_an_orderly_stop() {
    let mut site = Site::new();
    for name in ["away", "back"] {
        let peer = site.world.peer(name);
        site.world.open(&peer, 1, name, BOTH);
    }
    site.restart();
    // It has a session, and has reclaimed nothing.
    site.world.fresh_peer("back", 1);
    assert_eq!(site.stop_and_start(), ["away", "back"]);
    site.come_back("away", &[1]);
    site.come_back("back", &[1]);
    assert_eq!(site.stop_and_start(), ["away", "back"]);
}

#[test]
fn the_server_does_not_wait_for_absent_clients_after_an_orderly_stop() {
    let mut site = Site::after_a_had_one_open();
    // No request arrives after the end of the period.
    site.world.pass(LEASE);
    assert!(site.stop_and_start().is_empty());
    let a = site.world.fresh_peer("a", 1);
    assert_eq!(site.reclaim(&a, 1), Err(Status::NO_GRACE));
}

#[test]
fn the_server_does_not_wait_for_clients_with_lost_state_only() {
    let mut site = Site::new();
    let (a, b) = (site.world.peer("a"), site.world.peer("b"));
    for (peer, fileids) in [(&a, &[1][..]), (&b, &[2, 3])] {
        for fileid in fileids {
            let open = site.world.open(peer, *fileid, "o", BOTH);
            if *fileid < 3 {
                site.world.state.revoke(&peer.client, &open).unwrap();
            }
        }
    }
    assert_eq!(site.stop_and_start(), ["b"]);
    let b = site.world.fresh_peer("b", 1);
    assert_eq!(site.reclaim(&b, 2), Err(Status::NO_GRACE), "lost state remains lost");
    assert!(site.reclaim(&b, 3).is_ok());
}

#[test]
fn the_server_waits_for_holders_of_reclaimable_delegations() {
    let mut site = Site::new();
    for (name, kind) in [
        ("reader", DelegationKind::Read),
        ("writer", DelegationKind::Write),
        ("lister", DelegationKind::Directory(Bitmap::default())),
    ] {
        let peer = site.world.peer(name);
        delegate(&site.world, &peer, name.len() as u64 + u64::from(name == "writer"), kind);
    }
    assert_eq!(site.stop_and_start(), ["reader", "writer"]);
}

#[test]
fn a_stop_waits_until_removed_records_are_durable() {
    let site = Site::new();
    site.world.peer("idle");
    site.disk.slow_down();
    let (reclaimers, change) = site.world.state.prepare_restart(site.world.now);
    assert_eq!(reclaimers.count, 0);
    let mut settled = std::pin::pin!(site.world.state.wait_durable(change, vfs::Thread::Shared));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(settled.as_mut().poll(&mut context).is_pending());
    site.disk.sync();
    assert!(settled.as_mut().poll(&mut context).is_ready());
}
