//! Measures the cost of the server's own work on a call: `cargo bench -p enfys-bench --bench calls [-- NAME…]`.
//!
//! Calls are passed to the server as a connection passes them, but without a connection: the kernel only does the work of the
//! file system. The output has the fastest of many batches and the median, because other work on the machine only
//! lengthens them; so a change of a few percent shows on a busy machine too. `cargo xtask peers` measures the whole cost of a
//! call, including that of the socket.

mod calls;
mod world;

use std::time::Instant;

use calls::{Call, calls};
use world::World;

/// The program's own allocator: the cost of allocations is part of a call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Calls that are timed together: those of a client of depth 64 in one read of its connection.
const BATCH: usize = 64;
/// Batches of each measurement.
const BATCHES: usize = 4_000;
/// Measurements of each call, alternately.
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Otherwise it runs as a test that everything here still works.
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let (batches, rounds) = if is_bench { (BATCHES, ROUNDS) } else { (2, 1) };
    let mut world = World::new();
    let mut calls = calls(&mut world);
    calls.retain(|call| wanted.is_empty() || wanted.iter().any(|name| *name == call.name));
    let mut took_ns: Vec<Vec<f64>> = vec![Vec::new(); calls.len()];
    for _ in 0..rounds {
        for (call, took_ns) in calls.iter_mut().zip(&mut took_ns) {
            took_ns.extend((0..batches).map(|_| time(&mut world, call)));
        }
    }
    println!("| call | fastest, ns | median, ns |\n|---|---|---|");
    for (call, took_ns) in calls.iter().zip(&mut took_ns) {
        took_ns.sort_unstable_by(f64::total_cmp);
        println!("| {} | {:.0} | {:.0} |", call.name, took_ns[0], took_ns[took_ns.len() / 2]);
    }
}

/// Serves a batch. Returns the nanoseconds for each call.
fn time(world: &mut World, call: &mut Call) -> f64 {
    let records = call.records(BATCH);
    world.begin_batch();
    let began = Instant::now();
    for record in records {
        world.serve(record);
    }
    let took = began.elapsed();
    assert!(world.is_well(), "{}", call.name);
    took.as_nanos() as f64 / BATCH as f64
}
