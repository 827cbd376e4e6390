//! Reports of local changes, before, during and after the delegation.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};

use vfs::{ChangeListener, Watch};

use super::super::{
    ChangeNotifier, DelegationKind, DelegationWatch, ExternalChange, GrantRequest, NotDelegated,
};
use super::*;

/// Its reference count is the number of watches.
#[derive(Debug)]
struct TestWatch(#[allow(dead_code, reason = "held to be counted")] Arc<()>);

impl Watch for TestWatch {}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn lookout(notifier: &Arc<ChangeNotifier>, watches: &Arc<()>) -> Option<DelegationWatch> {
    Some(DelegationWatch::new(Arc::clone(notifier), Box::new(TestWatch(Arc::clone(watches)))))
}

fn request(world: &World, reclaim: bool) -> GrantRequest {
    let inner = vfs::Handle::new(&[1]).unwrap();
    GrantRequest {
        times: None,
        kind: DelegationKind::Read,
        checked_access: 1,
        opener: 0,
        change: 7,
        handle: Handle::new(&[1]).unwrap(),
        inner,
        epoch: world.state.change_epoch(&inner),
        reclaim,
    }
}

fn next(world: &World) -> Option<ExternalChange> {
    world.state.next_external_change()
}

fn recalls(world: &World) -> (u64, u64) {
    let counts = world.state.delegation_counts();
    (counts.recalls.load(Relaxed), counts.local_changes.load(Relaxed))
}

#[test]
fn a_local_change_is_reported_once_and_wakes_the_driver() {
    let (world, watches) = (World::new(), Arc::default());
    let peer = world.peer("holder");
    peer.client.set_reachable(true);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    world.state.work_signal().register(&waker);
    let notifier = world.state.change_notifier(&peer.client, file(1));
    world
        .state
        .grant_delegation(
            world.now,
            &peer.client,
            file(1),
            &request(&world, false),
            None,
            lookout(&notifier, &watches),
        )
        .unwrap();
    for _ in 0..1000 {
        notifier.notify();
    }
    assert_eq!(woken.0.load(Relaxed), 1);
    let change = next(&world).expect("it has rung");
    assert_eq!(next(&world), None, "once for all");
    world.state.recall_for(world.now, &change);
    world.state.recall_for(world.now, &change);
    assert_eq!(recalls(&world), (1, 1));
    world.state.audit().unwrap();
}

#[test]
fn a_change_before_the_grant_prevents_it() {
    let (world, watches) = (World::new(), Arc::default());
    let peer = world.peer("holder");
    peer.client.set_reachable(true);
    let notifier = world.state.change_notifier(&peer.client, file(1));
    let lookout = lookout(&notifier, &watches);
    notifier.notify();
    // The recall may come before the grant is complete.
    world.state.recall_for(world.now, &next(&world).unwrap());
    let refused = world.state.grant_delegation(
        world.now,
        &peer.client,
        file(1),
        &request(&world, false),
        None,
        lookout,
    );
    assert_eq!(refused, Err(NotDelegated::Contention));
    assert_eq!((recalls(&world), world.state.counts().delegations), ((0, 0), 0));
    assert_eq!(Arc::strong_count(&watches), 1, "the watch has ended");
    world.state.audit().unwrap();
}

#[test]
fn a_reclaimed_delegation_of_a_changed_file_is_recalled_at_once() {
    let (world, watches) = (World::with(&settings(), &["holder"]), Arc::default());
    let peer = world.fresh_peer("holder", 1);
    let notifier = world.state.change_notifier(&peer.client, file(1));
    let lookout = lookout(&notifier, &watches);
    notifier.notify();
    world.state.recall_for(world.now, &next(&world).unwrap());
    // RFC 8881 §10.2.1 grants reclaimed delegations, even if they are recalled at once.
    world
        .state
        .grant_delegation(world.now, &peer.client, file(1), &request(&world, true), None, lookout)
        .unwrap();
    assert_eq!(recalls(&world).0, 1);
}

#[test]
fn a_reclaimed_delegation_is_granted_beside_a_change_and_recalled_at_once() {
    // Operations that know their file only by name may change any file.
    for is_named in [true, false] {
        let world = World::with(&settings(), &["holder"]);
        let peer = world.fresh_peer("holder", 1);
        let inner = vfs::Handle::new(&[1]).unwrap();
        let change = if is_named {
            Some(world.state.begin_change(&inner))
        } else {
            world.state.begin_unnamed_change()
        };
        assert!(change.is_some());
        let looked = request(&world, true);
        world.state.grant_delegation(world.now, &peer.client, file(1), &looked, None, None).unwrap();
        assert_eq!((recalls(&world).0, world.state.counts().delegations), (1, 1), "named: {is_named}");
        drop(change);
        world.state.audit().unwrap();
    }
}

#[test]
fn a_change_through_the_server_before_the_grant_prevents_it() {
    let world = World::new();
    let peer = world.peer("holder");
    peer.client.set_reachable(true);
    let delegate = |request: &GrantRequest| {
        world.state.grant_delegation(world.now, &peer.client, file(1), request, None, None)
    };
    let looked = request(&world, false);
    drop(world.state.begin_change(&looked.inner));
    assert_eq!(delegate(&looked), Err(NotDelegated::Contention));
    assert_eq!(world.state.counts().delegations, 0);
    // Another check, after the change.
    delegate(&request(&world, false)).unwrap();
    world.state.audit().unwrap();
}

#[test]
fn a_late_report_does_not_recall_a_new_delegation() {
    let (world, watches) = (World::new(), Arc::default());
    let peer = world.peer("holder");
    peer.client.set_reachable(true);
    let notifier = world.state.change_notifier(&peer.client, file(1));
    let grant = |notifier| {
        let lookout = lookout(notifier, &watches);
        world
            .state
            .grant_delegation(world.now, &peer.client, file(1), &request(&world, false), None, lookout)
            .unwrap()
    };
    let first = grant(&notifier);
    notifier.notify();
    world.state.return_delegation(world.now, &peer.client, file(1), &first).unwrap();
    assert_eq!(Arc::strong_count(&watches), 1, "the watch ends with the delegation");
    grant(&world.state.change_notifier(&peer.client, file(1)));
    world.state.recall_for(world.now, &next(&world).unwrap());
    assert_eq!(recalls(&world), (0, 0));
    world.state.audit().unwrap();
}

#[test]
fn watches_end_with_their_client() {
    let (world, watches) = (World::new(), Arc::default());
    let peer = world.peer("holder");
    peer.client.set_reachable(true);
    for fileid in 0..10 {
        let notifier = world.state.change_notifier(&peer.client, file(fileid));
        let lookout = lookout(&notifier, &watches);
        world
            .state
            .grant_delegation(world.now, &peer.client, file(fileid), &request(&world, false), None, lookout)
            .unwrap();
    }
    assert_eq!(Arc::strong_count(&watches), 11);
    assert!(world.state.may_hide_changes(&peer.client));
    world.state.evict(peer.client.id()).unwrap();
    assert_eq!(Arc::strong_count(&watches), 1);
    assert!(!world.state.may_hide_changes(&peer.client));
}
