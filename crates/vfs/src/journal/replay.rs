//! Repeats the records of a log in the back end, after a crash of the machine.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::record::{Action, Record};
use crate::{
    Authority, Backend, Context, Credentials, Error, GroupCommit, Handle, Peer, Result, SetAttributes,
    SetTime, Stability, Thread, Timestamp,
};

/// A record that could not be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotReplayed {
    /// The object; `None` if a sync failed at the end.
    pub file: Option<Handle>,
    /// Why.
    pub error: Error,
}

impl fmt::Display for NotReplayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            Some(file) => write!(f, "a change of object {file:?}: {}", self.error),
            None => write!(f, "syncing: {}", self.error),
        }
    }
}

/// Repeats records, and makes them durable. Objects that were removed are left out. `server` is the identity in which the server
/// acts for itself. Returns the number of records that were repeated.
///
/// # Errors
/// The first record that cannot be repeated, unless `skip` is given: then those are left out too.
pub async fn replay(
    backend: &impl Backend,
    records: &[Record],
    server: &Credentials,
    now: Timestamp,
    skip: Option<&(dyn Fn(NotReplayed) + Sync)>,
) -> std::result::Result<usize, NotReplayed> {
    let mut replay = Replay { backend, group: Arc::default(), now };
    let (mut repeated, mut times) = (0, HashMap::new());
    for record in records {
        let failed = |error| NotReplayed { file: Some(record.file), error };
        match replay.repeat(record, server).await {
            Ok(()) => {
                repeated += 1;
                times.insert(record.file, record.modified);
            }
            Err(error) if is_gone(error) => {}
            Err(error) => match skip {
                Some(skip) => skip(failed(error)),
                None => return Err(failed(error)),
            },
        }
    }
    for (file, modified) in times {
        replay.set_modified(&file, modified, server).await;
    }
    let group = std::mem::take(&mut replay.group);
    let synced = group.commit(Thread::Shared, Peer::default()).await;
    synced.map_err(|failed| NotReplayed { file: None, error: failed.error })?;
    Ok(repeated)
}

/// Returns whether an object does not exist any more.
fn is_gone(error: Error) -> bool {
    matches!(error, Error::Stale | Error::NotFound)
}

struct Replay<'b, B> {
    backend: &'b B,
    /// The syncs of all changes, which come at the end.
    group: Arc<GroupCommit>,
    now: Timestamp,
}

impl<B: Backend> Replay<'_, B> {
    fn context(&self, credentials: Credentials) -> Context {
        let context = Context::new(Arc::new(credentials), self.now);
        Context { group: Some(Arc::clone(&self.group)), ..context }
    }

    async fn repeat(&self, record: &Record, server: &Credentials) -> Result<()> {
        let (uid, gid) = record.caller;
        // As the caller: a write by another user than root clears set-ID bits.
        let context = self.context(Credentials { uid, gid, groups: Arc::from([]) });
        let (file, opened) = (&record.file, Authority::Opened);
        match &record.action {
            Action::Write { offset, data } => {
                let (mut offset, mut data) = (*offset, data.clone());
                while !data.is_empty() {
                    let written = self
                        .backend
                        .write(&context, file, offset, &data, Stability::FileSync, opened)
                        .await?;
                    offset += u64::from(written.count);
                    data = data.slice(written.count as usize..);
                }
                Ok(())
            }
            Action::Set { mode, uid, gid, size, accessed } => {
                if size.is_some() {
                    let resized = SetAttributes { size: *size, ..SetAttributes::default() };
                    self.backend.setattr(&context, file, &resized, None, opened).await?;
                }
                let (mode, uid, gid, accessed) = (*mode, *uid, *gid, accessed.map(SetTime::To));
                let set = SetAttributes { mode, uid, gid, accessed, ..SetAttributes::default() };
                if !set.is_empty() {
                    let context = self.context(server.clone());
                    self.backend.setattr(&context, file, &set, None, opened).await?;
                }
                Ok(())
            }
        }
    }

    /// Sets the modification time to that of the last change. A server that may not do so leaves the time of the replay.
    async fn set_modified(&self, file: &Handle, modified: Timestamp, server: &Credentials) {
        let set = SetAttributes { modified: Some(SetTime::To(modified)), ..SetAttributes::default() };
        let context = self.context(server.clone());
        let _ = self.backend.setattr(&context, file, &set, None, Authority::Opened).await;
    }
}
