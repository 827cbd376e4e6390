//! Files of the state directory: opening, syncing, error texts, random bytes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns an error's text without its number.
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// Opens a file of the state directory. A new file is readable and writable by the server's user only.
///
/// # Errors
/// As open(2). A symbolic link is not followed: it could make the server change a file elsewhere.
pub(crate) fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.mode(0o600).custom_flags(flags).open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        let why =
            "it is a symbolic link, which is not followed in a state directory: replace it with the file";
        if is_link { io::Error::other(why) } else { error }
    })
}

/// Syncs a directory: names created or removed in it are on stable storage afterwards.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Syncs the directory that a file is in.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    sync_directory(path.parent().unwrap_or(Path::new("/")))
}

/// Returns random bytes from the kernel.
///
/// # Errors
/// One line: the kernel has none.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .map_err(|error| format!("no random numbers: {error}"))?;
    }
    Ok(bytes)
}
