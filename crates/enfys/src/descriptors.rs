//! How the process divides its file descriptors among connections, files and everything else.
//!
//! None of them can take another's part: connections are refused at their limit, files are closed and opened again, and what is
//! reserved is always there for accepting a connection, the control socket, metrics, logs and what a thread opens for a moment.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Part of all descriptors that is reserved.
const RESERVED_PART: usize = 4;
/// Descriptors that are reserved at least, and at most.
const RESERVED_MIN: usize = 64;
const RESERVED_MAX: usize = 512;
/// Part of the others that connections may take.
const CONNECTIONS_PART: usize = 3;
/// Part of the connections that one address leaves to others, where there are fewer than wanted.
const ADDRESS_PART: usize = 5;
/// Fewer descriptors than this are worth a warning.
const FEW: usize = 1024;

/// What each may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Connections open at once.
    pub connections: usize,
    /// Files open at once, in all exports.
    pub files: usize,
}

impl Shares {
    /// Takes as many descriptors as the system allows, and divides them; `connections` are wanted.
    pub fn take(connections: usize) -> Self {
        raise_limit();
        let limit = limit();
        let shares = Self::of(limit, connections);
        let Self { connections: allowed, files } = shares;
        if limit < FEW {
            warn!(
                limit,
                connections = allowed,
                files,
                "few file descriptors: raise the limit (`ulimit -n`, LimitNOFILE= of a systemd service)"
            );
        } else {
            debug!(limit, connections = allowed, files, "file descriptors");
        }
        shares
    }

    /// Connections that one address may have of them; `wanted` as the operator wants it, of all `connections`.
    pub fn connections_of_address(self, wanted: usize, connections: usize) -> usize {
        if self.connections >= connections {
            return wanted;
        }
        // The limits were chosen for more connections than there are: no single address takes all.
        wanted.min(self.connections - self.connections / ADDRESS_PART).max(1)
    }

    fn of(limit: usize, connections: usize) -> Self {
        let free = limit.saturating_sub((limit / RESERVED_PART).clamp(RESERVED_MIN, RESERVED_MAX));
        let connections = connections.min(free / CONNECTIONS_PART).max(1);
        Self { connections, files: free.saturating_sub(connections).max(1) }
    }
}

/// Descriptors that this process may have.
pub fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Each connection and each open file is a descriptor.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!("the limit on open files stays at {:?}: {error}", limit.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_files_leave_a_reserve() {
        for limit in [256, 512, 1024, 4096, 1 << 20] {
            let Shares { connections, files } = Shares::of(limit, 10_000);
            assert!(connections + files + RESERVED_MIN <= limit, "{limit}");
            assert!(connections >= limit / 8 || connections == 10_000, "{limit}");
            assert!(files >= limit / 4, "{limit}");
        }
    }

    #[test]
    fn one_address_leaves_connections_to_others() {
        let few = Shares::of(512, 10_000);
        let of_one = few.connections_of_address(8000, 10_000);
        assert!(of_one < few.connections && of_one > few.connections / 2);
        let enough = Shares { connections: 100, files: 1 };
        assert_eq!(enough.connections_of_address(100, 100), 100, "as the operator says");
    }

    #[test]
    fn what_connections_do_not_want_is_for_files() {
        assert_eq!(Shares::of(1 << 20, 100).files, (1 << 20) - RESERVED_MAX - 100);
    }

    #[test]
    fn every_limit_gives_each_something() {
        for limit in [0, 1, 64, 65] {
            let Shares { connections, files } = Shares::of(limit, 10_000);
            assert!(connections > 0 && files > 0, "{limit}");
        }
    }
}
