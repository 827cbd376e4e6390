//! Records of mounts of versions 2 and 3 that have locks at their servers.
//!
//! Such a server has no leases: it keeps the locks of a killed client until a call of FREE_ALL (NLM) names that client. So the client's
//! process writes a file, and keeps a shared flock(2) on it, which the kernel ends with the process. The next mount of the server on
//! this machine finds files without such a lock, and calls FREE_ALL for their clients.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use client::Client;
use client::config::Version;
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};

use crate::state_dir;

/// The directory's name in the state directory.
const DIRECTORY: &str = "locks";
/// Maximum number of records that are looked at.
const RECORDS_MAX: usize = 1024;
/// Longest record in bytes: the server's name and port, and [`HANDED_OVER`].
const RECORD_BYTES_MAX: u64 = 512;
/// The last line of a record whose process has left its locks to another one.
const HANDED_OVER: &str = "handed over";
/// The time in which that process must continue.
const HAND_OVER_MAX: Duration = Duration::from_mins(2);
/// The age at which abandoned records of servers that are mounted no more are removed.
const AGE_MAX: Duration = Duration::from_hours(30 * 24);

/// The record of a client that may lock.
pub struct LockRecord {
    task: JoinHandle<()>,
    place: Rc<Place>,
}

/// A place for a record.
struct Place {
    path: PathBuf,
    /// The server, as records name it.
    server: String,
}

impl LockRecord {
    /// Frees the locks of clients that were killed, and makes a record when this client locks first. `None` for version 4, whose locks
    /// end with a lease.
    pub fn start(client: &Client) -> Option<Self> {
        if !matches!(client.version(), Version::V2 | Version::V3) {
            return None;
        }
        let directory = directory()?;
        let config = client.config();
        let name = String::from_utf8_lossy(&config.host_name).replace('/', "_");
        let server = format!("{} {}", config.server, config.port);
        let place = Rc::new(Place { path: directory.join(name), server });
        let task = spawn_local(keep(client.clone(), Rc::clone(&place)));
        Some(Self { task, place })
    }

    /// Ends without locks at the server.
    pub async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
        let _ = std::fs::remove_file(&self.place.path);
    }

    /// Ends, and leaves the locks to another process.
    pub async fn hand_over(self) {
        let text = self.place.text() + HANDED_OVER + "\n";
        if self.place.path.exists()
            && let Err(error) = std::fs::write(&self.place.path, text)
        {
            tracing::warn!(%error, path = %self.place.path.display(), "cannot write the record of locks");
        }
        // The lock of the file ends last.
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Returns the directory of records; `None` without a place for it.
fn directory() -> Option<PathBuf> {
    // systemd's StateDirectory=.
    let of_service = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(of_service.or_else(|| state_dir::default_path().ok())?.join(DIRECTORY))
}

async fn keep(client: Client, place: Rc<Place>) {
    let (directory, server) = (place.directory().to_owned(), place.server.clone());
    let old = spawn_blocking(move || abandoned(&directory, &server)).await.unwrap_or_default();
    for record in old {
        // What fails is tried again by the next mount.
        match client.free_locks_of(record.name.as_bytes()).await {
            Ok(()) => {
                tracing::debug!(name = record.name, "freed the locks of a mount that was killed");
                let _ = std::fs::remove_file(&record.path);
            }
            Err(error) => {
                tracing::warn!(?error, name = record.name, "cannot free the locks of a mount that was killed")
            }
        }
    }
    client.host_calls_wanted().await;
    let _file = match place.write() {
        Ok(file) => file,
        Err(error) => {
            let path = place.path.display();
            tracing::warn!(%error, %path, "no record of locks: if this process is killed, the server keeps its locks");
            return;
        }
    };
    std::future::pending().await
}

impl Place {
    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn text(&self) -> String {
        format!("{}\n", self.server)
    }

    /// Writes the record, and returns it locked. It has its name once it is locked; that of a process that hands over has it already.
    fn write(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.directory())?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unnamed = self.directory().join(format!(".{name}"));
        let known = OpenOptions::new().write(true).open(&self.path);
        let is_known = known.is_ok();
        let mut file = known.or_else(|_| {
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unnamed)
        })?;
        file.lock_shared()?;
        file.set_len(0)?;
        file.write_all(self.text().as_bytes())?;
        if !is_known {
            std::fs::rename(&unnamed, &self.path)?;
        }
        Ok(file)
    }
}

/// A record whose process has ended.
#[derive(Debug)]
struct Abandoned {
    name: String,
    path: PathBuf,
    /// Locked, so that no other process frees the same locks.
    _file: File,
}

/// Returns the records of a server whose processes have ended.
fn abandoned(directory: &Path, server: &str) -> Vec<Abandoned> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.take(RECORDS_MAX).filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.filter_map(|path| lock_abandoned(path, server)).collect()
}

fn lock_abandoned(path: PathBuf, server: &str) -> Option<Abandoned> {
    let name = path.file_name()?.to_str().filter(|name| !name.starts_with('.'))?.to_owned();
    let file = File::open(&path).ok()?;
    let mut text = String::new();
    (&file).take(RECORD_BYTES_MAX).read_to_string(&mut text).ok()?;
    let age = file.metadata().and_then(|metadata| metadata.modified()).ok()?.elapsed().unwrap_or_default();
    let mut lines = text.lines();
    let is_its = lines.next() == Some(server);
    let may_continue = lines.next() == Some(HANDED_OVER) && age < HAND_OVER_MAX;
    if may_continue || file.try_lock().is_err() {
        return None;
    }
    if !is_its {
        if age > AGE_MAX {
            let _ = std::fs::remove_file(&path);
        }
        return None;
    }
    Some(Abandoned { name, path, _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: &Path, name: &str, server: &str) -> Place {
        Place { path: directory.join(name), server: server.into() }
    }

    fn names(directory: &Path, server: &str) -> Vec<String> {
        let mut names: Vec<_> = abandoned(directory, server).into_iter().map(|record| record.name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_record_is_abandoned_once_its_process_has_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let [one, other] = ["one", "other"].map(|name| place(directory.path(), name, "server 2049"));
        let elsewhere = place(directory.path(), "elsewhere", "another 2049");
        let (first, second) = (one.write().expect("written"), other.write().expect("written"));
        drop(elsewhere.write().expect("written"));
        assert_eq!(names(directory.path(), "server 2049"), [""; 0], "both processes run");
        drop(first);
        assert_eq!(names(directory.path(), "server 2049"), ["one"]);
        drop(second);
        assert_eq!(names(directory.path(), "server 2049"), ["one", "other"]);
        assert_eq!(names(directory.path(), "another 2049"), ["elsewhere"]);
    }

    #[test]
    fn a_record_that_is_handed_over_waits_for_its_next_process() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = place(directory.path(), "mount", "server 2049");
        let before = place.write().expect("written");
        std::fs::write(&place.path, place.text() + HANDED_OVER + "\n").expect("written");
        // Both have the record for a moment.
        let after = place.write().expect("written again");
        drop(before);
        assert_eq!(names(directory.path(), "server 2049"), [""; 0]);
        drop(after);
        assert_eq!(names(directory.path(), "server 2049"), ["mount"], "killed");
        std::fs::write(&place.path, place.text() + HANDED_OVER + "\n").expect("written");
        assert_eq!(names(directory.path(), "server 2049"), [""; 0], "the next process has not started yet");
        let late = std::time::SystemTime::now() - HAND_OVER_MAX;
        File::options().write(true).open(&place.path).and_then(|file| file.set_modified(late)).expect("set");
        assert_eq!(names(directory.path(), "server 2049"), ["mount"], "it does not come");
    }

    #[test]
    fn records_of_servers_that_are_mounted_no_more_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = place(directory.path(), "mount", "server 2049");
        let running = place.write().expect("written");
        let old = std::time::SystemTime::now() - 2 * AGE_MAX;
        running.set_modified(old).expect("set");
        assert_eq!(names(directory.path(), "another 2049"), [""; 0]);
        assert!(place.path.exists(), "its process runs");
        drop(running);
        assert_eq!(names(directory.path(), "another 2049"), [""; 0]);
        assert!(!place.path.exists());
    }

    #[test]
    fn damaged_records_are_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in [("empty", &b""[..]), ("bytes", b"\xff\xfe"), (".hidden", b"server 2049\n")] {
            std::fs::write(directory.path().join(name), text).expect("written");
        }
        assert_eq!(names(directory.path(), "server 2049"), [""; 0]);
        assert_eq!(names(&directory.path().join("missing"), "server 2049"), [""; 0]);
    }
}
