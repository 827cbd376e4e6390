//! Attributes of files and directories, and whether their cached content is still valid.
//!
//! - **Timeouts** are those of the Linux kernel (nfs(5): `acregmin`, `acregmax`, `acdirmin`, `acdirmax`, `actimeo`, `noac`).
//! - **Late replies**: a request takes a [`Started`] when it is sent. A reply does not replace attributes that arrived after
//!   its request was sent, unless its change attribute or ctime is newer.
//! - **Weak cache consistency** (RFC 1813 §2.6): an own change invalidates nothing if the attributes before it are
//!   those that the cache knows. Several own changes may be in flight, and their replies may arrive in any order: the
//!   cache joins them into a chain, and decides when the last one ends.
//! - If a server of version 3 sends no attributes from before the change, a different mtime or size invalidates.
//! - Version 2 never has them: an own WRITE is taken as the only change, unless a change by others is known
//!   ([`Before::Assumed`]).
//!
//! All cached content of a file has an [`Epoch`]. The epoch does not change while only own changes happen.

use std::collections::VecDeque;
use std::time::Duration;

use super::FileId;
use super::bounded::{Bounded, Value};
use super::limiter::User;
use crate::attributes::{Attributes, Before, Changed, FileKind};

#[cfg(test)]
mod tests;

/// Bytes that are accounted for one file's attributes.
pub const ENTRY_BYTES: u64 = 384;
/// Maximum number of own changes of one file whose place in the chain is not known yet; more invalidate.
pub const LINKS_MAX: usize = 1024;

/// The time within which a directory's attributes must be requested twice until a delegation of the directory is worth its requests.
/// With the default timeouts, that is a directory which was used over two of them.
pub const DELEGATION_WORTH: Duration = Duration::from_secs(180);
/// The time without a request for a delegation of a directory after one was requested, or has ended: other clients may be changing the
/// directory.
pub const DELEGATION_PAUSE: Duration = Duration::from_secs(120);

/// Maximum number of remembered states that own changes in flight have replaced: more than the requests in flight.
const PASSED_MAX: usize = 256;

/// Returns the identity of this state of an object, which is the `before` of the next change.
pub fn version(attributes: &Attributes) -> Before {
    match attributes.change {
        Some(change) => Before::Change(change),
        None => Before::Weak { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime },
    }
}

/// Returns true if the content may differ. A new ctime alone is a change of attributes.
fn content_differs(one: &Before, other: &Before) -> bool {
    match (one, other) {
        (Before::Weak { size, mtime, .. }, Before::Weak { size: other_size, mtime: other_mtime, .. }) => {
            (size, mtime) != (other_size, other_mtime)
        }
        _ => one != other,
    }
}

/// Returns true if the object changed after `other`.
fn is_newer(attributes: &Attributes, other: &Attributes) -> bool {
    match (attributes.change, other.change) {
        (Some(change), Some(other)) => change > other,
        _ => attributes.ctime > other.ctime,
    }
}

/// Returns true if these cannot be of the same object: a handle that a broken server reuses.
fn is_other_object(attributes: &Attributes, other: &Attributes) -> bool {
    (attributes.kind, attributes.fsid, attributes.fileid) != (other.kind, other.fsid, other.fileid)
}

/// Timeouts with the kernel's option names. Cached attributes are used for that time without a request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Minimum for everything but directories (default 3 s).
    pub acregmin: Duration,
    /// Maximum for everything but directories (default 60 s).
    pub acregmax: Duration,
    /// Minimum for directories (default 30 s).
    pub acdirmin: Duration,
    /// Maximum for directories (default 60 s).
    pub acdirmax: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { acregmin: seconds(3), acregmax: seconds(60), acdirmin: seconds(30), acdirmax: seconds(60) }
    }
}

impl Timeouts {
    /// `actimeo=`: one value for all four.
    pub fn actimeo(timeout: Duration) -> Self {
        Self { acregmin: timeout, acregmax: timeout, acdirmin: timeout, acdirmax: timeout }
    }

    /// `noac`: attributes are never used without a request to the server.
    pub fn noac() -> Self {
        Self::actimeo(Duration::ZERO)
    }

    /// Returns the minimum and the maximum, which is never below the minimum.
    fn of(&self, kind: FileKind) -> (Duration, Duration) {
        let (min, max) = match kind {
            FileKind::Directory => (self.acdirmin, self.acdirmax),
            _ => (self.acregmin, self.acregmax),
        };
        (min, max.max(min))
    }
}

/// The time at which a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the reply needs it"]
pub struct Started {
    generation: u64,
    at: Duration,
}

impl Started {
    /// Returns whether the request was sent after `time`.
    pub fn is_after(self, time: Duration) -> bool {
        self.at > time
    }
}

/// An own change in flight. It ends with [`AttributeCache::end_change`].
#[derive(Debug)]
#[must_use = "a change that never ends keeps the cache undecided"]
pub struct OwnChange {
    file: FileId,
    started: Started,
}

/// Identifies a period in which no other client changed an object, as far as this client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(u64);

#[cfg(test)]
impl Epoch {
    /// Returns an epoch for tests of other caches.
    pub(super) fn for_test(epoch: u64) -> Self {
        Self(epoch)
    }
}

/// The caches that the caller must invalidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "stale caches must be dropped"]
pub struct Invalidate {
    /// Cached file data, except dirty data.
    pub data: bool,
    /// Names and listings of a directory.
    pub directory: bool,
    /// Results of ACCESS.
    pub access: bool,
    /// The handle now names another object. Open files fail with ESTALE.
    pub replaced: bool,
}

impl Invalidate {
    fn content(kind: FileKind) -> Self {
        let directory = kind == FileKind::Directory;
        Self { data: !directory, directory, access: true, replaced: false }
    }
}

/// The attributes of many files, bounded by bytes.
pub struct AttributeCache {
    entries: Bounded<FileId, Entry>,
    timeouts: Timeouts,
    generation: u64,
    last_epoch: u64,
}

struct Entry {
    attributes: Attributes,
    /// When the request for the attributes was sent.
    checked_at: Duration,
    timeout: Duration,
    timeout_since: Duration,
    /// Set when the object must be revalidated.
    expired: bool,
    /// Set when an own change made the attributes obsolete.
    outdated: bool,
    /// The number of the delegation under which they were read: while it is held, they need no revalidation.
    delegation: Option<u64>,
    /// Of a directory: the last request for its attributes because of their age.
    revalidation: Option<Started>,
    /// Of a directory: no delegation is requested before.
    undelegated_until: Duration,
    /// The generation in which attributes or versions were last accepted.
    generation: u64,
    epoch: Epoch,
    /// The state that the cached content belongs to.
    valid: Before,
    /// The newest state that the server has reported.
    latest: Before,
    /// Own changes in flight.
    changes: u32,
    /// Ended own changes that do not join `valid` yet.
    links: Vec<(Before, Before)>,
    /// States that own changes in flight have replaced. Version 4 reads the change attribute just before a WRITE, so that
    /// concurrent WRITEs may report the same one.
    passed: VecDeque<Before>,
}

impl Value for Entry {
    fn is_pinned(&self) -> bool {
        self.changes > 0
    }
}

impl AttributeCache {
    /// Creates a cache of at most `capacity` bytes, which are reserved for `user`.
    pub fn new(user: User, capacity: u64, timeouts: Timeouts) -> Self {
        Self { entries: Bounded::new(user, capacity, ENTRY_BYTES), timeouts, generation: 0, last_epoch: 0 }
    }

    /// Returns attributes that may be used without a request to the server.
    pub fn get(&self, file: FileId, now: Duration) -> Option<&Attributes> {
        let entry = self.entries.get(&file)?;
        (entry.is_fresh(now) && !entry.outdated).then_some(&entry.attributes)
    }

    /// Returns whether cached content of the file, such as a directory's names, may be used without a request to the server. An own
    /// change whose reply had no attributes makes them unusable, but not the content.
    pub fn is_fresh(&self, file: FileId, now: Duration) -> bool {
        self.entries.get(&file).is_some_and(|entry| entry.is_fresh(now))
    }

    /// Returns the time for which [`Self::get`] returns attributes, if nothing happens.
    pub fn usable_for(&self, file: FileId, now: Duration) -> Duration {
        let entry = self.entries.get(&file).filter(|entry| !entry.outdated);
        entry.map_or(Duration::ZERO, |entry| entry.fresh_for(now))
    }

    /// Returns the time for which [`Self::is_fresh`] is true, if nothing happens.
    pub fn fresh_for(&self, file: FileId, now: Duration) -> Duration {
        self.entries.get(&file).map_or(Duration::ZERO, |entry| entry.fresh_for(now))
    }

    /// Returns attributes that were read under the delegation with this number. They may be used while it is held.
    pub fn get_delegated(&self, file: FileId, delegation: u64) -> Option<&Attributes> {
        let entry = self.entries.get(&file)?;
        (entry.is_delegated(delegation) && !entry.outdated).then_some(&entry.attributes)
    }

    /// Returns whether cached content of the file, such as a directory's names, may be used while the delegation with this number is
    /// held.
    pub fn is_delegated(&self, file: FileId, delegation: u64) -> bool {
        self.entries.get(&file).is_some_and(|entry| entry.is_delegated(delegation))
    }

    /// Notes that the attributes were read under the delegation with this number, which no other delegation has.
    pub fn delegate(&mut self, file: FileId, delegation: u64) {
        self.entries.change(&file, |entry| {
            // While own changes are in flight, it is not known whether others have changed the directory before the delegation.
            let is_undecided = entry.attributes.kind == FileKind::Directory && entry.changes > 0;
            if !is_undecided {
                entry.delegation = Some(delegation);
            }
        });
    }

    /// Notes that the attributes of a directory are requested again by `started`. Returns whether a delegation is to be requested with them: they
    /// have been requested before within [`DELEGATION_WORTH`], and not within [`DELEGATION_PAUSE`] after another such request.
    pub fn revalidate_directory(&mut self, directory: FileId, started: Started) -> bool {
        let now = started.at;
        let is_worth = self.entries.change(&directory, |entry| {
            // Requests at the same time count once: the last one must have been answered.
            let last = entry.revalidation.replace(started);
            let last = last.filter(|last| entry.generation > last.generation);
            let is_again = last.is_some_and(|last| now < last.at.saturating_add(DELEGATION_WORTH));
            let is_worth = is_again && now >= entry.undelegated_until;
            if is_worth {
                entry.undelegated_until = now.saturating_add(DELEGATION_PAUSE);
            }
            is_worth
        });
        is_worth == Some(true)
    }

    /// Notes that the delegation of a directory has ended: for some time no other one is requested.
    pub fn pause_delegation(&mut self, directory: FileId, now: Duration) {
        let until = now.saturating_add(DELEGATION_PAUSE);
        self.entries.change(&directory, |entry| entry.undelegated_until = until);
    }

    /// Expires the attributes of a directory of which a name was changed, unless that change was announced by
    /// [`Self::start_change`].
    pub fn expire_unannounced(&mut self, directory: FileId) {
        self.entries.change(&directory, |entry| entry.expired |= entry.changes == 0);
    }

    /// Returns the time for which attributes may be used by others that have just got them.
    pub fn timeout(&self, file: FileId) -> Duration {
        self.entries.get(&file).map_or(Duration::ZERO, |entry| entry.timeout)
    }

    /// Returns the last known attributes, of any age.
    pub fn last_known(&self, file: FileId) -> Option<&Attributes> {
        self.entries.get(&file).map(|entry| &entry.attributes)
    }

    /// Returns the newest attributes; `None` if an own change that returned none has made them obsolete.
    pub fn newest(&self, file: FileId) -> Option<&Attributes> {
        self.entries.get(&file).filter(|entry| !entry.outdated).map(|entry| &entry.attributes)
    }

    /// Returns the state of a file to which its cached content belongs.
    pub fn valid(&self, file: FileId) -> Option<Before> {
        self.entries.get(&file).map(|entry| entry.valid)
    }

    /// Returns the attributes of the state to which data belong that are read now: the newest ones, while no own change is in flight.
    pub fn settled(&self, file: FileId) -> Option<&Attributes> {
        let entry = self.entries.get(&file)?;
        let is_settled = entry.changes == 0 && !entry.outdated && !entry.expired;
        is_settled.then_some(&entry.attributes)
    }

    /// Returns whether own changes are in flight, so that attributes which are not those of the cached content do not show whether others
    /// have changed the file.
    pub fn is_changing(&self, file: FileId, attributes: &Attributes) -> bool {
        let undecided = |entry: &Entry| entry.changes > 0 && entry.valid != version(attributes);
        self.entries.get(&file).is_some_and(undecided)
    }

    /// Returns whether own changes are in flight, and the newest state is not that of the cached content: others may have changed it.
    pub fn is_undecided(&self, file: FileId) -> bool {
        self.entries.get(&file).is_some_and(|entry| entry.changes > 0 && entry.valid != entry.latest)
    }

    /// Returns the epoch of a file. Content cached in another epoch is not valid.
    pub fn epoch(&self, file: FileId) -> Option<Epoch> {
        self.entries.get(&file).map(|entry| entry.epoch)
    }

    /// Notes that a request that returns attributes is sent.
    pub fn start(&self, now: Duration) -> Started {
        Started { generation: self.generation, at: now }
    }

    /// Notes that this client sends a request that changes `file`: WRITE, SETATTR, or CREATE, REMOVE, RENAME in a directory.
    pub fn start_change(&mut self, file: FileId, now: Duration) -> OwnChange {
        self.entries.change(&file, |entry| entry.changes += 1);
        OwnChange { file, started: self.start(now) }
    }

    /// Stores the attributes in the reply to a request that changed nothing.
    pub fn update(
        &mut self,
        file: FileId,
        started: Started,
        attributes: Attributes,
        now: Duration,
    ) -> Invalidate {
        let generation = self.next_generation();
        let timeouts = self.timeouts;
        let changed = self.entries.change(&file, |entry| {
            let mut invalidate = entry.accept(generation, started, attributes);
            entry.adjust_timeout(timeouts, now);
            merge(&mut invalidate, entry.decide(timeouts, now));
            (invalidate, entry.attributes.kind)
        });
        match changed {
            Some((invalidate, kind)) => self.new_epoch_if_invalid(file, kind, invalidate),
            None => self.insert(file, started, attributes, now),
        }
    }

    /// Notes that this client's change ended. `changed` is empty if its effect is unknown, and `None` if it certainly changed nothing.
    pub fn end_change(&mut self, change: OwnChange, changed: Option<Changed>, now: Duration) -> Invalidate {
        let OwnChange { file, started } = change;
        let generation = self.next_generation();
        let timeouts = self.timeouts;
        let known = self.entries.change(&file, |entry| {
            // The entry may be newer than the change if it was evicted meanwhile.
            entry.changes = entry.changes.saturating_sub(1);
            let mut invalidate = match changed {
                Some(changed) => entry.end_change(generation, started, changed),
                None => Invalidate::default(),
            };
            merge(&mut invalidate, entry.decide(timeouts, now));
            (invalidate, entry.attributes.kind)
        });
        match (known, changed.and_then(|changed| changed.after)) {
            (Some((invalidate, kind)), _) => self.new_epoch_if_invalid(file, kind, invalidate),
            (None, Some(attributes)) => self.insert(file, started, attributes, now),
            (None, None) => Invalidate { data: true, directory: true, access: true, replaced: false },
        }
    }

    /// Expires the attributes: they must be fetched before they are used again, as at open (close-to-open consistency).
    pub fn expire(&mut self, file: FileId) {
        self.entries.change(&file, |entry| entry.expired = true);
    }

    /// Begins an epoch: others may have changed the content, whatever the attributes say. They must be fetched before they are used
    /// again.
    pub fn begin_epoch(&mut self, file: FileId) -> Invalidate {
        self.last_epoch += 1;
        let epoch = Epoch(self.last_epoch);
        self.entries.change(&file, |entry| {
            entry.expired = true;
            entry.epoch = epoch;
        });
        Invalidate { data: true, ..Invalidate::default() }
    }

    /// Forgets a file.
    pub fn remove(&mut self, file: FileId) {
        self.entries.remove(&file);
    }

    /// Releases attributes of at least `bytes`, if it has that many. Returns the bytes released.
    pub fn reclaim(&mut self, bytes: u64) -> u64 {
        self.entries.reclaim(bytes)
    }

    /// Returns the bytes accounted.
    pub fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores attributes. Without earlier attributes, the validity of cached content is unknown.
    fn insert(
        &mut self,
        file: FileId,
        started: Started,
        attributes: Attributes,
        now: Duration,
    ) -> Invalidate {
        self.last_epoch += 1;
        let version = version(&attributes);
        let entry = Entry {
            attributes,
            checked_at: started.at,
            timeout: self.timeouts.of(attributes.kind).0,
            timeout_since: now,
            expired: false,
            outdated: false,
            delegation: None,
            revalidation: None,
            undelegated_until: Duration::ZERO,
            generation: self.generation,
            epoch: Epoch(self.last_epoch),
            valid: version,
            latest: version,
            changes: 0,
            links: Vec::new(),
            passed: VecDeque::new(),
        };
        self.entries.insert(file, entry, ENTRY_BYTES);
        Invalidate::content(attributes.kind)
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    fn new_epoch_if_invalid(
        &mut self,
        file: FileId,
        kind: FileKind,
        mut invalidate: Invalidate,
    ) -> Invalidate {
        if invalidate.replaced {
            merge(&mut invalidate, Invalidate::content(kind));
        }
        if invalidate.data || invalidate.directory {
            self.last_epoch += 1;
            let epoch = Epoch(self.last_epoch);
            self.entries.change(&file, |entry| entry.epoch = epoch);
        }
        invalidate
    }
}

impl Entry {
    /// Stores attributes, unless the reply is late.
    fn accept(&mut self, generation: u64, started: Started, attributes: Attributes) -> Invalidate {
        let late = self.generation > started.generation;
        if late && !is_newer(&attributes, &self.attributes) {
            return Invalidate::default();
        }
        let replaced = is_other_object(&attributes, &self.attributes);
        let rights = |attributes: &Attributes| (attributes.mode, attributes.uid, attributes.gid);
        let access = rights(&attributes) != rights(&self.attributes);
        self.attributes = attributes;
        self.latest = version(&attributes);
        self.checked_at = started.at;
        (self.expired, self.outdated) = (false, false);
        self.generation = generation;
        Invalidate { access, replaced, ..Invalidate::default() }
    }

    fn end_change(&mut self, generation: u64, started: Started, changed: Changed) -> Invalidate {
        // The attributes were read after the change, and another client's may have come between.
        let after = changed.change_after.map(Before::Change).or(changed.after.as_ref().map(version));
        if let (Some(Before::Assumed), Some(attributes)) = (changed.before, changed.after) {
            // Unless a change by others is known already.
            let is_valid = self.valid == self.latest;
            let is_longer =
                attributes.size > self.attributes.size && !is_newer(&self.attributes, &attributes);
            // Of writes within a microsecond, the unit of version 2's times, the one after which the file is longer is later.
            let generation_before = if is_longer { self.generation } else { started.generation };
            let started = Started { generation: generation_before, ..started };
            let invalidate = self.accept(generation, started, attributes);
            if is_valid {
                self.valid = self.latest;
            }
            return invalidate;
        }
        if let (Some(before), Some(after)) = (changed.before, after) {
            self.join(before, after);
        }
        match (changed.after, after) {
            (Some(attributes), _) => self.accept(generation, started, attributes),
            (None, after) => {
                // The cached attributes are older than the change.
                self.outdated = true;
                self.expired |= after.is_none();
                self.generation = generation;
                if let Some(after) = after.filter(|after| is_later(after, &self.latest)) {
                    self.latest = after;
                }
                Invalidate::default()
            }
        }
    }

    /// Advances the valid state along the chain of own changes.
    fn join(&mut self, before: Before, after: Before) {
        if !self.continues(&before) {
            if self.links.len() < LINKS_MAX {
                self.links.push((before, after));
            }
            return;
        }
        self.advance(before, after);
        while let Some(index) = self.links.iter().position(|(before, _)| self.continues(before)) {
            let (before, after) = self.links.swap_remove(index);
            self.advance(before, after);
        }
    }

    /// Returns whether a change from `before` continues the chain of own changes.
    fn continues(&self, before: &Before) -> bool {
        *before == self.valid || (matches!(before, Before::Change(_)) && self.passed.contains(before))
    }

    fn advance(&mut self, before: Before, after: Before) {
        if before != self.valid && !is_later(&after, &self.valid) {
            return;
        }
        if self.passed.len() == PASSED_MAX {
            self.passed.pop_front();
        }
        self.passed.push_back(self.valid);
        self.valid = after;
    }

    fn is_delegated(&self, delegation: u64) -> bool {
        self.delegation == Some(delegation) && !self.expired
    }

    fn is_fresh(&self, now: Duration) -> bool {
        !self.fresh_for(now).is_zero()
    }

    fn fresh_for(&self, now: Duration) -> Duration {
        if self.expired {
            return Duration::ZERO;
        }
        self.checked_at.saturating_add(self.timeout).saturating_sub(now)
    }

    /// Decides whether the content is valid, once no own change is in flight.
    fn decide(&mut self, timeouts: Timeouts, now: Duration) -> Invalidate {
        if self.changes > 0 {
            return Invalidate::default();
        }
        self.links.clear();
        self.passed.clear();
        if self.valid == self.latest {
            return Invalidate::default();
        }
        let content = content_differs(&self.valid, &self.latest);
        self.valid = self.latest;
        self.timeout = timeouts.of(self.attributes.kind).0;
        self.timeout_since = now;
        if content {
            Invalidate::content(self.attributes.kind)
        } else {
            // An ACL changes only the ctime.
            Invalidate { access: true, ..Invalidate::default() }
        }
    }

    /// Like the kernel: attributes that are unchanged after their timeout get twice the time.
    fn adjust_timeout(&mut self, timeouts: Timeouts, now: Duration) {
        if now >= self.timeout_since.saturating_add(self.timeout) {
            let (_, max) = timeouts.of(self.attributes.kind);
            self.timeout = self.timeout.saturating_mul(2).min(max);
            self.timeout_since = now;
        }
    }
}

fn is_later(version: &Before, than: &Before) -> bool {
    match (version, than) {
        (Before::Change(version), Before::Change(than)) => version > than,
        (Before::Weak { ctime, .. }, Before::Weak { ctime: than, .. }) => ctime >= than,
        _ => true,
    }
}

fn merge(into: &mut Invalidate, other: Invalidate) {
    into.data |= other.data;
    into.directory |= other.directory;
    into.access |= other.access;
    into.replaced |= other.replaced;
}
