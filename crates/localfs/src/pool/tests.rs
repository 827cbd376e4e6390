use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

fn peer(address: u8, connection: u64) -> Peer {
    Peer { address: Some(IpAddr::from([127, 0, 0, address])), connection }
}

/// Occupies the threads that run its jobs until it is dropped.
struct Occupation {
    running: Arc<AtomicUsize>,
    gate: Arc<Mutex<()>>,
}

impl Occupation {
    /// Submits `jobs`, and waits until `runs` of them run.
    fn begin<R>(
        threads: &Threads,
        peer: Peer,
        (jobs, runs): (usize, usize),
        within: impl FnOnce(&Self) -> R,
    ) -> R {
        let it = Self { running: Arc::default(), gate: Arc::default() };
        let closed = it.gate.lock();
        for _ in 0..jobs {
            let (running, gate) = (Arc::clone(&it.running), Arc::clone(&it.gate));
            threads.submit(
                peer,
                Box::new(move || {
                    running.fetch_add(1, Ordering::Relaxed);
                    drop(gate.lock());
                }),
                false,
            );
        }
        while it.running.load(Ordering::Relaxed) < runs {
            std::thread::yield_now();
        }
        let result = within(&it);
        drop(closed);
        result
    }
}

/// Submits a job. Returns whether it starts at once, and a channel that receives its end.
fn start(threads: &Threads, peer: Peer) -> (bool, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    let starts = threads.submit(peer, Box::new(move || _ = sender.send(())), false);
    (starts, receiver)
}

#[test]
fn another_address_finds_a_free_thread() {
    let threads = Threads::new("test", 8, 6);
    Occupation::begin(&threads, peer(1, 1), (100, 6), |attack| {
        let (starts, end) = start(&threads, peer(2, 2));
        assert!(starts);
        end.recv().expect("it ran");
        let (starts, end) = start(&threads, peer(1, 3));
        assert!(!starts && end.try_recv().is_err(), "another connection is not another address");
        assert_eq!(attack.running.load(Ordering::Relaxed), 6);
    });
}

#[test]
fn an_idle_thread_is_reused() {
    let threads = Threads::new("test", 8, 8);
    for _ in 0..100 {
        start(&threads, peer(1, 1)).1.recv().expect("it ran");
        while threads.0.state.lock().idle == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(threads.0.state.lock().threads, 1);
}

#[test]
fn a_job_that_panics_costs_no_thread_and_no_share() {
    let threads = Threads::new("test", 1, 1);
    for _ in 0..3 {
        let (sender, receiver) = mpsc::channel::<()>();
        let panics = move || {
            let _sender = sender;
            panic!("on purpose");
        };
        threads.submit(peer(1, 1), Box::new(panics), false);
        assert!(receiver.recv().is_err(), "the waiting request notices");
    }
    start(&threads, peer(1, 1)).1.recv().expect("it ran");
}

#[test]
fn threads_end_with_their_pool_after_its_jobs() {
    let threads = Threads::new("test", 2, 2);
    let ends: Vec<_> = (0..100).map(|number| start(&threads, peer(1, number)).1).collect();
    let shared = Arc::clone(&threads.0);
    drop(threads);
    ends.iter().for_each(|end| end.recv().expect("it ran"));
    while shared.state.lock().threads > 0 {
        std::thread::yield_now();
    }
}
