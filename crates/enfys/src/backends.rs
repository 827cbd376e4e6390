//! From plans to file systems. One that is served already stays open when exports are read again.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use localfs::{Config, Descriptors, Durability, LocalFs};
use parking_lot::Mutex;
use server::{Export, ExportCounts, ExportId, ExportOptions, ExportTable, Junction};
use siphasher::sip128::{Hasher128, SipHasher24};
use store::{error_text, random};
use tracing::{error, info, warn};
use vfs::{Backend, MemFs, MemOptions, Timestamp, Verifier};

use crate::export_plan::{ExportPlan, Source, limits};
use crate::size::Size;
use crate::submounts;

/// File systems in use, by what they were opened for.
#[derive(Debug)]
pub struct Backends {
    open: HashMap<Source, Opened>,
    /// Different at every start.
    instance: u64,
    /// First write verifier of every directory that is served from the start on.
    verifier: Verifier,
    has_started: bool,
    /// Where indexes of handles live; none for what is transient.
    state_dir: Option<PathBuf>,
    /// Where it is asked for status; none for the state directory.
    control: Option<PathBuf>,
    /// Whether data of a file system that is no longer served may have been lost.
    has_lost: bool,
    /// The descriptors that directories share.
    descriptors: Option<&'static Descriptors>,
    /// Counters of every export so far, by path: they go on where one is served again.
    counts: HashMap<String, Arc<ExportCounts>>,
}

#[derive(Debug, Clone)]
enum Opened {
    /// With its first write verifier.
    Directory(LocalFs, Verifier),
    Memory(Arc<MemFs>),
}

/// Exports that stand ready, with their file systems.
#[derive(Debug)]
pub struct Prepared {
    table: ExportTable,
    open: HashMap<Source, Opened>,
    /// Of those, the directories whose paths led to others before.
    replaced: HashSet<Source>,
    /// Plans of what is mounted inside of exports.
    nested: Vec<ExportPlan>,
}

/// An export within which others may be mounted.
struct Outer {
    /// The directory, without links.
    path: PathBuf,
    directory: LocalFs,
    id: ExportId,
}

/// File systems that are no longer served.
#[derive(Debug)]
pub struct Removed(Vec<Opened>);

impl Backends {
    /// None yet.
    pub fn new(
        instance: u64,
        verifier: Verifier,
        state_dir: Option<PathBuf>,
        control: Option<PathBuf>,
    ) -> Self {
        let (open, has_started, has_lost, descriptors) = (HashMap::new(), false, false, None);
        let counts = HashMap::new();
        Self { open, instance, verifier, has_started, state_dir, control, has_lost, descriptors, counts }
    }

    /// All directories together have no more files open than this.
    pub fn with_files(self, files: usize) -> Self {
        Self { descriptors: Some(Descriptors::new(files)), ..self }
    }

    /// The descriptors that directories share, where they are bounded.
    pub fn descriptors(&self) -> Option<&'static Descriptors> {
        self.descriptors
    }

    /// Opens what `plans` name and is not open yet, or has become another directory or file system since; changes nothing.
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

    /// The entries of the export of `plan`, which go on with what was counted of the path before.
    fn entries(&self, plan: &ExportPlan, opened: &Opened) -> Vec<Export> {
        let counts = self.counts.get(&plan.pseudo).cloned().unwrap_or_default();
        let backend = opened.backend();
        let entry = |options| export(plan, options, Arc::clone(&backend), Arc::clone(&counts));
        plan.all_options().map(entry).collect()
    }

    /// Opens what one plan names, or finds it open.
    fn prepare_one(&self, plan: &ExportPlan, prepared: &mut Prepared) -> Result<Opened, String> {
        let before = self.open.get(&plan.source);
        let opened = match before {
            Some(opened) if opened.is_current(plan)? => opened.clone(),
            _ => self.open(plan).map_err(|why| plan.blame(why))?,
        };
        if before.is_some_and(|before| !before.is(&opened)) {
            prepared.replaced.insert(plan.source.clone());
        }
        prepared.open.insert(plan.source.clone(), opened.clone());
        Ok(opened)
    }

    /// Opens what is mounted inside the directory of `plan`. What cannot be served is logged, and clients
    /// are refused there; so they are where an export of its own is mounted, since locks hold within one export.
    fn prepare_submounts(
        &self,
        plan: &ExportPlan,
        plans: &[ExportPlan],
        prepared: &mut Prepared,
    ) -> Vec<Junction> {
        let (Source::Directory(path), Some(Opened::Directory(directory, first))) =
            (&plan.source, prepared.open.get(&plan.source).cloned())
        else {
            return Vec::new();
        };
        let opened = Opened::Directory(directory.clone(), first);
        let Some(id) = self.entries(plan, &opened).first().map(|entry| entry.id) else { return Vec::new() };
        let found = path.canonicalize().and_then(|path| Ok((submounts::inside(&path)?, path)));
        let (mounts, path) = match found {
            Ok(found) => found,
            Err(error) => {
                warn!(
                    "{}",
                    plan.blame(format!("what is mounted inside is not served: {}", error_text(&error)))
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
                Err(why) => warn!("{}", plan.blame(format!("{} is not served: {why}", mount.display()))),
            }
        }
        junctions
    }

    /// Opens what is mounted at `mount`, below `top`, the directory of `plan`.
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
        // Those that are further inside come last.
        let outer =
            outers.iter().rev().find(|outer| mount.starts_with(&outer.path)).ok_or("nothing is above it")?;
        let within = mount.strip_prefix(&outer.path).map_err(|error| error.to_string())?;
        let name = within.file_name().ok_or("it has no name")?.as_bytes().to_vec();
        let place = outer.directory.mount_point(within).map_err(|error| error.to_string())?;
        let opened = self.prepare_one(&plan, prepared)?;
        let Opened::Directory(directory, _) = &opened else { return Err("it is no directory".into()) };
        let inner: Vec<_> = self.entries(&plan, &opened).into_iter().map(Arc::new).collect();
        let id = inner.first().ok_or("it is for no client")?.id;
        let next = Outer { path: mount.into(), directory: directory.clone(), id };
        prepared.nested.push(plan);
        let (directory, covered_fileid) = (place.directory, place.covered_fileid);
        Ok((Junction { outer: outer.id, directory, name, covered_fileid, inner }, next))
    }

    /// Takes what was prepared from `plans` into use, with their limits and promises. Returns the exports, and the file
    /// systems that are no longer among them.
    pub fn take(&mut self, plans: &[ExportPlan], prepared: Prepared) -> (ExportTable, Removed) {
        let Prepared { table, open, replaced, nested } = prepared;
        let served: HashSet<_> = nested.iter().filter_map(ExportPlan::directory).map(PathBuf::from).collect();
        for plan in plans.iter().chain(&nested) {
            if let (true, Source::Directory(path)) = (replaced.contains(&plan.source), &plan.source) {
                let path = path.display();
                warn!("{}", plan.blame(format!("{path} is another directory or file system now: serving it; handles of the one before are stale")));
            }
            match open.get(&plan.source) {
                Some(Opened::Directory(directory, _)) => {
                    directory.set_served_mounts(served.clone());
                    say_unless_watched(plan, directory);
                    if let Err(error) = directory.set_durability(durability(plan)) {
                        error!("{}", plan.blame(format!("what was answered before is not stable: {error}")));
                    }
                }
                Some(Opened::Memory(memory)) => {
                    let (bytes, quota) = limits(plan.memory);
                    memory.set_limits(bytes, quota);
                }
                None => {}
            }
        }
        for plan in &nested {
            info!("serving {plan}: it is mounted inside of another export");
        }
        for export in table.iter().chain(table.nested()) {
            self.counts.insert(export.path.clone(), Arc::clone(&export.counts));
        }
        self.has_started = true;
        let mut before = std::mem::replace(&mut self.open, open);
        before.retain(|source, _| !self.open.contains_key(source) || replaced.contains(source));
        (table, Removed(before.into_values().collect()))
    }

    /// Calls may still change what is no longer served behind [`Self::close`].
    pub fn doubt(&mut self) {
        self.has_lost = true;
    }

    /// The first write verifier of a directory that is opened now. RFC 8881 §18.3.3 has it vary "at each server event or instantiation that
    /// may lead to a loss of uncommitted data". A directory that was served before in this process, perhaps by another name, may have lost
    /// some, and what is opened now knows nothing of that.
    fn first_verifier(&self) -> Result<Verifier, String> {
        if self.has_started { random() } else { Ok(self.verifier) }
    }

    /// Flushes and closes what is no longer served.
    pub async fn close(&mut self, removed: Removed) {
        for opened in &removed.0 {
            match self.flush_one(opened).await {
                Ok(is_unchanged) => self.has_lost |= !is_unchanged,
                Err(why) => {
                    self.has_lost = true;
                    error!("an export that was removed: {why}");
                }
            }
        }
    }

    /// Brings everything to stable storage. Returns the write verifier if it stays good: nothing was lost since it was
    /// given out.
    ///
    /// # Errors
    /// One line with the first failure; all file systems are flushed all the same.
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

    /// Whether the verifier stayed as it was.
    async fn flush_one(&self, opened: &Opened) -> Result<bool, String> {
        let backend = opened.backend();
        backend.sync().await.map_err(|error| format!("flushing: {error}"))?;
        Ok(match opened {
            Opened::Directory(directory, first) => directory.write_verifier() == *first,
            // What memory loses has its own verifier.
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
                    ..Config::new(path)
                };
                let directory = LocalFs::open(&config).map_err(|error| error.to_string())?;
                let acts = if directory.acts_as_callers() { "each caller" } else { "this process's user" };
                let handles = if directory.uses_index() { "an index" } else { "the kernel" };
                info!("{}: acts as {acts}, finds files by handles of {handles}", path.display());
                Ok(Opened::Directory(directory, first))
            }
            Source::Memory(_) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let (max_bytes, quota_bytes) = limits(plan.memory);
                let memory = MemFs::new(&MemOptions {
                    identity: random()?,
                    instance: self.instance,
                    max_bytes,
                    quota_bytes,
                    // Everyone may create files at the top, each its own, as in /tmp.
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
    /// Whether the path of `plan` leads to it still.
    fn is_current(&self, plan: &ExportPlan) -> Result<bool, String> {
        match (self, &plan.source) {
            (Self::Directory(directory, _), Source::Directory(path)) => directory
                .is_at(path)
                .map_err(|error| plan.blame(format!("{}: {}", path.display(), error_text(&error)))),
            _ => Ok(true),
        }
    }

    /// Whether both are the same opening of one file system.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory(one, _), Self::Directory(other, _)) => one.is_same(other),
            (Self::Memory(one), Self::Memory(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Directory(directory, _) => Arc::new(directory.clone()),
            Self::Memory(memory) => Arc::clone(memory) as Arc<dyn Backend>,
        }
    }
}

/// Says why local processes' changes do not recall delegations, where they should.
fn say_unless_watched(plan: &ExportPlan, directory: &LocalFs) {
    if !plan.options.recall_local_changes {
        return;
    }
    if let Some(why) = directory.why_unwatched() {
        warn!("{}", plan.blame(format!("local processes' changes recall no delegation: {why}")));
    }
}

/// How long it is not said again that a file system in memory is full.
const FULL_AGAIN: Duration = Duration::from_secs(3600);

/// Says that a file system in memory is full: the first time, and then once an hour at most.
fn warn_when_full(pseudo: String) -> impl Fn(u64) + Send + Sync + 'static {
    let told: Mutex<Option<Instant>> = Mutex::new(None);
    move |bytes| {
        let mut told = told.lock();
        if told.is_some_and(|told| told.elapsed() < FULL_AGAIN) {
            return;
        }
        *told = Some(Instant::now());
        warn!(
            export = pseudo,
            size = %Size(bytes),
            "file system in memory is full, clients get ENOSPC: remove files, or give it more \
             (--memory=SIZE, or `memory-bytes` and a reload)"
        );
    }
}

fn durability(plan: &ExportPlan) -> Durability {
    if plan.is_async { Durability::Async } else { Durability::Sync }
}

/// Numbers an export. They are made of its path and its file system's identity by a hash that must never change:
/// clients' handles and caches hang on them.
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
    // 0 is the pseudo file system's.
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
