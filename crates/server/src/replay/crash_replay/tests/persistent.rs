//! Persistent sessions: a machine whose unsynced records are lost, and the replies of its next server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::attributes::number;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, DirFromClient};
use protocol::nfs4::ops::create::CreateType;
use protocol::nfs4::ops::open::{CreateHow, CreateVerifierAttributes, OpenHow, ShareAccess};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::{CreateSessionFlags, DestroySessionArgs, SequenceArgs};
use protocol::nfs4::ops::xattr::{SetXattrArgs, SetXattrOption};
use protocol::nfs4::types::{HasStatus, Stateid, Status};
use vfs::fault::{Fault, Faulty, Rule};
use vfs::{Error, MemFs, MemOptions};
use xdr::Opaque;

use super::v41::{CASES, compound, create, prepare, status};
use super::{Killed, at as time};
use crate::replay::crash_replay::{ReplyLog, StableLog};
use crate::state::state_log::{StateLog, key};
use crate::testing::{KEY, Lab, at, channel, getattr, mode, open_args};
use crate::{Export, ExportTable, Now, Server, Settings};

/// Slots of the limit: two sessions of the size that [`channel`] requests.
const ROOM: usize = 2 * 65 + 1;

/// Seconds.
const DAY: u64 = 24 * 60 * 60;

#[derive(Debug, Default, Clone)]
struct Content {
    records: Vec<Bytes>,
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    changes: u64,
}

/// Both logs in memory. The state at each sync is kept, so that the machine can crash after any of them.
#[derive(Debug, Default)]
struct Log {
    now: Mutex<Content>,
    synced: Mutex<Vec<Content>>,
    fails: AtomicBool,
    is_full: AtomicBool,
}

impl ReplyLog for Log {
    fn append(&self, parts: &[&[u8]]) {
        self.now.lock().records.push(parts.concat().into());
    }
}

impl StableLog for Log {
    fn sync(&self) -> vfs::Op<'_, ()> {
        if self.fails.load(Relaxed) {
            return vfs::Op::err(Error::Io);
        }
        self.synced.lock().push(self.now.lock().clone());
        vfs::Op::ok(())
    }
}

impl StateLog for Log {
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64 {
        let mut now = self.now.lock();
        now.changes += 1;
        match value {
            Some(value) => now.map.insert(key.to_vec(), value.to_vec()),
            None => now.map.remove(key),
        };
        now.changes
    }

    fn is_written(&self) -> bool {
        !self.is_full.load(Relaxed)
    }

    fn stable(&self) -> u64 {
        self.synced.lock().last().map_or(0, |content| content.changes)
    }

    /// After the log of calls, so that its sync covers this change too.
    fn reached(&self, number: u64, _: vfs::Thread) -> vfs::Op<'_, ()> {
        vfs::Op::pending(async move {
            if self.stable() < number {
                self.synced.lock().push(self.now.lock().clone());
            }
            Ok(())
        })
    }

    fn push(&self) {}
}

impl Log {
    /// Keys of persistent sessions, or of their slots.
    fn count(&self, what: u8) -> usize {
        self.now.lock().map.keys().filter(|key| key[0] == what).count()
    }
}

/// Files, a log, and the servers that use them in turn.
struct Machine {
    files: Arc<Faulty<MemFs>>,
    log: Arc<Log>,
    servers: u64,
    room: usize,
}

impl Machine {
    fn new() -> Self {
        let files = Arc::new(Faulty::new(MemFs::new(&MemOptions::default())));
        Self { files, log: Arc::default(), servers: 0, room: ROOM }
    }

    fn start(&mut self, seconds: u64) -> Arc<Server> {
        self.start_at(time(seconds))
    }

    fn start_at(&mut self, now: Now) -> Arc<Server> {
        self.servers += 1;
        let mut settings = Settings::new(KEY, self.servers, [self.servers as u8; 16], b"test".to_vec());
        settings.max_persistent_slots = self.room;
        let export = Export { backend: self.files.clone(), ..crate::testing::export(1, "/export") };
        let server = Server::new(settings, ExportTable::new(vec![export]).unwrap());
        let Content { records, map, .. } = self.log.now.lock().clone();
        let entries = map.into_iter().map(|(key, value)| (key.into(), value.into()));
        let server = server.with_state_log(self.log.clone(), entries, now);
        Arc::new(server.with_stable_log(self.log.clone(), records, now))
    }

    /// Returns a client with a persistent session, and a directory that any user may change.
    fn client(&mut self) -> Lab {
        let mut lab = Lab::without_session(self.start(100), 1);
        lab.flags = CreateSessionFlags::PERSIST;
        let mut lab = prepare(lab);
        lab.seconds = 110;
        lab
    }

    fn syncs(&self) -> usize {
        self.log.synced.lock().len()
    }

    /// Crashes the machine: the logs keep synced records.
    fn end(&self, sync: usize) {
        *self.log.now.lock() = self.log.synced.lock()[sync].clone();
    }

    /// Connects the client to the next server over another connection.
    fn reconnect(&mut self, lab: &mut Lab, seconds: u64) {
        let mut other = Lab::without_session(self.start(seconds), seconds);
        (other.uid, other.session, other.sequence) = (lab.uid, lab.session, lab.sequence);
        (other.seconds, other.flags, other.minor) = (seconds + 10, lab.flags, lab.minor);
        *lab = other;
    }
}

/// Creates a directory; returns the call and its reply.
fn change(lab: &mut Lab) -> (Vec<u8>, Bytes) {
    let ops = [vec![lab.next(true)], create(CreateType::DIRECTORY)].concat();
    let call = xdr::to_bytes(&compound(ops)).to_vec();
    let reply = lab.raw(&call).unwrap();
    assert_eq!(status(&reply), Status::OK);
    (call, reply)
}

fn first_status(lab: &mut Lab, args: SequenceArgs) -> Status {
    lab.send(&compound(vec![Op::Sequence(args), Op::PutRootFh])).status
}

#[test]
fn every_change_is_made_once_for_each_moment_of_a_crash() {
    let points = [Killed::BeforeExecution, Killed::AfterExecution, Killed::AfterReply];
    for (case, killed) in CASES.iter().flat_map(|case| points.map(|killed| (case, killed))) {
        let what = format!("{}, {killed:?}", case.what);
        let mut machine = Machine::new();
        let mut lab = machine.client();
        let before = machine.syncs();
        if killed == Killed::BeforeExecution {
            machine.files.add(Rule::on(case.method, Fault::Fail(Error::Io)).times(1));
        }
        let call = xdr::to_bytes(&compound([vec![lab.next(true)], (case.ops)(1)].concat()));
        let reply = lab.raw(&call).unwrap();
        assert_eq!(machine.syncs() - before, 2, "{what}: before it is executed, and before it is answered");
        machine.end(if killed == Killed::AfterReply { before + 1 } else { before });

        machine.reconnect(&mut lab, 120);
        // The superuser's client, which prepared the files, does not return.
        assert!(lab.server.end_grace(lab.now()).is_some());
        let again = lab.raw(&call).unwrap();
        if killed == Killed::AfterReply {
            assert_eq!(again, reply, "{what}: byte for byte");
            lab.connect(b"of the user");
            assert_eq!(lab.status((case.ops)(2)), case.again, "{what}");
            continue;
        }
        assert_eq!(status(&again), Status::DEADSESSION, "{what}");
        lab.connect(b"of the user");
        assert_eq!(lab.status((case.ops)(2)), Status::OK, "{what}");
        assert_eq!(lab.status((case.ops)(3)), case.again, "{what}: once more, but not a repetition");
    }
}

#[test]
fn a_dead_session_only_repeats_replies() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let (call, reply) = change(&mut lab);
    // Idempotent requests are not logged, so the client may be ahead by any number.
    lab.ok(at(&["export"], vec![getattr(&[number::SIZE])]));
    lab.ok(at(&["export"], vec![getattr(&[number::SIZE])]));
    machine.reconnect(&mut lab, 120);
    let Op::Sequence(next) = lab.next(true) else { panic!() };
    let kept = next.sequence_id - 3;
    let in_slot = |slot_id, sequence_id| SequenceArgs { slot_id, sequence_id, ..next };
    for (args, expected) in [
        (in_slot(0, kept + 1), Status::DEADSESSION),
        (in_slot(0, kept + 2), Status::DEADSESSION),
        (next, Status::DEADSESSION),
        (in_slot(0, kept - 1), Status::SEQ_MISORDERED),
        (in_slot(0, kept), Status::SEQ_FALSE_RETRY),
        (in_slot(1, 1), Status::DEADSESSION),
        (in_slot(63, 1), Status::DEADSESSION),
        (in_slot(64, 1), Status::BADSLOT),
        (SequenceArgs { session_id: [7; 16], ..next }, Status::BADSESSION),
    ] {
        assert_eq!(first_status(&mut lab, args), expected, "{args:?}");
    }
    assert_eq!(lab.raw(&call).unwrap(), reply);
    lab.uid = 1001;
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::SEQ_FALSE_RETRY, "another user's");
    lab.uid = 1000;
    // The second server after it finds it too.
    machine.reconnect(&mut lab, 140);
    assert_eq!(lab.raw(&call).unwrap(), reply);
}

#[test]
fn only_non_idempotent_requests_are_logged() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let file = lab.file(&["export", "file"], b"content");
    let before = machine.log.now.lock().clone();
    lab.ok(vec![crate::testing::putfh(file), getattr(&[number::SIZE])]);
    let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 7 };
    lab.ok(vec![crate::testing::putfh(file), Op::Read(read)]);
    let open = open_args("file", b"owner", ShareAccess::READ, OpenHow::NoCreate);
    lab.ok(at(&["export"], vec![Op::Open(open)]));
    let after = machine.log.now.lock();
    assert_eq!((&after.records, &after.map), (&before.records, &before.map));
}

#[test]
fn a_slot_keeps_only_its_last_reply() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let before = machine.log.count(key::SLOT);
    for name in ["a", "b", "c"] {
        lab.file(&["export", name], b"");
    }
    assert_eq!(machine.log.count(key::SLOT), before, "one slot");
    let (call, reply) = change(&mut lab);
    machine.reconnect(&mut lab, 120);
    assert_eq!(lab.raw(&call).unwrap(), reply);
}

#[test]
fn sessions_are_persistent_on_request_within_the_limit() {
    let mut machine = Machine::new();
    let lab = machine.client();
    let persists = |name: &'static [u8], flags| {
        let mut other = Lab::without_session(Arc::clone(&lab.server), 50);
        other.flags = flags;
        let id = other.exchange(name);
        let created = other.create_session(&id, channel());
        (created.session_id, created.flags.contains(CreateSessionFlags::PERSIST))
    };
    assert!(!persists(b"unasked", CreateSessionFlags::empty()).1);
    // One belongs to the superuser's client of prepare(), one to its user's.
    let (third, is_persistent) = persists(b"third", CreateSessionFlags::PERSIST);
    assert!(!is_persistent, "no room");
    let destroy = |session_id| Op::DestroySession(DestroySessionArgs { session_id });
    let mut other = Lab::without_session(Arc::clone(&lab.server), 50);
    assert_eq!(other.alone(destroy(third)).status(), Status::OK);
    other.connection = Arc::clone(&lab.connection);
    assert_eq!(other.alone(destroy(lab.session)).status(), Status::OK);
    assert!(persists(b"fourth", CreateSessionFlags::PERSIST).1);
    assert!(!persists(b"fifth", CreateSessionFlags::PERSIST).1);
}

#[test]
fn a_client_with_many_sessions_leaves_room_for_others() {
    // A quarter of the space is enough for two sessions.
    let mut machine = Machine { room: 8 * 65, ..Machine::new() };
    let server = machine.start(100);
    let persists = |server: &Arc<Server>, name| {
        let mut lab = Lab::without_session(Arc::clone(server), 50);
        lab.flags = CreateSessionFlags::PERSIST;
        let id = lab.exchange(name);
        lab.create_session(&id, channel()).flags.contains(CreateSessionFlags::PERSIST)
    };
    assert_eq!([(); 3].map(|()| persists(&server, b"greedy")), [true, true, false]);
    assert!(persists(&server, b"modest"));
    let counts = server.counts();
    assert_eq!((counts.sessions, counts.persistent_sessions, counts.dead_sessions), (4, 3, 0));
    // The client's dead session counts, and is removed for its new one; other clients' dead sessions stay.
    let server = machine.start(120);
    assert!(persists(&server, b"greedy"));
    let counts = server.counts();
    assert_eq!((counts.sessions, counts.persistent_sessions, counts.dead_sessions), (1, 1, 1));
}

#[test]
fn a_session_is_durable_before_its_client_gets_the_reply() {
    let mut machine = Machine::new();
    let mut lab = Lab::without_session(machine.start(100), 1);
    lab.flags = CreateSessionFlags::PERSIST;
    let id = lab.exchange(b"client");
    assert_eq!(machine.syncs(), 0);
    let created = lab.create_session(&id, channel());
    let of_session = [&[key::SESSION], &created.session_id[..]].concat();
    assert!(machine.log.synced.lock().last().unwrap().map.contains_key(&of_session));
}

#[test]
fn destroyed_sessions_stay_destroyed_after_a_restart() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let (call, reply) = change(&mut lab);
    let session = lab.session;
    let destroy = || Op::DestroySession(DestroySessionArgs { session_id: session });
    // A dead session, destroyed by another client that knows its ID.
    machine.reconnect(&mut lab, 120);
    assert_eq!(lab.raw(&call).unwrap(), reply);
    let bind = BindConnToSessionArgs { session_id: session, direction: DirFromClient::FORE, use_rdma: false };
    assert_eq!(lab.alone(Op::BindConnToSession(bind)).status(), Status::DEADSESSION);
    assert_eq!(lab.alone(destroy()).status(), Status::OK);
    assert_eq!(lab.alone(destroy()).status(), Status::BADSESSION);
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
    // A live session.
    lab.connect(b"of the user");
    assert_eq!(
        lab.status(vec![Op::DestroySession(DestroySessionArgs { session_id: lab.session })]),
        Status::OK
    );
    machine.reconnect(&mut lab, 140);
    let next = lab.next(false);
    assert_eq!(lab.send(&compound(vec![next])).status, Status::BADSESSION);
}

#[test]
fn dead_sessions_are_removed_when_clients_return_or_time_is_over() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let (call, reply) = change(&mut lab);
    machine.reconnect(&mut lab, 120);
    let persists = |lab: &mut Lab, name| {
        let id = lab.exchange(name);
        lab.create_session(&id, channel()).flags.contains(CreateSessionFlags::PERSIST)
    };
    assert!(!persists(&mut lab, b"a stranger"), "two dead sessions take the whole space");
    assert_eq!(lab.raw(&call).unwrap(), reply);
    // Its client's next session replaces it only if there is no other space.
    assert!(persists(&mut lab, b"of the user"));
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
    // A session whose client does not return is removed after a day.
    machine.reconnect(&mut lab, 140);
    assert_eq!(machine.log.count(key::SESSION), 2);
    // The superuser's session is of the first server, the user's of the second.
    for (seconds, sessions) in [(120 + DAY - 1, 2), (120 + DAY, 1), (140 + DAY - 1, 1), (140 + DAY, 0)] {
        lab.seconds = seconds;
        lab.server.maintain(lab.now());
        assert_eq!(machine.log.count(key::SESSION), sessions, "{seconds}");
    }
}

/// Returns whether the client gets a persistent session, and its ID.
fn persists(lab: &mut Lab, name: &'static [u8]) -> (bool, u64) {
    let id = lab.exchange(name);
    let created = lab.create_session(&id, channel());
    (created.flags.contains(CreateSessionFlags::PERSIST), id.client_id)
}

#[test]
fn another_principal_of_the_same_name_removes_no_dead_sessions() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let (call, reply) = change(&mut lab);
    machine.reconnect(&mut lab, 120);
    assert!(lab.server.end_grace(lab.now()).is_some());
    lab.uid = 1001;
    let (is_persistent, stranger) = persists(&mut lab, b"of the user");
    assert!(!is_persistent, "two dead sessions take the whole space");
    lab.server.shared.state.evict(stranger).unwrap();
    lab.uid = 1000;
    assert_eq!(lab.raw(&call).unwrap(), reply);
    assert!(persists(&mut lab, b"of the user").0);
}

#[test]
fn a_session_logged_without_its_principal_is_matched_by_name() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let (call, reply) = change(&mut lab);
    let of_session = [&[key::SESSION], &lab.session[..]].concat();
    // Slots, and the name.
    let old = b"\0\0\0\x40\0\0\0\x0bof the user\0";
    let new = machine.log.now.lock().map.insert(of_session, old.to_vec()).unwrap();
    assert!(new.starts_with(old) && new.len() > old.len());
    machine.reconnect(&mut lab, 120);
    assert_eq!(lab.raw(&call).unwrap(), reply);
    assert!(persists(&mut lab, b"of the user").0, "it makes room");
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
}

#[test]
fn dead_sessions_expire_after_a_day_despite_restarts() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let (call, reply) = change(&mut lab);
    for hours in [0, 8, 16] {
        machine.reconnect(&mut lab, 120 + hours * 60 * 60);
        lab.server.maintain(lab.now());
        assert_eq!(lab.raw(&call).unwrap(), reply, "{hours}");
    }
    lab.seconds = 120 + DAY - 1;
    lab.server.maintain(lab.now());
    assert_eq!(machine.log.count(key::SESSION), 2);
    lab.seconds += 1;
    lab.server.maintain(lab.now());
    let left = [key::SESSION, key::SLOT, key::DEAD].map(|what| machine.log.count(what));
    assert_eq!(left, [0; 3]);
}

#[test]
fn dead_sessions_outlive_the_reply_log_despite_clock_steps() {
    let mut machine = Machine::new();
    machine.client();
    let alive = machine.log.now.lock().map.clone();
    let remembered = crate::replay::crash_replay::REMEMBER_FOR.as_secs();
    // The clock was right, behind, or ahead when the sessions were found. After a time in the future, the day begins again.
    for (wrong, stay) in [(0, remembered), (-1_000_000, remembered), (i64::from(u32::MAX), DAY)] {
        machine.log.now.lock().map = alive.clone();
        let mut first = time(120);
        first.wall.seconds += wrong;
        machine.start_at(first);
        let start = 120 + DAY;
        let server = machine.start(start);
        for (seconds, sessions) in [(start + stay - 1, 2), (start + stay, 0)] {
            server.maintain(time(seconds));
            assert_eq!(machine.log.count(key::SESSION), sessions, "{wrong}, {seconds}");
        }
    }
}

#[test]
fn sessions_missing_from_the_log_are_unknown() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let (call, _) = change(&mut lab);
    let of_session = [&[key::SESSION], &lab.session[..]].concat();
    let dead = [&[key::DEAD], &lab.session[..]].concat();
    let mut sound = machine.log.now.lock().map.clone();
    sound.insert(dead, xdr::to_bytes(&1_000_000_i64).to_vec());
    for damage in [None, Some(&b""[..]), Some(b"\0\0\0\x40\0\0\0\x09short")] {
        let mut map = sound.clone();
        match damage {
            Some(value) => _ = map.insert(of_session.clone(), value.to_vec()),
            None => _ = map.remove(&of_session),
        }
        machine.log.now.lock().map = map;
        machine.reconnect(&mut lab, 120);
        let reported = status(&lab.raw(&call).unwrap());
        assert_eq!(reported, Status::BADSESSION, "{damage:?}");
        // Its log entries are removed too.
        assert!(!machine.log.now.lock().map.contains_key(&of_session), "{damage:?}");
        let of_slots = [&[key::SLOT], &lab.session[..]].concat();
        assert!(!machine.log.now.lock().map.keys().any(|key| key.starts_with(&of_slots)), "{damage:?}");
        assert_eq!(machine.log.count(key::DEAD), machine.log.count(key::SESSION), "{damage:?}");
    }
}

#[test]
fn a_failed_log_ends_persistent_sessions_only() {
    for is_full in [false, true] {
        ends_persistent_sessions(is_full);
    }
}

fn ends_persistent_sessions(is_full: bool) {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    machine.log.fails.store(!is_full, Relaxed);
    // The reply must say that it was executed.
    let (call, reply) = change(&mut lab);
    machine.log.is_full.store(is_full, Relaxed);
    assert_eq!(lab.raw(&call).unwrap(), reply, "from the slot");
    assert_eq!(lab.status(vec![]), Status::DEADSESSION);
    assert_eq!(lab.raw(&call).unwrap(), reply, "DEADSESSION left the slot unchanged");
    // The client ID is still valid.
    let id = lab.exchange(b"of the user");
    assert_eq!(id.client_id, lab.client_id);
    let created = lab.create_session(&id, channel());
    assert!(!created.flags.contains(CreateSessionFlags::PERSIST));
    (lab.session, lab.sequence) = (created.session_id, 0);
    assert_eq!(lab.status(create(CreateType::DIRECTORY)), Status::EXIST);
}

#[test]
fn a_reply_too_long_for_the_log_is_logged_as_executed() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    const LONG: usize = 4096;
    let file = lab.file(&["export", "file"], &[7; LONG]);
    let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: LONG as u32 };
    let read = vec![crate::testing::putfh(file), Op::Read(read)];
    let ops = [vec![lab.next(false)], create(CreateType::DIRECTORY), read].concat();
    let call = xdr::to_bytes(&compound(ops));
    let reply = lab.raw(&call).unwrap();
    assert_eq!(status(&reply), Status::OK);
    machine.reconnect(&mut lab, 120);
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::RETRY_UNCACHED_REP);
}

#[test]
fn exclusive4_is_refused_in_persistent_sessions() {
    // RFC 8881 §18.16.3, table 18.
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let open =
        |how| at(&["export"], vec![Op::Open(open_args("x", b"o", ShareAccess::WRITE, OpenHow::Create(how)))]);
    assert_eq!(lab.status(open(CreateHow::Exclusive([1; 8]))), Status::INVAL);
    let attributes = mode(0o600);
    let exclusive = CreateHow::Exclusive41(CreateVerifierAttributes { verifier: [1; 8], attributes });
    assert_eq!(lab.status(open(exclusive)), Status::OK);
    lab.flags = CreateSessionFlags::empty();
    lab.connect(b"ordinary");
    assert_eq!(lab.status(open(CreateHow::Exclusive([2; 8]))), Status::EXIST, "judged as any other");
}

#[test]
fn extended_attributes_are_changed_once() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let file = lab.file(&["export", "file"], b"");
    lab.minor = 2;
    let set = SetXattrArgs {
        option: SetXattrOption::CREATE,
        key: crate::testing::name("name"),
        value: Opaque::from_static(b"1"),
    };
    let ops = vec![lab.next(true), crate::testing::putfh(file), Op::SetXattr(set)];
    let args = protocol::nfs4::compound::CompoundArgs { minor_version: 2, ..compound(ops) };
    let call = xdr::to_bytes(&args);
    let reply = lab.raw(&call).unwrap();
    assert_eq!(status(&reply), Status::OK);
    machine.end(machine.syncs() - 1);
    machine.reconnect(&mut lab, 120);
    assert_eq!(lab.raw(&call).unwrap(), reply);
}

#[test]
fn ordinary_sessions_and_memory_exports_do_not_wait() {
    let mut machine = Machine::new();
    let mut lab = machine.client();
    let before = machine.syncs();
    lab.flags = CreateSessionFlags::empty();
    lab.connect(b"ordinary");
    assert_eq!(machine.syncs(), before + 1, "the client is logged, its session is not");
    // Changes of an ordinary session on a durable export survive a crash of the machine too.
    lab.ok(create(CreateType::FIFO));
    assert_eq!(machine.syncs(), before + 3);
    let export = crate::testing::export(1, "/export");
    let settings = Settings::new(KEY, 9, [9; 16], b"test".to_vec());
    let server = Server::new(settings, ExportTable::new(vec![export]).unwrap());
    let log = Arc::new(Log::default());
    let server = server.with_stable_log(log.clone(), [], time(100));
    let mut lab = Lab::without_session(Arc::new(server), 1);
    lab.connect(b"client");
    assert!(matches!(lab.last(create(CreateType::DIRECTORY)), OpResult::Create(_)));
    assert!(log.synced.lock().is_empty() && !log.now.lock().records.is_empty());
}
