use protocol::mount::{DirPath, ExportNode, Exports, Name};
use xdr::Chain;

use crate::request::Request;

/// EXPORT (RFC 1813 §5.2.5): the exports that the client may use, with their permitted clients.
pub(super) fn list(request: &Request<'_>) -> Exports {
    let client = request.connection.peer.ip();
    let nodes = request.exports.of_client(client).filter_map(|export| {
        let clients = request.exports.clients(export.id).into_iter();
        let clients = clients.filter_map(|pattern| Name::new(pattern.to_string().into_bytes()).ok());
        let dir = DirPath::new(export.path.clone().into_bytes()).ok()?;
        Some(ExportNode { dir, groups: Chain::new(clients.collect()).ok()? })
    });
    Exports::new(nodes.collect()).unwrap_or_default()
}
