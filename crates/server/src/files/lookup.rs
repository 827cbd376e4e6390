//! LOOKUP of versions 2 and 3, which know `.` and `..`, and lead into the exports that are mounted inside others.

use vfs::{Attributes, Error, FileKind, Found, Handle, Result};

use super::mount_points::cross;
use crate::Export;
use crate::exports::junction::Junction;
use crate::request::{Request, Target};

/// Returns the object that the name leads to, and its export.
pub(crate) async fn find<'r>(
    request: &'r Request<'_>,
    target: &Target<'r>,
    name: &[u8],
) -> Result<(&'r Export, Found)> {
    let backend = &target.export.backend;
    let found = match name {
        b"." => itself(target).await,
        b".." if target.handle == backend.root() => match request.exports.junction_of(target.export.id) {
            Some(junction) => return Box::pin(above(request, target, junction)).await,
            // The root of an export has no parent.
            None => itself(target).await,
        },
        b".." => backend.parent(&target.context, &target.handle).await,
        name => backend.lookup(&target.context, &target.handle, name).await,
    };
    if found.as_ref().err() == Some(&Error::Access)
        && let Some(inside) = Box::pin(below(request, target, name)).await
    {
        return inside;
    }
    Ok((target.export, found?))
}

/// Returns the root of the export that is mounted at `name`, if any.
async fn below<'r>(
    request: &'r Request<'_>,
    target: &Target<'r>,
    name: &[u8],
) -> Option<Result<(&'r Export, Found)>> {
    let inner = cross(request, (target.export, &target.context), &target.handle, name).await?;
    Some(found_in(request, target, inner, inner.backend.root()).await)
}

/// Returns the directory with the mount point of the target's export.
async fn above<'r>(
    request: &'r Request<'_>,
    target: &Target<'r>,
    junction: &Junction,
) -> Result<(&'r Export, Found)> {
    let outer =
        request.exports.for_client(junction.outer, request.connection.peer.ip()).ok_or(Error::Stale)?;
    found_in(request, target, outer, junction.directory).await
}

async fn found_in<'r>(
    request: &Request<'_>,
    target: &Target<'_>,
    export: &'r Export,
    handle: Handle,
) -> Result<(&'r Export, Found)> {
    let attributes = export.backend.getattr(&request.context(export), &handle).await?;
    let directory = target.export.backend.getattr(&target.context, &target.handle).await?;
    Ok((export, Found { handle, attributes, directory }))
}

async fn itself(target: &Target<'_>) -> Result<Found> {
    let attributes = target.export.backend.getattr(&target.context, &target.handle).await?;
    if attributes.kind != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    Ok(Found { handle: target.handle, attributes, directory: attributes })
}

/// Returns the objects of `.` and `..` of a directory in a listing, which backends omit.
pub(crate) async fn dots(target: &Target<'_>) -> Result<[(Handle, Attributes); 2]> {
    let Target { export, handle, context } = target;
    let own = export.backend.getattr(context, handle).await?;
    if own.kind != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    // The root of the export is its own parent. A directory whose parent cannot be read is treated alike.
    let parent = match export.backend.parent(context, handle).await {
        Ok(parent) => (parent.handle, parent.attributes),
        Err(_) => (*handle, own),
    };
    Ok([(*handle, own), parent])
}
