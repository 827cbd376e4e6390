//! Markers in the state directory: journals that are in use.
//!
//! A marker is a file `journal.ID` with the random number of the journal and its path. ID is the identity of the file system. It
//! exists from before the first change until an orderly end.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::files::{error_text, open_file, sync_directory};

/// Bytes of a journal's random number.
const KEY_BYTES: usize = 16;
/// Maximum number of bytes of a marker: PATH_MAX, and the number.
const MARKER_BYTES_MAX: u64 = 4096 + KEY_BYTES as u64;

/// A journal that was in use when its server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Its random number.
    pub key: [u8; KEY_BYTES],
    /// Its path.
    pub path: PathBuf,
}

fn path_of(directory: &Path, identity: &[u8; 16]) -> PathBuf {
    let name: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    directory.join(format!("journal.{name}"))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {}", path.display(), error_text(&error))
}

/// Returns the marker of a file system.
///
/// # Errors
/// One line that names the file.
pub fn read(directory: &Path, identity: &[u8; 16]) -> Result<Option<Marker>, String> {
    let path = path_of(directory, identity);
    let file = match open_file(&path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&path)(error)),
    };
    let mut content = Vec::new();
    file.take(MARKER_BYTES_MAX).read_to_end(&mut content).map_err(failed(&path))?;
    // A damaged marker has no journal's number.
    let (key, journal) = content.split_first_chunk().unwrap_or((&[0; KEY_BYTES], &[]));
    Ok(Some(Marker { key: *key, path: std::ffi::OsStr::from_bytes(journal).into() }))
}

/// Writes the marker of a file system, and syncs it.
///
/// # Errors
/// One line that names the file.
pub fn write(directory: &Path, identity: &[u8; 16], marker: &Marker) -> Result<(), String> {
    let path = path_of(directory, identity);
    let write = || {
        let temporary = path.with_extension("new");
        let mut file = open_file(&temporary, OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all(&marker.key)?;
        file.write_all(marker.path.as_os_str().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        sync_directory(directory)
    };
    write().map_err(failed(&path))
}

/// Removes the marker of a file system, and syncs that.
///
/// # Errors
/// One line that names the file.
pub fn remove(directory: &Path, identity: &[u8; 16]) -> Result<(), String> {
    let path = path_of(directory, identity);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(&path)(error)),
        Ok(()) => sync_directory(directory).map_err(failed(directory)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let marker = Marker { key: [3; 16], path: "/fast/log".into() };
        assert_eq!(read(directory, &[1; 16]), Ok(None));
        write(directory, &[1; 16], &marker).unwrap();
        assert_eq!(read(directory, &[1; 16]), Ok(Some(marker)));
        assert_eq!(read(directory, &[2; 16]), Ok(None), "each file system has its own");
        remove(directory, &[1; 16]).unwrap();
        remove(directory, &[1; 16]).unwrap();
        assert_eq!(read(directory, &[1; 16]), Ok(None));
    }
}
