//! Files under delegations for writing (RFC 8881 §10.4): written data stay in the cache after a close, until the server recalls the
//! delegation.
//!
//! A description that is released while its file has such data *lingers*: WRITEs are made for it. It is closed when the data are
//! stable, or when another description writes.

use std::pin::Pin;
use std::sync::Arc;

use super::open::Description;
use super::{Inode, Mount, Shared};
use crate::attributes::FileKind;
use crate::cache::attributes::version;
use crate::delegations::{CacheWork, Cached, ChangeEnd, DelegatedCache, Verdict};
use crate::errno::Errno;
use crate::results::FileHandle;

impl Inode {
    /// Returns whether written data may stay in the cache although a program closes the file, or unlocks it.
    pub(super) fn keeps_written(&self) -> bool {
        let Some(held) = self.client().delegation(&self.handle()) else { return false };
        let state = self.mount.shared.state.lock();
        let Some(known) = state.metadata.attributes.last_known(self.node.id) else { return false };
        let size = state.size(self.node.id, known.size);
        held.allows_unwritten(size, state.writes.unstable_bytes(self.node.id))
    }

    /// Waits until earlier data of this file are stable, unless no other client can read them before they are.
    pub(super) async fn sync_for_others(&self) {
        if self.keeps_written() {
            // Other programs of this client find such data in the cache, but those that bypassed it only at the server, which loses
            // them if it restarts.
            self.commit_uncached().await;
        } else {
            self.sync_data().await;
            // WRITEs of data that were dropped since may be under way, and the next holder's must follow them.
            self.writes_ended().await;
        }
    }

    /// Waits until the WRITEs have ended that are under way now.
    async fn writes_ended(&self) {
        let shared = &self.mount.shared;
        let ticket = shared.state.lock().writes.requests_ended(self.node.id);
        if let Some(ticket) = ticket {
            // The client has ended: there is nothing to wait for.
            let _ = shared.flusher.wait(ticket).await;
        }
    }

    /// Continues after a WRITE or COMMIT of this file: closes a lingering description whose data are stable.
    pub(super) fn written_back(&self) {
        if !self.node.opens.lock().lingers {
            return;
        }
        let mut state = self.mount.shared.state.lock();
        if state.writes.unstable_bytes(self.node.id) > 0 {
            if !state.writes.has_unacknowledged(self.node.id) {
                state.writes.commit(self.node.id);
                drop(state);
                self.mount.shared.flusher.raise();
            }
            return;
        }
        drop(state);
        // When the delegation ends, `write_back` closes it before.
        let handle = self.handle();
        let ended = self.client().under_write_delegation(&handle, || self.node.opens.lock().take_lingering());
        ended.flatten().into_iter().for_each(Description::close_later);
    }

    /// Closes the lingering description if its data are stable.
    async fn close_lingering(&self) {
        if self.unstable_bytes() > 0 {
            return;
        }
        let lingering = self.node.opens.lock().take_lingering();
        if let Some(description) = lingering {
            // No caller waits for it.
            let _ = description.close().await;
        }
    }

    /// Drops data that are not stable, unless no other client has changed the file.
    async fn check_revoked(&self) -> Verdict {
        let Some(writer) = self.node.opens.lock().writer.clone() else { return Verdict::Write };
        if self.unstable_bytes() == 0 {
            return Verdict::Write;
        }
        let valid = self.mount.shared.state.lock().metadata.attributes.valid(self.node.id);
        let started = self.mount.start();
        // Another client may have the lock.
        let has_lost_lock = writer.state.file.as_ref().is_some_and(|file| file.has_lost_lock());
        if let Ok(attributes) = self.client().get_attributes(&writer.caller, self.handle()).await {
            self.learn(started, attributes);
            if !has_lost_lock && valid == Some(version(&attributes)) {
                return Verdict::Write;
            }
        }
        self.mount.shared.state.lock().writes.discard(self.node.id, Errno::EIO);
        Verdict::Discard
    }
}

impl Description {
    /// Lets the released description linger if it is the writer, and its data may stay in the cache. Returns whether it does.
    pub(super) fn linger(self: &Arc<Self>) -> bool {
        let inode = &self.inode;
        if !self.is_writer() || inode.unstable_bytes() == 0 || !inode.keeps_written() {
            return false;
        }
        let lingers = inode.client().under_write_delegation(&inode.handle(), || {
            let mut opens = inode.node.opens.lock();
            let is_writer = opens.writer.as_ref().is_some_and(|writer| Arc::ptr_eq(writer, self));
            let lingers = is_writer && opens.hidden.is_none();
            if lingers {
                opens.lingers = true;
                opens.uncount(&self.state);
            }
            lingers
        });
        lingers == Some(true)
    }

    /// Closes the file in the background.
    pub(super) fn close_later(self: Arc<Self>) {
        let client = self.inode.client().clone();
        client.background().spawn_awaited(async move {
            // No caller waits for it.
            let _ = self.close().await;
        });
    }
}

impl Shared {
    /// Returns the object with this handle, if it is known.
    fn find(self: &Arc<Self>, handle: &FileHandle) -> Option<Inode> {
        let state = self.state.lock();
        let node = state.table.by_id(state.table.find(handle)?)?;
        drop(state);
        Some(Mount { shared: Arc::clone(self) }.inode_of(node))
    }
}

impl DelegatedCache for Shared {
    fn write_back(self: Arc<Self>, handle: FileHandle) -> CacheWork {
        Box::pin(async move {
            if let Some(inode) = self.find(&handle) {
                inode.sync_cached_data().await;
                // A truncation whose SETATTR is not sent yet has dropped data of which WRITEs may be under way: until they end, others
                // would find still older ones.
                self.writes_ended(handle).await;
            }
        })
    }

    fn close_unused(self: Arc<Self>, handle: FileHandle) -> CacheWork {
        Box::pin(async move {
            if let Some(inode) = self.find(&handle) {
                inode.close_lingering().await;
            }
        })
    }

    fn check_revoked(self: Arc<Self>, handle: FileHandle) -> Pin<Box<dyn Future<Output = Verdict> + Send>> {
        Box::pin(async move {
            match self.find(&handle) {
                Some(inode) => inode.check_revoked().await,
                None => Verdict::Write,
            }
        })
    }

    fn lock_lost(self: Arc<Self>, handle: &FileHandle) {
        let Some(inode) = self.find(handle) else { return };
        inode.forget_content();
        let mut state = self.state.lock();
        // The server refuses it, unless it was executed before.
        state.truncations.remove(&inode.node.id);
        if state.writes.unstable_bytes(inode.node.id) > 0 {
            state.writes.discard(inode.node.id, Errno::EIO);
        }
    }

    fn writes_ended(self: Arc<Self>, handle: FileHandle) -> CacheWork {
        Box::pin(async move {
            if let Some(inode) = self.find(&handle) {
                inode.writes_ended().await;
            }
        })
    }

    fn start_change(self: Arc<Self>, handle: &FileHandle) -> Option<ChangeEnd> {
        let change = self.find(handle)?.start_change();
        // The cache is the only one that needs the outcome.
        Some(Box::new(move |outcome| _ = change.end_changed(outcome)))
    }

    fn ended(&self, handle: &FileHandle) {
        let now = self.client.engine().now();
        let mut state = self.state.lock();
        let Some(file) = state.table.find(handle) else { return };
        let is_directory = state.table.by_id(file).is_some_and(|node| node.kind == FileKind::Directory);
        state.metadata.attributes.expire(file);
        if is_directory {
            state.metadata.attributes.pause_delegation(file, now);
        }
        state.outdate(file, is_directory);
    }

    fn names_changed(&self, directory: &FileHandle) {
        let mut state = self.state.lock();
        if let Some(file) = state.table.find(directory) {
            state.metadata.attributes.expire_unannounced(file);
        }
    }

    fn cached(&self, handle: &FileHandle) -> Option<Cached> {
        let state = self.state.lock();
        let file = state.table.find(handle)?;
        let known = state.metadata.attributes.last_known(file)?;
        let is_modified = state.writes.has_unacknowledged(file);
        let modified = state.kept_time(file).unwrap_or(known.mtime);
        Some(Cached { size: state.size(file, known.size), is_modified, accessed: known.atime, modified })
    }
}
