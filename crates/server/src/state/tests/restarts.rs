//! Reclaims over several servers in turn with one log (RFC 8881 §8.4.2 to §8.4.3).

use super::owners::{Peer0, root};
use super::*;
use crate::state::tables::wire::NetAddress;
use crate::state::{CallbackClient, MemoryLog, SetClientId, SetClientIdError, V40Caller};

/// A log, and the servers that use it in turn.
pub(super) struct Site {
    pub(super) disk: Arc<MemoryLog>,
    pub(super) world: World,
    settings: Settings,
}

impl Site {
    pub(super) fn new() -> Self {
        let disk = Arc::new(MemoryLog::default());
        let settings = settings();
        Self { world: World::after(&settings, disk.records()), disk, settings }
    }

    /// Returns a server that was killed while its client `a` had file 1 open, and the next server.
    pub(super) fn after_a_had_one_open() -> Self {
        let mut site = Self::new();
        let a = site.world.peer("a");
        site.world.open(&a, 1, "o", BOTH);
        site.restart();
        site
    }

    /// Kills the server and starts another one.
    pub(super) fn restart(&mut self) {
        self.settings.instance += 1;
        self.world = World::after(&self.settings, self.disk.records());
    }

    pub(super) fn in_grace(&self) -> bool {
        self.world.state.in_grace(self.world.now)
    }

    /// Returns the clients that the grace period waits for; empty outside of it.
    pub(super) fn waited_for(&self) -> Vec<Bytes> {
        let grace = self.world.state.snapshot_grace(self.world.now, usize::MAX);
        assert_eq!(grace.is_some(), self.in_grace());
        grace.map(|grace| grace.waiting_for.names).unwrap_or_default()
    }

    pub(super) fn end_grace(&mut self) {
        self.world.pass(LEASE);
        assert!(!self.in_grace());
    }

    pub(super) fn reclaim(&self, peer: &Peer, fileid: u64) -> Result<Stateid, Status> {
        self.reclaim_as(&peer.client, fileid)
    }

    fn reclaim_as(&self, client: &Arc<Client>, fileid: u64) -> Result<Stateid, Status> {
        let (owner, pin) = (Arc::from(b"o".as_slice()), self.world.pin.clone());
        let (file, access, deny) = (file(fileid), BOTH, NONE);
        let request =
            OpenRequest { file, owner, opener: 0, access, deny, truncates: false, reclaim: true, pin };
        self.world.state.open(self.world.now, client, request).map(|grant| grant.stateid)
    }

    pub(super) fn complete(&self, peer: &Peer) {
        self.world.state.reclaim_complete(&peer.client).unwrap();
    }

    /// Returns as the client, reclaims these files, and completes.
    pub(super) fn come_back(&self, name: &str, files: &[u64]) -> Peer {
        let peer = self.world.fresh_peer(name, 1);
        for fileid in files {
            self.reclaim(&peer, *fileid).unwrap_or_else(|status| panic!("{name}, {fileid}: {status:?}"));
        }
        self.complete(&peer);
        peer
    }

    /// Returns the files among these that a client may reclaim after another restart.
    fn after_restart(&mut self, name: &str, files: &[u64]) -> Vec<Result<(), Status>> {
        self.restart();
        let peer = self.world.fresh_peer(name, 1);
        files.iter().map(|fileid| self.reclaim(&peer, *fileid).map(drop)).collect()
    }

    /// Returns whether replies to a client, and to all clients, wait.
    pub(super) fn waits(&self, client: &Client) -> (bool, bool) {
        let state = &self.world.state;
        (state.pending_change(Some(client)).is_some(), state.pending_change(None).is_some())
    }
}

const REFUSED: Result<(), Status> = Err(Status::NO_GRACE);

#[test]
fn a_client_is_recorded_once_when_it_may_hold_state() {
    let site = Site::new();
    let before = site.disk.changes();
    let peer = site.world.fresh_peer("a", 1);
    assert_eq!((site.disk.clients(), site.disk.changes()), (0, before), "it may not open anything");
    site.disk.slow_down();
    site.complete(&peer);
    assert_eq!(site.waits(&peer.client), (true, false), "its answer waits until its record is durable");
    site.world.open(&peer, 1, "o", BOTH);
    assert_eq!(site.waits(&peer.client), (true, false), "and of an open that comes with it");
    site.disk.sync();
    assert_eq!(site.waits(&peer.client), (false, false));
    site.world.open(&peer, 2, "o", BOTH);
    assert_eq!(site.waits(&peer.client), (false, false));
    assert_eq!((site.disk.clients(), site.disk.changes()), (1, before + 1));
}

#[test]
fn holders_are_waited_for_and_reclaim() {
    let mut site = Site::new();
    let (a, b) = (site.world.peer("a"), site.world.peer("b"));
    site.world.open(&a, 1, "o", BOTH);
    site.world.open(&b, 2, "o", BOTH);
    for _ in 0..3 {
        site.restart();
        assert_eq!(site.waited_for(), ["a", "b"]);
        let stranger = site.world.peer("c");
        assert_eq!(site.world.try_open(&stranger, 3, "o", READ, NONE), Err(Status::GRACE));
        site.come_back("a", &[1]);
        assert!(site.in_grace());
        site.come_back("b", &[2]);
        assert!(!site.in_grace(), "the last one has completed");
        site.world.open(&stranger, 3, "o", READ);
        site.world.state.evict(stranger.client.id()).unwrap();
    }
}

#[test]
fn possible_holders_are_waited_for() {
    let mut site = Site::new();
    for name in ["idle", "a"] {
        site.world.peer(name);
    }
    site.world.fresh_peer("new", 1);
    for _ in 0..3 {
        site.restart();
        assert_eq!(site.waited_for(), ["a", "idle"]);
        let a = site.come_back("a", &[]);
        assert_eq!(site.world.try_open(&a, 1, "o", READ, NONE), Err(Status::GRACE));
        site.come_back("idle", &[]);
        assert!(!site.in_grace(), "as soon as all have completed");
        site.world.open(&a, 1, "o", READ);
    }
}

#[test]
fn a_crash_in_the_grace_period_keeps_the_records() {
    let mut site = Site::new();
    for name in ["a", "b"] {
        let peer = site.world.peer(name);
        site.world.open(&peer, 1, name, BOTH);
        site.world.open(&peer, 2, name, BOTH);
    }
    site.restart();
    site.come_back("a", &[1]);
    // The server is killed before b returns, after a has completed without reclaiming file 2: whether a asks for it again is up to
    // the client.
    assert_eq!(site.after_restart("b", &[1, 2]), [Ok(()), Ok(())]);
    site.come_back("a", &[1]);
}

#[test]
fn files_with_lost_state_are_not_reclaimed_and_others_are() {
    let mut site = Site::new();
    let a = site.world.peer("a");
    for fileid in [1, 2] {
        let open = site.world.open(&a, fileid, "o", BOTH);
        site.world.lock(&a, &(fileid, open), "l", LockType::Write, range(0, 9)).unwrap();
    }
    site.world.pass(LEASE);
    let b = site.world.peer("b");
    let of_b = site.world.open(&b, 1, "o", BOTH);
    site.disk.slow_down();
    let lock = site.world.lock(&b, &(1, of_b), "l", LockType::Write, range(0, 9)).unwrap();
    assert_eq!(site.waits(&b.client), (true, true), "no answer is sent before the losses are durable");
    site.disk.sync();
    assert_eq!(site.waits(&b.client), (false, false));
    // The first edge condition: b releases it before the restart.
    site.world.state.unlock(site.world.now, &b.client, file(1), &lock, range(0, 9)).unwrap();
    site.world.close(&b, 1, &of_b).unwrap();
    assert_eq!(site.after_restart("a", &[1, 2]), [REFUSED, Ok(())]);
    // And again, as long as it has not acknowledged the loss.
    assert_eq!(site.after_restart("a", &[1, 2]), [REFUSED, Ok(())]);
}

#[test]
fn state_obtained_after_an_acknowledged_loss_is_reclaimed() {
    let mut site = Site::new();
    let a = site.world.peer("a");
    let lost = site.world.open(&a, 1, "o", BOTH);
    let kept = site.world.open(&a, 2, "o", BOTH);
    site.world.state.revoke(&a.client, &lost).unwrap();
    site.world.open(&a, 1, "p", READ);
    assert_eq!(site.world.state.free_stateid(&a.client, &lost), Ok(()));
    site.world.state.revoke(&a.client, &kept).unwrap();
    assert_eq!(site.after_restart("a", &[1, 2]), [Ok(()), REFUSED]);
    let a = site.come_back("a", &[1]);
    site.world.open(&a, 2, "o", BOTH);
    assert_eq!(site.after_restart("a", &[1, 2]), [Ok(()), Ok(())], "RECLAIM_COMPLETE acknowledges too");
}

#[test]
fn after_close_of_a_lost_lock_the_rest_of_the_file_is_reclaimed() {
    let mut site = Site::new();
    let a = site.world.peer("a");
    site.world.open(&a, 1, "o", BOTH);
    let closed = site.world.open(&a, 1, "p", BOTH);
    let lost = site.world.lock(&a, &(1, closed), "l", LockType::Write, range(0, 9)).unwrap();
    site.world.state.revoke(&a.client, &lost).unwrap();
    assert!(!site.world.state.recovery.may_reclaim(&a.client, file(1)), "while it may not know of the loss");
    site.world.close(&a, 1, &closed).unwrap();
    assert_eq!(site.after_restart("a", &[1]), [Ok(())]);
}

#[test]
fn losses_before_the_record_prevent_reclaims() {
    let mut site = Site::new();
    let a = site.world.peer("a");
    site.world.open(&a, 1, "o", BOTH);
    site.world.open(&a, 2, "o", BOTH);
    site.restart();
    let a = site.world.fresh_peer("a", 1);
    site.reclaim(&a, 1).unwrap();
    site.reclaim(&a, 2).unwrap();
    site.end_grace();
    assert_eq!(site.disk.clients(), 0, "it had not completed");
    let b = site.world.peer("b");
    let taken = site.world.try_open(&b, 1, "o", BOTH, ShareDeny::BOTH).unwrap().stateid;
    site.world.close(&b, 1, &taken).unwrap();
    site.complete(&a);
    assert_eq!(site.disk.clients(), 2);
    assert_eq!(site.after_restart("a", &[1, 2]), [REFUSED, REFUSED], "of which files it was is not known");
}

#[test]
fn too_many_losses_prevent_all_reclaims() {
    let mut site = Site::new();
    let a = site.world.peer("a");
    for fileid in 0..=65 {
        let open = site.world.open(&a, fileid, "o", BOTH);
        if fileid > 0 {
            site.world.state.revoke(&a.client, &open).unwrap();
        }
    }
    site.restart();
    assert!(!site.in_grace());
    assert_eq!(site.disk.clients(), 0);
}

#[test]
fn a_client_absent_for_two_restarts_reclaims_nothing() {
    for by_hand in [false, true] {
        let mut site = Site::new();
        let (a, b) = (site.world.peer("a"), site.world.peer("b"));
        site.world.open(&a, 1, "o", BOTH);
        site.world.open(&b, 2, "o", BOTH);
        site.restart();
        let b = site.come_back("b", &[2]);
        site.disk.slow_down();
        if by_hand {
            assert_eq!(site.world.state.end_grace(site.world.now), Some(1));
        } else {
            site.end_grace();
        }
        assert_eq!(site.waits(&b.client), (true, true), "others get a's lock only after that is durable");
        site.disk.sync();
        let taken = site.world.try_open(&b, 1, "o", BOTH, ShareDeny::BOTH).unwrap().stateid;
        site.world.close(&b, 1, &taken).unwrap();
        // The second edge condition.
        assert_eq!(site.after_restart("a", &[1]), [REFUSED]);
        site.come_back("b", &[2]);
        assert!(!site.in_grace());
    }
}

#[test]
fn without_reclaim_complete_nothing_is_reclaimed_after_the_next_restart() {
    let setup = || {
        let mut site = Site::new();
        let a = site.world.peer("a");
        site.world.open(&a, 1, "o", BOTH);
        site.world.open(&a, 2, "o", BOTH);
        site.restart();
        let a = site.world.fresh_peer("a", 1);
        site.reclaim(&a, 1).unwrap();
        site.end_grace();
        (site, a)
    };
    let (mut site, _) = setup();
    assert_eq!(site.after_restart("a", &[1, 2]), [REFUSED, REFUSED]);
    let (mut site, a) = setup();
    assert_eq!(site.reclaim(&a, 2), Err(Status::NO_GRACE));
    site.disk.slow_down();
    site.complete(&a);
    assert_eq!(site.waits(&a.client), (true, false), "its answer waits for its record");
    site.disk.sync();
    assert_eq!(site.after_restart("a", &[1]), [Ok(())]);
}

#[test]
fn the_server_does_not_wait_for_a_restarted_client() {
    let mut site = Site::after_a_had_one_open();
    let anew = site.world.fresh_peer("a", 2);
    assert!(!site.in_grace());
    assert_eq!(site.reclaim(&anew, 1), Err(Status::NO_GRACE));
    assert_eq!(site.disk.clients(), 0);
    site.complete(&anew);
    site.world.open(&anew, 1, "o", BOTH);
    assert_eq!(site.after_restart("a", &[1]), [REFUSED], "the state before that cannot be reclaimed either");
}

#[test]
fn another_principal_of_the_same_name_does_not_affect_reclaims() {
    let site = Site::after_a_had_one_open();
    let other = Principal::System(7);
    assert_eq!(site.world.exchange("a", 1, &other), Err(Status::CLID_INUSE));
    // A record that it should not have does not help either.
    let slots = Arc::clone(&site.world.state.slot_memory);
    let stranger = Client::new(77, Bytes::from_static(b"a"), [1; 8], other, slots, site.world.now);
    let (stranger, recovery) = (Arc::new(stranger), &site.world.state.recovery);
    assert!(!recovery.begin_reclaim(site.world.now, &stranger));
    assert_eq!(site.reclaim_as(&stranger, 1), Err(Status::NO_GRACE));
    site.world.state.reclaim_complete(&stranger).unwrap();
    assert!(site.in_grace(), "the former holder may still return");
    recovery.forget(&stranger);
    site.come_back("a", &[1]);
}

#[test]
fn a_name_is_reserved_while_its_principal_may_reclaim() {
    let others = [Principal::System(7), Principal::Anonymous, Principal::Gss(Bytes::from(vec![0; 5000]))];
    for ends in [true, false] {
        let mut site = Site::after_a_had_one_open();
        let b = site.world.exchange("b", 1, &others[0]).unwrap();
        site.world.create_as(&others[0], b.client_id, b.sequence_id, 9).unwrap();
        for (verifier, other) in
            [1, 2].into_iter().flat_map(|verifier| others.iter().map(move |it| (verifier, it)))
        {
            assert_eq!(site.world.exchange("a", verifier, other), Err(Status::CLID_INUSE), "{other:?}");
        }
        if ends {
            site.end_grace();
        } else {
            let a = site.come_back("a", &[1]);
            assert!(!site.in_grace());
            assert_eq!(site.world.exchange("a", 1, &others[0]), Err(Status::CLID_INUSE), "it is in use");
            site.world.state.evict(a.client.id()).unwrap();
        }
        let taken = site.world.exchange("a", 2, &others[0]).unwrap();
        assert!(site.world.create_as(&others[0], taken.client_id, taken.sequence_id, 9).is_ok());
    }
}

#[test]
fn an_expired_lease_in_the_grace_period_frees_the_name() {
    let mut site = Site::after_a_had_one_open();
    // Reclaims extend the period beyond a lease.
    let other = Principal::System(7);
    let a = site.world.fresh_peer("a", 1);
    site.world.state.destroy_session(a.connection, &a.session).unwrap();
    assert_eq!(site.world.exchange("a", 2, &other), Err(Status::CLID_INUSE), "it has not completed");
    site.world.pass(LEASE - SECOND);
    site.world.state.recovery.reclaims(site.world.now);
    site.world.pass(SECOND);
    assert!(site.in_grace());
    assert!(site.world.exchange("a", 2, &other).is_ok());
    assert!(!site.in_grace());
}

#[test]
fn clients_that_left_or_were_removed_are_not_waited_for() {
    let removals: [fn(&mut Site, &Peer); 5] = [
        |site, peer| assert!(site.world.state.evict(peer.client.id()).is_some()),
        |site, _| {
            site.world.pass(LEASE);
            site.world.state.remove_expired(site.world.now);
        },
        |site, _| {
            site.world.pass(Duration::from_secs(24 * 60 * 60));
            site.world.state.expire(site.world.now);
        },
        |site, _| drop(site.world.fresh_peer("a", 2)),
        |site, peer| {
            let (state, now) = (&site.world.state, site.world.now);
            for fileid in [1, 2] {
                let open = peer_open(site, peer, fileid);
                state.close(&peer.client, file(fileid), &open).unwrap();
            }
            state.destroy_session(peer.connection, &peer.session).unwrap();
            state.destroy_client(now, peer.client.id(), None).unwrap();
        },
    ];
    for (number, remove) in removals.into_iter().enumerate() {
        let mut site = Site::new();
        let a = site.world.peer("a");
        site.world.open(&a, 1, "o", BOTH);
        site.world.open(&a, 2, "o", BOTH);
        site.disk.slow_down();
        remove(&mut site, &a);
        let is_free = number == 4;
        assert_eq!(
            site.world.state.pending_change(None).is_none(),
            is_free,
            "{number}: others may have what it had"
        );
        assert_eq!(site.disk.clients(), 0, "{number}");
        site.restart();
        assert!(!site.in_grace(), "{number}");
    }
}

/// Returns the stateid of an existing open.
fn peer_open(site: &Site, peer: &Peer, fileid: u64) -> Stateid {
    site.world.open(peer, fileid, "o", BOTH)
}

#[test]
fn replies_wait_until_the_removal_of_a_reclaimer_is_durable() {
    let mut site = Site::new();
    for name in ["a", "b"] {
        let peer = site.world.peer(name);
        site.world.open(&peer, 1, "o", BOTH);
    }
    site.restart();
    site.come_back("b", &[1]);
    let a = site.world.fresh_peer("a", 1);
    site.disk.slow_down();
    site.world.state.evict(a.client.id()).unwrap();
    assert!(!site.in_grace());
    assert!(site.world.state.pending_change(None).is_some(), "its state is free from now on");
}

#[test]
fn long_idle_clients_are_not_waited_for() {
    let mut site = Site::new();
    let mut a = site.world.peer("a");
    let open = site.world.open(&a, 1, "o", BOTH);
    let sweep = |site: &mut Site, a: &mut Peer, seconds: u64| {
        for _ in 0..seconds {
            site.world.pass(SECOND);
            a.ping(&site.world);
            site.world.state.expire(site.world.now);
        }
    };
    sweep(&mut site, &mut a, 2 * LEASE.as_secs());
    assert_eq!(site.disk.clients(), 1, "it holds something");
    let mut open = open;
    for fileid in [2, 3] {
        site.world.close(&a, fileid - 1, &open).unwrap();
        sweep(&mut site, &mut a, LEASE.as_secs());
        assert_eq!(site.disk.clients(), 1, "it may open the next file in a moment");
        // Between two sweeps.
        open = site.world.open(&a, fileid, "o", BOTH);
    }
    site.world.close(&a, 3, &open).unwrap();
    sweep(&mut site, &mut a, LEASE.as_secs() + 1);
    assert_eq!(site.disk.clients(), 0);
    site.disk.slow_down();
    site.world.open(&a, 1, "o", BOTH);
    assert_eq!((site.disk.clients(), site.waits(&a.client)), (1, (true, false)));
    assert_eq!(site.after_restart("a", &[1]), [Ok(())]);
}

#[test]
fn reclaim_complete_without_state_keeps_the_record() {
    let mut site = Site::after_a_had_one_open();
    let before = site.disk.changes();
    let a = site.come_back("a", &[]);
    assert_eq!((site.in_grace(), site.disk.clients(), site.disk.changes()), (false, 1, before));
    site.disk.slow_down();
    site.world.open(&a, 2, "o", BOTH);
    assert_eq!(site.waits(&a.client), (false, false));
    assert_eq!(site.after_restart("a", &[2]), [Ok(())]);
}

#[test]
fn a_full_log_delays_new_clients_only() {
    let mut site = Site::new();
    let known = site.world.peer("known");
    site.world.open(&known, 1, "o", BOTH);
    site.disk.fill(true);
    let (clients, bytes) = (site.disk.clients(), site.disk.value_bytes());
    let new = site.world.peer("new");
    assert_eq!(site.world.try_open(&new, 2, "o", READ, NONE), Err(Status::DELAY));
    let new = site.client0(&site.world.peer0("new of version 4.0", 1));
    assert_eq!(site.world.state.admit_open(site.world.now, &new, b"o", false), Err(Status::DELAY));
    assert_eq!(site.disk.clients(), clients);
    site.world.open(&known, 3, "o", BOTH);
    // A recorded client stays recorded over a restart, and its losses do not lengthen the record.
    site.restart();
    let known = site.come_back("known", &[1, 3]);
    let state = &site.world.state;
    state.recovery.note_loss(&known.client, file(1));
    state.recovery.note_loss(&known.client, file(3));
    assert!(site.disk.value_bytes() <= bytes);
    assert_eq!(site.after_restart("known", &[1, 3]), [REFUSED, REFUSED]);
    // The log has room again: the delayed client opens its file, and can reclaim it.
    site.disk.fill(false);
    let new = site.world.peer("new");
    site.world.open(&new, 2, "o", READ);
    assert_eq!(site.after_restart("new", &[2]), [Ok(())]);
}

#[test]
fn the_period_is_as_long_as_the_longer_of_both_leases() {
    for (before, after) in [(LEASE, LEASE / 3), (LEASE / 3, LEASE)] {
        let mut site = Site::new();
        site.settings.lease = before;
        site.restart();
        let a = site.world.peer("a");
        site.world.open(&a, 1, "o", BOTH);
        site.settings.lease = after;
        site.restart();
        // RFC 8881 §8.4.2.1: "at least as long as the lease period for the previous server instantiation".
        site.world.pass(LEASE - SECOND);
        assert!(site.in_grace());
        site.world.pass(SECOND);
        assert!(!site.in_grace());
    }
}

/// Clients of version 4.0.
impl Site {
    pub(super) fn client0(&self, peer: &Peer0) -> Arc<Client> {
        self.world.state.named_client(self.world.now, peer.id).unwrap()
    }

    pub(super) fn renew0(&self, peer: &Peer0) {
        self.world.state.renewed(self.world.now, self.client0(peer).id(), root()).unwrap();
    }

    pub(super) fn ask0(&self, peer: &Peer0) -> Result<(), Status> {
        self.world.state.admit_open(self.world.now, &self.client0(peer), b"o", false)
    }

    /// Returns a restarted site with a version 4.0 client that held files 1 and 2.
    fn with_client0() -> (Self, Peer0) {
        let mut site = Self::new();
        let mut peer = site.world.peer0("a", 1);
        site.world.open0(&mut peer, 1, "o");
        site.world.open0(&mut peer, 2, "o");
        site.restart();
        assert!(site.in_grace());
        let peer = site.world.peer0("a", 1);
        (site, peer)
    }

    pub(super) fn reclaim0(&self, peer: &Peer0, fileid: u64) -> Result<(), Status> {
        self.reclaim_as(&self.client0(peer), fileid).map(drop)
    }
}

#[test]
fn a_v40_name_is_reserved_while_its_principal_may_reclaim() {
    let mut site = Site::new();
    let mut peer = site.world.peer0("a", 1);
    site.world.open0(&mut peer, 1, "o");
    site.restart();
    let (other, callback) = (Principal::System(7), CallbackClient::default());
    let take = |site: &Site, owner: &[u8]| {
        let request = SetClientId { owner, verifier: [9; 8], principal: &other, callback: &callback };
        let ok = site.world.state.set_client_id(site.world.now, &request)?;
        let (state, now) = (&site.world.state, site.world.now);
        state.confirm_client_id(now, ok.client_id, ok.confirm, &other).map_err(SetClientIdError::Status)
    };
    let in_use = || Some(SetClientIdError::InUse(NetAddress::default()));
    assert_eq!(take(&site, b"a").err(), in_use());
    assert!(take(&site, b"b").is_ok());
    let peer = site.world.peer0("a", 1);
    assert_eq!(take(&site, b"a").err(), in_use(), "it has reclaimed nothing yet");
    assert_eq!(site.reclaim0(&peer, 1), Ok(()));
    assert_eq!(take(&site, b"a").err(), in_use());
    site.restart();
    assert_eq!(take(&site, b"a").err(), in_use());
    site.end_grace();
    assert!(take(&site, b"a").is_ok());
}

#[test]
fn repeated_requests_for_new_state_complete_v40_reclaims() {
    let (site, peer) = Site::with_client0();
    assert_eq!(site.reclaim0(&peer, 1), Ok(()));
    assert_eq!(site.ask0(&peer), Err(Status::GRACE));
    assert_eq!(site.ask0(&peer), Err(Status::GRACE));
    assert_eq!(site.reclaim0(&peer, 2), Ok(()), "one of its threads has not done yet");
    assert_eq!(site.ask0(&peer), Err(Status::GRACE));
    site.renew0(&peer);
    assert_eq!(site.ask0(&peer), Err(Status::GRACE));
    assert_eq!(site.ask0(&peer), Ok(()));
    assert!(!site.in_grace());
    assert_eq!(site.reclaim0(&peer, 2), Err(Status::NO_GRACE));
    let mut site = site;
    site.restart();
    let peer = site.world.peer0("a", 1);
    assert_eq!(site.reclaim0(&peer, 1), Ok(()), "its record stays");
}

#[test]
fn a_v40_client_is_recorded_with_its_first_state() {
    let site = Site::new();
    let mut peer = site.world.peer0("a", 1);
    assert_eq!(site.disk.clients(), 0, "it has no RECLAIM_COMPLETE");
    site.disk.slow_down();
    site.world.open0(&mut peer, 1, "o");
    assert_eq!((site.disk.clients(), site.waits(&site.client0(&peer))), (1, (true, false)));
}

#[test]
fn a_v40_client_that_reclaims_nothing_loses_its_record() {
    let (mut site, peer) = Site::with_client0();
    for expected in [Err(Status::GRACE), Err(Status::GRACE), Ok(())] {
        assert_eq!(site.ask0(&peer), expected);
    }
    // It has not completed its reclaims: others may have held its state since.
    assert_eq!((site.in_grace(), site.disk.clients()), (false, 0));
    site.restart();
    let again = site.world.peer0("a", 1);
    assert_eq!(site.reclaim0(&again, 1), Err(Status::NO_GRACE));
}

#[test]
fn replies_wait_until_the_removal_of_a_v40_client_is_durable() {
    let (site, peer) = Site::with_client0();
    let stranger = site.world.peer("stranger");
    site.disk.slow_down();
    for _ in 0..3 {
        let _ = site.ask0(&peer);
    }
    assert!(!site.in_grace());
    assert_eq!(site.waits(&stranger.client), (true, true), "its state is free from now on");
    site.disk.sync();
    assert_eq!(site.waits(&stranger.client), (false, false));
}

#[test]
fn io_completes_v40_reclaims() {
    let (site, peer) = Site::with_client0();
    let reclaimed = site.reclaim_as(&site.client0(&peer), 1).unwrap();
    assert!(site.in_grace());
    site.world.state.holder(site.world.now, &reclaimed).unwrap();
    assert!(!site.in_grace());
    assert_eq!(site.disk.clients(), 1);
}

#[test]
fn returning_state_does_not_complete_v40_reclaims() {
    let (site, peer) = Site::with_client0();
    let client = site.client0(&peer);
    let reclaimed = site.reclaim_as(&client, 1).unwrap();
    let by = V40Caller { caller: 0, principal: client.principal() };
    site.world.state.holder_for_return(site.world.now, &reclaimed, by).unwrap();
    assert!(site.in_grace());
    assert_eq!(site.reclaim0(&peer, 2), Ok(()));
}

#[test]
fn a_request_after_the_last_v40_reclaim_keeps_the_record() {
    for spoke in [true, false] {
        let (mut site, peer) = Site::with_client0();
        if spoke {
            assert_eq!(site.reclaim0(&peer, 1), Ok(()));
            site.renew0(&peer);
        } else {
            site.renew0(&peer);
            assert_eq!(site.reclaim0(&peer, 1), Ok(()));
        }
        site.end_grace();
        site.restart();
        let again = site.world.peer0("a", 1);
        let expected = if spoke { Ok(()) } else { Err(Status::NO_GRACE) };
        assert_eq!(site.reclaim0(&again, 1), expected, "spoke: {spoke}");
    }
}

#[test]
fn renew_alone_does_not_keep_a_v40_record() {
    let (mut site, peer) = Site::with_client0();
    site.renew0(&peer);
    site.end_grace();
    assert_eq!(site.disk.clients(), 0, "others may get its state");
    site.restart();
    let again = site.world.peer0("a", 1);
    assert_eq!(site.reclaim0(&again, 1), Err(Status::NO_GRACE));
}

#[test]
fn a_v40_client_is_recorded_again_after_the_grace_period() {
    let (mut site, peer) = Site::with_client0();
    assert_eq!(site.reclaim0(&peer, 1), Ok(()));
    site.end_grace();
    assert_eq!(site.disk.clients(), 0);
    site.renew0(&peer);
    assert_eq!(site.disk.clients(), 1);
    site.restart();
    let again = site.world.peer0("a", 1);
    assert_eq!(site.reclaim0(&again, 1), Ok(()));
    // The same name in a later version is another client.
    let other = site.world.fresh_peer("a", 1);
    assert_eq!(site.reclaim(&other, 1), Err(Status::NO_GRACE));
}
