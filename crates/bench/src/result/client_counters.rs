//! Counters of Enfys's clients in a run: caches, delegations, and waits for slots.

use serde::{Deserialize, Serialize};

/// Counters over the measured time, of all clients together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCounters {
    /// Waits for a slot.
    pub slots: SlotWaits,
    /// Attributes that were asked for.
    pub attributes: CacheUse,
    /// Names that were looked up.
    pub names: CacheUse,
    /// Permissions that were asked for.
    pub access: CacheUse,
    /// Parts of directories that were listed.
    pub listings: CacheUse,
    /// Bytes that were read.
    pub data_bytes: CacheUse,
    /// Delegations of files.
    pub delegations: Delegations,
    /// Delegations of directories.
    pub directory_delegations: Delegations,
}

/// Requests that waited for a slot, or in versions 3 and 4.0 for one of the calls in flight to end, and had it then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotWaits {
    /// Their number.
    pub count: u64,
    /// Sum of the times that they waited, in microseconds.
    pub sum_us: u64,
    /// Sum of the squares of these times.
    pub squares_us2: f64,
}

/// Uses of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheUse {
    /// Answered from the cache.
    pub hits: u64,
    /// Needed a request.
    pub misses: u64,
}

/// Delegations of the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegations {
    /// Held at the end; no counter, and not part of a difference.
    pub held: u64,
    /// Granted by the server.
    pub granted: u64,
    /// Recalled by the server.
    pub recalled: u64,
    /// Returned, for any reason.
    pub returned: u64,
    /// Revoked by the server, or not reclaimed after its restart.
    pub lost: u64,
    /// Opens without a request.
    pub local_opens: u64,
}

impl SlotWaits {
    /// Returns the mean of the waits and their standard deviation, in milliseconds; `None` if nothing has waited.
    #[must_use]
    pub fn mean_and_deviation_ms(&self) -> Option<(f64, f64)> {
        if self.count == 0 {
            return None;
        }
        let count = self.count as f64;
        let mean = self.sum_us as f64 / count;
        let variance =
            if self.count == 1 { 0.0 } else { (self.squares_us2 - count * mean * mean) / (count - 1.0) };
        Some((mean / 1e3, variance.max(0.0).sqrt() / 1e3))
    }
}

impl ClientCounters {
    /// Adds those of another client.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
        self.slots.squares_us2 += other.slots.squares_us2;
        self.delegations.held += other.delegations.held;
        self.directory_delegations.held += other.directory_delegations.held;
    }

    /// Returns the growth since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.combine(before, u64::saturating_sub);
        self.slots.squares_us2 = (self.slots.squares_us2 - before.slots.squares_us2).max(0.0);
        self
    }

    /// Combines everything that is a counter.
    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        for (own, other) in self.counters().into_iter().zip({ *other }.counters()) {
            *own = with(*own, *other);
        }
    }

    fn counters(&mut self) -> [&mut u64; 22] {
        let Self {
            slots,
            attributes,
            names,
            access,
            listings,
            data_bytes,
            delegations,
            directory_delegations,
        } = self;
        let (files, directories) = (delegations, directory_delegations);
        [
            &mut slots.count,
            &mut slots.sum_us,
            &mut attributes.hits,
            &mut attributes.misses,
            &mut names.hits,
            &mut names.misses,
            &mut access.hits,
            &mut access.misses,
            &mut listings.hits,
            &mut listings.misses,
            &mut data_bytes.hits,
            &mut data_bytes.misses,
            &mut files.granted,
            &mut files.recalled,
            &mut files.returned,
            &mut files.lost,
            &mut files.local_opens,
            &mut directories.granted,
            &mut directories.recalled,
            &mut directories.returned,
            &mut directories.lost,
            &mut directories.local_opens,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_mean_and_deviation() {
        assert_eq!(SlotWaits::default().mean_and_deviation_ms(), None);
        let one = SlotWaits { count: 1, sum_us: 3000, squares_us2: 9e6 };
        assert_eq!(one.mean_and_deviation_ms(), Some((3.0, 0.0)));
        // 1, 2 and 3 ms.
        let three = SlotWaits { count: 3, sum_us: 6000, squares_us2: 14e6 };
        assert_eq!(three.mean_and_deviation_ms(), Some((2.0, 1.0)));
    }

    #[test]
    fn differences_and_sums_leave_what_is_held() {
        let mut after = ClientCounters::default();
        for (number, counter) in (100..).zip(after.counters()) {
            *counter = number;
        }
        after.delegations.held = 7;
        after.slots.squares_us2 = 5.0;
        let mut before = ClientCounters::default();
        before.counters().into_iter().for_each(|counter| *counter = 90);
        before.delegations.held = 9;
        before.slots.squares_us2 = 2.0;
        let mut growth = after.since(&before);
        let each: Vec<u64> = growth.counters().into_iter().map(|counter| *counter).collect();
        assert_eq!(each, (10..32).collect::<Vec<u64>>());
        assert_eq!((growth.delegations.held, growth.slots.squares_us2), (7, 3.0));
        growth.add(&growth.clone());
        assert_eq!((growth.slots.count, growth.delegations.held, growth.slots.squares_us2), (20, 14, 6.0));
    }
}
