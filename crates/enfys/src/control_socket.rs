//! The control socket, which only its owner and root can use.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// The socket's name in the state directory.
pub const IN_STATE_DIR: &str = "control.sock";

/// Only the owner may connect, and root.
const MODE: u32 = 0o600;
/// Connections that can wait to be accepted.
const BACKLOG: i32 = 16;

/// A listening socket. Its name is removed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens on `path`, and replaces a socket that a server that has ended has left there.
    ///
    /// # Errors
    /// AddrInUse: a server answers there. The path is not a socket, or those of bind(2).
    pub fn bind(path: &Path) -> io::Result<Self> {
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(io::Error::other("the path exists and is not a socket"));
            }
            if self::connect_to(path).is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server uses it"));
            }
            fs::remove_file(path)?;
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Linux creates the name with the socket's mode, so other users can never connect.
        fchmod(&socket, Mode::from_raw_mode(MODE))?;
        with_address(path, |address| bind(&socket, address).map_err(io::Error::from))?;
        listen(&socket, BACKLOG)?;
        Ok(Self { listener: UnixListener::from(socket), path: path.to_path_buf() })
    }

    /// Returns a duplicate of the listener.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If this fails, the next server replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to the server that listens on `path`.
///
/// # Errors
/// As connect(2).
pub fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    with_address(path, |address| connect(&socket, address).map_err(io::Error::from))?;
    Ok(UnixStream::from(socket))
}

/// Calls `then` with the address of `path`. For a path longer than 107 bytes (unix(7)), the address goes through an open directory.
fn with_address<T>(path: &Path, then: impl Fn(&SocketAddrUnix) -> io::Result<T>) -> io::Result<T> {
    if let Ok(address) = SocketAddrUnix::new(path) {
        return then(&address);
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    then(&SocketAddrUnix::new(&short)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_socket_is_private_and_replaces_a_dead_one() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("long".repeat(40));
        fs::create_dir(&deep).unwrap();
        for path in [directory.path().join("short"), deep.join("longer than an address")] {
            let socket = Socket::bind(&path).unwrap();
            assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, MODE);
            connect_to(&path).unwrap();
            assert!(Socket::bind(&path).unwrap_err().to_string().contains("another server uses it"));
            drop(socket);
            assert!(!path.exists());
        }
        // A killed server leaves the name.
        let dead = directory.path().join("dead");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        assert!(connect_to(&dead).is_err());
        drop(Socket::bind(&dead).unwrap());
        let file = directory.path().join("file");
        fs::write(&file, b"precious").unwrap();
        assert!(Socket::bind(&file).unwrap_err().to_string().contains("not a socket"));
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }
}
