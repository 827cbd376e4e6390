//! Directories of a copy, level by level: each level is made and listed in a few round trips.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc::Sender;

use super::{Copier, FILES, Job, OWNER_BITS, data_size};
use crate::commands::attributes::{Attributes, FileKind};
use crate::commands::removal::Removal;
use crate::commands::session::Failure;
use crate::commands::tree::{Entry, NewAttributes, Tree, TreePath};

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
}

/// A directory with its entries.
struct Level {
    made: Made,
    entries: Vec<Entry>,
    /// Objects in the target's directory with the names of `entries`, or all its objects if others are deleted.
    existing: HashMap<Vec<u8>, Attributes>,
    /// Whether `existing` has them.
    is_known: bool,
}

impl Level {
    fn new(made: Made, entries: Vec<Entry>) -> Self {
        let is_known = made.is_new;
        Self { made, entries, existing: HashMap::new(), is_known }
    }
}

impl<S: Tree, D: Tree> Copier<'_, S, D> {
    /// Copies directories of one level with their content; other objects go to `others`.
    pub(super) fn directories<'s>(
        &'s self,
        jobs: Vec<Job>,
        others: &'s Sender<Job>,
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
                        Some(Err(failure)) => self.progress.failed(&failure.to_string()),
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

    /// Returns the directories that may be copied; the others are reported.
    async fn allowed(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut allowed = Vec::new();
        for job in jobs {
            let shown = || self.from.show(&job.source);
            let refused = match self.is_target(&job.source, &job.attributes).await {
                _ if self.is_itself(&job) => continue,
                Ok(true) => format!("cannot copy a directory into itself: {}", shown()),
                Ok(false) if !self.options.is_recursive => {
                    format!("{} is a directory and is left out (-r copies it)", shown())
                }
                Ok(false) => {
                    allowed.push(job);
                    continue;
                }
                Err(failure) => failure.to_string(),
            };
            self.progress.failed(&refused);
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
                Err(failure) => {
                    self.progress.failed(&failure.to_string());
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
            match new {
                Some(new) => self.state.borrow_mut().directories.push((job.target.clone(), new)),
                None => self.progress.done(1, 0),
            }
            made.push(Made { job, is_new });
        }
        made
    }

    /// Notes the first directory as the target of the whole copy.
    async fn note_target(&self, job: &Job, made: Result<bool, Failure>) -> Result<bool, Failure> {
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
                    Some(Err(failure)) if self.options.deletes => {
                        self.progress.failed(&failure.to_string());
                        (level.entries, level.is_known) = (Vec::new(), true);
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
                Err(failure) => self.progress.failed(&failure.to_string()),
            }
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
        let refuse = |path: &TreePath, found: &Attributes| {
            let is_source = self.source.get().is_some_and(|source| self.is_one_object(source, found));
            let shown = self.to.show(path);
            is_source.then(|| Failure::new(format!("cannot remove {shown}: it is the source")))
        };
        let report = |_: &TreePath, removed: Result<(), Failure>| {
            if let Err(failure) = removed {
                self.progress.failed(&failure.to_string());
            }
        };
        let removal = Removal { tree: self.to, is_recursive: true, refuse: &refuse, report: &report };
        removal.remove(others).await;
    }

    /// Passes on the entries of a directory.
    async fn entries(&self, level: Level, below: &mut Vec<Job>, others: &Sender<Job>) {
        let Level { made, entries, existing, .. } = level;
        let bytes = entries.iter().map(|entry| data_size(&entry.attributes)).fold(0, u64::saturating_add);
        self.progress.found(entries.len() as u64, bytes);
        for Entry { name, attributes, handle } in entries {
            let (source, target) = match (made.job.source.join(&name), made.job.target.join(&name)) {
                (Ok(source), Ok(target)) => (source, target),
                (Err(error), _) | (_, Err(error)) => {
                    let shown = self.from.show(&made.job.source);
                    self.progress.failed(&format!("cannot copy below {shown}: {error}"));
                    continue;
                }
            };
            let job = Job { source, target, attributes, handle, found: existing.get(&name).copied() };
            match attributes.kind {
                FileKind::Directory => below.push(job),
                _ => self.send(job, others).await,
            }
        }
    }

    pub(super) async fn send(&self, job: Job, others: &Sender<Job>) {
        // The receiver stays as long as there is a sender.
        let _ = others.send(job).await;
    }
}
