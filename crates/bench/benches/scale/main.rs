//! Measures the cost of each operation on the server's NFSv4 state while 1,000, 10,000 or 100,000 objects of its kind exist,
//! and the memory of each object: `cargo bench -p enfys-bench --bench scale`.
//!
//! Only the state is measured, without protocol, network and file system. Costs are CPU time in nanoseconds, medians of batches, so
//! other work on the machine affects them only through the caches. A cost that grows with the logarithm grows by two thirds from
//! 1,000 to 100,000, and each access to memory outside of the caches costs some hundred nanoseconds.
//!
//! `-- 1000` measures among 1,000 only. Under `valgrind --tool=callgrind --cache-sim=yes` such a run counts instructions and misses: a
//! row's counts are those of its call of [`Lap::time`], for [`BATCH`] operations each time.

mod memory;
mod world;

use std::time::Duration;

use bench::process;
use bench::statistics::median;
use protocol::nfs4::ops::open::{ShareAccess, ShareDeny};
use protocol::nfs4::types::Stateid;
use server::state::Locker;

use memory::live_bytes;
use world::{Peer, SLOTS, World, latest, owner, range, whole};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Number of existing objects when an operation is measured.
const POPULATIONS: [u64; 3] = [1_000, 10_000, 100_000];
/// Operations timed together.
const BATCH: u64 = 100;
/// Batches of each measurement.
const BATCHES: u64 = 31;
/// Bytes of a reply that a slot keeps.
const REPLY_BYTES: usize = 256;

/// A row of the report: the operation, and nanoseconds for each population.
type Row = (&'static str, Vec<f64>);

fn main() {
    // Without `--bench`, cargo runs it as a test, with a small population.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let given: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let populations: &[u64] = match given.as_slice() {
        [] if is_bench => &POPULATIONS,
        [] => &[BATCH],
        given => given,
    };
    let mut rows: Vec<Row> = Vec::new();
    for kind in [opens_of_files, opens_of_a_file, locks_of_an_owner, locks_of_owners, delegations, clients] {
        for population in populations {
            for (name, nanoseconds) in kind(*population) {
                match rows.iter_mut().find(|row| row.0 == name) {
                    Some(row) => row.1.push(nanoseconds),
                    None => rows.push((name, vec![nanoseconds])),
                }
            }
        }
    }
    print(&rows, populations);
    let count = populations[populations.len() - 1];
    println!("\n| kept for each | bytes |\n|---|---|");
    for (name, bytes) in bytes_of_each(count) {
        println!("| {name} | {bytes:.0} |");
    }
}

fn print(rows: &[Row], populations: &[u64]) {
    let columns = |cells: Vec<String>| println!("| {} |", cells.join(" | "));
    let head = populations.iter().map(|population| format!("among {population}"));
    columns(["operation, in ns".to_owned()].into_iter().chain(head).chain(["last/first".into()]).collect());
    columns(vec!["---".to_owned(); populations.len() + 2]);
    for (name, costs) in rows {
        let growth = costs.last().zip(costs.first()).map_or(1.0, |(last, first)| last / first);
        let costs = costs.iter().map(|cost| format!("{cost:.0}"));
        columns([(*name).to_owned()].into_iter().chain(costs).chain([format!("{growth:.1}")]).collect());
    }
}

/// Returns the CPU time of this process.
fn cpu() -> Duration {
    process::cpu_time(std::process::id()).expect("a process knows its own clock")
}

/// The times of batches, of several operations that follow each other.
struct Clock {
    batches: Vec<Vec<f64>>,
}

impl Clock {
    /// Runs `batch` many times; it times its operations by [`Lap::time`], always in the same order.
    fn measure(names: &[&'static str], mut batch: impl FnMut(u64, &mut Lap<'_>)) -> Vec<(&'static str, f64)> {
        let mut clock = Self { batches: vec![Vec::new(); names.len()] };
        for number in 0..BATCHES {
            batch(number, &mut Lap { clock: &mut clock, next: 0 });
        }
        let medians = clock.batches.into_iter().map(|costs| median(costs).expect("there are batches"));
        names.iter().copied().zip(medians).collect()
    }
}

/// One pass through all operations.
struct Lap<'c> {
    clock: &'c mut Clock,
    next: usize,
}

impl Lap<'_> {
    /// Times a batch of the next operation, which gets numbers from 0.
    #[inline(never)]
    fn time<T>(&mut self, mut operation: impl FnMut(u64) -> T) -> Vec<T> {
        let mut results = Vec::with_capacity(BATCH as usize);
        let start = cpu();
        results.extend((0..BATCH).map(&mut operation));
        let took = cpu() - start;
        self.clock.batches[self.next].push(took.as_nanos() as f64 / BATCH as f64);
        self.next += 1;
        results
    }
}

/// Returns places spread over a population, in random order.
fn scattered(number: u64, population: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % population
}

fn opens_of_files(population: u64) -> Vec<(&'static str, f64)> {
    let mut world = World::new();
    let (peer, owner) = (world.peer(), owner(1));
    let opens: Vec<Stateid> = (0..population).map(|fileid| world.open(&peer, fileid, &owner)).collect();
    let names = ["OPEN, files of their own", "READ by an open's stateid", "CLOSE, files of their own"];
    Clock::measure(&names, |batch, lap| {
        let new = lap.time(|number| world.open(&peer, population + number, &owner));
        lap.time(|number| {
            let fileid = scattered(batch * BATCH + number, population);
            world.may_read(&peer, fileid, &opens[fileid as usize]);
        });
        lap.time(|number| world.close(&peer, population + number, new[number as usize]));
    })
}

fn opens_of_a_file(population: u64) -> Vec<(&'static str, f64)> {
    let mut world = World::new();
    let (peer, other) = (world.peer(), world.peer());
    // Only the last one reads: a deny of reading must find its conflict among many opens that do not conflict.
    let writing = (ShareAccess::WRITE, ShareDeny::empty());
    for number in 1..population {
        world.try_open(&peer, 0, &owner(number), writing).expect("OPEN");
    }
    world.open(&peer, 0, &owner(population));
    let owners: Vec<_> = (0..BATCH).map(|number| owner(2 * population + number)).collect();
    let names = ["OPEN, one file", "OPEN, one file, share denied", "CLOSE, one file"];
    Clock::measure(&names, |_, lap| {
        let new = lap.time(|number| world.open(&peer, 0, &owners[number as usize]));
        lap.time(|number| {
            let denying = (ShareAccess::WRITE, ShareDeny::READ);
            world.try_open(&other, 0, &owners[number as usize], denying).expect_err("a reader is there")
        });
        lap.time(|number| world.close(&peer, 0, new[number as usize]));
    })
}

/// Locks for the first time, and returns the owner's lock stateid.
fn first_lock(world: &World, peer: &Peer, open_stateid: Stateid, by: u64, place: u64) -> Stateid {
    let new = Locker::New { open_stateid, owner: &owner(by) };
    latest(world.lock(peer, 0, new, range(place)).expect("LOCK"))
}

fn locks_of_an_owner(population: u64) -> Vec<(&'static str, f64)> {
    let mut world = World::new();
    let (peer, other) = (world.peer(), world.peer());
    let open = latest(world.open(&peer, 0, &owner(0)));
    let stateid = first_lock(&world, &peer, open, 1, 0);
    let lock = |place| world.lock(&peer, 0, Locker::Existing(stateid), range(place)).expect("LOCK");
    for place in 1..population {
        lock(place);
    }
    let names = [
        "LOCK, one owner's",
        "LOCKT, another owner's lock",
        "LOCKT of all, by the owner",
        "READ by a lock's stateid",
        "LOCKU, one owner's",
    ];
    let (own, strange) = (owner(1), owner(2));
    Clock::measure(&names, |batch, lap| {
        lap.time(|number| lock(population + number));
        lap.time(|number| {
            let place = scattered(batch * BATCH + number, population);
            assert!(world.is_locked(&other, 0, &strange, range(place)));
        });
        lap.time(|_| {
            assert!(!world.is_locked(&peer, 0, &own, whole()), "an owner's own locks do not conflict")
        });
        lap.time(|_| world.may_read(&peer, 0, &stateid));
        lap.time(|number| world.unlock(&peer, 0, &stateid, range(population + number)));
    })
}

fn locks_of_owners(population: u64) -> Vec<(&'static str, f64)> {
    let mut world = World::new();
    let peer = world.peer();
    let open = latest(world.open(&peer, 0, &owner(0)));
    let locks: Vec<Stateid> =
        (0..population).map(|number| first_lock(&world, &peer, open, number + 1, number)).collect();
    let names = ["LOCK, an owner each", "LOCK, denied", "LOCKU, an owner each"];
    Clock::measure(&names, |batch, lap| {
        let place = |number: u64| scattered(batch * BATCH + number, population);
        let existing = |number: u64| Locker::Existing(locks[place(number) as usize]);
        // Each owner locks one more range, far away.
        lap.time(|number| {
            world.lock(&peer, 0, existing(number), range(2 * population + number)).expect("LOCK")
        });
        lap.time(|number| world.lock(&peer, 0, existing(number), whole()).expect_err("others have locks"));
        lap.time(|number| {
            world.unlock(&peer, 0, &locks[place(number) as usize], range(2 * population + number));
        });
    })
}

fn delegations(population: u64) -> Vec<(&'static str, f64)> {
    let mut world = World::new();
    let peer = world.reachable_peer();
    for fileid in 0..population {
        world.delegate(&peer, fileid);
    }
    Clock::measure(&["delegation granted", "DELEGRETURN"], |_, lap| {
        let new = lap.time(|number| world.delegate(&peer, population + number));
        lap.time(|number| world.return_delegation(&peer, population + number, &new[number as usize]));
    })
}

fn clients(population: u64) -> Vec<(&'static str, f64)> {
    let mut world = World::new();
    let mut peers: Vec<Peer> = (0..population).map(|_| world.peer()).collect();
    let names = [
        "EXCHANGE_ID to RECLAIM_COMPLETE",
        "SEQUENCE",
        "sweep, each client and session that it looks at",
        "DESTROY_SESSION, DESTROY_CLIENTID",
    ];
    let mut figures = Clock::measure(&names, |batch, lap| {
        let new = lap.time(|_| world.peer());
        lap.time(|number| world.renew(&mut peers[scattered(batch * BATCH + number, population) as usize]));
        lap.time(|_| world.state.expire(world.now));
        lap.time(|number| world.leave(&new[number as usize]));
    });
    // A sweep looks at some of the clients, and at a part of the sessions.
    figures[2].1 /= (population.min(SWEPT_CLIENTS) + population / SESSION_PARTS) as f64;
    figures
}

/// Clients that one sweep looks at.
const SWEPT_CLIENTS: u64 = 256;
/// Sweeps that look at all sessions.
const SESSION_PARTS: u64 = 16;

fn bytes_of_each(count: u64) -> Vec<(&'static str, f64)> {
    let mut world = World::new();
    let peer = world.reachable_peer();
    let own = owner(1);
    let mut kept = Vec::new();
    let mut each = |name, pieces: u64, fill: &mut dyn FnMut(u64)| {
        let before = live_bytes();
        (0..pieces).for_each(fill);
        kept.push((name, (live_bytes() - before) as f64 / pieces as f64));
    };
    each("open, each of a file of its own", count, &mut |number| {
        world.open(&peer, 1 + number, &own);
    });
    let open = latest(world.open(&peer, 0, &own));
    each("open, all of one file, with its owner", count, &mut |number| {
        world.open(&peer, 0, &owner(1 + number));
    });
    let stateid = first_lock(&world, &peer, open, 1, 0);
    each("locked range, all of one owner", count, &mut |number| {
        world.lock(&peer, 0, Locker::Existing(stateid), range(1 + number)).expect("LOCK");
    });
    each("locked range, with an owner and a stateid each", count, &mut |number| {
        first_lock(&world, &peer, open, 2 + number, 1 + count + number);
    });
    each("delegation, each of a file of its own", count, &mut |number| {
        world.delegate(&peer, 1 + count + number);
    });
    each("slot that keeps a reply of 256 bytes", u64::from(SLOTS - 16), &mut |number| {
        // The first chunk exists since the session was created.
        world.use_slot(&peer, 16 + number as u32, REPLY_BYTES);
    });
    let mut peers = Vec::with_capacity(count as usize);
    each("client with a session of 64 slots, two of them used", count, &mut |_| {
        let peer = world.peer();
        world.use_slot(&peer, 1, REPLY_BYTES);
        peers.push(peer);
    });
    kept
}
