//! Sequences of NLM and NSM calls from arbitrary bytes, for fuzzing: hosts that share files and addresses, altered and repeated calls,
//! and answers to the server's own calls.

use core::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::nlm::{
    self, CancelArgs, Lock, LockArgs, Name, NetObj, Notify, Proc, Res, Share, ShareAccess, ShareArgs,
    ShareMode, ShareRes, Stats, TestArgs, TestReply, TestRes, UnlockArgs,
};
use protocol::nsm::{self, MonId, MyId, SmStat, StatRes, StateChange};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, encode_success, parse_reply};
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey,
    HostAnswer, Now, Server, Settings, Squash, Transport, Versions, Work,
};
use vfs::{
    Backend, Context as Caller, Create, CreateMode, Credentials, MemFs, MemOptions, SetAttributes, Timestamp,
};
use xdr::{Encode, Opaque, Writer};

use crate::raw_xdr::{Raw, Rest, decoded};

/// Maximum number of steps.
const MAX_STEPS: usize = 256;
/// Steps between two audits of the server's tables.
const AUDIT_EVERY: usize = 16;
/// Set in a step's first byte if the host sends its last call again.
const REPEATED: u8 = 0x80;
/// Numbers of the steps after the procedures of NLM, of which some do not exist.
const NSM: u8 = 25;
const NSM_PROCEDURES: u8 = 8;
const ANSWER: u8 = NSM + NSM_PROCEDURES;
const WAIT: u8 = ANSWER + 1;
const EVICT: u8 = ANSWER + 2;
const KINDS: u8 = ANSWER + 3;

/// The lowest place of an alteration; below it, the arguments stay as they are.
const ALTERED: u8 = 0xc0;
/// Set in the byte for the host if it calls from a port of any user.
const UNPRIVILEGED: u8 = 0x0c;

/// Name and address of each host: the first two are behind one address.
pub(crate) const HOSTS: [(&str, u8); 4] = [("one", 1), ("two", 1), ("three.example.org", 2), ("four", 3)];
const FILES: usize = 3;

/// Counts of the outcomes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// Locks and share reservations that were granted, and locks that were removed.
    pub granted: usize,
    /// Calls whose host waits.
    pub blocked: usize,
    /// Calls that were refused with another status.
    pub refused: usize,
    /// Calls whose arguments could not be decoded, or without such a procedure.
    pub rejected: usize,
    /// Calls of the server to a host.
    pub called: usize,
}

/// Runs steps of nine bytes: what, who (host, port and version), the file, the owner, start, length, flags, and an alteration of the
/// arguments: its place and its value.
///
/// # Panics
/// Panics if a reply does not decode as the procedure's results, if the server's tables are inconsistent, or if locks remain after the
/// administrator has evicted all hosts.
pub fn play(data: &[u8]) -> Played {
    let mut world = World::new();
    for (number, step) in data.as_chunks::<9>().0.iter().take(MAX_STEPS).enumerate() {
        world.step(step);
        if number % AUDIT_EVERY == 0 {
            world.server.audit().expect("consistent tables");
        }
    }
    world.end();
    world.played
}

/// The server, and the hosts that call it.
pub(crate) struct World {
    pub(crate) server: Server,
    /// Of each host, from a port below 1024 and from another one.
    connections: Vec<[Arc<Connection>; 2]>,
    /// The last call of each host.
    sent: [Option<Sent>; HOSTS.len()],
    /// Handles of files that exist, and of one that does not.
    handles: Vec<NetObj>,
    seconds: u64,
    xid: u32,
    pub(crate) played: Played,
}

/// A call that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    /// Program, version and procedure.
    pub(crate) procedure: (u32, u32, u32),
    record: Bytes,
}

impl World {
    pub(crate) fn new() -> Self {
        let key = HandleKey([9; 16]);
        let backend = Arc::new(MemFs::new(&MemOptions::default()));
        let id = ExportId(1);
        let mut handles: Vec<_> =
            (0..FILES).map(|number| handle_of_file(&backend, number, &key, id)).collect();
        let mut missing = handles[0].to_vec();
        missing[31] ^= 1;
        handles.push(object(&missing));
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        let export =
            Export { id, path: "/export".into(), backend, options, fsid: (7, 0), counts: Arc::default() };
        let versions = Versions::IMPLEMENTED;
        let settings = Settings { versions, ..Settings::new(key, 1, [3; 16], b"fuzz".to_vec()) };
        let exports = ExportTable::new(vec![export]).expect("a valid export");
        let connections = (0..HOSTS.len()).map(|number| [700, 5000].map(|port| connection(number, port)));
        Self {
            server: Server::new(settings, exports),
            connections: connections.collect(),
            sent: Default::default(),
            handles,
            seconds: 1000,
            xid: 1,
            played: Played::default(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        let wall = Timestamp { seconds: self.seconds.cast_signed(), nanoseconds: 5 };
        Now { monotonic: Duration::from_secs(self.seconds), wall }
    }

    fn step(&mut self, step: &[u8; 9]) {
        let [kind, who, .., value] = *step;
        let host = usize::from(who) % HOSTS.len();
        if kind & REPEATED != 0 {
            if let Some(sent) = self.sent[host].clone() {
                self.send(host, who, &sent);
            }
            return;
        }
        match kind % KINDS {
            ANSWER => self.answer(value),
            WAIT => {
                self.seconds += u64::from(value);
                self.server.maintain(self.now());
            }
            EVICT => {
                // Without such a host, or with several, nothing happens.
                let _ = self.server.evict(self.now(), HOSTS[host].0);
            }
            kind => {
                let sent = self.call(kind, step);
                self.send(host, who, &sent);
                self.sent[host] = Some(sent);
            }
        }
    }

    /// Returns a new call.
    pub(crate) fn call(&mut self, kind: u8, step: &[u8; 9]) -> Sent {
        let [_, who, .., at, value] = *step;
        let (procedure, mut arguments) = match kind {
            NSM.. => {
                let number = u32::from(kind - NSM);
                ((nsm::PROGRAM, nsm::VERSION, number), nsm_arguments(number, step))
            }
            _ => {
                let version =
                    [nlm::VERSION_1, nlm::VERSION_3, nlm::VERSION, nlm::VERSION][usize::from(who >> 4) % 4];
                ((nlm::PROGRAM, version, kind.into()), self.nlm_arguments(version, Proc(kind.into()), step))
            }
        };
        alter(&mut arguments, at, value);
        self.sent(procedure, &arguments)
    }

    /// Returns a call with these arguments.
    pub(crate) fn sent(&mut self, procedure: (u32, u32, u32), arguments: &[u8]) -> Sent {
        self.xid += 1;
        let sys = AuthSys {
            stamp: 0,
            machine_name: Default::default(),
            uid: 0,
            gid: 0,
            gids: GroupList::default(),
        };
        let (program, version, number) = procedure;
        let header = CallHeader {
            credential: OpaqueAuth::sys(&sys),
            ..CallHeader::new(self.xid, program, version, number)
        };
        let mut record = Writer::new();
        encode_call(&mut record, &header, &Raw(arguments));
        Sent { procedure, record: record.into_bytes() }
    }

    /// Returns the arguments of a procedure of NLM.
    fn nlm_arguments(&self, version: u32, procedure: Proc, step: &[u8; 9]) -> Vec<u8> {
        let [_, who, file, owner, start, length, flags, ..] = *step;
        let caller_name = object(HOSTS[usize::from(who) % HOSTS.len()].0.as_bytes());
        let fh = self.handles[usize::from(file) % self.handles.len()].clone();
        let (cookie, oh) = (object(&[flags]), object(&[owner % 4]));
        let (exclusive, block, reclaim) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let alock = Lock {
            caller_name: caller_name.clone(),
            fh: fh.clone(),
            oh: oh.clone(),
            svid: i32::from(owner / 4 % 4),
            l_offset: offset(version, start),
            l_len: offset(version, length),
        };
        let state = i32::from(flags >> 4);
        match procedure {
            Proc::TEST | Proc::TEST_MSG | Proc::GRANTED | Proc::GRANTED_MSG => {
                versioned(version, TestArgs { cookie, exclusive, alock })
            }
            Proc::LOCK | Proc::LOCK_MSG | Proc::NM_LOCK => {
                versioned(version, LockArgs { cookie, block, exclusive, alock, reclaim, state })
            }
            Proc::CANCEL | Proc::CANCEL_MSG => {
                versioned(version, CancelArgs { cookie, block, exclusive, alock })
            }
            Proc::UNLOCK | Proc::UNLOCK_MSG => versioned(version, UnlockArgs { cookie, alock }),
            Proc::SHARE | Proc::UNSHARE => {
                let (mode, access) =
                    (ShareMode(u32::from(flags >> 3) % 8), ShareAccess(u32::from(length) % 8));
                encoded(&ShareArgs { cookie, share: Share { caller_name, fh, oh, mode, access }, reclaim })
            }
            Proc::FREE_ALL => encoded(&Notify { name: caller_name, state }),
            _ => encoded(&Res { cookie, stat: Stats(flags.into()) }),
        }
    }

    /// Sends a call, and checks the reply. Returns its results, if it has some.
    pub(crate) fn send(&mut self, host: usize, who: u8, sent: &Sent) -> Option<Bytes> {
        let mut reply = Writer::new();
        let outcome = {
            let connection = &self.connections[host][usize::from(who & UNPRIVILEGED == UNPRIVILEGED)];
            let handled = pin!(self.server.handle(connection, self.now(), sent.record.clone(), &mut reply));
            match handled.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("memory answers at once"),
            }
        };
        assert_ne!(outcome.disposition, Disposition::Close, "{:?}", sent.procedure);
        if outcome.disposition != Disposition::Reply {
            return None;
        }
        match parse_reply::<Rest>(reply.into_bytes()) {
            Ok(Rest(results)) => {
                self.check(sent.procedure, results.clone());
                Some(results)
            }
            Err(RpcError::NotExecuted(
                AcceptStatus::GarbageArguments | AcceptStatus::ProcedureUnavailable,
            )) => {
                self.played.rejected += 1;
                None
            }
            Err(error) => panic!("{:?}: {error}", sent.procedure),
        }
    }

    fn check(&mut self, (program, version, procedure): (u32, u32, u32), results: Bytes) {
        let status = match (program, Proc(procedure)) {
            (nsm::PROGRAM, _) => return check_nsm(nsm::Proc(procedure), results),
            (_, Proc::TEST) if version == nlm::VERSION => test_status(&decoded::<TestRes>(results).stat),
            (_, Proc::TEST) => test_status(&decoded::<TestRes<u32>>(results).stat),
            (_, Proc::LOCK | Proc::NM_LOCK | Proc::CANCEL | Proc::UNLOCK | Proc::GRANTED) => {
                decoded::<Res>(results).stat
            }
            (_, Proc::SHARE | Proc::UNSHARE) => decoded::<ShareRes>(results).stat,
            // Messages, their results, NULL and FREE_ALL.
            _ => return assert!(results.is_empty(), "procedure {procedure} has no results"),
        };
        let last = if version == nlm::VERSION { Stats::FAILED } else { Stats::DEADLCK };
        assert!(status.0 <= last.0, "version {version} has no status {status:?}");
        match status {
            Stats::GRANTED => self.played.granted += 1,
            Stats::BLOCKED => self.played.blocked += 1,
            _ => self.played.refused += 1,
        }
    }

    /// Takes a call of the server, if there is one, and answers it in one of some ways.
    pub(crate) fn answer(&mut self, how: u8) {
        let Poll::Ready(Work::CallHost(call)) = self.server.poll_work(&Context::from_waker(Waker::noop()))
        else {
            return;
        };
        self.played.called += 1;
        let addresses = HOSTS.map(|(_, last)| address(last, 0).ip());
        assert!(addresses.contains(&call.path().address), "{:?} has not called", call.path());
        let xid = u32::from_be_bytes(*call.record().first_chunk().expect("an RPC message"));
        let reply = |results: &dyn Fn(&mut Writer)| {
            let mut reply = Writer::new();
            encode_success(&mut reply, xid);
            results(&mut reply);
            HostAnswer::Reply(reply.into_bytes())
        };
        let answer = match how % 8 {
            0 => HostAnswer::Unanswered,
            1 => HostAnswer::Unreachable,
            2 => HostAnswer::Reply(Bytes::from_static(&[0; 7])),
            3 => reply(&|_| {}),
            4 => reply(&|reply| Res { cookie: NetObj::default(), stat: Stats::DENIED }.encode(reply)),
            _ => reply(&|reply| Res { cookie: NetObj::default(), stat: Stats::GRANTED }.encode(reply)),
        };
        self.server.handle_host_answer(&call, answer, self.now());
    }

    /// Evicts all hosts: nothing remains.
    pub(crate) fn end(&mut self) {
        self.server.audit().expect("consistent tables");
        for host in self.server.snapshot(self.now(), usize::MAX).hosts {
            self.server.evict(self.now(), &format!("{:#x}", host.id)).expect("it was shown");
        }
        self.server.audit().expect("consistent tables");
        let counts = self.server.counts();
        assert_eq!((counts.locks, counts.locks_waiting), (0, 0));
    }
}

pub(crate) fn address(last: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, last], port).into()
}

fn connection(host: usize, port: u16) -> Arc<Connection> {
    let (peer, local) = (address(HOSTS[host].1, port), address(100, 2049));
    let id = ConnectionId(1 + host as u64 * 2 + u64::from(port > 1023));
    Arc::new(Connection::new(id, peer, local, Transport::Tcp, false))
}

/// Creates a file, and returns its handle.
fn handle_of_file(files: &MemFs, number: usize, key: &HandleKey, export: ExportId) -> NetObj {
    let caller = Caller::new(Arc::new(Credentials::root()), Timestamp { seconds: 1, nanoseconds: 0 });
    let (name, what) = (format!("file-{number}"), Create::File(CreateMode::Guarded));
    let created =
        files.create(&caller, &files.root(), name.as_bytes(), &what, &SetAttributes::default()).now();
    let handle = key.seal_short(export, &created.expect("a file").handle).expect("a short handle");
    object(&handle)
}

/// Returns the arguments of a procedure of NSM. Each host's restart has a number of its own.
fn nsm_arguments(procedure: u32, step: &[u8; 9]) -> Vec<u8> {
    let [_, who, _, owner, _, length, flags, ..] = *step;
    let mon_name: Name = object(HOSTS[usize::from(owner ^ who) % HOSTS.len()].0.as_bytes());
    let my_id = MyId { my_name: mon_name.clone(), my_prog: length.into(), my_vers: 4, my_proc: flags.into() };
    match nsm::Proc(procedure) {
        nsm::Proc::STAT => encoded(&mon_name),
        nsm::Proc::MON => encoded(&nsm::Mon { mon_id: MonId { mon_name, my_id }, priv_: [flags; 16] }),
        nsm::Proc::UNMON => encoded(&MonId { mon_name, my_id }),
        nsm::Proc::UNMON_ALL => encoded(&my_id),
        nsm::Proc::NOTIFY => encoded(&StateChange { mon_name, state: i32::from(flags >> 4) }),
        _ => Vec::new(),
    }
}

fn check_nsm(procedure: nsm::Proc, results: Bytes) {
    match procedure {
        nsm::Proc::STAT | nsm::Proc::MON => {
            assert_eq!(decoded::<StatRes>(results).res_stat, nsm::Outcome::FAIL)
        }
        nsm::Proc::UNMON | nsm::Proc::UNMON_ALL => _ = decoded::<SmStat>(results),
        _ => assert!(results.is_empty(), "{procedure:?} has no results"),
    }
}

fn test_status<O>(reply: &TestReply<O>) -> Stats {
    match reply {
        TestReply::Denied(_) => Stats::DENIED,
        TestReply::Other(status) => *status,
    }
}

/// Returns a number: small, or near the end of what the version has.
fn offset(version: u32, byte: u8) -> u64 {
    let last = if version == nlm::VERSION { u64::MAX } else { u32::MAX.into() };
    match byte {
        0..0xe0 => byte.into(),
        0xe0..0xf0 => last / 2 - u64::from(byte & 0xf) + 8,
        0xf0.. => last - u64::from(byte & 0xf),
    }
}

/// Changes a byte of the arguments, or cuts them.
fn alter(arguments: &mut Vec<u8>, at: u8, value: u8) {
    let Some(at) = at.checked_sub(ALTERED).map(usize::from).filter(|at| *at < arguments.len()) else {
        return;
    };
    match value {
        0 => arguments.truncate(at),
        _ => arguments[at] ^= value,
    }
}

/// Encodes arguments with offsets of the version's size.
fn versioned<T: Narrow>(version: u32, arguments: T) -> Vec<u8> {
    if version == nlm::VERSION { encoded(&arguments) } else { encoded(&arguments.narrow()) }
}

/// Arguments that have another form in the versions 1 and 3.
trait Narrow: Encode {
    type Narrowed: Encode;

    fn narrow(self) -> Self::Narrowed;
}

macro_rules! narrowed {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Narrow for $name {
            type Narrowed = $name<u32>;

            fn narrow(self) -> $name<u32> {
                let Self { alock, $($field),* } = self;
                let Lock { caller_name, fh, oh, svid, l_offset, l_len } = alock;
                let (l_offset, l_len) = (l_offset as u32, l_len as u32);
                $name { alock: Lock { caller_name, fh, oh, svid, l_offset, l_len }, $($field),* }
            }
        }
    )*};
}

narrowed! {
    TestArgs { cookie, exclusive }
    LockArgs { cookie, block, exclusive, reclaim, state }
    CancelArgs { cookie, block, exclusive }
    UnlockArgs { cookie }
}

pub(crate) fn object<const MAX: usize>(bytes: &[u8]) -> Opaque<MAX> {
    Opaque::new(bytes.to_vec()).expect("a short one")
}

pub(crate) fn encoded(value: &impl Encode) -> Vec<u8> {
    xdr::to_bytes(value).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const EXCLUSIVE: u8 = 1;
    const WAITS: u8 = 2;
    const VERSION_4: u8 = 2 << 4;

    /// A call about bytes 0 to 9 of the first file, by an owner of its own for each host.
    fn step(procedure: Proc, host: u8, flags: u8) -> [u8; 9] {
        [procedure.0 as u8, host | VERSION_4, 0, host, 0, 10, flags, 0, 0]
    }

    #[test]
    fn a_waiter_is_called_when_the_holder_has_restarted() {
        let notify = [NSM + nsm::Proc::NOTIFY.0 as u8, 2, 0, 0, 0, 0, 5 << 4, 0, 0];
        let answer = [ANSWER, 0, 0, 0, 0, 0, 0, 0, 5];
        let steps = [
            step(Proc::LOCK, 2, EXCLUSIVE),
            step(Proc::LOCK, 3, EXCLUSIVE | WAITS),
            notify,
            answer,
            step(Proc::LOCK, 2, EXCLUSIVE),
            step(Proc::UNLOCK, 3, 0),
            step(Proc::SHARE, 1, 0),
        ];
        let played = play(steps.as_flattened());
        assert_eq!(played, Played { granted: 3, blocked: 1, refused: 1, rejected: 0, called: 1 });
    }

    #[test]
    fn a_repeated_unlock_does_not_undo_a_newer_lock() {
        let again = [REPEATED, 2, 0, 0, 0, 0, 0, 0, 0];
        let mut of_same_host = step(Proc::LOCK, 2, EXCLUSIVE);
        // Another owner of the host, which sends the last call again.
        of_same_host[3] = 3;
        let steps = [
            step(Proc::LOCK, 2, EXCLUSIVE),
            step(Proc::UNLOCK, 2, 0),
            again,
            step(Proc::LOCK, 3, EXCLUSIVE),
            again,
            of_same_host,
        ];
        let played = play(steps.as_flattened());
        assert_eq!((played.granted, played.refused), (5, 1), "the lock of the other host remains");
    }

    #[test]
    fn altered_and_cut_arguments_are_rejected() {
        let mut cut = step(Proc::LOCK, 1, EXCLUSIVE);
        cut[7] = ALTERED + 9;
        let mut long = step(Proc::TEST, 1, EXCLUSIVE);
        // The length of the cookie.
        (long[7], long[8]) = (ALTERED + 1, 0xff);
        let missing = [step(Proc(17), 1, 0), [NSM + 7, 1, 0, 0, 0, 0, 0, 0, 0]];
        let steps = [&[cut, long][..], &missing].concat();
        let played = play(steps.as_flattened());
        assert_eq!(played, Played { rejected: 4, ..Played::default() });
    }

    #[test]
    fn random_sequences_leave_nothing() {
        let mut total = Played::default();
        for seed in 1..=60 {
            let mut rng = Rng::new(seed);
            let data: Vec<u8> = (0..9 * MAX_STEPS).map(|_| rng.below(256) as u8).collect();
            let played = play(&data);
            total.granted += played.granted;
            total.blocked += played.blocked;
            total.called += played.called;
        }
        assert!(total.granted > 0 && total.blocked > 0 && total.called > 0, "{total:?}");
    }
}
