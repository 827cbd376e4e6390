//! Who waits until changes up to some number are on stable storage.

use std::collections::HashMap;
use std::task::Waker;

/// They, each with the number that it waits for. One that is given up stays until that is reached.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// By place.
    waiting: HashMap<u64, (u64, Waker)>,
    /// The last place that was given.
    last: u64,
}

impl Waiters {
    /// Has `waker` woken when `wanted` is reached, in place of the one before at this place. A place is had with the first call.
    pub(crate) fn wait(&mut self, place: &mut Option<u64>, wanted: u64, waker: &Waker) {
        let last = &mut self.last;
        let place = *place.get_or_insert_with(|| {
            *last += 1;
            *last
        });
        self.waiting.insert(place, (wanted, waker.clone()));
    }

    /// Those whose wait is over, to be woken when no lock is held any more.
    pub(crate) fn take(&mut self, is_over: impl Fn(u64) -> bool) -> Vec<Waker> {
        let over = self.waiting.extract_if(|_, (wanted, _)| is_over(*wanted));
        over.map(|(_, (_, waker))| waker).collect()
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_once_and_goes_when_its_number_is_reached() {
        let mut waiters = Waiters::default();
        let (mut first, mut second) = (None, None);
        waiters.wait(&mut first, 1, Waker::noop());
        waiters.wait(&mut second, 2, Waker::noop());
        waiters.wait(&mut first, 1, Waker::noop());
        assert_eq!((waiters.count(), first != second), (2, true));
        assert_eq!((waiters.take(|wanted| wanted <= 1).len(), waiters.count()), (1, 1));
        assert_eq!((waiters.take(|wanted| wanted <= 1).len(), waiters.take(|_| true).len()), (0, 1));
    }
}
