use protocol::mount::{DirPath, ExportNode, Exports, Name};
use xdr::Chain;

use crate::request::Request;

/// EXPORT (RFC 1813 §5.2.5): the exports that the asking client may use, with who else may.
pub(super) fn list(request: &Request<'_>) -> Exports {
    let client = request.connection.peer.ip();
    let visible = request.exports.iter().filter(|export| export.options.admits(client));
    let nodes = visible.filter_map(|export| {
        let networks = export
            .options
            .clients
            .iter()
            .filter_map(|network| Name::new(network.to_string().into_bytes()).ok());
        let dir = DirPath::new(export.path.clone().into_bytes()).ok()?;
        Some(ExportNode { dir, groups: Chain::new(networks.collect()).ok()? })
    });
    Exports::new(nodes.collect()).unwrap_or_default()
}
