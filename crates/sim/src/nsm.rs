//! Sequences of NSM calls from arbitrary bytes, for fuzzing: arguments as they come, from hosts that hold locks and wait for them.
//!
//! No procedure but SM_NOTIFY changes anything, and that frees nothing of another address. The server's number stays the same.

use core::net::IpAddr;
use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::nlm;
use protocol::nsm::{Name, PROGRAM, Proc, SmStat, StatRes, StateChange, VERSION};

use crate::nlm::{HOSTS, Played, Sent, World, address, encoded, object};
use crate::raw_xdr::decoded;

/// Maximum number of steps.
const MAX_STEPS: usize = 256;
/// Maximum number of argument bytes of a step.
const ARGUMENTS_MAX: usize = 0x7f;
/// Numbers of the steps after the procedures, of which the last one does not exist.
const NOTIFY: u8 = 8;
const LOCK: u8 = 9;
const WAITING_LOCK: u8 = 10;
const ANSWER: u8 = 11;
const AGAIN: u8 = 12;
const KINDS: u8 = 13;

/// Locked ranges of each host, by address and name.
type Held = BTreeMap<(IpAddr, Bytes), u32>;

/// Runs steps: what, who (host and port), the number of bytes that follow, and these bytes.
///
/// # Panics
/// Panics if a reply does not decode as the procedure's results, if a call changes what it must not change, or if the server's tables are
/// inconsistent.
pub fn play(data: &[u8]) -> Played {
    let (mut world, mut rest) = (World::new(), data);
    let (mut last, mut state) = (None, None);
    for _ in 0..MAX_STEPS {
        let [kind, who, length, more @ ..] = rest else { break };
        let (bytes, after) = more.split_at(more.len().min(usize::from(*length) & ARGUMENTS_MAX));
        rest = after;
        let who = *who;
        let host = usize::from(who) % HOSTS.len();
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let sent = match kind % KINDS {
            ANSWER => {
                world.answer(byte(0));
                continue;
            }
            kind @ (LOCK | WAITING_LOCK) => {
                let waits = if kind == WAITING_LOCK { 2 } else { 0 };
                // One of the first bytes of a file, exclusively.
                let flags = byte(3) & 0xf0 | waits | 1;
                let step = [nlm::Proc::LOCK.0 as u8, who, byte(0), byte(1), byte(2) % 4, 1, flags, 0, 0];
                let sent = world.call(step[0], &step);
                world.send(host, who, &sent);
                continue;
            }
            NOTIFY => {
                let mon_name: Name = object(HOSTS[usize::from(byte(0)) % HOSTS.len()].0.as_bytes());
                let change = StateChange { mon_name, state: i32::from(byte(1) >> 4) };
                world.sent((PROGRAM, VERSION, Proc::NOTIFY.0), &encoded(&change))
            }
            AGAIN => match last.clone() {
                Some(sent) => sent,
                None => continue,
            },
            number => world.sent((PROGRAM, VERSION, number.into()), bytes),
        };
        call(&mut world, (host, who), &sent, &mut state);
        last = Some(sent);
    }
    world.end();
    world.played
}

/// Makes a call of NSM, and checks what it changes. `state` is the server's number, once it is known.
fn call(world: &mut World, (host, who): (usize, u8), sent: &Sent, state: &mut Option<i32>) {
    let (before, calls) = (held(world), world.server.host_calls());
    let results = world.send(host, who, sent);
    let (number, after) = (Proc(sent.procedure.2), held(world));
    if let Some(results) = results {
        let shown = match number {
            Proc::STAT | Proc::MON => Some(decoded::<StatRes>(results).state),
            Proc::UNMON | Proc::UNMON_ALL => Some(decoded::<SmStat>(results).state),
            _ => None,
        };
        if let Some(shown) = shown {
            assert_eq!(shown, *state.get_or_insert(shown), "{number:?}");
        }
    }
    if number != Proc::NOTIFY {
        assert_eq!((&after, world.server.host_calls()), (&before, calls), "{number:?}");
    }
    let caller = address(HOSTS[host].1, 0).ip();
    for (holder, locks) in before.iter().filter(|((address, _), _)| *address != caller) {
        // It may have been waiting for one that is free now.
        assert!(after.get(holder) >= Some(locks), "{number:?} of {caller} has freed locks of {holder:?}");
    }
    world.server.audit().expect("consistent tables");
}

fn held(world: &World) -> Held {
    let hosts = world.server.snapshot(world.now(), usize::MAX).hosts;
    hosts.into_iter().map(|host| ((host.address, host.name), host.locks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn lock(kind: u8, host: u8, file: u8) -> Vec<u8> {
        // Version 4, and state 3 of the host.
        vec![kind, host | 2 << 4, 4, file, 0, 0, 3 << 4]
    }

    #[test]
    fn a_notification_frees_the_locks_of_its_host_alone() {
        let notify = |host: u8, name: u8| vec![NOTIFY, host, 2, name, 5 << 4];
        let steps = [
            lock(LOCK, 2, 0),
            lock(LOCK, 3, 1),
            lock(WAITING_LOCK, 3, 0),
            // The third host's restart, as another address says.
            notify(0, 2),
            vec![ANSWER, 0, 1, 5],
            notify(2, 2),
            vec![ANSWER, 0, 1, 5],
        ];
        let played = play(&steps.concat());
        assert_eq!(played, Played { granted: 2, blocked: 1, refused: 0, rejected: 0, called: 1 });
    }

    #[test]
    fn other_procedures_and_cut_arguments_change_nothing() {
        let name = [&[0, 0, 0, 3][..], b"one\0"].concat();
        let with_name = |number: u8| [&[number, 0, 8][..], &name].concat();
        let steps = [
            lock(LOCK, 0, 0),
            with_name(Proc::STAT.0 as u8),
            // SM_SIMU_CRASH has no arguments, and is ignored.
            vec![Proc::SIMU_CRASH.0 as u8, 0, 0],
            vec![7, 0, 0],
            // SM_NOTIFY without its number.
            with_name(Proc::NOTIFY.0 as u8),
            vec![AGAIN, 0, 0],
            lock(LOCK, 2, 0),
        ];
        let played = play(&steps.concat());
        assert_eq!(played, Played { granted: 1, blocked: 0, refused: 1, rejected: 3, called: 0 });
    }

    #[test]
    fn random_sequences_keep_the_rules() {
        let mut total = Played::default();
        for seed in 1..=60 {
            let mut rng = Rng::new(seed);
            let mut data = Vec::new();
            for _ in 0..MAX_STEPS {
                data.extend([rng.below(KINDS.into()) as u8, rng.below(4) as u8 | 2 << 4, 4]);
                data.extend([0; 4].map(|_: u8| rng.below(256) as u8));
            }
            let played = play(&data);
            total.granted += played.granted;
            total.blocked += played.blocked;
            total.rejected += played.rejected;
            total.called += played.called;
        }
        let Played { granted, blocked, rejected, called, .. } = total;
        assert!(granted > 0 && blocked > 0 && rejected > 0 && called > 0, "{total:?}");
    }
}
