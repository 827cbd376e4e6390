//! The file systems of exports. A reload keeps those open that are still served.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use localfs::{Config, Descriptors, Durability, LocalFs, QuotaSource};
use parking_lot::Mutex;
use server::{Export, ExportCounts, ExportId, ExportOptions, ExportTable, Junction};
use siphasher::sip128::{Hasher128, SipHasher24};
use store::{error_text, random};
use tracing::{error, info, warn};
use vfs::around::Wrapped;
use vfs::journal::JournalCounts;
use vfs::{Backend, MemFs, MemOptions, Timestamp, Verifier};

use super::journal::Journal;
use super::mounts;
use super::offline::{Offline, RecallRule, Recaller};
use super::plan::{ExportPlan, Source};
use crate::size::Size;

/// The open file systems, by source.
#[derive(Debug)]
pub struct Backends {
    open: HashMap<Source, Opened>,
    /// Different at every start.
    instance: u64,
    /// The first write verifier of the directories that are served from the start.
    verifier: Verifier,
    has_started: bool,
    /// The state directory, which has the indexes of handles; none without durable state.
    state_dir: Option<PathBuf>,
    /// The control socket, if it is not in the state directory.
    control: Option<PathBuf>,
    /// Whether data of a removed export may have been lost.
    has_lost: bool,
    /// The budget of file descriptors of all directories.
    descriptors: Option<&'static Descriptors>,
    /// Counters of every export so far, by path. They continue if an export returns.
    counts: HashMap<String, Arc<ExportCounts>>,
    /// Asks for quotas of directories' file systems.
    quotas: Option<Arc<dyn QuotaSource>>,
    /// The recallers in use, so that a reload does not recall files a second time.
    recallers: Mutex<Vec<Weak<Recaller>>>,
    journals: Arc<JournalCounts>,
}

#[derive(Debug, Clone)]
enum Opened {
    /// A directory, its first write verifier, and its journal.
    Directory(LocalFs, Verifier, Option<Arc<Journal>>),
    Memory(Arc<MemFs>),
}

/// Exports that are ready to be served, with their file systems.
#[derive(Debug)]
pub struct Prepared {
    table: ExportTable,
    open: HashMap<Source, Opened>,
    /// The directories among them whose paths led to other directories before.
    replaced: HashSet<Source>,
    /// Exports of file systems that are mounted inside others.
    nested: Vec<ExportPlan>,
}

/// An export that may contain mount points.
struct Outer {
    /// The directory, without symbolic links.
    path: PathBuf,
    directory: LocalFs,
    id: ExportId,
}

/// File systems that are no longer served.
#[derive(Debug)]
pub struct Removed(Vec<Opened>);

impl Prepared {
    /// Returns whether any export has quotas.
    pub fn has_quotas(&self) -> bool {
        self.table.has_quotas()
    }
}

impl Backends {
    /// Returns a set without open file systems.
    pub fn new(
        instance: u64,
        verifier: Verifier,
        state_dir: Option<PathBuf>,
        control: Option<PathBuf>,
    ) -> Self {
        let (open, has_started, has_lost, descriptors) = (HashMap::new(), false, false, None);
        let (counts, recallers, journals) = (HashMap::new(), Mutex::default(), Arc::default());
        Self {
            open,
            instance,
            verifier,
            has_started,
            state_dir,
            control,
            has_lost,
            descriptors,
            counts,
            quotas: None,
            recallers,
            journals,
        }
    }

    /// Bounds the open files of all directories together.
    pub fn with_files(self, files: usize) -> Self {
        Self { descriptors: Some(Descriptors::new(files)), ..self }
    }

    /// Has quotas of file systems asked from this source.
    pub fn with_quotas(self, quotas: Option<Arc<dyn QuotaSource>>) -> Self {
        Self { quotas, ..self }
    }

    /// Returns the counters of all journals.
    pub fn journals(&self) -> &Arc<JournalCounts> {
        &self.journals
    }

    /// Returns the budget of file descriptors of all directories, if there is one.
    pub fn descriptors(&self) -> Option<&'static Descriptors> {
        self.descriptors
    }

    /// Opens the file systems of `plans` that are not open yet, or whose path leads to another directory now. Changes nothing else.
    ///
    /// # Errors
    /// One line that names the export.
    pub fn prepare(&self, plans: &[ExportPlan]) -> Result<Prepared, String> {
        let mut prepared = Prepared {
            table: ExportTable::default(),
            open: HashMap::new(),
            replaced: HashSet::new(),
            nested: Vec::new(),
        };
        let mut exports = Vec::new();
        for plan in plans {
            let opened = self.prepare_one(plan, &mut prepared)?;
            exports.extend(self.entries(plan, &opened));
        }
        let mut junctions = Vec::new();
        for plan in plans.iter().filter(|plan| plan.serves_submounts) {
            junctions.extend(self.prepare_submounts(plan, plans, &mut prepared));
        }
        let table = ExportTable::new(exports).and_then(|table| table.with_junctions(junctions));
        Ok(Prepared { table: table.map_err(|error| error.to_string())?, ..prepared })
    }

    /// Returns the entries of an export, with the counters of its path.
    fn entries(&self, plan: &ExportPlan, opened: &Opened) -> Vec<Export> {
        let counts = self.counts.get(&plan.pseudo).cloned().unwrap_or_default();
        let backend = self.by_rule(plan, opened);
        let entry = |options| export(plan, options, Arc::clone(&backend), Arc::clone(&counts));
        plan.all_options().map(entry).collect()
    }

    /// Returns the backend of an export, with its rule for offline files.
    fn by_rule(&self, plan: &ExportPlan, opened: &Opened) -> Arc<dyn Backend> {
        let (Some(rule), Opened::Directory(directory, ..)) = (&plan.offline, opened) else {
            return opened.backend();
        };
        let recaller = rule.recall.as_ref().map(|recall| self.recaller(directory, recall));
        Arc::new(Wrapped::of(directory.clone(), Offline::new(directory.clone(), &rule.xattr, recaller)))
    }

    fn recaller(&self, directory: &LocalFs, rule: &RecallRule) -> Arc<Recaller> {
        let mut recallers = self.recallers.lock();
        recallers.retain(|recaller| recaller.strong_count() > 0);
        let known =
            recallers.iter().filter_map(Weak::upgrade).find(|recaller| recaller.is_for(directory, rule));
        known.unwrap_or_else(|| {
            let new = Arc::new(Recaller::new(directory.clone(), rule.clone()));
            recallers.push(Arc::downgrade(&new));
            new
        })
    }

    /// Opens the file system of one plan, unless it is open.
    fn prepare_one(&self, plan: &ExportPlan, prepared: &mut Prepared) -> Result<Opened, String> {
        let before = self.open.get(&plan.source);
        let opened = match before {
            Some(opened) if opened.is_current(plan)? => {
                opened.check_journal(plan)?;
                opened.clone()
            }
            _ => self.open(plan).map_err(|why| plan.error(why))?,
        };
        if before.is_some_and(|before| !before.is(&opened)) {
            prepared.replaced.insert(plan.source.clone());
        }
        prepared.open.insert(plan.source.clone(), opened.clone());
        Ok(opened)
    }

    /// Opens the file systems that are mounted inside the directory of `plan`. One that cannot be served is logged, and clients cannot
    /// enter it. They cannot enter one that has an export of its own either, since locks belong to one export.
    fn prepare_submounts(
        &self,
        plan: &ExportPlan,
        plans: &[ExportPlan],
        prepared: &mut Prepared,
    ) -> Vec<Junction> {
        let (Source::Directory(path), Some(Opened::Directory(directory, first, _))) =
            (&plan.source, prepared.open.get(&plan.source).cloned())
        else {
            return Vec::new();
        };
        let opened = Opened::Directory(directory.clone(), first, None);
        let Some(id) = self.entries(plan, &opened).first().map(|entry| entry.id) else { return Vec::new() };
        let found = path.canonicalize().and_then(|path| Ok((mounts::inside(&path)?, path)));
        let (mounts, path) = match found {
            Ok(found) => found,
            Err(error) => {
                warn!(
                    "{}",
                    plan.error(format!("what is mounted inside is not served: {}", error_text(&error)))
                );
                return Vec::new();
            }
        };
        let (top, mut outers, mut junctions) =
            (path.clone(), vec![Outer { path, directory, id }], Vec::new());
        let own = |mount: &Path| plans.iter().any(|plan| plan.is_at(mount));
        for mount in mounts.into_iter().filter(|mount| !own(mount)) {
            match self.prepare_submount(plan, &top, &mount, &outers, prepared) {
                Ok((junction, outer)) => {
                    outers.push(outer);
                    junctions.push(junction);
                }
                Err(why) => warn!("{}", plan.error(format!("{} is not served: {why}", mount.display()))),
            }
        }
        junctions
    }

    /// Opens the file system that is mounted at `mount`, below the directory `top` of `plan`.
    fn prepare_submount(
        &self,
        plan: &ExportPlan,
        top: &Path,
        mount: &Path,
        outers: &[Outer],
        prepared: &mut Prepared,
    ) -> Result<(Junction, Outer), String> {
        let below = mount.strip_prefix(top).map_err(|error| error.to_string())?;
        let below = below.to_str().ok_or("its path is not UTF-8")?;
        let plan = plan.submount(mount.into(), below);
        // Inner ones come last.
        let outer = outers
            .iter()
            .rev()
            .find(|outer| mount.starts_with(&outer.path))
            .ok_or("no export contains it")?;
        let within = mount.strip_prefix(&outer.path).map_err(|error| error.to_string())?;
        let name = within.file_name().ok_or("it has no name")?.as_bytes().to_vec();
        let place = outer.directory.mount_point(within).map_err(|error| error.to_string())?;
        let opened = self.prepare_one(&plan, prepared)?;
        let Opened::Directory(directory, ..) = &opened else { return Err("it is not a directory".into()) };
        let inner: Vec<_> = self.entries(&plan, &opened).into_iter().map(Arc::new).collect();
        let id = inner.first().ok_or("no client may mount it")?.id;
        let next = Outer { path: mount.into(), directory: directory.clone(), id };
        prepared.nested.push(plan);
        let (directory, covered_fileid) = (place.directory, place.covered_fileid);
        Ok((Junction { outer: outer.id, directory, name, covered_fileid, inner }, next))
    }

    /// Starts to use prepared exports, with their limits and durability. Returns the table of exports, and the file systems that are
    /// no longer served.
    pub fn activate(&mut self, plans: &[ExportPlan], prepared: Prepared) -> (ExportTable, Removed) {
        let Prepared { table, open, replaced, nested } = prepared;
        let served: HashSet<_> = nested.iter().filter_map(ExportPlan::directory).map(PathBuf::from).collect();
        for plan in plans.iter().chain(&nested) {
            if let (true, Source::Directory(path)) = (replaced.contains(&plan.source), &plan.source) {
                let path = path.display();
                warn!("{}", plan.error(format!("{path} is another directory or file system now: serving it; handles of the previous one are stale")));
            }
            match open.get(&plan.source) {
                Some(Opened::Directory(directory, ..)) => {
                    directory.set_served_mounts(served.clone());
                    warn_unless_watched(plan, directory);
                    if let Err(error) = directory.set_durability(durability(plan)) {
                        error!(
                            "{}",
                            plan.error(format!("earlier changes may not be on stable storage: {error}"))
                        );
                    }
                }
                Some(Opened::Memory(memory)) => {
                    let (bytes, quota) = plan.memory.bytes_and_quota();
                    memory.set_limits(bytes, quota);
                }
                None => {}
            }
        }
        for plan in &nested {
            info!("serving {plan}: mounted inside another export");
        }
        for export in table.iter().chain(table.nested()) {
            self.counts.insert(export.path.clone(), Arc::clone(&export.counts));
        }
        self.has_started = true;
        let mut before = std::mem::replace(&mut self.open, open);
        before.retain(|source, _| !self.open.contains_key(source) || replaced.contains(source));
        (table, Removed(before.into_values().collect()))
    }

    /// Notes that calls in progress may still change removed file systems after [`Self::close`].
    pub fn note_possible_loss(&mut self) {
        self.has_lost = true;
    }

    /// Returns the first write verifier of a directory that is opened now. RFC 8881 §18.3.3: the verifier changes "at each server event or
    /// instantiation that may lead to a loss of uncommitted data". A directory that was served before in this process, perhaps under another
    /// name, may have lost some.
    fn first_verifier(&self) -> Result<Verifier, String> {
        if self.has_started { random() } else { Ok(self.verifier) }
    }

    /// Flushes and closes file systems that are no longer served.
    pub async fn close(&mut self, removed: Removed) {
        for opened in &removed.0 {
            match self.flush_one(opened).await {
                Ok(is_unchanged) => self.has_lost |= !is_unchanged,
                Err(why) => {
                    self.has_lost = true;
                    error!("removed export: {why}");
                }
            }
        }
    }

    /// Flushes all file systems. Returns the write verifier if it remains valid: no data were lost since the start.
    ///
    /// # Errors
    /// One line about the first failure. All file systems are flushed anyway.
    pub async fn flush(&self) -> Result<Option<Verifier>, String> {
        let (mut is_good, mut result) = (!self.has_lost, Ok(()));
        for opened in self.open.values() {
            match self.flush_one(opened).await {
                Ok(is_unchanged) => is_good &= is_unchanged,
                Err(why) => result = result.and(Err(why)),
            }
        }
        result.map(|()| is_good.then_some(self.verifier))
    }

    /// Flushes one file system. Returns whether its write verifier is unchanged.
    async fn flush_one(&self, opened: &Opened) -> Result<bool, String> {
        let backend = opened.backend();
        backend.sync().await.map_err(|error| format!("flushing: {error}"))?;
        Ok(match opened {
            Opened::Directory(directory, first, journal) => {
                journal.as_ref().map_or(Ok(()), |journal| journal.note_clean())?;
                directory.write_verifier() == *first
            }
            // A file system in memory has a verifier of its own.
            Opened::Memory(_) => true,
        })
    }

    fn open(&self, plan: &ExportPlan) -> Result<Opened, String> {
        match &plan.source {
            Source::Directory(path) => {
                let first = self.first_verifier()?;
                let config = Config {
                    durability: durability(plan),
                    state_directory: self.state_dir.clone(),
                    hidden_directory: self.state_dir.clone(),
                    hidden_socket: self.control.clone(),
                    verifier_seed: first,
                    descriptors: self.descriptors,
                    quotas: self.quotas.clone(),
                    ..Config::new(path)
                };
                let directory = LocalFs::open(&config).map_err(|error| error.to_string())?;
                let acts_as = if directory.acts_as_callers() { "each caller" } else { "the server's user" };
                let handles = if directory.uses_index() { "index" } else { "kernel" };
                info!(path = %path.display(), acts_as, handles, "directory opened");
                let journal = match &self.state_dir {
                    Some(state_dir) => Journal::open(plan, &directory, state_dir, &self.journals)?,
                    None => None,
                };
                Ok(Opened::Directory(directory, first, journal.map(Arc::new)))
            }
            Source::Elsewhere(_) => {
                // Never used: all operations are answered MOVED. The same identity at each start, for the same export ID.
                let nothing =
                    MemOptions { identity: *b"enfys-elsewhere1", max_bytes: 0, ..MemOptions::default() };
                Ok(Opened::Memory(Arc::new(MemFs::new(&nothing))))
            }
            Source::Memory(_) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let (max_bytes, quota_bytes) = plan.memory.bytes_and_quota();
                let memory = MemFs::new(&MemOptions {
                    identity: random()?,
                    instance: self.instance,
                    max_bytes,
                    quota_bytes,
                    // Every user can create files at the top, as in /tmp.
                    root_mode: 0o1777,
                    now: Timestamp { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() },
                    ..MemOptions::default()
                });
                Ok(Opened::Memory(Arc::new(memory.when_full(warn_when_full(plan.pseudo.clone())))))
            }
        }
    }
}

impl Opened {
    /// Returns whether the path of `plan` still leads to it.
    fn is_current(&self, plan: &ExportPlan) -> Result<bool, String> {
        match (self, &plan.source) {
            (Self::Directory(directory, ..), Source::Directory(path)) => directory
                .is_at(path)
                .map_err(|error| plan.error(format!("{}: {}", path.display(), error_text(&error)))),
            _ => Ok(true),
        }
    }

    /// Fails if the plan has another journal than the one in use.
    fn check_journal(&self, plan: &ExportPlan) -> Result<(), String> {
        let Self::Directory(_, _, journal) = self else { return Ok(()) };
        let in_use = journal.as_ref().map(|journal| &journal.path);
        if plan.journal.as_ref().map(|journal| &journal.path) == in_use {
            return Ok(());
        }
        Err(plan.key_error("journal", "takes effect at a start only: restart the server, or undo the change"))
    }

    /// Returns whether both are the same opening of one file system.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory(one, ..), Self::Directory(other, ..)) => one.is_same(other),
            (Self::Memory(one), Self::Memory(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Directory(_, _, Some(journal)) => Arc::clone(&journal.backend) as Arc<dyn Backend>,
            Self::Directory(directory, _, None) => Arc::new(directory.clone()),
            Self::Memory(memory) => Arc::clone(memory) as Arc<dyn Backend>,
        }
    }
}

/// Logs why changes by local processes do not recall delegations, if they should.
fn warn_unless_watched(plan: &ExportPlan, directory: &LocalFs) {
    if !plan.options.recall_local_changes {
        return;
    }
    if let Some(why) = directory.why_unwatched() {
        warn!("{}", plan.error(format!("changes by local processes do not recall delegations: {why}")));
    }
}

/// Minimum time between two log lines about a full file system in memory.
const FULL_LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// Returns a function that logs that a file system in memory is full, at most once an hour.
fn warn_when_full(pseudo: String) -> impl Fn(u64) + Send + Sync + 'static {
    let logged: Mutex<Option<Instant>> = Mutex::new(None);
    move |bytes| {
        let mut logged = logged.lock();
        if logged.is_some_and(|logged| logged.elapsed() < FULL_LOG_INTERVAL) {
            return;
        }
        *logged = Some(Instant::now());
        warn!(
            export = pseudo,
            size = %Size(bytes),
            "file system in memory is full, clients get ENOSPC: remove files, or enlarge it \
             (--memory=SIZE, or `memory-bytes` and a reload)"
        );
    }
}

fn durability(plan: &ExportPlan) -> Durability {
    if plan.is_async { Durability::Async } else { Durability::Sync }
}

/// Returns one entry of an export. Its ID is a hash of its path and its file system's identity. The hash must never change: handles and
/// caches of clients depend on it.
fn export(
    plan: &ExportPlan,
    options: &ExportOptions,
    backend: Arc<dyn Backend>,
    counts: Arc<ExportCounts>,
) -> Export {
    let mut hasher = SipHasher24::new_with_key(b"enfys-export-id1");
    hasher.write(&backend.identity());
    hasher.write(plan.pseudo.as_bytes());
    let hash = hasher.finish128();
    // The pseudo file system has ID 0.
    let id = plan.id.unwrap_or((hash.h1 as u32).max(1));
    Export {
        id: ExportId(id),
        path: plan.pseudo.clone(),
        backend,
        options: options.clone(),
        fsid: (hash.h2, 0),
        counts,
    }
}
