//! Directories of a copy, level by level: each level is made and listed in a few round trips.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{self, StreamExt};

use super::queue::Queue;
use super::{Copier, CopyError, FILES, Failed, Item, Job, LateAttributes, OWNER_BITS, Refusal, data_size};
use crate::attributes::{Attributes, FileKind};
use crate::tree::{Entry, NewAttributes, Removal, RemoveError, Tree, TreePath};

/// Directories of one level that are made and listed together.
const DIRECTORIES: usize = 256;
/// Up to this many objects in a directory of the target are looked up by name. For more, the directory is listed, which returns all
/// of them in few round trips.
const LOOKED_UP_MAX: usize = 16;

/// Directories in which names are looked up at the same time.
const LEVELS: usize = 32;

/// A directory that exists in the target too.
struct Made {
    job: Job,
    is_new: bool,
    /// The place of its attributes in the list of those that are set at the end.
    late: Option<usize>,
}

/// A directory with its entries.
struct Level {
    made: Made,
    entries: Vec<Entry>,
    /// Objects in the target's directory with the names of `entries`, or all its objects if others are deleted.
    existing: HashMap<Vec<u8>, Attributes>,
    /// Whether `existing` has them.
    is_known: bool,
    /// Whether a failure of the directory has been reported.
    is_failed: bool,
}

impl Level {
    fn new(made: Made, entries: Vec<Entry>) -> Self {
        let is_known = made.is_new;
        Self { made, entries, existing: HashMap::new(), is_known, is_failed: false }
    }
}

impl<S: Tree, D: Tree> Copier<'_, S, D> {
    /// Copies directories of one level with their content; other objects go to `others`.
    pub(super) fn directories<'s>(
        &'s self,
        jobs: Vec<Job>,
        others: &'s Queue<Job>,
    ) -> Pin<Box<dyn Future<Output = ()> + 's>> {
        Box::pin(async move {
            let mut left = self.make(self.allowed(jobs).await).await;
            while !left.is_empty() {
                let paths: Vec<TreePath> = left.iter().map(|made| made.job.source.clone()).collect();
                let listings = self.from.list_many(&paths).await;
                let (mut levels, mut later) = (Vec::new(), Vec::new());
                for (made, listing) in left.into_iter().zip(listings) {
                    match listing {
                        Some(Ok(entries)) => levels.push(Level::new(made, entries)),
                        Some(Err(error)) => self.fail(&made, CopyError::Source(error)),
                        None => later.push(made),
                    }
                }
                self.find_existing(&mut levels).await;
                self.delete_others(&mut levels).await;
                let mut below = Vec::new();
                for level in levels {
                    self.entries(level, &mut below, others).await;
                }
                while !below.is_empty() {
                    let rest = below.split_off(below.len().min(DIRECTORIES));
                    self.directories(std::mem::replace(&mut below, rest), others).await;
                }
                left = later;
            }
        })
    }

    /// Reports the failure of a directory that was made.
    fn fail(&self, made: &Made, error: Failed<S, D>) {
        if let Some(late) = made.late {
            self.state.lock().directories[late].is_failed = true;
        }
        self.report.done(made.job.item(), Err(error));
    }

    /// Returns the directories that may be copied; the others are reported.
    async fn allowed(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut allowed = Vec::new();
        for job in jobs {
            let refused = match self.is_target(&job.source, &job.attributes).await {
                _ if self.is_itself(&job) => continue,
                Ok(true) => CopyError::Refused(Refusal::IntoItself),
                Ok(false) if !self.options.is_recursive => CopyError::Refused(Refusal::Directory),
                Ok(false) => {
                    allowed.push(job);
                    continue;
                }
                Err(error) => error,
            };
            self.report.done(job.item(), Err(refused));
        }
        allowed
    }

    /// Creates the target's directories that are missing.
    async fn make(&self, jobs: Vec<Job>) -> Vec<Made> {
        let mode = |job: &Job| job.attributes.mode & 0o777 & !self.options.umask;
        let is_there = |job: &Job| job.found.is_some_and(|found| found.kind == FileKind::Directory);
        let missing = jobs.iter().filter(|job| !is_there(job));
        let missing: Vec<_> = missing.map(|job| (&job.target, mode(job) | OWNER_BITS)).collect();
        let mut outcomes = self.to.make_directories(&missing).await.into_iter();
        let mut made = Vec::new();
        for job in jobs {
            let outcome = match is_there(&job) {
                true => Ok(false),
                false => outcomes.next().unwrap_or(Ok(false)),
            };
            let is_new = match self.note_target(&job, outcome).await {
                Ok(is_new) => is_new,
                Err(error) => {
                    self.report.done(job.item(), Err(CopyError::Target(error)));
                    continue;
                }
            };
            let mode = mode(&job);
            let new = match self.options.preserves {
                true => Some(self.preserved(&job.attributes)),
                false if is_new && mode != mode | OWNER_BITS => {
                    Some(NewAttributes { mode: Some(mode), ..NewAttributes::default() })
                }
                false => None,
            };
            let late = new.map(|new| {
                let (source, target) = (job.source.clone(), job.target.clone());
                let mut state = self.state.lock();
                state.directories.push(LateAttributes { source, target, new, is_failed: false });
                state.directories.len() - 1
            });
            made.push(Made { job, is_new, late });
        }
        made
    }

    /// Notes the first directory as the target of the whole copy.
    async fn note_target(&self, job: &Job, made: Result<bool, D::Error>) -> Result<bool, D::Error> {
        let is_new = made?;
        if self.target.get().is_none()
            && let Some(found) = self.to.attributes(&job.target).await?
        {
            self.target.get_or_init(|| (job.target.clone(), found));
        }
        Ok(is_new)
    }

    /// Finds the existing objects in directories of the target that existed before.
    async fn find_existing(&self, levels: &mut [Level]) {
        let lists = |level: &&mut Level| {
            !level.is_known && (self.options.deletes || level.entries.len() > LOOKED_UP_MAX)
        };
        let mut listed: Vec<&mut Level> = levels.iter_mut().filter(lists).collect();
        while !listed.is_empty() {
            let paths: Vec<TreePath> = listed.iter().map(|level| level.made.job.target.clone()).collect();
            let listings = self.to.list_many(&paths).await;
            let mut later = Vec::new();
            for (level, listing) in listed.into_iter().zip(listings) {
                match listing {
                    Some(Ok(entries)) => {
                        let entries = entries.into_iter().map(|entry| (entry.name, entry.attributes));
                        (level.existing, level.is_known) = (entries.collect(), true);
                    }
                    Some(Err(error)) if self.options.deletes => {
                        self.fail(&level.made, CopyError::Target(error));
                        (level.entries, level.is_known, level.is_failed) = (Vec::new(), true, true);
                    }
                    // The user may be allowed to search it, but not to list it.
                    Some(Err(_)) => {}
                    None => later.push(level),
                }
            }
            listed = later;
        }
        let unknown = levels.iter_mut().filter(|level| !level.is_known);
        stream::iter(unknown).for_each_concurrent(LEVELS, |level| self.look_up(level)).await;
    }

    /// Looks up the copied names in a directory of the target. Names that cannot be looked up are left out: nothing is copied onto
    /// unknown objects.
    async fn look_up(&self, level: &mut Level) {
        let target = &level.made.job.target;
        let found = async |entry: Entry| {
            let found = match target.join(&entry.name) {
                Ok(path) => self.to.attributes(&path).await,
                // It is reported where it would be copied.
                Err(_) => Ok(None),
            };
            (entry, found)
        };
        let entries = std::mem::take(&mut level.entries);
        let found: Vec<_> = stream::iter(entries).map(found).buffered(FILES).collect().await;
        for (entry, found) in found {
            match found {
                Ok(found) => {
                    level.existing.extend(found.map(|found| (entry.name.clone(), found)));
                    level.entries.push(entry);
                }
                Err(error) => self.fail_entry(&level.made.job, &entry.name, CopyError::Target(error)),
            }
        }
    }

    /// Reports the failure of an entry of a directory.
    fn fail_entry(&self, directory: &Job, name: &[u8], error: Failed<S, D>) {
        match (directory.source.join(name), directory.target.join(name)) {
            (Ok(source), Ok(target)) => {
                self.report.done(Item { source: Some(&source), target: &target }, Err(error));
            }
            _ => self.report.done(directory.item(), Err(error)),
        }
    }

    /// Removes objects from the target that the source does not have, or has with another kind.
    async fn delete_others(&self, levels: &mut [Level]) {
        if !self.options.deletes {
            return;
        }
        let is_directory = |attributes: &Attributes| attributes.kind == FileKind::Directory;
        let mut others = Vec::new();
        for level in levels {
            let kinds: HashMap<&[u8], bool> = level
                .entries
                .iter()
                .map(|entry| (&entry.name[..], is_directory(&entry.attributes)))
                .collect();
            let goes = |name: &[u8], found: &Attributes| kinds.get(name) != Some(&is_directory(found));
            for (name, found) in level.existing.extract_if(|name, found| goes(name, found)) {
                others.extend(level.made.job.target.join(&name).map(|path| (path, found)));
            }
        }
        let keeps = |_: &TreePath, found: &Attributes| {
            self.source.get().is_some_and(|source| self.is_one_object(source, found))
        };
        let report = |path: &TreePath, removed: Result<(), RemoveError<D::Error>>| {
            let error = match removed {
                Ok(()) => return,
                Err(RemoveError::Tree(error)) => CopyError::Target(error),
                Err(RemoveError::Name(error)) => CopyError::Refused(Refusal::Name(error)),
                Err(RemoveError::Kept) => CopyError::Refused(Refusal::RemovesSource),
            };
            self.report.done(Item { source: None, target: path }, Err(error));
        };
        let removal = Removal { tree: self.to, is_recursive: true, keeps: &keeps, report: &report };
        removal.remove(others).await;
    }

    /// Passes on the entries of a directory.
    async fn entries(&self, level: Level, below: &mut Vec<Job>, others: &Queue<Job>) {
        let Level { made, entries, existing, is_failed, .. } = level;
        let bytes = entries.iter().map(|entry| data_size(&entry.attributes)).fold(0, u64::saturating_add);
        self.report.found(entries.len() as u64, bytes);
        if made.late.is_none() && !is_failed {
            self.report.done(made.job.item(), Ok(()));
        }
        for Entry { name, attributes, handle } in entries {
            let (source, target) = match (made.job.source.join(&name), made.job.target.join(&name)) {
                (Ok(source), Ok(target)) => (source, target),
                (Err(error), _) | (_, Err(error)) => {
                    self.report.done(made.job.item(), Err(CopyError::Refused(Refusal::Name(error))));
                    continue;
                }
            };
            let job = Job { source, target, attributes, handle, found: existing.get(&name).copied() };
            match attributes.kind {
                FileKind::Directory => below.push(job),
                _ => others.send(job).await,
            }
        }
    }
}
