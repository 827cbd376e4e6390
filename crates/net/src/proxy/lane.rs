//! One direction of one connection: the times at which its bytes may be read, and are sent.

use std::collections::VecDeque;
use std::time::Duration;

use super::direction::{Direction, Piece};

/// Maximum number of portions of one lane; further bytes are not read until some have left.
const PIECES_MAX: usize = 64 << 10;

/// The lengths and due times of a connection's bytes in one direction. The bytes themselves are elsewhere, in the same order.
///
/// The methods take the time since the start of the proxy, which must not go backwards. A driver calls [`Lane::step`], reads and
/// reports [`Lane::received`] or [`Lane::ended`], writes and reports [`Lane::sent`], and calls [`Lane::step`] again at the latest
/// at [`Step::wake`].
#[derive(Debug)]
pub struct Lane {
    opens_at: Duration,
    pieces: VecDeque<Piece>,
    /// The sum of their lengths.
    bytes: usize,
    /// Bytes of the first portions that are due and not sent.
    due: usize,
    /// When the last byte arrives.
    last: Duration,
    /// When the end of the stream arrives, once the sender has closed it.
    end: Option<Duration>,
}

/// The next permitted action of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes that may be read.
    pub room: usize,
    /// Bytes that may be written.
    pub due: usize,
    /// Everything was written, and the receiver may learn of the end of the stream.
    pub is_over: bool,
    /// The time at which more is allowed without a read or write.
    pub wake: Option<Duration>,
}

impl Lane {
    /// Creates the lane of a connection whose first bytes may be sent at `opens_at`.
    #[must_use]
    pub fn new(opens_at: Duration) -> Self {
        let pieces = VecDeque::new();
        Self { opens_at, pieces, bytes: 0, due: 0, last: Duration::ZERO, end: None }
    }

    /// Returns the action that is allowed at `now`.
    pub fn step(&mut self, now: Duration, direction: &mut Direction) -> Step {
        while self.pieces.front().is_some_and(|piece| piece.arrives <= now) {
            self.due += self.pieces.pop_front().expect("there is one").length;
        }
        let next = self.pieces.front().map(|piece| piece.arrives);
        let (room, room_at) = self.room(now, direction);
        let is_over = self.bytes == 0 && self.end.is_some_and(|end| end <= now);
        let end = self.end.filter(|end| *end > now);
        let wake = [next, room_at, end].into_iter().flatten().min();
        Step { room, due: self.due, is_over, wake }
    }

    /// Returns the bytes that may be read, or the time of the next useful query if nothing is written.
    fn room(&self, now: Duration, direction: &mut Direction) -> (usize, Option<Duration>) {
        if self.end.is_some() || self.pieces.len() >= PIECES_MAX {
            return (0, None);
        }
        if now < self.opens_at {
            return (0, Some(self.opens_at));
        }
        let of_lane = direction.link().buffer_bytes.saturating_sub(self.bytes);
        if of_lane == 0 {
            return (0, None);
        }
        match direction.room(now) {
            0 => (0, Some(direction.half_free_at())),
            of_queue => (of_lane.min(of_queue), None),
        }
    }

    /// Notes `length` bytes received from the sender at `now`.
    pub fn received(&mut self, now: Duration, length: usize, direction: &mut Direction) {
        let pieces = &mut self.pieces;
        direction.send(now, length, self.last, |piece| match pieces.back_mut() {
            Some(back) if back.arrives == piece.arrives => back.length += piece.length,
            _ => pieces.push_back(piece),
        });
        self.bytes += length;
        self.last = self.pieces.back().map_or(self.last, |piece| piece.arrives);
    }

    /// Notes that the sender closed its stream at `now`.
    pub fn ended(&mut self, now: Duration, direction: &mut Direction) {
        self.end = Some(direction.end(now, self.last));
    }

    /// Notes that `length` bytes were written, at most [`Step::due`].
    pub fn sent(&mut self, length: usize) {
        self.due -= length;
        self.bytes -= length;
    }
}

#[cfg(test)]
mod tests;
