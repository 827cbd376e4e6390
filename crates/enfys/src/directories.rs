//! What can be told of exported directories before they are opened.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use store::error_text;

use crate::export_plan::{ExportPlan, Source};
use crate::writable;

/// A directory as the file system knows it.
struct Directory<'a> {
    export: &'a ExportPlan,
    /// Without symbolic links.
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    metadata: Metadata,
}

/// Notes which directories are on file systems that are mounted read-only.
pub fn note_read_only_mounts(exports: &mut [ExportPlan]) {
    for export in exports {
        let Source::Directory(path) = &export.source else { continue };
        // A directory that is not there is an error of `check`.
        let flags = rustix::fs::statvfs(path).map(|found| found.f_flag);
        export.is_mounted_read_only = flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY));
    }
}

/// Checks that the directories are there, may be read, and do not get into each other's way; returns warnings.
///
/// # Errors
/// One line that names the export and the directory.
pub fn check(exports: &[ExportPlan], state_dir: Option<&Path>) -> Result<Vec<String>, String> {
    let mut seen: Vec<Directory<'_>> = Vec::new();
    let mut warnings = Vec::new();
    for export in exports {
        let Source::Directory(path) = &export.source else { continue };
        let directory = look(export, path).map_err(|error| {
            export.blame_key("path", format!("{}: {}", path.display(), error_text(&error)))
        })?;
        for other in &seen {
            // State of NFSv4 (locks, share reservations) is kept for each export: two that hold the same files would let
            // one client's lock pass another's by.
            if other.id == directory.id {
                let why = format!("{} is exported as {} already", path.display(), other.export.pseudo);
                return Err(export.blame_key("path", why));
            }
            let nested = [(other, &directory), (&directory, other)];
            let nested = nested.into_iter().find(|(outer, inner)| {
                // Another file system that is mounted inside is not reached through the outer directory.
                outer.id.0 == inner.id.0 && inner.path.starts_with(&outer.path)
            });
            warnings.extend(nested.map(|(outer, inner)| {
                let (inner, outer) = (&inner.export.pseudo, &outer.export.pseudo);
                format!(
                    "{inner} lies inside of {outer}: locks taken through one do not hold through the other"
                )
            }));
        }
        // One that lies inside is hidden from clients (`localfs::Config::hidden_directory`).
        if let Some(state_dir) = state_dir
            && directory.path.starts_with(resolved(state_dir))
        {
            let why = format!(
                "the state directory {} is or contains it, and clients could take the key of file handles; \
                 give another with --state-dir",
                state_dir.display()
            );
            return Err(export.blame_key("path", why));
        }
        warnings.extend(writable::warning(export, path, &directory.metadata));
        seen.push(directory);
    }
    Ok(warnings)
}

/// Looks at a directory in the way that serving it needs.
fn look<'a>(export: &'a ExportPlan, path: &Path) -> io::Result<Directory<'a>> {
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

/// `path` without symbolic links as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let there = absolute.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match there {
        Some((ancestor, canonical)) => {
            canonical.join(absolute.strip_prefix(ancestor).unwrap_or(Path::new("")))
        }
        None => absolute,
    }
}
