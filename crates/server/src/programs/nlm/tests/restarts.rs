//! Restarts of the server: notifications, the grace period, and the hosts that may reclaim.

use protocol::nsm::{self, StateChange};

use super::*;
use crate::state::{MemoryLog, State};
use crate::testing::{KEY, export};
use crate::{Export, ExportTable, Settings};

/// A log, an export, and the servers that use them in turn.
struct Site {
    disk: Arc<MemoryLog>,
    exports: Vec<Export>,
    starts: u64,
}

impl Site {
    fn start(&mut self) -> Arc<Server> {
        self.starts += 1;
        let mut settings = Settings::new(KEY, self.starts, [self.starts as u8; 16], b"test".to_vec());
        settings.host_name = b"server.example.org".to_vec();
        let mut server = Server::new(settings.clone(), ExportTable::new(self.exports.clone()).unwrap());
        server.shared.state = State::new(&settings, self.disk.records(), Duration::ZERO);
        server.shared.state.notify_hosts();
        Arc::new(server)
    }
}

/// Returns a site, its first server, and an empty file.
fn site() -> (Site, Arc<Server>, Handle) {
    let mut site = Site { disk: Arc::default(), exports: vec![export(1, "/export")], starts: 0 };
    let server = site.start();
    let mut lab = Lab::without_session(Arc::clone(&server), 1);
    lab.connect(b"maker");
    let file = lab.file(&["export", "file"], b"");
    let id = lab.client_id;
    server.shared.state.evict(id).unwrap();
    (site, server, file)
}

fn reclaim(host: &mut Host, range: Range) -> Stats {
    let args = LockArgs { reclaim: true, ..host.args(range, true, false) };
    host.status(Proc::LOCK, &args)
}

/// Takes the calls that wait.
fn calls(server: &Arc<Server>) -> Vec<HostCall> {
    let lab = Lab::without_session(Arc::clone(server), 1);
    std::iter::from_fn(|| next_call(&lab)).collect()
}

#[test]
fn after_a_restart_hosts_are_notified_and_reclaim_and_others_wait_for_the_period() {
    let (mut site, server, file) = site();
    assert_eq!(host(&server, 1, "one").lock(whole(file)), Stats::GRANTED);
    let state = server.shared.state.monitor_state();
    let server = site.start();
    let (mut one, mut two) = (host(&server, 1, "one"), host(&server, 2, "two"));

    let [call] = &calls(&server)[..] else { panic!("one host is notified") };
    assert_eq!(
        (call.path().address, call.program()),
        (one.connection.peer.ip(), (nsm::PROGRAM, nsm::VERSION))
    );
    let (procedure, change) = called::<StateChange>(call);
    assert_eq!((procedure, &*change.mon_name), (nsm::Proc::NOTIFY.0, &b"server.example.org"[..]));
    assert_eq!(change.state, state + 2);

    assert_eq!(two.lock(whole(file)), Stats::DENIED_GRACE_PERIOD);
    assert_eq!(reclaim(&mut two, whole(file)), Stats::DENIED_GRACE_PERIOD, "it held nothing");
    assert_eq!(two.test(whole(file), true), TestReply::Other(Stats::DENIED_GRACE_PERIOD));
    assert_eq!(reclaim(&mut one, whole(file)), Stats::GRANTED);
    for host in [&mut one, &mut two] {
        host.seconds = 300;
    }
    assert_eq!(two.lock(whole(file)), Stats::DENIED, "the holder has reclaimed");
    assert_eq!(reclaim(&mut one, bytes(file, 0, 1)), Stats::DENIED_GRACE_PERIOD, "the period is over");
    server.audit().unwrap();
}

#[test]
fn the_grace_period_is_that_of_nfsv4() {
    let (mut site, server, file) = site();
    assert_eq!(host(&server, 1, "one").lock(whole(file)), Stats::GRANTED);
    let server = site.start();
    let mut lab = Lab::without_session(Arc::clone(&server), 5);
    lab.connect(b"new");
    let open = at(&["export"], vec![crate::testing::open("file", b"o", Access4::READ)]);
    assert_eq!(lab.status(open.clone()), Status::GRACE);
    lab.seconds = 300;
    assert_eq!(lab.status(open), Status::OK);
}

#[test]
fn without_hosts_or_clients_there_is_no_grace_period() {
    let (mut site, server, file) = site();
    let mut one = host(&server, 1, "one");
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(one.unlock(whole(file)), Stats::GRANTED);
    one.seconds = 2;
    server.maintain(one.now());
    let server = site.start();
    assert!(calls(&server).is_empty());
    assert_eq!(host(&server, 2, "two").lock(whole(file)), Stats::GRANTED);
}

#[test]
fn a_host_that_missed_a_grace_period_never_reclaims_and_is_still_notified() {
    let (mut site, server, file) = site();
    assert_eq!(host(&server, 1, "one").lock(whole(file)), Stats::GRANTED);
    let server = site.start();
    let mut two = host(&server, 2, "two");
    two.seconds = 300;
    assert_eq!(two.lock(whole(file)), Stats::GRANTED, "the period ended without the first host");
    assert_eq!(two.unlock(whole(file)), Stats::GRANTED);
    let server = site.start();
    assert_eq!(reclaim(&mut host(&server, 1, "one"), whole(file)), Stats::DENIED_GRACE_PERIOD);
    let called = calls(&server);
    let addresses: Vec<_> = called.iter().map(|call| call.path().address).collect();
    assert!(addresses.contains(&[192, 0, 2, 1].into()), "{addresses:?}");
}

#[test]
fn a_host_that_restarted_meanwhile_does_not_reclaim() {
    let (mut site, server, file) = site();
    assert_eq!(host(&server, 1, "one").lock(whole(file)), Stats::GRANTED);
    let server = site.start();
    let mut one = host(&server, 1, "one");
    let change = StateChange { mon_name: Opaque::from_static(b"one"), state: 5 };
    let record = one.record((nsm::PROGRAM, nsm::VERSION, nsm::Proc::NOTIFY.0), &change);
    one.send(record).unwrap();
    assert_eq!(reclaim(&mut one, whole(file)), Stats::DENIED_GRACE_PERIOD);
}

#[test]
fn hosts_that_are_not_monitored_leave_no_record() {
    let (mut site, server, file) = site();
    let mut one = host(&server, 1, "one");
    let args = one.args(whole(file), true, false);
    assert_eq!(one.status(Proc::NM_LOCK, &args), Stats::GRANTED);
    let server = site.start();
    assert!(calls(&server).is_empty());
    assert_eq!(host(&server, 2, "two").lock(whole(file)), Stats::GRANTED);
}

#[test]
fn the_reply_to_a_first_lock_waits_until_the_record_is_stable() {
    let (site, server, file) = site();
    site.disk.slow_down();
    let mut one = host(&server, 1, "one");
    let args = one.args(whole(file), true, false);
    let record = one.record((PROGRAM, VERSION, Proc::LOCK.0), &args);
    let mut reply = Writer::new();
    let mut call = Box::pin(server.handle(&one.connection, one.now(), record, &mut reply));
    assert!(call.as_mut().now_or_never().is_none());
    site.disk.sync();
    assert!(call.now_or_never().is_some());
}

#[test]
fn a_full_log_refuses_new_hosts_and_serves_known_ones() {
    let (site, server, file) = site();
    let (mut one, mut two) = (host(&server, 1, "one"), host(&server, 2, "two"));
    assert_eq!(one.lock(bytes(file, 0, 1)), Stats::GRANTED);
    site.disk.fill(true);
    assert_eq!(two.lock(bytes(file, 5, 1)), Stats::DENIED_NOLOCKS);
    assert_eq!(one.lock(bytes(file, 5, 1)), Stats::GRANTED);
}

#[test]
fn notifications_are_repeated_until_they_are_answered() {
    let (mut site, server, file) = site();
    assert_eq!(host(&server, 1, "one").lock(whole(file)), Stats::GRANTED);
    let server = site.start();
    let mut lab = Lab::without_session(Arc::clone(&server), 1);
    let [call] = &calls(&server)[..] else { panic!() };
    server.handle_host_answer(call, HostAnswer::Unreachable, lab.now());
    lab.pass(5);
    let call = next_call(&lab).expect("it is repeated");
    let mut reply = Writer::new();
    rpc::message::encode_success(&mut reply, 1);
    server.handle_host_answer(&call, HostAnswer::Reply(reply.into_bytes()), lab.now());
    lab.pass(400);
    assert!(next_call(&lab).is_none());
    let server = site.start();
    assert!(calls(&server).is_empty(), "it was notified, and reclaimed nothing");
}
