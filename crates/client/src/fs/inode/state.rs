//! The state of a mount, behind one lock that is never held during a request.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::access::AccessCache;
use super::table::Table;
use super::{Inode, Mount, Shared};
use crate::attributes::{Attributes, Changed, FileKind, Timestamp};
use crate::block_store::{BLOCK, FileVersion};
use crate::cache::FileId;
use crate::cache::attributes::{Invalidate, OwnChange, Started};
use crate::cache::limiter::{Demand, Limiter, Pressure};
use crate::cache::metadata::Metadata;
use crate::client::Client;
use crate::config::Caller;
use crate::delegations::Held;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{DirEntry, FileHandle, Object};
use crate::write::WriteBehind;

pub(super) struct State {
    pub(super) client: Client,
    pub(super) table: Table,
    pub(super) metadata: Metadata,
    pub(super) writes: WriteBehind,
    pub(super) access: AccessCache,
    /// Readers that wait for READs of others, by file.
    pub(super) fetch_waiters: HashMap<FileId, Vec<Waker>>,
    /// Truncations under way: the new sizes.
    pub(super) truncations: HashMap<FileId, u64>,
    /// Has copies of attributes and names.
    pub(super) observer: Option<Observer>,
}

/// An object of which copies of attributes became invalid before their time, as [`Inode::attributes_usable_for`] returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The object.
    pub file: FileId,
    /// Whether copies of the names in it became invalid too ([`Inode::names_usable_for`]).
    pub names: bool,
}

/// A function that the cache calls for each outdated object. The cache holds its locks: the function must not call the client.
pub(super) type Observer = Box<dyn Fn(Outdated) + Send + Sync>;

impl State {
    /// Drops invalid cached data.
    pub(super) fn invalidate(&mut self, file: FileId, invalidate: Invalidate) {
        if invalidate.access {
            self.access.forget(file);
        }
        if invalidate.replaced {
            self.writes.discard(file, Errno::ESTALE);
        }
        if invalidate.data {
            self.writes.pages_mut().invalidate(file);
        }
    }

    /// Stores attributes from the reply to a request that changed nothing.
    pub(super) fn update(&mut self, file: FileId, started: Started, attributes: Attributes, now: Duration) {
        let is_known = self.metadata.attributes.last_known(file).is_some();
        let invalidate = self.metadata.attributes.update(file, started, attributes, now);
        self.invalidate(file, invalidate);
        if is_known && invalidate != Invalidate::default() {
            self.outdate(file, invalidate.directory);
        }
    }

    /// Tells the observer that another client has changed an object, or may do so now.
    pub(super) fn outdate(&self, file: FileId, names: bool) {
        if let Some(observer) = &self.observer {
            observer(Outdated { file, names });
        }
    }

    /// Returns the size that programs see: the server's, extended by data that are not written back yet.
    pub(super) fn size(&self, file: FileId, known: u64) -> u64 {
        let known = match self.truncations.get(&file) {
            Some(size) => known.min(*size),
            None => known,
        };
        known.max(self.writes.unstable_end(file).unwrap_or(0))
    }

    /// Returns what programs see after attributes from a reply were stored. Those of a late reply may be obsolete: an own change has
    /// ended since its request was sent.
    pub(super) fn newest(&self, file: FileId, replied: Attributes) -> Attributes {
        self.seen(file, self.metadata.attributes.newest(file).copied().unwrap_or(replied))
    }

    /// Returns attributes with the size and the times that programs see.
    pub(super) fn seen(&self, file: FileId, attributes: Attributes) -> Attributes {
        let attributes = Attributes { size: self.size(file, attributes.size), ..attributes };
        match self.kept_time(file) {
            Some(mtime) => Attributes { mtime, ctime: attributes.ctime.max(mtime), ..attributes },
            None => attributes,
        }
    }

    /// Returns the time of a file's last change, if this client keeps it (RFC 9754 §5).
    pub(super) fn kept_time(&self, file: FileId) -> Option<Timestamp> {
        if !self.client.config().caches.delegations {
            return None;
        }
        self.client.kept_time(&self.table.by_id(file)?.handle)
    }

    /// Returns attributes that can be used without asking the server. `held` is the file's delegation.
    pub(super) fn attributes(&self, file: FileId, held: Option<Held>, now: Duration) -> Option<Attributes> {
        let cache = &self.metadata.attributes;
        let delegated = || cache.get_delegated(file, held?.id);
        cache.get(file, now).or_else(delegated).map(|attributes| self.seen(file, *attributes))
    }

    /// Returns the permissions of a caller, if they are known. `held` is the file's delegation.
    pub(super) fn rights(
        &self,
        file: FileId,
        held: Option<Held>,
        caller: &Caller,
        asked: u32,
        now: Duration,
    ) -> Option<u32> {
        let cache = &self.metadata.attributes;
        let is_delegated = || held.is_some_and(|held| cache.get_delegated(file, held.id).is_some());
        self.access.get(file, caller, asked).filter(|_| cache.is_fresh(file, now) || is_delegated())
    }

    /// Releases cache memory if the limiter demands it.
    pub(super) fn give_up(&mut self, limiter: &Limiter) {
        if limiter.pressure() == Pressure::None {
            return;
        }
        let demand = limiter.demand();
        if demand.metadata > 0 {
            self.metadata.give_up(demand.metadata);
        }
        if demand != Demand::default() {
            self.writes.give_up(demand);
        }
    }
}

impl Mount {
    pub(super) fn now(&self) -> Duration {
        self.client().engine().now()
    }

    /// Returns the inode of an object from the reply to the request `started`, with its attributes.
    pub(in crate::fs) fn found(&self, object: &Object, started: Started) -> (Inode, Attributes) {
        let now = self.now();
        let mut state = self.shared.state.lock();
        let node = state.node(object);
        state.update(node.id, started, object.attributes, now);
        let attributes = state.newest(node.id, object.attributes);
        drop(state);
        (self.inode_of(node), attributes)
    }

    /// Makes the caches fetch the attributes of these objects before they use cached values again.
    pub(in crate::fs) fn expire(&self, handles: &HashSet<FileHandle>) {
        let mut state = self.shared.state.lock();
        for handle in handles {
            if let Some(file) = state.table.find(handle) {
                state.metadata.attributes.expire(file);
            }
        }
    }

    /// Gives the files of a listing the sizes that programs see.
    pub(in crate::fs) fn correct_sizes(&self, entries: &mut [DirEntry]) {
        let state = self.shared.state.lock();
        for object in entries.iter_mut().filter_map(|entry| entry.object.as_mut()) {
            if let Some(file) = state.table.find(&object.handle) {
                object.attributes = state.seen(file, object.attributes);
            }
        }
    }

    /// Notes that a request that returns attributes is sent now.
    pub(in crate::fs) fn start(&self) -> Started {
        let now = self.now();
        self.shared.state.lock().metadata.attributes.start(now)
    }
}

impl State {
    /// Returns the node of an object. Pages and attributes of nodes evicted for it are dropped.
    pub(super) fn node(&mut self, object: &Object) -> Arc<super::table::Node> {
        let Self { table, writes, .. } = self;
        let (node, forgotten) =
            table.get(object.handle, object.attributes.kind, |file| writes.unstable_bytes(file) == 0);
        for file in forgotten {
            self.writes.pages_mut().invalidate(file);
            self.metadata.attributes.remove(file);
        }
        node
    }
}

/// A change by this client that is in flight. If its outcome stays unknown, the caches assume that anything may have happened.
pub(super) struct Change {
    shared: Arc<Shared>,
    change: Option<OwnChange>,
    file: FileId,
}

impl Inode {
    /// Notes that a request that changes this object is sent now.
    pub(super) fn start_change(&self) -> Change {
        let shared = Arc::clone(&self.mount.shared);
        let now = self.mount.now();
        let change = shared.state.lock().metadata.attributes.start_change(self.node.id, now);
        Change { shared, change: Some(change), file: self.node.id }
    }
}

impl Inode {
    /// Returns the version to which data belong that are read now, if there is a block store and the version is certain.
    pub(super) fn block_version(&self, state: &State) -> Option<Arc<FileVersion>> {
        self.mount.shared.blocks.as_ref()?;
        let attributes = state.metadata.attributes.settled(self.node.id)?;
        Some(Arc::new(self.version_of(attributes)))
    }

    /// Returns whether attributes from the reply to a READ show this version still.
    pub(super) fn has_version(&self, version: Option<&FileVersion>, attributes: Option<&Attributes>) -> bool {
        version.zip(attributes).is_some_and(|(version, attributes)| *version == self.version_of(attributes))
    }

    fn version_of(&self, attributes: &Attributes) -> FileVersion {
        let config = self.client().config();
        FileVersion::new((&config.server, config.port), &self.node.handle, attributes)
    }

    /// Returns the maximum number of bytes of a READ for the cache: whole blocks, if they are stored.
    pub(super) fn read_step(&self) -> u64 {
        let most = u64::from(self.mount.info().read_max);
        match self.mount.shared.blocks {
            Some(_) => (most / BLOCK * BLOCK).max(BLOCK),
            None => most,
        }
    }

    /// Drops cached content, and expires attributes: others may have changed the file in a way that its times do not show.
    pub(super) fn forget_content(&self) {
        let mut state = self.mount.shared.state.lock();
        let invalidate = state.metadata.attributes.begin_epoch(self.node.id);
        state.invalidate(self.node.id, invalidate);
    }

    /// Drops cached content if this client has a change in flight and `attributes`, from the reply to an OPEN or LOCK, differ from the
    /// cached ones: they do not show whether other clients have changed the file too, and the opener must see such changes.
    pub(super) fn forget_if_changing(&self, attributes: &Attributes) {
        let is_changing = {
            let state = self.mount.shared.state.lock();
            state.metadata.attributes.is_changing(self.node.id, attributes)
        };
        if is_changing {
            self.forget_content();
        }
    }

    /// Returns whether own changes are in flight that may hide one by another client.
    pub(super) fn is_undecided(&self) -> bool {
        self.mount.shared.state.lock().metadata.attributes.is_undecided(self.node.id)
    }

    /// Drops cached content of a range, except data that are not stable.
    pub(super) fn drop_clean_data(&self, range: Range<u64>) {
        self.mount.shared.state.lock().writes.pages_mut().invalidate_range(self.node.id, &range);
    }
}

impl Change {
    /// Notes the effect of the request; `None` if it certainly had none.
    pub(super) fn end(mut self, changed: Option<Changed>) {
        let shared = Arc::clone(&self.shared);
        self.end_in(&mut shared.state.lock(), changed);
    }

    /// Notes that the request failed. A server that refused it changed nothing.
    pub(super) fn end_failed(self, error: &OpError) {
        let is_refused = matches!(error, OpError::Status(_) | OpError::Invalid(..));
        if !is_refused {
            self.give_back();
        }
        if error.is_stale() {
            self.shared.state.lock().metadata.attributes.expire(self.file);
        }
        self.end(if is_refused { None } else { Some(Changed::default()) });
    }

    /// Begins the return of a directory's delegation: the server may execute the change later, and would not recall it.
    fn give_back(&self) {
        let now = self.shared.client.engine().now();
        let mut state = self.shared.state.lock();
        let node = state.table.by_id(self.file).filter(|node| node.kind == FileKind::Directory);
        let Some(node) = node else { return };
        state.metadata.attributes.pause_delegation(self.file, now);
        drop(state);
        self.shared.client.begin_give_back(&node.handle);
    }

    /// The request returned its effect, or failed.
    pub(super) fn end_changed(self, outcome: Result<Changed, OpError>) -> Result<(), OpError> {
        match outcome {
            Ok(changed) => {
                self.end(Some(changed));
                Ok(())
            }
            Err(error) => {
                self.end_failed(&error);
                Err(error)
            }
        }
    }

    /// As [`Self::end`], under the lock.
    pub(super) fn end_in(&mut self, state: &mut State, changed: Option<Changed>) {
        let Some(change) = self.change.take() else { return };
        let now = self.shared.client.engine().now();
        let is_known = state.metadata.attributes.last_known(self.file).is_some();
        let invalidate = state.metadata.attributes.end_change(change, changed, now);
        state.invalidate(self.file, invalidate);
        // Changes of this client alone outdate no copy: the caller updates its own.
        if is_known && (invalidate.data || invalidate.directory || invalidate.replaced) {
            state.outdate(self.file, invalidate.directory);
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.change.is_some() {
            self.give_back();
            let shared = Arc::clone(&self.shared);
            self.end_in(&mut shared.state.lock(), Some(Changed::default()));
        }
    }
}
