//! Who does what, and what must hold at the end.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

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
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    run: fn(u64) -> Result<Report, String>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Virtual time that passed.
    pub time: Duration,
    /// Messages that were sent.
    pub messages: u64,
    /// How often there was what the scenario is about: a change that was executed once, a lock given, a delegation granted, a
    /// notice. Of some seeds there is nothing of it.
    pub checks: usize,
}

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "v3-once",
        about: "NFSv3: every change is executed once, whatever is lost, late, doubled or cut off",
        run: |seed| changes_once(seed, &[Version::V3; 3]),
    },
    Scenario {
        name: "v41-once",
        about: "NFSv4.1: the same, by sessions",
        run: |seed| changes_once(seed, &[Version::V41; 3]),
    },
    Scenario {
        name: "v42-once",
        about: "NFSv4.2: the same, extended attributes among them",
        run: |seed| changes_once(seed, &[Version::V42; 3]),
    },
    Scenario {
        name: "v40-once",
        about: "NFSv4.0: the same, by the seqids of owners and the reply cache",
        run: |seed| changes_once(seed, &[Version::V40; 3]),
    },
    Scenario {
        name: "mixed-once",
        about: "clients of all versions beside each other",
        run: |seed| changes_once(seed, &[Version::V3, Version::V41, Version::V40, Version::V42]),
    },
    Scenario {
        name: "slots-once",
        about: "NFSv4.1 and 4.2: all that the server's table has executed once, state too, in several slots at once",
        run: exactly_once::run,
    },
    Scenario {
        name: "cut-replies",
        about: "the same, where connections are cut while calls run and in the middle of replies",
        run: cut_replies,
    },
    Scenario {
        name: "restart-once",
        about: "the same, and the server is killed again and again in the middle of them",
        run: restart_once,
    },
    Scenario {
        name: "power-once",
        about: "the same with persistent sessions, and the power fails too",
        run: power_once,
    },
    Scenario {
        name: "restart-locks",
        about: "of several clients that make one directory exactly one is told so, over kills of the server too",
        run: restart_locks,
    },
    Scenario {
        name: "lease-expiry",
        about: "an expired client keeps its opens until somebody needs them, and loses them then",
        run: lease_expiry,
    },
    Scenario {
        name: "reclaims",
        about: "over machines that go down with torn logs, nobody reclaims a lock that another has had, and all else is kept",
        run: reclaims::run,
    },
    Scenario {
        name: "shares",
        about: "nobody has open what another denies, whoever opens for more or less, closes, falls silent or speaks version 3",
        run: shares::run,
    },
    Scenario {
        name: "waits",
        about: "who waits for a byte-range lock is told in turn when it is free, and gets it, whoever is deaf, silent or restarted",
        run: waits::run,
    },
    Scenario {
        name: "delegations",
        about: "nobody reads what was overwritten, whatever is delegated, recalled, lost, late, doubled, cut off or changed beside the server",
        run: |seed| delegations::run(seed, Subject::Files, false),
    },
    Scenario {
        name: "mute",
        about: "the same beside a client that takes delegations and is never heard of again",
        run: |seed| delegations::run(seed, Subject::Files, true),
    },
    Scenario {
        name: "directories",
        about: "clients with delegated directories, one of which is never heard of again in every other run",
        run: |seed| delegations::run(seed, Subject::Directories, seed % 2 == 1),
    },
    Scenario {
        name: "notices",
        about: "holders of directories know them by what they are told (CB_NOTIFY), whatever is slow, deaf, mute, cut off or killed",
        run: notices::run,
    },
    Scenario {
        name: "listings",
        about: "a listing that is told again is what a look would find, whoever changes entries meanwhile, and however long looks take",
        run: listings::run,
    },
    Scenario {
        name: "copies",
        about: "the end of a copy in the background is told exactly_once, when all is there, whatever is lost, cancelled, killed or gone",
        run: copies::run,
    },
    Scenario {
        name: "transfers",
        about: "what is told of a copy from another server is there, whatever is lost, cancelled, killed, mute or expired",
        run: transfers::run,
    },
];

impl Scenario {
    /// Runs it.
    ///
    /// # Errors
    /// What went wrong, and the command that does it again.
    pub fn run(&self, seed: u64) -> Result<Report, String> {
        (self.run)(seed).map_err(|why| {
            format!(
                "{}: {why}\nto see it again: cargo run -p enfys-sim -- {} --seed {seed}",
                self.name, self.name
            )
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

/// Rounds of changes that each client goes through.
const ROUNDS: u32 = 3;

/// Clients go through every kind of change over a bad network; each change must have been executed once.
fn changes_once(seed: u64, versions: &[Version]) -> Result<Report, String> {
    once_over(seed, versions, Faults::MANY).map(|(report, _)| report)
}

/// The same over a network that cuts connections under calls and replies.
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
    // What is left names handles: SETATTR and WRITE.
    if let Some((note, times)) = executed.iter().find(|(_, times)| **times != 1) {
        return Err(format!("`{note}` was executed {times} times"));
    }
    let counts = world.server.counts();
    if (counts.opens, counts.locks, counts.delegations) != (0, 0, 0) {
        return Err(format!("something is left: {counts:?}"));
    }
    nothing_is_left_out(&world.server, versions)?;
    if executed.len() != unnamed {
        return Err(format!("{} changes by handle were executed instead of {unnamed}", executed.len()));
    }
    let report = Report { time: world.now(), messages: world.messages, checks: notes.len() + unnamed };
    Ok((report, world.cuts))
}

/// What is not idempotent is asked for, all of it, where all clients are of version 3 or 4.0. (The scripts of later versions have what
/// all have; `slots-once` has the rest.)
fn nothing_is_left_out(server: &Server, versions: &[Version]) -> Result<(), String> {
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
    missing.map_or(Ok(()), |name| Err(format!("{name} must be executed once, and no step asks for it")))
}

/// Servers killed in a run, and within which time.
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

/// Every change of both versions over a bad network and servers that are killed. What names a handle may be made again where
/// that changes nothing (WRITE, NFSv4's SETATTR): nobody was told of it.
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

/// The same, where the power fails as often as the server is killed, and takes of the logs what was not synced. What the file
/// system had done it has done.
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

/// Whether each change was made, and no more than once. What was made exclusively may be asked for again over a crash: it is told by
/// its verifier that it is there (RFC 1813 §3.3.8, RFC 8881 §18.16.3), so that its client hears of success and nothing is changed.
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

/// Clients of both versions want the same locks, in the same order.
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

/// Two clients whose words the scenario speaks itself, over a network without faults.
struct Dialogue {
    world: World,
    messages: u64,
}

impl Dialogue {
    fn say(&mut self, bytes: bytes::Bytes) -> Result<CompoundResult, String> {
        self.messages += 1;
        let reply = self.world.ask(bytes).ok_or("no answer")?;
        parse_reply(reply).map_err(|error| error.to_string())
    }

    fn introduce(&mut self, words: &mut SessionCalls) -> Result<(), String> {
        let exchanged = self.say(words.exchange_id())?;
        words.learn(&exchanged)?;
        let created = self.say(words.create_session())?;
        words.learn(&created)?;
        self.expect(words, vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })], Status::OK)?;
        Ok(())
    }

    fn expect(
        &mut self,
        words: &mut SessionCalls,
        ops: Vec<Op>,
        status: Status,
    ) -> Result<CompoundResult, String> {
        let what = format!("{:?}", ops.last());
        let result = self.say(words.in_session(ops))?;
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

/// RFC 8881 §8.3 and §8.4.3: a lease that ran out does not end a client's state by itself ("courteous"); a conflict does.
fn lease_expiry(seed: u64) -> Result<Report, String> {
    let mut talk = Dialogue { world: World::new(seed, Faults::NONE), messages: 0 };
    let lease = talk.world.server.settings().lease;
    let (mut holder, mut rival) = (SessionCalls::new("holder", 100), SessionCalls::new("rival", 10_000));
    talk.introduce(&mut holder)?;
    talk.introduce(&mut rival)?;

    let create = || OpenHow::Create(CreateHow::Unchecked(FileAttributes::default()));
    let exclusive = |words: &SessionCalls| words.open("file", ShareAccess::BOTH, ShareDeny::BOTH, create());
    let plain =
        |words: &SessionCalls| words.open("file", ShareAccess::READ, ShareDeny::empty(), OpenHow::NoCreate);
    let ops = exclusive(&holder);
    let stateid = opened(&talk.expect(&mut holder, ops, Status::OK)?)?;
    let read = || {
        let mut ops = crate::client::at_export("file");
        ops.push(Op::Read(ReadArgs { stateid, offset: 0, count: 10 }));
        ops
    };

    // Within the lease the rival is refused.
    talk.world.wait(lease / 2);
    let ops = plain(&rival);
    talk.expect(&mut rival, ops, Status::SHARE_DENIED)?;

    // Long after the lease, with nobody in the way, the holder comes back and still has its open.
    talk.expect(&mut holder, read(), Status::OK)?;
    talk.world.wait(lease * 3);
    talk.expect(&mut holder, read(), Status::OK)?;

    // After the lease the rival's open takes the holder's away.
    talk.world.wait(lease + Duration::from_secs(1));
    let ops = vec![Op::PutRootFh];
    talk.expect(&mut rival, ops, Status::OK)?;
    let ops = plain(&rival);
    talk.expect(&mut rival, ops, Status::OK)?;
    let late = talk.say(holder.in_session(read()))?;
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
    Ok(Report { time: talk.world.now(), messages: talk.messages, checks: 1 })
}
