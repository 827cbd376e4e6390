//! The memory for notifications of directory delegations.

use protocol::nfs4::callback::notify::notify_type;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::types::{Bitmap, Handle, Outcome};
use vfs::{Attributes, Before, Change, Device, FileKind, Timestamp};

use super::super::{DelegationKind, EntryChange, GrantRequest};
use super::callbacks::reachable;
use super::*;
use crate::state::tables::callback::Callback;
use crate::state::tables::notices::{ALL_BYTES_MAX, CLIENT_BYTES_MAX};
use crate::testing::drain;

/// Directories of each client: enough to reach its bound with full queues.
const DIRECTORIES: u64 = 200;
/// Changes that one delegation queues.
const GATHERED: u64 = 32;
const LONG: [u8; 255] = [b'n'; 255];

fn grant(world: &World, peer: &Peer, fileid: u64) -> Stateid {
    let kind = DelegationKind::Directory(Bitmap::of(&[notify_type::RENAME_ENTRY]));
    delegate(world, peer, fileid, kind)
}

/// Grants a delegation of this kind.
pub(super) fn delegate(world: &World, peer: &Peer, fileid: u64, kind: DelegationKind) -> Stateid {
    peer.client.set_reachable(true);
    let inner = vfs::Handle::new(&fileid.to_be_bytes()).unwrap();
    let request = GrantRequest {
        times: None,
        kind,
        checked_access: 0,
        opener: 0,
        change: 0,
        handle: Handle::new(&[1]).unwrap(),
        inner,
        epoch: world.state.change_epoch(&inner),
        reclaim: false,
    };
    world.state.grant_delegation(world.now, &peer.client, file(fileid), &request, None, None).unwrap()
}

/// Renames an entry of the directory as another client.
fn rename(world: &World, fileid: u64, nth: u64) {
    let time = Timestamp::default();
    let before = Before { size: 0, modified: time, changed: time, change: nth };
    let after = Attributes {
        kind: FileKind::Directory,
        mode: 0o755,
        links: 2,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: Device::default(),
        fsid: 1,
        fileid,
        accessed: time,
        modified: time,
        changed: time,
        created: None,
        change: nth + 1,
    };
    let change = Change { before, after, atomic: true };
    let entries = EntryChange::Renamed { from: &LONG, to: &LONG, replaced: true };
    world.state.notify_entry_change(world.now, None, file(fileid), &change, &entries);
}

fn recalls(world: &World) -> u64 {
    world.state.delegation_counts().recalls.load(std::sync::atomic::Ordering::Relaxed)
}

/// Grants the client delegations of all its directories, and fills their queues.
fn fill(world: &World, peer: &Peer, client: u64) {
    for directory in 0..DIRECTORIES {
        let fileid = client * DIRECTORIES + directory;
        grant(world, peer, fileid);
        (0..GATHERED).for_each(|nth| rename(world, fileid, nth));
        assert!(peer.client.holdings.notices.bytes() <= CLIENT_BYTES_MAX);
        assert!(world.state.gauges.notices.bytes() <= ALL_BYTES_MAX);
    }
}

#[test]
fn one_clients_unconfirmed_changes_are_bounded() {
    let world = World::new();
    let (silent, other) = (world.peer("silent"), world.peer("other"));
    fill(&world, &silent, 0);
    let lost = recalls(&world);
    assert!(lost > 0, "not all gathers that its directories might let");
    assert!(lost < DIRECTORIES / 2, "those before the bound are kept");
    grant(&world, &other, 10_000);
    (0..GATHERED).for_each(|nth| rename(&world, 10_000, nth));
    assert_eq!(recalls(&world), lost);
}

#[test]
fn unconfirmed_changes_are_bounded_over_all_clients() {
    let world = World::new();
    let peers: Vec<Peer> = (0..6).map(|n| world.peer(&format!("silent {n}"))).collect();
    (0..).zip(&peers).for_each(|(client, peer)| fill(&world, peer, client));
    assert!(world.state.gauges.notices.bytes() > ALL_BYTES_MAX / 2);
    let own: usize = peers.iter().map(|peer| peer.client.holdings.notices.bytes()).sum();
    assert_eq!(own, world.state.gauges.notices.bytes());
}

#[test]
fn queued_changes_are_released_with_their_delegation() {
    let world = World::new();
    let peer = world.peer("silent");
    let stateid = grant(&world, &peer, 1);
    (0..GATHERED / 2).for_each(|nth| rename(&world, 1, nth));
    assert!(world.state.gauges.notices.bytes() > 0);
    world.state.return_delegation(world.now, &peer.client, file(1), &stateid).unwrap();
    assert_eq!((world.state.gauges.notices.bytes(), peer.client.holdings.notices.bytes()), (0, 0));

    grant(&world, &peer, 2);
    (0..GATHERED / 2).for_each(|nth| rename(&world, 2, nth));
    // It is being returned: only a callback in progress is kept.
    world.state.recall_directory(world.now, file(2));
    assert!(peer.client.holdings.notices.bytes() <= 2048 * 2);
}

/// Answers callbacks as long as there are any; returns the number of CB_NOTIFY.
fn obey(world: &World, peer: &Peer, mut calls: Vec<crate::testing::Call>) -> usize {
    let mut notices = 0;
    while !calls.is_empty() {
        for call in &calls {
            let result = match call.operation() {
                CbOp::Notify(_) => CbOpResult::Notify(Outcome::Ok(())),
                CbOp::Recall(_) => CbOpResult::Recall(Outcome::Ok(())),
                _ => CbOpResult::RecallAny(Outcome::Ok(())),
            };
            notices += usize::from(matches!(result, CbOpResult::Notify(_)));
            assert!(world.state.callback_replied(peer.connection, &world.outbox, call.results(result)));
        }
        calls = drain(&world.outbox);
    }
    notices
}

#[test]
fn queued_callbacks_of_returned_delegations_count_and_are_not_sent() {
    let mut world = World::new();
    let peer = reachable(&mut world, "silent");
    // As many calls as the client accepts at once.
    (0..16).for_each(|number| world.state.call(&peer.client, Callback::recall_any(number)));
    let calls = drain(&world.outbox);
    assert_eq!(calls.len(), 16);
    // The notification of the delegation that it keeps waits before those of the returned ones.
    grant(&world, &peer, 1);
    rename(&world, 1, 0);
    for fileid in 2..6000 {
        let stateid = grant(&world, &peer, fileid);
        rename(&world, fileid, 0);
        world.state.return_delegation(world.now, &peer.client, file(fileid), &stateid).unwrap();
    }
    let (waiting, counted) =
        (peer.client.calls.lock().notices_waiting(), peer.client.holdings.notices.bytes());
    // Three names each.
    assert!(waiting * 3 * LONG.len() <= counted, "{waiting} wait, and count {counted} bytes");
    assert!(counted <= CLIENT_BYTES_MAX);
    assert_eq!(obey(&world, &peer, calls), 1, "no client holds the other directories");
    assert_eq!((world.state.gauges.notices.bytes(), peer.client.holdings.notices.bytes()), (0, 0));
}

#[test]
fn one_waiting_notification_detects_the_lost_path() {
    let mut world = World::new();
    let peer = reachable(&mut world, "silent");
    (0..17).for_each(|number| world.state.call(&peer.client, Callback::recall_any(number)));
    for fileid in 0..20 {
        grant(&world, &peer, fileid);
        rename(&world, fileid, 0);
    }
    let mut offered = Vec::new();
    let mut calls = peer.client.calls.lock();
    assert_eq!(calls.notices_waiting(), 20);
    calls.offer(|callback| {
        offered.push(callback.is_notice());
        Some(callback)
    });
    assert_eq!(offered, [false, true], "a recall, and a notice");
    assert_eq!(calls.notices_waiting(), 20);
    drop(calls);
    assert_eq!(obey(&world, &peer, drain(&world.outbox)), 20);
}
