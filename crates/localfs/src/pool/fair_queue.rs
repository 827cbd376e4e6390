//! A queue that serves addresses in turn, and the connections of an address in turn.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use vfs::Peer;

/// The running and waiting jobs of an address. The server's own work counts as one address.
#[derive(Debug)]
struct Client<T> {
    running: usize,
    queued: usize,
    /// Whether its address is in the queue's `turn`.
    is_in_turn: bool,
    /// Connections with a job, the next first.
    turn: VecDeque<u64>,
    jobs: HashMap<u64, VecDeque<T>>,
}

impl<T> Default for Client<T> {
    fn default() -> Self {
        Self { running: 0, queued: 0, is_in_turn: false, turn: VecDeque::new(), jobs: HashMap::new() }
    }
}

impl<T> Client<T> {
    fn push(&mut self, connection: u64, job: T, is_first: bool) {
        self.queued += 1;
        let jobs = self.jobs.entry(connection).or_default();
        if jobs.is_empty() {
            if is_first { self.turn.push_front(connection) } else { self.turn.push_back(connection) }
        }
        if is_first { jobs.push_front(job) } else { jobs.push_back(job) }
    }

    fn pop(&mut self) -> Option<T> {
        let connection = self.turn.pop_front()?;
        let jobs = self.jobs.get_mut(&connection)?;
        let job = jobs.pop_front()?;
        if jobs.is_empty() {
            self.jobs.remove(&connection);
        } else {
            self.turn.push_back(connection);
        }
        self.queued -= 1;
        Some(job)
    }
}

/// Jobs by address and connection, with a bound on the jobs of an address that run at once.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// Jobs of one address that may run at once.
    max_running: usize,
    clients: HashMap<Option<IpAddr>, Client<T>>,
    /// Addresses with a job that may start, the next first.
    turn: VecDeque<Option<IpAddr>>,
}

impl<T> FairQueue<T> {
    pub(super) fn new(max_running: usize) -> Self {
        Self { max_running, clients: HashMap::new(), turn: VecDeque::new() }
    }

    /// Adds a job after the others of its connection, or before them. Returns true if it may start before another
    /// job of its address has ended.
    pub(super) fn push(&mut self, peer: Peer, job: T, is_first: bool) -> bool {
        let client = self.clients.entry(peer.address).or_default();
        client.push(peer.connection, job, is_first);
        let may_start = client.running + client.queued <= self.max_running;
        self.line_up(peer.address);
        may_start
    }

    /// Returns the next job, which runs from now on, and its address.
    pub(super) fn pop(&mut self) -> Option<(Option<IpAddr>, T)> {
        let address = self.turn.pop_front()?;
        let client = self.clients.get_mut(&address)?;
        client.is_in_turn = false;
        let job = client.pop()?;
        client.running += 1;
        self.line_up(address);
        Some((address, job))
    }

    /// Notes that a job of this address has ended.
    pub(super) fn ended(&mut self, address: Option<IpAddr>) {
        let Some(client) = self.clients.get_mut(&address) else { return };
        client.running -= 1;
        if client.running == 0 && client.queued == 0 {
            self.clients.remove(&address);
        } else {
            self.line_up(address);
        }
    }

    /// Returns whether [`pop`](Self::pop) has a job.
    pub(super) fn has_next(&self) -> bool {
        !self.turn.is_empty()
    }

    /// Puts an address at the end of `turn`, if it has a job that may start and is not there.
    fn line_up(&mut self, address: Option<IpAddr>) {
        let Some(client) = self.clients.get_mut(&address) else { return };
        if !client.is_in_turn && client.queued > 0 && client.running < self.max_running {
            client.is_in_turn = true;
            self.turn.push_back(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: u8, connection: u64) -> Peer {
        Peer { address: Some(IpAddr::from([127, 0, 0, address])), connection }
    }

    fn all(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).map(|(_, job)| job).collect()
    }

    #[test]
    fn addresses_and_their_connections_are_served_in_turn() {
        let mut queue = FairQueue::new(8);
        for job in ["a1", "a2", "a3"] {
            queue.push(peer(1, 1), job, false);
        }
        queue.push(peer(1, 2), "other connection", false);
        queue.push(peer(2, 3), "b1", false);
        queue.push(peer(2, 3), "b2", false);
        assert_eq!(all(&mut queue), ["a1", "b1", "other connection", "b2", "a2", "a3"]);
    }

    #[test]
    fn an_address_runs_no_more_than_its_share_at_once() {
        let mut queue = FairQueue::new(2);
        assert!(queue.push(peer(1, 1), "a1", false) && queue.push(peer(1, 2), "a2", false));
        assert!(!queue.push(peer(1, 3), "a3", false), "not before another has ended");
        assert_eq!(all(&mut queue), ["a1", "a2"]);
        assert!(queue.push(peer(2, 4), "b1", false) && queue.has_next());
        assert_eq!(all(&mut queue), ["b1"]);
        assert!(!queue.has_next());
        queue.ended(peer(1, 1).address);
        assert_eq!(all(&mut queue), ["a3"]);
    }

    #[test]
    fn a_resumed_job_goes_first_among_those_of_its_address() {
        let mut queue = FairQueue::new(8);
        queue.push(peer(1, 1), "a1", false);
        queue.push(peer(2, 3), "b1", false);
        queue.push(peer(1, 1), "resumed", true);
        queue.push(peer(1, 2), "resumed, too", true);
        assert_eq!(all(&mut queue), ["resumed, too", "b1", "resumed", "a1"]);
    }

    #[test]
    fn an_address_without_jobs_is_forgotten() {
        let mut queue = FairQueue::new(2);
        for number in 0..100 {
            queue.push(peer(number, 1), "job", false);
        }
        while let Some((address, _)) = queue.pop() {
            queue.ended(address);
        }
        assert!(queue.clients.is_empty() && queue.turn.is_empty());
    }
}
