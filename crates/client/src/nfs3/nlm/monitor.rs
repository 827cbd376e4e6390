//! Which server granted a lock: epochs, and the state of the server's status monitor.
//!
//! An epoch ends when the connection to the lock manager is another one, or when the server says that it restarted. Locks of earlier
//! epochs are doubtful. The number of the server's status monitor (SM_STAT) says for certain whether it restarted, where it answers.
//!
//! Datagrams have no connection that could end. There the monitor is asked at intervals while the client has locks, and before the first
//! lock: another number ends the epoch. So does a refusal because of a grace period, which shows a restart of the lock manager alone. A
//! monitor that does not answer says nothing: as with Linux's client, SM_NOTIFY then reports restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nsm::{self, Name, StatRes};

use super::super::side::{Place, SideConnection, is_absent};
use super::Nlm;
use super::calls::ConnectionIdentity;
use crate::calls::Procedure;
use crate::config::Caller;
use crate::error::OpError;

/// Most epochs whose monitor state is remembered.
const STATES_MAX: usize = 16;
/// Age of the monitor's last answer after which it is asked again before the first lock, over datagrams.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(1);

/// The epochs so far.
#[derive(Debug, Default)]
pub(super) struct Epochs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    current: u32,
    /// The connection of this epoch; `None` before the first.
    connection: Option<ConnectionIdentity>,
    /// The number in the last SM_NOTIFY.
    notified: Option<i32>,
    /// The state of the server's monitor by epoch, as far as it was learned; `None` if the monitor did not answer.
    monitor: BTreeMap<u32, Option<i32>>,
    /// When the monitor was last asked.
    asked_at: Duration,
    /// Whether the server was in its grace period when it last answered a request for a new lock.
    in_grace: bool,
}

impl State {
    fn insert(&mut self, epoch: u32, number: Option<i32>) {
        self.monitor.insert(epoch, number);
        while self.monitor.len() > STATES_MAX {
            self.monitor.pop_first();
        }
    }
}

impl Epochs {
    pub(super) fn current(&self) -> u32 {
        self.0.lock().current
    }

    /// Returns whether the lock manager has ever been reached.
    pub(super) fn has_server(&self) -> bool {
        self.0.lock().connection.is_some()
    }

    /// Notes the connection of a reply. Returns whether it begins another epoch.
    pub(super) fn note_connection(&self, connection: ConnectionIdentity) -> bool {
        let mut state = self.0.lock();
        let before = state.connection.replace(connection);
        let is_other = before.is_some_and(|before| before != connection);
        state.current += u32::from(is_other);
        is_other
    }

    /// Notes that the server has restarted, as it says. Returns whether that is new.
    pub(super) fn note_restart(&self, number: i32) -> bool {
        let mut state = self.0.lock();
        let is_new = state.notified.replace(number) != Some(number);
        state.current += u32::from(is_new);
        is_new
    }

    fn needs_monitor(&self) -> Option<u32> {
        let state = self.0.lock();
        (!state.monitor.contains_key(&state.current)).then_some(state.current)
    }

    fn note_monitor(&self, epoch: u32, number: Option<i32>, asked_at: Duration) {
        let mut state = self.0.lock();
        state.insert(epoch, number);
        state.asked_at = asked_at;
    }

    /// Notes another answer of the monitor in this epoch. Returns whether it begins another one: the server has restarted.
    fn compare_monitor(&self, epoch: u32, number: Option<i32>, asked_at: Duration) -> bool {
        let mut state = self.0.lock();
        if state.current != epoch || number.is_none() {
            return false;
        }
        state.asked_at = asked_at;
        let known = state.monitor.get(&epoch).copied().flatten();
        let is_other = known.is_some() && known != number;
        state.current += u32::from(is_other);
        let current = state.current;
        state.insert(current, number);
        is_other
    }

    /// Notes whether the server grants new locks, or is in its grace period, which then begins another epoch. Returns whether it does.
    pub(super) fn note_grace(&self, in_grace: bool) -> bool {
        let mut state = self.0.lock();
        let begins = in_grace && !state.in_grace;
        state.in_grace = in_grace;
        state.current += u32::from(begins);
        begins
    }

    /// Begins another epoch if the monitor's last answer is old.
    fn expire(&self, now: Duration) {
        let mut state = self.0.lock();
        let is_old = now.saturating_sub(state.asked_at) > ANSWER_AGE_MAX;
        if is_old && matches!(state.monitor.get(&state.current), Some(Some(_))) {
            state.current += 1;
        }
    }

    /// Returns whether the server is the same in both epochs; `None` if that is not known.
    pub(super) fn is_same_server(&self, one: u32, other: u32) -> Option<bool> {
        let state = self.0.lock();
        let number = |epoch| state.monitor.get(&epoch).copied().flatten();
        Some(number(one)? == number(other)?)
    }
}

impl Nlm {
    /// Notes the connection of a reply. Locks that were granted over another one become doubtful.
    pub(super) fn note_connection(&self, connection: ConnectionIdentity) {
        if self.epochs.note_connection(connection) {
            self.attention.raise();
        }
    }

    /// Notes whether the server grants new locks, or is in its grace period. Over datagrams nothing else may show that it has restarted.
    pub(super) fn note_grace(&self, in_grace: bool) {
        if self.uses_datagrams() && self.epochs.note_grace(in_grace) {
            self.attention.raise();
        }
    }

    /// Learns the state of the server's monitor for this epoch.
    ///
    /// # Errors
    /// If the lock manager cannot be reached. A monitor that does not answer is no error.
    pub(super) async fn learn_monitor(&self) -> Result<(), OpError> {
        let port = self.reach().await?;
        if self.uses_datagrams() && !self.table.holds_any() {
            // No lock becomes doubtful.
            self.epochs.expire(self.engine.now());
        }
        while let Some(epoch) = self.epochs.needs_monitor() {
            let asked_at = self.engine.now();
            let number = self.ask_monitor(port).await;
            self.epochs.note_monitor(epoch, number, asked_at);
        }
        Ok(())
    }

    /// Asks the monitor whether the server has restarted, over datagrams: `port` is that of the lock manager. Locks become doubtful if it
    /// has.
    pub(super) async fn look_for_restart(&self, port: u16) {
        let (epoch, asked_at) = (self.epochs.current(), self.engine.now());
        let number = self.ask_monitor(port).await;
        if self.epochs.compare_monitor(epoch, number, asked_at) {
            self.attention.raise();
        }
    }

    /// Asks the server's monitor for its state: at the port of the lock manager, where some servers have both, or by the port mapper.
    async fn ask_monitor(&self, nlm_port: u16) -> Option<i32> {
        let together = self.config.nlm_port.or((nlm_port == self.nfs_port).then_some(nlm_port));
        let answer = match together {
            Some(port) => match self.stat_at(Place::Port(port)).await {
                // Linux's lock manager and its monitor have ports of their own.
                Err(error) if is_absent(&error) => self.stat_at(Place::PortMapper).await,
                answer => answer,
            },
            None => self.stat_at(Place::PortMapper).await,
        };
        answer.ok().map(|answer| answer.state)
    }

    async fn stat_at(&self, place: Place) -> Result<StatRes, OpError> {
        let (transport, program) = (self.config.transport, (nsm::PROGRAM, nsm::VERSION));
        let port = place.port(&self.engine, transport, program, "NSM").await?;
        let connection = SideConnection::open(&self.engine, transport, port)?;
        let stat = Procedure { program: nsm::PROGRAM, version: nsm::VERSION, number: nsm::Proc::STAT.0 };
        let name = Name::new(self.name.bytes().clone()).unwrap_or_default();
        connection.call(&Caller::anonymous(), stat, &name).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_connection_or_a_new_notification_begins_an_epoch() {
        let epochs = Epochs::default();
        assert!(!epochs.has_server());
        assert!(!epochs.note_connection((1, 1)), "the first");
        assert!(epochs.has_server() && !epochs.note_connection((1, 1)));
        assert!(epochs.note_connection((1, 2)) && epochs.note_connection((2, 1)));
        assert!(epochs.note_restart(5) && !epochs.note_restart(5) && epochs.note_restart(7));
        assert_eq!(epochs.current(), 4);
    }

    #[test]
    fn servers_are_compared_by_the_states_of_their_monitors() {
        let epochs = Epochs::default();
        assert_eq!(epochs.needs_monitor(), Some(0));
        epochs.note_monitor(0, Some(3), Duration::ZERO);
        assert_eq!(epochs.needs_monitor(), None);
        epochs.note_restart(1);
        assert_eq!((epochs.needs_monitor(), epochs.is_same_server(0, 1)), (Some(1), None));
        epochs.note_monitor(1, Some(3), Duration::ZERO);
        epochs.note_monitor(2, Some(5), Duration::ZERO);
        epochs.note_monitor(3, None, Duration::ZERO);
        assert_eq!((epochs.is_same_server(0, 1), epochs.is_same_server(0, 2)), (Some(true), Some(false)));
        assert_eq!(epochs.is_same_server(0, 3), None);
        for epoch in 4..100 {
            epochs.note_monitor(epoch, Some(3), Duration::ZERO);
        }
        assert_eq!(epochs.0.lock().monitor.len(), STATES_MAX);
    }

    #[test]
    fn another_number_of_the_monitor_begins_an_epoch() {
        let (epochs, now) = (Epochs::default(), Duration::from_secs(5));
        assert!(!epochs.compare_monitor(0, Some(3), now), "the first answer");
        assert!(!epochs.compare_monitor(0, Some(3), now) && !epochs.compare_monitor(0, None, now));
        assert!(epochs.compare_monitor(0, Some(5), now));
        assert!(!epochs.compare_monitor(0, Some(7), now), "asked in an earlier epoch");
        assert_eq!((epochs.current(), epochs.is_same_server(0, 1)), (1, Some(false)));
        epochs.expire(now + ANSWER_AGE_MAX);
        assert_eq!((epochs.current(), epochs.needs_monitor()), (1, None));
        epochs.expire(now + ANSWER_AGE_MAX * 2);
        assert_eq!((epochs.current(), epochs.needs_monitor()), (2, Some(2)));
        epochs.expire(now + ANSWER_AGE_MAX * 9);
        assert_eq!(epochs.current(), 2, "it is asked now");
        epochs.note_monitor(2, None, now);
        epochs.expire(now + ANSWER_AGE_MAX * 99);
        assert_eq!(epochs.current(), 2, "it does not answer");
        assert!(!epochs.compare_monitor(2, Some(9), now), "nothing was known before");
    }

    #[test]
    fn a_grace_period_begins_an_epoch_once() {
        let epochs = Epochs::default();
        assert!(!epochs.note_grace(false) && epochs.note_grace(true) && !epochs.note_grace(true));
        assert!(!epochs.note_grace(false) && epochs.note_grace(true));
        assert_eq!(epochs.current(), 2);
    }
}
