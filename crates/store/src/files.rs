//! Files of the state directory: how they are opened and synced, and error texts and random bytes for them.

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

/// Opens a file of the state directory; a new one is for the server's user alone.
///
/// # Errors
/// As open(2); a symbolic link is not followed, since it would have the server change a file elsewhere.
pub(crate) fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.mode(0o600).custom_flags(flags).open(path).map_err(|error| {
        let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        let why = "it is a symbolic link, and none is followed in a state directory; replace it by the file";
        if is_link { io::Error::other(why) } else { error }
    })
}

/// Syncs a directory: names made or removed in it are on stable storage afterwards.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
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
