//! What a name leads to that was made here lately: REMOVE then need not ask which object it takes away.
//!
//! REMOVE has to know that, because the descriptor that is kept of the object would keep its space. name_to_handle_at(2) tells, and
//! takes as long as unlink(2) itself. So the objects of new names are remembered, and what a removal took is looked at
//! before and behind it, which takes little: it has a name less then.
//!
//! A local process may have given the name to another file meanwhile. So a presumption counts as right only where the
//! object lost a name between the two looks, and was not changed through this server. Its change time would not do: whoever
//! writes to the object under another name, or to one that has none any more, moves that too. Where a presumption was wrong, what
//! the name did lead to is not known: the janitor looks at every object that is kept, and for a while nothing is presumed. Nor is that
//! object known to have changed, but by its change time: where those may be given again
//! ([`ChangeClock`](crate::change::ChangeClock)) nothing is presumed.
//!
//! Where the object has this one name, and was not changed since it got it (local processes that take a name away or give it another move the change time),
//! it is closed before the removal: the removal of an open file takes the kernel longer, and leaves it to search the directory when the
//! name comes again. Then nothing is looked at behind it.
//!
//! What is left is a local process that takes names of the remembered object away between the two looks. So the janitor looks at
//! all objects now and then as long as anything is presumed: what such a one hid gives its space back late, but does.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::Stat;
use vfs::{FileKind, Timestamp};

use crate::attributes::changed_of_stat;
use crate::janitor::Alarm;
use crate::name::Name;
use crate::object::Object;
use crate::patience;
use crate::volume::{Handles, Volume};

/// Names that are remembered; a power of two. Of two that share a place the later is.
const NAMES: usize = 4096;
/// Removals that presume nothing behind one that presumed wrongly.
const DOUBTS: u32 = 4096;

/// Objects of names that were made lately.
#[derive(Debug)]
pub(crate) struct NewNames {
    places: Box<[Mutex<Option<NewName>>]>,
    hasher: quick_cache::DefaultHashBuilder,
    doubts: AtomicU32,
    /// Whether a removal presumed anything since the janitor looked at all objects.
    were_used: AtomicBool,
}

#[derive(Debug)]
struct NewName {
    /// Of directory and name.
    hash: u64,
    /// The [`era`](patience::era) in which it was made: its directory's entry is in memory still.
    era: u32,
    /// Not the object itself, whose descriptor would stay open.
    object: Weak<Object>,
    /// Its change time then.
    changed: Timestamp,
}

impl Default for NewNames {
    fn default() -> Self {
        let places = (0..NAMES).map(|_| Mutex::new(None)).collect();
        Self {
            places,
            hasher: Default::default(),
            doubts: AtomicU32::new(0),
            were_used: AtomicBool::new(false),
        }
    }
}

impl NewNames {
    fn hash(&self, directory: &Object, name: &Name) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one((directory.key, name.as_bytes()))
    }

    fn place(&self, hash: u64) -> &Mutex<Option<NewName>> {
        &self.places[(hash >> 32) as usize % NAMES]
    }

    fn remember(&self, directory: &Object, name: &Name, object: &Arc<Object>, changed: Timestamp) {
        let hash = self.hash(directory, name);
        let new = NewName { hash, era: patience::era(), object: Arc::downgrade(object), changed };
        let old = self.place(hash).lock().replace(new);
        // Behind the lock: it may be the last that holds the object's memory.
        drop(old);
    }

    /// What was remembered of a name, and is not any more; and its change time then.
    fn take(&self, directory: &Object, name: &Name) -> Option<(Arc<Object>, Timestamp)> {
        let hash = self.hash(directory, name);
        let new = self.place(hash).lock().take_if(|new| new.hash == hash)?;
        if !patience::is_recent(new.era, patience::era()) {
            return None;
        }
        Some((new.object.upgrade()?, new.changed))
    }

    /// Whether a removal presumed anything since the janitor looked at all objects.
    pub(crate) fn were_used(&self) -> bool {
        self.were_used.load(Ordering::Relaxed)
    }

    fn was_used(&self, janitor: &Alarm) {
        if !self.were_used() {
            self.were_used.store(true, Ordering::Relaxed);
            janitor.ring();
        }
    }

    /// All objects are looked at.
    pub(crate) fn use_is_over(&self) {
        self.were_used.store(false, Ordering::Relaxed);
    }

    /// Whether the last presumption was wrong not long ago; each that asks makes it longer ago.
    fn is_doubtful(&self) -> bool {
        let doubts = self.doubts.load(Ordering::Relaxed);
        if doubts > 0 {
            // Two at once may count as one.
            self.doubts.store(doubts - 1, Ordering::Relaxed);
        }
        doubts > 0
    }
}

/// What a name about to be removed is taken to lead to.
#[derive(Debug)]
pub(crate) struct Presumed {
    object: Arc<Object>,
    /// Its [version](crate::durable::Dirt::quiet_version) then.
    version: u64,
    /// RENAMEs of the volume until then.
    moves: u64,
    /// How it was then.
    before: Stat,
    /// Whether that is as it was when it got this name.
    is_unchanged: bool,
}

impl Volume {
    fn presumes(&self) -> bool {
        matches!(self.handles, Handles::Kernel { .. }) && !self.changes.is_coarse()
    }

    /// `name` was made in `directory`, for `object`, which has this change time.
    pub(crate) fn name_is_new(
        &self,
        directory: &Object,
        name: &Name,
        object: &Arc<Object>,
        changed: Timestamp,
    ) {
        if object.kind == FileKind::Regular && self.presumes() {
            self.new_names.remember(directory, name, object, changed);
        }
    }

    /// `name` in `directory` leads elsewhere from now on.
    pub(crate) fn name_is_old(&self, directory: &Object, name: &Name) {
        if self.presumes() {
            self.new_names.take(directory, name);
        }
    }

    /// What `name`, about to be removed from `directory`, is taken to lead to. To be called under the directory's lock.
    pub(crate) fn presume(&self, directory: &Object, name: &Name) -> Option<Presumed> {
        if !self.presumes() || self.new_names.is_doubtful() {
            return None;
        }
        let (object, changed) = self.new_names.take(directory, name)?;
        let (version, moves) = (object.dirt.quiet_version()?, self.moves.load(Ordering::Acquire));
        let before = object.lend(|fd| rustix::fs::fstat(fd)).ok()?;
        let is_unchanged = changed_of_stat(&before) == changed;
        Some(Presumed { object, version, moves, before, is_unchanged })
    }

    /// Closes what is about to lose its only name, if that is certain and nobody uses it; else gives it back. Whoever asks for it before it is removed, or
    /// where it is not after all, opens it anew by its handle.
    pub(crate) fn close_presumed(&self, presumed: Presumed) -> Option<Presumed> {
        let Presumed { object, before, is_unchanged, .. } = &presumed;
        let is_certain = *is_unchanged && before.st_nlink == 1 && self.counts_links;
        // Nothing was written to it since, so that there is nothing to free that would take long.
        if !is_certain || !self.objects.remove_unused(object) {
            return Some(presumed);
        }
        self.new_names.was_used(&self.janitor);
        None
    }

    /// The name was removed.
    pub(crate) fn lost_presumed(&self, presumed: Presumed) {
        let object = &presumed.object;
        let status = object.lend(|fd| rustix::fs::fstat(fd)).ok();
        match status.filter(|status| presumed.is_right(self, status)) {
            Some(status) => {
                // Behind the removal: a look at all objects that began before has not seen what it took.
                self.new_names.was_used(&self.janitor);
                self.was_renamed(object);
                self.let_go_if_nameless(presumed.object, &status);
            }
            None => {
                self.new_names.doubts.store(DOUBTS, Ordering::Relaxed);
                // Whatever lost its name: nobody takes an earlier look at it for the present.
                self.moves.fetch_add(1, Ordering::AcqRel);
                self.look_at_all_later();
            }
        }
    }
}

impl Presumed {
    /// Whether the object, looked at behind the removal, lost a name by it.
    fn is_right(&self, volume: &Volume, status: &Stat) -> bool {
        status.st_nlink < self.before.st_nlink
            && self.object.dirt.quiet_version() == Some(self.version)
            && volume.moves.load(Ordering::Acquire) == self.moves
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use vfs::{Change, Context, Create, CreateMode, Credentials, Handle, Op, Removal, SetAttributes};

    use super::*;
    use crate::change::{ChangeClock, present_ns};
    use crate::config::{Config, Durability};
    use crate::janitor::LOOK_ROUNDS;

    /// Makes something so of an object.
    type Reason<'r> = &'r mut dyn FnMut(Arc<Object>);

    struct Case {
        volume: Arc<Volume>,
        context: Context,
        top: PathBuf,
        _directory: tempfile::TempDir,
    }

    fn answer<T>(operation: Op<'_, T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(operation).expect("done")
    }

    impl Case {
        /// With change times that tell changes apart; nothing where the kernel has no such.
        fn new() -> Option<Self> {
            let case = Self::with(None);
            if !case.volume.presumes() {
                println!("skipped: no change times that tell changes apart, or no right to open by handle");
                return None;
            }
            Some(case)
        }

        fn with(clock: Option<ChangeClock>) -> Self {
            let directory = tempfile::tempdir().expect("temporary directory");
            let top = directory.path().join("export");
            std::fs::create_dir(&top).expect("directory");
            let state_directory = Some(directory.path().join("state"));
            let config =
                Config { state_directory, durability: Durability::Async, ..Config::new(top.clone()) };
            let volume = match clock {
                Some(clock) => crate::probe::open_with(&config, |_, _| (clock, 1)),
                None => crate::probe::open(&config),
            };
            let uid = rustix::process::geteuid().as_raw();
            let credentials = Arc::new(Credentials { uid, gid: uid, groups: Arc::from([]) });
            let context = Context::new(credentials, Timestamp::default());
            Self { volume: volume.expect("volume"), context, top, _directory: directory }
        }

        fn create(&self, name: &[u8]) -> Handle {
            let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
            answer(self.volume.create(&self.context, &self.volume.root.handle, name, &what, &set)).handle
        }

        fn remove(&self, name: &[u8]) -> Change {
            answer(self.volume.remove(&self.context, &self.volume.root.handle, name, Removal::File))
        }

        fn find(&self, name: &[u8]) -> Handle {
            let name = Name::new(name).expect("a name");
            self.volume.find(&self.volume.root, &name).expect("object").handle
        }

        fn is_kept(&self, handle: &Handle) -> bool {
            self.volume.objects.peek(handle).is_some()
        }

        fn doubts(&self) -> u32 {
            self.volume.new_names.doubts.load(Ordering::Relaxed)
        }

        fn remembers(&self, name: &[u8]) -> bool {
            let name = Name::new(name).expect("a name");
            self.volume.new_names.take(&self.volume.root, &name).is_some()
        }
    }

    #[test]
    fn what_was_made_and_removed_is_let_go_without_being_asked_for() {
        let Some(case) = Case::new() else { return };
        for _ in 0..100 {
            let handle = case.create(b"f");
            assert!(case.is_kept(&handle));
            case.remove(b"f");
            assert!(!case.is_kept(&handle) && case.doubts() == 0);
        }
        case.create(b"f");
        assert!(case.remembers(b"f") && !case.remembers(b"f"), "once");
    }

    #[test]
    fn what_has_one_name_since_it_was_made_is_closed_before_its_removal() {
        let Some(case) = Case::new() else { return };
        let name = Name::new(b"f").expect("a name");
        let handle = case.create(b"f");
        let object = Arc::downgrade(&case.volume.object(&handle).expect("object"));
        let presumed = case.volume.presume(&case.volume.root, &name).expect("it is new");
        assert!(case.volume.close_presumed(presumed).is_none());
        assert!(object.upgrade().is_none() && !case.is_kept(&handle), "nobody has it open");
        assert!(case.volume.new_names.were_used(), "the janitor looks whether another has lost the name");
        // The removal may be refused.
        assert_eq!(case.find(b"f"), handle);
        assert_eq!(case.volume.object(&handle).expect("opened anew").handle, handle);
    }

    #[test]
    fn what_may_have_another_name_or_is_used_is_not_closed_before() {
        let Some(case) = Case::new() else { return };
        let name = Name::new(b"f").expect("a name");
        let path = |name: &str| case.top.join(name);
        let mut users = Vec::new();
        let reasons: [(&str, Reason<'_>); 5] = [
            ("a second name", &mut |_| std::fs::hard_link(path("f"), path("g")).expect("linked")),
            ("it was moved there and back", &mut |_| {
                std::fs::rename(path("f"), path("h")).expect("moved");
                std::fs::rename(path("h"), path("f")).expect("moved back");
            }),
            ("it was written", &mut |_| std::fs::write(path("f"), b"line").expect("written")),
            ("a change of it is not durable", &mut |object| _ = object.dirt.begin().made()),
            ("somebody uses it", &mut |object| users.push(object)),
        ];
        for (reason, make) in reasons {
            let handle = case.create(b"f");
            make(case.volume.object(&handle).expect("object"));
            let presumed = case.volume.presume(&case.volume.root, &name).expect("it is new");
            assert!(case.volume.close_presumed(presumed).is_some(), "{reason}");
            assert!(case.is_kept(&handle), "{reason}");
            std::fs::remove_file(path("f")).expect("removed");
        }
    }

    #[test]
    fn a_file_with_another_name_is_kept_and_known_to_have_changed() {
        let Some(case) = Case::new() else { return };
        let handle = case.create(b"f");
        let object = case.volume.object(&handle).expect("object");
        answer(case.volume.link(&case.context, &handle, &case.volume.root.handle, b"g"));
        let version = object.dirt.version();
        case.remove(b"f");
        assert!(case.is_kept(&handle) && case.doubts() == 0);
        assert_ne!(object.dirt.version(), version);
        drop(object);
        case.remove(b"g");
        assert!(!case.is_kept(&handle));
    }

    #[test]
    fn what_a_local_process_put_in_its_place_is_let_go_too() {
        let Some(case) = Case::new() else { return };
        let path = |name: &str| case.top.join(name);
        let replacements: [&dyn Fn(); 3] = [
            &|| {
                std::fs::write(path("h"), b"another").expect("file");
                std::fs::rename(path("h"), path("f")).expect("replaced");
            },
            &|| {
                std::fs::rename(path("f"), path("g")).expect("renamed");
                std::fs::write(path("f"), b"another").expect("file");
            },
            &|| {
                std::fs::remove_file(path("f")).expect("removed");
                std::fs::write(path("f"), b"another").expect("file");
            },
        ];
        for (number, replace) in replacements.into_iter().enumerate() {
            case.volume.new_names.doubts.store(0, Ordering::Relaxed);
            let first = case.create(b"f");
            replace();
            let second = case.find(b"f");
            assert_ne!(first, second);
            let replaced_ns = present_ns();
            while present_ns() == replaced_ns {
                std::thread::yield_now();
            }
            let moves = case.volume.moves.load(Ordering::Relaxed);
            case.remove(b"f");
            assert!(case.doubts() > 0, "{number}: it was another file's name");
            assert_ne!(case.volume.moves.load(Ordering::Relaxed), moves, "earlier looks are not taken");
            case.volume.look_at_doubtful();
            assert!(!case.is_kept(&second), "{number}");
            assert_eq!(case.is_kept(&first), number == 1, "{number}: it has a name still");
            // For a while each is asked for.
            let third = case.create(b"f");
            case.remove(b"f");
            assert!(!case.is_kept(&third) && case.doubts() < DOUBTS);
        }
    }

    #[test]
    fn what_was_moved_at_the_moment_of_its_removal_is_let_go_by_the_janitor() {
        let Some(case) = Case::new() else { return };
        let name = Name::new(b"f").expect("a name");
        case.create(b"f");
        let presumed = case.volume.presume(&case.volume.root, &name).expect("it is new");
        // The janitor too may come between.
        assert!((0..=LOOK_ROUNDS).any(|_| !case.volume.clean_up()));
        std::fs::remove_file(case.top.join("f")).expect("removed");
        std::fs::write(case.top.join("f"), b"another").expect("file");
        let second = case.find(b"f");
        std::fs::remove_file(case.top.join("f")).expect("removed");
        case.volume.lost_presumed(presumed);
        assert!(case.doubts() == 0 && case.is_kept(&second), "nobody knows");
        assert!((0..=LOOK_ROUNDS).any(|_| !case.volume.clean_up() || !case.is_kept(&second)));
        assert!(!case.is_kept(&second) && !case.volume.new_names.were_used());
    }

    #[test]
    fn what_a_local_process_goes_on_writing_to_proves_nothing() {
        let Some(case) = Case::new() else { return };
        let name = Name::new(b"f").expect("a name");
        let path = |name: &str| case.top.join(name);
        // As logs are rotated, and as they are thrown away under their writer.
        let put_aside: [&dyn Fn(); 2] =
            [&|| std::fs::rename(path("f"), path("f.1")).expect("renamed"), &|| {
                std::fs::remove_file(path("f")).expect("removed")
            }];
        for (number, put_aside) in put_aside.into_iter().enumerate() {
            case.volume.new_names.doubts.store(0, Ordering::Relaxed);
            case.create(b"f");
            let mut log = std::fs::OpenOptions::new().append(true).open(path("f")).expect("open");
            put_aside();
            std::fs::write(path("f"), b"another").expect("file");
            let second = case.find(b"f");
            let presumed = case.volume.presume(&case.volume.root, &name).expect("it is new");
            log.write_all(b"line").expect("written");
            std::fs::remove_file(path("f")).expect("removed");
            case.volume.lost_presumed(presumed);
            assert!(case.doubts() > 0, "{number}: it was another file's name");
            case.volume.look_at_doubtful();
            assert!(!case.is_kept(&second), "{number}");
        }
    }

    #[test]
    fn what_a_rename_left_behind_presumes_nothing() {
        let Some(case) = Case::new() else { return };
        let root = case.volume.root.handle;
        let (replaced, moved) = (case.create(b"f"), case.create(b"g"));
        answer(case.volume.rename(&case.context, (&root, b"g"), (&root, b"f")));
        assert!(!case.is_kept(&replaced) && !case.remembers(b"f") && !case.remembers(b"g"));
        case.remove(b"f");
        assert!(!case.is_kept(&moved) && case.doubts() == 0);
    }

    #[test]
    fn a_change_through_this_server_meanwhile_proves_nothing() {
        let Some(case) = Case::new() else { return };
        let name = Name::new(b"f").expect("a name");
        let changes: [&dyn Fn(&Object); 3] = [
            &|object| _ = object.dirt.begin().made(),
            &|object| std::mem::forget(object.dirt.begin()),
            &|_| _ = case.volume.moves.fetch_add(1, Ordering::Relaxed),
        ];
        for change in changes {
            case.create(b"f");
            let presumed = case.volume.presume(&case.volume.root, &name).expect("it is new");
            std::fs::remove_file(case.top.join("f")).expect("removed");
            let status = presumed.object.lend(|fd| rustix::fs::fstat(fd)).expect("status");
            assert!(presumed.is_right(&case.volume, &status));
            change(&presumed.object);
            assert!(!presumed.is_right(&case.volume, &status));
        }
    }

    #[test]
    fn where_change_times_are_coarse_nothing_is_presumed() {
        let case = Case::with(Some(ChangeClock::ticks(1)));
        let handle = case.create(b"f");
        assert!(!case.remembers(b"f"));
        case.remove(b"f");
        assert!(!case.is_kept(&handle));
    }
}
