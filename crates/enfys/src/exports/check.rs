//! Checks of exported directories before they are opened.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use store::error_text;

use super::plan::{ExportPlan, Source};
use super::writable;

/// A directory that exists.
struct Directory<'a> {
    export: &'a ExportPlan,
    /// Without symbolic links.
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    metadata: Metadata,
}

/// Sets `is_mounted_read_only` of each export.
pub fn note_read_only_mounts(exports: &mut [ExportPlan]) {
    for export in exports {
        let Source::Directory(path) = &export.source else { continue };
        // `check_directories` reports a missing directory.
        let flags = rustix::fs::statvfs(path).map(|found| found.f_flag);
        export.is_mounted_read_only = flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY));
    }
}

/// Checks that the directories exist, can be read, and do not conflict. Returns warnings.
///
/// # Errors
/// One line that names the export and the directory.
pub fn check_directories(exports: &[ExportPlan], state_dir: Option<&Path>) -> Result<Vec<String>, String> {
    let mut seen: Vec<Directory<'_>> = Vec::new();
    let mut warnings = Vec::new();
    for export in exports {
        let Source::Directory(path) = &export.source else { continue };
        let directory = inspect(export, path).map_err(|error| {
            export.key_error("path", format!("{}: {}", path.display(), error_text(&error)))
        })?;
        for other in &seen {
            // Locks and share reservations of NFSv4 belong to an export. Through two exports of the same files, conflicting locks
            // would be granted.
            if other.id == directory.id {
                let why = format!("{} is already exported as {}", path.display(), other.export.pseudo);
                return Err(export.key_error("path", why));
            }
            let nested = [(other, &directory), (&directory, other)];
            let nested = nested.into_iter().find(|(outer, inner)| {
                // A file system that is mounted inside is not part of the outer export.
                outer.id.0 == inner.id.0 && inner.path.starts_with(&outer.path)
            });
            if let Some((outer, inner)) = nested {
                check_no_journal(outer, inner)?;
            }
            warnings.extend(nested.map(|(outer, inner)| {
                let (inner, outer) = (&inner.export.pseudo, &outer.export.pseudo);
                format!(
                    "{inner} is inside {outer}: a lock taken through one does not exclude locks through the other"
                )
            }));
        }
        // A state directory inside an export is hidden from clients (`localfs::Config::hidden_directory`).
        if let Some(state_dir) = state_dir
            && directory.path.starts_with(resolved(state_dir))
        {
            let why = format!(
                "it is in the state directory {}, so clients could read the key of file handles: \
                 give another state directory with --state-dir",
                state_dir.display()
            );
            return Err(export.key_error("path", why));
        }
        warnings.extend(writable::warning(export, path, &directory.metadata));
        seen.push(directory);
    }
    seen.iter().try_for_each(|directory| check_journal(directory.export, state_dir, &seen))?;
    Ok(warnings)
}

/// Refuses journals of nested exports: after a crash, a journal would repeat its older changes over those that the other export has
/// made durable.
fn check_no_journal(outer: &Directory<'_>, inner: &Directory<'_>) -> Result<(), String> {
    let Some(journaled) = [outer, inner].into_iter().find(|one| one.export.journal.is_some()) else {
        return Ok(());
    };
    let (inner, outer) = (&inner.export.pseudo, &outer.export.pseudo);
    let why = format!(
        "{inner} is inside {outer}, so the same files would also change without it: export one of the two"
    );
    Err(journaled.export.key_error("journal", why))
}

/// Checks that an export's journal has a place of its own, and that its changes wait for it.
fn check_journal(
    export: &ExportPlan,
    state_dir: Option<&Path>,
    exported: &[Directory<'_>],
) -> Result<(), String> {
    let Some(journal) = &export.journal else { return Ok(()) };
    let wrong = |why: String| Err(export.key_error("journal", why));
    if export.is_async {
        return wrong("`async` answers before anything is on stable storage: remove one of the two".into());
    }
    if export.offline.is_some() {
        return wrong("files that are offline cannot have one: remove `offline-xattr` or `journal`".into());
    }
    if state_dir.is_none() {
        return wrong("needs a state-dir, where the server notes that it has one".into());
    }
    let path = resolved(&journal.path);
    match exported.iter().find(|directory| path.starts_with(&directory.path)) {
        Some(directory) => {
            wrong(format!("{} is inside the export {}", journal.path.display(), directory.export.pseudo))
        }
        None => Ok(()),
    }
}

/// Opens a directory as for serving, and returns its properties.
fn inspect<'a>(export: &'a ExportPlan, path: &Path) -> io::Result<Directory<'a>> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())?;
        let id = (metadata.dev(), metadata.ino());
        Ok(Directory { export, path: std::fs::canonicalize(path)?, id, metadata })
    } else {
        Err(io::Error::from(io::ErrorKind::NotADirectory))
    }
}

/// Returns `path` with symbolic links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let existing = absolute.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match existing {
        Some((ancestor, canonical)) => {
            canonical.join(absolute.strip_prefix(ancestor).unwrap_or(Path::new("")))
        }
        None => absolute,
    }
}
