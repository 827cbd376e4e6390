//! Objects other than directories: small files many at a time, others separately.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::queue::Queue;
use super::{Copier, CopyError, FILES, HOLE, Job, OWNER_BITS, Reflink, Refusal, Same, is_same_time};
use crate::attributes::FileKind;
use crate::tree::{NewAttributes, ReadFile, SMALL_MAX, Tree, WriteFile};

/// Maximum number of small files that are copied together.
const BATCH_FILES: usize = 1024;
/// Maximum number of bytes of small files that are copied together.
const BATCH_BYTES: u64 = 4 << 20;
/// Maximum number of groups of small files that are under way together: they take this many times [`BATCH_BYTES`] of memory.
const BATCHES: usize = 16;

/// Small files that are copied together.
#[derive(Default)]
struct Batch {
    jobs: Vec<Job>,
    bytes: u64,
}

type Running<'s> = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + 's>>>;

/// An event of [`Copier::others`].
enum Next {
    /// Work under way has ended.
    Ended,
    /// An object arrived.
    Job(Box<Job>),
    /// No more arrive.
    Last,
}

/// Polls the work under way, and receives an object if there is room for it.
fn next<'s>(
    context: &mut Context<'_>,
    batches: &mut Running<'s>,
    singles: &mut Running<'s>,
    jobs: &Queue<Job>,
) -> Poll<Next> {
    for running in [&mut *batches, &mut *singles] {
        if let Poll::Ready(Some(())) = running.poll_next_unpin(context) {
            return Poll::Ready(Next::Ended);
        }
    }
    if batches.len() >= BATCHES || singles.len() >= FILES {
        return Poll::Pending;
    }
    jobs.poll_next(context).map(|job| job.map_or(Next::Last, |job| Next::Job(Box::new(job))))
}

impl<S: Tree, D: Tree> Copier<'_, S, D> {
    /// Copies objects until no more arrive.
    pub(super) async fn others(&self, jobs: &Queue<Job>) {
        let (mut batches, mut singles) = (Running::new(), Running::new());
        let mut batch = Batch::default();
        loop {
            let next = poll_fn(|context| next(context, &mut batches, &mut singles, jobs));
            let job = match next.await {
                Next::Ended => continue,
                Next::Job(job) => *job,
                Next::Last => break,
            };
            if !self.is_itself(&job)
                && let Some(job) = self.note_names(job)
            {
                match self.goes_alone(&job) {
                    true => singles.push(Box::pin(async move { self.object(&job).await })),
                    false => batch.add(job),
                }
            }
            if batch.is_full() || jobs.is_empty() && !batch.jobs.is_empty() {
                let batch = std::mem::take(&mut batch);
                batches.push(Box::pin(self.small_files(batch.jobs)));
            }
        }
        batches.push(Box::pin(self.small_files(batch.jobs)));
        futures_util::future::join(batches.collect::<()>(), singles.collect::<()>()).await;
    }

    /// Returns whether an object and the one with its name in the target are the same, which is reported.
    pub(super) fn is_itself(&self, job: &Job) -> bool {
        let is_itself = job.found.as_ref().is_some_and(|found| self.is_one_object(&job.attributes, found));
        if is_itself {
            self.report.done(job.item(), Err(CopyError::Refused(Refusal::SameFile)));
        }
        is_itself
    }

    /// Returns whether an object is copied by itself.
    fn goes_alone(&self, job: &Job) -> bool {
        job.attributes.kind != FileKind::Regular
            || self.options.reflink == Reflink::Always
            || job.attributes.size > SMALL_MAX
            || job.found.is_some_and(|found| found.kind != FileKind::Regular)
    }

    /// Copies small files. One that cannot be read or written like this is copied by itself, which reports why.
    async fn small_files(&self, jobs: Vec<Job>) {
        let jobs = self.not_same(jobs).await;
        let reads: Vec<_> = jobs.iter().map(Job::read).collect();
        let contents = self.from.read_files(&reads).await;
        let (mut written, mut files, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for (job, content) in jobs.iter().zip(contents) {
            match content {
                Ok(data) if data.len() as u64 == job.attributes.size && !self.has_hole(job, &data) => {
                    files.push(self.new_file(job, data));
                    written.push(job);
                }
                _ => alone.push(job),
            }
        }
        for (job, outcome) in written.into_iter().zip(self.to.write_files(&files).await) {
            match outcome {
                Ok(()) => {
                    self.report.copied(job.attributes.size);
                    self.report.done(job.item(), Ok(()));
                }
                Err(_) => alone.push(job),
            }
        }
        futures_util::stream::iter(alone).for_each_concurrent(FILES, |job| self.object(job)).await;
    }

    fn new_file<'j>(&self, job: &'j Job, data: Bytes) -> WriteFile<'j> {
        let mode = job.attributes.mode & 0o777 & !self.options.umask;
        let (mode, new) = match self.options.preserves {
            // Others do not see the content before owner and mode are set.
            true => (mode & OWNER_BITS | 0o200, self.preserved(&job.attributes)),
            false => (mode, NewAttributes::default()),
        };
        WriteFile { path: &job.target, mode, data, new }
    }

    /// Returns whether a file has a hole that its copy must keep.
    fn has_hole(&self, job: &Job, data: &Bytes) -> bool {
        let is_zero = |unit: &[u8]| unit.len() == HOLE && unit.iter().all(|byte| *byte == 0);
        job.attributes.used.saturating_add(HOLE as u64) <= job.attributes.size
            && data.chunks(HOLE).any(is_zero)
    }

    /// Returns the files that the target does not have in this form.
    async fn not_same(&self, jobs: Vec<Job>) -> Vec<Job> {
        let Some(same) = self.options.skips else { return jobs };
        let has_size = |job: &Job| job.found.is_some_and(|found| found.size == job.attributes.size);
        let has_time =
            |job: &Job| job.found.is_some_and(|found| is_same_time(found.mtime, job.attributes.mtime));
        let (candidates, mut others): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(has_size);
        let are_same = match same {
            Same::SizeAndTime => candidates.iter().map(has_time).collect(),
            Same::Content => self.have_same_content(&candidates).await,
        };
        let mut same = Vec::new();
        for (job, is_same) in candidates.into_iter().zip(are_same) {
            if is_same { same.push(job) } else { others.push(job) }
        }
        futures_util::stream::iter(same)
            .for_each_concurrent(FILES, async |job| {
                let Job { target, attributes, found: Some(found), .. } = &job else { return };
                let done = self.make_attributes_same(target, attributes, found).await;
                if done.is_ok() {
                    self.report.copied(attributes.size);
                }
                self.report.done(job.item(), done.map_err(CopyError::Target));
            })
            .await;
        others
    }

    /// Compares the content of small files of equal size. A file that cannot be read counts as different.
    async fn have_same_content(&self, jobs: &[Job]) -> Vec<bool> {
        let size = |job: &Job| job.attributes.size;
        let sources: Vec<_> = jobs.iter().map(Job::read).collect();
        let targets: Vec<_> =
            jobs.iter().map(|job| ReadFile { path: &job.target, handle: None, size: size(job) }).collect();
        let reads = (self.from.read_files(&sources), self.to.read_files(&targets));
        let (ones, others) = futures_util::future::join(reads.0, reads.1).await;
        let is_same = |(job, (one, other)): (&Job, (Result<Bytes, _>, Result<Bytes, _>))| matches!((one, other), (Ok(one), Ok(other)) if one == other && one.len() as u64 == size(job));
        jobs.iter().zip(ones.into_iter().zip(others)).map(is_same).collect()
    }
}

impl Job {
    fn read(&self) -> ReadFile<'_> {
        ReadFile { path: &self.source, handle: self.handle, size: self.attributes.size }
    }
}

impl Batch {
    fn add(&mut self, job: Job) {
        self.bytes += job.attributes.size;
        self.jobs.push(job);
    }

    fn is_full(&self) -> bool {
        self.jobs.len() >= BATCH_FILES || self.bytes >= BATCH_BYTES
    }
}
