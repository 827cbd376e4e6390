//! How a server is started, and where it is found.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The path that servers export.
pub const EXPORT: &str = "/export";

/// A program with its arguments. It runs in the foreground, and its process is the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Launch {
    /// Returns a shell script as a program.
    pub(super) fn script(path: PathBuf) -> Self {
        Self { program: PathBuf::from("/bin/sh"), arguments: vec![path.into_os_string()] }
    }
}

/// Where a server is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Address and port of NFS.
    pub server: SocketAddr,
    /// Port of MOUNT, for version 3.
    pub mount_port: u16,
    /// Where its counters are, if it tells them.
    pub metrics: Option<SocketAddr>,
}

impl Address {
    /// Returns the URL of an exported path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let Self { server, mount_port, .. } = self;
        format!("nfs://{}{path}?nfsport={}&mountport={mount_port}", server.ip(), server.port())
    }
}
