//! Accepts connections, also while the system has no descriptors left.

use std::io;
use std::time::Duration;

use server::Throttle;
use tracing::warn;

use crate::Clock;

/// Pause after accept(2) failed for lack of descriptors or memory. The connection stays in the listener's queue, so that the next
/// attempt would fail at once.
const PAUSE: Duration = Duration::from_millis(50);

/// Calls `accept` until it returns a connection. After a failure of the system it calls `failed` and pauses.
pub async fn accept<T, F: Future<Output = io::Result<T>>>(
    mut accept: impl FnMut() -> F,
    mut failed: impl FnMut(&io::Error),
) -> T {
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(error) if is_of_the_peer(&error) => tokio::task::yield_now().await,
            Err(error) => {
                failed(&error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Returns whether the error concerns only this connection, whose peer is gone.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Logs that connections cannot be accepted, at most once a second.
#[derive(Debug)]
pub struct AcceptLog {
    listener: &'static str,
    throttle: Throttle,
    clock: Clock,
}

impl AcceptLog {
    /// For a listener of this name.
    #[must_use]
    pub fn new(listener: &'static str, clock: Clock) -> Self {
        Self { listener, throttle: Throttle::default(), clock }
    }

    /// Logs `error`, unless there was a line in the same second.
    pub fn failed(&self, error: &io::Error) {
        if let Some(suppressed) = self.throttle.admit(self.clock.now()) {
            warn!(listener = self.listener, suppressed, "cannot accept a connection: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::io::Errno;

    use super::*;

    /// Runs `test` with a paused clock that advances when all tasks are idle.
    fn in_paused_time(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().expect("a runtime").block_on(test);
    }

    #[test]
    fn lack_of_descriptors_causes_pauses() {
        in_paused_time(lack_of_descriptors());
    }

    async fn lack_of_descriptors() {
        let (attempts, failures) = (Cell::new(0_u32), Cell::new(0_u32));
        let nothing = accept(
            || {
                attempts.set(attempts.get() + 1);
                std::future::ready(Err::<(), _>(Errno::MFILE.into()))
            },
            |_| failures.set(failures.get() + 1),
        );
        let waited = tokio::time::timeout(Duration::from_secs(10), nothing).await;
        assert!(waited.is_err(), "no connection");
        // One at the beginning, and one after each pause of ten seconds.
        assert!((2..=201).contains(&attempts.get()), "{} attempts", attempts.get());
        assert_eq!(attempts.get(), failures.get());
    }

    #[test]
    fn a_vanished_peer_causes_no_pause() {
        in_paused_time(peer_that_went_away());
    }

    async fn peer_that_went_away() {
        let mut results = [Err(Errno::CONNABORTED.into()), Err(Errno::INTR.into()), Ok(7)].into_iter();
        let begun = tokio::time::Instant::now();
        let taken = accept(
            || std::future::ready(results.next().expect("no further attempt")),
            |error: &io::Error| panic!("{error}"),
        );
        assert_eq!((taken.await, begun.elapsed()), (7, Duration::ZERO));
    }
}
