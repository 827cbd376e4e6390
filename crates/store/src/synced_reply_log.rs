//! The reply log on stable storage ([`server::StableLog`]): for persistent sessions.
//!
//! The same file and format as the [reply log](crate::reply_log). A thread syncs it when a caller waits for that; all
//! callers that wait while one sync runs share the next one. The header says that the log is synced, so that it is also read after a crash
//! of the machine. A failed sync fails all later ones: it is unknown which pages the kernel dropped.

use std::path::Path;

use tracing::error;
use vfs::Op;

use crate::files::{error_text, sync_parent};
use crate::group_sync::GroupSync;
use crate::reply_log::{Durability, FileReplyLog, RecoveredCalls};

/// A reply log on stable storage, in use.
#[derive(Debug)]
pub struct SyncedReplyLog {
    log: FileReplyLog,
    sync: GroupSync,
}

impl SyncedReplyLog {
    /// Opens or creates the log. The records found in it are on stable storage afterwards.
    ///
    /// # Errors
    /// One line that names the file: it cannot be opened or synced, or the disk has no space for it.
    pub fn open(path: &Path) -> Result<(Self, RecoveredCalls), String> {
        let (log, file, recovered) = FileReplyLog::open_with(path, Durability::Machine)?;
        let failed = |error| format!("{}: {}", path.display(), error_text(&error));
        file.sync_all().and_then(|()| sync_parent(path)).map_err(failed)?;
        let name = path.display().to_string();
        let sync = GroupSync::start(move || {
            file.sync_data().inspect_err(|error| error!("{name}: {}", error_text(error)))
        });
        Ok((Self { log, sync: sync.map_err(failed)? }, recovered))
    }
}

impl server::ReplyLog for SyncedReplyLog {
    fn append(&self, parts: &[&[u8]]) {
        self.log.append(parts);
        self.sync.count_change();
    }
}

impl server::StableLog for SyncedReplyLog {
    fn sync(&self) -> Op<'_, ()> {
        self.sync.wait()
    }
}

#[cfg(test)]
mod tests {
    use server::{ReplyLog, StableLog};

    use super::*;
    use crate::reply_log::path_in;

    fn block<T>(operation: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(operation)
    }

    /// Changes the boot ID in the header, as a reboot would.
    fn reboot(path: &Path) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[7; 16], 8).unwrap();
    }

    #[test]
    fn a_synced_log_is_read_after_a_reboot_and_another_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        let synced = |record: &[u8]| {
            let (log, recovered) = SyncedReplyLog::open(&path).unwrap();
            log.append(&[record]);
            block(log.sync()).unwrap();
            recovered
        };
        let unsynced = |record: &[u8]| {
            let (log, recovered) = FileReplyLog::open(&path).unwrap();
            log.append(&[record]);
            recovered
        };
        synced(b"one");
        reboot(&path);
        assert_eq!(synced(b"two").records, [b"one"]);
        // Without a reboot, each reads the other's records.
        assert_eq!(unsynced(b"three").records, [b"one", b"two"]);
        assert_eq!(synced(b"four").records.len(), 3);
        // The next user syncs, but the last one did not.
        unsynced(b"five");
        reboot(&path);
        let recovered = synced(b"six");
        assert!(recovered.records.is_empty() && recovered.outdated.is_some());
        // The next user does not sync, but the last one did.
        reboot(&path);
        assert_eq!(unsynced(b"seven").records, [b"six"]);
        reboot(&path);
        assert!(unsynced(b"eight").records.is_empty());
    }
}
