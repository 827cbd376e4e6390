//! Which server granted a lock: epochs, and the state of the server's status monitor.
//!
//! An epoch ends when the connection to the lock manager is another one, or when the server says that it restarted. Locks of earlier
//! epochs are doubtful. The number of the server's status monitor (SM_STAT) says for certain whether it restarted, where it answers.
//!
//! Datagrams have no connection that could end. There the monitor is asked when a call had to be repeated, at intervals while the client has
//! locks, and before the first lock. Another number ends the epoch, as does a monitor that does not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nsm::{self, Name, StatRes};

use super::super::side::{Place, SideConnection};
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

    /// Notes another answer of the monitor in this epoch. Returns whether it begins another one: the server has restarted, or may have.
    fn compare_monitor(&self, epoch: u32, number: Option<i32>, asked_at: Duration) -> bool {
        let mut state = self.0.lock();
        state.asked_at = asked_at;
        if state.current != epoch {
            return false;
        }
        let is_other = match state.monitor.get(&epoch) {
            Some(known) => known.is_none() || *known != number,
            None => false,
        };
        state.current += u32::from(is_other);
        let current = state.current;
        state.insert(current, number);
        is_other
    }

    /// Begins another epoch if the monitor's last answer is old.
    fn expire(&self, now: Duration) {
        let mut state = self.0.lock();
        let is_old = now.saturating_sub(state.asked_at) > ANSWER_AGE_MAX;
        if is_old && state.monitor.contains_key(&state.current) {
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

    /// Asks the monitor whether the server has restarted, over datagrams: `port` is that of the lock manager. Locks become doubtful if it has,
    /// or if the monitor does not answer.
    pub(super) async fn look_for_restart(&self, port: u16) {
        let wanted_at = self.engine.now();
        // One question answers all who wanted to ask before it.
        let mut asked_at = self.monitor_asked.lock().await;
        if *asked_at > wanted_at {
            return;
        }
        *asked_at = self.engine.now();
        let epoch = self.epochs.current();
        let number = self.ask_monitor(port).await;
        if self.epochs.compare_monitor(epoch, number, *asked_at) {
            self.attention.raise();
        }
    }

    /// Asks the server's monitor for its state: at the port of the lock manager, where some servers have both, or by the port mapper.
    async fn ask_monitor(&self, nlm_port: u16) -> Option<i32> {
        let places = match self.config.nlm_port {
            Some(port) => vec![Place::Port(port)],
            None if nlm_port == self.nfs_port => vec![Place::Port(nlm_port)],
            None => vec![Place::PortMapper],
        };
        for place in places {
            if let Ok(answer) = self.stat_at(place).await {
                return Some(answer.state);
            }
        }
        None
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
    fn another_number_or_no_answer_of_the_monitor_begins_an_epoch() {
        let (epochs, now) = (Epochs::default(), Duration::from_secs(5));
        assert!(!epochs.compare_monitor(0, Some(3), now), "the first answer");
        assert!(!epochs.compare_monitor(0, Some(3), now) && epochs.compare_monitor(0, Some(5), now));
        assert!(!epochs.compare_monitor(0, Some(7), now), "asked in an earlier epoch");
        assert_eq!((epochs.current(), epochs.is_same_server(0, 1)), (1, Some(false)));
        assert!(epochs.compare_monitor(1, None, now) && epochs.compare_monitor(2, None, now));
        assert!(epochs.compare_monitor(3, Some(5), now), "nobody knows what was before");
        assert_eq!(epochs.is_same_server(1, 4), Some(true));
        epochs.expire(now + ANSWER_AGE_MAX);
        assert_eq!((epochs.current(), epochs.needs_monitor()), (4, None));
        epochs.expire(now + ANSWER_AGE_MAX * 2);
        assert_eq!((epochs.current(), epochs.needs_monitor()), (5, Some(5)));
        epochs.expire(now + ANSWER_AGE_MAX * 9);
        assert_eq!(epochs.current(), 5, "it is asked now");
    }
}
