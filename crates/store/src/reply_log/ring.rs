//! The ring of records in the mapped file.

use std::collections::VecDeque;
use std::fmt;

use memmap2::MmapMut;
use server::{RECORD_BYTES_MAX, prefetch};

use super::format::{CELL, CELLS, Key, Location, PREFIX, SUFFIX, cells, checksum, checksum_seed};

/// Bytes after the last record that are prefetched: the two records of an operation, and most replies.
const PREFETCHED: usize = 8 * CELL;

/// The ring: where records are, and where the next one goes.
pub(super) struct Ring {
    map: MmapMut,
    /// The seed of its checksums.
    seed: u32,
    /// The cell where the next record goes.
    head: usize,
    /// The number of the next record; the first is 1.
    next: u64,
    /// First cell and number of cells of each record, the one that is overwritten first in front.
    live: VecDeque<(u32, u32)>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("head", &self.head).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Ring {
    /// Continues a log with these records, oldest first.
    pub(super) fn new(map: MmapMut, key: &Key, records: &[Location]) -> Self {
        let head = records.last().map_or(0, |last| last.cell + cells(last.bytes));
        let next = records.last().map_or(1, |last| last.number + 1);
        // In the order in which the ring reaches them.
        let mut live: Vec<_> =
            records.iter().map(|record| (record.cell as u32, cells(record.bytes) as u32)).collect();
        live.sort_unstable();
        let behind = live.partition_point(|(cell, _)| (*cell as usize) < head);
        live.rotate_left(behind);
        Self { map, seed: checksum_seed(key), head, next, live: live.into() }
    }

    /// Appends a record. One that is longer than [`RECORD_BYTES_MAX`] is ignored.
    pub(super) fn append(&mut self, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let cells = cells(bytes);
        if bytes > RECORD_BYTES_MAX {
            return;
        }
        if self.head + cells > CELLS {
            self.remove(self.head, CELLS);
            self.zero(self.head, CELLS);
            self.head = 0;
        }
        let behind = self.head + cells;
        let end = self.remove(self.head, behind);
        self.zero(behind, end);
        let (number, start) = (self.next, CELL + self.head * CELL);
        let target = &mut self.map[start..start + cells * CELL];
        target[..8].copy_from_slice(&number.to_le_bytes());
        target[8..PREFIX].copy_from_slice(&(bytes as u32).to_le_bytes());
        let mut at = PREFIX;
        for part in parts {
            target[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let (whole, rest) = target.split_at_mut(at);
        let (sum, rest) = rest.split_at_mut(SUFFIX);
        sum.copy_from_slice(&checksum(self.seed, whole));
        rest.fill(0);
        self.live.push_back((self.head as u32, cells as u32));
        (self.head, self.next) = (self.head + cells, number + 1);
        // The next records' cells were last touched a whole ring ago: a store to them would wait for memory, and every locked
        // instruction after it too.
        let (next, most) = (CELL + self.head * CELL, self.map.len());
        prefetch(&self.map[next..most.min(next + PREFETCHED)]);
    }

    /// Forgets the records that begin in these cells. Returns where the last of them ends, or `to`.
    fn remove(&mut self, from: usize, to: usize) -> usize {
        let mut end = to;
        while let Some((cell, cells)) = self.live.front().copied() {
            let (start, behind) = (cell as usize, (cell + cells) as usize);
            if start < from || start >= to {
                break;
            }
            self.live.pop_front();
            end = end.max(behind);
        }
        end
    }

    fn zero(&mut self, from: usize, to: usize) {
        self.map[CELL + from * CELL..CELL + to * CELL].fill(0);
    }

    /// Clears every cell that is not part of a record.
    pub(super) fn clear_damage(&mut self) {
        let mut live: Vec<_> = self.live.iter().copied().collect();
        live.sort_unstable();
        let mut from = 0;
        for (cell, cells) in live.into_iter().chain([(CELLS as u32, 0)]) {
            self.zero(from, cell as usize);
            from = (cell + cells) as usize;
        }
    }
}
