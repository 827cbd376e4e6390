//! Byte ranges of a small file: eight cells of ten bytes; the last cell has no end.

use crate::rng::Rng;

/// Cells of a file.
const COUNT: u32 = 8;
const CELL_BYTES: u64 = 10;

/// A set of cells. LOCK uses sets without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cells(u8);

impl Cells {
    pub(super) const ALL: Self = Self(u8::MAX);

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns random cells without gaps; sometimes all.
    pub(super) fn some(rng: &mut Rng) -> Self {
        if rng.chance(15) {
            return Self::ALL;
        }
        let first = rng.below(u64::from(COUNT)) as u32;
        let count = 1 + rng.below(u64::from(COUNT - first).min(4)) as u32;
        Self((u8::MAX >> (COUNT - count)) << first)
    }

    /// Returns `offset` and `length` for LOCK.
    pub(super) fn range(self) -> (u64, u64) {
        let (first, behind) = (self.0.trailing_zeros(), COUNT - self.0.leading_zeros());
        let length = if behind == COUNT { u64::MAX } else { u64::from(behind - first) * CELL_BYTES };
        (u64::from(first) * CELL_BYTES, length)
    }

    /// Returns the gapless sets of which it consists.
    fn runs(self) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for cell in (0..COUNT).map(|number| 1u8 << number).filter(|cell| self.0 & cell != 0) {
            match runs.last_mut() {
                Some(run) if run.0 & cell >> 1 != 0 => run.0 |= cell,
                _ => runs.push(Self(cell)),
            }
        }
        runs
    }
}

/// The locked cells of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Locked {
    read: Cells,
    write: Cells,
}

impl Locked {
    pub(super) fn is_empty(self) -> bool {
        self.all().is_empty()
    }

    fn all(self) -> Cells {
        Cells(self.read.0 | self.write.0)
    }

    pub(super) fn lock(&mut self, cells: Cells, write: bool) {
        self.unlock(cells);
        let of_type = if write { &mut self.write } else { &mut self.read };
        of_type.0 |= cells.0;
    }

    pub(super) fn unlock(&mut self, cells: Cells) {
        self.read.0 &= !cells.0;
        self.write.0 &= !cells.0;
    }

    /// Turns exclusive locks on these cells into shared ones.
    pub(super) fn share(&mut self, cells: Cells) {
        let shared = self.write.0 & cells.0;
        self.write.0 &= !shared;
        self.read.0 |= shared;
    }

    /// Returns whether it conflicts with such a lock of another owner.
    pub(super) fn excludes(self, cells: Cells, write: bool) -> bool {
        self.write.overlaps(cells) || write && self.read.overlaps(cells)
    }

    /// Removes locks that conflict with such a lock.
    pub(super) fn yield_to(&mut self, cells: Cells, write: bool) {
        self.write.0 &= !cells.0;
        if write {
            self.read.0 &= !cells.0;
        }
    }

    /// Returns whether these cells are locked in this mode, or exclusively.
    pub(super) fn covers(self, cells: Cells, write: bool) -> bool {
        let by = if write { self.write } else { self.all() };
        cells.0 & !by.0 == 0
    }

    /// Adds the locks of another set.
    pub(super) fn add(&mut self, other: Self) {
        self.lock(Cells(other.read.0 & !self.write.0), false);
        self.lock(other.write, true);
    }

    /// Returns its locks: their cells, and whether they are exclusive.
    pub(super) fn parts(self) -> Vec<(Cells, bool)> {
        let of = |cells: Cells, write| cells.runs().into_iter().map(move |run| (run, write));
        of(self.read, false).chain(of(self.write, true)).collect()
    }
}
