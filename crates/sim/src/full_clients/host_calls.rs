//! Calls of the server to the lock manager or status monitor of a client.

use std::time::Duration;

use server::{HostAnswer, HostCall};

use super::world::{Event, World, client_address};

impl World {
    /// Gives a call to the lock manager of a host, and its answer to the server. Some are lost.
    pub(super) fn call_host(&mut self, call: HostCall, start: u64) {
        let address = call.path().address;
        let index = (0..self.hosts.len()).find(|host| client_address(*host, 0).ip() == address);
        let running = index.filter(|host| self.hosts[*host].as_ref().is_some_and(|host| !host.is_done()));
        let answer = match running {
            Some(host) if !self.silent[host] && !self.faults.loses_datagram(&mut self.rng) => {
                let reply = (self.on_host_call)(host, call.record().clone());
                let reply = reply.filter(|_| !self.faults.loses_datagram(&mut self.rng));
                reply.map_or(HostAnswer::Unanswered, HostAnswer::Reply)
            }
            Some(_) => HostAnswer::Unanswered,
            None => HostAnswer::Unreachable,
        };
        self.messages += 2;
        let at = self.now() + Duration::from_micros(200 + self.rng.below(20_000));
        self.schedule(at, Event::HostAnswers { call, answer, start });
    }
}
