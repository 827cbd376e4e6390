//! From plans to file systems. One that is served already stays open when exports are read again.

use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use localfs::{Config, Durability, LocalFs};
use server::{Export, ExportId, ExportTable};
use siphasher::sip128::{Hasher128, SipHasher24};
use vfs::{Backend, MemFs, MemOptions, Timestamp};

use crate::plan::{ExportPlan, Source};
use crate::state_dir;

/// File systems in use, by what they were opened for.
#[derive(Debug)]
pub struct Backends {
    open: HashMap<Source, Arc<dyn Backend>>,
    /// Different at every start.
    instance: u64,
    /// Where indexes of handles live; none for what is transient.
    state_dir: Option<std::path::PathBuf>,
}

impl Backends {
    /// None yet.
    pub fn new(instance: u64, state_dir: Option<std::path::PathBuf>) -> Self {
        Self { open: HashMap::new(), instance, state_dir }
    }

    /// Opens what `plans` name, drops what they no longer name.
    ///
    /// # Errors
    /// One line that names the export; nothing is changed then.
    pub fn exports(&mut self, plans: &[ExportPlan]) -> Result<ExportTable, String> {
        let mut open = HashMap::new();
        let mut exports = Vec::new();
        for plan in plans {
            let known = self.open.get(&plan.source).or_else(|| open.get(&plan.source)).cloned();
            let backend = match known {
                Some(backend) => backend,
                None => self.open(&plan.source)?,
            };
            open.insert(plan.source.clone(), Arc::clone(&backend));
            exports.push(export(plan, backend));
        }
        let table = ExportTable::new(exports).map_err(|error| error.to_string())?;
        self.open = open;
        Ok(table)
    }

    /// All file systems in use.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.open.values()
    }

    fn open(&self, source: &Source) -> Result<Arc<dyn Backend>, String> {
        match source {
            Source::Directory { path, is_async } => {
                let config = Config {
                    durability: if *is_async { Durability::Async } else { Durability::Sync },
                    state_directory: self.state_dir.clone(),
                    verifier_seed: self.instance.to_be_bytes(),
                    ..Config::new(path)
                };
                LocalFs::open(&config)
                    .map(|backend| Arc::new(backend) as Arc<dyn Backend>)
                    .map_err(|error| error.to_string())
            }
            Source::Memory { pseudo: _, bytes } => {
                let defaults = MemOptions::default();
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Ok(Arc::new(MemFs::new(&MemOptions {
                    identity: state_dir::random()?,
                    instance: self.instance,
                    max_bytes: bytes.unwrap_or(defaults.max_bytes),
                    // Everyone may create files at the top, each its own, as in /tmp.
                    root_mode: 0o1777,
                    now: Timestamp { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() },
                    ..defaults
                })))
            }
        }
    }
}

/// Numbers an export. They are made of its path and its file system's identity by a hash that must never change:
/// clients' handles and caches hang on them.
fn export(plan: &ExportPlan, backend: Arc<dyn Backend>) -> Export {
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
        options: plan.options.clone(),
        fsid: (hash.h2, 0),
    }
}
