//! The state directory: the key of file handles, the server's name, and the write verifier of an orderly stop.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation};
use rustix::io::Errno;

use crate::files::{error_text, open_file, random, sync_directory};

/// Bytes of each durable secret.
const SECRET_BYTES: usize = 16;
/// Bytes of a write verifier.
const VERIFIER_BYTES: usize = 8;

const HANDLE_KEY: &str = "handle.key";
const SERVER_ID: &str = "server.id";
/// The write verifier; exists only between an orderly stop and the next start.
const CLEAN_VERIFIER: &str = "clean.verifier";
const LOCK: &str = "lock";
/// Mode bits that the state directory must not have: it has the key of file handles, and the socket that `enfys evict` uses.
const OTHERS_MODE: u32 = 0o077;

/// The identity of a server for clients.
#[derive(Debug)]
pub struct Identity {
    /// Authenticates file handles.
    pub handle_key: [u8; SECRET_BYTES],
    /// Identifies this server for clients that use it at several addresses.
    pub server_id: [u8; SECRET_BYTES],
}

impl Identity {
    /// Returns a random identity, for a server that serves memory only.
    ///
    /// # Errors
    /// One line: the kernel has no random numbers.
    pub fn transient() -> Result<Self, String> {
        Ok(Self { handle_key: random()?, server_id: random()? })
    }
}

/// A state directory that this process has locked. Clients would treat two servers of one name as one server with two
/// addresses, and would move state between them (RFC 8881 §2.10.5).
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
    was_used: bool,
}

impl StateDir {
    /// Creates the directory if it is missing, and locks it for this process.
    ///
    /// # Errors
    /// One line that names the directory and the error.
    pub fn open(path: &Path) -> Result<Self, String> {
        let fail = |error: &io::Error| failed(path, error);
        make(path)?;
        require_own(path, &fs::metadata(path).map_err(|error| fail(&error))?)?;
        let lock = open_file(&path.join(LOCK), OpenOptions::new().write(true).create(true).truncate(false))
            .map_err(|error| fail(&error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let was_used = path.join(HANDLE_KEY).exists();
                Ok(Self { path: path.to_path_buf(), _lock: lock, was_used })
            }
            Err(Errno::WOULDBLOCK) => Err(format!(
                "state directory {}: another server uses it; give each its own with --state-dir",
                path.display()
            )),
            Err(error) => Err(fail(&error.into())),
        }
    }

    /// Reads the identity, or creates and stores one.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn identity(&self) -> Result<Identity, String> {
        let read_or_make = |name| -> Result<_, String> {
            if let Some(secret) = read::<SECRET_BYTES>(&self.path.join(name))? {
                return Ok(secret);
            }
            let secret = random()?;
            self.write(name, &secret)?;
            Ok(secret)
        };
        Ok(Identity { handle_key: read_or_make(HANDLE_KEY)?, server_id: read_or_make(SERVER_ID)? })
    }

    /// Removes and returns the write verifier of the previous server, if that stopped with all data on stable storage. Afterwards
    /// data may be lost.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn take_clean_verifier(&self) -> Result<Option<[u8; VERIFIER_BYTES]>, String> {
        let path = self.path.join(CLEAN_VERIFIER);
        // Without a readable verifier, clients send unstable data again.
        let verifier = read(&path).unwrap_or_default();
        match fs::remove_file(&path).and_then(|()| sync_directory(&self.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{}: {}", path.display(), error_text(&error)))
            }
            _ => Ok(verifier),
        }
    }

    /// Stores the write verifier, which remains valid because all data are on stable storage.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn store_clean_verifier(&self, verifier: [u8; VERIFIER_BYTES]) -> Result<(), String> {
        self.write(CLEAN_VERIFIER, &verifier)
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether another server used the directory before.
    pub fn was_used(&self) -> bool {
        self.was_used
    }

    /// Writes a file atomically, and syncs it.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.path.join(name);
        let write = || {
            let temporary = path.with_extension("new");
            let mut file = open_file(&temporary, OpenOptions::new().write(true).create(true).truncate(true))?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            sync_directory(&self.path)
        };
        write().map_err(|error: io::Error| format!("{}: {}", path.display(), error_text(&error)))
    }
}

/// Creates the directory if it is missing, with mode 0700.
///
/// # Errors
/// One line that names it.
pub fn make(path: &Path) -> Result<(), String> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("state directory {}: {}", path.display(), error_text(error))
}

/// Fails if another user owns the state directory or has access: that user could read or replace the key of file handles and the
/// logs.
fn require_own(path: &Path, metadata: &fs::Metadata) -> Result<(), String> {
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own {
        return Err(format!(
            "state directory {}: it belongs to user {owner}, and this server runs as user {own}: \
             run `chown -R {own}` on it, start the server as its owner, or give another with --state-dir",
            path.display()
        ));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS_MODE != 0 {
        return Err(format!(
            "state directory {path}: other users have access (mode {mode:04o}): run `chmod 700 {path}`, \
             or give another with --state-dir",
            path = path.display()
        ));
    }
    Ok(())
}

/// Checks whether a server could use the directory `path`; changes nothing.
///
/// # Errors
/// One line that names the error.
pub fn check(path: &Path) -> Result<(), String> {
    let fail = |error: &io::Error| failed(path, error);
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => return Err(fail(&io::ErrorKind::NotADirectory.into())),
        Ok(metadata) => require_own(path, &metadata)?,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(&error)),
        Err(_) => {}
    }
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(there, wanted).map_err(|error| fail(&error.into()))?;
    read::<SECRET_BYTES>(&path.join(HANDLE_KEY))?;
    read::<SECRET_BYTES>(&path.join(SERVER_ID))?;
    Ok(())
}

/// Reads a file of exactly `N` bytes; `None` if there is no file.
fn read<const N: usize>(path: &Path) -> Result<Option<[u8; N]>, String> {
    let fail = |error: &io::Error| format!("{}: {}", path.display(), error_text(error));
    let file = match open_file(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(&error)),
    };
    let mode = file.metadata().map_err(|error| fail(&error))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{}: other users have access (mode {mode:o}) to this secret: run `chmod 600` on it",
            path.display()
        ));
    }
    let mut bytes = Vec::new();
    file.take(N as u64 + 1).read_to_end(&mut bytes).map_err(|error| fail(&error))?;
    match bytes.try_into() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => Err(format!(
            "{}: damaged: not {N} bytes long; restore it from a copy, or remove it and let clients mount again",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_identity_is_stored_and_a_damaged_or_readable_one_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/state");
        check(&path).unwrap();
        assert!(!path.exists(), "a check changes nothing");
        let state = StateDir::open(&path).unwrap();
        let (first, second) = (state.identity().unwrap(), state.identity().unwrap());
        assert_eq!((first.handle_key, first.server_id), (second.handle_key, second.server_id));
        assert_ne!(first.handle_key, first.server_id);
        check(&path).unwrap();
        fs::write(path.join(HANDLE_KEY), b"short").unwrap();
        for error in [state.identity().unwrap_err(), check(&path).unwrap_err()] {
            assert!(error.contains("handle.key: damaged: not 16 bytes"), "{error}");
        }
        fs::write(path.join(HANDLE_KEY), [0; SECRET_BYTES]).unwrap();
        fs::set_permissions(path.join(HANDLE_KEY), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(state.identity().unwrap_err().contains("other users have access (mode 644)"));
    }

    #[test]
    fn a_directory_is_locked_by_one_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let state = StateDir::open(&path).unwrap();
        assert!(StateDir::open(&path).unwrap_err().contains("another server uses it"));
        drop(state);
        StateDir::open(&path).unwrap();
    }

    #[test]
    fn a_clean_verifier_is_returned_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let state = StateDir::open(&path).unwrap();
        assert_eq!(state.take_clean_verifier(), Ok(None));
        state.store_clean_verifier(*b"verifier").unwrap();
        assert_eq!(state.take_clean_verifier(), Ok(Some(*b"verifier")));
        assert_eq!(state.take_clean_verifier(), Ok(None));
        fs::write(path.join(CLEAN_VERIFIER), b"damaged").unwrap();
        assert_eq!(state.take_clean_verifier(), Ok(None));
        assert!(!path.join(CLEAN_VERIFIER).exists());
    }

    #[test]
    fn a_directory_open_to_others_is_refused_with_a_command_to_close_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let set = |mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (mode, shown) in [(0o755, "0755"), (0o710, "0710"), (0o702, "0702"), (0o1770, "1770")] {
            set(mode);
            for error in [StateDir::open(path).unwrap_err(), check(path).unwrap_err()] {
                let expected = format!("(mode {shown}): run `chmod 700 {}`", path.display());
                assert!(error.contains(&expected), "{error}");
            }
            assert_eq!(fs::read_dir(path).unwrap().count(), 0, "nothing is written");
        }
        set(0o700);
        StateDir::open(path).unwrap();
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        if std::os::unix::fs::chown(directory.path(), Some(4711), None).is_err() {
            println!("skipped: only root can change the owner of a directory");
            return;
        }
        for error in [StateDir::open(directory.path()).unwrap_err(), check(directory.path()).unwrap_err()] {
            assert!(error.contains("it belongs to user 4711, and this server runs as user 0"), "{error}");
        }
    }

    #[test]
    fn a_path_that_is_not_a_directory_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for error in [StateDir::open(file.path()).unwrap_err(), check(file.path()).unwrap_err()] {
            assert!(error.starts_with(&format!("state directory {}: ", file.path().display())), "{error}");
        }
    }
}
