//! Queues of packets: the transmit queues of a card, or the software queues of SFQ in front of one.

use std::collections::VecDeque;

/// The number of a flow, from 0.
pub(super) type Flow = usize;

/// Queues that send one packet each in turn: their rates are equal while they have packets.
#[derive(Debug)]
struct RoundRobin {
    queues: Vec<VecDeque<Flow>>,
    /// Queues with packets, in the order of service.
    turns: VecDeque<usize>,
}

impl RoundRobin {
    fn new(count: usize) -> Self {
        Self { queues: vec![VecDeque::new(); count], turns: VecDeque::new() }
    }

    fn push(&mut self, queue: usize, flow: Flow) {
        if self.queues[queue].is_empty() {
            self.turns.push_back(queue);
        }
        self.queues[queue].push_back(flow);
    }

    fn pop(&mut self) -> Option<Flow> {
        let queue = self.turns.pop_front()?;
        let flow = self.queues[queue].pop_front();
        if !self.queues[queue].is_empty() {
            self.turns.push_back(queue);
        }
        flow
    }
}

/// The transmit queues of a card.
#[derive(Debug)]
pub(super) struct Hashed {
    queues: RoundRobin,
    /// The queue of each flow's last packet.
    recorded: Vec<Option<usize>>,
    /// Packets of each flow that wait.
    waiting: Vec<u32>,
    /// Results of the first hashes; random numbers follow.
    script: VecDeque<usize>,
    random: fastrand::Rng,
}

impl Hashed {
    pub(super) fn new(flows: usize, queues: usize, script: &[usize], seed: u64) -> Self {
        Self {
            queues: RoundRobin::new(queues),
            recorded: vec![None; flows],
            waiting: vec![0; flows],
            script: script.iter().copied().collect(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Takes a packet. Returns the flow's queue if the packet caused a hash.
    pub(super) fn push(&mut self, flow: Flow) -> Option<usize> {
        let count = self.queues.queues.len();
        let (queue, hashed) = match self.recorded[flow] {
            Some(queue) if self.waiting[flow] > 0 => (queue, None),
            _ => {
                let queue = self.script.pop_front().unwrap_or_else(|| self.random.usize(0..count));
                (queue, Some(queue))
            }
        };
        self.recorded[flow] = Some(queue);
        self.waiting[flow] += 1;
        self.queues.push(queue, flow);
        hashed
    }

    pub(super) fn pop(&mut self) -> Option<Flow> {
        let flow = self.queues.pop()?;
        self.waiting[flow] -= 1;
        Some(flow)
    }
}

/// Stochastic fairness queueing (McKenney 1990; Linux's `sch_sfq`).
#[derive(Debug)]
pub(super) struct Sfq {
    queues: RoundRobin,
    /// The queue of each flow until the next perturbation.
    bucket: Vec<usize>,
    random: fastrand::Rng,
}

impl Sfq {
    pub(super) fn new(flows: usize, queues: usize, seed: u64) -> Self {
        let mut sfq = Self {
            queues: RoundRobin::new(queues),
            bucket: vec![0; flows],
            random: fastrand::Rng::with_seed(seed),
        };
        sfq.perturb();
        sfq
    }

    pub(super) fn push(&mut self, flow: Flow) {
        self.queues.push(self.bucket[flow], flow);
    }

    pub(super) fn pop(&mut self) -> Option<Flow> {
        self.queues.pop()
    }

    /// Rehashes all flows. Waiting packets move with them, as in Linux since 3.3.
    pub(super) fn perturb(&mut self) {
        let count = self.queues.queues.len();
        let waiting: Vec<Flow> = std::iter::from_fn(|| self.queues.pop()).collect();
        for bucket in &mut self.bucket {
            *bucket = self.random.usize(0..count);
        }
        for flow in waiting {
            self.push(flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_keeps_its_queue_while_packets_wait() {
        let mut card = Hashed::new(1, 6, &[3, 5], 1);
        assert_eq!(card.push(0), Some(3));
        assert_eq!(card.push(0), None);
        assert_eq!(card.pop(), Some(0));
        assert_eq!(card.push(0), None, "one packet still waits");
        assert_eq!((card.pop(), card.pop(), card.pop()), (Some(0), Some(0), None));
        assert_eq!(card.push(0), Some(5), "the queue had drained");
        assert_eq!(card.recorded, [Some(5)]);
    }

    #[test]
    fn queues_with_packets_alternate() {
        // Flows 0 and 1 share queue 2; flow 2 has queue 4.
        let mut card = Hashed::new(3, 6, &[2, 2, 4], 1);
        for flow in [0, 1, 0, 1, 2, 2] {
            card.push(flow);
        }
        let sent: Vec<_> = std::iter::from_fn(|| card.pop()).collect();
        assert_eq!(sent, [0, 2, 1, 2, 0, 1]);
    }

    #[test]
    fn perturbation_keeps_every_packet() {
        let mut sfq = Sfq::new(3, 127, 7);
        for flow in [0, 1, 0, 2, 0] {
            sfq.push(flow);
        }
        let before = sfq.bucket.clone();
        sfq.perturb();
        assert_ne!(sfq.bucket, before);
        let mut sent: Vec<_> = std::iter::from_fn(|| sfq.pop()).collect();
        sent.sort_unstable();
        assert_eq!(sent, [0, 0, 0, 1, 2]);
    }
}
