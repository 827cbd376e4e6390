//! The thread that writes the file.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use vfs::Pace;

use super::file::{Appending, Disk, Spare, wanted};
use super::{Queue, Shared, format, sync_directory_of};
use crate::disk_space::is_full;
use crate::files::{error_text, open_file};

/// How long after a failure the map is written anew, or more space is tried for.
const RETRY: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

/// How the file stands.
#[derive(Debug)]
pub(super) struct Writer {
    /// The file in use; none while it cannot be written.
    file: Option<Appending>,
    /// What takes its place when the map is written anew.
    spare: Option<Spare>,
    pub(super) disk: Disk,
    /// Whether there is no space for the changes that wait behind the file's end.
    is_out_of_space: bool,
    /// Whether it was said that it cannot be written.
    is_said: bool,
    /// Whether it was said that no more space can be had, and that there is none for new clients.
    said: (bool, bool),
    /// When it is tried again.
    retry_at: Instant,
}

impl Writer {
    /// With the file of the server before, where that can be appended to.
    pub(super) fn new(file: Option<Appending>) -> Self {
        let (spare, disk, is_out_of_space, is_said) = (None, Disk::default(), false, false);
        Self { file, spare, disk, is_out_of_space, is_said, said: (false, false), retry_at: Instant::now() }
    }
}

/// What there is to do for the log's own thread.
enum Work {
    /// Changes to be appended, up to this one.
    Append(Vec<u8>, u64),
    /// To let go who waits for changes up to this one, which cannot be written.
    GiveUp(u64),
    /// To be tried again, or the file is mostly of no use, or has no space for what comes.
    Rewrite,
    /// More space is to be allocated.
    Keep,
    /// Nothing before somebody calls, or this moment.
    Sleep(Option<Instant>),
    End,
}

/// Writes until the log ends.
pub(super) fn run(shared: &Shared) {
    // The server before may have left a file that is mostly of no use; and there shall be space for the next one.
    shared.writer.lock().rewrite(shared);
    loop {
        let mut writer = shared.writer.lock();
        let mut queue = shared.queue.lock();
        let work = writer.next(shared, &mut queue);
        match work {
            Work::Append(changes, last) => {
                drop(queue);
                let is_stable = writer.append(shared, &changes);
                // Who is woken by it may write the next one.
                drop(writer);
                if is_stable {
                    shared.set_stable(last);
                }
            }
            Work::GiveUp(last) => {
                drop(queue);
                shared.set_stable(last);
            }
            Work::Rewrite => {
                drop(queue);
                writer.rewrite(shared);
            }
            Work::Keep => {
                drop(queue);
                writer.keep(shared);
            }
            Work::Sleep(until) => {
                // Others may write meanwhile.
                drop(writer);
                queue.is_idle = true;
                match until {
                    None => shared.came.wait(&mut queue),
                    // Which of both it was shows above.
                    Some(time) => _ = shared.came.wait_until(&mut queue, time),
                }
                queue.is_idle = false;
            }
            Work::End => return,
        }
    }
}

impl Writer {
    fn next(&mut self, shared: &Shared, queue: &mut Queue) -> Work {
        let is_time = Instant::now() >= self.retry_at;
        let Some(file) = &self.file else {
            // Nobody waits for what cannot be written.
            queue.changes.clear();
            if shared.stable.load(Ordering::Acquire) < queue.last {
                return Work::GiveUp(queue.last);
            }
            if queue.ends {
                return Work::End;
            }
            return if is_time { Work::Rewrite } else { Work::Sleep(Some(self.retry_at)) };
        };
        if file.is_long(queue) && is_time {
            return Work::Rewrite;
        }
        let is_wanted = queue.ends || queue.wanted > shared.stable.load(Ordering::Acquire);
        if is_wanted && !queue.changes.is_empty() {
            return self.next_for_changes(queue, is_time);
        }
        self.say_room(shared, queue);
        match (queue.ends, queue.is_low()) {
            (true, _) => Work::End,
            (false, true) if is_time => Work::Keep,
            (false, true) => Work::Sleep(Some(self.retry_at)),
            (false, false) => Work::Sleep(None),
        }
    }

    fn next_for_changes(&self, queue: &mut Queue, is_time: bool) -> Work {
        // Some of what the map had may have gone.
        let fits =
            || self.spare.as_ref().is_some_and(|spare| format::file_bytes(queue.live_bytes) <= spare.room());
        match self.is_out_of_space {
            false => {
                let (changes, last) = queue.take();
                Work::Append(changes, last)
            }
            true if is_time || fits() => Work::Rewrite,
            // Nobody was told of them.
            true if queue.ends => Work::End,
            true => Work::Sleep(Some(self.retry_at)),
        }
    }

    /// Whether the changes are few enough to be taken along with a flush, and nothing else has to be done for them.
    pub(super) fn takes_little(&self, queue: &Queue) -> bool {
        let bytes = queue.changes.len();
        let has_place = |file: &Appending| file.has_place_for(bytes) && !file.is_long(queue);
        let is_little = bytes as u64 <= Pace::LITTLE_BYTES;
        is_little && !self.is_out_of_space && self.file.as_ref().is_some_and(has_place)
    }

    /// Writes changes and has them on stable storage; false where there is no space for them, and they wait again. After another
    /// failure none of them is waited for any more.
    pub(super) fn append(&mut self, shared: &Shared, changes: &[u8]) -> bool {
        let Some(appending) = &mut self.file else { return true };
        let began = Instant::now();
        let done = appending.append(changes, &self.disk);
        shared.pace.took(began.elapsed());
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
                // Whether a sync that failed left anything, nobody can tell: this file is not trusted any more.
                self.file = None;
                self.fail(shared, &error);
                true
            }
        }
    }

    /// Writes the whole map into the spare file, which takes the place of the one in use.
    fn rewrite(&mut self, shared: &Shared) {
        let error = match self.prepare(shared) {
            Ok(spare) => match self.write_to(spare, shared) {
                Ok(last) => return self.is_rewritten(shared, last),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if self.file.is_none() {
            let last = shared.queue.lock().last;
            self.fail(shared, &error);
            return shared.set_stable(last);
        }
        // The one in use goes on to be true.
        self.retry_at = Instant::now() + RETRY;
        let path = shared.path.display();
        let cause = error_text(&error);
        if !self.is_out_of_space {
            warn!("{path}: not written anew yet: {cause}");
        } else if !std::mem::replace(&mut self.is_said, true) {
            shared.fails.store(true, Ordering::Relaxed);
            error!(
                "{path}: {cause}: what is on disk stays valid, but changes wait, and so do the clients that they are about: make space in this file system"
            );
        }
    }

    /// A spare file that has space for the map.
    fn prepare(&mut self, shared: &Shared) -> io::Result<Spare> {
        let mut spare = self.spare.take().map_or_else(|| Spare::open(&shared.path), Ok)?;
        let live_bytes = shared.queue.lock().live_bytes;
        if spare.room() < format::file_bytes(live_bytes)
            && let Some(shortage) = spare.keep(wanted(live_bytes), &self.disk)?
            && spare.room() < format::file_bytes(live_bytes)
        {
            self.spare = Some(spare);
            return Err(shortage);
        }
        Ok(spare)
    }

    /// Returns up to which change it has been written.
    fn write_to(&mut self, spare: Spare, shared: &Shared) -> io::Result<u64> {
        let (content, last, covered) = {
            let queue = shared.queue.lock();
            (format::whole(&queue.map, queue.last, &queue.key), queue.last, queue.changes.len())
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

    fn is_rewritten(&mut self, shared: &Shared, last: u64) {
        self.is_out_of_space = false;
        shared.fails.store(false, Ordering::Relaxed);
        if std::mem::take(&mut self.is_said) {
            info!("{}: written again", shared.path.display());
        }
        self.keep(shared);
        shared.set_stable(last);
    }

    /// Allocates space for what comes, in both files: the one in use is the next spare one.
    fn keep(&mut self, shared: &Shared) {
        let Some(file) = &mut self.file else { return };
        let wanted = wanted(shared.queue.lock().live_bytes);
        let kept = (|| {
            let spare = match &mut self.spare {
                Some(spare) => spare,
                none => none.insert(Spare::open(&shared.path)?),
            };
            let of_spare = spare.keep(wanted, &self.disk)?;
            let shortage = of_spare.or(file.keep(wanted, &self.disk)?);
            Ok((spare.room().min(file.room()), shortage))
        })();
        let (room, shortage) = kept.unwrap_or_else(|error: io::Error| (u64::MAX, Some(error)));
        shared.set_room(room);
        let was_said = std::mem::replace(&mut self.said.0, shortage.is_some());
        let Some(error) = shortage else { return };
        self.retry_at = Instant::now() + RETRY;
        if was_said {
            return;
        }
        let (path, cause) = (shared.path.display(), error_text(&error));
        if is_full(&error) {
            warn!(
                "{path}: no more space for records of clients: {cause}: new clients use up what was reserved"
            );
        } else {
            warn!("{path}: no space is reserved for records of clients: {cause}");
        }
    }

    /// Says when there is no space for new clients, and when there is again.
    fn say_room(&mut self, shared: &Shared, queue: &Queue) {
        let is_used_up = !queue.has_room();
        if self.said.1 == is_used_up {
            return;
        }
        self.said.1 = is_used_up;
        let path = shared.path.display();
        if is_used_up {
            error!(
                "{path}: the reserved space is used up: opens of clients that have no record are answered DELAY: make space in this file system"
            );
        } else {
            info!("{path}: there is space again: new clients may open files");
        }
    }

    /// The file says no more what is true: it is made to say nothing, so that nobody reclaims by it.
    fn fail(&mut self, shared: &Shared, error: &io::Error) {
        let path = shared.path.display();
        let cause = error_text(error);
        if let Err(left) = withdraw(&shared.path) {
            let left = error_text(&left);
            error!(
                "{path}: {cause}; nor can it be taken away: {left}: remove it before the next start, or clients may reclaim what others have had since"
            );
        } else if !self.is_said {
            warn!("{path}: {cause}: clients reclaim nothing after a restart until it can be written again");
        }
        self.is_said = true;
        shared.fails.store(true, Ordering::Relaxed);
        shared.set_room(u64::MAX);
        self.retry_at = Instant::now() + RETRY;
    }
}

fn withdraw(path: &Path) -> io::Result<()> {
    let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::remove_file(path) {
        Err(error) if !is_absent(&error) => {
            let file = open_file(path, OpenOptions::new().write(true).truncate(true))?;
            file.sync_all()
        }
        _ => sync_directory_of(path),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs::File;

    use super::*;

    impl Writer {
        /// From now on, every write fails.
        pub(in super::super) fn break_disk(&mut self) {
            self.file = Some(Appending::broken());
        }
    }

    #[test]
    fn a_broken_disk_takes_the_file_back_and_it_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.log");
        let entry = (b"c-a".to_vec(), b"may reclaim".to_vec());
        let shared = Shared::new(&path, HashMap::from([entry.clone()]), None).unwrap();
        let mut writer = shared.writer.lock();
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
        assert!(!path.exists(), "it would say what is not true any more");
        assert!(shared.fails.load(Ordering::Relaxed));
        assert!(shared.stable.load(Ordering::Relaxed) >= last, "nobody waits for it");
        writer.rewrite(&shared);
        assert!(!shared.fails.load(Ordering::Relaxed));
        let (map, damage) = format::scan(&fs::read(&path).unwrap()).into_map();
        assert_eq!((map, damage), (HashMap::from([(entry.0, b"lost something".to_vec())]), None));
    }

    #[test]
    fn what_could_not_be_appended_is_one_batch_with_what_came_since() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.log");
        let shared = Shared::new(&path, HashMap::new(), None).unwrap();
        let mut writer = shared.writer.lock();
        writer.rewrite(&shared);
        let big = vec![7; server::VALUE_BYTES_MAX];
        writer.disk.is_full.store(true, Ordering::Relaxed);
        // More than both files have.
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
