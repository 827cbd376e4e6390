//! Clients that scan a file one after another, through a card with hashed queues or through SFQ.
//!
//! Time advances by the transmission of one packet at the link's rate. Each flow keeps a window of packets in flight,
//! and sends the next one when an acknowledgement returns. Occasionally a client stalls: it requests nothing until its
//! packets have left, and the flow is hashed again.

use std::collections::VecDeque;

use serde::Serialize;

use super::outcomes::check;
use super::queues::{Flow, Hashed, Sfq};
use super::{SFQ_PERTURB_SECONDS, SFQ_QUEUES};
use crate::statistics::jain;

/// Maximum number of packets of all flows in one simulation: the default of six minutes has 6.5 million.
const PACKETS_MAX: f64 = 1e9;
/// Maximum number of packets of one flow in flight.
const WINDOW_PACKETS_MAX: u32 = 1 << 20;

/// The queuing of packets for the link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Transmit queues of the card; a flow keeps its queue while its packets wait.
    Hashed,
    /// One transmit queue, behind SFQ.
    Sfq {
        /// Software queues.
        queues: usize,
        /// Seconds between two changes of the hash.
        perturb_seconds: f64,
    },
}

/// Parameters of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulation {
    /// Clients, one flow each.
    pub flows: usize,
    /// Transmit queues of the card.
    pub queues: usize,
    /// The queuing of packets.
    pub discipline: Discipline,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Rate of the link, in bytes a second.
    pub bytes_per_second: f64,
    /// Bytes of one packet: the amount that TCP passes to the card at once.
    pub packet_bytes: u32,
    /// Bytes that a flow has in flight.
    pub window_bytes: u32,
    /// Round trip without waiting, in seconds.
    pub round_trip_seconds: f64,
    /// Seconds between the starts of two clients.
    pub interval_seconds: f64,
    /// Length of the simulation, in seconds.
    pub duration_seconds: f64,
    /// Mean time between two stalls of a client, in seconds; 0 for none.
    pub stall_every_seconds: f64,
    /// Length of a stall, in seconds.
    pub stall_seconds: f64,
    /// Stalls at given times: the flow and the second.
    pub stalls: Vec<(usize, f64)>,
    /// Results of the first hashes, in order; random numbers follow.
    pub hashes: Vec<usize>,
}

impl Default for Simulation {
    /// Returns Figure 3 of the paper: five clients, one more each minute, six queues, 1,177 MB/s; TCP buffers of 2 MB.
    fn default() -> Self {
        Self {
            flows: 5,
            queues: 6,
            discipline: Discipline::Hashed,
            seed: 1,
            bytes_per_second: 1177e6,
            packet_bytes: 64 << 10,
            window_bytes: 2 << 20,
            round_trip_seconds: 0.0002,
            interval_seconds: 60.0,
            duration_seconds: 360.0,
            stall_every_seconds: 300.0,
            stall_seconds: 0.05,
            stalls: Vec::new(),
            hashes: Vec::new(),
        }
    }
}

/// The change of a flow's place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Time in seconds.
    pub second: f64,
    /// The client, from 0.
    pub client: usize,
    /// Its queue before; `None` at its start.
    pub from: Option<usize>,
    /// Its queue from now on.
    pub to: usize,
}

/// The outcome of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// The parameters.
    pub simulation: Simulation,
    /// Throughput in bytes of each second, for each client.
    pub series: Vec<Vec<f64>>,
    /// Every hash of a flow, in order of time; none with SFQ.
    pub events: Vec<Event>,
    /// Bytes a second of each client over the time in which all clients ran.
    pub shares: Vec<f64>,
    /// Jain's index of the shares.
    pub jain: Option<f64>,
}

impl Simulation {
    /// Returns Figure 3 of the paper: the queues of its clients, and the drain at 270 s.
    #[must_use]
    pub fn papers() -> Self {
        Self {
            hashes: vec![3, 0, 2, 0, 3, 5],
            stalls: vec![(4, 270.0)],
            stall_every_seconds: 0.0,
            ..Self::default()
        }
    }

    /// Returns the same with the paper's remedy: one transmit queue, SFQ with 127 queues, perturbed every 10 s.
    #[must_use]
    pub fn with_sfq(&self) -> Self {
        let discipline = Discipline::Sfq { queues: SFQ_QUEUES, perturb_seconds: SFQ_PERTURB_SECONDS };
        Self { discipline, ..self.clone() }
    }

    /// Runs the simulation.
    ///
    /// # Errors
    /// Names the parameter that is out of its bounds.
    pub fn run(&self) -> Result<Simulated, String> {
        self.check()?;
        Ok(Run::new(self).play())
    }

    fn check(&self) -> Result<(), String> {
        check(self.flows, self.queues)?;
        let positive = [
            ("rate", self.bytes_per_second),
            ("packet", f64::from(self.packet_bytes)),
            ("window", f64::from(self.window_bytes)),
            ("duration", self.duration_seconds),
        ];
        if let Some((name, value)) = positive.into_iter().find(|(_, v)| !(v.is_finite() && *v > 0.0)) {
            return Err(format!("{name} {value}: must be more than 0"));
        }
        let not_negative = [
            ("round trip", self.round_trip_seconds),
            ("interval", self.interval_seconds),
            ("time between stalls", self.stall_every_seconds),
            ("stall", self.stall_seconds),
        ];
        if let Some((name, value)) = not_negative.into_iter().find(|(_, v)| !(v.is_finite() && *v >= 0.0)) {
            return Err(format!("{name} {value}: must not be negative"));
        }
        let packets = self.duration_seconds / self.packet_seconds();
        if packets > PACKETS_MAX {
            return Err(format!(
                "{packets:.0} packets: at most {PACKETS_MAX:.0}; use larger packets, or less time"
            ));
        }
        if self.window_packets() > WINDOW_PACKETS_MAX {
            return Err(format!(
                "a window of {} packets: at most {WINDOW_PACKETS_MAX}",
                self.window_packets()
            ));
        }
        if let Some(queue) = self.hashes.iter().find(|queue| **queue >= self.queues) {
            return Err(format!("queue {queue}: the card has queues 0 to {}", self.queues - 1));
        }
        match self.stalls.iter().find(|(flow, _)| *flow >= self.flows) {
            Some((flow, _)) => Err(format!("flow {flow}: there are flows 0 to {}", self.flows - 1)),
            None => Ok(()),
        }
    }

    /// Returns the time of one packet on the link.
    fn packet_seconds(&self) -> f64 {
        f64::from(self.packet_bytes) / self.bytes_per_second
    }

    fn window_packets(&self) -> u32 {
        self.window_bytes.div_ceil(self.packet_bytes)
    }

    fn ticks(&self, seconds: f64) -> u64 {
        (seconds / self.packet_seconds()).round() as u64
    }
}

/// The queues of packets.
#[derive(Debug)]
enum Waiting {
    Hashed(Hashed),
    Sfq(Sfq, u64),
}

/// One client's flow.
#[derive(Debug)]
struct Client {
    start: u64,
    /// Packets that wait or are in flight.
    outstanding: u32,
    /// The client requests nothing before this time.
    stalled_until: u64,
    /// Times of its next stalls, the next one last.
    stalls: Vec<u64>,
    queue: Option<usize>,
}

/// A simulation under way. A tick is the time of one packet on the link.
struct Run<'s> {
    simulation: &'s Simulation,
    waiting: Waiting,
    clients: Vec<Client>,
    /// Acknowledgements in flight, in order of time.
    acknowledgements: VecDeque<(u64, Flow)>,
    series: Vec<Vec<f64>>,
    events: Vec<Event>,
}

impl<'s> Run<'s> {
    fn new(simulation: &'s Simulation) -> Self {
        let Simulation { flows, queues, seed, .. } = *simulation;
        let waiting = match simulation.discipline {
            Discipline::Hashed => Waiting::Hashed(Hashed::new(flows, queues, &simulation.hashes, seed)),
            Discipline::Sfq { queues, perturb_seconds } => {
                Waiting::Sfq(Sfq::new(flows, queues.max(1), seed), simulation.ticks(perturb_seconds).max(1))
            }
        };
        // Another sequence than that of the hashes, so that both disciplines have the same stalls.
        let mut random = fastrand::Rng::with_seed(!seed);
        let clients = (0..flows).map(|flow| Client::new(simulation, flow, &mut random)).collect();
        let seconds = simulation.duration_seconds.ceil() as usize;
        Self {
            simulation,
            waiting,
            clients,
            acknowledgements: VecDeque::new(),
            series: vec![vec![0.0; seconds]; flows],
            events: Vec::new(),
        }
    }

    fn play(mut self) -> Simulated {
        let round_trip = self.simulation.ticks(self.simulation.round_trip_seconds).max(1);
        for now in 0..self.simulation.ticks(self.simulation.duration_seconds) {
            self.wake(now);
            while self.acknowledgements.front().is_some_and(|(at, _)| *at <= now) {
                let (_, flow) = self.acknowledgements.pop_front().expect("the queue was not empty");
                self.clients[flow].outstanding -= 1;
                self.send(flow, now);
            }
            let sent = match &mut self.waiting {
                Waiting::Hashed(card) => card.pop(),
                Waiting::Sfq(sfq, perturb) => {
                    if now > 0 && now.is_multiple_of(*perturb) {
                        sfq.perturb();
                    }
                    sfq.pop()
                }
            };
            if let Some(flow) = sent {
                let second = (now as f64 * self.simulation.packet_seconds()) as usize;
                self.series[flow][second] += f64::from(self.simulation.packet_bytes);
                self.acknowledgements.push_back((now + round_trip, flow));
            }
        }
        self.finish()
    }

    /// Starts clients at their time, stalls others, and resumes those whose stall is over.
    fn wake(&mut self, now: u64) {
        for flow in 0..self.clients.len() {
            let client = &mut self.clients[flow];
            while client.stalls.last().is_some_and(|at| *at <= now) {
                client.stalls.pop();
                client.stalled_until = now + self.simulation.ticks(self.simulation.stall_seconds);
            }
            if client.start == now || client.stalled_until == now {
                self.send(flow, now);
            }
        }
    }

    /// Fills a flow's window.
    fn send(&mut self, flow: Flow, now: u64) {
        let window = self.simulation.window_packets();
        while self.clients[flow].may_send(window, now) {
            self.clients[flow].outstanding += 1;
            let hashed = match &mut self.waiting {
                Waiting::Hashed(card) => card.push(flow),
                Waiting::Sfq(sfq, _) => {
                    sfq.push(flow);
                    None
                }
            };
            if let Some(to) = hashed {
                let second = now as f64 * self.simulation.packet_seconds();
                let from = self.clients[flow].queue.replace(to);
                self.events.push(Event { second, client: flow, from, to });
            }
        }
    }

    fn finish(self) -> Simulated {
        let last_start = self.simulation.interval_seconds * (self.simulation.flows - 1) as f64;
        let shares: Vec<f64> = self
            .series
            .iter()
            .map(|series| {
                // Whole seconds in which all clients run.
                let together = series.get(last_start.ceil() as usize..).unwrap_or_default();
                together.iter().sum::<f64>() / together.len().max(1) as f64
            })
            .collect();
        Simulated {
            simulation: self.simulation.clone(),
            jain: jain(&shares),
            series: self.series,
            events: self.events,
            shares,
        }
    }
}

impl Client {
    fn new(simulation: &Simulation, flow: Flow, random: &mut fastrand::Rng) -> Self {
        let start = simulation.interval_seconds * flow as f64;
        let given = simulation.stalls.iter().filter(|(stalling, _)| *stalling == flow);
        let mut stalls: Vec<f64> = given.map(|(_, second)| *second).collect();
        if simulation.stall_every_seconds > 0.0 {
            let mut at = start;
            while at < simulation.duration_seconds {
                // Exponentially distributed; 1 − x is never 0.
                at += simulation.stall_seconds - simulation.stall_every_seconds * (1.0 - random.f64()).ln();
                stalls.push(at);
            }
        }
        stalls.sort_by(|a, b| b.total_cmp(a));
        Self {
            start: simulation.ticks(start),
            outstanding: 0,
            stalled_until: 0,
            stalls: stalls.into_iter().map(|second| simulation.ticks(second)).collect(),
            queue: None,
        }
    }

    fn may_send(&self, window: u32, now: u64) -> bool {
        self.start <= now && self.stalled_until <= now && self.outstanding < window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the paper's figure in a tenth of its time.
    fn short() -> Simulation {
        Simulation {
            interval_seconds: 6.0,
            duration_seconds: 36.0,
            stalls: vec![(4, 27.0)],
            ..Simulation::papers()
        }
    }

    /// Returns the mean of a client from second `from` up to `to`, in MB/s.
    fn rate(simulated: &Simulated, client: usize, from: usize, to: usize) -> f64 {
        simulated.series[client][from..to].iter().sum::<f64>() / (to - from) as f64 / 1e6
    }

    fn assert_near(actual: f64, expected: f64) {
        assert!((actual / expected - 1.0).abs() < 0.02, "{actual} instead of {expected}");
    }

    /// Shares computed by hand from the queues of §3.2: 1,177 MB/s, divided by queues in use, divided by flows in one.
    #[test]
    fn the_run_of_the_paper_has_its_winners_and_losers() {
        let run = short().run().unwrap();
        assert_near(rate(&run, 0, 1, 6), 1177.0);
        assert_near(rate(&run, 0, 7, 12), 1177.0 / 2.0);
        // Four clients in queues 3, 0, 2, 0.
        assert_near(rate(&run, 0, 19, 24), 1177.0 / 3.0);
        assert_near(rate(&run, 1, 19, 24), 1177.0 / 6.0);
        // Client 5 in queue 3 with client 1: three queues, two of them shared.
        assert_near(rate(&run, 4, 25, 27), 1177.0 / 6.0);
        // After the drain: clients 1, 3 and 5 have a queue each, 2 and 4 share one.
        for (client, share) in [(0, 4.0), (1, 8.0), (2, 4.0), (3, 8.0), (4, 4.0)] {
            assert_near(rate(&run, client, 28, 36), 1177.0 / share);
        }
        let places: Vec<_> = run.events.iter().map(|event| (event.client, event.from, event.to)).collect();
        assert_eq!(
            places,
            [(0, None, 3), (1, None, 0), (2, None, 2), (3, None, 0), (4, None, 3), (4, Some(3), 5)]
        );
    }

    #[test]
    fn sfq_is_fair_and_as_fast() {
        let simulation = Simulation { stalls: Vec::new(), ..short() };
        // Perturbed every second, so that a collision lasts for a twelfth of the measured time.
        let discipline = Discipline::Sfq { queues: 127, perturb_seconds: 1.0 };
        let fair = Simulation { discipline, ..simulation.clone() }.run().unwrap();
        let hashed = simulation.run().unwrap();
        let sum = |run: &Simulated| run.series.iter().flatten().sum::<f64>();
        assert_near(sum(&fair), sum(&hashed));
        assert!(fair.jain.unwrap() > 0.99, "{:?}", fair.jain);
        // Two queues shared by two, one used by one: 1/6, 1/6, 1/6, 1/6, 1/3; (4·1 + 2)² ⁄ (5 · (4 + 4)).
        assert!((hashed.jain.unwrap() - 36.0 / 40.0).abs() < 0.01, "{:?}", hashed.jain);
        assert!(fair.events.is_empty());
    }

    #[test]
    fn a_seed_determines_everything() {
        let random = Simulation {
            hashes: Vec::new(),
            stalls: Vec::new(),
            stall_every_seconds: 5.0,
            seed: 3,
            ..short()
        };
        let first = random.run().unwrap();
        assert_eq!(random.run().unwrap(), first);
        assert!(first.events.len() > 5, "stalls drain queues");
        assert_ne!(Simulation { seed: 4, ..random }.run().unwrap().events, first.events);
    }

    #[test]
    fn parameters_out_of_bounds_are_refused() {
        for (wrong, named) in [
            (Simulation { flows: 0, ..short() }, "flows"),
            (Simulation { bytes_per_second: 0.0, ..short() }, "rate"),
            (Simulation { stall_seconds: -1.0, ..short() }, "stall"),
            (Simulation { duration_seconds: f64::INFINITY, ..short() }, "duration"),
            (Simulation { packet_bytes: 1, ..short() }, "packets"),
            (Simulation { hashes: vec![6], ..short() }, "queue 6"),
            (Simulation { stalls: vec![(5, 1.0)], ..short() }, "flow 5"),
        ] {
            let why = wrong.run().unwrap_err();
            assert!(why.contains(named), "{why}");
        }
    }
}
