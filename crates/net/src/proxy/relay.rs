//! Carries the bytes of one direction of one connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use tokio::net::TcpStream;

use super::direction::Direction;
use super::lane::{Lane, Step};
use super::timer::Timer;

/// Maximum number of bytes of one read.
const READ_MAX: usize = 64 << 10;

/// One direction of one connection.
pub(super) struct Relay<'a> {
    pub(super) from: &'a TcpStream,
    pub(super) to: &'a TcpStream,
    pub(super) direction: &'a RefCell<Direction>,
    /// Start of the proxy.
    pub(super) start: Instant,
    /// When the first bytes may be sent, since the start.
    pub(super) opens_at: Duration,
}

impl Relay<'_> {
    /// Carries bytes until the sender has closed its stream, and closes the receiver's.
    ///
    /// # Errors
    /// Returns the error of a socket. An error of the sender is returned after the delay of the link.
    pub(super) async fn run(&self) -> io::Result<()> {
        let timer = Timer::new()?;
        let mut lane = Lane::new(self.opens_at);
        let mut bytes = VecDeque::new();
        let mut scratch = vec![0; READ_MAX];
        let mut failure = None;
        loop {
            // Sockets that are always ready would starve the other tasks of the thread.
            tokio::task::consume_budget().await;
            let now = self.start.elapsed();
            let step = lane.step(now, &mut self.direction.borrow_mut());
            if step.is_over {
                return match failure {
                    Some(error) => Err(error),
                    None => Ok(shutdown(self.to, Shutdown::Write)?),
                };
            }
            let was_written = self.write(step.due, &mut bytes, &mut lane)?;
            let was_read = match self.read(step.room, &mut scratch) {
                Ok(None) => false,
                Ok(Some(0)) => {
                    lane.ended(now, &mut self.direction.borrow_mut());
                    true
                }
                Ok(Some(length)) => {
                    bytes.extend(&scratch[..length]);
                    lane.received(now, length, &mut self.direction.borrow_mut());
                    true
                }
                Err(error) => {
                    lane.ended(now, &mut self.direction.borrow_mut());
                    failure = Some(error);
                    true
                }
            };
            if !was_read && !was_written {
                self.wait(step, now, &timer).await?;
            }
        }
    }

    /// Returns the bytes read, `None` if there are none now.
    fn read(&self, room: usize, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        if room == 0 {
            return Ok(None);
        }
        would_block_is_none(self.from.try_read(&mut scratch[..room.min(READ_MAX)]))
    }

    /// Writes the first `due` bytes or some of them; returns whether there were any.
    fn write(&self, due: usize, bytes: &mut VecDeque<u8>, lane: &mut Lane) -> io::Result<bool> {
        if due == 0 {
            return Ok(false);
        }
        let (first, second) = bytes.as_slices();
        let first = &first[..first.len().min(due)];
        let second = &second[..second.len().min(due - first.len())];
        let slices = [IoSlice::new(first), IoSlice::new(second)];
        let Some(written) = would_block_is_none(self.to.try_write_vectored(&slices))? else {
            return Ok(false);
        };
        bytes.drain(..written);
        lane.sent(written);
        Ok(written > 0)
    }

    /// Waits until a socket or the lane may allow more.
    async fn wait(&self, step: Step, now: Duration, timer: &Timer) -> io::Result<()> {
        tokio::select! {
            ready = self.from.readable(), if step.room > 0 => ready,
            ready = self.to.writable(), if step.due > 0 => ready,
            waited = timer.wait(step.wake.unwrap_or(Duration::MAX).saturating_sub(now)), if step.wake.is_some() => waited,
            // Only a lane that waits for no event reaches this; no lane does.
            else => Err(io::Error::other("a lane without events")),
        }
    }
}

fn would_block_is_none(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
