use protocol::mount::{DirPath, ExportNode, Exports, Name};
use xdr::Chain;

use crate::request::Request;

/// EXPORT (RFC 1813 §5.2.5): the exports that the client may mount, with their permitted clients. MOUNT has no referrals, so one that
/// has moved is not listed.
pub(super) fn list(request: &Request<'_>) -> Exports {
    let client = request.connection.peer.ip();
    let present = request.exports.of_client(client).filter(|export| !export.is_absent());
    let nodes = present.filter_map(|export| {
        let clients = request.exports.clients(export.id).into_iter();
        let clients = clients.filter_map(|pattern| Name::new(pattern.to_string().into_bytes()).ok());
        let dir = DirPath::new(export.path.clone().into_bytes()).ok()?;
        Some(ExportNode { dir, groups: Chain::new(clients.collect()).ok()? })
    });
    Exports::new(nodes.collect()).unwrap_or_default()
}
