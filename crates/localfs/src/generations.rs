//! Handle and attributes of a name by one system call: what statx(2) leaves out of a handle is remembered.
//!
//! A kernel handle of the forms known here is an inode number and the inode's generation, which tells files apart that
//! had the number one after the other. statx(2) tells all but the generation, and name_to_handle_at(2) for it alone
//! costs as much once more.
//!
//! # What a remembered generation is good for
//! Inode number and change time. Another file under the same number is made later, and has a later change time, if the
//! clock went on in between; so what was looked at in the tick of its change is not remembered. That takes a clock read
//! *before* the looks, so that nothing that is made between them counts as old. A file that is changed is asked for anew, which catches those who set a generation (`FS_IOC_SETVERSION`) too. Time of
//! creation would outlive changes, but not every file system has it, and some can be told to set it.
//!
//! # Of a new file
//! An open file tells its generation itself where the file system has `FS_IOC_GETVERSION`, in a third of the time that name_to_handle_at(2)
//! takes. Not every file system means by it what its handles pin_object; so that is found out of the first files that are made
//! ([`GenerationTrial`]).

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Inodes that are remembered; 24 bytes each, when there is something to remember.
const INODES: usize = 32 * 1024;
/// Parts of the table, so that cores seldom meet.
const PARTS: usize = 16;
const PART_INODES: usize = INODES / PARTS;

/// Files of which both calls must have told one generation, each another.
const PROOFS: u16 = 4;
/// Files after which it must be known.
const LOOKS_MAX: u16 = 256;

/// Generations of inodes.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    /// Of those that were looked at lately; each has one place, given by its number.
    known: [Mutex<Vec<Known>>; PARTS],
    /// Whether open files tell their own.
    pub(crate) trial: GenerationTrial,
}

/// Whether what open files tell is what their handles pin_object: the last such generation << 32 | files looked at << 16 | how many of them prove
/// it; or [`REFUTED`].
#[derive(Debug, Default)]
pub(crate) struct GenerationTrial(AtomicU64);

const REFUTED: u64 = u64::MAX;

/// A [`GenerationTrial`]'s number, taken apart.
fn unpack(state: u64) -> (u32, u16, u16) {
    ((state >> 32) as u32, (state >> 16) as u16, state as u16)
}

impl GenerationTrial {
    /// What can be relied on; `None` until that is known.
    pub(crate) fn result(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            REFUTED => Some(false),
            state if unpack(state).2 >= PROOFS => Some(true),
            _ => None,
        }
    }

    /// What an open file told was its handle's, or (`None`) was not.
    pub(crate) fn record(&self, right: Option<u32>) {
        let state = self.0.load(Ordering::Relaxed);
        let (last, looks, proofs) = unpack(state);
        let state = match right {
            Some(generation) if state != REFUTED && looks < LOOKS_MAX => {
                // One that all have proves nothing.
                let proves = generation != 0 && generation != last;
                u64::from(generation) << 32
                    | u64::from(looks + 1) << 16
                    | u64::from(proofs + u16::from(proves))
            }
            _ => REFUTED,
        };
        self.0.store(state, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    inode: u64,
    /// The change time in nanoseconds; 0 where nothing is known.
    changed_ns: u64,
    generation: u32,
}

impl Generations {
    fn part(&self, inode: u64) -> (&Mutex<Vec<Known>>, usize) {
        (&self.known[inode as usize % PARTS], inode as usize / PARTS % PART_INODES)
    }

    /// The generation of the inode of this number with this change time, in nanoseconds.
    pub(crate) fn get(&self, inode: u64, changed_ns: u64) -> Option<u32> {
        let (part, place) = self.part(inode);
        let known = *part.lock().get(place)?;
        let is_it = known.inode == inode && known.changed_ns == changed_ns && changed_ns != 0;
        is_it.then_some(known.generation)
    }

    /// Remembers the generation of an inode whose change time [is past](is_past) before it was looked at.
    pub(crate) fn remember(&self, inode: u64, changed_ns: u64, generation: u32) {
        let (part, place) = self.part(inode);
        let mut part = part.lock();
        if part.is_empty() {
            part.resize(PART_INODES, Known::default());
        }
        part[place] = Known { inode, changed_ns, generation };
    }
}

/// Whether whatever changes after the coarse clock was read, in nanoseconds, gets a later change time than this one, on a
/// file system that keeps times in steps of `step_ns`.
pub(crate) fn is_past(step_ns: u32, changed_ns: u64, clock_ns: u64) -> bool {
    changed_ns < clock_ns - clock_ns % u64::from(step_ns.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_known_by_number_and_change_time_alone() {
        let generations = Generations::default();
        assert_eq!(generations.get(70, 0), None, "nothing is known yet");
        generations.remember(70, 5, 1);
        assert_eq!(generations.get(70, 5), Some(1));
        assert_eq!(generations.get(70, 6), None, "it was changed, or is another file");
        assert_eq!(generations.get(71, 5), None);
        generations.remember(70 + INODES as u64, 5, 2);
        assert_eq!(generations.get(70, 5), None, "another one has its place");
        assert_eq!(generations.get(70 + INODES as u64, 5), Some(2));
    }

    #[test]
    fn neighbours_do_not_push_each_other_out() {
        let generations = Generations::default();
        let inodes = 1 << 40..(1 << 40) + INODES as u64;
        inodes.clone().for_each(|inode| generations.remember(inode, 5, inode as u32));
        assert!(inodes.into_iter().all(|inode| generations.get(inode, 5) == Some(inode as u32)));
    }

    #[test]
    fn what_open_files_tell_is_relied_on_once_it_was_right_of_several() {
        let trial = GenerationTrial::default();
        for generation in [7, 7, 0, 8, 9] {
            assert_eq!(trial.result(), None);
            trial.record(Some(generation));
        }
        assert_eq!(trial.result(), None, "three of them differ");
        trial.record(Some(10));
        assert_eq!(trial.result(), Some(true));
        let trial = GenerationTrial::default();
        trial.record(Some(7));
        trial.record(None);
        (1..10).for_each(|generation| trial.record(Some(generation)));
        assert_eq!(trial.result(), Some(false), "once wrong is enough");
        let trial = GenerationTrial::default();
        (0..LOOKS_MAX).for_each(|_| trial.record(Some(7)));
        assert_eq!(trial.result(), None);
        trial.record(Some(7));
        assert_eq!(trial.result(), Some(false), "nobody looks for ever");
    }

    #[test]
    fn a_change_time_is_past_when_its_step_is_over() {
        assert!(is_past(1, 5, 6) && !is_past(1, 5, 5));
        const SECOND: u64 = 1_000_000_000;
        assert!(!is_past(SECOND as u32, 5 * SECOND, 6 * SECOND - 1));
        assert!(is_past(SECOND as u32, 5 * SECOND, 6 * SECOND));
    }
}
