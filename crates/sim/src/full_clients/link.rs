//! One TCP connection: records arrive in their order or not at all, and an end that loses it may notice that late or never.

use std::sync::Arc;
use std::time::Duration;

use client::engine::{AcceptedId, ConnectionId as EngineConnection};
use server::Connection;

use crate::rng::Rng;

/// Maximum time until one end learns that the other has closed the connection.
const UNHEARD: Duration = Duration::from_secs(6);

/// Rates of faults, in per mille of records.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkFaults {
    /// The connection breaks, and the record is lost.
    pub(super) lost: u64,
    /// The record arrives, and the connection breaks then.
    pub(super) cut: u64,
    /// Nothing passes from now on, and neither end notices.
    pub(super) stalled: u64,
    /// The record, and with it all later ones, is delayed by seconds.
    pub(super) late: u64,
}

impl LinkFaults {
    pub(super) const NONE: Self = Self { lost: 0, cut: 0, stalled: 0, late: 0 };
    pub(super) const MANY: Self = Self { lost: 25, cut: 25, stalled: 8, late: 40 };

    /// Returns whether a message that no connection carries is lost.
    pub(super) fn loses_datagram(self, rng: &mut Rng) -> bool {
        rng.below(1000) < 4 * self.lost
    }
}

/// The fate of a record in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It arrives at this time.
    Arrives(Duration),
    /// It arrives at this time, and the connection breaks afterwards.
    ArrivesLast(Duration),
    /// The connection breaks instead.
    Lost,
    /// The record vanishes, and neither end notices.
    Vanishes,
}

/// A connection at the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientEnd {
    /// The client has made it.
    Made(EngineConnection),
    /// The server has made it, for callbacks.
    Accepted(AcceptedId),
}

/// A connection between a client's engine and a server.
pub(super) struct Link {
    /// The client's number and boot.
    pub(super) host: usize,
    pub(super) boot: u64,
    /// The connection at the client.
    pub(super) at_client: ClientEnd,
    /// The connection at the server.
    pub(super) at_server: Arc<Connection>,
    /// The start of the server that accepted it.
    pub(super) server_start: u64,
    /// Whether the client has it open.
    pub(super) is_open_at_client: bool,
    /// Whether the server has it open.
    pub(super) is_open_at_server: bool,
    is_stalled: bool,
    /// When the last records to the server and to the client arrive.
    arrivals: [Duration; 2],
}

/// The direction of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

impl Link {
    pub(super) fn new(
        (host, boot): (usize, u64),
        at_client: ClientEnd,
        at_server: Arc<Connection>,
        server_start: u64,
    ) -> Self {
        Self {
            host,
            boot,
            at_client,
            at_server,
            server_start,
            is_open_at_client: true,
            is_open_at_server: true,
            is_stalled: false,
            arrivals: [Duration::ZERO; 2],
        }
    }

    /// Makes all later records vanish.
    pub(super) fn stall(&mut self) {
        self.is_stalled = true;
    }

    /// Decides the fate of a record that is sent now.
    pub(super) fn send(
        &mut self,
        direction: Direction,
        now: Duration,
        faults: LinkFaults,
        rng: &mut Rng,
    ) -> Delivery {
        let drawn = rng.below(1000);
        let delay = match rng.below(1000) < faults.late {
            true => Duration::from_millis(500 + rng.below(5_000)),
            false => Duration::from_micros(100 + rng.below(20_000)),
        };
        let arrival = &mut self.arrivals[direction as usize];
        *arrival = (now + delay).max(*arrival + Duration::from_nanos(1));
        let LinkFaults { lost, cut, stalled, .. } = faults;
        if self.is_stalled || (lost + cut..lost + cut + stalled).contains(&drawn) {
            self.is_stalled = true;
            Delivery::Vanishes
        } else if drawn < lost {
            Delivery::Lost
        } else if drawn < lost + cut {
            Delivery::ArrivesLast(*arrival)
        } else {
            Delivery::Arrives(*arrival)
        }
    }
}

/// Returns a time until an end learns that the other has closed the connection.
pub(super) fn hearing_time(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(UNHEARD.as_micros() as u64))
}
