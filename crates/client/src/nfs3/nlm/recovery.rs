//! Reclaims locks after a restart of the server (XNFS, "Crash Recovery").
//!
//! The server gives up all locks when it restarts, and grants only reclaims within a grace period. A lock is doubtful if it was granted
//! in an earlier epoch (see [`monitor`](super::monitor)); each is requested as a reclaim. A server that refuses reclaims has not
//! restarted, or its grace period is over. Then its monitor decides; if that does not answer, a lock that can be had again counts as
//! never lost.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use protocol::nlm::Stats;

use super::Nlm;
use super::calls::Replied;
use super::lock::GRACE_PAUSE;
use super::table::LockerUse;
use crate::error::OpError;
use crate::locks::HeldRange;

/// The pause between calls that check whether the server is still the same, while the client has locks. A fraction of the usual grace
/// periods.
const PULSE: Duration = Duration::from_secs(10);
/// The pause after a recovery, which bounds the effect of forged notifications.
const RECOVERY_PAUSE: Duration = Duration::from_secs(1);
/// Number of requests for one doubtful lock, with [`GRACE_PAUSE`] between them: longer than grace periods.
const TRIES_MAX: u32 = 60;

impl Nlm {
    /// Looks whether the server is still the same, and reclaims locks otherwise. Does not end.
    pub(super) async fn keep_locks(&self) {
        loop {
            let attention = pin!(poll_fn(|context| self.attention.poll(context)));
            let is_pulse = match self.table.holds_any() {
                true => matches!(select(attention, pin!(self.engine.sleep(PULSE))).await, Either::Right(_)),
                false => {
                    attention.await;
                    false
                }
            };
            if self.engine.is_shut_down() {
                // The client's other tasks end now.
                std::future::pending::<()>().await;
            }
            if is_pulse && self.table.holds_any() && !self.has_doubtful() {
                // A server that does not answer is asked again later.
                let _ = self.look_at_server().await;
            }
            while self.has_doubtful() && !self.engine.is_shut_down() {
                // What could not be verified remains doubtful.
                let _ = self.recover().await;
                self.engine.sleep(RECOVERY_PAUSE).await;
            }
        }
    }

    /// Finds out whether the server is still the same.
    async fn look_at_server(&self) -> Result<(), OpError> {
        if !self.uses_datagrams() {
            return self.ping().await;
        }
        let port = self.reach().await?;
        self.look_for_restart(port).await;
        Ok(())
    }

    fn has_doubtful(&self) -> bool {
        self.table.has_doubtful(self.epochs.current())
    }

    /// Reclaims all doubtful locks.
    async fn recover(&self) -> Result<(), OpError> {
        self.ping().await?;
        // The locks that are confirmed belong to the server that answers now.
        self.learn_monitor().await?;
        for locker in self.table.all() {
            let _turn = locker.turn().await;
            for held in locker.doubtful(self.epochs.current()) {
                self.verify(&locker, held).await?;
            }
        }
        Ok(())
    }

    /// Reclaims one range, or learns that it is lost.
    async fn verify(&self, locker: &LockerUse, held: HeldRange) -> Result<(), OpError> {
        let (caller, what) = (locker.caller(), (held.range, held.kind));
        let mut reclaim = true;
        for _ in 0..TRIES_MAX {
            let Replied { reply, epoch } = self.send_lock(&caller, locker, what, false, reclaim).await?;
            match (reply, epoch) {
                (Stats::GRANTED, Some(epoch)) => {
                    locker.confirmed(HeldRange { open: epoch, ..held });
                    return Ok(());
                }
                // Once more, over a connection that stays.
                (_, None) => reclaim = true,
                // It accepts no reclaims: there is no grace period, or it does not remember this client.
                (Stats::DENIED_GRACE_PERIOD, Some(epoch)) if reclaim => {
                    self.learn_monitor().await?;
                    if self.epochs.is_same_server(held.open, epoch) == Some(false) {
                        break;
                    }
                    reclaim = false;
                }
                (Stats::DENIED_GRACE_PERIOD, _) => self.engine.sleep(GRACE_PAUSE).await,
                _ => break,
            }
        }
        locker.lose(held);
        Ok(())
    }
}
