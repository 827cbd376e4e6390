//! The page states of one file, by ranges of bytes, with an index of each state.

use std::collections::BTreeSet;
use std::ops::Range;

use super::page_state::{Event, PageState};
use super::range_map::RangeMap;
use super::request::{RequestId, Verifier};
use crate::results::Stability;

const STATES: usize = PageState::ALL.len();

/// A state with its request and verifier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) state: PageState,
    /// The WRITE or COMMIT under way.
    pub(super) request: Option<RequestId>,
    /// The verifier of an acknowledged UNSTABLE WRITE.
    pub(super) verifier: Verifier,
    /// The stability that the program requested.
    pub(super) stability: Stability,
}

/// The states of all bytes that are not clean.
#[derive(Debug)]
pub(super) struct StateMap {
    map: RangeMap<Mark>,
    index: Index,
}

#[derive(Debug)]
struct Index {
    /// Starts of the ranges in each state.
    starts: [BTreeSet<u64>; STATES],
    bytes: [u64; STATES],
    /// Starts of dirty ranges that fill a request.
    full: BTreeSet<u64>,
    wsize: u64,
}

impl Index {
    fn note(&mut self, range: &Range<u64>, mark: &Mark, appears: bool) {
        let state = mark.state as usize;
        let len = range.end - range.start;
        let full = mark.state == PageState::Dirty && len >= self.wsize;
        if appears {
            self.bytes[state] += len;
            self.starts[state].insert(range.start);
            if full {
                self.full.insert(range.start);
            }
        } else {
            self.bytes[state] -= len;
            self.starts[state].remove(&range.start);
            if full {
                self.full.remove(&range.start);
            }
        }
    }
}

impl StateMap {
    pub(super) fn new(wsize: u64) -> Self {
        let index = Index { starts: Default::default(), bytes: [0; STATES], full: BTreeSet::new(), wsize };
        Self { map: RangeMap::default(), index }
    }

    /// Returns true if everything is clean.
    pub(super) fn is_clean(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the bytes in a state.
    pub(super) fn bytes(&self, state: PageState) -> u64 {
        self.index.bytes[state as usize]
    }

    /// Returns the end of the last byte that is not clean.
    pub(super) fn end(&self) -> Option<u64> {
        self.map.end()
    }

    /// Returns the parts of `range` that are not clean.
    pub(super) fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, Mark)> + use<'_> {
        self.map.parts(range)
    }

    /// Returns the range that begins at `start`.
    pub(super) fn starting_at(&self, start: u64) -> Option<(Range<u64>, Mark)> {
        self.map.starting_at(start)
    }

    /// Returns the ranges in `state`, first those after `cursor`, then those before it; only those that fill a request if `full`.
    pub(super) fn candidates(
        &self,
        state: PageState,
        full: bool,
        cursor: u64,
    ) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let starts = if full { &self.index.full } else { &self.index.starts[state as usize] };
        starts
            .range(cursor..)
            .chain(starts.range(..cursor))
            .filter_map(|start| self.map.starting_at(*start).map(|(range, _)| range))
    }

    /// Returns the smallest range with all bytes in `state`.
    pub(super) fn hull(&self, state: PageState) -> Option<Range<u64>> {
        let starts = &self.index.starts[state as usize];
        let (first, last) = (starts.first()?, starts.last()?);
        self.map.starting_at(*last).map(|(range, _)| *first..range.end)
    }

    /// Notes that the program writes `range`.
    pub(super) fn write(&mut self, range: &Range<u64>, stability: Stability) {
        debug_assert!(self.map.parts(range).all(|(_, mark)| mark.state.after(Event::Write).is_some()));
        let state = PageState::Dirty;
        self.set(range, Mark { state, request: None, verifier: Verifier::default(), stability });
    }

    /// Applies `event` to the bytes of `range` whose marks `concerns` accepts. `edit` completes the new mark. Returns the
    /// ranges that changed.
    pub(super) fn apply(
        &mut self,
        range: &Range<u64>,
        event: Event,
        concerns: impl Fn(&Mark) -> bool,
        edit: impl Fn(&mut Mark),
    ) -> Vec<Range<u64>> {
        let parts: Vec<_> = self.map.parts(range).filter(|(_, mark)| concerns(mark)).collect();
        let mut changed = Vec::with_capacity(parts.len());
        for (part, mut mark) in parts {
            let Some(state) = mark.state.after(event) else {
                debug_assert!(false, "{event:?} cannot happen to {:?}", mark.state);
                continue;
            };
            mark.state = state;
            edit(&mut mark);
            self.set(&part, mark);
            changed.push(part);
        }
        changed
    }

    fn set(&mut self, range: &Range<u64>, mark: Mark) {
        let (map, index) = (&mut self.map, &mut self.index);
        let mut note = |range: Range<u64>, mark: Mark, appears| index.note(&range, &mark, appears);
        if mark.state == PageState::Clean {
            map.remove_with(range, &mut note);
        } else {
            map.insert_with(range, mark, &mut note);
        }
    }
}
