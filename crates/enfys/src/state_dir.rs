//! What must outlive the server: the key of its file handles, and its name.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of each durable secret.
const SECRET_BYTES: usize = 16;

/// What a state directory holds.
#[derive(Debug)]
pub struct Identity {
    /// Authenticates file handles.
    pub handle_key: [u8; SECRET_BYTES],
    /// Names this server to clients that see it at several addresses.
    pub server_id: [u8; SECRET_BYTES],
}

impl Identity {
    /// An identity that ends with the process: for what lives in memory alone.
    pub fn transient() -> Result<Self, String> {
        Ok(Self { handle_key: random()?, server_id: random()? })
    }

    /// Reads the identity kept in `directory`, or makes and keeps one.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn durable(directory: &Path) -> Result<Self, String> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| format!("state directory {}: {error}", directory.display()))?;
        Ok(Self {
            handle_key: read_or_make(&directory.join("handle.key"))?,
            server_id: read_or_make(&directory.join("server.id"))?,
        })
    }
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

fn read_or_make(path: &Path) -> Result<[u8; SECRET_BYTES], String> {
    let fail = |error: io::Error| format!("{}: {error}", path.display());
    match File::open(path) {
        Ok(file) => {
            let metadata = file.metadata().map_err(fail)?;
            if metadata.mode() & 0o077 != 0 {
                return Err(format!(
                    "{}: others may read it (mode {:o}): it is a secret",
                    path.display(),
                    metadata.mode() & 0o777
                ));
            }
            let mut bytes = Vec::new();
            file.take(SECRET_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
            bytes.try_into().map_err(|bytes: Vec<u8>| {
                format!("{}: damaged: {} bytes instead of {SECRET_BYTES}; restore it from a copy, or remove it and let clients mount again", path.display(), bytes.len())
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = random()?;
            keep(path, &secret).map_err(fail)?;
            Ok(secret)
        }
        Err(error) => Err(fail(error)),
    }
}

/// Writes a new file so that it is there whole or not at all, whatever happens in between.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_kept_and_a_damaged_or_open_one_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let first = Identity::durable(&state).unwrap();
        let second = Identity::durable(&state).unwrap();
        assert_eq!((first.handle_key, first.server_id), (second.handle_key, second.server_id));
        fs::write(state.join("handle.key"), b"short").unwrap();
        assert!(Identity::durable(&state).unwrap_err().contains("handle.key: damaged: 5 bytes"));
        fs::remove_file(state.join("handle.key")).unwrap();
        fs::write(state.join("handle.key"), [0; SECRET_BYTES]).unwrap();
        let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(state.join("handle.key"), open).unwrap();
        assert!(Identity::durable(&state).unwrap_err().contains("others may read it"));
    }
}
