//! The limits of connections, files and everything else in the process's file descriptors.
//!
//! No share can exhaust another: connections are refused at their limit, and files are closed and reopened. A reserve remains for
//! accepting connections, the control socket, metrics, logs, and files that a thread opens briefly.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// One in this many descriptors is reserved.
const RESERVED_PART: usize = 4;
/// Minimum and maximum number of reserved descriptors.
const RESERVED_MIN: usize = 64;
const RESERVED_MAX: usize = 512;
/// One in this many of the others is for connections.
const CONNECTIONS_PART: usize = 3;
/// One in this many connections is not for the address with the most, if there are fewer connections than configured.
const ADDRESS_PART: usize = 5;
/// Limit below which a warning is logged.
const FEW: usize = 1024;

/// The number of descriptors of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Open connections.
    pub connections: usize,
    /// Open files of all exports.
    pub files: usize,
}

impl DescriptorLimits {
    /// Raises the process's limit as far as the system allows, and divides it. `connections` is the configured number.
    pub fn raise_and_divide(connections: usize) -> Self {
        raise_limit();
        let limit = limit();
        let limits = Self::of(limit, connections);
        let Self { connections: allowed, files } = limits;
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
        limits
    }

    /// Returns the connections that one address may have. The operator has configured `wanted` of `connections`.
    pub fn connections_of_address(self, wanted: usize, connections: usize) -> usize {
        if self.connections >= connections {
            return wanted;
        }
        // There are fewer connections than the operator expected: no address may take all.
        wanted.min(self.connections - self.connections / ADDRESS_PART).max(1)
    }

    fn of(limit: usize, connections: usize) -> Self {
        let free = limit.saturating_sub((limit / RESERVED_PART).clamp(RESERVED_MIN, RESERVED_MAX));
        let connections = connections.min(free / CONNECTIONS_PART).max(1);
        Self { connections, files: free.saturating_sub(connections).max(1) }
    }
}

/// Returns the process's limit on descriptors.
pub fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Raises the soft limit to the hard one.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!("cannot raise the limit on open files, it stays at {:?}: {error}", limit.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_files_leave_a_reserve() {
        for limit in [256, 512, 1024, 4096, 1 << 20] {
            let DescriptorLimits { connections, files } = DescriptorLimits::of(limit, 10_000);
            assert!(connections + files + RESERVED_MIN <= limit, "{limit}");
            assert!(connections >= limit / 8 || connections == 10_000, "{limit}");
            assert!(files >= limit / 4, "{limit}");
        }
    }

    #[test]
    fn one_address_leaves_connections_for_others() {
        let few = DescriptorLimits::of(512, 10_000);
        let of_one = few.connections_of_address(8000, 10_000);
        assert!(of_one < few.connections && of_one > few.connections / 2);
        let enough = DescriptorLimits { connections: 100, files: 1 };
        assert_eq!(enough.connections_of_address(100, 100), 100, "the operator's own value");
    }

    #[test]
    fn descriptors_that_connections_do_not_need_are_for_files() {
        assert_eq!(DescriptorLimits::of(1 << 20, 100).files, (1 << 20) - RESERVED_MAX - 100);
    }

    #[test]
    fn every_limit_leaves_some_for_each() {
        for limit in [0, 1, 64, 65] {
            let DescriptorLimits { connections, files } = DescriptorLimits::of(limit, 10_000);
            assert!(connections > 0 && files > 0, "{limit}");
        }
    }
}
