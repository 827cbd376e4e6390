//! Lookup across the mount points inside an export.

use std::sync::Arc;

use vfs::{Access, Context, Handle};

use crate::Export;
use crate::request::Request;

/// Returns the export that is mounted at `name` of a directory, if the caller may look names up there.
pub(crate) async fn cross<'r>(
    request: &'r Request<'_>,
    (outer, context): (&Export, &Context),
    directory: &Handle,
    name: &[u8],
) -> Option<&'r Arc<Export>> {
    let junction =
        request.exports.junctions_in(outer.id, directory).find(|junction| *junction.name == *name)?;
    let (granted, _) = outer.backend.access(context, directory, Access::LOOKUP).await.ok()?;
    let inner = granted.contains(Access::LOOKUP).then_some(junction.inner.first()?)?;
    request.exports.for_client(inner.id, request.connection.peer.ip())
}
