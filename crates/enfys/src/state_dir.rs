//! What must outlive the server: the key of its file handles, its name, and whether its end was clean.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of each durable secret.
const SECRET_BYTES: usize = 16;
/// Bytes of a write verifier.
const VERIFIER_BYTES: usize = 8;

const HANDLE_KEY: &str = "handle.key";
const SERVER_ID: &str = "server.id";
/// There only between a clean end and the next start: the write verifier that stays good.
const CLEAN_VERIFIER: &str = "clean.verifier";
const LOCK: &str = "lock";

/// Who this server is to its clients.
#[derive(Debug)]
pub struct Identity {
    /// Authenticates file handles.
    pub handle_key: [u8; SECRET_BYTES],
    /// Names this server to clients that see it at several addresses.
    pub server_id: [u8; SECRET_BYTES],
}

impl Identity {
    /// An identity that ends with the process: for what lives in memory alone.
    ///
    /// # Errors
    /// Where there are no random numbers.
    pub fn transient() -> Result<Self, String> {
        Ok(Self { handle_key: random()?, server_id: random()? })
    }
}

/// A state directory in use by this process alone: two servers with one name would pass for one, reached at two
/// addresses, and clients would move state between them (RFC 8881 §2.10.5).
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
    was_used: bool,
}

impl StateDir {
    /// Takes the directory for this process, making it where it is missing.
    ///
    /// # Errors
    /// One line that names what is wrong.
    pub fn open(path: &Path) -> Result<Self, String> {
        let fail = |error: &io::Error| format!("state directory {}: {}", path.display(), crate::said(error));
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| fail(&error))?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join(LOCK)).map_err(|error| fail(&error))?;
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

    /// Reads the identity kept here, or makes and keeps one.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn identity(&self) -> Result<Identity, String> {
        let read_or_make = |name| -> Result<_, String> {
            if let Some(secret) = read::<SECRET_BYTES>(&self.path.join(name))? {
                return Ok(secret);
            }
            let secret = random()?;
            self.keep(name, &secret)?;
            Ok(secret)
        };
        Ok(Identity { handle_key: read_or_make(HANDLE_KEY)?, server_id: read_or_make(SERVER_ID)? })
    }

    /// The write verifier of the server before, if it ended with everything on stable storage. It is not there a second
    /// time: from here on, data may be lost.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn take_clean_verifier(&self) -> Result<Option<[u8; VERIFIER_BYTES]>, String> {
        let path = self.path.join(CLEAN_VERIFIER);
        // A damaged one tells nothing, and nothing is lost by that.
        let verifier = read(&path).unwrap_or_default();
        match fs::remove_file(&path).and_then(|()| sync_directory(&self.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{}: {}", path.display(), crate::said(&error)))
            }
            _ => Ok(verifier),
        }
    }

    /// Says that everything is on stable storage, so that `verifier` stays good.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn keep_clean_verifier(&self, verifier: [u8; VERIFIER_BYTES]) -> Result<(), String> {
        self.keep(CLEAN_VERIFIER, &verifier)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a server has left its identity here before this one.
    pub fn was_used(&self) -> bool {
        self.was_used
    }

    /// Writes a new file so that it is there whole or not at all, whatever happens in between.
    fn keep(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.path.join(name);
        let write = || {
            let temporary = path.with_extension("new");
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            sync_directory(&self.path)
        };
        write().map_err(|error: io::Error| format!("{}: {}", path.display(), crate::said(&error)))
    }
}

/// Looks whether a server could use `path`, and changes nothing.
///
/// # Errors
/// One line that names what is wrong.
pub fn check(path: &Path) -> Result<(), String> {
    let fail = |error: &io::Error| format!("state directory {}: {}", path.display(), crate::said(error));
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => return Err(fail(&io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(&error)),
        _ => {}
    }
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(there, wanted).map_err(|error| fail(&error.into()))?;
    read::<SECRET_BYTES>(&path.join(HANDLE_KEY))?;
    read::<SECRET_BYTES>(&path.join(SERVER_ID))?;
    Ok(())
}

/// Where state lives unless told otherwise.
///
/// # Errors
/// Where neither root's place nor a home directory is to be had.
pub fn default_path() -> Result<PathBuf, String> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/enfys"));
    }
    let state_home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = state_home.or(home);
    base.map(|base| base.join("enfys"))
        .ok_or_else(|| "no place for durable state: give --state-dir, or set HOME".to_string())
}

/// Random bytes from the kernel.
///
/// # Errors
/// Where the kernel has none to give.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .map_err(|error| format!("no random numbers: {error}"))?;
    }
    Ok(bytes)
}

/// What a file of this length holds; `None` where there is no file.
fn read<const N: usize>(path: &Path) -> Result<Option<[u8; N]>, String> {
    let fail = |error: &io::Error| format!("{}: {}", path.display(), crate::said(error));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(&error)),
    };
    let mode = file.metadata().map_err(|error| fail(&error))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("{}: others may read it (mode {mode:o}): it is a secret", path.display()));
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

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_kept_and_a_damaged_or_open_one_refused() {
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
        let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(path.join(HANDLE_KEY), open).unwrap();
        assert!(state.identity().unwrap_err().contains("others may read it"));
    }

    #[test]
    fn one_server_alone_uses_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        assert!(StateDir::open(directory.path()).unwrap_err().contains("another server uses it"));
        drop(state);
        StateDir::open(directory.path()).unwrap();
    }

    #[test]
    fn a_clean_verifier_is_there_once() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        assert_eq!(state.take_clean_verifier(), Ok(None));
        state.keep_clean_verifier(*b"verifier").unwrap();
        assert_eq!(state.take_clean_verifier(), Ok(Some(*b"verifier")));
        assert_eq!(state.take_clean_verifier(), Ok(None));
        fs::write(directory.path().join(CLEAN_VERIFIER), b"damaged").unwrap();
        assert_eq!(state.take_clean_verifier(), Ok(None));
        assert!(!directory.path().join(CLEAN_VERIFIER).exists());
    }

    #[test]
    fn what_is_no_directory_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for error in [StateDir::open(file.path()).unwrap_err(), check(file.path()).unwrap_err()] {
            assert!(error.starts_with(&format!("state directory {}: ", file.path().display())), "{error}");
        }
    }
}
