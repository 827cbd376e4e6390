//! The scenarios: clients, faults, and the properties that must hold.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use client::config::Version as ClientVersion;
use protocol::nfs3;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::executed_once;
use protocol::nfs4::ops::open::{CreateHow, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::ReclaimCompleteArgs;
use protocol::nfs4::types::{Stateid, Status};
use protocol::procedure::Effect;
use rpc::message::parse_reply;
use server::{OperationMetrics, Server};

use crate::client::{Client, ClientV3, ClientV40, ClientV41, Locks, SessionCalls, Step};
use crate::copies;
use crate::delegations::{self, Subject};
use crate::exactly_once;
use crate::full_clients;
use crate::journal;
use crate::listings;
use crate::network::Faults;
use crate::notices;
use crate::reclaims;
use crate::rng::Rng;
use crate::shares;
use crate::transfers;
use crate::waits;
use crate::world::{Cuts, Durability, World};

/// A scenario by name.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// The property that it checks.
    pub about: &'static str,
    run: fn(u64) -> Result<Report, String>,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Virtual time that passed.
    pub time: Duration,
    /// Messages sent.
    pub messages: u64,
    /// Number of times that the checked property applied: changes executed once, locks or delegations granted, notifications. May be 0 for a seed.
    pub checks: usize,
}

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "v3-once",
        about: "NFSv3: every change is executed once, despite lost, late, duplicate and cut messages",
        run: |seed| changes_once(seed, &[Version::V3; 3]),
    },
    Scenario {
        name: "v41-once",
        about: "NFSv4.1: the same with sessions",
        run: |seed| changes_once(seed, &[Version::V41; 3]),
    },
    Scenario {
        name: "v42-once",
        about: "NFSv4.2: the same with extended attributes",
        run: |seed| changes_once(seed, &[Version::V42; 3]),
    },
    Scenario {
        name: "v40-once",
        about: "NFSv4.0: the same with owners' seqids and the reply cache",
        run: |seed| changes_once(seed, &[Version::V40; 3]),
    },
    Scenario {
        name: "mixed-once",
        about: "the same with clients of all versions",
        run: |seed| changes_once(seed, &[Version::V3, Version::V41, Version::V40, Version::V42]),
    },
    Scenario {
        name: "slots-once",
        about: "NFSv4.1 and 4.2: every operation of the server's execute-once table, in several slots at once",
        run: exactly_once::run,
    },
    Scenario {
        name: "cut-replies",
        about: "the same with connections cut during calls and within replies",
        run: cut_replies,
    },
    Scenario { name: "restart-once", about: "the same with kills of the server", run: restart_once },
    Scenario {
        name: "power-once",
        about: "the same with persistent sessions and power failures",
        run: power_once,
    },
    Scenario {
        name: "restart-locks",
        about: "one of several clients that create a directory succeeds, over kills of the server",
        run: restart_locks,
    },
    Scenario {
        name: "lease-expiry",
        about: "an expired client keeps its opens until another client conflicts",
        run: lease_expiry,
    },
    Scenario {
        name: "reclaims",
        about: "after crashes with torn logs, no client reclaims a lock that another has had, and all other locks are kept",
        run: reclaims::run,
    },
    Scenario {
        name: "shares",
        about: "no client has open what another denies, over upgrades, downgrades, closes, silence and NFSv3 I/O",
        run: shares::run,
    },
    Scenario {
        name: "waits",
        about: "waiters for byte-range locks are notified in turn and get them, despite lost callbacks, silent clients and restarts",
        run: waits::run,
    },
    Scenario {
        name: "delegations",
        about: "no stale read under delegations, despite faults and changes by local processes",
        run: |seed| delegations::run(seed, Subject::Files, false),
    },
    Scenario {
        name: "mute",
        about: "the same with a client that takes delegations and falls silent",
        run: |seed| delegations::run(seed, Subject::Files, true),
    },
    Scenario {
        name: "directories",
        about: "no stale listing under directory delegations; in every other run a client falls silent",
        run: |seed| delegations::run(seed, Subject::Directories, seed % 2 == 1),
    },
    Scenario {
        name: "notices",
        about: "CB_NOTIFY keeps holders' views of directories correct, despite lost callbacks, slow and silent clients, and kills",
        run: notices::run,
    },
    Scenario {
        name: "listings",
        about: "a cached listing equals the directory, despite concurrent changes and slow reads",
        run: listings::run,
    },
    Scenario {
        name: "journal",
        about: "what was answered from a journal is there after crashes that tear the log's last write anywhere",
        run: journal::run,
    },
    Scenario {
        name: "copies",
        about: "the end of a background copy is reported once, when it is complete, despite losses, cancellations and kills",
        run: copies::run,
    },
    Scenario {
        name: "transfers",
        about: "reported bytes of a copy from another server exist, despite losses, cancellations, kills, silence and expiry",
        run: transfers::run,
    },
    Scenario {
        name: "client-v2",
        about: "clients of version 2 get right results, over broken connections and kills of both sides",
        run: |seed| full_clients::run(seed, &[ClientVersion::V2; 3]),
    },
    Scenario {
        name: "client-v3",
        about: "the same with version 3",
        run: |seed| full_clients::run(seed, &[ClientVersion::V3; 3]),
    },
    Scenario {
        name: "client-v40",
        about: "the same with open-owners and sequence numbers of version 4.0",
        run: |seed| full_clients::run(seed, &[ClientVersion::V40; 3]),
    },
    Scenario {
        name: "client-v41",
        about: "the same with sessions of version 4.1",
        run: |seed| full_clients::run(seed, &[ClientVersion::V41; 3]),
    },
    Scenario {
        name: "client-mixed",
        about: "the same with clients of versions 3, 4.0, 4.1 and 4.2",
        run: |seed| full_clients::run(seed, &ClientVersion::ALL),
    },
    Scenario {
        name: "client-cached",
        about: "clients of versions 4.1 and 4.2 with caches and delegations: locks exclude, closed and synced data are seen",
        run: |seed| {
            let versions = &[ClientVersion::V41, ClientVersion::V42, ClientVersion::V42];
            full_clients::run_cached(seed, versions)
        },
    },
    Scenario {
        name: "client-cached-v40",
        about: "the same with version 4.0, whose delegations are recalled over connections of the server",
        run: |seed| full_clients::run_cached(seed, &[ClientVersion::V40; 3]),
    },
    Scenario {
        name: "client-cached-mixed",
        about: "the same with versions 4.0, 4.1 and 4.2 together",
        run: |seed| {
            let versions = &[ClientVersion::V40, ClientVersion::V41, ClientVersion::V42];
            full_clients::run_cached(seed, versions)
        },
    },
    Scenario {
        name: "client-directories",
        about: "names that a client changes are seen by others at once, although they cache them under delegations of the directory",
        run: |seed| {
            let versions = &[ClientVersion::V41, ClientVersion::V42, ClientVersion::V42];
            full_clients::run_directories(seed, versions)
        },
    },
    Scenario {
        name: "client-nlm",
        about: "clients of version 3 that lock by NLM beside one of version 4.1: locks exclude, only the holder reclaims",
        run: |seed| {
            let versions = &[ClientVersion::V3, ClientVersion::V3, ClientVersion::V41];
            full_clients::run_nlm(seed, versions)
        },
    },
    Scenario {
        name: "client-revoked",
        about: "clients with caches, delegations and locks that fall silent for longer than the lease: nothing is overwritten",
        run: |seed| {
            let versions = &[ClientVersion::V41, ClientVersion::V42, ClientVersion::V42];
            full_clients::run_revoked(seed, versions)
        },
    },
];

impl Scenario {
    /// Runs the scenario.
    ///
    /// # Errors
    /// Returns the failure, and the command that repeats the run.
    pub fn run(&self, seed: u64) -> Result<Report, String> {
        (self.run)(seed).map_err(|why| {
            format!("{}: {why}\nto repeat: cargo run -p enfys-sim -- {} --seed {seed}", self.name, self.name)
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Version {
    V3,
    V40,
    V41,
    V42,
}

/// Rounds of changes of each client.
const ROUNDS: u32 = 3;

/// Runs clients that make every kind of change over a faulty network; each must be executed once.
fn changes_once(seed: u64, versions: &[Version]) -> Result<Report, String> {
    once_over(seed, versions, Faults::MANY).map(|(report, _)| report)
}

/// The same with cuts of connections during calls and replies.
fn cut_replies(seed: u64) -> Result<Report, String> {
    let versions = [Version::V3, Version::V40, Version::V41, Version::V42];
    let (report, cuts) = once_over(seed, &versions, Faults::CUTS)?;
    Ok(Report { checks: cuts.running.min(cuts.replies), ..report })
}

fn once_over(seed: u64, versions: &[Version], faults: Faults) -> Result<(Report, Cuts), String> {
    let mut rng = Rng::new(seed);
    let mut world = World::new(rng.next_u64(), faults);
    let mut notes = Vec::new();
    let mut unnamed = 0;
    for (index, version) in versions.iter().enumerate() {
        let round = match version {
            Version::V42 => Step::round_42,
            _ => Step::round,
        };
        let script: Vec<Step> = (0..ROUNDS).flat_map(|number| round(index, number)).collect();
        notes.extend(script.iter().filter_map(Step::note));
        unnamed += script.iter().filter(|step| step.note().is_none()).count();
        let first_xid = rng.next_u64() as u32;
        match version {
            Version::V3 => world.add(Box::new(ClientV3::new(script, first_xid))),
            Version::V40 => world.add(Box::new(ClientV40::new(index, script, first_xid))),
            Version::V41 => {
                world.add(Box::new(ClientV41::new(&format!("client-{index}"), script, first_xid)))
            }
            Version::V42 => {
                let client = ClientV41::new(&format!("client-{index}"), script, first_xid);
                world.add(Box::new(client.newer()));
            }
        }
    }
    world.run()?;
    let mut executed = world.backend.around().executed();
    for note in &notes {
        match executed.remove(note) {
            Some(1) => {}
            times => return Err(format!("`{note}` was executed {} times", times.unwrap_or(0))),
        }
    }
    // The rest are changes by handle: SETATTR and WRITE.
    if let Some((note, times)) = executed.iter().find(|(_, times)| **times != 1) {
        return Err(format!("`{note}` was executed {times} times"));
    }
    let counts = world.server.counts();
    if (counts.opens, counts.locks, counts.delegations) != (0, 0, 0) {
        return Err(format!("something is left: {counts:?}"));
    }
    no_operation_is_missing(&world.server, versions)?;
    if executed.len() != unnamed {
        return Err(format!("{} changes by handle were executed instead of {unnamed}", executed.len()));
    }
    let report = Report { time: world.now(), messages: world.messages, checks: notes.len() + unnamed };
    Ok((report, world.cuts))
}

/// Checks that clients of version 3 or 4.0 used every operation that must be executed once. (The scripts of later versions have only
/// the common ones; `slots-once` has the rest.)
fn no_operation_is_missing(server: &Server, versions: &[Version]) -> Result<(), String> {
    let done = |counts: &OperationMetrics| counts.calls.load(Relaxed) > counts.errors.load(Relaxed);
    let metrics = server.metrics();
    let missing = if versions.iter().all(|version| matches!(version, Version::V3)) {
        let mut once = nfs3::TABLE.procedures.iter().filter(|row| row.effect == Effect::Once);
        once.find(|row| !done(&metrics.nfs3[row.number as usize])).map(|row| row.name.to_owned())
    } else if versions.iter().all(|version| matches!(version, Version::V40)) {
        let missing = executed_once(0).find(|number| !done(metrics.nfs4_operation(number.0)));
        missing.map(|number| format!("{number:?}"))
    } else {
        None
    };
    missing.map_or(Ok(()), |name| Err(format!("{name} must be executed once, and no step uses it")))
}

/// Kills of the server in a run, and the time within which they happen.
const KILLS: u32 = 12;
const KILLED_WITHIN: Duration = Duration::from_secs(60);

fn seat(index: usize, script: Vec<Step>, first_xid: u32, locks: &Locks) -> Box<dyn Client> {
    if index.is_multiple_of(2) {
        Box::new(ClientV3::new(script, first_xid).with_locks(Locks::clone(locks)))
    } else {
        let client = ClientV41::new(&format!("client-{index}"), script, first_xid);
        Box::new(client.with_locks(Locks::clone(locks)))
    }
}

/// Runs every change of both versions over a faulty network and kills of the server. Changes by handle may repeat if that has no effect
/// (WRITE, NFSv4's SETATTR).
fn restart_once(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let mut world = World::new(rng.next_u64(), Faults::MANY);
    let mut steps = Vec::new();
    for index in 0..4 {
        let script: Vec<Step> = (0..ROUNDS).flat_map(|round| Step::round(index, round)).collect();
        steps.extend(script.iter().filter(|step| step.note().is_some()).cloned());
        world.add(seat(index, script, rng.next_u64() as u32, &Locks::default()));
    }
    world.plan_kills(KILLS, KILLED_WITHIN);
    world.run()?;
    done_once(&world, &steps)?;
    Ok(Report { time: world.now(), messages: world.messages, checks: steps.len() })
}

/// The same with as many power failures, which lose log records that were not synced. The file system loses nothing.
fn power_once(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let mut world = World::lasting(rng.next_u64(), Faults::MANY, Durability::PowerFailures);
    let mut steps = Vec::new();
    for index in 0..4 {
        let script: Vec<Step> = (0..ROUNDS).flat_map(|round| Step::round(index, round)).collect();
        steps.extend(script.iter().filter(|step| step.note().is_some()).cloned());
        let first_xid = rng.next_u64() as u32;
        if index == 0 {
            world.add(Box::new(ClientV3::new(script, first_xid)));
        } else {
            let client = ClientV41::new(&format!("client-{index}"), script, first_xid);
            world.add(Box::new(client.lasting()));
        }
    }
    world.plan_kills(KILLS / 2, KILLED_WITHIN);
    world.plan_power_failures(KILLS / 2, KILLED_WITHIN);
    world.run()?;
    done_once(&world, &steps)?;
    Ok(Report { time: world.now(), messages: world.messages, checks: steps.len() })
}

/// Checks that each change was made exactly once. An exclusive create may repeat over a crash: its verifier shows that the file exists
/// (RFC 1813 §3.3.8, RFC 8881 §18.16.3), so that the client gets success and nothing changes.
fn done_once(world: &World, steps: &[Step]) -> Result<(), String> {
    let done = world.backend.around().done();
    for (step, note) in steps.iter().filter_map(|step| Some((step, step.note()?))) {
        let times = done.get(&note).copied().unwrap_or(0);
        let may_repeat = matches!(step, Step::CreateExclusive(_));
        if times == 0 || times > 1 && !may_repeat {
            return Err(format!("`{note}` was done {times} times"));
        }
    }
    Ok(())
}

/// Clients of both versions request the same locks, in the same order.
fn restart_locks(seed: u64) -> Result<Report, String> {
    const LOCKS: usize = 12;
    let mut rng = Rng::new(seed);
    let mut world = World::new(rng.next_u64(), Faults::MANY);
    let locks = Locks::default();
    let names: Vec<String> = (0..LOCKS).map(|number| format!("lock-{number}")).collect();
    for index in 0..6 {
        let script = names.iter().cloned().map(Step::Lock).collect();
        world.add(seat(index, script, rng.next_u64() as u32, &locks));
    }
    world.plan_kills(KILLS, KILLED_WITHIN);
    world.run()?;
    let mut held = locks.lock().clone();
    held.sort();
    let mut names = names;
    names.sort();
    if held != names {
        return Err(format!("each lock has one holder; held are {held:?}"));
    }
    Ok(Report { time: world.now(), messages: world.messages, checks: LOCKS })
}

/// Two clients whose calls the scenario makes itself, over a network without faults.
struct Dialogue {
    world: World,
    messages: u64,
}

impl Dialogue {
    fn call(&mut self, bytes: bytes::Bytes) -> Result<CompoundResult, String> {
        self.messages += 1;
        let reply = self.world.ask(bytes).ok_or("no answer")?;
        parse_reply(reply).map_err(|error| error.to_string())
    }

    fn introduce(&mut self, calls: &mut SessionCalls) -> Result<(), String> {
        let exchanged = self.call(calls.exchange_id())?;
        calls.learn(&exchanged)?;
        let created = self.call(calls.create_session())?;
        calls.learn(&created)?;
        self.expect(calls, vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })], Status::OK)?;
        Ok(())
    }

    fn expect(
        &mut self,
        calls: &mut SessionCalls,
        ops: Vec<Op>,
        status: Status,
    ) -> Result<CompoundResult, String> {
        let what = format!("{:?}", ops.last());
        let result = self.call(calls.in_session(ops))?;
        if result.status == status {
            Ok(result)
        } else {
            Err(format!("{what}: {:?} instead of {status:?}", result.status))
        }
    }
}

fn opened(result: &CompoundResult) -> Result<Stateid, String> {
    match result.results.last() {
        Some(OpResult::Open(open)) => {
            open.clone().into_result().map(|ok| ok.stateid).map_err(|status| format!("OPEN: {status:?}"))
        }
        other => Err(format!("expected OPEN: {other:?}")),
    }
}

/// RFC 8881 §8.3, §8.4.3: an expired lease alone does not end a client's state ("courteous" server); a conflict does.
fn lease_expiry(seed: u64) -> Result<Report, String> {
    let mut dialogue = Dialogue { world: World::new(seed, Faults::NONE), messages: 0 };
    let lease = dialogue.world.server.settings().lease;
    let (mut holder, mut rival) = (SessionCalls::new("holder", 100), SessionCalls::new("rival", 10_000));
    dialogue.introduce(&mut holder)?;
    dialogue.introduce(&mut rival)?;

    let create = || OpenHow::Create(CreateHow::Unchecked(FileAttributes::default()));
    let exclusive = |calls: &SessionCalls| calls.open("file", ShareAccess::BOTH, ShareDeny::BOTH, create());
    let plain =
        |calls: &SessionCalls| calls.open("file", ShareAccess::READ, ShareDeny::empty(), OpenHow::NoCreate);
    let ops = exclusive(&holder);
    let stateid = opened(&dialogue.expect(&mut holder, ops, Status::OK)?)?;
    let read = || {
        let mut ops = crate::client::at_export("file");
        ops.push(Op::Read(ReadArgs { stateid, offset: 0, count: 10 }));
        ops
    };

    // Within the lease the rival is refused.
    dialogue.world.wait(lease / 2);
    let ops = plain(&rival);
    dialogue.expect(&mut rival, ops, Status::SHARE_DENIED)?;

    // Long after the lease, without a conflict, the holder still has its open.
    dialogue.expect(&mut holder, read(), Status::OK)?;
    dialogue.world.wait(lease * 3);
    dialogue.expect(&mut holder, read(), Status::OK)?;

    // After the lease the rival's open replaces the holder's.
    dialogue.world.wait(lease + Duration::from_secs(1));
    let ops = vec![Op::PutRootFh];
    dialogue.expect(&mut rival, ops, Status::OK)?;
    let ops = plain(&rival);
    dialogue.expect(&mut rival, ops, Status::OK)?;
    let late = dialogue.call(holder.in_session(read()))?;
    let is_gone = matches!(
        late.status,
        Status::EXPIRED
            | Status::BAD_STATEID
            | Status::BADSESSION
            | Status::STALE_CLIENTID
            | Status::ADMIN_REVOKED
    );
    if !is_gone {
        return Err(format!("the holder's open outlived a conflict after its lease: {:?}", late.status));
    }
    Ok(Report { time: dialogue.world.now(), messages: dialogue.messages, checks: 1 })
}
