//! Times in which nothing passes between a host and the server.

use std::time::Duration;

use super::world::{Event, World};

impl World {
    /// Schedules silences of hosts, each between half a lease time and four.
    pub(super) fn plan_silences(&mut self, count: u64, lease: Duration, within: Duration) {
        for _ in 0..count {
            let (at, host) = (self.moment_within(within), self.rng.below(self.hosts.len() as u64) as usize);
            let lasts = lease / 2 + self.moment_within(lease * 7 / 2);
            self.schedule(at, Event::Silence { host, lasts });
        }
    }

    pub(super) fn begin_silence(&mut self, host: usize, lasts: Duration) {
        if !std::mem::replace(&mut self.silent[host], true) {
            (self.on_silence)(host);
            self.schedule(self.now() + lasts, Event::EndSilence { host });
        }
    }

    /// Ends a silence. The connections from before are gone.
    pub(super) fn end_silence(&mut self, host: usize) {
        self.silent[host] = false;
        (self.on_silence)(host);
        let now = self.now();
        for number in 0..self.links.len() {
            let link = &self.links[number];
            if link.host == host && (link.is_open_at_client || link.is_open_at_server) {
                self.break_link(number, now);
            }
        }
    }
}
