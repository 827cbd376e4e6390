//! What this thread saw of an object after it changed it: what the next change of a batch begins from. And of a directory in which
//! it looked a name up, for the next name.
//!
//! A client that writes sends many WRITEs at once, and the server answers all that one read of the connection brought before
//! it waits for anything. Attributes after one of them are those before the next: there is no need to look again.
//!
//! That holds as long as nobody else changes the object in between. Other requests through this server move its
//! [`version`](crate::sync_state::SyncState::version). Local processes do not; so what was seen is good for requests of one batch
//! alone, which have their time of day in common ([`vfs::Context::now`]), and within one tick of the clock at most, should
//! one of them have had to wait.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::fs::AtFlags;
use vfs::{Attributes, Change, Context, Error, FileKind, Result, Timestamp};

use crate::attributes::Snapshot;
use crate::errno::translate;
use crate::nonblocking;
use crate::object::{Object, OpenFile};
use crate::volume::Volume;

/// One look.
#[derive(Debug)]
struct Known {
    /// Not the object itself, whose descriptor would stay open; what is weakly held leaves its address to nobody else.
    object: Weak<Object>,
    version: u64,
    /// RENAMEs of the volume until then: what one moves is changed by it, and not known there by its handle.
    moves: u64,
    /// The batch's time of day.
    batch: Timestamp,
    /// The clock of ticks.
    tick_ns: u64,
    snapshot: Snapshot,
}

thread_local! {
    /// The last directory, and the last of anything else: a batch may look names up and write.
    static LAST: RefCell<[Option<Known>; 2]> = const { RefCell::new([None, None]) };
}

/// Where an object like this is remembered.
fn slot(object: &Object) -> usize {
    usize::from(object.kind == FileKind::Directory)
}

impl Volume {
    /// What happened to `object` between `before` and now, under its lock.
    pub(crate) fn change_since(&self, object: &Object, before: &Attributes) -> Result<Change> {
        let after = self.stat_after_change(object, before)?;
        Ok(Change { before: before.before(), after: after.attributes, atomic: true })
    }

    /// Attributes just after a change of what was `before`.
    fn stat_after_change(&self, object: &Object, before: &Attributes) -> Result<Snapshot> {
        let after = self.stat_after(object)?;
        if object.kind != FileKind::Directory {
            return Ok(after);
        }
        let after =
            if self.shows(before, &after.attributes) { after } else { self.advance_ctime(object, after)? };
        if self.changes.is_shared() {
            // Attributes that another thread took between the change and here are not those of this moment.
            object.sync_state.note_change();
        }
        Ok(after)
    }

    /// Whether a directory's change shows in the attributes after it. NFSv3 clients see the time of change alone, and where
    /// directories share ctimes with files the change attribute also moves at the end of a tick.
    fn shows(&self, before: &Attributes, after: &Attributes) -> bool {
        let has_moved = !self.changes.is_shared() || after.changed > before.changed;
        has_moved && after.change > before.change
    }

    /// Moves on the change time of a directory that looked so. The time was another object's, and this change cannot be told apart
    /// from those before it (see `change`).
    fn advance_ctime(&self, directory: &Object, after: Snapshot) -> Result<Snapshot> {
        self.act_as_server();
        // chown(2) to nobody new sets it to now, and does no more to a directory; files always have their own. A descriptor that can
        // read is kept from here on: with one of `O_PATH` the call takes half as long again, for it has to look a path up.
        let moved_on = match self.readable(directory) {
            Ok(file) => rustix::fs::fchown(&*file, None, None),
            Err(_) => directory.with_fd(|fd| rustix::fs::chownat(fd, c"", None, None, AtFlags::EMPTY_PATH)),
        };
        match moved_on {
            Ok(()) => self.stat_after(directory),
            Err(_) => Ok(after),
        }
    }

    /// Nothing happened.
    pub(crate) fn no_change(snapshot: &Snapshot) -> Change {
        Change { before: snapshot.attributes.before(), after: snapshot.attributes, atomic: true }
    }

    /// Attributes before a WRITE, and whether the file is immutable. To be called under its lock.
    #[inline]
    pub(crate) fn stat_before_write(&self, context: &Context, file: &Arc<Object>) -> Result<Snapshot> {
        match self.known(context, file) {
            Some(seen) => Ok(seen),
            None => self.statx_snapshot(file, false),
        }
    }

    /// What a WRITE by this descriptor changed, numbered already. To be called under the file's lock.
    #[inline]
    pub(crate) fn change_after_write(
        &self,
        context: &Context,
        (file, open): (&Arc<Object>, &OpenFile),
        before: &Snapshot,
    ) -> Result<Change> {
        if !self.can_use_fstat() {
            return self.change_since(file, &before.attributes);
        }
        let moment = self.changes.coarse_time();
        let status = rustix::fs::fstat(open).map_err(translate)?;
        let mut after = self.snapshot_of_fstat(file, &status, moment, true)?;
        after.immutable = before.immutable;
        self.remember(context, file, &after);
        Ok(Change { before: before.attributes.before(), after: after.attributes, atomic: true })
    }

    /// Attributes of a directory before one of its entries changes. To be called under its lock.
    pub(crate) fn stat_before_entry(&self, context: &Context, directory: &Arc<Object>) -> Result<Attributes> {
        let seen = self.known(context, directory).map_or_else(|| self.stat(directory), Ok);
        Ok(seen?.attributes)
    }

    /// What the change of an entry, numbered already, did to its directory. To be called under the directory's lock.
    pub(crate) fn change_after_entry(
        &self,
        context: &Context,
        directory: &Arc<Object>,
        before: &Attributes,
    ) -> Result<Change> {
        match self.stat_after_change(directory, before) {
            Ok(after) => {
                if self.can_use_fstat() {
                    self.remember(context, directory, &after);
                }
                Ok(Change { before: before.before(), after: after.attributes, atomic: true })
            }
            Err(error) => change_of_removed(before, error),
        }
    }

    /// The same, where the next change of an entry in it is not as likely.
    pub(crate) fn change_after_entries(&self, directory: &Object, before: &Attributes) -> Result<Change> {
        self.change_since(directory, before).or_else(|error| change_of_removed(before, error))
    }

    /// Attributes of a directory, before the look at a name in it: who takes an entry that is newer for one of that directory asks once
    /// more at worst.
    pub(crate) fn stat_for_lookup(&self, context: &Context, directory: &Arc<Object>) -> Result<Attributes> {
        if let Some(seen) = self.known(context, directory) {
            return Ok(seen.attributes);
        }
        // Before the look, which takes no lock: whoever changes the directory meanwhile has it looked at again.
        let version_of = self.version_of(directory);
        let seen = self.stat(directory)?;
        if self.can_use_fstat() {
            self.remember_as_of(version_of, context, directory, &seen);
        }
        Ok(seen.attributes)
    }

    /// What is another one after each change through this server.
    fn version_of(&self, object: &Object) -> (u64, u64) {
        (object.sync_state.version(), self.moves.load(Ordering::Acquire))
    }

    /// What `object` looks like, if this thread saw it after its last change, in the batch of this request. To be asked under
    /// the object's lock by who changes it.
    #[inline]
    fn known(&self, context: &Context, object: &Arc<Object>) -> Option<Snapshot> {
        LAST.with_borrow(|seen| {
            let seen = seen[slot(object)].as_ref()?;
            let stands = seen.is_of(object)
                && seen.batch == context.now
                && (seen.version, seen.moves) == self.version_of(object)
                && seen.tick_ns == nonblocking::now_ns();
            if stands && is_in_batch(context) { Some(seen.snapshot) } else { None }
        })
    }

    /// Remembers what `object` looks like after a change, numbered already. To be called under the object's lock.
    fn remember(&self, context: &Context, object: &Arc<Object>, snapshot: &Snapshot) {
        self.remember_as_of(self.version_of(object), context, object, snapshot);
    }

    /// As [`Self::remember`], of a look that was taken when the object was [`version_of`](Self::version_of) so.
    fn remember_as_of(
        &self,
        (version, moves): (u64, u64),
        context: &Context,
        object: &Arc<Object>,
        snapshot: &Snapshot,
    ) {
        if !is_in_batch(context) {
            return;
        }
        let tick_ns = nonblocking::now_ns();
        LAST.with_borrow_mut(|seen| match &mut seen[slot(object)] {
            Some(seen) if seen.is_of(object) => {
                (seen.version, seen.moves) = (version, moves);
                (seen.batch, seen.tick_ns) = (context.now, tick_ns);
                seen.snapshot = *snapshot;
            }
            place => {
                let object = Arc::downgrade(object);
                *place =
                    Some(Known { object, version, moves, batch: context.now, tick_ns, snapshot: *snapshot });
            }
        });
    }
}

/// Whether a request belongs to a batch that can be told from others.
fn is_in_batch(context: &Context) -> bool {
    context.now != Timestamp::default()
}

impl Known {
    fn is_of(&self, object: &Arc<Object>) -> bool {
        std::ptr::eq(self.object.as_ptr(), Arc::as_ptr(object))
    }
}

/// What the change of an entry did to a directory of which a look behind it says `error`. Once it is empty it may lose its own name before
/// that, as its lock is its entries' alone. The entry was changed all the same, and who asked for that must not be told of a failure:
/// the look behind is not atomic with the change then (RFC 8881 §18.25.3).
fn change_of_removed(before: &Attributes, error: Error) -> Result<Change> {
    match error {
        Error::Stale => Ok(Change { before: before.before(), after: *before, atomic: false }),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use vfs::{
        Authority, Before, Create, CreateMode, Credentials, Handle, Op, Removal, SetAttributes, Stability,
    };

    use super::*;
    use crate::change::ChangeClock;
    use crate::change::{nanoseconds, timestamp};
    use crate::config::{Config, Durability, OpenError};
    use crate::volume::Handles;

    struct Case {
        volume: Arc<Volume>,
        file: Handle,
        directory: tempfile::TempDir,
    }

    /// A request of the batch with this number.
    fn batch(seconds: i64) -> Context {
        let uid = rustix::process::geteuid().as_raw();
        let credentials = Arc::new(Credentials { uid, gid: uid, groups: Arc::from([]) });
        Context::new(credentials, Timestamp { seconds, nanoseconds: 0 })
    }

    /// What is answered, in place or by the pool.
    fn answer<T>(operation: Op<'_, T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(operation).expect("done")
    }

    /// Change times that tell all changes apart, and such that do not.
    const CLOCKS: [fn() -> ChangeClock; 2] =
        [|| ChangeClock::Multigrain { shared: false }, || ChangeClock::ticks(1)];

    impl Case {
        fn new() -> Self {
            Self::opened(crate::probe::open)
        }

        /// Whatever the change times here are like, they are taken for such.
        fn with(clock: ChangeClock) -> Self {
            let is_coarse = clock.is_coarse();
            let case = Self::opened(|config| crate::probe::open_with(config, |_, _| (clock, 1)));
            let has_handles = matches!(case.volume.handles, Handles::Kernel { .. });
            assert_eq!(case.volume.can_use_fstat(), has_handles && !is_coarse, "else every look is needed");
            case
        }

        fn opened(open: impl FnOnce(&Config) -> std::result::Result<Arc<Volume>, OpenError>) -> Self {
            let directory = tempfile::tempdir().expect("temporary directory");
            let top = directory.path().join("export");
            std::fs::create_dir(&top).expect("directory");
            let state_directory = Some(directory.path().join("state"));
            let config = Config { state_directory, durability: Durability::Async, ..Config::new(top) };
            let volume = open(&config).expect("volume");
            let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
            let root = volume.root.handle;
            let created = answer(volume.create(&batch(1), &root, b"f", &what, &set));
            Self { volume, file: created.handle, directory }
        }

        fn write(&self, context: &Context, offset: u64) -> Change {
            let data = Bytes::from_static(b"data");
            let written =
                self.volume.write(context, &self.file, offset, &data, Stability::Unstable, Authority::Caller);
            answer(written).change
        }

        fn object(&self) -> Arc<Object> {
            self.volume.object(&self.file).expect("object")
        }

        /// Writes until it is remembered: a tick may have ended in between. Once, where nothing is.
        fn write_and_remember(&self, context: &Context) -> Change {
            if !self.volume.can_use_fstat() {
                let change = self.write(context, 0);
                assert!(self.volume.known(context, &self.object()).is_none());
                return change;
            }
            let mut tries = (0..1000).map(|offset| self.write(context, offset));
            let remembered = tries.find(|change| {
                self.volume.known(context, &self.object()).is_some_and(|seen| seen.attributes == change.after)
            });
            remembered.expect("one of many within a tick")
        }
    }

    #[test]
    fn a_write_is_remembered_for_its_batch_alone() {
        for clock in CLOCKS {
            let case = Case::with(clock());
            let first = case.write_and_remember(&batch(2));
            assert!(case.volume.known(&batch(3), &case.object()).is_none(), "another batch");
            let second = case.write(&batch(2), 0);
            // With coarse times a change attribute may move on although nothing is changed.
            let seen = |before: Before| Before { change: 0, ..before };
            assert_eq!(seen(second.before), seen(first.after.before()));
            assert!(second.before.change == first.after.change || !case.volume.can_use_fstat());
            case.write(&batch(0), 0);
            assert!(case.volume.known(&batch(0), &case.object()).is_none(), "of no batch");
        }
    }

    #[test]
    fn every_write_of_a_batch_moves_the_change_attribute_on() {
        let case = Case::new();
        let first = case.write_and_remember(&batch(2));
        assert_ne!(case.write(&batch(2), 0).after.change, first.after.change);
    }

    #[test]
    fn a_local_change_shows_to_the_next_batch() {
        let case = Case::new();
        let last = case.write(&batch(2), 0);
        std::fs::write(case.directory.path().join("export/f"), b"somebody else's").expect("write");
        let next = case.write(&batch(3), 0);
        assert_eq!(next.before.size, 15);
        assert_ne!(next.before, last.after.before());
    }

    #[test]
    fn whatever_this_server_changes_is_looked_at_again() {
        CLOCKS.into_iter().for_each(|clock| changes_are_looked_at_again(&Case::with(clock())));
    }

    fn changes_are_looked_at_again(case: &Case) {
        let (volume, root, same) = (&case.volume, case.volume.root.handle, batch(2));
        let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
        let changes: [(&str, &dyn Fn()); 5] = [
            ("SETATTR", &|| {
                volume
                    .setattr(&same, &case.file, &set, None, Authority::Caller)
                    .now()
                    .map(drop)
                    .expect("mode");
            }),
            ("LINK", &|| _ = answer(volume.link(&same, &case.file, &root, b"g"))),
            ("REMOVE", &|| _ = answer(volume.remove(&same, &root, b"g", Removal::Any))),
            ("RENAME", &|| {
                for (from, to) in [(&b"f"[..], &b"h"[..]), (b"h", b"f")] {
                    _ = answer(volume.rename(&same, (&root, from), (&root, to)));
                }
            }),
            ("another thread's WRITE", &|| {
                std::thread::scope(|scope| scope.spawn(|| case.write(&same, 4096)).join().map(drop))
                    .expect("thread");
            }),
        ];
        for (what, change) in changes {
            case.write_and_remember(&same);
            change();
            assert!(volume.known(&same, &case.object()).is_none(), "{what}");
            let seen = volume.stat(&case.object()).expect("attributes").attributes;
            assert_eq!(case.write(&same, 0).before, seen.before(), "{what}");
        }
    }

    #[test]
    fn a_change_that_fails_is_looked_at_too() {
        let case = Case::new();
        case.write(&batch(2), 0);
        let version = case.object().sync_state.version();
        drop(case.object().sync_state.begin_change());
        assert_ne!(case.object().sync_state.version(), version, "it may have been done in part");
    }

    #[test]
    fn names_of_a_batch_are_looked_up_in_a_directory_seen_once() {
        let case = Case::with(ChangeClock::Multigrain { shared: false });
        let (volume, root) = (&case.volume, case.volume.root.handle);
        let look_up = |context: &Context| answer(volume.lookup(context, &root, b"f")).directory;
        let top = case.directory.path().join("export");
        // A tick may end between two looks.
        let is_seen_once = (0..1000).any(|number| {
            let first = look_up(&batch(2));
            std::fs::write(top.join(number.to_string()), b"").expect("a file");
            look_up(&batch(2)) == first
        });
        assert_eq!(
            is_seen_once,
            volume.can_use_fstat(),
            "where the faster call does not tell all, each is looked at"
        );
        let next = look_up(&batch(2));
        let directory = volume.object(&root).expect("the top");
        assert!(volume.known(&batch(3), &directory).is_none(), "another batch");
        let what = Create::File(CreateMode::Guarded);
        let created = answer(volume.create(&batch(3), &root, b"g", &what, &SetAttributes::default()));
        assert_eq!(
            look_up(&batch(3)).change,
            created.directory.after.change,
            "what this server changes shows"
        );
        assert_ne!(created.directory.after.change, next.change);
    }

    #[test]
    fn changes_of_entries_join_up_within_a_batch() {
        let case = Case::new();
        let (volume, root, same) = (&case.volume, case.volume.root.handle, batch(2));
        let mut last: Option<Change> = None;
        for _ in 0..100 {
            let what = Create::File(CreateMode::Guarded);
            let made = answer(volume.create(&same, &root, b"g", &what, &SetAttributes::default())).directory;
            let gone = answer(volume.remove(&same, &root, b"g", Removal::File));
            if let Some(last) = last {
                assert_eq!((made.before.changed, made.before.size), (last.after.changed, last.after.size));
            }
            assert_eq!(gone.before.changed, made.after.changed);
            assert!(made.after.change > made.before.change && gone.after.change > gone.before.change);
            last = Some(gone);
        }
        let seen = volume.stat(&volume.root).expect("attributes").attributes;
        assert_eq!(last.map(|last| last.after.changed), Some(seen.changed));
    }

    /// Of directories that may be given the change time of a file.
    fn shared() -> ChangeClock {
        ChangeClock::Multigrain { shared: true }
    }

    #[test]
    fn a_change_that_would_be_told_like_what_was_before_is_moved_on() {
        let case = Case::with(shared());
        let before = case.volume.stat(&case.volume.root).expect("seen").attributes;
        let later = |changed_ns: u64, change| {
            let changed = timestamp(nanoseconds(before.changed) + changed_ns);
            Attributes { changed, change: before.change + change, ..before }
        };
        assert!(case.volume.shows(&before, &later(1, 1)));
        assert!(!case.volume.shows(&before, &later(0, 0)), "the kernel gave the same ctime again");
        assert!(!case.volume.shows(&before, &later(0, 50)), "only the end of the tick shows");
        let settled = Attributes { change: before.change + 1, ..before };
        assert!(
            Case::with(ChangeClock::ticks(1)).volume.shows(&before, &settled),
            "ticks are told by number"
        );
    }

    #[test]
    fn nobody_goes_on_from_a_look_between_a_change_and_its_number() {
        let (case, context) = (Case::with(shared()), batch(7));
        if !case.volume.can_use_fstat() {
            return; // Nothing is remembered.
        }
        let root = &case.volume.root;
        let is_gone_on_from = |change: &dyn Fn(&Attributes)| {
            let (version_of, seen) = (case.volume.version_of(root), case.volume.stat(root).expect("seen"));
            change(&seen.attributes);
            case.volume.remember_as_of(version_of, &context, root, &seen);
            case.volume.known(&context, root).is_some()
        };
        assert!(
            (0..100).any(|_| is_gone_on_from(&|_| ())),
            "but for those that the end of a tick came between"
        );
        let numbered = |before: &Attributes| _ = case.volume.change_since(root, before).expect("told");
        assert!((0..100).all(|_| !is_gone_on_from(&numbered)));
    }

    #[test]
    fn a_directory_that_goes_behind_the_change_of_its_last_entry_takes_the_answer_along_with_no_failure() {
        let (case, context) = (Case::with(shared()), batch(7));
        let root = case.volume.root.handle;
        let created = answer(case.volume.create(
            &context,
            &root,
            b"emptied",
            &Create::Directory,
            &SetAttributes::default(),
        ));
        let directory = case.volume.object(&created.handle).expect("known");
        let before = case.volume.stat(&directory).expect("seen").attributes;
        rustix::fs::unlinkat(&case.volume.root_fd, "emptied", rustix::fs::AtFlags::REMOVEDIR).expect("empty");
        let told = [
            case.volume.change_after_entry(&context, &directory, &before),
            case.volume.change_after_entries(&directory, &before),
        ];
        for change in told {
            let change = change.expect("the entry was changed");
            assert_eq!((change.before, change.after, change.atomic), (before.before(), before, false));
        }
        assert_eq!(case.volume.change_since(&directory, &before).unwrap_err(), Error::Stale, "of itself");
    }

    #[test]
    fn each_removal_on_tmpfs_shows_in_the_time_of_change_and_nothing_does_behind_it() {
        let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
            println!("skipped: no file system in memory");
            return;
        };
        let volume = match crate::probe::open(&Config::new(place.path().to_path_buf())) {
            Err(crate::OpenError::NeedsStateDirectory(_)) => {
                return println!("skipped: no file handles without root");
            }
            volume => volume.expect("volume"),
        };
        if !volume.changes.is_shared() {
            println!("skipped: no change times that tell changes apart");
            return;
        }
        let (context, root) = (batch(1), volume.root.handle);
        let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
        let names: Vec<_> = (0..200).map(|number| format!("f{number}")).collect();
        for name in &names {
            answer(volume.create(&context, &root, name.as_bytes(), &what, &set));
        }
        let mut last = volume.stat(&volume.root).expect("seen").attributes.changed;
        for name in &names {
            let after = answer(volume.remove(&context, &root, name.as_bytes(), Removal::File)).after;
            assert!(after.changed > last, "{name}: a client of version 3 has nothing else to go by");
            last = after.changed;
        }
        // Until the tick is over, however long ticks are.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(volume.stat(&volume.root).expect("seen").attributes.changed, last);
    }
}
