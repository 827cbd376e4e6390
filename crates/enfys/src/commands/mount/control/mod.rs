//! The control socket of a mount's process: `enfys stats`.
//!
//! A request is one line of JSON, the response another one; then the connection ends. The socket has mode 0600 in a directory of the
//! mount's user, and the peer must be that user or root. Its name is that of the mount's device, which the table of mounts shows, so
//! that no request goes to the mount itself.

pub mod client;
pub mod protocol;
pub mod server;

use std::fs::{DirBuilder, symlink_metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the sockets of root's mounts are.
const OF_ROOT: &str = "/run/enfys";
/// The directory's name in `XDG_RUNTIME_DIR`.
const IN_RUNTIME_DIRECTORY: &str = "enfys";

/// Returns the directories in which sockets of a user's mounts may be, the preferred one first.
fn directories(user: u32) -> Vec<PathBuf> {
    if user == 0 {
        return vec![OF_ROOT.into()];
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| rustix::process::geteuid().as_raw() == user);
    let mut all: Vec<PathBuf> = own.into_iter().map(PathBuf::from).collect();
    all.push(format!("/run/user/{user}").into());
    all.iter_mut().for_each(|directory| directory.push(IN_RUNTIME_DIRECTORY));
    all.push(format!("/tmp/enfys-{user}").into());
    all
}

/// Returns the socket's name for the mount with this device.
fn name(device: u32) -> String {
    format!("mount-{device}.sock")
}

/// Returns the path of a socket that can be created for a mount of this process.
///
/// # Errors
/// No directory for it can be created, or it belongs to another user.
fn own_path(device: u32) -> io::Result<PathBuf> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for directory in directories(rustix::process::geteuid().as_raw()) {
        outcome = prepare(&directory).map(|()| directory.join(name(device)));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Creates a directory that only this process's user can use.
fn prepare(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = symlink_metadata(directory)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if is_own && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!("{}: not a directory of this user alone", directory.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let (good, open, link) = (top.path().join("good"), top.path().join("open"), top.path().join("link"));
        prepare(&good).expect("a new directory");
        prepare(&good).expect("the same again");
        std::fs::create_dir(&open).expect("a directory");
        set_permissions(&open, Permissions::from_mode(0o777)).expect("its owner");
        assert!(prepare(&open).is_err());
        symlink(&good, &link).expect("a link");
        assert!(prepare(&link).is_err());
    }

    #[test]
    fn each_user_has_directories_of_its_own() {
        let of = |user| directories(user).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(of(0), ["/run/enfys"]);
        assert!(of(4242).ends_with(&["/run/user/4242/enfys".to_owned(), "/tmp/enfys-4242".to_owned()]));
    }
}
