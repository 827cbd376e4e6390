//! Unlocks what the server may hold after calls whose replies were lost. It keeps locks without a lease, so nobody else would get them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::nlm::Stats;

use super::Nlm;
use super::calls::Replied;
use super::table::LockerUse;
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::LockRange;

/// Maximum number of attempts for one owner on one file; the pauses between them add up to four minutes.
const TRIES_MAX: u32 = 8;
/// The first pause between them; later ones are twice as long each.
const PAUSE_FIRST: Duration = Duration::from_secs(2);

/// The time until such a task notices that the client ends.
const STEP: Duration = Duration::from_secs(1);

impl Nlm {
    /// As [`Self::restore`], in the background.
    pub(super) fn restore_later(self: &Arc<Self>, caller: &Caller, locker: &LockerUse, range: LockRange) {
        let (nlm, caller, locker) = (Arc::clone(self), caller.clone(), locker.again());
        self.abandoned.add(Box::pin(async move { nlm.restore(&caller, &locker, range).await }));
    }

    /// Makes the server's locks in a range those of the table; tries for some minutes if it does not answer, until the client ends. If
    /// another task does that for the same owner and file, leaves the range to it.
    pub(super) async fn restore(&self, caller: &Caller, locker: &LockerUse, range: LockRange) {
        if !locker.doubt(range) {
            return;
        }
        let (mut tries_left, mut pause) = (TRIES_MAX, PAUSE_FIRST);
        loop {
            let is_last = self.is_ending.load(Ordering::Relaxed);
            let Some(range) = locker.next_doubt() else { return };
            let restored = {
                let _turn = locker.turn().await;
                self.restore_in_turn(caller, locker, range).await
            };
            if restored.is_ok() {
                continue;
            }
            tries_left -= 1;
            if tries_left == 0 || is_last || self.engine.is_shut_down() {
                return locker.forget_doubts();
            }
            locker.doubt(range);
            let mut left = pause;
            while !left.is_zero() && !self.is_ending.load(Ordering::Relaxed) {
                let step = left.min(STEP);
                self.engine.sleep(step).await;
                left -= step;
            }
            pause *= 2;
        }
    }

    /// Makes the server's locks in a range those of the table.
    ///
    /// # Errors
    /// That of the first call without a reply.
    async fn restore_in_turn(
        &self,
        caller: &Caller,
        locker: &LockerUse,
        range: LockRange,
    ) -> Result<(), OpError> {
        for held in locker.held(range) {
            match self.send_lock(caller, locker, (held.range, held.kind), false, false).await {
                Ok(Replied { reply: Stats::DENIED, .. }) => locker.lose(held),
                Err(error @ OpError::Call(_)) => return Err(error),
                _ => {}
            }
        }
        let unlocked = self.unlock_gaps(caller, locker, range).await;
        self.table.waiters.unlocked(&locker.file);
        match unlocked {
            Err(error @ OpError::Call(_)) => Err(error),
            _ => Ok(()),
        }
    }
}
