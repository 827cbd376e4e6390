//! Log lines about NFSv4 clients.

use core::net::SocketAddr;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tracing::info;

use crate::{ExportId, Quoted, Suppressed};

/// Maximum number of exports of one client, or of one connection of version 4.0, whose first use is logged.
const USED_EXPORTS_MAX: usize = 8;

/// Exports whose first use was logged.
#[derive(Debug, Default)]
pub(crate) struct UsedExports([AtomicU32; USED_EXPORTS_MAX]);

impl UsedExports {
    /// Returns true for the first use of an export. After [`USED_EXPORTS_MAX`] exports all others count as used.
    #[inline]
    pub(crate) fn is_first(&self, ExportId(id): ExportId) -> bool {
        for place in &self.0 {
            let mut used = place.load(Relaxed);
            if used == ExportId::PSEUDO.0 {
                match place.compare_exchange(used, id, Relaxed, Relaxed) {
                    Ok(_) => return true,
                    Err(other) => used = other,
                }
            }
            if used == id {
                return false;
            }
        }
        false
    }
}

/// A minor version for log lines: `4.2`.
pub(crate) struct Version(pub(crate) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "4.{}", self.0)
    }
}

/// A client ID in the format of `enfys status`.
pub(crate) struct Id(pub(crate) u64);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Logs that a confirmed client was removed. `seen` is its last address and minor version.
pub(crate) fn left(
    (name, id): (&[u8], u64),
    seen: Option<(SocketAddr, u32)>,
    reason: &str,
    suppressed: Suppressed,
) {
    let (name, id) = (Quoted(name), Id(id));
    match seen {
        Some((peer, minor)) => {
            info!(%name, version = %Version(minor), %peer, client = %id, reason, suppressed, "client left");
        }
        None => info!(%name, client = %id, reason, suppressed, "client left"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_first_use_of_a_bounded_number_of_exports() {
        let used = UsedExports::default();
        let is_first = |id| used.is_first(ExportId(id));
        assert_eq!([7, 9, 7, 9].map(is_first), [true, true, false, false]);
        let all = (1..=2 * USED_EXPORTS_MAX as u32).filter(|id| is_first(*id)).count();
        assert_eq!(all, USED_EXPORTS_MAX - 2, "bounded");
        assert!((1..100).all(|id| !is_first(id)));
    }
}
