//! Closes descriptors that should not stay open, and syncs data that no client commits.
//!
//! A file open for writing cannot be executed by local processes (ETXTBSY), prevents leases and hides the close that
//! inotify watchers wait for. So a writable descriptor is replaced by an `O_PATH` one some seconds after the last
//! write, unless an open holds the file. Changes that no client has committed for a minute are synced, so that no
//! descriptor stays open forever. The index of handles is synced and compacted here too.
//!
//! Files that were closed are checked: if a local process has taken the last name meanwhile, the cache must not keep
//! the space. After a removal through this server, CLOSE releases the file at once.
//!
//! Each volume has one cleanup thread, which sleeps unless there is work, and ends with the volume.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use vfs::{FileKind, Handle};

use crate::cleanup_queue::State;
use crate::object::{Object, Reach};
use crate::volume::{Handles, Volume};

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Rounds without a write after which a writable descriptor is replaced.
const IDLE_ROUNDS: u32 = 3;
/// Rounds without a write after which changes are synced.
const FORGOTTEN_ROUNDS: u32 = 60;
/// Files that were closed since the last round and wait for their check; above that the oldest is checked at once.
const MAX_CLOSED: usize = 4096;

/// Starts the cleanup thread of a volume.
///
/// # Errors
/// If no more threads can be started.
pub(crate) fn start(volume: &Arc<Volume>) -> std::io::Result<()> {
    let signal = Arc::clone(&volume.cleanup_queue.state);
    let volume = Arc::downgrade(volume);
    std::thread::Builder::new()
        .name("localfs-cleanup".into())
        .stack_size(256 * 1024)
        .spawn(move || run(&signal, &volume))
        .map(drop)
}

fn run((state, wake): &(Mutex<State>, Condvar), volume: &Weak<Volume>) {
    loop {
        let has_work = {
            let mut state = state.lock();
            while !state.has_work && !state.has_closed && !state.is_over {
                wake.wait(&mut state);
            }
            // Waits to the end of the round even if it is woken: rounds measure time.
            let end = Instant::now() + ROUND;
            while !state.is_over && !wake.wait_until(&mut state, end).timed_out() {}
            if state.is_over {
                return;
            }
            // Work that arrives from now on wakes the thread again.
            state.has_closed = false;
            std::mem::take(&mut state.has_work)
        };
        let Some(volume) = volume.upgrade() else { return };
        volume.check_closed();
        if has_work && volume.clean_up() {
            volume.cleanup_queue.wake();
        }
    }
}

impl Volume {
    /// Makes the cleanup thread check whether an object without opens still has a name.
    pub(crate) fn check_later(&self, object: &Object) {
        if !object.queue_check() {
            return;
        }
        let mut closed = self.cleanup_queue.closed.lock();
        let first = if closed.files.len() < MAX_CLOSED { None } else { closed.files.pop_front() };
        closed.files.push_back(object.handle);
        let is_notified = std::mem::replace(&mut closed.is_notified, true);
        drop(closed);
        if !is_notified {
            self.cleanup_queue.wake_for_closed();
        }
        if let Some(first) = first {
            self.check_closed_file(&first);
        }
    }

    fn check_closed(&self) {
        let closed = std::mem::take(&mut *self.cleanup_queue.closed.lock());
        closed.files.iter().for_each(|handle| self.check_closed_file(handle));
    }

    /// Checks whether a cached object that was closed has a name.
    fn check_closed_file(&self, handle: &Handle) {
        if let Some(object) = self.objects.peek(handle) {
            object.begin_check();
            self.release_if_removed(object);
        }
    }

    /// Runs one round. Returns whether another one is needed.
    pub(crate) fn clean_up(&self) -> bool {
        let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
        if let Handles::Indexed { index, .. } = &self.handles {
            // The error is logged where it happens.
            let _ = self.sync_index();
            // Compaction writes to the state directory, where callers have no permissions.
            self.act_as_server();
            index.compact_if_worth_it();
        }
        let mut is_needed = false;
        let writable = self.objects.iter().filter(|object| object.file().reach.writes());
        for object in writable.collect::<Vec<_>>() {
            let idle = round.wrapping_sub(object.last_write.load(Ordering::Relaxed));
            if idle >= FORGOTTEN_ROUNDS && object.sync_state.is_dirty() {
                // The failure has changed the write verifier, so clients will notice.
                let _ = self.sync_now(&object);
            }
            let is_exchanged = idle >= IDLE_ROUNDS && !object.is_pinned() && self.stop_writing(&object);
            is_needed |= !is_exchanged;
        }
        is_needed
    }

    /// Replaces the descriptor by one that cannot write, unless the object is dirty.
    fn stop_writing(&self, object: &Object) -> bool {
        debug_assert_eq!(object.kind, FileKind::Regular);
        let exchanged = object.replace_file(|present| {
            // Under the lock, which a thread that begins a change holds too.
            if object.sync_state.is_dirty() || !present.reach.writes() {
                return Ok(None);
            }
            let path = self.reopen(object, present, OFlags::PATH);
            Ok(path.ok().map(|fd| self.file_of(fd, Reach::Path)))
        });
        exchanged.is_ok_and(|file| !file.reach.writes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_index_is_compacted_as_the_server() {
        use crate::index::{FileKey, FileName, ROOT};
        use vfs::Timestamp;
        let directory = tempfile::tempdir().expect("temporary directory");
        let (top, state) = (directory.path().join("export"), directory.path().join("state"));
        std::fs::create_dir(&top).expect("directory");
        let config =
            Config { state_directory: Some(state.clone()), always_use_index: true, ..Config::new(top) };
        let volume = crate::probe::open(&config).expect("volume");
        let Handles::Indexed { index, .. } = &volume.handles else { panic!("asked for") };
        let name = [b'n'; 200];
        let mut is_worth_it = false;
        for inode in (1 << 40..).take(40_000) {
            let key = FileKey { fsid: 1, inode, created: Timestamp::default() };
            let place = FileName { parent: ROOT, name: &name };
            is_worth_it = index.forget(index.remember(&key, &place, false).expect("number"));
            if is_worth_it {
                break;
            }
        }
        assert!(is_worth_it);
        let bytes = || -> u64 {
            let files = std::fs::read_dir(&state).expect("state");
            files.map(|file| file.expect("file").metadata().expect("file").len()).sum()
        };
        let before = bytes();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // As a thread that has just served a caller.
                if matches!(volume.actor, crate::volume::Actor::Callers) {
                    crate::identity::become_user(65_534).expect("switch");
                }
                volume.clean_up();
            });
        });
        assert!(bytes() < before / 2, "{} of {before} bytes", bytes());
    }

    #[test]
    fn an_idle_dirty_file_is_synced_and_its_descriptor_replaced() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().join("export");
        std::fs::create_dir(&top).expect("directory");
        std::fs::write(top.join("f"), b"data").expect("write");
        let config = Config { state_directory: Some(directory.path().join("state")), ..Config::new(top) };
        let volume = crate::probe::open(&config).expect("volume");
        let name = crate::name::Name::new(b"f").expect("a name");
        let object = volume.find(&volume.root, &name).expect("object");
        let change = volume.begin_write(&object).expect("open for writing").1.finish();
        volume.clean_up();
        assert!(object.sync_state.is_dirty() && object.file().reach.writes(), "just written");
        volume.round.fetch_add(IDLE_ROUNDS, Ordering::Relaxed);
        volume.clean_up();
        assert!(object.file().reach.writes(), "a dirty file keeps its descriptor");
        volume.round.fetch_add(FORGOTTEN_ROUNDS, Ordering::Relaxed);
        volume.clean_up();
        assert!(!object.sync_state.is_dirty() && !object.file().reach.writes());
        let next = volume.begin_write(&object).expect("open for writing again").1.finish();
        assert!(next.number > change.number);
        object.pin();
        volume.round.fetch_add(FORGOTTEN_ROUNDS, Ordering::Relaxed);
        volume.clean_up();
        assert!(object.file().reach.writes(), "an open keeps it");
    }

    #[test]
    fn a_file_removed_while_open_is_released_by_its_last_close() {
        use vfs::{Authority, Context, Credentials, OpenAccess, Removal, Timestamp};
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().join("export");
        std::fs::create_dir(&top).expect("directory");
        let config =
            Config { state_directory: Some(directory.path().join("state")), ..Config::new(top.clone()) };
        let volume = crate::probe::open(&config).expect("volume");
        let uid = rustix::process::geteuid().as_raw();
        let credentials = Arc::new(Credentials { uid, gid: uid, groups: Arc::from([]) });
        let context = Context::new(credentials, Timestamp::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let (name, access) =
            (crate::name::Name::new(b"f").expect("a name"), OpenAccess { read: true, write: false });
        for is_local in [false, true] {
            std::fs::write(top.join("f"), b"data").expect("write");
            let handle = volume.find(&volume.root, &name).expect("object").handle;
            let open = || runtime.block_on(volume.open(&context, (&handle, None), access, Authority::Caller));
            let (first, second) = (open().expect("open"), open().expect("open"));
            if is_local {
                std::fs::remove_file(top.join("f")).expect("removed");
            } else {
                let removed = volume.remove(&context, &volume.root.handle, b"f", Removal::File);
                runtime.block_on(removed).expect("removed");
            }
            drop(first);
            volume.check_closed();
            assert!(volume.objects.peek(&handle).is_some(), "an open holds it");
            let object = volume.objects.peek(&handle).expect("held");
            drop(second);
            assert_eq!(Arc::weak_count(&object), 0, "no weak reference keeps its memory");
            drop(object);
            if is_local {
                volume.check_closed();
            }
            assert!(volume.objects.peek(&handle).is_none(), "local: {is_local}");
        }
    }
}
