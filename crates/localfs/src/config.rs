//! The configuration of a volume.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use vfs::{Quota, QuotaKind};

use crate::descriptors::Descriptors;

/// The promise of an answer about stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Changes of names and attributes are on stable storage before they are answered (RFC 1813 §4.8), WRITE with
    /// its requested stability, and everything at COMMIT. Survives a crash of the machine.
    Sync,
    /// Like `async` of the Linux kernel's server: changes are answered when the kernel has them, stable WRITE and
    /// COMMIT too. Survives a crash of the server, but a crash of the machine loses the changes of its last seconds.
    Async,
}

/// The configuration of a [`LocalFs`](crate::LocalFs) over a directory.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory to export.
    pub directory: PathBuf,
    /// The directory for the index of handles, if kernel handles cannot be used. `None` makes opening fail if the
    /// index is needed.
    pub state_directory: Option<PathBuf>,
    /// A directory that clients must not reach, at any path: the server's state directory. It must contain no
    /// directories.
    pub hidden_directory: Option<PathBuf>,
    /// A socket that clients must not reach.
    pub hidden_socket: Option<PathBuf>,
    /// Uses the index even if kernel handles work: for file systems whose handles are unreliable.
    pub always_use_index: bool,
    /// The promise of answers.
    pub durability: Durability,
    /// The first write verifier. Choose another one whenever unstable data may have been lost since the last start:
    /// at every boot of the machine. A restart of the server alone loses nothing.
    pub verifier_seed: [u8; 8],
    /// Maximum number of descriptors that are kept open for unused files; at most the volume's share of `descriptors`.
    pub max_open_files: Option<usize>,
    /// The budget that the volume shares with others. `None` takes half of `RLIMIT_NOFILE`, for all such
    /// volumes together.
    pub descriptors: Option<&'static Descriptors>,
    /// Asks for quotas of the file system; `None` for a volume without.
    pub quotas: Option<Arc<dyn QuotaSource>>,
}

/// Asks the kernel for quotas. That takes CAP_SYS_ADMIN, which the server does not keep.
pub trait QuotaSource: Send + Sync + fmt::Debug {
    /// Returns a quota on the file system of `file`; `None` if it has none. Blocks.
    ///
    /// # Errors
    /// Those of quotactl(2), or of asking.
    fn quota(&self, file: BorrowedFd<'_>, kind: QuotaKind, id: u32) -> std::io::Result<Option<Quota>>;
}

impl Config {
    /// Creates the configuration of a durable volume over `directory`, without state directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            state_directory: None,
            hidden_directory: None,
            hidden_socket: None,
            always_use_index: false,
            durability: Durability::Sync,
            verifier_seed: [0; 8],
            max_open_files: None,
            descriptors: None,
            quotas: None,
        }
    }
}

/// The reason why a directory cannot be exported, in one line.
#[derive(Debug)]
pub enum OpenError {
    /// The directory cannot be opened.
    Directory(PathBuf, std::io::Error),
    /// Kernel handles cannot be used, and there is no state directory for an index.
    NeedsStateDirectory(PathBuf),
    /// The index cannot be opened, or is in use.
    State(PathBuf, std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path, error) => write!(f, "cannot export {}: {error}", path.display()),
            Self::NeedsStateDirectory(path) => write!(
                f,
                "cannot export {}: without kernel file handles a state directory is needed",
                path.display()
            ),
            Self::State(path, error) => write!(f, "cannot use the state in {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Directory(_, error) | Self::State(_, error) => Some(error),
            Self::NeedsStateDirectory(_) => None,
        }
    }
}
