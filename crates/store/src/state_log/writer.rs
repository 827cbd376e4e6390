//! Writes the file: decides the next action, appends, rewrites, reserves space.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use vfs::SyncLatency;

use super::file::{Disk, LogFile, SpareFile, wanted_bytes};
use super::format;
use super::queue::Queue;
use super::shared::Shared;
use crate::disk_space::is_full;
use crate::files::{error_text, open_file, sync_parent};

/// Time from a failed rewrite or allocation to the next try.
const RETRY: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

/// The files, and their state.
#[derive(Debug)]
pub(super) struct Writer {
    /// The file in use; none while it cannot be written.
    file: Option<LogFile>,
    /// The file that replaces it when the map is rewritten.
    spare: Option<SpareFile>,
    pub(super) disk: Disk,
    /// Whether the unwritten changes have no space.
    is_out_of_space: bool,
    /// The conditions that are logged.
    logged: Logged,
    /// The time of the next try after a failure.
    retry_at: Instant,
}

/// Conditions that were logged, so that each is logged once until it ends.
#[derive(Debug, Default)]
struct Logged {
    cannot_write: bool,
    cannot_allocate: bool,
    no_room: bool,
}

impl Writer {
    /// `file` is the file of the previous server, if it can be appended to.
    pub(super) fn new(file: Option<LogFile>) -> Self {
        let (disk, logged) = (Disk::default(), Logged::default());
        Self { file, spare: None, disk, is_out_of_space: false, logged, retry_at: Instant::now() }
    }
}

/// The next action of the log's own thread.
pub(super) enum Work {
    /// Append these changes, up to this number.
    Append(Vec<u8>, u64),
    /// Discard changes up to this number, which cannot be written, and wake the tasks that wait for them.
    Discard(u64),
    /// Rewrite the map: a retry, or the file is mostly obsolete or has no space.
    Rewrite,
    /// Allocate more space.
    Reserve,
    /// Wait until notified, or until this time.
    Sleep(Option<Instant>),
    End,
}

impl Writer {
    /// Returns the next action. Takes the changes that are to be appended out of the queue.
    pub(super) fn next(&mut self, shared: &Shared, queue: &mut Queue) -> Work {
        let is_time = Instant::now() >= self.retry_at;
        let Some(file) = &self.file else {
            // The next server reads no file: these need no wait.
            queue.changes.clear();
            if shared.stable.load(Ordering::Acquire) < queue.last {
                return Work::Discard(queue.last);
            }
            if queue.ends {
                return Work::End;
            }
            return if is_time { Work::Rewrite } else { Work::Sleep(Some(self.retry_at)) };
        };
        if file.is_long(queue.live_bytes) && is_time {
            return Work::Rewrite;
        }
        let is_wanted = queue.ends || queue.wanted > shared.stable.load(Ordering::Acquire);
        if is_wanted && !queue.changes.is_empty() {
            return self.next_for_changes(queue, is_time);
        }
        self.log_room(shared, queue);
        match (queue.ends, queue.is_low()) {
            (true, _) => Work::End,
            (false, true) if is_time => Work::Reserve,
            (false, true) => Work::Sleep(Some(self.retry_at)),
            (false, false) => Work::Sleep(None),
        }
    }

    fn next_for_changes(&self, queue: &mut Queue, is_time: bool) -> Work {
        // Keys may have been removed since.
        let fits = || {
            let needed = format::file_bytes(queue.live_bytes);
            self.spare.as_ref().is_some_and(|spare| needed <= spare.capacity())
        };
        match self.is_out_of_space {
            false => {
                let (changes, last) = queue.take();
                Work::Append(changes, last)
            }
            true if is_time || fits() => Work::Rewrite,
            // No client got a reply that depends on these changes.
            true if queue.ends => Work::End,
            true => Work::Sleep(Some(self.retry_at)),
        }
    }

    /// Returns whether the unwritten changes are few, and need one write and one sync and nothing else.
    pub(super) fn is_short_append(&self, queue: &Queue) -> bool {
        let bytes = queue.changes.len();
        let is_ready = |file: &LogFile| file.has_zeros_for(bytes) && !file.is_long(queue.live_bytes);
        let is_little = bytes as u64 <= SyncLatency::SMALL_BYTES;
        is_little && !self.is_out_of_space && self.file.as_ref().is_some_and(is_ready)
    }

    /// Appends and syncs changes. Returns false if the disk is full: then they are back in the queue. After any other failure
    /// the file is invalid, and no task needs to wait for them.
    pub(super) fn append(&mut self, shared: &Shared, changes: &[u8]) -> bool {
        let Some(file) = &mut self.file else { return true };
        let began = Instant::now();
        let done = file.append(changes, &self.disk);
        shared.sync_latency.record(began.elapsed());
        #[cfg(test)]
        shared.syncs.lock().push(std::thread::current().id());
        match done {
            Ok(()) => true,
            Err(error) if is_full(&error) => {
                self.is_out_of_space = true;
                shared.queue.lock().put_back(changes);
                false
            }
            Err(error) => {
                // It is unknown what a failed sync left on the disk.
                self.file = None;
                self.fail(shared, &error);
                true
            }
        }
    }

    /// Writes the whole map into the spare file, which replaces the one in use.
    pub(super) fn rewrite(&mut self, shared: &Shared) {
        let error = match self.prepare(shared) {
            Ok(spare) => match self.write_to(spare, shared) {
                Ok(last) => return self.finish_rewrite(shared, last),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if self.file.is_none() {
            let last = shared.queue.lock().last;
            self.fail(shared, &error);
            return shared.set_stable(last);
        }
        // The file in use remains valid.
        self.retry_at = Instant::now() + RETRY;
        let path = shared.path.display();
        let cause = error_text(&error);
        if !self.is_out_of_space {
            warn!("{path}: not rewritten yet: {cause}");
        } else if !std::mem::replace(&mut self.logged.cannot_write, true) {
            shared.is_failing.store(true, Ordering::Relaxed);
            error!(
                "{path}: {cause}: records on the disk stay valid, but new ones wait, and so do their clients: make space in this file system"
            );
        }
    }

    /// Returns a spare file that has space for the map.
    fn prepare(&mut self, shared: &Shared) -> io::Result<SpareFile> {
        let mut spare = self.spare.take().map_or_else(|| SpareFile::open(&shared.path), Ok)?;
        let live_bytes = shared.queue.lock().live_bytes;
        if spare.capacity() < format::file_bytes(live_bytes)
            && let Some(shortage) = spare.reserve(wanted_bytes(live_bytes), &self.disk)?
            && spare.capacity() < format::file_bytes(live_bytes)
        {
            self.spare = Some(spare);
            return Err(shortage);
        }
        Ok(spare)
    }

    /// Writes the map into `spare` and replaces the file in use by it. Returns the number of the last change in it.
    fn write_to(&mut self, spare: SpareFile, shared: &Shared) -> io::Result<u64> {
        let (content, last, covered) = {
            let queue = shared.queue.lock();
            (format::encode_map(&queue.map, queue.last, &queue.key), queue.last, queue.changes.len())
        };
        match spare.replace(&shared.path, &content, self.file.take(), &self.disk) {
            Ok((file, spare)) => {
                (self.file, self.spare) = (Some(file), spare);
                shared.queue.lock().forget_first(covered);
                Ok(last)
            }
            Err((file, error)) => {
                self.file = file;
                Err(error)
            }
        }
    }

    fn finish_rewrite(&mut self, shared: &Shared, last: u64) {
        self.is_out_of_space = false;
        shared.is_failing.store(false, Ordering::Relaxed);
        if std::mem::take(&mut self.logged.cannot_write) {
            info!("{}: written again", shared.path.display());
        }
        self.reserve(shared);
        shared.set_stable(last);
    }

    /// Allocates space for more changes in both files: the one in use is the next spare file.
    pub(super) fn reserve(&mut self, shared: &Shared) {
        let Some(file) = &mut self.file else { return };
        let wanted = wanted_bytes(shared.queue.lock().live_bytes);
        let reserved = (|| {
            let spare = match &mut self.spare {
                Some(spare) => spare,
                none => none.insert(SpareFile::open(&shared.path)?),
            };
            let of_spare = spare.reserve(wanted, &self.disk)?;
            let shortage = of_spare.or(file.reserve(wanted, &self.disk)?);
            Ok((spare.capacity().min(file.capacity()), shortage))
        })();
        let (capacity, shortage) = reserved.unwrap_or_else(|error: io::Error| (u64::MAX, Some(error)));
        shared.set_capacity(capacity);
        let was_logged = std::mem::replace(&mut self.logged.cannot_allocate, shortage.is_some());
        let Some(error) = shortage else { return };
        self.retry_at = Instant::now() + RETRY;
        if was_logged {
            return;
        }
        let (path, cause) = (shared.path.display(), error_text(&error));
        if is_full(&error) {
            warn!("{path}: no more space for client records: {cause}: new clients use up the reserve");
        } else {
            warn!("{path}: cannot reserve space for client records: {cause}");
        }
    }

    /// Logs when the reserve is used up, and when there is space again.
    fn log_room(&mut self, shared: &Shared, queue: &Queue) {
        let is_used_up = !queue.has_room();
        if std::mem::replace(&mut self.logged.no_room, is_used_up) == is_used_up {
            return;
        }
        let path = shared.path.display();
        if is_used_up {
            error!(
                "{path}: the reserve is used up: opens of clients without a record are answered with DELAY: make space in this file system"
            );
        } else {
            info!("{path}: there is space again: new clients can open files");
        }
    }

    /// Invalidates the file, which is outdated now, so that the next server lets no client reclaim.
    fn fail(&mut self, shared: &Shared, error: &io::Error) {
        let path = shared.path.display();
        let cause = error_text(error);
        if let Err(error) = invalidate(&shared.path) {
            let other = error_text(&error);
            error!(
                "{path}: {cause}; it cannot be removed either: {other}: remove it before the next start, or clients may reclaim state that others have held since"
            );
        } else if !self.logged.cannot_write {
            warn!("{path}: {cause}: clients cannot reclaim after a restart until it can be written again");
        }
        self.logged.cannot_write = true;
        shared.is_failing.store(true, Ordering::Relaxed);
        shared.set_capacity(u64::MAX);
        self.retry_at = Instant::now() + RETRY;
    }
}

/// Removes or truncates the file.
fn invalidate(path: &Path) -> io::Result<()> {
    let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::remove_file(path) {
        Err(error) if !is_absent(&error) => {
            let file = open_file(path, OpenOptions::new().write(true).truncate(true))?;
            file.sync_all()
        }
        _ => sync_parent(path),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs::File;

    use super::*;

    impl Writer {
        /// Makes every later write fail.
        pub(in super::super) fn break_disk(&mut self) {
            self.file = Some(LogFile::broken());
        }
    }

    #[test]
    fn on_a_broken_disk_the_file_is_removed_and_written_again_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.log");
        let entry = (b"c-a".to_vec(), b"may reclaim".to_vec());
        let shared = Shared::new(&path, HashMap::from([entry.clone()]), [7; 16], 1);
        let mut writer = Writer::new(None);
        writer.rewrite(&shared);
        assert!(path.exists());
        writer.break_disk();
        let last = shared.queue.lock().set(&entry.0, Some(b"lost something"));
        shared.want(last);
        let work = writer.next(&shared, &mut shared.queue.lock());
        let Work::Append(changes, number) = work else { panic!("there is a change") };
        assert_eq!(number, last);
        assert!(writer.append(&shared, &changes));
        shared.set_stable(number);
        assert!(!path.exists(), "it would be outdated");
        assert!(shared.is_failing.load(Ordering::Relaxed));
        assert!(shared.stable.load(Ordering::Relaxed) >= last, "nobody waits for it");
        writer.rewrite(&shared);
        assert!(!shared.is_failing.load(Ordering::Relaxed));
        let (map, damage) = format::scan(&fs::read(&path).unwrap()).into_map();
        assert_eq!((map, damage), (HashMap::from([(entry.0, b"lost something".to_vec())]), None));
    }

    #[test]
    fn changes_that_could_not_be_appended_are_one_batch_with_newer_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.log");
        let shared = Shared::new(&path, HashMap::new(), [7; 16], 0);
        let mut writer = Writer::new(None);
        writer.rewrite(&shared);
        let big = vec![7; server::VALUE_BYTES_MAX];
        writer.disk.is_full.store(true, Ordering::Relaxed);
        // More than the space of both files.
        (0..80u8).for_each(|number| _ = shared.queue.lock().set(&[b'c', number], Some(&big)));
        let (changes, last) = shared.queue.lock().take();
        assert!(!writer.append(&shared, &changes), "{} bytes", changes.len());
        shared.queue.lock().set(b"c-late", Some(b"1"));
        let in_file = || format::scan(&fs::read(&path).unwrap()).into_map();
        assert_eq!(in_file(), (HashMap::new(), None));
        // One write and one sync: any sector of it may be missing after a crash.
        let (changes, number) = shared.queue.lock().take();
        assert_eq!(number, last + 1);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.set_len(format::HEADER as u64).unwrap();
        std::io::Write::write_all(&mut file, &changes).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[1024..2048].fill(0);
        let (map, damage) = format::scan(&bytes).into_map();
        assert_eq!(map.len(), 0);
        assert!(damage.unwrap().starts_with("torn"));
    }
}
