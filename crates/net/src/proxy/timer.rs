//! A timer with the precision of the kernel's clock. Tokio's timer has a precision
//! of a millisecond, which is too coarse for half a round trip.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// Shortest wait: zero would disarm the timer.
const SHORTEST: Duration = Duration::from_nanos(1);
/// Longest wait; the caller waits again.
const LONGEST: Duration = Duration::from_secs(3600);

/// A timer for one waiting task.
#[derive(Debug)]
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// Creates a timer. Needs a tokio runtime.
    ///
    /// # Errors
    /// As timerfd_create(2).
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an OwnedFd is open, names the same timer until it is dropped, and the AsyncFd owns it.
        let timer = unsafe { AsyncFd::register(timer) };
        Ok(Self(timer.map_err(io::Error::from)?))
    }

    /// Waits for `time`, or for an hour if that is less.
    ///
    /// # Errors
    /// As timerfd_settime(2).
    pub(super) async fn wait(&self, time: Duration) -> io::Result<()> {
        let time = time.clamp(SHORTEST, LONGEST);
        let value = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Setting the time also forgets an earlier expiry.
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut expiries = [0; 8];
            match rustix::io::read(&self.0, &mut expiries) {
                Ok(_) => return Ok(()),
                // The timer expired for an earlier wait.
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_is_used_again_after_an_abandoned_wait() {
        let timer = Timer::new().unwrap();
        let short = Duration::from_micros(200);
        timer.wait(short).await.unwrap();
        let abandoned = tokio::time::timeout(short * 10, timer.wait(LONGEST)).await;
        assert!(abandoned.is_err(), "an hour has not passed");
        timer.wait(Duration::ZERO).await.unwrap();
        timer.wait(short).await.unwrap();
    }
}
