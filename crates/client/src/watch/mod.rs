//! Changes of a tree, as events.
//!
//! A [`Watch`] reads a tree once, and remembers names, handles and attributes. Where the server has delegations of directories with
//! notifications (RFC 8881 §10.9), it tells of changes of names at once. Everything is compared once in each interval too: attributes
//! of files have no notifications, and other servers have none at all. A directory with many files, and each directory of a version
//! without compounds, is compared by a listing; others by GETATTR of the directory and its files, many in a compound, and by a listing
//! only if the directory has changed.
//!
//! Changes that are found together are reported together: an object that is gone at one place and new at another was renamed. What
//! has happened twice between two looks is reported once.

mod event;
mod tree;

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use protocol::nfs4::types::Status;

use self::event::Seen;
pub use self::event::{Change, Event, Notice, Report};
use self::tree::{Name, Round, Tree};
use crate::attributes::Attributes;
use crate::directory_watches::{DirectoryEvent, DirectoryWatch};
use crate::error::OpError;
use crate::fs::FileSystem;
use crate::results::{FileHandle, Object};

/// Directories that are listed together.
const LISTED_TOGETHER: usize = 256;
/// Objects whose attributes are asked for together.
const ASKED_TOGETHER: usize = 4096;
/// Entries from which a directory is compared by a listing: then that has fewer requests.
const LISTED_FROM: usize = 16;
/// Maximum number of directories of which the server is asked to tell changes.
const NOTIFIED_MAX: usize = 8192;
/// The time until a server that has not delegated a directory is asked again.
const RETRY: Duration = Duration::from_secs(30);
/// The time in which notifications gather, so that the two of a rename between directories come together.
const GATHER: Duration = Duration::from_millis(20);
/// The time without an answer after which this is reported.
const SILENCE: Duration = Duration::from_secs(10);
/// Entries after which a scan reports how far it is.
const PROGRESS: usize = 100_000;

/// Parameters of a watch.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The time between two comparisons.
    pub interval: Duration,
    /// Directories more than this many levels below the first are not watched.
    pub depth_max: usize,
    /// Maximum number of entries.
    pub entries_max: usize,
    /// Whether the server may be asked to tell of changes.
    pub notifications: bool,
}

/// Why a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchError {
    /// The directory itself cannot be read any longer.
    Root(OpError),
    /// The tree has more entries than allowed.
    TooManyEntries,
    /// A request failed as a whole.
    Failed(OpError),
}

/// A watch of a tree.
pub struct Watch {
    fs: FileSystem,
    settings: Settings,
    tree: Tree,
    /// Whether the server has delegations of directories, as far as is known.
    has_notifications: bool,
    notices: Vec<Notice>,
    is_first: bool,
    reported: usize,
}

impl Watch {
    /// Creates a watch of the directory `start`.
    #[must_use]
    pub fn new(fs: FileSystem, start: &Object, settings: Settings) -> Self {
        let has_sessions = fs.client().version().minor().is_some_and(|minor| minor > 0);
        let tree = Tree::new(start.handle, settings.depth_max);
        let has_notifications = settings.notifications && has_sessions;
        Self { fs, settings, tree, has_notifications, notices: Vec::new(), is_first: true, reported: 0 }
    }

    /// Reads the tree, and reports changes until it fails. The caller may drop the future to end the watch, and should call
    /// [`Self::end`] then.
    ///
    /// # Errors
    /// The directory is gone, or the tree is too large.
    pub async fn run(&mut self, report: &mut dyn FnMut(Report)) -> Result<(), WatchError> {
        let engine = std::sync::Arc::clone(self.fs.client().engine());
        let mut round = Round::default();
        round.list(self.tree.root);
        self.read(round, report).await?;
        self.is_first = false;
        report(Report::Notice(Notice::Watching {
            directories: self.tree.directories.len(),
            entries: self.tree.entries,
            notified: self.tree.directories.values().filter(|directory| directory.is_notified).count(),
        }));
        report(Report::Idle);
        let mut due = engine.now() + self.pause();
        loop {
            let client = self.fs.client().clone();
            let told = match select(pin!(client.directory_events()), engine.sleep_until(due)).await {
                Either::Left((mut told, _)) => {
                    engine.sleep(GATHER).await;
                    told.extend(client.directory_events().now_or_never().unwrap_or_default());
                    Some(told)
                }
                Either::Right(_) => None,
            };
            let begun = engine.now();
            match told {
                Some(told) => self.apply(told, report).await?,
                None => {
                    self.look(report).await?;
                    // A server that needs long for a look is not kept busy by looks.
                    let now = engine.now();
                    due = now + self.pause().max(now.saturating_sub(begun));
                }
            }
            // Earlier than before, if a directory was recalled.
            due = due.min(engine.now() + self.pause());
            report(Report::Idle);
        }
    }

    /// Returns the time between two looks. Directories of which the server does not tell changes now are asked for again meanwhile.
    fn pause(&self) -> Duration {
        let mut directories = self.tree.directories.values();
        let waits = self.has_notifications && directories.any(|directory| !directory.is_notified);
        if waits { self.settings.interval.min(RETRY) } else { self.settings.interval }
    }

    /// Lets the server forget the watch.
    pub async fn end(&self) {
        let directories: Vec<FileHandle> = self.tree.directories.keys().copied().collect();
        self.fs.client().unwatch_directories(self.fs.caller(), &directories).await;
    }

    /// Applies what the server has told, and compares the directories that it recalls.
    async fn apply(
        &mut self,
        told: Vec<(FileHandle, DirectoryEvent)>,
        report: &mut dyn FnMut(Report),
    ) -> Result<(), WatchError> {
        let (mut round, mut names) = (Round::default(), Vec::new());
        let mut recalled = self.take_in(told, &mut names, &mut round, report);
        if !recalled.is_empty() {
            let client = self.fs.client().clone();
            client.unwatch_directories(self.fs.caller(), &recalled).await;
            // The change that was the reason is made now. What leaves a directory may come into another, of which the server tells.
            client.engine().sleep(GATHER).await;
            let more = client.directory_events().now_or_never().unwrap_or_default();
            let later = self.take_in(more, &mut names, &mut round, report);
            client.unwatch_directories(self.fs.caller(), &later).await;
            recalled.extend(later);
            self.compare_untold(&recalled, &mut round, report).await?;
        }
        self.look_up(&names, &mut round).await;
        self.read(round, report).await
    }

    /// Applies events to the tree. Returns the directories that are recalled; `names` gets the entries that must be looked up.
    fn take_in(
        &mut self,
        told: Vec<(FileHandle, DirectoryEvent)>,
        names: &mut Vec<(FileHandle, Bytes)>,
        round: &mut Round,
        report: &mut dyn FnMut(Report),
    ) -> Vec<FileHandle> {
        let (mut recalled, mut has_lost) = (Vec::new(), false);
        let retry_at = self.fs.client().engine().now() + RETRY;
        for (directory, event) in told {
            match event {
                DirectoryEvent::Added(name) => {
                    self.tree.added(directory, &name, round);
                    names.push((directory, name));
                }
                DirectoryEvent::Removed(name) => self.tree.removed(directory, &name, round),
                DirectoryEvent::Renamed { from, to } => {
                    self.tree.renamed(directory, &from, &to, round);
                    names.push((directory, to));
                }
                DirectoryEvent::Recalled => {
                    recalled.push(directory);
                    self.not_notified(&directory, retry_at);
                }
                DirectoryEvent::Lost => {
                    has_lost = true;
                    self.not_notified(&directory, Duration::ZERO);
                }
            }
        }
        if has_lost {
            report(Report::Notice(Notice::Forgotten));
            self.tree.directories.keys().for_each(|directory| round.list(*directory));
        }
        recalled
    }

    /// Adds to a round the directories that are recalled, and those that have changed of which the server tells nothing: what has left
    /// the ones may have come into the others.
    async fn compare_untold(
        &mut self,
        recalled: &[FileHandle],
        round: &mut Round,
        report: &mut dyn FnMut(Report),
    ) -> Result<(), WatchError> {
        let recalled: HashSet<&FileHandle> = recalled.iter().collect();
        let mut asked = Vec::new();
        for (handle, directory) in &self.tree.directories {
            if recalled.contains(handle) {
                round.list(*handle);
            } else if !directory.is_notified {
                asked.push((*handle, directory.parent.clone()));
            }
        }
        self.compare_asked(&asked, round, report).await
    }

    fn not_notified(&mut self, directory: &FileHandle, retry_at: Duration) {
        if let Some(directory) = self.tree.directories.get_mut(directory) {
            directory.is_notified = false;
            directory.retry_at = retry_at;
        }
    }

    /// Looks up entries that were added or renamed.
    async fn look_up(&mut self, names: &[(FileHandle, Bytes)], round: &mut Round) {
        let known = names.iter().filter(|(directory, _)| self.tree.directories.contains_key(directory));
        let asked: Vec<(FileHandle, &[u8])> =
            known.map(|(directory, name)| (*directory, &name[..])).collect();
        let found = self.fs.client().stat_many(self.fs.caller(), &asked).await;
        for ((directory, name), found) in asked.into_iter().zip(found) {
            match found {
                Ok(object) => self.tree.looked_up(directory, name, &object, round),
                // It was removed meanwhile, which the server reports in a later event.
                Err(OpError::Status(Status::NOENT)) => {}
                Err(_) => round.list(directory),
            }
        }
    }

    /// Compares the tree with the server's.
    async fn look(&mut self, report: &mut dyn FnMut(Report)) -> Result<(), WatchError> {
        let mut round = Round::default();
        let asked = self.asked(&mut round);
        self.compare_asked(&asked, &mut round, report).await?;
        // Directories of which the server does not tell changes, although it may.
        let now = self.fs.client().engine().now();
        if self.has_notifications {
            let waiting =
                |(_, directory): &(_, &tree::Directory)| !directory.is_notified && directory.retry_at <= now;
            let waiting: Vec<FileHandle> =
                self.tree.directories.iter().filter(waiting).map(|(handle, _)| *handle).collect();
            waiting.into_iter().for_each(|directory| round.list(directory));
        }
        self.read(round, report).await
    }

    /// Asks for the attributes of objects, and adds the changed directories to a round.
    async fn compare_asked(
        &mut self,
        asked: &[(FileHandle, Option<(FileHandle, Name)>)],
        round: &mut Round,
        report: &mut dyn FnMut(Report),
    ) -> Result<(), WatchError> {
        let engine = std::sync::Arc::clone(self.fs.client().engine());
        for part in asked.chunks(ASKED_TOGETHER) {
            let handles: Vec<FileHandle> = part.iter().map(|(handle, _)| *handle).collect();
            let (client, caller) = (self.fs.client().clone(), self.fs.caller().clone());
            let answers = observed(&engine, client.get_attributes_many(&caller, &handles), report).await;
            for ((handle, place), answer) in part.iter().zip(answers) {
                self.compare_attributes(handle, place.as_ref(), answer, round)?;
            }
        }
        Ok(())
    }

    /// Returns the objects whose attributes are asked for in a look, and the entries that they are; directories that are listed
    /// instead are in the round's queue.
    fn asked(&self, round: &mut Round) -> Vec<(FileHandle, Option<(FileHandle, Name)>)> {
        let has_compounds = self.fs.client().version().minor().is_some();
        let mut asked = Vec::new();
        for (handle, directory) in &self.tree.directories {
            if !has_compounds || directory.entries.len() >= LISTED_FROM || directory.listed.is_none() {
                round.list(*handle);
                continue;
            }
            asked.push((*handle, directory.parent.clone()));
            for (name, entry) in &directory.entries {
                if let Some(known) = &entry.known
                    && !self.tree.directories.contains_key(&known.handle())
                {
                    asked.push((known.handle(), Some((*handle, name.clone()))));
                }
            }
        }
        asked
    }

    fn compare_attributes(
        &mut self,
        handle: &FileHandle,
        place: Option<&(FileHandle, Name)>,
        answer: Result<Attributes, OpError>,
        round: &mut Round,
    ) -> Result<(), WatchError> {
        let new = match (answer, place) {
            (Ok(new), _) => new,
            (Err(cause), None) => return Err(WatchError::Root(cause)),
            (Err(OpError::Call(error)), _) => return Err(WatchError::Failed(error.into())),
            // Probably it is gone.
            (Err(_), Some((directory, _))) => {
                round.list(*directory);
                return Ok(());
            }
        };
        if let Some((directory, name)) = place {
            self.tree.compare_entry(*directory, name, &new, round);
        }
        if let Some(Some(listed)) = self.tree.directories.get(handle).map(|directory| directory.listed)
            && Seen::of(&listed).has_other_entries(&Seen::of(&new))
        {
            round.list(*handle);
        }
        Ok(())
    }

    /// Lists the directories of a round and those that are found there, and reports the differences.
    async fn read(&mut self, mut round: Round, report: &mut dyn FnMut(Report)) -> Result<(), WatchError> {
        let engine = std::sync::Arc::clone(self.fs.client().engine());
        while !round.queue.is_empty() {
            let rest = round.queue.len().saturating_sub(LISTED_TOGETHER);
            let group = round.queue.split_off(rest);
            observed(&engine, self.read_group(&group, &mut round), report).await?;
            if self.tree.entries > self.settings.entries_max {
                return Err(WatchError::TooManyEntries);
            }
            if self.is_first && self.tree.entries >= self.reported + PROGRESS {
                self.reported = self.tree.entries;
                report(Report::Notice(Notice::Reading(self.tree.entries)));
            }
            self.notices.drain(..).for_each(|notice| report(Report::Notice(notice)));
        }
        let events = self.tree.finish(round);
        if !self.is_first {
            events.into_iter().for_each(|event| report(Report::Event(event)));
        }
        Ok(())
    }

    async fn read_group(&mut self, group: &[FileHandle], round: &mut Round) -> Result<(), WatchError> {
        // Before the listing, so that no change is missed between.
        self.watch_group(group).await;
        let (client, caller) = (self.fs.client().clone(), self.fs.caller().clone());
        let mut objects = Vec::new();
        let mut asked = Vec::new();
        for handle in group {
            match self.listed_always(handle) {
                Some(attributes) => objects.push(Object { handle: *handle, attributes }),
                None => asked.push(*handle),
            }
        }
        let attributes = client.get_attributes_many(&caller, &asked).await;
        for (handle, attributes) in asked.iter().zip(attributes) {
            match attributes {
                Ok(attributes) => objects.push(Object { handle: *handle, attributes }),
                Err(cause) => self.unread(handle, cause, round)?,
            }
        }
        let listings = self.fs.list_many(&objects).await;
        for (object, listing) in objects.iter().zip(listings) {
            let whole = match listing {
                Ok(listing) => self.fs.list_whole(object, listing).await,
                Err(cause) => Err(cause),
            };
            match whole {
                Ok(entries) => {
                    let named: Vec<(&[u8], Object)> =
                        entries.iter().filter_map(|entry| Some((&entry.name[..], entry.object?))).collect();
                    if let Some(directory) = self.tree.directories.get_mut(&object.handle) {
                        directory.listed = Some(object.attributes);
                        directory.is_unreadable = false;
                    }
                    self.tree.compare(object.handle, &named, round);
                }
                Err(cause) => self.unread(&object.handle, cause, round)?,
            }
        }
        Ok(())
    }

    /// Returns the attributes of a directory that is known, if they do not matter: without compounds it is listed in each look.
    fn listed_always(&self, handle: &FileHandle) -> Option<Attributes> {
        if self.fs.client().version().minor().is_some() {
            return None;
        }
        self.tree.directories.get(handle)?.listed
    }

    /// Handles a directory that cannot be listed. One that is gone is missing in its own directory.
    fn unread(&mut self, handle: &FileHandle, cause: OpError, round: &mut Round) -> Result<(), WatchError> {
        if *handle == self.tree.root {
            return Err(WatchError::Root(cause));
        }
        if let OpError::Call(error) = cause {
            return Err(WatchError::Failed(error.into()));
        }
        let path = self.tree.path_of(handle);
        let Some(directory) = self.tree.directories.get_mut(handle) else { return Ok(()) };
        if matches!(cause, OpError::Status(Status::NOENT | Status::STALE | Status::FHEXPIRED)) {
            if let Some((above, _)) = &directory.parent {
                round.list(*above);
            }
        } else if !std::mem::replace(&mut directory.is_unreadable, true) {
            self.notices.push(Notice::Unreadable(path, cause));
        }
        Ok(())
    }

    /// Asks the server to tell of changes in directories, if it does not yet.
    async fn watch_group(&mut self, group: &[FileHandle]) {
        if !self.has_notifications {
            return;
        }
        let now = self.fs.client().engine().now();
        let held = self.tree.directories.values().filter(|directory| directory.is_notified).count();
        let is_wanted = |handle: &&FileHandle| {
            let directory = self.tree.directories.get(*handle);
            directory.is_some_and(|directory| !directory.is_notified && directory.retry_at <= now)
        };
        let room = NOTIFIED_MAX.saturating_sub(held);
        let wanted: Vec<FileHandle> = group.iter().filter(is_wanted).take(room).copied().collect();
        let outcomes = self.fs.client().watch_directories(self.fs.caller(), &wanted).await;
        for (handle, outcome) in wanted.iter().zip(outcomes) {
            match outcome {
                Ok(DirectoryWatch::Watched) => {
                    if let Some(directory) = self.tree.directories.get_mut(handle) {
                        directory.is_notified = true;
                    }
                }
                Err(OpError::Status(Status::NOTSUPP | Status::OP_ILLEGAL) | OpError::Unsupported(_)) => {
                    self.has_notifications = false;
                }
                Ok(DirectoryWatch::Unavailable) | Err(_) => self.not_notified(handle, now + RETRY),
            }
        }
    }
}

/// Runs a request, and reports if the server does not answer, and if it does after all.
async fn observed<T>(
    engine: &std::sync::Arc<crate::engine::Engine>,
    work: impl Future<Output = T>,
    report: &mut dyn FnMut(Report),
) -> T {
    match select(pin!(work), engine.sleep(SILENCE)).await {
        Either::Left((done, _)) => done,
        Either::Right(((), work)) => {
            report(Report::Notice(Notice::Silent));
            report(Report::Idle);
            let done = work.await;
            report(Report::Notice(Notice::Answers));
            done
        }
    }
}
