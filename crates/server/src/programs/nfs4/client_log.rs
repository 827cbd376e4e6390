//! Log lines about clients: their confirmation, the exports that they use, and their end.
//!
//! Clients can cause these lines, so all are bounded: by the server's throttle, and for the exports of a client by a set of fixed
//! size. It costs a call one load if the export is the client's first.

use tracing::info;

use super::compound::Compound;
use crate::client_log::{Id, Version};
use crate::request::Request;
use crate::state::Client;
use crate::{Export, Quoted};

impl Compound<'_> {
    /// Logs that a client is confirmed, once.
    pub(super) fn log_confirmed(&self, client: &Client) {
        if !client.should_log_confirmation() {
            return;
        }
        let request = self.request;
        if let Some(suppressed) = request.server.throttle.admit(request.now) {
            let (name, client, version) = (Quoted(client.owner()), Id(client.id()), Version(self.minor));
            info!(%name, %version, peer = %request.connection.peer, %client, suppressed, "client confirmed");
        }
    }

    /// Logs the first use of an export by the client of this compound.
    #[inline]
    pub(super) fn uses(&self, export: &Export) {
        let used = match self.session() {
            Some(running) => &running.client().used_exports,
            // A compound of version 4.0 does not name its client; a connection has only one.
            None => &self.request.connection.used_exports,
        };
        if used.is_first(export.id) {
            self.log_use(export);
        }
    }

    #[cold]
    fn log_use(&self, export: &Export) {
        let of_connection = || {
            let client = self.request.connection.v40_owner.get()?;
            // Not repeated over another connection.
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
        // A version 4.0 client that has not identified itself.
        None => info!(%version, %export, %peer, suppressed, "export in use"),
    }
}
