//! One READ, over all addresses of a server and all attempts at each.

use std::time::Duration;

use crate::ReadError;

/// How long one READ may take, wherever and however often it is asked for.
pub const ERRAND_PATIENCE: Duration = Duration::from_secs(60);
/// A connection that was idle may have been lost without a word: what is asked is asked once more over another.
const ATTEMPTS: u32 = 2;

/// Where a READ is to be asked for next, and until when.
#[derive(Debug)]
pub struct Errand {
    until: Duration,
    addresses: usize,
    /// That of the present attempt.
    address: usize,
    attempts: u32,
    /// What is told where no address has given anything.
    last: ReadError,
}

impl Errand {
    /// A READ that is wanted from now on, of a server with so many addresses.
    #[must_use]
    pub fn new(addresses: usize, now: Duration) -> Self {
        let last = ReadError::Silent;
        Self { until: now + ERRAND_PATIENCE, addresses, address: 0, attempts: ATTEMPTS, last }
    }

    /// When it is to be given up, whatever it waits for.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.until
    }

    /// The next attempt: the number of the address to ask at.
    ///
    /// # Errors
    /// Where there is none any more, or it is too late: why nothing was read.
    pub fn attempt(&mut self, now: Duration) -> Result<usize, ReadError> {
        if now >= self.until || self.address == self.addresses {
            return Err(self.last);
        }
        self.attempts -= 1;
        Ok(self.address)
    }

    /// The last attempt has failed.
    ///
    /// # Errors
    /// What a server that has answered says is final.
    pub fn failed(&mut self, error: ReadError) -> Result<(), ReadError> {
        match error {
            ReadError::Refused(_) => return Err(error),
            ReadError::Lost if self.attempts > 0 => return Ok(()),
            ReadError::Unsupported => self.last = error,
            ReadError::Lost | ReadError::Silent => {}
        }
        (self.address, self.attempts) = (self.address + 1, ATTEMPTS);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::types::Status;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_address_is_tried_in_turn_and_again_where_a_session_was_lost() {
        let mut errand = Errand::new(2, SECOND);
        let mut asked = Vec::new();
        for error in [ReadError::Lost, ReadError::Lost, ReadError::Silent] {
            asked.push(errand.attempt(2 * SECOND).unwrap());
            errand.failed(error).unwrap();
        }
        assert_eq!(asked, [0, 0, 1]);
        assert_eq!(errand.attempt(2 * SECOND), Err(ReadError::Silent));
    }

    #[test]
    fn what_a_server_says_is_final_unless_it_does_not_serve_the_version() {
        let refused = ReadError::Refused(Status::BAD_STATEID);
        let mut errand = Errand::new(2, SECOND);
        assert_eq!(errand.attempt(SECOND), Ok(0));
        errand.failed(ReadError::Unsupported).unwrap();
        assert_eq!(errand.attempt(SECOND), Ok(1));
        assert_eq!(errand.failed(refused), Err(refused));
        let mut errand = Errand::new(2, SECOND);
        for error in [ReadError::Unsupported, ReadError::Silent] {
            assert!(errand.attempt(SECOND).is_ok());
            errand.failed(error).unwrap();
        }
        assert_eq!(errand.attempt(SECOND), Err(ReadError::Unsupported));
    }

    #[test]
    fn a_minute_is_all_that_one_read_gets() {
        let mut errand = Errand::new(4, SECOND);
        assert_eq!(errand.deadline(), 61 * SECOND);
        assert_eq!(errand.attempt(SECOND), Ok(0));
        // Each drips for a while, and then hangs up.
        errand.failed(ReadError::Lost).unwrap();
        assert_eq!(errand.attempt(40 * SECOND), Ok(0));
        errand.failed(ReadError::Lost).unwrap();
        assert_eq!(errand.attempt(61 * SECOND - Duration::from_nanos(1)), Ok(1));
        errand.failed(ReadError::Lost).unwrap();
        assert_eq!(errand.attempt(61 * SECOND), Err(ReadError::Silent));
    }
}
