//! Which operations must wait for operations of other streams.
//!
//! Within a stream the order is that of the trace. Between streams, an operation waits for those that ended before it began and that
//! it could have depended on: one that created, removed or renamed a name that it uses, one that used a name which it creates,
//! removes or renames, and a write of the file that it reads. Operations that overlapped in time do not wait for each other. An operation waits
//! only for earlier ones, so no two can wait for each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::format::{Kind, Record};

/// For each operation, the operations of other streams that must end before it begins.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    of: BTreeMap<usize, Vec<usize>>,
}

/// Finds the operations after which a stream closes a file that it has opened because the trace has no open of its own: another stream
/// opens, changes, removes or renames it next. A client would keep the size of an open file, and its data under another name.
pub(super) fn last_uses(records: &[Record]) -> BTreeSet<usize> {
    let mut openers = HashMap::new();
    for record in records.iter().filter(|record| record.op == Kind::Open) {
        openers.insert(record.file, (record.client, record.stream));
    }
    // The stream of the next operation on each path, if that uses such a file.
    let (mut next, mut last) = (HashMap::new(), BTreeSet::new());
    for (index, record) in records.iter().enumerate().rev() {
        let stream = (record.client, record.stream);
        let is_own = record.file.is_some() && openers.get(&record.file) == Some(&stream);
        match record.op {
            Kind::Read | Kind::Write | Kind::Sync | Kind::Lock | Kind::Unlock if !is_own => {
                let later = next.insert(record.path(), Some(stream));
                if later.is_some_and(|later| later != Some(stream)) {
                    last.insert(index);
                }
            }
            Kind::Open | Kind::Write | Kind::SetSize | Kind::Remove | Kind::Rename => {
                next.insert(record.path(), None);
                next.extend(record.to.as_deref().map(|to| (to, None)));
            }
            _ => {}
        }
    }
    last
}

/// What happened to a path so far.
#[derive(Default)]
struct PathState {
    /// The last operation that changed what the name refers to.
    changed: Option<usize>,
    /// The last operation of each stream that has used the name since then.
    used: BTreeMap<(u32, u32), usize>,
    /// The last write of each stream.
    written: BTreeMap<(u32, u32), usize>,
}

impl Dependencies {
    /// Finds the dependencies of operations in the order of their beginning.
    pub(super) fn of(records: &[Record]) -> Self {
        let mut finding = Finding { records, paths: BTreeMap::new(), of: BTreeMap::new() };
        for index in 0..records.len() {
            finding.add(index);
        }
        Self { of: finding.of }
    }

    /// Returns the operations that one waits for.
    pub(super) fn before(&self, index: usize) -> &[usize] {
        self.of.get(&index).map_or(&[], Vec::as_slice)
    }

    /// Returns all operations that others wait for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = usize> + '_ {
        self.of.values().flatten().copied()
    }
}

struct Finding<'r> {
    records: &'r [Record],
    paths: BTreeMap<&'r str, PathState>,
    of: BTreeMap<usize, Vec<usize>>,
}

impl<'r> Finding<'r> {
    fn add(&mut self, index: usize) {
        let records = self.records;
        let record = &records[index];
        let creates = record.op == Kind::Open && record.how().create;
        match record.op {
            Kind::Mkdir | Kind::Rmdir | Kind::Remove | Kind::Symlink => self.change(index, record.path()),
            Kind::Open if creates => self.change(index, record.path()),
            Kind::Rename => {
                self.change(index, record.path());
                self.change(index, record.to.as_deref().unwrap_or_default());
            }
            Kind::Link => {
                self.use_name(index, record.path());
                self.change(index, record.to.as_deref().unwrap_or_default());
            }
            Kind::Read | Kind::Write | Kind::SetSize => {
                self.use_name(index, record.path());
                self.data(index, record.path(), record.op != Kind::Read);
            }
            Kind::Stat | Kind::Open => {
                self.use_name(index, record.path());
                self.data(index, record.path(), record.how().truncate);
            }
            _ => self.use_name(index, record.path()),
        }
    }

    /// The operation creates, removes or replaces a name.
    fn change(&mut self, index: usize, path: &'r str) {
        self.use_parents(index, path);
        let stream = self.stream(index);
        let state = self.paths.entry(path).or_default();
        let before: Vec<usize> = state.changed.iter().chain(state.used.values()).copied().collect();
        if self.records[index].error.is_none() {
            *state = PathState { changed: Some(index), ..PathState::default() };
        } else {
            state.used.insert(stream, index);
        }
        self.wait(index, before);
    }

    /// The operation uses a name.
    fn use_name(&mut self, index: usize, path: &'r str) {
        self.use_parents(index, path);
        self.use_one(index, path);
    }

    fn use_parents(&mut self, index: usize, path: &'r str) {
        for (end, _) in path.match_indices('/') {
            self.use_one(index, &path[..end]);
        }
    }

    fn use_one(&mut self, index: usize, path: &'r str) {
        let stream = self.stream(index);
        let state = self.paths.entry(path).or_default();
        state.used.insert(stream, index);
        let before = state.changed.into_iter().collect();
        self.wait(index, before);
    }

    /// The operation reads or writes the data of a file.
    fn data(&mut self, index: usize, path: &'r str, writes: bool) {
        let stream = self.stream(index);
        let state = self.paths.entry(path).or_default();
        let before: Vec<usize> = state.written.values().copied().collect();
        if writes {
            state.written.insert(stream, index);
        }
        self.wait(index, before);
    }

    fn stream(&self, index: usize) -> (u32, u32) {
        (self.records[index].client, self.records[index].stream)
    }

    fn wait(&mut self, index: usize, before: Vec<usize>) {
        let record = &self.records[index];
        let needs_wait = |earlier: &usize| {
            let other = &self.records[*earlier];
            (other.client, other.stream) != (record.client, record.stream) && other.ended_us() <= record.at_us
        };
        let waits: Vec<usize> = before.into_iter().filter(needs_wait).collect();
        if !waits.is_empty() {
            let all = self.of.entry(index).or_default();
            all.extend(waits);
            all.sort_unstable();
            all.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::How;
    use crate::trace::Flags;

    fn record(stream: u32, at_us: u64, op: Kind, path: &str) -> Record {
        let how = (op == Kind::Open).then_some(Flags(How::CREATE));
        let path = Some(path.to_owned());
        Record { at_us, took_us: 5, stream, path, how, offset: Some(0), length: Some(1), ..Record::new(op) }
    }

    #[test]
    fn what_one_stream_creates_another_waits_for() {
        let records = [
            record(0, 0, Kind::Mkdir, "a"),
            record(0, 10, Kind::Open, "a/x"),
            record(1, 20, Kind::Stat, "a/x"),
            record(1, 30, Kind::Stat, "b"),
            record(0, 40, Kind::Remove, "a/x"),
            record(1, 50, Kind::Rmdir, "a"),
        ];
        let found = Dependencies::of(&records);
        assert_eq!(found.before(2), [0, 1], "its directory and itself");
        assert!(found.before(3).is_empty(), "nobody made it");
        assert_eq!(found.before(4), [2], "the name is in use");
        assert_eq!(found.before(5), [0, 4], "the directory must be empty");
    }

    #[test]
    fn reads_wait_for_writes_and_overlapping_operations_for_nothing() {
        let mut records = vec![
            record(0, 0, Kind::Write, "x"),
            record(1, 3, Kind::Read, "x"),
            record(1, 10, Kind::Read, "x"),
            record(0, 20, Kind::Read, "x"),
        ];
        let found = Dependencies::of(&records);
        assert!(found.before(1).is_empty(), "both ran at the same time");
        assert_eq!(found.before(2), [0]);
        assert!(found.before(3).is_empty(), "a stream waits for itself anyway");
        records[2].client = 1;
        assert_eq!(Dependencies::of(&records).before(2), [0]);
    }

    #[test]
    fn files_that_are_removed_next_are_closed_before() {
        let records = [
            record(0, 0, Kind::Read, "x"),
            record(0, 10, Kind::Read, "x"),
            record(1, 10, Kind::Read, "x"),
            record(1, 20, Kind::Read, "y"),
            record(0, 30, Kind::Remove, "x"),
            record(0, 40, Kind::Read, "x"),
        ];
        assert_eq!(last_uses(&records).into_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn operations_wait_only_for_earlier_ones() {
        let kinds = [Kind::Mkdir, Kind::Open, Kind::Read, Kind::Write, Kind::Remove, Kind::List, Kind::Rmdir];
        let mut rng = fastrand::Rng::with_seed(3);
        let mut random = |at| {
            let path = ["a", "a/b", "a/b/c", "d"][rng.usize(0..4)];
            record(rng.u32(0..4), at, kinds[rng.usize(0..kinds.len())], path)
        };
        let records: Vec<Record> = (0..2000).map(|number| random(number * 3)).collect();
        let found = Dependencies::of(&records);
        assert!(found.awaited().count() > 100);
        for index in 0..records.len() {
            assert!(found.before(index).iter().all(|before| *before < index));
        }
    }
}
