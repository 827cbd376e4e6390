//! Log lines about clients: when they are confirmed, which exports they use, and when they leave.
//!
//! Clients make these lines come, so that all of them are bounded: by the server's throttle, and each export of a client by a set of
//! fixed size, which costs a call one load where the export is the client's first.

use core::fmt;
use core::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tracing::info;

use super::compound::Compound;
use crate::request::Request;
use crate::state::Client;
use crate::{Export, ExportId, Quoted};

/// Exports of one client, or of one connection of version 4.0, whose first use is logged at most.
const USED_EXPORTS_MAX: usize = 8;

/// Exports that were used.
#[derive(Debug, Default)]
pub(crate) struct UsedExports([AtomicU32; USED_EXPORTS_MAX]);

impl UsedExports {
    /// Whether this is the first use of an export. Once [`USED_EXPORTS_MAX`] were used, every other one counts as used.
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

/// A version of the protocol as log lines write it: `4.2`.
struct Version(u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "4.{}", self.0)
    }
}

/// A client ID as `enfys status` shows it.
struct Id(u64);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Compound<'_> {
    /// Logs that a client is confirmed, once.
    pub(super) fn log_confirmed(&self, client: &Client) {
        if !client.takes_confirmation_line() {
            return;
        }
        let request = self.request;
        if let Some(suppressed) = request.server.throttle.admit(request.now) {
            let (name, client, version) = (Quoted(client.owner()), Id(client.id()), Version(self.minor));
            info!(%name, %version, peer = %request.connection.peer, %client, suppressed, "client confirmed");
        }
    }

    /// The client of this compound uses an export: logged the first time.
    #[inline]
    pub(super) fn uses(&self, export: &Export) {
        let used = match self.session() {
            Some(running) => &running.client().used_exports,
            // Version 4.0 does not say whose a compound is; a connection is one client's.
            None => &self.request.connection.used_exports,
        };
        if used.is_first(export.id) {
            self.log_use(export);
        }
    }

    #[cold]
    fn log_use(&self, export: &Export) {
        let of_connection = || {
            let client = self.request.connection.tenant.get()?;
            // Not once more over another connection.
            Some((client.used_exports.is_first(export.id), client))
        };
        let client = match self.client() {
            Ok(client) => Some(client.clone()),
            Err(_) => match of_connection() {
                Some((false, _)) => return,
                known => known.map(|(_, client)| client),
            },
        };
        log_use(self.request, Version(self.minor), client.as_deref(), export);
    }
}

fn log_use(request: &Request<'_>, version: Version, client: Option<&Client>, export: &Export) {
    let Some(suppressed) = request.server.throttle.admit(request.now) else { return };
    let (export, peer) = (Quoted(export.path.as_bytes()), request.connection.peer);
    match client {
        Some(client) => {
            info!(name = %Quoted(client.owner()), %version, %export, %peer, suppressed, "export in use");
        }
        // A client of version 4.0 that has not said who it is.
        None => info!(%version, %export, %peer, suppressed, "export in use"),
    }
}

/// Logs that a confirmed client is gone.
pub(crate) fn left(client: &Client, seen: Option<(SocketAddr, u32)>, reason: &str, suppressed: u64) {
    let (name, id) = (Quoted(client.owner()), Id(client.id()));
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
    fn the_first_use_of_each_of_some_exports_is_told() {
        let used = UsedExports::default();
        let is_first = |id| used.is_first(ExportId(id));
        assert_eq!([7, 9, 7, 9].map(is_first), [true, true, false, false]);
        let all = (1..=2 * USED_EXPORTS_MAX as u32).filter(|id| is_first(*id)).count();
        assert_eq!(all, USED_EXPORTS_MAX - 2, "bounded");
        assert!((1..100).all(|id| !is_first(id)));
    }
}
