//! Retries of one READ over all addresses of a server.

use std::time::Duration;

use crate::ReadError;

/// Time limit of one READ, over all addresses and attempts.
pub const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts at each address: an idle connection may be dead without notice, and the second attempt uses a new one.
const ATTEMPTS: u32 = 2;

/// Runs one READ of a server with this number of addresses. `attempt` sends it to the address of an index, and waits until the
/// deadline at most. The transport implements it: this code has no socket and no clock.
///
/// # Errors
/// The status that a server returned; otherwise the reason of the failure, after the last address or the deadline.
pub async fn read_with_retries<R>(
    addresses: usize,
    now: impl Fn() -> Duration,
    attempt: impl AsyncFn(usize, Duration) -> Result<R, ReadError>,
) -> Result<R, ReadError> {
    let mut retry = ReadRetry::new(addresses, now());
    loop {
        let address = retry.next_address(now())?;
        match attempt(address, retry.deadline()).await {
            Ok(reply) => return Ok(reply),
            Err(error) => retry.failed(error)?,
        }
    }
}

/// Decides where one READ is sent next, and when it has failed.
#[derive(Debug)]
struct ReadRetry {
    deadline: Duration,
    addresses: usize,
    /// Index of the current address.
    address: usize,
    attempts_left: u32,
    /// The error to return when all addresses have failed.
    last: ReadError,
}

impl ReadRetry {
    /// Creates the retries of a READ that starts at `now`, for a server with this number of addresses.
    fn new(addresses: usize, now: Duration) -> Self {
        let last = ReadError::Unresponsive;
        Self { deadline: now + READ_TIMEOUT, addresses, address: 0, attempts_left: ATTEMPTS, last }
    }

    /// Returns when the READ fails, even while an attempt is pending.
    fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Starts the next attempt; returns the index of its address.
    ///
    /// # Errors
    /// The reason of the failure, after the last address or the deadline.
    fn next_address(&mut self, now: Duration) -> Result<usize, ReadError> {
        if now >= self.deadline || self.address == self.addresses {
            return Err(self.last);
        }
        self.attempts_left -= 1;
        Ok(self.address)
    }

    /// Handles the failure of the last attempt.
    ///
    /// # Errors
    /// The status that a server returned; it is final.
    fn failed(&mut self, error: ReadError) -> Result<(), ReadError> {
        match error {
            ReadError::Refused(_) => return Err(error),
            ReadError::SessionLost if self.attempts_left > 0 => return Ok(()),
            ReadError::Unsupported => self.last = error,
            ReadError::SessionLost | ReadError::Unresponsive => {}
        }
        (self.address, self.attempts_left) = (self.address + 1, ATTEMPTS);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::types::Status;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn tries_each_address_in_turn_and_twice_after_a_lost_connection() {
        let mut retry = ReadRetry::new(2, SECOND);
        let mut tried = Vec::new();
        for error in [ReadError::SessionLost, ReadError::SessionLost, ReadError::Unresponsive] {
            tried.push(retry.next_address(2 * SECOND).unwrap());
            retry.failed(error).unwrap();
        }
        assert_eq!(tried, [0, 0, 1]);
        assert_eq!(retry.next_address(2 * SECOND), Err(ReadError::Unresponsive));
    }

    #[test]
    fn stops_at_a_status_but_not_at_an_unsupported_version() {
        let refused = ReadError::Refused(Status::BAD_STATEID);
        let mut retry = ReadRetry::new(2, SECOND);
        assert_eq!(retry.next_address(SECOND), Ok(0));
        retry.failed(ReadError::Unsupported).unwrap();
        assert_eq!(retry.next_address(SECOND), Ok(1));
        assert_eq!(retry.failed(refused), Err(refused));
        let mut retry = ReadRetry::new(2, SECOND);
        for error in [ReadError::Unsupported, ReadError::Unresponsive] {
            assert!(retry.next_address(SECOND).is_ok());
            retry.failed(error).unwrap();
        }
        assert_eq!(retry.next_address(SECOND), Err(ReadError::Unsupported));
    }

    #[test]
    fn gives_up_after_a_minute() {
        let mut retry = ReadRetry::new(4, SECOND);
        assert_eq!(retry.deadline(), 61 * SECOND);
        assert_eq!(retry.next_address(SECOND), Ok(0));
        // Each server sends slowly for a while, then disconnects.
        retry.failed(ReadError::SessionLost).unwrap();
        assert_eq!(retry.next_address(40 * SECOND), Ok(0));
        retry.failed(ReadError::SessionLost).unwrap();
        assert_eq!(retry.next_address(61 * SECOND - Duration::from_nanos(1)), Ok(1));
        retry.failed(ReadError::SessionLost).unwrap();
        assert_eq!(retry.next_address(61 * SECOND), Err(ReadError::Unresponsive));
    }
}
